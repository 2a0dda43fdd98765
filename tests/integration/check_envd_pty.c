// SPDX-License-Identifier: Apache-2.0
// Terminals on surface B: size, control, input, resize, ends (B38, B39).
#include "tests/integration/calls.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include "proto/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START "process.Process/Start"
#define UPDATE "process.Process/Update"
#define SEND "process.Process/SendInput"

static struct stream *start(const struct testd *d, enum codec codec, const char *script, const char *size, int64_t *pid)
{
	char more[120];
	(void)snprintf(more, sizeof more, ",\"pty\":{%s}", size);
	char *json = sh_request(script, more);
	struct stream *s = stream_open(d, START, codec, NULL, json);
	*pid = stream_pid(s);
	free(json);
	return s;
}

#define SIZE "\"size\":{\"cols\":80,\"rows\":24}"

static void type(const struct testd *d, enum codec codec, int64_t pid, const void *p, size_t n)
{
	struct buf json = {0};
	buf_printf(&json, "{\"process\":{\"pid\":%lld},\"input\":{\"pty\":\"", (long long)pid);
	text_b64_encode(&json, p, n);
	buf_str(&json, "\"}}");
	json_decref(call(d, SEND, codec, NULL, buf_cstr(&json)));
	buf_release(&json);
}

static char *update_json(char out[160], int64_t pid, const char *pty)
{
	(void)snprintf(out, 160, "{\"process\":{\"pid\":%lld}%s%s}", (long long)pid, *pty ? ",\"pty\":" : "", pty);
	return out;
}

static void play(struct stream *s, int64_t code, const char *text)
{
	struct played o = {0};
	stream_play(s, &o, 10000);
	played_assert_exit(&o, code);
	ck_assert_uint_eq(buf_len(&o.ch[FRAME_STDOUT]) + buf_len(&o.ch[FRAME_STDERR]), 0);
	if (text)
		assert_text(&o.ch[FRAME_PTY], text);
	played_release(&o);
	stream_close(s);
}

START_TEST(a_terminal_has_its_size_and_is_the_controlling_one)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	int64_t pid;
	play(start(d, codec,
		     "test -t 0 && test -t 1 && test -t 2 && echo $(stty size) tty; echo ok >/dev/tty; echo $TERM.; "
		     "exit 5",
		     SIZE, &pid),
		5, "24 80 tty\r\nok\r\n.\r\n");
	play(start(d, codec, "stty size", "", &pid), 0, "0 0\r\n");
	play(start(d, codec, "stty size", "\"size\":{\"cols\":65535,\"rows\":65535}", &pid), 0, "65535 65535\r\n");
	struct played o = {0};
	start_and_play(d, codec, NULL,
		"{\"process\":{\"cmd\":\"no-such-cmd\",\"envs\":{\"TERM\":\"x\"}},\"pty\":{" SIZE "}}", &o);
	played_assert_exit(&o, 127);
	ck_assert_ptr_nonnull(strstr(buf_cstr(&o.ch[FRAME_PTY]), "No such file or directory\r\n"));
	played_release(&o);
	d_finish(d);
}
END_TEST

START_TEST(a_resize_is_told_to_who_runs_there)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	int64_t pid;
	char json[160], message[256];
	struct stream *s = start(d, codec,
		"stty -echo; trap 'stty size' WINCH; echo ready; while ! read x; do :; done; echo got $x", SIZE, &pid);
	stream_until(s, FRAME_PTY, "ready", NULL, 5000);
	json_decref(call(d, UPDATE, codec, NULL, update_json(json, pid, "{\"size\":{\"cols\":132,\"rows\":43}}")));
	stream_until(s, FRAME_PTY, "43 132\r\n", NULL, 5000);
	json_decref(call(d, UPDATE, codec, NULL, update_json(json, pid, ""))); // nothing happens
	if (codec == CODEC_JSON) {                                             // B38
		call_fails(d, UPDATE, codec, NULL, update_json(json, pid, "{\"size\":{\"cols\":-1,\"rows\":4}}"),
			"invalid_argument", NULL);
		call_fails(d, UPDATE, codec, NULL,
			update_json(json, pid, "{\"size\":{\"cols\":1099511627776,\"rows\":4}}"), "invalid_argument",
			NULL);
	}
	json_decref(call(d, UPDATE, codec, NULL, update_json(json, pid, "{\"size\":{\"cols\":0,\"rows\":0}}")));
	stream_until(s, FRAME_PTY, "0 0\r\n", NULL, 5000);
	json_decref(call(d, UPDATE, codec, NULL, update_json(json, pid, "{\"size\":{\"cols\":100,\"rows\":30}}")));
	stream_until(s, FRAME_PTY, "30 100\r\n", NULL, 5000);
	type(d, codec, pid, "1\n", 2);
	play(s, 0, "got 1\r\n");
	// B38: after the end
	call_fails(d, UPDATE, codec, NULL, update_json(json, pid, "{\"size\":{\"cols\":1,\"rows\":1}}"), "not_found",
		NULL);
	call_fails(d, UPDATE, codec, NULL, update_json(json, pid, ""), "not_found", NULL);
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%lld},\"input\":{\"pty\":\"eA==\"}}", (long long)pid);
	call_fails(d, SEND, codec, NULL, json, "not_found", NULL);
	char *cat = sh_request("exec cat", "");
	s = stream_open(d, START, codec, NULL, cat);
	pid = stream_pid(s);
	call_fails(d, UPDATE, codec, NULL, update_json(json, pid, "{\"size\":{\"cols\":1,\"rows\":1}}"), "internal",
		message);
	ck_assert_str_eq(message, "error resizing tty: tty not assigned to process");
	stream_close(s);
	free(cat);
	d_finish(d);
}
END_TEST

START_TEST(control_characters_work)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	int64_t pid;
	struct stream *s = start(d, codec, "exec cat", SIZE, &pid);
	type(d, codec, pid, "abc\n", 4);
	stream_until(s, FRAME_PTY, "abc\r\nabc\r\n", NULL, 5000);
	type(d, codec, pid, "\004", 1);
	play(s, 0, "");
	s = start(d, codec, "echo up; exec sleep 100", SIZE, &pid);
	stream_until(s, FRAME_PTY, "up", NULL, 5000);
	type(d, codec, pid, "\003", 1);
	struct played o = {0};
	stream_play(s, &o, 5000);
	played_assert_signal(&o, "interrupt");
	played_release(&o);
	stream_close(s);
	s = start(d, codec, "PS1='ask: ' exec sh -i", SIZE, &pid);
	stream_until(s, FRAME_PTY, "ask: ", NULL, 5000);
	static const char command[] = "sh -c \"echo st''arted; exec sleep 100\"\r"; // its echo is another text
	type(d, codec, pid, command, sizeof command - 1);
	stream_until(s, FRAME_PTY, "started", NULL, 5000);
	type(d, codec, pid, "\003", 1);
	stream_until(s, FRAME_PTY, "ask: ", NULL, 5000);
	type(d, codec, pid, "exit 7\r", 7);
	stream_play(s, &o, 10000);
	played_assert_exit(&o, 7);
	played_release(&o);
	stream_close(s);
	d_finish(d);
}
END_TEST

START_TEST(a_killed_terminal_takes_its_session_along)
{
	struct testd *d = d_start(CALLS_ENVD);
	int64_t pid;
	char json[80];
	struct stream *s = start(d, CODEC_JSON, "set -m; sleep 7654321 & echo up; wait", SIZE, &pid);
	stream_until(s, FRAME_PTY, "up", NULL, 5000);
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%lld},\"signal\":\"SIGNAL_SIGKILL\"}", (long long)pid);
	json_decref(call(d, "process.Process/SendSignal", (enum codec)_i, NULL, json));
	struct played o = {0};
	stream_play(s, &o, 5000);
	played_assert_signal(&o, "killed");
	ck_assert(!d_nspid_alive(d, pid));
	played_release(&o);
	stream_close(s);
	d_finish(d);
}
END_TEST

// B39
START_TEST(a_large_paste_arrives_whole)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	const size_t n = 100000;
	int64_t pid;
	char *data = malloc(n);
	ck_assert_ptr_nonnull(data);
	memset(data, 'p', n);
	struct stream *s =
		start(d, codec, "stty raw -echo; echo up; head -c 100000 | tr -d p | wc -c; head -c 3", SIZE, &pid);
	stream_until(s, FRAME_PTY, "up", NULL, 5000);
	type(d, codec, pid, data, n);
	type(d, codec, pid, "end", 3);
	play(s, 0, "0\nend");
	free(data);
	d_finish(d);
}
END_TEST

// B09
START_TEST(a_terminal_given_up_is_no_end)
{
	struct testd *d = d_start(CALLS_ENVD);
	int64_t pid;
	play(start(d, (enum codec)_i, "exec </dev/null >/dev/null 2>&1; sleep 1; exit 4", SIZE, &pid), 4, "");
	d_finish(d);
}
END_TEST

START_TEST(a_terminal_is_attached_and_listed)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	struct stream *s =
		stream_open(d, START, codec, NULL, "{\"process\":{\"cmd\":\"cat\"},\"pty\":{" SIZE "},\"tag\":\"pt\"}");
	int64_t pid = stream_pid(s);
	char want[120];
	json_t *l = call(d, "process.Process/List", codec, NULL, "{}");
	char *got = j_text(l);
	(void)snprintf(want, sizeof want,
		"{\"processes\":[{\"config\":{\"cmd\":\"cat\"},\"pid\":%lld,\"tag\":\"pt\"}]}", (long long)pid);
	ck_assert_str_eq(got, want);
	struct stream *t = stream_open(d, "process.Process/Connect", codec, NULL, "{\"process\":{\"tag\":\"pt\"}}");
	ck_assert_int_eq(stream_pid(t), pid);
	type(d, codec, pid, "x\n", 2);
	stream_until(s, FRAME_PTY, "x\r\nx\r\n", NULL, 5000);
	stream_until(t, FRAME_PTY, "x\r\nx\r\n", NULL, 5000);
	struct stream *u = stream_upload(d, "process.Process/StreamInput", codec, NULL);
	ck_assert(stream_send(u, "{\"start\":{\"process\":{\"tag\":\"pt\"}}}"));
	ck_assert(stream_send(u, "{\"data\":{\"input\":{\"pty\":\"BA==\"}}}")); // Ctrl-D
	play(s, 0, "");
	play(t, 0, "");
	stream_close(u);
	json_decref(l);
	free(got);
	d_finish(d);
}
END_TEST

Suite *envd_pty_suite(void)
{
	Suite *s = suite_create("envd_pty");
	TCase *t = h_tcase(s, "terminal", 40);
	tcase_add_loop_test(t, a_terminal_has_its_size_and_is_the_controlling_one, 0, CODECS);
	tcase_add_loop_test(t, a_resize_is_told_to_who_runs_there, 0, CODECS);
	tcase_add_loop_test(t, control_characters_work, 0, CODECS);
	tcase_add_loop_test(t, a_killed_terminal_takes_its_session_along, 0, CODECS);
	tcase_add_loop_test(t, a_large_paste_arrives_whole, 0, CODECS);
	tcase_add_loop_test(t, a_terminal_given_up_is_no_end, 0, CODECS);
	tcase_add_loop_test(t, a_terminal_is_attached_and_listed, 0, CODECS);
	return s;
}
