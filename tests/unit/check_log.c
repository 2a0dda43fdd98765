// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1
#include "daemon/log.h"
#include "proto/text.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int err_pipe[2];

// stderr becomes a pipe. Each test runs in a process of its own; Check's word of a failure goes another way.
static void setup(void)
{
	ck_assert_int_eq(pipe(err_pipe), 0);
	ck_assert_int_eq(fcntl(err_pipe[0], F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(err_pipe[1], STDERR_FILENO), STDERR_FILENO);
	close(err_pipe[1]);
}

static char *logged(void)
{
	static char text[65536 + 1];
	ssize_t n = read(err_pipe[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

// The part of a text line after the time, whose form is checked.
static const char *after_time(const char *line)
{
	int y, mo, d, h, mi, s, ms, n = 0;
	ck_assert_int_eq(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &y, &mo, &d, &h, &mi, &s, &ms, &n), 7);
	ck_assert_int_eq(n, 25);
	struct tm tm = {.tm_year = y - 1900, .tm_mon = mo - 1, .tm_mday = d, .tm_hour = h, .tm_min = mi, .tm_sec = s};
	double off = difftime(timegm(&tm), time(NULL));
	ck_assert(off > -5 && off < 5);
	return line + n;
}

static const struct {
	const char *msg, *text, *json;
} escapes[] = {
	{"plain", "plain", "plain"},
	{"", "", ""},
	{"a\nb\tc\r", "a\\nb\\tc\\r", "a\\nb\\tc\\r"},
	{"\b\f", "\\b\\f", "\\b\\f"},
	{"\x1b[31m\x7f\x01", "\\x1b[31m\\x7f\\x01", "\\u001b[31m\\u007f\\u0001"},
	{"say \"hi\" \\o/", "say \"hi\" \\o/", "say \\\"hi\\\" \\\\o/"},
	{"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80",
		"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"},
	{"\xc2\x9b", "\\x9b", "\\u009b"},
	{"\xff\xc3", "\\xff\\xc3", "\xef\xbf\xbd\xef\xbf\xbd"},
	{"\xed\xa0\x80", "\\xed\\xa0\\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
};

START_TEST(a_line_cannot_be_broken_by_its_message)
{
	char want[256];
	log_setup(LOG_INFO, false);
	log_info("word", "%s", escapes[_i].msg);
	snprintf(want, sizeof(want), "info word: %s\n", escapes[_i].text);
	ck_assert_str_eq(after_time(logged()), want);

	log_setup(LOG_INFO, true);
	log_warn("word", "%s", escapes[_i].msg);
	const char *line = logged();
	ck_assert(strncmp(line, "{\"t\":\"", 6) == 0);
	snprintf(want, sizeof(want), "\",\"level\":\"warn\",\"event\":\"word\",\"msg\":\"%s\"}\n", escapes[_i].json);
	ck_assert_str_eq(line + 30, want);
	json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(json);
	json_decref(json);
}
END_TEST

START_TEST(levels_above_the_set_one_are_silent)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	log_setup((enum log_level)_i, false);
	log_error("e", "m");
	log_warn("e", "m");
	log_info("e", "m");
	log_debug("e", "m");
	char *line = strtok(logged(), "\n");
	for (int i = 0; i <= _i; i++, line = strtok(NULL, "\n")) {
		ck_assert_ptr_nonnull(line);
		ck_assert(strncmp(after_time(line), names[i], strlen(names[i])) == 0);
	}
	ck_assert_ptr_null(line);
}
END_TEST

START_TEST(info_and_text_without_setup)
{
	log_debug("e", "no");
	log_info("e", "yes");
	ck_assert_str_eq(after_time(logged()), "info e: yes\n");
}
END_TEST

// A long message of one character over and over; the line stays one write, ends in "..." and is whole UTF-8.
static const char *const fillers[] = {"x", "\xc3\xbc", "\xf0\x9f\x98\x80", "\n", "\"", "\xff", "\xc2\x9b"};

START_TEST(a_long_line_is_cut)
{
	static char msg[3 * PIPE_BUF];
	size_t n = strlen(fillers[_i]);
	for (size_t shift = 0; shift < 8; shift++) {
		memset(msg, 'a', shift);
		size_t at = shift;
		for (; at + n < sizeof(msg); at += n)
			memcpy(msg + at, fillers[_i], n);
		msg[at] = '\0';
		for (int json = 0; json < 2; json++) {
			log_setup(LOG_INFO, json);
			log_info("e", "%s", msg);
			const char *line = logged(), *tail = json ? "...\"}\n" : "...\n";
			size_t len = strlen(line);
			ck_assert_uint_le(len, PIPE_BUF);
			ck_assert_uint_gt(len, PIPE_BUF - 16);
			ck_assert_str_eq(line + len - strlen(tail), tail);
			ck_assert_ptr_eq(strchr(line, '\n'), line + len - 1);
			ck_assert(text_utf8_valid(line, len));
			json_t *parsed = json ? json_loads(line, 0, NULL) : NULL;
			ck_assert_int_eq(parsed != NULL, json);
			json_decref(parsed);
		}
		log_plain("%s", msg);
		ck_assert_uint_le(strlen(logged()), PIPE_BUF);
	}
}
END_TEST

START_TEST(plain_lines_are_as_they_are)
{
	log_setup(LOG_ERROR, true);
	log_plain("celld %s ready: \"a\" %d", "1", 2);
	ck_assert_str_eq(logged(), "celld 1 ready: \"a\" 2\n");
}
END_TEST

START_TEST(errno_survives)
{
	errno = EXDEV;
	log_info("e", "m");
	log_plain("p");
	ck_assert_int_eq(errno, EXDEV);
}
END_TEST

// Fills the pipe to the last byte.
static void fill(void)
{
	static const char zeros[4096];
	int flags = fcntl(STDERR_FILENO, F_GETFL);
	fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
	for (size_t n = sizeof(zeros); n > 0; n /= 2)
		while (write(STDERR_FILENO, zeros, n) > 0)
			;
	ck_assert_int_eq(errno, EAGAIN);
	fcntl(STDERR_FILENO, F_SETFL, flags);
}

START_TEST(a_full_stderr_costs_lines_not_time)
{
	static char sink[65536];
	log_setup(LOG_INFO, _i);
	fill();
	alarm(10); // a write that blocks ends the test
	for (int i = 0; i < 1000; i++)
		log_info("e", "lost %d", i);
	ck_assert_uint_gt(log_lost(), 0);
	log_plain("lost too");
	log_debug("e", "not lost: not asked for");
	while (read(err_pipe[0], sink, sizeof(sink)) > 0)
		;
	log_plain("as it is");
	ck_assert_str_eq(logged(), "as it is\n");
	log_info("e", "back");
	const char *line = logged();
	if (_i)
		ck_assert_str_eq(line + 30, "\",\"level\":\"info\",\"event\":\"e\",\"lost\":1001,\"msg\":\"back\"}\n");
	else
		ck_assert_str_eq(after_time(line), "info e: (1001 lines lost) back\n");
	log_info("e", "again");
	ck_assert_ptr_null(strstr(logged(), "lost"));
	ck_assert_int_eq(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0);
}
END_TEST

// Room for less than a page is not room enough: a line is never written in part.
START_TEST(a_nearly_full_stderr_takes_whole_lines_or_none)
{
	static char all[1 << 17];
	alarm(10);
	for (int i = 0; i < 3000; i++)
		log_info("e", "%0100d", i);
	ssize_t n = 0, got;
	while ((got = read(err_pipe[0], all + n, sizeof(all) - 1 - (size_t)n)) > 0)
		n += got;
	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(all[n - 1], '\n');
	all[n] = '\0';
	int lines = 0;
	for (char *p = strtok(all, "\n"); p; p = strtok(NULL, "\n"), lines++) {
		char want[128];
		snprintf(want, sizeof(want), "info e: %0100d", lines);
		ck_assert_str_eq(after_time(p), want);
	}
	ck_assert_int_gt(lines, 100);
	ck_assert_int_lt(lines, 3000);
}
END_TEST

START_TEST(a_reader_that_has_gone_is_no_signal)
{
	signal(SIGPIPE, SIG_DFL);
	close(err_pipe[0]);
	log_info("e", "m");
	log_plain("p");
	close(STDERR_FILENO);
	log_info("e", "m");
	ck_assert_int_eq(fcntl(STDERR_FILENO, F_GETFD), -1);
}
END_TEST

// A record is written whatever the level, and its text cannot pass for another field.
START_TEST(a_field_looks_like_two)
{
	const struct log_field fields[] = {
		{"id", "a-1", 0}, {"n", NULL, -5}, {"empty", "", 0}, {"said", "x y=1 \"q\"\n", 0}};
	log_setup(LOG_ERROR, false);
	log_record("word", "done", fields, 4);
	ck_assert_str_eq(after_time(logged()), "info word: done id=a-1 n=-5 empty=\"\" said=\"x y=1 \\\"q\\\"\\n\"\n");
	log_setup(LOG_ERROR, true);
	log_record("word", "done", fields, 4);
	json_t *json = json_loads(logged(), JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(json);
	ck_assert_str_eq(json_string_value(json_object_get(json, "said")), fields[3].text);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "n")), -5);
	ck_assert_str_eq(json_string_value(json_object_get(json, "level")), "info");
	ck_assert_str_eq(json_string_value(json_object_get(json, "msg")), "done");
	json_decref(json);
}
END_TEST

// However much there is to say, a line is one line of JSON, with each field whole or not there.
START_TEST(fields_are_cut_open)
{
	char text[2 * LOG_TEXT_MAX + 1];
	struct log_field fields[10];
	for (size_t n = 0; n < sizeof(text); n += 7) {
		memset(text, "\x01\"x\xff"[n % 4], n);
		text[n] = '\0';
		for (size_t i = 0; i < 10; i++)
			fields[i] = (struct log_field){
				(const char *[]){"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}[i], text, 0};
		log_setup(LOG_INFO, true);
		log_record("e", "m", fields, 10);
		char *line = logged();
		ck_assert_uint_le(strlen(line), PIPE_BUF);
		ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
		json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
		ck_assert_ptr_nonnull(json);
		const char *a = json_string_value(json_object_get(json, "a"));
		ck_assert(a && (n == 0 || *a));
		json_decref(json);
		log_setup(LOG_INFO, false);
		log_record("e", "m", fields, 10);
		ck_assert_uint_le(strlen(logged()), PIPE_BUF);
	}
}
END_TEST

Suite *log_suite(void)
{
	Suite *s = suite_create("log");
	TCase *t = tcase_create("log");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, a_line_cannot_be_broken_by_its_message, 0, sizeof(escapes) / sizeof(escapes[0]));
	tcase_add_loop_test(t, levels_above_the_set_one_are_silent, LOG_ERROR, LOG_DEBUG + 1);
	tcase_add_test(t, info_and_text_without_setup);
	tcase_add_loop_test(t, a_long_line_is_cut, 0, sizeof(fillers) / sizeof(fillers[0]));
	tcase_add_test(t, plain_lines_are_as_they_are);
	tcase_add_test(t, errno_survives);
	tcase_add_test(t, a_field_looks_like_two);
	tcase_add_test(t, fields_are_cut_open);
	tcase_add_loop_test(t, a_full_stderr_costs_lines_not_time, 0, 2);
	tcase_add_test(t, a_nearly_full_stderr_takes_whole_lines_or_none);
	tcase_add_test(t, a_reader_that_has_gone_is_no_signal);
	suite_add_tcase(s, t);
	return s;
}
