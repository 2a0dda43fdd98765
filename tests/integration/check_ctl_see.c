// SPDX-License-Identifier: Apache-2.0
// celld ctl ls, watch and ready, where it looks for the daemon, and what it says when there is none.
#include "tests/integration/ctlkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void shell(const char *dir, const char *line)
{
	char command[1024];
	(void)snprintf(command, sizeof command, "cd %s && { %s; }", dir, line);
	ck_assert_msg(system(command) == 0, "%s", line);
}

// --- ls ---

START_TEST(ls_sorts_and_shows_names_safely)
{
	struct testd *d = d_start();
	struct ctlrun c;
	shell(d->workspace,
		"mkdir dir; cd dir; touch b a c; mkdir sub; touch \"$(printf 'e\\033[31m')\" \"$(printf 'z\\377')\"; "
		"ln -s 'to where' link; chmod 4751 a; chmod 1777 sub; printf 12345 >b");
	ctl_ok(d, &c, "ls", "dir");
	ck_assert_str_eq(ctl_out(&c), "a\nb\nc\ne?[31m\nlink\nsub\nz\xff\n");
	ctl_release(&c);
	ctl_ok(d, &c, "ls", "-l", "dir");
	ctl_assert_has(ctl_out(&c), "-rwsr-x--x ");
	ctl_assert_has(ctl_out(&c), "drwxrwxrwt ");
	ctl_assert_has(ctl_out(&c), "lrwxrwxrwx ");
	ctl_assert_has(ctl_out(&c), " link -> to where\n");
	ctl_assert_has(ctl_out(&c), "          5 20");
	ctl_release(&c);
	ctl_ok(d, &c, "ls", "--json", "dir");
	json_t *o = json_loads(ctl_out(&c), 0, NULL);
	ck_assert_uint_eq(json_array_size(j_get(o, "files")), 7);
	json_decref(o);
	ctl_release(&c);
	ctl_ok(d, &c, "ls", "-l", "dir/b");
	ctl_assert_has(ctl_out(&c), " dir/b\n");
	ctl_release(&c);
	ctl_ok(d, &c, "ls", "--json", "dir/b");
	o = json_loads(ctl_out(&c), 0, NULL);
	ck_assert_int_eq(j_int(o, "size"), 5);
	json_decref(o);
	ctl_release(&c);
	ctl_ok(d, &c, "ls");
	ctl_assert_has(ctl_out(&c), "dir\n");
	ctl_release(&c);
	// A list of any length.
	shell(d->workspace, "mkdir many; cd many; seq -f 'a-file-of-many-%05g' 12000 | xargs touch");
	ctl_ok(d, &c, "ls", "many");
	ck_assert_uint_eq(buf_len(&c.said[0]), 12000 * sizeof "a-file-of-many-00000");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "ls", "/nowhere");
	ck_assert_str_eq(ctl_err(&c), "celld ctl: /nowhere: No such file or directory (not_found)\n");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// --- watch ---

START_TEST(watch_prints_a_line_an_event)
{
	struct testd *d = d_start();
	struct ctlrun c, j;
	char line[600];
	shell(d->workspace, "mkdir -p w/sub");
	ctl_start(&c, d, NULL, ctl_words("watch", "-r", "w"));
	ctl_until(&c, true, "celld ctl: watching w\n");
	ctl_start(&j, d, NULL, ctl_words("watch", "--json", "w"));
	ctl_until(&j, true, "watching w");
	shell(d->workspace, "echo x >w/sub/f; chmod 600 w/sub/f; mv w/sub/f w/g; rm w/g");
	(void)snprintf(line, sizeof line, "create %s/w/sub/f\n", d->workspace);
	ctl_until(&c, false, line);
	(void)snprintf(line, sizeof line, "chmod  %s/w/sub/f\n", d->workspace);
	ctl_until(&c, false, line);
	(void)snprintf(line, sizeof line, "remove %s/w/g\n", d->workspace);
	ctl_until(&c, false, line);
	(void)snprintf(line, sizeof line, "{\"name\":\"%s/w/g\",\"type\":3}\n", d->workspace);
	ctl_until(&j, false, line);
	ck_assert_ptr_null(strstr(ctl_out(&j), "sub/f\""));
	ck_assert_int_eq(kill(j.pid, SIGINT), 0);
	ck_assert_int_eq(ctl_finish(&j, "", 0), -1 - SIGINT);
	shell(d->workspace, "rm -r w");
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	ctl_assert_has(ctl_err(&c), "celld ctl: w is gone\n");
	ctl_release(&c);
	ctl_release(&j);
	ctl_exits(d, 1, &c, "watch", "-q", "nowhere");
	ctl_assert_has(ctl_err(&c), "No such file or directory (not_found)");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// --- ready ---

START_TEST(ready_waits_for_one_that_comes_late)
{
	char dir[] = "/tmp/celld-it-ctl-XXXXXX", listen[128], url[160];
	struct ctlrun c, quick;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(listen, sizeof listen, "unix:%s/sock", dir);
	(void)snprintf(url, sizeof url, "CELLD_URL=%s", listen);
	ctl_start(&c, NULL, ctl_words(url), ctl_words("ready", "--wait", "20s"));
	ck_assert_int_eq(ctl_run_env(&quick, NULL, ctl_words(url), ctl_words("ready")), 1);
	ctl_assert_has(ctl_err(&quick), "No such file or directory (unavailable)");
	ctl_release(&quick);
	int64_t from = h_now_ms();
	ck_assert_int_eq(ctl_run_env(&quick, NULL, ctl_words(url), ctl_words("ready", "-q", "--wait", "300ms")), 1);
	ck_assert_int_ge(h_now_ms() - from, 300);
	ck_assert_str_eq(ctl_err(&quick), "");
	ctl_release(&quick);
	struct testd *d = d_start("--listen", listen, "--token", "secret");
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0); // and without the token
	ck_assert_str_eq(ctl_out(&c), "ready\n");
	ctl_release(&c);
	ck_assert_int_eq(
		ctl_run_env(&quick, NULL, ctl_words(url, "CELLD_TOKEN_FILE=/nowhere"), ctl_words("ready", "-q")), 0);
	ck_assert_str_eq(ctl_out(&quick), "");
	ctl_release(&quick);
	ctl_ok(d, &quick, "ready", "--json");
	ck_assert_str_eq(ctl_out(&quick), "{\"status\":\"ready\",\"venv\":false}\n");
	ctl_release(&quick);
	d_finish(d);
	(void)unlink(listen + 5);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

// --- where, and as whom ---

START_TEST(target_comes_from_option_or_variables)
{
	char dir[] = "/tmp/celld-it-ctl-XXXXXX", listen[128], all[160], loop[64], v4[64], plain[64];
	struct ctlrun c;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(listen, sizeof listen, "unix:%s/sock", dir);
	struct testd *d = d_start("--listen", listen);
	(void)snprintf(all, sizeof all, "CELLD_LISTEN=off,fd:3,%s,1.2.3.4:5", listen);
	(void)snprintf(loop, sizeof loop, "CELLD_LISTEN=[::]:%d", d->port);
	(void)snprintf(v4, sizeof v4, "CELLD_LISTEN=0.0.0.0:%d", d->port);
	(void)snprintf(plain, sizeof plain, "http://localhost:%d/", d->port);
	const char *const ways[] = {all, loop, v4};
	for (size_t i = 0; i < 3; i++) {
		ck_assert_msg(ctl_run_env(&c, NULL, ctl_words(ways[i]), ctl_words("exec", "echo", "hi")) == 0, "%s: %s",
			ways[i], ctl_err(&c));
		ck_assert_str_eq(ctl_out(&c), "hi\n");
		ctl_release(&c);
	}
	// The option wins, before the command and behind it.
	ck_assert_int_eq(
		ctl_run_env(&c, NULL, ctl_words("CELLD_URL=http://127.0.0.1:1"), ctl_words("--url", plain, "ps")), 0);
	ctl_release(&c);
	ck_assert_int_eq(
		ctl_run_env(&c, NULL, ctl_words("CELLD_URL=http://127.0.0.1:1"), ctl_words("ps", "--url", listen)), 0);
	ctl_release(&c);
	d_finish(d);
	(void)unlink(listen + 5);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

static const struct {
	const char *url, *says;
} wrong[] = {
	{"https://127.0.0.1:5", "--url: https is not spoken here"},
	{"ftp://x", "is neither http://ADDRESS:PORT nor unix:/PATH"},
	{"http://127.0.0.1", "is not ADDRESS:PORT"},
	{"http://127.0.0.1:0", "is not ADDRESS:PORT"},
	{"http://127.0.0.1:70000", "is not ADDRESS:PORT"},
	{"http://example.org:80", "\"example.org\" is no address (names other than localhost are not looked up)"},
	{"unix:", "a socket's path has 1 to 107 bytes"},
};

START_TEST(bad_url_is_a_usage_error)
{
	struct ctlrun c;
	ctl_exits(NULL, 2, &c, "ps", "--url", wrong[_i].url);
	ctl_assert_has(ctl_err(&c), wrong[_i].says);
	ctl_release(&c);
}
END_TEST

// Nobody there, and somebody who goes away: 125 for every command.
START_TEST(no_daemon_is_125)
{
	static const char *const commands[][3] = {{"exec", "true"}, {"exec", "-i", "true"}, {"ps", "-a"}, {"kill", "1"},
		{"attach", "1"}, {"ls", "/"}, {"watch", "/"}, {"cp", ":/etc/passwd", "/tmp/celld-it-never"}};
	struct ctlrun c;
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		const char *const words[] = {
			commands[i][0], "--url", "unix:/nowhere/sock", commands[i][1], commands[i][2], NULL};
		int status = ctl_run_env(&c, NULL, NULL, words);
		ck_assert_msg(status == 125, "%s: %d %s", commands[i][0], status, ctl_err(&c));
		ctl_assert_has(ctl_err(&c), "celld ctl: unix:/nowhere/sock: No such file or directory (unavailable)\n");
		ctl_release(&c);
	}
}
END_TEST

static bool serves_again(void *d)
{
	return d_refresh(d) != 0;
}

static void cut(struct testd *d, bool kill_it)
{
	struct ctlrun c;
	ctl_start(&c, d, NULL, ctl_words("exec", "--", "sh", "-c", "trap '' TERM; echo up; sleep 60"));
	ctl_until(&c, false, "up\n");
	if (kill_it) {
		d_expect_crash(d);
		ck_assert_int_eq(kill(d->daemon, SIGKILL), 0);
	} else {
		ck_assert_int_eq(d_stop(d, 10000), 0);
	}
	ck_assert_int_eq(ctl_finish(&c, "", 0), 125);
	ctl_assert_has(ctl_err(&c), kill_it ? "(unavailable)" : "celld ctl: sandbox is terminating (unavailable)\n");
	ctl_release(&c);
}

START_TEST(cut_stream_is_125)
{
	struct testd *d = d_start("--stop-grace", "100");
	cut(d, false);
	d_finish(d);
	d = d_start("--init");
	cut(d, true);
	ck_assert(wait_until(serves_again, d, 10000));
	d_finish(d);
}
END_TEST

START_TEST(token_opens_and_its_want_is_told)
{
	struct testd *d = d_start("--token", "secret");
	struct ctlrun c;
	char file[512], variable[600];
	ctl_file(d, "token", file);
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, "secret\n", 7), 7);
	(void)close(fd);
	(void)snprintf(variable, sizeof variable, "CELLD_TOKEN_FILE=%s", file);
	ctl_exits(d, 1, &c, "ps");
	ctl_assert_has(ctl_err(&c), "(unauthenticated)\n");
	ctl_release(&c);
	ctl_exits(d, 125, &c, "exec", "true");
	ctl_release(&c);
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words("CELLD_TOKEN=wrong"), ctl_words("ls")), 1);
	ctl_assert_has(ctl_err(&c), "(unauthenticated)\n");
	ctl_release(&c);
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words("CELLD_TOKEN=secret"), ctl_words("exec", "true")), 0);
	ctl_release(&c);
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words(variable), ctl_words("exec", "true")), 0);
	ctl_release(&c);
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words("CELLD_TOKEN=wrong"), ctl_words("ps", "--token-file", file)), 0);
	ctl_release(&c);
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words(variable, "CELLD_TOKEN=secret"), ctl_words("ps")), 2);
	ctl_assert_has(ctl_err(&c), "not together");
	ctl_release(&c);
	ctl_exits(d, 2, &c, "ps", "--token-file", "/nowhere/token");
	ctl_assert_has(ctl_err(&c), "--token-file: /nowhere/token: No such file or directory");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

Suite *ctl_see_suite(void)
{
	Suite *s = suite_create("ctl_see");
	TCase *tc = h_tcase(s, "files", 60);
	tcase_add_test(tc, ls_sorts_and_shows_names_safely);
	tcase_add_test(tc, watch_prints_a_line_an_event);
	tc = h_tcase(s, "daemon", 60);
	tcase_add_test(tc, ready_waits_for_one_that_comes_late);
	tcase_add_test(tc, target_comes_from_option_or_variables);
	tcase_add_loop_test(tc, bad_url_is_a_usage_error, 0, (int)(sizeof wrong / sizeof *wrong));
	tcase_add_test(tc, no_daemon_is_125);
	tcase_add_test(tc, cut_stream_is_125);
	tcase_add_test(tc, token_opens_and_its_want_is_told);
	return s;
}
