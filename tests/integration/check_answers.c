// SPDX-License-Identifier: Apache-2.0
// What /exec answers, and what a command finds when it starts: directory, environment, stdin, signals, descriptors.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static void assert_keys(const json_t *o, const char *const *keys, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)j_get(o, keys[i]);
	ck_assert_uint_eq(json_object_size(o), n);
}

START_TEST(exec_answer_has_other_keys)
{
	static const char *const keys[] = {
		"stdout", "stderr", "exit_code", "duration_ms", "truncated", "timed_out", "encoding"};
	struct testd *d = d_start();
	struct resp r = {0};
	const json_t *o = run(d, "echo out; echo err >&2; exit 5", &r);
	assert_keys(o, keys, 6);
	ck_assert_str_eq(j_str(o, "stdout"), "out\n");
	ck_assert_str_eq(j_str(o, "stderr"), "err\n");
	ck_assert_int_eq(j_int(o, "exit_code"), 5);
	ck_assert(!j_bool(o, "truncated"));
	ck_assert(!j_bool(o, "timed_out"));
	ck_assert_int_ge(j_int(o, "duration_ms"), 0);
	req_pack(d, "POST", "/exec", &r, "{s:s, s:s, s:{s:i}}", "command", "echo out", "encoding", "base64", "unknown",
		"key", 1);
	ck_assert_int_eq(r.status, 200);
	assert_keys(resp_json(&r), keys, 7);
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "b3V0Cg==");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(duration_is_made_up)
{
	struct testd *d = d_start();
	struct resp r = {0};
	int64_t start = h_now_ms();
	int64_t ms = j_int(run(d, "sleep .3", &r), "duration_ms");
	ck_assert_int_ge(ms, 290);
	ck_assert_int_le(ms, h_now_ms() - start + 1);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// stdin of /exec is empty: a command that reads it ends at once.
START_TEST(exec_waits_for_stdin)
{
	struct testd *d = d_start();
	struct resp r = {0};
	const json_t *o = run(d, "cat; echo $?", &r);
	ck_assert_str_eq(j_str(o, "stdout"), "0\n");
	ck_assert_int_lt(j_int(o, "duration_ms"), h_scaled(1000));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The string member KEY of /exec's answer to a request by FMT, in BUF.
static const char *pwd_of(const struct testd *d, json_t *workdir, struct resp *r)
{
	req_pack(d, "POST", "/exec", r, "{s:s, s:o*}", "command", "pwd -P", "workdir", workdir);
	ck_assert_int_eq(r->status, 200);
	return j_str(resp_json(r), "stdout");
}

START_TEST(workdir_is_the_daemons_own)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char *top = realpath(d->workspace, NULL);
	ck_assert_ptr_nonnull(top);
	char want[600];
	(void)snprintf(want, sizeof want, "%s\n", top);
	ck_assert_str_eq(pwd_of(d, NULL, &r), want);
	ck_assert_str_eq(pwd_of(d, json_string(""), &r), want);
	ck_assert_str_eq(pwd_of(d, json_null(), &r), want);
	(void)run(d, "mkdir -p 'sub/a b'", &r);
	(void)snprintf(want, sizeof want, "%s/sub/a b\n", top);
	ck_assert_str_eq(pwd_of(d, json_string("sub/a b"), &r), want);
	ck_assert_str_eq(pwd_of(d, json_string("/"), &r), "/\n");
	free(top);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The daemon's own environment stays with it, whatever the command is given.
START_TEST(environment_leaks_or_is_lost)
{
	static const char *const own[] = {"SECRET_OF_DAEMON=1", "PASSED_ON=yes", "LD_LIBRARY_PATH=/nope", NULL};
	static const char *const args[] = {"--pass-env", "PASSED_ON", NULL};
	const struct d_opts opts = {.args = args, .env = own};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	const char *env = j_str(run(d, "env", &r), "stdout");
	ck_assert_ptr_null(strstr(env, "SECRET_OF_DAEMON"));
	ck_assert_ptr_null(strstr(env, "LD_LIBRARY_PATH"));
	ck_assert_ptr_null(strstr(env, "CELLD"));
	ck_assert_ptr_nonnull(strstr(env, "PASSED_ON=yes\n"));
	static const char *const some[] = {"PATH=", "HOME=", "USER=", "LOGNAME=", "SHELL=", "VIRTUAL_ENV="};
	for (int i = 0; i < COUNT(some); i++)
		ck_assert_msg(strstr(env, some[i]), "no %s in %s", some[i], env);
	ck_assert_ptr_nonnull(strstr(env, ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"));

	req_pack(d, "POST", "/exec", &r, "{s:s, s:{s:s, s:s, s:s, s:i, s:n}}", "command",
		"printf '%s|' \"$A\" \"$HOME\" \"$E\" \"$N\" \"$Z\"", "env", "A", "x=y\nz \342\202\254", "HOME", "/h",
		"E", "", "N", 5, "Z");
	ck_assert_int_eq(r.status, 200);
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "x=y\nz \342\202\254|/h||||");
	req_pack(d, "POST", "/exec", &r, "{s:s, s:n}", "command", "echo $SHELL | head -c 1", "env");
	ck_assert_int_eq(r.status, 200);
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "/");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Signals and the mask are those of a fresh login, whatever the daemon ignores or blocks.
START_TEST(command_inherits_signal_settings)
{
	struct testd *d = d_start();
	struct resp r = {0};
	const char *status = j_str(run(d, "exec grep -E '^Sig(Blk|Ign):' /proc/self/status", &r), "stdout");
	ck_assert_str_eq(status, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
	// Nothing of the daemon's descriptors: 0-2 and ls's own.
	ck_assert_str_eq(j_str(run(d, "exec ls /proc/self/fd", &r), "stdout"), "0\n1\n2\n3\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *answers_suite(void)
{
	Suite *s = suite_create("answers");
	TCase *tc = h_tcase(s, "exec", 20);
	tcase_add_test(tc, exec_answer_has_other_keys);
	tcase_add_test(tc, duration_is_made_up);
	tcase_add_test(tc, exec_waits_for_stdin);
	tcase_add_test(tc, workdir_is_the_daemons_own);
	tcase_add_test(tc, environment_leaks_or_is_lost);
	tcase_add_test(tc, command_inherits_signal_settings);
	return s;
}
