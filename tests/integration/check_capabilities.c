// SPDX-License-Identifier: Apache-2.0
// GET /capabilities: that it says what is in force, and needs the token as any other route.
#include "tests/integration/envdkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *ask_on(struct client *c, const char *headers, struct resp *r)
{
	client_request(c, "GET", "/capabilities", headers, NULL, 0);
	client_response(c, r);
	client_close(c);
	ck_assert_int_eq(r->status, 200);
	return resp_json(r);
}

static json_t *ask(const struct testd *d, struct resp *r)
{
	return ask_on(client_connect(d), NULL, r);
}

static void want_list(const json_t *o, const char *key, const char *const *want)
{
	const json_t *list = json_object_get(o, key);
	size_t n = 0;
	ck_assert(json_is_array(list));
	for (; want[n]; n++)
		ck_assert_str_eq(json_string_value(json_array_get(list, n)), want[n]);
	ck_assert_uint_eq(json_array_size(list), n);
}

static void want_null(const json_t *o, const char *key)
{
	ck_assert_msg(json_is_null(json_object_get(o, key)), "%s is not null", key);
}

START_TEST(defaults_are_not_told)
{
	static const char *const none[] = {NULL};
	struct testd *d = d_start("--no-init");
	struct resp r = {0};
	json_t *o = ask(d, &r);
	ck_assert_str_eq(j_str(o, "version"), "0.1.0");
	ck_assert_str_eq(j_str(o, "confine"), "off");
	ck_assert(!j_bool(o, "no_new_privs") && !j_bool(o, "core_dumps") && !j_bool(o, "dumpable"));
	ck_assert(!j_bool(o, "token") && !j_bool(o, "trust_boundary") && !j_bool(o, "store"));
	want_null(o, "capabilities");
	want_null(o, "landlock");
	want_null(o, "seccomp");
	want_list(o, "missing", none);
	want_list(o, "allow_origin", none);
	ck_assert(json_is_object(json_object_get(o, "rlimits")));
	ck_assert(j_has(o, "cgroup"));
	json_t *limits = j_get(o, "limits");
	ck_assert_int_eq(j_int(limits, "max_procs"), 4096);
	ck_assert_int_eq(j_int(limits, "max_body"), 64 << 20);
	ck_assert_int_eq(j_int(limits, "max_header"), 64 << 10);
	ck_assert_int_eq(j_int(limits, "max_conns"), 4096);
	ck_assert_int_eq(j_int(limits, "replay"), 65536);
	ck_assert_int_eq(j_int(limits, "timeout"), 30);
	ck_assert_int_eq(j_int(limits, "idle_timeout"), 640);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(options_are_not_told)
{
	static const char *const origins[] = {"https://a.example", "http://b.example:8000", NULL};
	struct testd *d = d_start("--init", "--dumpable", "--allow-origin", origins[0], "--allow-origin", origins[1],
		"--rlimit", "nofile=64:128", "--rlimit", "core=0:unlimited", "--rlimit", "fsize=unlimited", "--cgroup",
		"off", "--max-procs", "7", "--timeout", "1.5");
	struct resp r = {0};
	json_t *o = ask(d, &r);
	ck_assert(j_bool(o, "dumpable") && j_bool(o, "store") && !j_bool(o, "core_dumps"));
	want_list(o, "allow_origin", origins);
	want_null(o, "cgroup");
	json_t *limits = j_get(o, "rlimits");
	char *text = j_text(limits);
	ck_assert_str_eq(
		text, "{\"fsize\":[\"unlimited\",\"unlimited\"],\"core\":[0,\"unlimited\"],\"nofile\":[64,128]}");
	free(text);
	ck_assert_int_eq(j_int(j_get(o, "limits"), "max_procs"), 7);
	ck_assert(json_real_value(j_get(j_get(o, "limits"), "timeout")) == 1.5);
	d_finish(d);

	d = d_start("--rlimit", "core=1M:unlimited");
	ck_assert(j_bool(ask(d, &r), "core_dumps"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// What it says of a part that this kernel may not have: an object, or why not.
static bool has_part(const json_t *o, const char *name)
{
	const json_t *missing = json_object_get(o, "missing"), *v;
	size_t i;
	if (json_is_object(json_object_get(o, name)))
		return true;
	want_null(o, name);
	json_array_foreach(missing, i, v)
	{
		if (strstr(json_string_value(v), name))
			return false;
	}
	ck_abort_msg("%s is neither there nor missing", name);
}

START_TEST(confinement_is_not_told)
{
	struct testd *d = d_start("--confine", "on", "--keep-cap", "chown", "--keep-cap", "CAP_KILL", "--writable",
		"/tmp", "--allow-syscall", "bpf", "--cgroup", "off");
	struct resp r = {0};
	static const char *const kept[] = {"chown", "kill", NULL};
	json_t *o = ask(d, &r);
	ck_assert_str_eq(j_str(o, "confine"), "on");
	ck_assert(j_bool(o, "no_new_privs") && !j_bool(o, "core_dumps") && !j_bool(o, "trust_boundary"));
	if (geteuid() == 0 && json_is_array(json_object_get(o, "capabilities")))
		want_list(o, "capabilities", kept);
	if (has_part(o, "landlock")) {
		const json_t *landlock = json_object_get(o, "landlock"), *trees = json_object_get(landlock, "writable");
		static const char *const readable[] = {"/", NULL};
		ck_assert_int_ge(j_int(landlock, "abi"), 1);
		ck_assert_str_eq(json_string_value(json_array_get(trees, 0)), d->workspace);
		ck_assert_str_eq(json_string_value(json_array_get(trees, 1)), "/tmp");
		want_list(landlock, "read_only", readable);
	}
	if (has_part(o, "seccomp")) {
		char *denied = j_text(json_object_get(json_object_get(o, "seccomp"), "denied"));
		ck_assert(strstr(denied, "\"io_uring_setup\"") && strstr(denied, "\"mount\"") &&
			  !strstr(denied, "\"bpf\""));
		free(denied);
	}
	ck_assert_str_eq(j_str(run(d, "grep NoNewPrivs: /proc/self/status", &r), "stdout"), "NoNewPrivs:\t1\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(token_is_not_needed)
{
	struct testd *d = d_start("--token", "secret");
	struct resp r = {0};
	req(d, "GET", "/capabilities", NULL, &r);
	assert_error(&r, 401, "unauthenticated");
	json_t *o = ask_on(client_connect(d), "Authorization: Bearer secret\r\n", &r);
	ck_assert(j_bool(o, "token") && j_bool(o, "trust_boundary"));
	char *text = j_text(o);
	ck_assert_ptr_null(strstr(text, "secret"));
	free(text);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A token that /init sets locks this surface too.
START_TEST(token_of_init_is_not_told)
{
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	ck_assert(!j_bool(ask(d, &r), "trust_boundary"));
	ck_assert_int_eq(envd_init(d, "{\"accessToken\":\"secret\"}"), 204);
	json_t *o = ask_on(client_connect(d), "X-Access-Token: secret\r\n", &r);
	ck_assert(j_bool(o, "token") && j_bool(o, "trust_boundary"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A socket of root's keeps others out, but not commands that run as root.
static void want_boundary(const char *user, const char *envd, bool want)
{
	char dir[] = "/tmp/celld-it-caps-XXXXXX", path[64], spec[80];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof path, "%s/socket", dir);
	(void)snprintf(spec, sizeof spec, "unix:%s", path);
	const char *const args[] = {
		"--listen", spec, "--envd-listen", envd, "--venv", "off", user ? "--user" : NULL, user, NULL};
	const struct d_opts opts = {.args = args, .no_defaults = true};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	ck_assert_int_eq(j_bool(ask_on(client_connect_to(path, 0, 0), NULL, &r), "trust_boundary"), want);
	resp_release(&r);
	d_finish(d);
	(void)unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
}

START_TEST(unix_socket_is_a_boundary_for_its_owner)
{
	want_boundary(NULL, "off", false);
	if (geteuid() != 0)
		return;
	want_boundary("nobody", "off", true);
	want_boundary("nobody", "127.0.0.1:0", false);
	want_boundary("root", "off", false);
}
END_TEST

Suite *capabilities_suite(void)
{
	Suite *s = suite_create("capabilities");
	TCase *tc = h_tcase(s, "capabilities", 20);
	tcase_add_test(tc, defaults_are_not_told);
	tcase_add_test(tc, options_are_not_told);
	tcase_add_test(tc, confinement_is_not_told);
	tcase_add_test(tc, token_is_not_needed);
	tcase_add_test(tc, token_of_init_is_not_told);
	tcase_add_test(tc, unix_socket_is_a_boundary_for_its_owner);
	return s;
}
