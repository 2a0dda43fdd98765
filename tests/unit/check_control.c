// SPDX-License-Identifier: Apache-2.0
// The parts of surface B's control: times, paths, header lines, settings and what keeps them.
#include "daemon/core/keep.h"
#include "daemon/envd/control.h"
#include "proto/json.h"
#include "suites.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct time_case {
	const char *text;
	time_t sec; // -1: none
	long ns;
} times[] = {
	{"1970-01-01T00:00:00Z", 0, 0},
	{"2024-05-01T10:00:00Z", 1714557600, 0},
	{"2024-05-01T10:00:00.5Z", 1714557600, 500000000},
	{"2024-05-01T10:00:00.123456789Z", 1714557600, 123456789},
	{"2024-05-01T10:00:00.1234567891Z", 1714557600, 123456789},
	{"2024-05-01T12:00:00+02:00", 1714557600, 0},
	{"2024-05-01T04:30:00-05:30", 1714557600, 0},
	{"2024-02-29T00:00:00Z", 1709164800, 0},
	{"", -1, 0},
	{"yesterday", -1, 0},
	{"2024-05-01", -1, 0},
	{"2024-05-01 10:00:00Z", -1, 0},
	{"2024-05-01t10:00:00Z", -1, 0},
	{"2024-05-01T10:00:00", -1, 0},
	{"2024-05-01T10:00:00.Z", -1, 0},
	{"2024-05-01T10:00:00Zx", -1, 0},
	{"2024-5-01T10:00:00Z", -1, 0},
	{"2024-13-01T10:00:00Z", -1, 0},
	{"2024-00-01T10:00:00Z", -1, 0},
	{"2024-04-31T10:00:00Z", -1, 0},
	{"2023-02-29T10:00:00Z", -1, 0},
	{"1900-02-29T10:00:00Z", -1, 0},
	{"2024-05-01T24:00:00Z", -1, 0},
	{"2024-05-01T10:60:00Z", -1, 0},
	{"2024-05-01T10:00:60Z", -1, 0},
	{"2024-05-01T10:00:00+2:00", -1, 0},
	{"2024-05-01T10:00:00+0200", -1, 0},
	{"2024-05-01T10:00:00+24:00", -1, 0},
};

START_TEST(rfc3339)
{
	const struct time_case *t = &times[_i];
	struct timespec out = {0};
	int rc = control_time(t->text, &out);
	ck_assert_msg(rc == (t->sec < 0 ? -EINVAL : 0), "%s: %d", t->text, rc);
	if (t->sec >= 0)
		ck_assert_msg(out.tv_sec == t->sec && out.tv_nsec == t->ns, "%s: %lld.%09ld", t->text,
			(long long)out.tv_sec, out.tv_nsec);
}
END_TEST

static const struct path_case {
	const char *workdir, *path, *want;
} paths[] = {
	{NULL, "", "/home/u"},
	{NULL, ".", "/home/u"},
	{NULL, "..", "/home"},
	{NULL, "../../../..", "/"},
	{NULL, "a", "/home/u/a"},
	{NULL, "a/./b//c/../d/", "/home/u/a/b/d"},
	{NULL, "...", "/home/u/..."},
	{NULL, "~", "/home/u"},
	{NULL, "~/", "/home/u"},
	{NULL, "~/x/../y", "/home/u/y"},
	{NULL, "~\\x", "/home/u/\\x"},
	{NULL, "~x", NULL},
	{NULL, "~root/x", NULL},
	{NULL, "a~", "/home/u/a~"},
	{NULL, "/", "/"},
	{NULL, "/a/../b//c", "/a/../b//c"},
	{"/w", "", "/w"},
	{"/w", "a", "/home/u/a"},
	{"/w/../x", "", "/w/../x"},
	{"w", "", "/home/u/w"},
	{"~", "", "/home/u"},
};

START_TEST(path)
{
	const struct path_case *t = &paths[_i];
	struct control c = {.now.workdir = (char *)(uintptr_t)t->workdir};
	struct envd e = {.control = &c};
	struct user u = {.name = (char *)(uintptr_t) "u", .home = (char *)(uintptr_t) "/home/u"};
	struct err err = {0};
	char *got = envd_path(&e, &u, t->path, &err);
	if (t->want) {
		ck_assert_ptr_nonnull(got);
		ck_assert_str_eq(got, t->want);
	} else {
		ck_assert_ptr_null(got);
		ck_assert_int_eq(err.code, ERR_INVALID_ARGUMENT);
		ck_assert_ptr_nonnull(strstr(err.msg, t->path));
	}
	free(got);
}
END_TEST

START_TEST(header_lines_are_sorted)
{
	static const struct http_header origin = {{"origin", 6}, {"x", 1}};
	struct http_head head = {.method = {"GET", 3}, .headers = &origin};
	struct buf out = {0};
	envd_lines(&head, NULL, &out);
	ck_assert_int_eq(strncmp(buf_cstr(&out), "Vary: Origin\r\nDate: ", 20), 0);
	buf_reset(&out);
	envd_lines(&head, "X-Content-Type-Options: nosniff\r\nAllow: GET\r\nContent-Type: a\r\nAllow: POST\r\n", &out);
	static const char want[] = "Allow: GET\r\nAllow: POST\r\nContent-Type: a\r\nVary: Origin\r\n"
				   "X-Content-Type-Options: nosniff\r\nDate: ";
	ck_assert_int_eq(strncmp(buf_cstr(&out), want, sizeof want - 1), 0);
	buf_reset(&out);
	head.header_count = 1;
	envd_lines(&head, "Vary: Accept-Encoding\r\n", &out);
	ck_assert_ptr_nonnull(strstr(buf_cstr(&out), "X-Content-Type-Options\r\nVary: Accept-Encoding\r\nDate: "));
	ck_assert_ptr_eq(strstr(buf_cstr(&out), "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: "),
		buf_cstr(&out));
	buf_release(&out);
}
END_TEST

START_TEST(escape)
{
	struct buf out = {0};
	BUF_LIT(&out, "<&>");
	envd_escape(&out, 3);
	ck_assert_str_eq(buf_cstr(&out), "<&>");
	BUF_LIT(&out, "a<b>&\"c");
	envd_escape(&out, 3);
	ck_assert_str_eq(buf_cstr(&out), "<&>a\\u003cb\\u003e\\u0026\"c");
	buf_reset(&out);
	BUF_LIT(&out, "<");
	envd_escape(&out, 0);
	ck_assert_str_eq(buf_cstr(&out), "\\u003c");
	buf_release(&out);
}
END_TEST

// --- settings ---

static void set(struct control *c, const char *json)
{
	struct control_state next;
	struct err e = {0};
	json_t *doc = jsonr_parse(json, strlen(json), &e);
	ck_assert_ptr_nonnull(doc);
	ck_assert_msg(control_next(c, doc, &next, &e) == 0, "%s", e.msg);
	ck_assert_msg(control_commit(c, &next, &e) == 0, "%s", e.msg);
	jsonr_free(doc);
}

START_TEST(settings_come_back)
{
	struct config config = {.user = "root"};
	struct keep *keep = keep_new(ENVD_KEEP_MAX);
	struct control *c = control_new(&config, keep);
	ck_assert(keep && c);
	set(c, "{\"envVars\":{\"B\":\"\\u00e9\\\"\\\\\\n<\",\"A\":\"1\"},\"accessToken\":\"t<\\\"\",\"defaultUser\":"
	       "\"u\","
	       "\"defaultWorkdir\":\"/w\",\"timestamp\":\"2024-05-01T10:00:00.123456789Z\"}");
	set(c, "{\"defaultUser\":\"\"}");
	ck_assert_str_eq(config.token, "t<\"");
	control_free(c);
	ck_assert_ptr_null(config.token);
	c = control_new(&config, keep);
	ck_assert_ptr_nonnull(c);
	struct envd e = {.config = &config, .control = c};
	ck_assert_str_eq(envd_token(&e), "t<\"");
	ck_assert_str_eq(envd_default_user(&e), "u");
	ck_assert_str_eq(c->now.workdir, "/w");
	ck_assert_uint_eq(c->now.var_count, 2);
	ck_assert_str_eq(c->now.vars[0].name, "A");
	ck_assert_str_eq(c->now.vars[1].value, "\xc3\xa9\"\\\n<");
	ck_assert_int_eq(c->now.newest.tv_sec, 1714557600);
	ck_assert_int_eq(c->now.newest.tv_nsec, 123456789);
	control_free(c);
	keep_free(keep);
}
END_TEST

// The configuration was read again: what /init had set as the token is over, here and after a crash; the rest of it stays.
START_TEST(a_reload_takes_its_token_back)
{
	char other[] = "other";
	struct config config = {.user = "root"};
	struct keep *keep = keep_new(ENVD_KEEP_MAX);
	struct control *c = control_new(&config, keep);
	ck_assert(keep && c);
	ck_assert_int_eq(control_reloaded(c), 0);
	set(c, "{\"accessToken\":\"t\",\"defaultUser\":\"u\"}");
	ck_assert_str_eq(config.token, "t");
	config.token = _i ? other : NULL;
	ck_assert_int_eq(control_reloaded(c), 0);
	ck_assert_ptr_eq(config.token, _i ? other : NULL);
	ck_assert_ptr_null(c->now.token);
	control_free(c);
	ck_assert_ptr_eq(config.token, _i ? other : NULL);
	c = control_new(&config, keep);
	ck_assert_ptr_eq(config.token, _i ? other : NULL);
	ck_assert_str_eq(c->now.user, "u");
	if (!_i) {
		set(c, "{\"accessToken\":\"next\"}");
		ck_assert_str_eq(config.token, "next");
	}
	control_free(c);
	keep_free(keep);
}
END_TEST

// SIGHUP writes into the configuration's own token: ours must not stand in its place.
START_TEST(a_configured_token_stays_the_configuration_s)
{
	char token[] = "abc";
	struct config config = {.user = "root", .token = token};
	struct control *c = control_new(&config, NULL);
	set(c, "{\"accessToken\":\"abc\",\"envVars\":{\"A\":\"1\"}}");
	ck_assert_ptr_eq(config.token, token);
	control_free(c);
	ck_assert_ptr_eq(config.token, token);
}
END_TEST

START_TEST(users_are_found_by_name_alone)
{
	struct config config = {.user = "root"};
	struct envd e = {.config = &config, .users = users_new("/etc/passwd", "/etc/group")};
	struct user u;
	e.control = control_new(&config, NULL);
	ck_assert_int_eq(envd_user(&e, "root", 4, &u), 0);
	ck_assert_uint_eq(u.uid, 0);
	user_release(&u);
	ck_assert_int_eq(envd_user(&e, NULL, 0, &u), 0);
	ck_assert_str_eq(u.name, "root");
	user_release(&u);
	ck_assert_int_eq(envd_user(&e, "0", 1, &u), -ENOENT);
	ck_assert_int_eq(envd_user(&e, "", 0, &u), -ENOENT);
	ck_assert_int_eq(envd_user(&e, "root\0x", 6, &u), -ENOENT);
	control_free(e.control);
	users_free(e.users);
}
END_TEST

START_TEST(keep_shares_with_children)
{
	struct keep *k = keep_new(8);
	size_t n = 0;
	ck_assert_ptr_null(keep_get(k, &n));
	ck_assert_int_eq(keep_put(k, "one", 3), 0);
	ck_assert_int_eq(keep_put(k, "too long.", 9), -EMSGSIZE);
	ck_assert_mem_eq(keep_get(k, &n), "one", 3);
	pid_t pid = fork();
	if (pid == 0)
		_exit(keep_put(k, "eight...", 8) < 0);
	int status = -1;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_mem_eq(keep_get(k, &n), "eight...", 8);
	ck_assert_uint_eq(n, 8);
	ck_assert_int_eq(keep_put(k, "", 0), 0);
	ck_assert_ptr_nonnull(keep_get(k, &n));
	ck_assert_uint_eq(n, 0);
	keep_free(k);
	keep_free(NULL);
}
END_TEST

Suite *control_suite(void)
{
	Suite *s = suite_create("control");
	TCase *tc = tcase_create("parts");
	tcase_add_loop_test(tc, rfc3339, 0, sizeof times / sizeof *times);
	tcase_add_loop_test(tc, path, 0, sizeof paths / sizeof *paths);
	tcase_add_test(tc, header_lines_are_sorted);
	tcase_add_test(tc, escape);
	tcase_add_test(tc, settings_come_back);
	tcase_add_test(tc, a_configured_token_stays_the_configuration_s);
	tcase_add_loop_test(tc, a_reload_takes_its_token_back, 0, 2);
	tcase_add_test(tc, users_are_found_by_name_alone);
	tcase_add_test(tc, keep_shares_with_children);
	suite_add_tcase(s, tc);
	return s;
}
