// SPDX-License-Identifier: Apache-2.0
#include "proto/err.h"
#include "suites.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

// Contract A section 2, and what it does not name.
static const struct sys_case {
	int sys;
	const char *name;
	const char *word;
	int status;
	bool retryable;
} sys_cases[] = {
	{ENOENT, "ENOENT", "not_found", 404, false},
	{ENOTDIR, "ENOTDIR", "not_found", 404, false},
	{ESRCH, "ESRCH", "not_found", 404, false},
	{EEXIST, "EEXIST", "already_exists", 409, false},
	{ENOTEMPTY, "ENOTEMPTY", "failed_precondition", 409, false},
	{ETXTBSY, "ETXTBSY", "failed_precondition", 409, false},
	{EACCES, "EACCES", "permission_denied", 403, false},
	{EPERM, "EPERM", "permission_denied", 403, false},
	{EROFS, "EROFS", "permission_denied", 403, false},
	{EINVAL, "EINVAL", "invalid_argument", 400, false},
	{ENAMETOOLONG, "ENAMETOOLONG", "invalid_argument", 400, false},
	{EISDIR, "EISDIR", "invalid_argument", 400, false},
	{ELOOP, "ELOOP", "invalid_argument", 400, false},
	{E2BIG, "E2BIG", "invalid_argument", 400, false},
	{ENOEXEC, "ENOEXEC", "invalid_argument", 400, false},
	{ENOSPC, "ENOSPC", "resource_exhausted", 507, false},
	{EDQUOT, "EDQUOT", "resource_exhausted", 507, false},
	{EMFILE, "EMFILE", "resource_exhausted", 503, true},
	{ENFILE, "ENFILE", "resource_exhausted", 503, true},
	{EAGAIN, "EAGAIN", "resource_exhausted", 503, true},
	{ENOMEM, "ENOMEM", "resource_exhausted", 503, true},
	{EIO, "EIO", "internal", 500, false},
	{EPIPE, "EPIPE", "internal", 500, false},
	{ETIMEDOUT, "ETIMEDOUT", "internal", 500, false},
	{EBADF, "EBADF", "internal", 500, false},
	{EBUSY, "EBUSY", "internal", 500, false},
	{EXDEV, "EXDEV", "internal", 500, false},
	{EINTR, "EINTR", "internal", 500, false},
	{EFAULT, "EFAULT", "internal", 500, false},
	{EHWPOISON, "EHWPOISON", "internal", 500, false},
};
enum { SYS_CASES = sizeof(sys_cases) / sizeof(sys_cases[0]) };

START_TEST(errno_table)
{
	const struct sys_case *c = &sys_cases[_i];
	struct err e;
	memset(&e, 0x5a, sizeof(e));
	ck_assert_int_eq(err_sys(&e, -c->sys, "open %s", "/x"), -1);
	ck_assert_str_eq(err_word(e.code), c->word);
	ck_assert_int_eq(e.sys, c->sys);
	ck_assert_int_eq(e.status, c->status);
	ck_assert_int_eq(e.retryable, c->retryable);
	ck_assert_ptr_null(e.reason);
	char want[256];
	snprintf(want, sizeof(want), "open /x: %s", strerror(c->sys));
	ck_assert_str_eq(e.msg, want);
	ck_assert_str_eq(err_errno_name(c->sys), c->name);
	ck_assert_int_eq(err_errno_code(c->sys), e.code);
	ck_assert_int_eq(err_errno_status(c->sys), c->status);
}
END_TEST

// The table above names every errno that is not plain internal, and every number makes a sound error.
START_TEST(every_number)
{
	for (int sys = 1; sys <= 4095; sys++) {
		struct err e;
		bool named = false;
		for (int i = 0; i < SYS_CASES; i++)
			named = named || sys_cases[i].sys == sys;
		err_sys(&e, -sys, "call");
		ck_assert_int_eq(e.sys, sys);
		ck_assert_int_eq(strncmp(e.msg, "call: ", 6), 0);
		ck_assert_uint_gt(strlen(e.msg), 6);
		ck_assert_msg(named || (e.code == ERR_INTERNAL && e.status == 500 && !e.retryable), "errno %d", sys);
		const char *name = err_errno_name(sys);
		ck_assert_msg(!name || name[0] == 'E', "errno %d", sys);
		ck_assert_msg(name || sys > EHWPOISON || sys == 41 || sys == 58, "errno %d has no name", sys);
	}
	ck_assert_ptr_null(err_errno_name(0));
	ck_assert_ptr_null(err_errno_name(-ENOENT));
	ck_assert_ptr_null(err_errno_name(4095));
	ck_assert_int_eq(err_errno_code(0), ERR_INTERNAL);
	ck_assert_int_eq(err_errno_status(100000), 500);
	struct err e;
	err_sys(&e, -4095, "call");
	ck_assert_str_eq(e.msg, "call: errno 4095");
}
END_TEST

static const struct code_case {
	enum err_code code;
	const char *word;
	int status;
} code_cases[] = {
	{ERR_CANCELED, "canceled", 499},
	{ERR_UNKNOWN, "unknown", 500},
	{ERR_INVALID_ARGUMENT, "invalid_argument", 400},
	{ERR_DEADLINE_EXCEEDED, "deadline_exceeded", 504},
	{ERR_NOT_FOUND, "not_found", 404},
	{ERR_ALREADY_EXISTS, "already_exists", 409},
	{ERR_PERMISSION_DENIED, "permission_denied", 403},
	{ERR_RESOURCE_EXHAUSTED, "resource_exhausted", 429},
	{ERR_FAILED_PRECONDITION, "failed_precondition", 409},
	{ERR_ABORTED, "aborted", 409},
	{ERR_OUT_OF_RANGE, "out_of_range", 400},
	{ERR_UNIMPLEMENTED, "unimplemented", 501},
	{ERR_INTERNAL, "internal", 500},
	{ERR_UNAVAILABLE, "unavailable", 503},
	{ERR_DATA_LOSS, "data_loss", 500},
	{ERR_UNAUTHENTICATED, "unauthenticated", 401},
};
enum { CODE_CASES = sizeof(code_cases) / sizeof(code_cases[0]) };

START_TEST(code_table)
{
	const struct code_case *c = &code_cases[_i];
	ck_assert_int_eq(CODE_CASES, ERR_CODES - 1);
	struct err e;
	memset(&e, 0x5a, sizeof(e));
	ck_assert_int_eq(err_set(&e, c->code, "n=%d", 7), -1);
	ck_assert_int_eq(e.code, c->code);
	ck_assert_int_eq(e.sys, 0);
	ck_assert_int_eq(e.status, c->status);
	ck_assert_int_eq(e.retryable, c->code == ERR_UNAVAILABLE);
	ck_assert_ptr_null(e.reason);
	ck_assert_str_eq(e.msg, "n=7");
	ck_assert_str_eq(err_word(c->code), c->word);
	ck_assert_int_eq(err_from_word(c->word, strlen(c->word)), c->code);
	ck_assert_int_eq(err_from_word(c->word, strlen(c->word) - 1), ERR_NONE);
	memset(&e, 0x5a, sizeof(e));
	ck_assert_int_eq(err_http(&e, 418, c->code, "m"), -1);
	ck_assert_int_eq(e.code, c->code);
	ck_assert_int_eq(e.sys, 0);
	ck_assert_int_eq(e.status, 418);
	ck_assert_int_eq(e.retryable, c->code == ERR_UNAVAILABLE);
	ck_assert_ptr_null(e.reason);
	ck_assert_str_eq(e.msg, "m");
}
END_TEST

START_TEST(words)
{
	ck_assert_str_eq(err_word((enum err_code)ERR_CODES), "unknown");
	ck_assert_str_eq(err_word((enum err_code) - 1), "unknown");
	ck_assert_int_eq(err_from_word("", 0), ERR_NONE);
	ck_assert_int_eq(err_from_word("ok", 2), ERR_NONE);
	ck_assert_int_eq(err_from_word("NOT_FOUND", 9), ERR_NONE);
	ck_assert_int_eq(err_from_word("not_found_", 10), ERR_NONE);
	ck_assert_int_eq(err_from_word("not_found\"", 9), ERR_NOT_FOUND);
}
END_TEST

static const struct msg_case {
	const char *given, *want;
} msg_cases[] = {
	{"", ""},
	{"h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
	{"a\xff"
	 "b",
		"a?b"},
	{"\x80", "?"},
	{"\xc3", "?"},
	{"\xc3(", "?("},
	{"\xe2\x82", "??"},
	{"\xe2\x82x", "??x"},
	{"\xc0\xaf", "??"},
	{"\xc1\xbf", "??"},
	{"\xe0\x9f\xbf", "???"},
	{"\xe0\xa0\x80", "\xe0\xa0\x80"},
	{"\xed\x9f\xbf", "\xed\x9f\xbf"},
	{"\xed\xa0\x80", "???"},
	{"\xf0\x8f\xbf\xbf", "????"},
	{"\xf0\x90\x80\x80", "\xf0\x90\x80\x80"},
	{"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
	{"\xf4\x90\x80\x80", "????"},
	{"\xf5\x80\x80\x80", "????"},
	{"%s%n", "%s%n"},
};

START_TEST(messages_are_utf8)
{
	struct err e;
	err_set(&e, ERR_INTERNAL, "%s", msg_cases[_i].given);
	ck_assert_str_eq(e.msg, msg_cases[_i].want);
}
END_TEST

// A character of each length at each place round the end of the message.
START_TEST(messages_are_cut_at_a_character)
{
	static const char *const chars[] = {"z", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
	struct err e;
	const size_t most = sizeof(e.msg) - 1;
	char pad[300], want[400];
	memset(pad, 'a', sizeof(pad));
	for (size_t before = most - 5; before <= most + 1; before++) {
		for (size_t k = 0; k < 4; k++) {
			bool fits = before + strlen(chars[k]) <= most;
			size_t kept = before < most ? before : most;
			snprintf(want, sizeof(want), "%.*s%s", (int)kept, pad, fits ? chars[k] : "");
			err_set(&e, ERR_INTERNAL, "%.*s%s%s", (int)before, pad, chars[k], fits ? "" : "\xc3\xa9 more");
			ck_assert_str_eq(e.msg, want);
		}
	}
	err_set(&e, ERR_INTERNAL, "%3000d", 1);
	ck_assert_uint_eq(strlen(e.msg), most);
}
END_TEST

START_TEST(a_long_path_does_not_hide_the_reason)
{
	char path[4096];
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	struct err e;
	err_sys(&e, -ENAMETOOLONG, "%s", path);
	ck_assert_uint_eq(strlen(e.msg), sizeof(e.msg) - 1);
	const char *tail = ": File name too long";
	ck_assert_str_eq(e.msg + strlen(e.msg) - strlen(tail), tail);
}
END_TEST

START_TEST(a_message_may_wrap_itself)
{
	struct err e;
	err_sys(&e, -ENOENT, "open /x");
	err_set(&e, ERR_UNAVAILABLE, "template: %s", e.msg);
	ck_assert_str_eq(e.msg, "template: open /x: No such file or directory");
	ck_assert_int_eq(e.sys, 0);
	ck_assert(e.retryable);
}
END_TEST

START_TEST(phrases)
{
	ck_assert_str_eq(err_phrase(200), "OK");
	ck_assert_str_eq(err_phrase(404), "Not Found");
	ck_assert_str_eq(err_phrase(507), "Insufficient Storage");
	ck_assert_str_eq(err_phrase(0), "Unknown");
	ck_assert_str_eq(err_phrase(-1), "Unknown");
	ck_assert_str_eq(err_phrase(999), "Unknown");
	for (int i = 0; i < SYS_CASES; i++)
		ck_assert_str_ne(err_phrase(sys_cases[i].status), "Unknown");
	for (int i = 0; i < CODE_CASES; i++)
		ck_assert_str_ne(err_phrase(code_cases[i].status), "Unknown");
	static const int others[] = {
		100, 201, 204, 206, 304, 405, 408, 411, 412, 413, 414, 415, 416, 417, 426, 431, 505};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_str_ne(err_phrase(others[i]), "Unknown");
}
END_TEST

START_TEST(a_positive_errno_is_a_bug)
{
	struct err e;
	err_sys(&e, ENOENT, "call");
}
END_TEST

Suite *err_suite(void)
{
	Suite *s = suite_create("err");
	TCase *tc = tcase_create("err");
	tcase_add_loop_test(tc, errno_table, 0, SYS_CASES);
	tcase_add_test(tc, every_number);
	tcase_add_loop_test(tc, code_table, 0, CODE_CASES);
	tcase_add_test(tc, words);
	tcase_add_loop_test(tc, messages_are_utf8, 0, sizeof(msg_cases) / sizeof(msg_cases[0]));
	tcase_add_test(tc, messages_are_cut_at_a_character);
	tcase_add_test(tc, a_long_path_does_not_hide_the_reason);
	tcase_add_test(tc, a_message_may_wrap_itself);
	tcase_add_test(tc, phrases);
	tcase_add_test_raise_signal(tc, a_positive_errno_is_a_bug, SIGABRT);
	suite_add_tcase(s, tc);
	return s;
}
