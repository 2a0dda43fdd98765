// SPDX-License-Identifier: Apache-2.0
// What a new binary is handed, and the configuration that goes on.
#include "daemon/handoff.h"
#include "daemon/io.h"
#include "storekit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// One with two slots, three ends and two sockets, and a channel.
struct fix {
	struct storekit k;
	struct handoff h;
	int channel[2], pipe[2];
};

static void fix_init(struct fix *f)
{
	memset(f, 0, sizeof *f);
	storekit_init(&f->k, 4);
	ck_assert_int_eq(io_pipe(f->pipe), 0);
	for (int i = 0; i < 2; i++) {
		const int fds[STORE_ENDS] = {f->pipe[0], i ? f->pipe[1] : -1, -1, -1, -1};
		struct store_slot *slot = store_take(f->k.daemon);
		ck_assert_ptr_nonnull(slot);
		ck_assert_int_eq(store_record_put(slot, i ? "second" : "first", 5), 0);
		ck_assert_int_eq(store_hand(slot, fds), 0);
	}
	storekit_turn(&f->k);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, f->channel), 0);
	f->h.sandboxd = (struct daemon_sockets){.fd = {f->channel[1]}, .count = 1};
	f->h.envd = (struct daemon_sockets){.fd = {f->pipe[0]}, .count = 1};
	f->h.store = f->k.init.store;
	f->h.nofile = (struct rlimit){77, 99};
	f->h.oom_score_adj = 5;
	f->h.restarts = 12;
	snprintf(f->h.token, sizeof f->h.token, "secret");
	snprintf(f->h.cgroups, sizeof f->h.cgroups, "/sys/fs/cgroup/commands");
}

static void fix_release(struct fix *f)
{
	for (int i = 0; i < 2; i++) {
		io_close(&f->channel[i]);
		io_close(&f->pipe[i]);
	}
	storekit_release(&f->k);
}

static bool stays_open(int fd)
{
	int flags = fcntl(fd, F_GETFD);
	return flags >= 0 && !(flags & FD_CLOEXEC);
}

static size_t count_open(void)
{
	size_t n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += stays_open(fd);
	return n;
}

START_TEST(failed_exec_changes_something)
{
	struct fix f;
	char *argv[] = {(char *)"celld", NULL};
	fix_init(&f);
	size_t before = storekit_fds(), open = count_open();
	snprintf(f.h.binary, sizeof f.h.binary, "/nowhere/celld");
	ck_assert_int_eq(handoff_exec(&f.h, argv, f.channel[0]), -ENOENT);
	snprintf(f.h.binary, sizeof f.h.binary, "/etc/passwd");
	ck_assert_int_eq(handoff_exec(&f.h, argv, f.channel[0]), -EACCES);
	ck_assert_ptr_null(getenv("CELLD_RESUME"));
	ck_assert_uint_eq(storekit_fds(), before);
	ck_assert_uint_eq(count_open(), open);
	fix_release(&f);
}
END_TEST

// The file that a new program finds, by way of a shell that only hands its descriptors on.
static int written(struct fix *f, char *out, size_t n)
{
	int back[2];
	ck_assert_int_eq(pipe(back), 0);
	pid_t pid = fork();
	if (pid == 0) {
		char *argv[] = {(char *)"sh", (char *)"-c", (char *)"cat /proc/self/fd/$CELLD_RESUME", NULL};
		const struct rlimit few = {4096, RLIM_INFINITY}; // a memfd counts as a file
		setrlimit(RLIMIT_FSIZE, &few);
		dup2(back[1], STDOUT_FILENO);
		snprintf(f->h.binary, sizeof f->h.binary, "/bin/sh");
		_exit(-handoff_exec(&f->h, argv, f->channel[0]));
	}
	close(back[1]);
	size_t got = 0;
	for (ssize_t r = 1; r > 0 && got < n; got += (size_t)r) {
		r = io_read(back[0], out + got, n - got);
		ck_assert_int_ge(r, 0);
	}
	close(back[0]);
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	return (int)got;
}

// As a new program of the same numbers, which it closes by its own: a child.
static int take_in_child(const struct fix *f, const void *p, size_t n, bool right)
{
	pid_t pid = fork();
	if (pid != 0) {
		int status;
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	}
	static struct handoff h;
	char number[16];
	size_t len;
	int fd = memfd_create("handoff", 0);
	if (io_write(fd, p, n) != (ssize_t)n)
		_exit(100);
	snprintf(number, sizeof number, "%d", fd);
	setenv("CELLD_RESUME", number, 1);
	int rc = handoff_take(&h);
	if (getenv("CELLD_RESUME") || fcntl(fd, F_GETFD) >= 0)
		_exit(101);
	if (!right)
		_exit(rc == -EPROTO ? 1 : rc == 1 ? 2 : 102);
	if (rc != 1 || h.sandboxd.count != 1 || h.sandboxd.fd[0] != f->channel[1] || h.envd.fd[0] != f->pipe[0] ||
		h.nofile.rlim_cur != 77 || h.nofile.rlim_max != 99 || h.oom_score_adj != 5 || h.restarts != 12 ||
		strcmp(h.token, "secret") != 0 || strcmp(h.cgroups, "/sys/fs/cgroup/commands") != 0)
		_exit(103);
	size_t at;
	struct store_slot *slot = store_left(h.store, 0, &at);
	const char *text = slot ? store_record_get(slot, &len) : NULL;
	if (!text || strncmp(text, "first", 5) != 0 || store_end_take(slot, STORE_STDIN) < 0 ||
		store_end_take(slot, STORE_STDOUT) >= 0)
		_exit(104);
	slot = store_left(h.store, at + 1, &at);
	if (!slot || store_end_take(slot, STORE_STDOUT) < 0 || stays_open(h.store->memory) ||
		stays_open(h.store->channel) || stays_open(h.sandboxd.fd[0]))
		_exit(105);
	_exit(0);
}

START_TEST(what_was_handed_over_is_not_found)
{
	struct fix f;
	static char text[65536], bad[65536];
	unsigned seed = 11;
	fix_init(&f);
	size_t n = (size_t)written(&f, text, sizeof text);
	ck_assert(n > 4096 && n < sizeof text);
	ck_assert_int_eq(take_in_child(&f, text, n, true), 0);
	ck_assert_int_eq(take_in_child(&f, text, n - 1, false), 1);
	ck_assert_int_eq(take_in_child(&f, text, 0, false), 1);
	for (size_t i = 0; i < 28; i++) { // magic, versions, size, and the arena's number
		memcpy(bad, text, n);
		bad[i] = (char)(bad[i] ^ 0x80);
		int rc = take_in_child(&f, bad, n, false);
		ck_assert_msg(rc == 1 || (i >= 24 && rc == 2), "byte %zu: %d", i, rc);
	}
	for (int i = 0; i < 200; i++) {
		memcpy(bad, text, n);
		for (int j = 0; j < 8; j++)
			bad[(size_t)rand_r(&seed) % 256] = (char)rand_r(&seed);
		int rc = take_in_child(&f, bad, n, false);
		ck_assert_msg(rc == 1 || rc == 2, "%d", rc);
	}
	fix_release(&f);
}
END_TEST

START_TEST(nothing_was_handed_over)
{
	static struct handoff h;
	static const char *const bad[] = {"", "x", "-1", "0", "2", "3x", "99999999999999999999", "4000"};
	unsetenv("CELLD_RESUME");
	ck_assert_int_eq(handoff_take(&h), 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		setenv("CELLD_RESUME", bad[i], 1);
		ck_assert_msg(handoff_take(&h) == -EPROTO, "%s", bad[i]);
		ck_assert_ptr_null(getenv("CELLD_RESUME"));
	}
}
END_TEST

// --- the configuration ---

static enum config_action resume(struct config *c, const char *given, const char *file, const char *token)
{
	static char words[4][256];
	char *argv[5] = {words[0]};
	int argc = 1, status;
	snprintf(words[0], sizeof words[0], "celld");
	if (given) {
		snprintf(words[1], sizeof words[1], "--token");
		snprintf(words[2], sizeof words[2], "%s", given);
		argv[argc++] = words[1];
		argv[argc++] = words[2];
	} else if (file) {
		snprintf(words[1], sizeof words[1], "--token-file");
		snprintf(words[2], sizeof words[2], "%s", file);
		argv[argc++] = words[1];
		argv[argc++] = words[2];
	}
	argv[argc] = NULL;
	return config_resume(c, argc, argv, token, &status);
}

START_TEST(token_is_lost_in_an_upgrade)
{
	static struct config c[5];
	char path[] = "/tmp/celld-handoff-XXXXXX";
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(resume(&c[0], "", NULL, "secret"), CONFIG_RUN);
	ck_assert_str_eq(c[0].token, "secret");
	ck_assert_int_eq(resume(&c[1], NULL, NULL, "variable"), CONFIG_RUN);
	ck_assert_str_eq(c[1].token, "variable");
	ck_assert_int_eq(resume(&c[2], NULL, NULL, ""), CONFIG_RUN);
	ck_assert_ptr_null(c[2].token);
	// A file that cannot be read any more (it was a pipe), then one that can.
	ck_assert_int_eq(resume(&c[3], NULL, "/nowhere/token", "from a pipe"), CONFIG_RUN);
	ck_assert_str_eq(c[3].token, "from a pipe");
	ck_assert_int_eq(config_reload_token(&c[3]), -ENOENT);
	ck_assert_str_eq(c[3].token, "from a pipe");
	ck_assert_int_eq(resume(&c[4], NULL, path, "old"), CONFIG_RUN);
	ck_assert_int_eq(io_write(fd, "new\n", 4), 4);
	ck_assert_int_eq(config_reload_token(&c[4]), 0);
	ck_assert_str_eq(c[4].token, "new");
	close(fd);
	unlink(path);
	for (size_t i = 0; i < 5; i++)
		free((char *)(uintptr_t)c[i].token);
}
END_TEST

Suite *handoff_suite(void)
{
	Suite *s = suite_create("handoff");
	TCase *tc = tcase_create("handoff");
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, failed_exec_changes_something);
	tcase_add_test(tc, what_was_handed_over_is_not_found);
	tcase_add_test(tc, nothing_was_handed_over);
	tcase_add_test(tc, token_is_lost_in_an_upgrade);
	suite_add_tcase(s, tc);
	return s;
}
