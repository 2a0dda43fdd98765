// SPDX-License-Identifier: Apache-2.0
// "rlimits" and "limits" of a request: what reaches the command, what is refused, with which words, and that nothing has run then.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ASK "ulimit -n; ulimit -Hn; ulimit -c"

static const char *const targets[] = {"/exec", "/exec/stream", "/exec/background", "/pty/create"};

// Posts a start of SCRIPT with MORE (",\"rlimits\":...") to TARGET: the status.
static int start(const struct testd *d, const char *target, const char *script, const char *more, struct resp *r)
{
	static unsigned runs;
	char body[1024];
	bool terminal = strcmp(target, "/pty/create") == 0;
	int n = terminal ? snprintf(body, sizeof body, "{\"argv\":[\"sh\",\"-c\",\"%s\"]%s}", script, more)
			 : snprintf(body, sizeof body, "{\"run_id\":\"r%u\",\"command\":\"%s\"%s}", runs++, script,
				   more);
	ck_assert(n > 0 && (size_t)n < sizeof body);
	req(d, "POST", target, body, r);
	return r->status;
}

static const struct {
	const char *rlimits, *out; // of ASK
} taken[] = {
	{"{\"nofile\":64}", "64\n64\n0\n"},
	{"{\"nofile\":[64,128]}", "64\n128\n0\n"},
	{"{\"nofile\":[64.0,128]}", "64\n128\n0\n"},
	{"{\"nofile\":[64,128],\"core\":[8192,\"unlimited\"]}", "64\n128\n16\n"},
};

START_TEST(rlimits_do_not_reach_the_command)
{
	struct testd *d = d_start("--rlimit", "nofile=300:400");
	struct resp r = {0};
	char more[128];
	ck_assert_str_eq(j_str(run(d, ASK, &r), "stdout"), "300\n400\n0\n");
	for (size_t i = 0; i < COUNT(taken); i++) {
		(void)snprintf(more, sizeof more, ",\"rlimits\":%s", taken[i].rlimits);
		ck_assert_int_eq(start(d, "/exec", ASK, more, &r), 200);
		ck_assert_str_eq(j_str(resp_json(&r), "stdout"), taken[i].out);
	}
	ck_assert_int_eq(start(d, "/exec", ASK, ",\"rlimits\":null", &r), 200);
	ck_assert_int_eq(start(d, "/exec", ASK, ",\"rlimits\":{}", &r), 200);
	ck_assert_str_eq(j_str(run(d, ASK, &r), "stdout"), "300\n400\n0\n"); // the next one's are its own
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool has_text(void *arg)
{
	const char *path = arg;
	return access(path, F_OK) == 0;
}

START_TEST(rlimits_are_for_exec_alone)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char path[512];
	for (size_t i = 0; i < COUNT(targets); i++) {
		ck_assert_int_eq(
			start(d, targets[i], "ulimit -n > t; mv t got", ",\"rlimits\":{\"nofile\":77}", &r), 200);
		(void)snprintf(path, sizeof path, "%s/got", d->workspace);
		ck_assert_msg(wait_until(has_text, path, 5000), "%s: nothing ran", targets[i]);
		ck_assert_str_eq(j_str(run(d, "cat got; rm got", &r), "stdout"), "77\n");
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

static const struct {
	const char *more, *names; // what the message has to name
} bad[] = {
	{"\"rlimits\":[]", "rlimits"},
	{"\"rlimits\":5", "rlimits"},
	{"\"rlimits\":{\"nofiles\":5}", "nofiles"},
	{"\"rlimits\":{\"NOFILE\":5}", "NOFILE"},
	{"\"rlimits\":{\"\":5}", "rlimits"},
	{"\"rlimits\":{\"nofile\":-1}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":1.5}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":1e30}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":\"5\"}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":\"Unlimited\"}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":null}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":true}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":[]}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":[5]}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":[5,6,7]}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":[5,\"x\"]}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":[6,5]}", "rlimits.nofile"},
	{"\"rlimits\":{\"nofile\":[\"unlimited\",5]}", "rlimits.nofile"},
	{"\"rlimits\":{\"nproc\":50,\"nofile\":{}}", "rlimits.nofile"},
	{"\"limits\":[]", "limits"},
	{"\"limits\":\"x\"", "limits"},
	{"\"limits\":{\"disk\":5}", "disk"},
	{"\"limits\":{\"memory\":1048575}", "limits.memory"},
	{"\"limits\":{\"memory\":9007199254740993}", "limits.memory"},
	{"\"limits\":{\"memory\":\"1G\"}", "limits.memory"},
	{"\"limits\":{\"memory\":-1}", "limits.memory"},
	{"\"limits\":{\"cpus\":0}", "limits.cpus"},
	{"\"limits\":{\"cpus\":0.001}", "limits.cpus"},
	{"\"limits\":{\"cpus\":1025}", "limits.cpus"},
	{"\"limits\":{\"cpus\":\"1\"}", "limits.cpus"},
	{"\"limits\":{\"pids\":0}", "limits.pids"},
	{"\"limits\":{\"pids\":4194305}", "limits.pids"},
	{"\"limits\":{\"pids\":1.5}", "limits.pids"},
	{"\"limits\":{\"memory\":1048576,\"pids\":[]}", "limits.pids"},
};

START_TEST(bad_limits_are_not_named)
{
	struct testd *d = d_start("--cgroup", "off");
	struct resp r = {0};
	char more[256];
	for (size_t i = 0; i < COUNT(bad); i++) {
		(void)snprintf(more, sizeof more, ",%s", bad[i].more);
		const char *target = targets[i % COUNT(targets)];
		ck_assert_msg(start(d, target, "echo 1 >> ran", more, &r) == 400, "%s %s: %d", target, more, r.status);
		const char *text = j_str(assert_error(&r, 400, "invalid_argument"), "error");
		ck_assert_msg(strstr(text, bad[i].names), "%s: %s", bad[i].more, text);
	}
	ck_assert_str_eq(j_str(run(d, "sleep .1; ls; true", &r), "stdout"), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A limit that cannot be kept is not left out.
START_TEST(limits_are_promised_without_a_group)
{
	static const char *const limits[] = {
		"\"memory\":1048576", "\"cpus\":0.5", "\"pids\":1", "\"cpus\":1024,\"pids\":4194304"};
	struct testd *d = d_start("--cgroup", "off");
	struct resp r = {0};
	char more[128];
	for (size_t i = 0; i < COUNT(limits); i++)
		for (size_t k = 0; k < COUNT(targets); k++) {
			(void)snprintf(more, sizeof more, ",\"limits\":{%s}", limits[i]);
			start(d, targets[k], "echo 1 >> ran", more, &r);
			const char *text = j_str(assert_error(&r, 501, "unimplemented"), "error");
			ck_assert_msg(strstr(text, "limits: ") == text && strstr(text, "control group"), "%s", text);
		}
	ck_assert_int_eq(start(d, "/exec", "true", ",\"limits\":{}", &r), 200);
	ck_assert_int_eq(start(d, "/exec", "true", ",\"limits\":null", &r), 200);
	ck_assert_int_eq(start(d, "/exec", "true", ",\"limits\":{\"memory\":null}", &r), 200);
	ck_assert_str_eq(j_str(run(d, "sleep .1; ls; true", &r), "stdout"), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Beyond what the kernel lets anyone have (fs.nr_open), also root.
START_TEST(hard_limit_can_be_raised)
{
	struct testd *d = d_start();
	struct resp r = {0};
	for (size_t k = 0; k < COUNT(targets); k++) {
		start(d, targets[k], "echo 1 >> ran", ",\"rlimits\":{\"nofile\":\"unlimited\"}", &r);
		json_t *o = assert_error(&r, 403, "permission_denied");
		ck_assert_ptr_nonnull(strstr(j_str(o, "error"), "rlimits"));
		ck_assert_str_eq(j_str(o, "errno"), "EPERM");
	}
	ck_assert_str_eq(j_str(run(d, "sleep .1; ls; true", &r), "stdout"), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *request_limits_suite(void)
{
	Suite *s = suite_create("request_limits");
	TCase *tc = h_tcase(s, "limits", 30);
	tcase_add_test(tc, rlimits_do_not_reach_the_command);
	tcase_add_test(tc, rlimits_are_for_exec_alone);
	tcase_add_test(tc, bad_limits_are_not_named);
	tcase_add_test(tc, limits_are_promised_without_a_group);
	tcase_add_test(tc, hard_limit_can_be_raised);
	return s;
}
