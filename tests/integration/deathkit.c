// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/deathkit.h"

#include "proto/text.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAULT_AT 0x10
#define DAEMON_DEADLINE 8000

struct testd *death_start(const char *binary, const char *const *more)
{
	static const char *const env[] = {"ASAN_OPTIONS=handle_segv=0:handle_abort=0:detect_leaks=1", NULL};
	const char *args[24] = {"--init", CALLS_ENVD};
	const struct rlimit none = {0, 0};
	for (size_t i = 0; more && more[i] && i < 20; i++)
		args[i + 3] = more[i];
	const struct d_opts opts = {.args = args, .env = env, .binary = binary};
	ck_assert_int_eq(setrlimit(RLIMIT_CORE, &none), 0);
	struct testd *d = d_start_opts(&opts);
	ck_assert_msg(d->has_init, "no init part");
	d_expect_crash(d);
	return d;
}

// --- deaths ---

#if defined __x86_64__ || defined __aarch64__
// As if it had jumped to FAULT_AT. False if it may not be traced.
static bool jump_astray(pid_t pid)
{
	struct user_regs_struct regs;
	struct iovec iov = {&regs, sizeof regs};
	int status;
	if (ptrace(PTRACE_SEIZE, pid, 0L, 0L) < 0)
		return false;
	bool ok = ptrace(PTRACE_INTERRUPT, pid, 0L, 0L) == 0 && waitpid(pid, &status, __WALL) == pid &&
		  ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &iov) == 0;
#ifdef __x86_64__
	regs.rip = FAULT_AT;
	regs.orig_rax = (unsigned long long)-1; // no system call is to be begun again
#else
	regs.pc = FAULT_AT;
#endif
	ok = ok && ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &iov) == 0;
	return ptrace(PTRACE_DETACH, pid, 0L, 0L) == 0 && ok;
}
#else
static bool jump_astray(pid_t pid)
{
	(void)pid;
	return false;
}
#endif

static bool is_dead(void *arg)
{
	return !pid_alive(*(pid_t *)arg);
}

pid_t death_kill(const struct testd *d, int sig, bool *faulted)
{
	pid_t old = d->daemon;
	bool astray = sig == DEATH_FAULT && jump_astray(old);
	if (!astray)
		ck_assert_int_eq(kill(old, sig == DEATH_FAULT ? SIGSEGV : sig), 0);
	ck_assert_msg(wait_until(is_dead, &old, 3000), "daemon %d survives signal %d", (int)old, sig);
	if (faulted)
		*faulted = astray;
	return old;
}

struct change {
	struct testd *d;
	pid_t old;
};

static bool has_new_daemon(void *arg)
{
	const struct change *c = arg;
	pid_t now = d_refresh(c->d);
	return now > 0 && now != c->old;
}

void death_await(struct testd *d, pid_t old, int64_t ms)
{
	struct change c = {d, old};
	struct resp r = {0};
	ck_assert_msg(wait_until(has_new_daemon, &c, ms), "no new daemon within %lld ms", (long long)ms);
	// What the old one was just about to start looks like it until the new one serves.
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	ck_assert(wait_until(has_new_daemon, &c, 1000));
	resp_release(&r);
}

void death_crash(struct testd *d, int sig)
{
	death_await(d, death_kill(d, sig, NULL), DAEMON_DEADLINE);
}

pid_t death_down(const struct testd *d, int sig)
{
	ck_assert_int_eq(kill(d->init, SIGSTOP), 0);
	return death_kill(d, sig, NULL);
}

void death_up(struct testd *d, pid_t old)
{
	ck_assert_int_eq(kill(d->init, SIGCONT), 0);
	death_await(d, old, DAEMON_DEADLINE);
}

void death_upgrade(struct testd *d)
{
	pid_t old = d->daemon;
	d_signal(d, SIGUSR2);
	death_await(d, old, DAEMON_DEADLINE);
}

void death_wait_until(int64_t start, int64_t ms)
{
	while (h_now_ms() < start + ms)
		h_tick();
}

// --- what the next one says ---

void death_assert_serves(const struct testd *d)
{
	struct resp r = {0};
	ck_assert_str_eq(j_str(run(d, "echo served", &r), "stdout"), "served\n");
	resp_release(&r);
}

struct log_wait {
	const struct testd *d;
	const char *text;
};

static bool log_has(void *arg)
{
	const struct log_wait *w = arg;
	return d_log_has(w->d, w->text);
}

void death_assert_log(const struct testd *d, const char *text)
{
	struct log_wait w = {d, text};
	ck_assert_msg(wait_until(log_has, &w, 2000), "the log does not say \"%s\"", text);
}

json_t *death_status(const struct testd *d, struct resp *r)
{
	req(d, "GET", "/processes", NULL, r);
	ck_assert_int_eq(r->status, 200);
	return j_get(resp_json(r), "daemon");
}

json_t *death_row(const struct testd *d, int64_t pid, struct resp *r)
{
	size_t i;
	json_t *row;
	req(d, "GET", "/exec/processes", NULL, r);
	ck_assert_int_eq(r->status, 200);
	json_array_foreach(j_get(resp_json(r), "processes"), i, row)
	{
		if (j_int(row, "pid") == pid)
			return row;
	}
	return NULL;
}

void death_post(const struct testd *d, const char *target, const char *fmt, ...)
{
	struct resp r = {0};
	va_list ap;
	va_start(ap, fmt);
	char *body = client_pack(fmt, ap);
	va_end(ap);
	req(d, "POST", target, body, &r);
	ck_assert_msg(r.status == 200, "%s %.200s: %d %s", target, body, r.status, buf_cstr(&r.body));
	resp_release(&r);
	free(body);
}

void death_feed(const struct testd *d, int64_t pid, const void *p, size_t n)
{
	struct buf b = {0};
	text_b64_encode(&b, p, n);
	death_post(d, "/exec/stdin", "{s:I,s:s}", "pid", (json_int_t)pid, "data", buf_cstr(&b));
	buf_release(&b);
}

void death_collect(const struct testd *d, int64_t pid, int64_t code, struct sse_out *o)
{
	struct sse *s = sse_attach(d, pid);
	sse_collect(s, o, CLIENT_DEADLINE);
	ck_assert_int_eq(o->pid, pid);
	ck_assert_msg(o->end.kind == SSE_EXIT && o->end.code == code && !*o->end.signal, "%s %lld \"%s\", want %lld",
		sse_kind_name(o->end.kind), (long long)o->end.code, o->end.signal, (long long)code);
	sse_close(s);
}

void death_was_cut(struct sse *s)
{
	struct sse_event e = {0};
	enum sse_kind kind;
	do
		kind = sse_next(s, &e, 5000);
	while (kind == SSE_DATA);
	ck_assert_msg(kind == SSE_CUT, "%s instead of a cut", sse_kind_name(kind));
	sse_event_release(&e);
	sse_close(s);
}

// --- files ---

int death_gate(const struct testd *d, const char *name)
{
	char path[512];
	(void)snprintf(path, sizeof path, "%s/%s", d->workspace, name);
	ck_assert_int_eq(mkfifo(path, 0666), 0);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

char *death_file(const struct testd *d, const char *name)
{
	char path[512];
	char part[4096];
	ssize_t n;
	struct buf b = {0};
	(void)snprintf(path, sizeof path, "%s/%s", d->workspace, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	while ((n = read(fd, part, sizeof part)) > 0)
		buf_append(&b, part, (size_t)n);
	(void)close(fd);
	char *text = buf_take(&b, NULL);
	return text ? text : strdup("");
}

struct file_wait {
	const struct testd *d;
	const char *name, *want;
};

static bool file_is(void *arg)
{
	const struct file_wait *w = arg;
	char *text = death_file(w->d, w->name);
	bool is = text && strcmp(text, w->want) == 0;
	free(text);
	return is;
}

void death_await_file(const struct testd *d, const char *name, const char *want)
{
	struct file_wait w = {d, name, want};
	ck_assert_msg(wait_until(file_is, &w, 5000), "%s is not \"%s\"", name, want);
}

struct testd death_init_view(const struct testd *d)
{
	struct testd v = *d;
	v.daemon = d->init;
	return v;
}
