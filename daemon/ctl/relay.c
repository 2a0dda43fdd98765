// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/relay.h"
#include "daemon/ctl/ctl_priv.h"
#include "daemon/ctl/relay_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

// A second signal of the same kind ends the relay if the first one could not be sent for that long.
#define PATIENCE_NS 1000000000ll
#define ABANDON_LIMIT_MS 3000
#define FRAME_MAX ((size_t)1024 * 1024)

// --- signals ---

struct signals {
	int fd; // -1: none are taken
	sigset_t old;
	struct sigaction old_pipe;
};

// Whatever would end us: the terminal's modes are put back first.
static void add_deadly(sigset_t *set)
{
	for (int sig = 1; sig < NSIG; sig++)
		if (sig != SIGCHLD && sig != SIGURG && sig != SIGTTIN && sig != SIGTTOU)
			ctl_add_signal(set, sig); // those that cannot be taken stay out by themselves
}

static int signals_take(struct signals *s, enum relay_kind kind)
{
	static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0};
	static const int screen[] = {SIGWINCH, SIGTSTP, SIGCONT, 0};
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;
	s->fd = -1;
	sigaction(SIGPIPE, &ignore, &s->old_pipe);
	sigemptyset(&set);
	for (const int *sig = passed; *sig && kind != RELAY_FOLLOWED; sig++)
		ctl_add_signal(&set, *sig);
	for (const int *sig = screen; *sig && kind == RELAY_TERMINAL; sig++)
		sigaddset(&set, *sig);
	if (kind == RELAY_TERMINAL)
		add_deadly(&set);
	sigprocmask(SIG_BLOCK, &set, &s->old);
	if (kind == RELAY_FOLLOWED)
		return 0;
	s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->fd < 0 ? -errno : 0;
}

static void signals_leave(struct signals *s)
{
	io_close(&s->fd);
	sigprocmask(SIG_SETMASK, &s->old, NULL);
	sigaction(SIGPIPE, &s->old_pipe, NULL);
}

// The shell that gets the terminal wants it as it was.
static void pause_here(struct terminal *t)
{
	int fd = t->fd;
	terminal_restore(t);
	kill(getpid(), SIGSTOP);
	terminal_raw(t, fd);
}

static void on_signal(struct relay *r, int sig)
{
	uint64_t bit = 1ull << (sig - 1);
	bool screen = sig == SIGWINCH || sig == SIGCONT || sig == SIGTSTP;
	if (sig == SIGTSTP)
		pause_here(r->spec->terminal);
	if (sig == SIGCONT && r->spec->terminal->raw) { // whoever stopped us may have changed them
		terminal_restore(r->spec->terminal);
		terminal_raw(r->spec->terminal, r->spec->in);
	}
	r->resize |= screen;
	if (screen)
		return;
	bool stuck = (r->signals & bit) && io_mono_ns() - r->pressed > PATIENCE_NS;
	if (r->over || stuck || r->spec->kind == RELAY_TERMINAL)
		r->end->cut_by = sig;
	if (!r->signals)
		r->pressed = io_mono_ns();
	r->signals |= bit;
}

static void read_signals(struct relay *r, int fd)
{
	struct signalfd_siginfo info;
	while (io_read(fd, &info, sizeof info) == (ssize_t)sizeof info)
		on_signal(r, (int)info.ssi_signo);
}

// --- the loop ---

enum { SIGNALS, STREAM, CALLS, INPUT, OUTPUT, ERRORS, SLOTS };

static void watch_for(struct relay *r, int sigfd, struct pollfd p[SLOTS])
{
	for (int i = 0; i < SLOTS; i++)
		p[i] = (struct pollfd){.fd = -1};
	p[SIGNALS] = (struct pollfd){.fd = sigfd, .events = POLLIN};
	if (!r->over && (relay_has_room(r) || buf_len(&r->stream.out) > 0))
		p[STREAM] = (struct pollfd){.fd = r->stream.fd, .events = http_client_interest(&r->stream)};
	if (r->call != RELAY_NONE && !r->over)
		p[CALLS] = (struct pollfd){.fd = r->calls.fd, .events = http_client_interest(&r->calls)};
	if (relay_wants_input(r) && r->begun && !r->over)
		p[INPUT] = (struct pollfd){.fd = r->spec->in, .events = POLLIN};
	for (int i = 0; i < 2; i++)
		if (buf_len(&r->sinks[i].pending) > 0)
			p[OUTPUT + i] = (struct pollfd){.fd = r->sinks[i].fd, .events = POLLOUT};
}

static int timeout_of(const struct relay *r, int64_t head_by)
{
	int64_t at = relay_retry_at(r);
	if (r->more)
		return 0;
	if (!r->begun && (!at || head_by < at))
		at = head_by;
	if (!at)
		return -1;
	int64_t ms = (at - io_mono_ns() + 999999) / 1000000;
	return ms < 0 ? 0 : ms > 60000 ? 60000 : (int)ms;
}

// One turn. 1 once all is over, 0 to go on, -1 with E filled.
static int turn(struct relay *r, int sigfd, int64_t head_by, struct err *e)
{
	struct pollfd p[SLOTS];
	if (relay_take(r, e) < 0 || relay_send(r, e) < 0)
		return -1;
	if (r->spec->moved)
		r->spec->moved(r->spec->arg, r->in_bytes, r->out_bytes);
	if (r->end->cut_by || (r->over && !relay_pending(r)))
		return 1;
	if (!r->begun && io_mono_ns() >= head_by)
		return err_set(e, ERR_UNAVAILABLE, "%s: no answer", r->spec->target->name);
	watch_for(r, sigfd, p);
	if (poll(p, SLOTS, timeout_of(r, head_by)) < 0 && errno != EINTR)
		return err_sys(e, -errno, "poll");
	if (p[SIGNALS].revents)
		read_signals(r, sigfd);
	for (int i = 0; i < 2; i++)
		if (p[OUTPUT + i].revents)
			relay_flush(r, &r->sinks[i]);
	return p[INPUT].revents ? relay_read_input(r, e) : 0;
}

static void sink_init(struct sink *s, int fd, bool safe)
{
	struct stat st;
	*s = (struct sink){.fd = fd, .safe = safe && isatty(fd)};
	buf_init(&s->pending, 0);
	s->plain = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void init(struct relay *r, const struct relay_spec *spec, struct relay_end *end)
{
	*r = (struct relay){.spec = spec, .end = end};
	*end = (struct relay_end){.code = -1};
	http_client_init(&r->stream, spec->target);
	http_client_init(&r->calls, spec->target);
	buf_init(&r->calls.body, FRAME_MAX); // their answers are small
	frame_reader_init(&r->frames, FRAME_MAX);
	sink_init(&r->sinks[0], spec->out, spec->safe_err && spec->out == spec->err);
	sink_init(&r->sinks[1], spec->err, spec->safe_err);
	buf_init(&r->input, 0);
	r->input_closed = spec->in < 0;
}

static void release(struct relay *r)
{
	http_client_release(&r->stream);
	http_client_release(&r->calls);
	frame_reader_release(&r->frames);
	buf_release(&r->sinks[0].pending);
	buf_release(&r->sinks[1].pending);
	buf_release(&r->input);
}

// Something has failed here: the command must not wait for its input, or a reader, for ever. Tried once.
static void abandon(struct relay *r)
{
	struct buf body;
	struct err e;
	buf_init(&body, 0);
	buf_printf(&body, "{\"pid\":%lld,\"signal\":\"SIGHUP\"}", (long long)r->pid);
	r->calls.limit_ms = ABANDON_LIMIT_MS;
	jsonr_free(http_client_call(&r->calls, "POST", "/exec/signal", &body, &e));
	buf_release(&body);
}

// What came before the failure is still its reader's, unless a signal ends us.
static void drain(struct relay *r, int sigfd)
{
	struct pollfd p[SLOTS];
	r->over = true;
	while (relay_pending(r) && !r->end->cut_by) {
		watch_for(r, sigfd, p);
		if (poll(p, SLOTS, -1) < 0 && errno != EINTR)
			return;
		if (p[SIGNALS].revents)
			read_signals(r, sigfd);
		for (int i = 0; i < 2; i++)
			if (p[OUTPUT + i].revents)
				relay_flush(r, &r->sinks[i]);
	}
}

int relay_run(const struct relay_spec *spec, struct relay_end *end, struct err *e)
{
	struct relay r;
	struct signals signals;
	init(&r, spec, end);
	int rc = signals_take(&signals, spec->kind);
	rc = rc < 0 ? err_sys(e, rc, "signalfd")
		    : http_client_begin(&r.stream, spec->method, spec->path, spec->body, e);
	int64_t head_by = io_mono_ns() + HTTP_CLIENT_LIMIT_MS * 1000000ll;
	while (rc == 0)
		rc = turn(&r, signals.fd, head_by, e);
	if (rc < 0 && r.begun && !r.over && spec->kind == RELAY_COMMAND && !http_client_lost(e))
		abandon(&r);
	if (rc < 0)
		drain(&r, signals.fd);
	signals_leave(&signals);
	release(&r);
	return rc < 0 ? -1 : 0;
}

int relay_status(const struct relay_end *end)
{
	if (end->cut_by)
		return 128 + end->cut_by;
	if (end->timed_out)
		return 124;
	return end->sig ? 128 + end->sig : end->code < 0 || end->code > 255 ? 255 : end->code;
}
