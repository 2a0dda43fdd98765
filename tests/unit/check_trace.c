// SPDX-License-Identifier: Apache-2.0
// Requests by their ids, and the line of each in the log.
#include "daemon/log.h"
#include "netkit.h"
#include "oom.h"
#include "suites.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct kit kit;
static struct kit_client client;
static int err_pipe[2];
static char lines[65536 + 1];

static void setup(bool tell)
{
	ck_assert_int_eq(pipe(err_pipe), 0);
	ck_assert_int_eq(fcntl(err_pipe[0], F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(err_pipe[1], STDERR_FILENO), STDERR_FILENO);
	close(err_pipe[1]);
	log_setup(LOG_ERROR, false); // such lines are written all the same
	if (tell)
		kit_init_telling(&kit, &kit_limits);
	else
		kit_init(&kit, &kit_limits);
	kit_open(&kit, &client, KIT_TCP);
}

static void teardown(void)
{
	kit_close(&client);
	kit_release(&kit);
}

static const char *logged(void)
{
	ssize_t n = read(err_pipe[0], lines, sizeof lines - 1);
	lines[n > 0 ? n : 0] = '\0';
	return lines;
}

static void want_log(const char *const *words)
{
	const char *at = logged();
	for (; *words; words++) {
		const char *found = strstr(at, *words);
		ck_assert_msg(found, "no \"%s\" (from %zu on) in: %s", *words, (size_t)(at - lines), lines);
		at = found + strlen(*words);
	}
}

static void ask(const char *path, const char *headers)
{
	char text[512];
	snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, headers);
	kit_forget(&client);
	kit_say(&kit, &client, text);
}

static void ask_plain(const char *headers)
{
	ask("/plain", headers);
	KIT_UNTIL(&kit, &client, kit_has(&client, "ok"));
}

START_TEST(id_is_not_given_back)
{
	setup(_i);
	ask_plain("x-request-ID:  a.B-9_:/+=@ \r\n");
	ck_assert(kit_has(&client, "\r\nX-Request-Id: a.B-9_:/+=@\r\n"));
	kit_forget(&client);
	ask("/nothing", "X-Request-Id: of-an-error\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, "404"));
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\nX-Request-Id: of-an-error\r\n"));
	teardown();
}
END_TEST

static const char *const insane[] = {"X-Request-Id:\r\n", "X-Request-Id: a b\r\n", "X-Request-Id: a\"b\r\n",
	"X-Request-Id: \xc3\xbc\r\n", "X-Request-Id: a\\\r\n", "X-Request-Id: a;b\r\n",
	"X-Request-Id: 1234567890123456789012345678901234567890123456789012345678901234x\r\n", ""};

START_TEST(what_is_no_id_is_given_back)
{
	setup(false);
	ask_plain(insane[_i]);
	ck_assert(!kit_has(&client, "X-Request-Id"));
	ck_assert_str_eq(logged(), "");
	teardown();
}
END_TEST

// The id in the answer: N bytes of it into OUT.
static void id_of_answer(char out[65])
{
	const char *at = strstr(client.got, "X-Request-Id: ");
	ck_assert_ptr_nonnull(at);
	ck_assert_int_eq(sscanf(at, "X-Request-Id: %64[^\r]", out), 1);
}

START_TEST(made_ids_are_the_same)
{
	char first[65], second[65];
	setup(true);
	ask_plain(insane[_i]);
	id_of_answer(first);
	ck_assert_uint_eq(strlen(first), 16);
	for (const char *p = first; *p; p++)
		ck_assert(isxdigit((unsigned char)*p));
	want_log((const char *const[]){" info request: answered id=", first, " surface=", " method=GET path=/plain ",
		"status=200 ", "bytes=", " us=", "\n", NULL});
	ask_plain(insane[_i]);
	id_of_answer(second);
	ck_assert_str_ne(first, second);
	teardown();
}
END_TEST

START_TEST(query_is_logged)
{
	char want[32];
	setup(true);
	ask("/plain?signature=secret", "X-Request-Id: q\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, "ok"));
	(void)snprintf(want, sizeof want, " bytes=%zu us=", client.n);
	want_log((const char *const[]){"id=q ", "path=/plain status=200", want, NULL});
	ck_assert_ptr_null(strstr(lines, "secret"));
	teardown();
}
END_TEST

START_TEST(pipelined_requests_are_one)
{
	setup(true);
	kit_say(&kit, &client,
		"GET /plain HTTP/1.1\r\nHost: x\r\nX-Request-Id: one\r\n\r\n"
		"GET /nothing HTTP/1.1\r\nHost: x\r\nX-Request-Id: two\r\n\r\n");
	KIT_UNTIL(&kit, &client, kit_times(&client, "X-Request-Id") == 2);
	want_log((const char *const[]){"id=one ", "status=200", "\n", "id=two ", "status=404", "\n", NULL});
	teardown();
}
END_TEST

START_TEST(stream_is_logged_at_its_begin)
{
	setup(true);
	kit.source[0] = (struct kit_source){.left = 100000, .last = CONN_PULL_IDLE};
	ask("/stream", "X-Request-Id: s\r\n");
	KIT_UNTIL(&kit, &client, client.total > 100000);
	ck_assert_str_eq(logged(), "");
	kit.source[0].last = CONN_PULL_END;
	conn_wake(kit.source[0].conn);
	KIT_UNTIL(&kit, &client, kit.source[0].closed);
	want_log((const char *const[]){"request: answered id=s ", "path=/stream status=200 bytes=100", NULL});
	teardown();
}
END_TEST

START_TEST(what_was_cut_is_answered)
{
	setup(true);
	kit.source[0] = (struct kit_source){.left = 10, .last = CONN_PULL_IDLE};
	ask("/stream", "X-Request-Id: s\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, "0123456789"));
	kit.source[0].last = CONN_PULL_ABORT;
	conn_wake(kit.source[0].conn);
	KIT_UNTIL(&kit, &client, client.eof);
	want_log((const char *const[]){"request: cut id=s ", "status=200", NULL});
	ck_assert_ptr_null(strstr(lines, "answered"));
	kit_close(&client);

	kit_open(&kit, &client, KIT_TCP);
	ask("/later", "X-Request-Id: gone\r\n");
	KIT_UNTIL(&kit, &client, kit.held_count == 1);
	conn_abort(kit.held[0]);
	KIT_UNTIL(&kit, &client, client.eof);
	want_log((const char *const[]){"request: cut id=gone ", "status=0 bytes=0 ", NULL});
	teardown();
}
END_TEST

// No head, so no id and no path.
START_TEST(garbage_leaves_no_line)
{
	setup(true);
	kit_say(&kit, &client, "GET /plain HTTP/1.1\r\nHost x\r\n\r\n");
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert(kit_has(&client, "400"));
	want_log((const char *const[]){"request: answered id=", "status=400", NULL});
	teardown();
}
END_TEST

// Without memory for it there is no line, and nothing else changes.
START_TEST(memory_for_the_line_is_missed)
{
	static const char text[] = "GET /plain HTTP/1.1\r\nHost: x\r\nX-Request-Id: given\r\n\r\n";
	for (unsigned n = 0; n < 40; n++) {
		setup(true);
		ask_plain(""); // libev has what it needs from here on
		kit_close(&client);
		kit_open(&kit, &client, KIT_TCP);
		kit_turn(&kit, &client);
		oom_fail_at(n);
		ssize_t sent = write(client.fd, text, sizeof text - 1);
		for (int i = 0; i < 20; i++)
			kit_turn(&kit, &client);
		oom_off();
		ck_assert_int_eq(sent, sizeof text - 1);
		ck_assert(client.eof || kit_has(&client, "HTTP/1.1 "));
		teardown();
	}
}
END_TEST

Suite *trace_suite(void)
{
	Suite *s = suite_create("trace");
	TCase *t = tcase_create("trace");
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, id_is_not_given_back, 0, 2);
	tcase_add_loop_test(t, what_is_no_id_is_given_back, 0, sizeof insane / sizeof *insane);
	tcase_add_loop_test(t, made_ids_are_the_same, 0, sizeof insane / sizeof *insane);
	tcase_add_test(t, query_is_logged);
	tcase_add_test(t, pipelined_requests_are_one);
	tcase_add_test(t, stream_is_logged_at_its_begin);
	tcase_add_test(t, what_was_cut_is_answered);
	tcase_add_test(t, garbage_leaves_no_line);
	tcase_add_test(t, memory_for_the_line_is_missed);
	suite_add_tcase(s, t);
	return s;
}
