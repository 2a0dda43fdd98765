// SPDX-License-Identifier: Apache-2.0
// What a daemon does must come through the gateway as it is: streams to their ends, first frames, channels, bytes, environments, pids.
#include "tests/integration/envdkit.h"
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gw *start(struct sbx *s, const char *body)
{
	struct gw *g = gw_start("--pool", "1");
	gw_create(g, s, body);
	return g;
}

START_TEST(attached_stream_lacks_its_end_event)
{
	struct sbx s;
	struct gw *g = start(&s, GW_BASE);
	for (int codec = 0; codec < CODECS; codec++) {
		char *request = sh_request("echo one; read x; echo two; exit 3", ",\"stdin\":true,\"tag\":\"t\"");
		struct stream *run = stream_open(g->d, "process.Process/Start", (enum codec)codec, s.headers, request);
		int64_t pid = stream_pid(run);
		stream_until(run, FRAME_STDOUT, "one\n", NULL, 10000);
		char body[200];
		(void)snprintf(body, sizeof body, "{\"process\":{\"pid\":%lld}}", (long long)pid);
		struct stream *more = stream_open(g->d, "process.Process/Connect", (enum codec)codec, s.headers, body);
		ck_assert_int_eq(stream_pid(more), pid);
		(void)snprintf(body, sizeof body, "{\"process\":{\"pid\":%lld},\"input\":{\"stdin\":\"eAo=\"}}",
			(long long)pid);
		json_decref(call(g->d, "process.Process/SendInput", (enum codec)codec, s.headers, body));
		struct played a = {0}, b = {0};
		stream_play(run, &a, 10000);
		stream_play(more, &b, 10000);
		played_assert_exit(&a, 3);
		played_assert_exit(&b, 3);
		assert_text(&b.ch[FRAME_STDOUT], "two\n");
		played_release(&a);
		played_release(&b);
		stream_close(run);
		stream_close(more);
		free(request);
	}
	// The same on surface A.
	struct sse *e = sse_open_with(
		g->d, "/exec/stream", s.a_headers, "{\"command\":\"echo a; sleep 0.2; echo b; exit 4\"}", 0);
	char target[64];
	int64_t pid = sse_pid(e);
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%lld", (long long)pid);
	struct sse *more = sse_open_with(g->d, target, s.a_headers, NULL, 0);
	struct sse_out o = {0}, p = {0};
	sse_collect(e, &o, 10000);
	sse_collect(more, &p, 10000);
	ck_assert_int_eq(o.end.code, 4);
	ck_assert_int_eq(p.end.code, 4);
	assert_text(&o.ch[FRAME_STDOUT], "a\nb\n");
	sse_out_release(&o);
	sse_out_release(&p);
	sse_close(e);
	sse_close(more);
	gw_finish(g);
}
END_TEST

START_TEST(watch_starts_with_an_event_or_never_has_one)
{
	struct sbx s;
	struct gw *g = start(&s, GW_BASE);
	for (int codec = 0; codec < CODECS; codec++) {
		char name[16];
		(void)snprintf(name, sizeof name, "d%d", codec);
		char script[64];
		(void)snprintf(script, sizeof script, "mkdir -p %s/sub", name);
		free(gw_sh(g, &s, script));
		char body[128];
		(void)snprintf(body, sizeof body, "{\"path\":\"%s\",\"recursive\":true}", name);
		struct stream *w =
			stream_open(g->d, "filesystem.Filesystem/WatchDir", (enum codec)codec, s.headers, body);
		json_t *msg;
		ck_assert_int_eq(stream_next(w, &msg, 10000), STREAM_MESSAGE);
		ck_assert(j_has(msg, "start"));
		json_decref(msg);
		(void)snprintf(script, sizeof script, "echo x >%s/sub/new", name);
		free(gw_sh(g, &s, script));
		ck_assert_int_eq(stream_next(w, &msg, 10000), STREAM_MESSAGE);
		const json_t *event = j_get(msg, "filesystem");
		ck_assert_str_eq(j_str(event, "name"), "sub/new");
		ck_assert_str_eq(j_str(event, "type"), "EVENT_TYPE_CREATE");
		json_decref(msg);
		stream_close(w);
	}
	gw_finish(g);
}
END_TEST

// Stdout and stderr in turn, in pieces of many sizes: none is put into the other, none is lost.
START_TEST(channels_are_mixed_up)
{
	static const char script[] = "i=0; while [ $i -lt 300 ]; do printf 'o%05d%*s\\n' $i $((i*37%911)) ''; printf "
				     "'e%05d%*s\\n' $i $((i*53%701)) '' >&2; "
				     "i=$((i+1)); done";
	struct sbx s;
	struct gw *g = start(&s, GW_BASE);
	struct buf want[2] = {0};
	for (int i = 0; i < 300; i++) {
		buf_printf(&want[0], "o%05d%*s\n", i, i * 37 % 911, "");
		buf_printf(&want[1], "e%05d%*s\n", i, i * 53 % 701, "");
	}
	for (int codec = 0; codec < CODECS; codec++) {
		struct played o = {0};
		sh_play(g->d, (enum codec)codec, s.headers, script, &o);
		played_assert_exit(&o, 0);
		assert_bytes(&o.ch[FRAME_STDOUT], buf_data(&want[0]), buf_len(&want[0]));
		assert_bytes(&o.ch[FRAME_STDERR], buf_data(&want[1]), buf_len(&want[1]));
		played_release(&o);
	}
	buf_release(&want[0]);
	buf_release(&want[1]);
	gw_finish(g);
}
END_TEST

// A request whose bytes come one by one, or in all other pieces, and a reader that takes little at a time.
START_TEST(pieces_of_a_request_matter)
{
	struct sbx s;
	struct gw *g = start(&s, GW_BASE);
	struct buf text = {0};
	static const char message[] = "{\"process\":{\"cmd\":\"/bin/echo\",\"args\":[\"in pieces\"]}}";
	buf_printf(&text,
		"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/connect+json\r\n"
		"Connect-Protocol-Version: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		s.headers);
	size_t head = buf_len(&text);
	static const unsigned char prefix[] = {0, 0, 0, 0, sizeof message - 1};
	for (size_t i = 0; i < sizeof prefix + sizeof message - 1; i++) { // each byte a chunk
		unsigned char c = i < sizeof prefix ? prefix[i] : (unsigned char)message[i - sizeof prefix];
		BUF_LIT(&text, "1\r\n");
		buf_byte(&text, c);
		BUF_LIT(&text, "\r\n");
	}
	BUF_LIT(&text, "0\r\n\r\n");
	static const size_t pieces[] = {1, 2, 3, 7, 100, 100000};
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
		struct client *c = client_connect_rcvbuf(g->d, 2048);
		struct resp r = {0};
		for (size_t at = 0; at < buf_len(&text); at += pieces[i]) {
			size_t n = buf_len(&text) - at < pieces[i] ? buf_len(&text) - at : pieces[i];
			ck_assert(client_send_raw(c, buf_data(&text) + at, n));
			if (pieces[i] < 100 && at > head && at % 64 == 0)
				h_tick();
		}
		client_response(c, &r);
		ck_assert_int_eq(r.status, 200);
		size_t messages;
		json_t *last = envd_want_stream(&r, &messages);
		ck_assert_uint_eq(json_object_size(last), 0);
		ck_assert_uint_eq(messages, 3);
		static const char output[] = "aW4gcGllY2VzCg==";
		ck_assert_ptr_nonnull(memmem(buf_data(&r.body), buf_len(&r.body), output, sizeof output - 1));
		json_decref(last);
		client_close(c);
		resp_release(&r);
	}
	buf_release(&text);
	gw_finish(g);
}
END_TEST

START_TEST(binary_file_changes_on_its_way)
{
	static const size_t sizes[] = {0, 1, 255, 65536, 65537, 3 * 1024 * 1024 + 17};
	struct sbx s;
	struct gw *g = start(&s, GW_BASE);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		unsigned char *p = malloc(sizes[i] + 1);
		ck_assert_ptr_nonnull(p);
		unsigned x = 12345;
		for (size_t k = 0; k < sizes[i]; k++) {
			x = x * 1103515245 + 12345;
			p[k] = (unsigned char)(k < 256 ? k : x >> 16);
		}
		struct buf b = {0};
		gw_put(g, &s, "bin%2Ff", p, sizes[i]);
		gw_get(g, &s, "bin%2Ff", &b);
		assert_bytes(&b, p, sizes[i]);
		buf_release(&b);
		free(p);
	}
	gw_finish(g);
}
END_TEST

START_TEST(environment_of_a_call_is_dropped)
{
	static const char request[] = "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"echo $A-$B-$C\"],"
				      "\"envs\":{\"A\":\"call\",\"C\":\"own\"}},\"stdin\":false}";
	struct sbx s;
	struct gw *g = start(&s, "{\"templateID\":\"base\",\"envVars\":{\"A\":\"session\",\"B\":\"session\"}}");
	for (int codec = 0; codec < CODECS; codec++) {
		struct played o = {0};
		start_and_play(g->d, (enum codec)codec, s.headers, request, &o);
		played_assert_exit(&o, 0);
		assert_text(&o.ch[FRAME_STDOUT], "call-session-own\n");
		played_release(&o);
		char *text = gw_sh(g, &s, "echo $A-$B-$C");
		ck_assert_str_eq(text, "session-session-\n");
		free(text);
	}
	gw_finish(g);
}
END_TEST

START_TEST(pid_of_the_list_is_not_found)
{
	struct sbx s;
	struct gw *g = start(&s, GW_BASE);
	char *request = sh_request("echo up; read x; echo $x", ",\"stdin\":true,\"tag\":\"mine\"");
	struct stream *run = stream_open(g->d, "process.Process/Start", CODEC_JSON, s.headers, request);
	int64_t pid = stream_pid(run);
	stream_until(run, FRAME_STDOUT, "up\n", NULL, 10000);
	stream_close(run); // its client is gone, it runs on
	json_t *list = call(g->d, "process.Process/List", CODEC_JSON, s.headers, "{}");
	const json_t *all = j_get(list, "processes");
	ck_assert_uint_eq(json_array_size(all), 1);
	ck_assert_int_eq(j_int(json_array_get(all, 0), "pid"), pid);
	ck_assert_str_eq(j_str(json_array_get(all, 0), "tag"), "mine");
	char body[128];
	(void)snprintf(body, sizeof body, "{\"process\":{\"pid\":%lld}}", (long long)pid);
	struct stream *more = stream_open(g->d, "process.Process/Connect", CODEC_PROTO, s.headers, body);
	ck_assert_int_eq(stream_pid(more), pid);
	(void)snprintf(
		body, sizeof body, "{\"process\":{\"pid\":%lld},\"input\":{\"stdin\":\"Z290Cg==\"}}", (long long)pid);
	json_decref(call(g->d, "process.Process/SendInput", CODEC_JSON, s.headers, body));
	struct played o = {0};
	stream_play(more, &o, 10000);
	played_assert_exit(&o, 0);
	assert_text(&o.ch[FRAME_STDOUT], "got\n");
	// Surface A shows the same processes.
	struct resp r = {0};
	struct client *c = client_connect(g->d);
	client_request(c, "GET", "/ready", s.a_headers, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	client_close(c);
	resp_release(&r);
	played_release(&o);
	stream_close(more);
	json_decref(list);
	free(request);
	gw_finish(g);
}
END_TEST

Suite *gateway_daemon_suite(void)
{
	Suite *s = suite_create("gateway_daemon");
	TCase *tc = h_tcase(s, "daemon", 40);
	tcase_add_test(tc, attached_stream_lacks_its_end_event);
	tcase_add_test(tc, watch_starts_with_an_event_or_never_has_one);
	tcase_add_test(tc, channels_are_mixed_up);
	tcase_add_test(tc, pieces_of_a_request_matter);
	tcase_add_test(tc, binary_file_changes_on_its_way);
	tcase_add_test(tc, environment_of_a_call_is_dropped);
	tcase_add_test(tc, pid_of_the_list_is_not_found);
	return s;
}
