// SPDX-License-Identifier: Apache-2.0
// What notify makes of a service manager's variables.
#include "daemon/notify.h"
#include "suites.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
	"LISTEN_PID", "LISTEN_PIDFDID"};
#define NAMES (sizeof names / sizeof *names)

static void put(const char *name, const char *value)
{
	if (value)
		ck_assert_int_eq(setenv(name, value, 1), 0);
	else
		ck_assert_int_eq(unsetenv(name), 0);
}

static const char *own_pid(void)
{
	static char text[16];
	snprintf(text, sizeof text, "%d", (int)getpid());
	return text;
}

START_TEST(address_is_misread)
{
	static const struct {
		const char *address;
		int rc;
		socklen_t len; // of the name, with the byte that ends a path or begins an abstract one
	} cases[] = {{NULL, 0, 0}, {"/run/x", 0, 7}, {"@x", 0, 2}, {"", -EINVAL, 0}, {"@", -EINVAL, 0},
		{"/", -EINVAL, 0}, {"run/x", -EINVAL, 0}, {"vsock:2:1", -EINVAL, 0}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct notify n;
		put("NOTIFY_SOCKET", cases[i].address);
		ck_assert_int_eq(notify_take(&n), cases[i].rc);
		ck_assert_uint_eq(n.to_len, cases[i].len ? offsetof(struct sockaddr_un, sun_path) + cases[i].len : 0);
		ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
	}
	// The longest one there is, and one more.
	for (size_t len = 107; len <= 108; len++) {
		char address[128];
		struct notify n;
		memset(address, 'x', sizeof address);
		address[0] = '/';
		address[len] = '\0';
		put("NOTIFY_SOCKET", address);
		ck_assert_int_eq(notify_take(&n), len == 107 ? 0 : -EINVAL);
		ck_assert_int_eq(notify_export(&n), 0);
		ck_assert_pstr_eq(getenv("NOTIFY_SOCKET"), len == 107 ? address : NULL);
		notify_hide();
	}
}
END_TEST

START_TEST(number_is_misread)
{
	static const struct {
		const char *usec;
		int64_t beat;
	} cases[] = {{NULL, 0}, {"", 0}, {"0", 0}, {"-2000000", 0}, {"+2000000", 0}, {"2s", 0}, {" 2000000", 0},
		{"99999999999999999999", 0}, {"2000000", 1000000}, {"1", 1000}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct notify n;
		put("NOTIFY_SOCKET", "@x");
		put("WATCHDOG_USEC", cases[i].usec);
		put("LISTEN_FDS", cases[i].usec);
		put("LISTEN_PID", own_pid());
		ck_assert_int_eq(notify_take(&n), 0);
		ck_assert_int_eq(n.beat_us, cases[i].beat);
		ck_assert_uint_eq(n.given > 0, cases[i].beat > 0);
	}
}
END_TEST

// Beats need an address; both are for one process.
START_TEST(others_are_heeded)
{
	struct notify n;
	put("WATCHDOG_USEC", "2000000");
	ck_assert_int_eq(notify_take(&n), 0);
	ck_assert_int_eq(n.beat_us, 0);
	for (int own = 0; own < 2; own++) {
		for (size_t i = 0; i < NAMES; i++)
			put(names[i], "1");
		put("NOTIFY_SOCKET", "@x");
		put("WATCHDOG_USEC", "2000000");
		put("WATCHDOG_PID", own ? own_pid() : "1");
		put("LISTEN_PID", own ? own_pid() : "");
		ck_assert_int_eq(notify_take(&n), 0);
		ck_assert_int_eq(n.beat_us, own ? 1000000 : 0);
		ck_assert_uint_eq(n.given, own ? 1 : 0);
		for (size_t i = 0; i < NAMES; i++)
			ck_assert_msg(!getenv(names[i]), "%s is still there", names[i]);
	}
	// What a binary that follows finds: it is meant for whoever that is.
	ck_assert_int_eq(notify_export(&n), 0);
	ck_assert_ptr_null(getenv("WATCHDOG_PID"));
	ck_assert_ptr_null(getenv("LISTEN_FDS"));
	struct notify next;
	ck_assert_int_eq(notify_take(&next), 0);
	ck_assert_int_eq(next.beat_us, n.beat_us);
	ck_assert_uint_eq(next.to_len, n.to_len);
	ck_assert_mem_eq(&next.to, &n.to, n.to_len);
}
END_TEST

START_TEST(name_is_another_sockets)
{
	static const struct {
		const char *all;
		size_t i;
		const char *name;
	} cases[] = {{NULL, 0, ""}, {"", 0, ""}, {"a", 0, "a"}, {"a", 1, ""}, {"a:b:c", 1, "b"}, {"a:b:c", 2, "c"},
		{"a:b:c", 3, ""}, {"a::c", 1, ""}, {"a::c", 2, "c"}, {":b", 1, "b"}, {"sandboxd:envd", 0, "sandbox"},
		{"x:12345678", 1, "1234567"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct notify n = {.names = cases[i].all};
		char out[8];
		notify_name(&n, cases[i].i, out, sizeof out);
		ck_assert_str_eq(out, cases[i].name);
	}
}
END_TEST

Suite *notify_suite(void)
{
	Suite *s = suite_create("notify");
	TCase *tc = tcase_create("variables");
	tcase_add_test(tc, address_is_misread);
	tcase_add_test(tc, number_is_misread);
	tcase_add_test(tc, others_are_heeded);
	tcase_add_test(tc, name_is_another_sockets);
	suite_add_tcase(s, tc);
	return s;
}
