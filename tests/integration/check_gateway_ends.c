// SPDX-License-Identifier: Apache-2.0
// A sandbox that is gone in the middle of its streams: each client gets a well-formed end that says so, and nothing looks complete that is not.
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS 20
#define TICKS "while :; do echo tick; sleep 0.02; done"

enum how { CRASHED, KILLED, PAUSED, EXPIRED, HOWS };

struct streams {
	struct stream *rpc[STREAMS]; // some of each codec
	struct sse *sse[STREAMS];
};

static void open_all(const struct gw *g, const struct sbx *s, struct streams *all)
{
	char *request = sh_request(TICKS, "");
	memset(all, 0, sizeof *all);
	for (int i = 0; i < STREAMS; i++) {
		if (i % 3 < 2)
			all->rpc[i] = stream_open(
				g->d, "process.Process/Start", i % 3 ? CODEC_PROTO : CODEC_JSON, s->headers, request);
		else
			all->sse[i] =
				sse_open_with(g->d, "/exec/stream", s->a_headers, "{\"command\":\"" TICKS "\"}", 0);
	}
	free(request);
	for (int i = 0; i < STREAMS; i++) {
		if (all->rpc[i]) {
			stream_pid(all->rpc[i]);
			stream_until(all->rpc[i], FRAME_STDOUT, "tick\n", NULL, 10000);
		} else {
			sse_pid(all->sse[i]);
			sse_until(all->sse[i], FRAME_STDOUT, "tick\n", NULL, 10000);
		}
	}
}

// The code that the SDKs know, their word in the message, and the reason; of a crash not more than that may be known by then.
static void want_reason(const json_t *error, const char *message_key, enum how how)
{
	static const char *const reasons[HOWS] = {
		[CRASHED] = "", [KILLED] = "was killed", [PAUSED] = "was paused", [EXPIRED] = "timeout"};
	ck_assert_str_eq(j_str(error, "code"), "unavailable");
	const char *message = j_str(error, message_key);
	ck_assert_msg(strstr(message, "was not found") && strstr(message, reasons[how]), "%s", message);
}

static void want_rpc_end(struct stream *s, enum how how)
{
	json_t *msg;
	enum stream_kind kind;
	while ((kind = stream_next(s, &msg, 10000)) == STREAM_MESSAGE) {
		ck_assert(!j_has(j_get(msg, "event"), "end")); // nobody saw it end
		json_decref(msg);
	}
	ck_assert_msg(kind == STREAM_LAST, "kind %d", kind);
	want_reason(j_get(msg, "error"), "message", how);
	json_decref(msg);
	ck_assert_int_eq(stream_next(s, &msg, 10000), STREAM_OVER);
}

static void want_sse_end(struct sse *s, enum how how)
{
	struct sse_event e = {0};
	enum sse_kind kind;
	while ((kind = sse_next(s, &e, 10000)) == SSE_DATA || kind == SSE_KEEPALIVE)
		;
	ck_assert_msg(kind == SSE_ERROR, "%s", sse_kind_name(kind));
	want_reason(e.obj, "error", how);
	ck_assert_int_eq(sse_next(s, &e, 10000), SSE_END);
	sse_event_release(&e);
}

static void want_ends(struct streams *all, enum how how)
{
	for (int i = 0; i < STREAMS; i++) {
		if (all->rpc[i])
			want_rpc_end(all->rpc[i], how);
		else
			want_sse_end(all->sse[i], how);
		stream_close(all->rpc[i]);
		sse_close(all->sse[i]);
	}
}

// What ends S, and what holds afterwards.
static void end_it(const struct gw *g, const struct sbx *s, enum how how)
{
	struct resp r = {0};
	switch (how) {
	case CRASHED:
		ck_assert_int_eq(kill(gw_pid(g, s, NULL), SIGKILL), 0);
		break;
	case KILLED:
		gw_kill(g, s);
		break;
	case PAUSED:
		gw_on(g, "POST", "/sandboxes/%s/pause", s->id, "{}", 204, &r);
		break;
	default:
		gw_on(g, "POST", "/sandboxes/%s/timeout", s->id, "{\"timeout\":0}", 204, &r);
	}
	resp_release(&r);
}

START_TEST(stream_has_no_end_when_its_sandbox_is_gone)
{
	enum how how = (enum how)_i;
	struct gw *g = gw_start("--pool", "0", "--max-sandboxes", "1", "--sweep", "3600");
	struct sbx s, next;
	struct streams all;
	struct resp r = {0};
	gw_create(g, &s, GW_BASE);
	open_all(g, &s, &all);
	end_it(g, &s, how);
	want_ends(&all, how);
	gw_gone(g, &s); // which is what the SDKs ask then
	if (how == PAUSED) {
		gw_on(g, "POST", "/v2/sandboxes/%s/connect", s.id, "{}", 201, &r);
		open_all(g, &s, &all);
		gw_kill(g, &s);
		want_ends(&all, KILLED);
	}
	(void)gw_reclaim(g);
	gw_create(g, &next, GW_BASE); // the only slot is free again
	ck_assert_int_eq(gw_health(g, &next), 204);
	gw_gone(g, &s);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(watch_has_no_end_when_its_sandbox_is_gone)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct stream *w[CODECS];
	json_t *msg;
	gw_create(g, &s, GW_BASE);
	for (int codec = 0; codec < CODECS; codec++) {
		w[codec] = stream_open(
			g->d, "filesystem.Filesystem/WatchDir", (enum codec)codec, s.headers, "{\"path\":\".\"}");
		ck_assert_int_eq(stream_next(w[codec], &msg, 10000), STREAM_MESSAGE);
		json_decref(msg);
	}
	gw_crash(g, &s);
	for (int codec = 0; codec < CODECS; codec++) {
		ck_assert_int_eq(stream_next(w[codec], &msg, 10000), STREAM_LAST);
		want_reason(j_get(msg, "error"), "message", CRASHED);
		json_decref(msg);
		ck_assert_int_eq(stream_next(w[codec], &msg, 10000), STREAM_OVER);
		stream_close(w[codec]);
	}
	gw_finish(g);
}
END_TEST

// An answer that has not begun can still be the right one.
START_TEST(call_without_answer_is_cut)
{
	for (int how = 0; how < HOWS; how++) {
		struct gw *g = gw_start("--pool", "1");
		struct sbx s;
		struct resp r = {0};
		static const char body[] = "{\"command\":\"echo up >f; sleep 1000\",\"timeout\":900}";
		gw_create(g, &s, GW_BASE);
		struct client *c = client_connect(g->d);
		client_request(c, "POST", "/exec", s.a_headers, body, sizeof body - 1);
		free(gw_sh(g, &s, "until test -s f; do sleep 0.01; done"));
		end_it(g, &s, (enum how)how);
		client_response(c, &r);
		ck_assert_msg(r.status == 502, "%d %s", r.status, buf_cstr(&r.body));
		ck_assert_ptr_nonnull(strstr(j_str(resp_json(&r), "message"), "was not found"));
		client_close(c);
		resp_release(&r);
		gw_finish(g);
	}
}
END_TEST

static void begin_get(const struct gw *g, struct client **c, const char *target, const char *headers)
{
	struct buf body = {0};
	*c = client_connect_rcvbuf(g->d, 4096);
	client_request(*c, "GET", target, headers, NULL, 0);
	ck_assert_int_eq(client_event(*c, &body, h_now_ms() + h_scaled(10000)), HTTP_HEAD);
	ck_assert_int_eq(http_head((*c)->http)->status, 200);
	buf_release(&body);
}

START_TEST(plain_body_looks_complete_when_its_sandbox_is_gone)
{
	struct gw *g = gw_start("--pool", "1");
	for (int how = 0; how < HOWS; how++) {
		struct sbx s;
		struct stream *run;
		struct client *c[4];
		char headers[256];
		gw_create(g, &s, GW_BASE);
		int port = gw_serve(g, &s, &run);
		free(gw_sh(g, &s, "dd if=/dev/zero of=big bs=1M count=64 2>/dev/null"));
		(void)snprintf(headers, sizeof headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d\r\n", s.id, port);
		begin_get(g, &c[0], "/part", headers);
		begin_get(g, &c[1], "/chunks", headers);
		begin_get(g, &c[2], "/flood", headers);
		begin_get(g, &c[3], "/files?path=big", s.headers);
		end_it(g, &s, (enum how)how);
		for (int i = 0; i < 4; i++) {
			struct buf body = {0};
			enum http_event ev;
			while ((ev = client_event(c[i], &body, h_now_ms() + h_scaled(10000))) == HTTP_BODY)
				buf_consume(&body, buf_len(&body));
			ck_assert_msg(ev == HTTP_ERROR && c[i]->eof, "body %d: event %d", i, ev);
			buf_release(&body);
			client_close(c[i]);
		}
		stream_close(run);
		if (how == PAUSED)
			gw_kill(g, &s);
	}
	gw_finish(g);
}
END_TEST

// Cut in the middle, an upload is answered or cut, never taken for whole; and a server that ends by itself is no lost sandbox.
START_TEST(upload_is_taken_for_whole)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct resp r = {0};
	char text[1024];
	gw_create(g, &s, GW_BASE);
	struct client *c = client_connect(g->d);
	(void)snprintf(text, sizeof text,
		"POST /files?path=cut HTTP/1.1\r\nHost: x\r\n%sContent-Type: "
		"application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
		"5\r\nbegin\r\n",
		s.headers);
	client_send_str(c, text);
	gw_crash(g, &s);
	if (client_try_response(c, &r))
		ck_assert_int_eq(r.status, 502);
	client_close(c);
	// One whose client hangs up leaves nothing under its name.
	gw_create(g, &s, GW_BASE);
	c = client_connect(g->d);
	(void)snprintf(text, sizeof text,
		"POST /files?path=cut HTTP/1.1\r\nHost: x\r\n%sContent-Type: "
		"application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
		"5\r\nbegin\r\n",
		s.headers);
	client_send_str(c, text);
	client_close(c);
	char *list = gw_sh(g, &s, "for i in 1 2 3 4 5 6 7 8 9; do ls -A | grep -q . || break; sleep 0.1; done; ls -A");
	ck_assert_str_eq(list, "");
	free(list);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(gateway_that_stops_leaves_streams_open)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct streams all;
	gw_create(g, &s, GW_BASE);
	open_all(g, &s, &all);
	d_signal(g->d, SIGTERM);
	for (int i = 0; i < STREAMS; i++) {
		json_t *msg = NULL;
		struct sse_event e = {0};
		enum stream_kind kind = STREAM_CUT;
		while (all.rpc[i] && (kind = stream_next(all.rpc[i], &msg, 10000)) == STREAM_MESSAGE)
			json_decref(msg);
		ck_assert_int_ne(kind, STREAM_TIMEOUT);
		if (kind == STREAM_LAST)
			json_decref(msg);
		enum sse_kind sse = SSE_END;
		while (all.sse[i] && ((sse = sse_next(all.sse[i], &e, 10000)) == SSE_DATA || sse == SSE_KEEPALIVE))
			;
		ck_assert_int_ne(sse, SSE_TIMEOUT);
		sse_event_release(&e);
		stream_close(all.rpc[i]);
		sse_close(all.sse[i]);
	}
	ck_assert_int_eq(d_wait(g->d, 20000), 0);
	d_finish(g->d);
	free(g);
}
END_TEST

Suite *gateway_ends_suite(void)
{
	Suite *s = suite_create("gateway_ends");
	TCase *tc = h_tcase(s, "ends", 60);
	tcase_add_loop_test(tc, stream_has_no_end_when_its_sandbox_is_gone, 0, HOWS);
	tcase_add_test(tc, watch_has_no_end_when_its_sandbox_is_gone);
	tcase_add_test(tc, call_without_answer_is_cut);
	tcase_add_test(tc, plain_body_looks_complete_when_its_sandbox_is_gone);
	tcase_add_test(tc, upload_is_taken_for_whole);
	tcase_add_test(tc, gateway_that_stops_leaves_streams_open);
	return s;
}
