// SPDX-License-Identifier: Apache-2.0
// /pty/*: what a program finds in its terminal, what its readers get, what is refused.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include "proto/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// A terminal with its stream open, and what was read of it but not waited for.
struct term {
	const struct testd *d;
	int64_t id, pid;
	struct sse *s;
	struct buf seen;
};

static struct sse *open_stream(const struct testd *d, int64_t id)
{
	char target[64];
	(void)snprintf(target, sizeof target, "/pty/stream?terminal_id=%lld", (long long)id);
	return sse_open(d, target, NULL);
}

static void term_open_body(struct term *t, const struct testd *d, const char *body)
{
	struct resp r = {0};
	req(d, "POST", "/pty/create", body, &r);
	ck_assert_msg(r.status == 200, "%s: %d %s", body, r.status, buf_cstr(&r.body));
	json_t *o = resp_json(&r);
	*t = (struct term){.d = d, .id = j_int(o, "terminal_id"), .pid = j_int(o, "pid")};
	ck_assert_int_ge(t->id, 1);
	ck_assert_uint_eq(json_object_size(o), 2);
	resp_release(&r);
	t->s = open_stream(d, t->id);
	ck_assert_int_eq(sse_pid(t->s), t->pid);
}

// /bin/sh -c SCRIPT, with EXTRA keys (", \"rows\": 3" or "").
static void term_open_with(struct term *t, const struct testd *d, const char *script, const char *extra)
{
	struct buf body = {0};
	json_t *text = json_string(script);
	char *quoted = j_text(text);
	buf_printf(&body, "{\"argv\":[\"/bin/sh\",\"-c\",%s]%s}", quoted, extra);
	term_open_body(t, d, buf_cstr(&body));
	free(quoted);
	json_decref(text);
	buf_release(&body);
}

static void term_open(struct term *t, const struct testd *d, const char *script)
{
	term_open_with(t, d, script, "");
}

static void post_ok(const struct testd *d, const char *target, const char *body)
{
	struct resp r = {0};
	req(d, "POST", target, body, &r);
	ck_assert_msg(r.status == 200, "%s %.200s: %d %s", target, body, r.status, buf_cstr(&r.body));
	resp_release(&r);
}

static void term_put(const struct term *t, const void *p, size_t n)
{
	struct buf body = {0};
	buf_printf(&body, "{\"terminal_id\":%lld,\"encoding\":\"base64\",\"data\":\"", (long long)t->id);
	text_b64_encode(&body, p, n);
	buf_str(&body, "\"}");
	post_ok(t->d, "/pty/input", buf_cstr(&body));
	buf_release(&body);
}

static void term_type(const struct term *t, const char *text)
{
	term_put(t, text, strlen(text));
}

static void term_resize(const struct term *t, int rows, int cols)
{
	char body[96];
	(void)snprintf(
		body, sizeof body, "{\"terminal_id\":%lld,\"rows\":%d,\"cols\":%d}", (long long)t->id, rows, cols);
	post_ok(t->d, "/pty/resize", body);
}

// Reads until TEXT has come behind what was waited for before.
static void term_until(struct term *t, const char *text)
{
	struct sse_event e = {0};
	const unsigned char *at;
	while (!(at = memmem(buf_data(&t->seen), buf_len(&t->seen), text, strlen(text)))) {
		enum sse_kind kind = sse_next(t->s, &e, 8000);
		if (kind != SSE_DATA)
			ck_abort_msg(
				"%s before \"%s\" came; so far: %s", sse_kind_name(kind), text, buf_cstr(&t->seen));
		buf_append(&t->seen, buf_data(&e.data), buf_len(&e.data));
	}
	buf_consume(&t->seen, (size_t)(at - buf_data(&t->seen)) + strlen(text));
	sse_event_release(&e);
}

static int64_t term_foreground(const struct term *t)
{
	char target[64];
	struct resp r = {0};
	(void)snprintf(target, sizeof target, "/pty/foreground?terminal_id=%lld", (long long)t->id);
	req(t->d, "GET", target, NULL, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert(!j_bool(resp_json(&r), "input_waiting"));
	int64_t group = j_int(resp_json(&r), "process_group_id");
	resp_release(&r);
	return group;
}

static void term_close(struct term *t)
{
	buf_release(&t->seen);
	sse_close(t->s);
	t->s = NULL;
}

// Collects the rest of the stream, of which what was not waited for goes to GOT (zeroed by the caller; may be NULL), to its end.
static void term_end_with(struct term *t, int64_t code, const char *sig, struct buf *got)
{
	struct sse_out o = {0};
	sse_collect(t->s, &o, 15000);
	ck_assert_int_eq(o.end.kind, SSE_EXIT);
	ck_assert_int_eq(o.end.code, code);
	// The three keys are always there.
	ck_assert_str_eq(j_str(o.end.obj, "signal"), sig);
	(void)j_bool(o.end.obj, "truncated");
	ck_assert_uint_eq(json_object_size(o.end.obj), 3);
	if (got) {
		buf_append(got, buf_data(&t->seen), buf_len(&t->seen));
		buf_append(got, buf_data(&o.ch[FRAME_PTY]), buf_len(&o.ch[FRAME_PTY]));
	}
	sse_out_release(&o);
	term_close(t);
}

static void term_end(struct term *t, int64_t code, struct buf *got)
{
	term_end_with(t, code, "", got);
}

static void expect_error(
	const struct testd *d, const char *target, const char *body, int status, const char *code, const char *message)
{
	struct resp r = {0};
	req(d, body ? "POST" : "GET", target, body, &r);
	ck_assert_msg(r.status == status, "%s %.200s: %d %s, want %d", target, body ? body : "", r.status,
		buf_cstr(&r.body), status);
	json_t *o = assert_error(&r, status, code);
	if (message)
		ck_assert_str_eq(j_str(o, "error"), message);
	resp_release(&r);
}

// --- what clients see ---

// The recorded session, as it should have been.
START_TEST(terminal_session_has_another_shape)
{
	struct testd *d = d_start();
	struct term t, again = {0};
	struct buf got = {0};
	char body[64];
	term_open_with(&t, d, "stty size; read x; echo got $x; stty size; exit 7",
		",\"rows\":30,\"cols\":100,\"env\":{\"TERM\":\"xterm\"},\"workdir\":\"\"");
	ck_assert_int_eq(t.id, 1);
	term_until(&t, "30 100\r\n");
	ck_assert_int_eq(term_foreground(&t), t.pid);
	term_resize(&t, 40, 120);
	(void)snprintf(body, sizeof body, "{\"terminal_id\":%lld,\"data\":\"hey\\n\"}", (long long)t.id);
	post_ok(d, "/pty/input", body);
	term_end(&t, 7, &got);
	assert_text(&got, "hey\r\ngot hey\r\n40 120\r\n");
	// Again, from what is kept.
	again = (struct term){.d = d, .id = t.id, .pid = t.pid};
	again.s = open_stream(d, t.id);
	buf_reset(&got);
	term_end(&again, 7, &got);
	assert_text(&got, "30 100\r\nhey\r\ngot hey\r\n40 120\r\n");
	(void)snprintf(body, sizeof body, "{\"terminal_id\":%lld,\"grace_ms\":500}", (long long)t.id);
	post_ok(d, "/pty/destroy", body);
	expect_error(d, "/pty/destroy", body, 404, "not_found", "terminal not found");
	buf_release(&got);
	d_finish(d);
}
END_TEST

START_TEST(attach_to_a_terminal_is_not_tagged)
{
	struct testd *d = d_start();
	struct term t;
	struct sse_out o = {0};
	struct sse_event e = {0};
	struct resp r = {0};
	term_open(&t, d, "echo one; read x; exit 3");
	term_until(&t, "one\r\n");
	struct sse *s = sse_attach(d, t.pid);
	ck_assert_int_eq(sse_pid(s), t.pid);
	sse_expect(s, &e, SSE_DATA, 5000);
	ck_assert(!e.bare && e.channel == FRAME_PTY);
	assert_text(&e.data, "one\r\n");
	sse_event_release(&e);
	req(d, "GET", "/exec/processes", NULL, &r);
	json_t *p = json_array_get(j_get(resp_json(&r), "processes"), 0);
	ck_assert_str_eq(j_str(p, "kind"), "terminal");
	ck_assert_str_eq(j_str(p, "config"), "/bin/sh -c echo one; read x; exit 3");
	ck_assert_int_eq(j_int(j_get(p, "channel_bytes"), "pty"), 5);
	term_type(&t, "x\n");
	sse_collect(s, &o, 5000);
	ck_assert(o.done && o.end.code == 3);
	sse_out_release(&o);
	sse_close(s);
	term_end(&t, 3, NULL);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B20: what belongs to pipes.
START_TEST(terminal_takes_stdin_of_commands)
{
	struct testd *d = d_start();
	struct term t;
	char body[64];
	term_open(&t, d, "read x; echo \"<$x>\"");
	(void)snprintf(body, sizeof body, "{\"pid\":%lld,\"data\":\"eAo=\"}", (long long)t.pid);
	expect_error(d, "/exec/stdin", body, 409, "failed_precondition", NULL);
	expect_error(d, "/exec/stdin/close", body, 409, "failed_precondition", NULL);
	term_type(&t, "y\n");
	term_until(&t, "<y>\r\n");
	term_end(&t, 0, NULL);
	d_finish(d);
}
END_TEST

START_TEST(late_reader_is_not_told_of_lost_output)
{
	struct testd *d = d_start();
	struct term t, late;
	struct sse_out o = {0};
	term_open(&t, d, "stty -opost; seq 1 60000; echo end; read x");
	term_until(&t, "60000\nend\n");
	late = (struct term){.d = d, .id = t.id, .pid = t.pid};
	late.s = open_stream(d, t.id);
	term_type(&t, "x\n");
	term_end(&t, 0, NULL);
	sse_collect(late.s, &o, 5000);
	ck_assert(o.end.truncated && o.end.code == 0);
	struct buf *ch = &o.ch[FRAME_PTY];
	ck_assert_uint_ge(buf_len(ch), 60000);
	static const char tail[] = "\n59999\n60000\nend\n";
	ck_assert_ptr_nonnull(memmem(buf_data(ch), buf_len(ch), tail, sizeof tail - 1));
	sse_out_release(&o);
	term_close(&late);
	d_finish(d);
}
END_TEST

START_TEST(readers_take_output_from_each_other)
{
	struct testd *d = d_start();
	struct term t, other[3];
	struct buf want = {0};
	char line[16];
	term_open(&t, d, "stty -opost -echo; echo go; read x; seq 1 30000; exit 2");
	term_until(&t, "go\n");
	for (int i = 0; i < 3; i++) {
		other[i] = (struct term){.d = d, .id = t.id, .pid = t.pid};
		other[i].s = open_stream(d, t.id);
	}
	term_type(&t, "x\n");
	for (int i = 1; i <= 30000; i++)
		buf_append(&want, line, (size_t)snprintf(line, sizeof line, "%d\n", i));
	for (int i = -1; i < 3; i++) {
		struct buf got = {0};
		term_end(i < 0 ? &t : &other[i], 2, &got);
		size_t skip = i < 0 ? 0 : strlen("go\n");
		buf_consume(&got, skip);
		assert_bytes(&got, buf_data(&want), buf_len(&want));
		buf_release(&got);
	}
	buf_release(&want);
	d_finish(d);
}
END_TEST

// --- bytes ---

// B03
START_TEST(terminal_output_is_decoded)
{
	struct testd *d = d_start();
	struct term t;
	struct buf got = {0}, want = {0};
	term_open(&t, d, "stty -opost; printf 'a\\342\\202'; sleep .4; printf '\\254b\\000\\377\\376\\200'");
	term_end(&t, 0, &got);
	static const char odd[] = "a\342\202\254b\0\377\376\200";
	assert_bytes(&got, odd, sizeof odd - 1);
	buf_reset(&got);
	term_open(&t, d, "yes \342\202\254 | head -n 100000 | tr -d '\\n'");
	term_end(&t, 0, &got);
	h_repeat(&want, "\342\202\254", 100000);
	assert_bytes(&got, buf_data(&want), buf_len(&want));
	buf_release(&got);
	buf_release(&want);
	d_finish(d);
}
END_TEST

// B39, B03: every byte, more than any buffer of the kernel holds.
START_TEST(paste_loses_bytes)
{
	struct testd *d = d_start();
	struct term t;
	struct buf got = {0};
	unsigned char *paste = malloc(100000);
	ck_assert_ptr_nonnull(paste);
	for (int i = 0; i < 100000; i++)
		paste[i] = (unsigned char)(i % 256 ^ i / 256 % 256);
	term_open(&t, d, "stty raw -echo; printf ready; head -c 100000; exit 6");
	term_until(&t, "ready");
	term_put(&t, paste, 100000);
	term_end(&t, 6, &got);
	assert_bytes(&got, paste, 100000);
	buf_reset(&got);
	// To one who is slow.
	term_open(&t, d,
		"stty raw -echo; printf ready; for i in 1 2 3 4 5; do dd bs=1 count=900 2>/dev/null; sleep .05; done; "
		"head -c 95500");
	term_until(&t, "ready");
	for (int i = 0; i < 10; i++)
		term_put(&t, paste + i * 10000, 10000);
	term_end(&t, 0, &got);
	assert_bytes(&got, paste, 100000);
	buf_release(&got);
	free(paste);
	d_finish(d);
}
END_TEST

// Typed text may hold any character, NUL too.
START_TEST(text_is_typed_otherwise)
{
	struct testd *d = d_start();
	struct term t;
	char body[128];
	term_open(&t, d, "stty raw -echo; printf ready; head -c 6 | od -An -tx1");
	term_until(&t, "ready");
	(void)snprintf(body, sizeof body, "{\"terminal_id\":%lld,\"data\":\"\"}", (long long)t.id);
	post_ok(d, "/pty/input", body);
	(void)snprintf(
		body, sizeof body, "{\"terminal_id\":%lld,\"data\":\"\\u0000\\u001bA\\u20ac\"}", (long long)t.id);
	post_ok(d, "/pty/input", body);
	term_until(&t, " 00 1b 41 e2 82 ac");
	term_end(&t, 0, NULL);
	d_finish(d);
}
END_TEST

START_TEST(input_without_reader_blocks_or_grows)
{
	struct testd *d = d_start();
	struct term t;
	struct resp r = {0};
	term_open(&t, d, "stty raw -echo; printf ready; exec sleep 100");
	term_until(&t, "ready");
	struct buf piece = {0}, body = {0};
	h_repeat(&piece, "x", 100000);
	buf_printf(&body, "{\"terminal_id\":%lld,\"data\":\"%s\"}", (long long)t.id, buf_cstr(&piece));
	int taken = 0;
	do {
		req(d, "POST", "/pty/input", buf_cstr(&body), &r);
		taken += r.status == 200;
	} while (r.status == 200 && taken < 30);
	// 1 MiB, and what the kernel holds.
	ck_assert_int_eq(taken, 10);
	ck_assert(j_bool(assert_error(&r, 429, "resource_exhausted"), "retryable"));
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	char kill[64];
	(void)snprintf(kill, sizeof kill, "{\"terminal_id\":%lld,\"signal\":\"KILL\"}", (long long)t.id);
	post_ok(d, "/pty/signal", kill);
	term_end_with(&t, -1, "SIGKILL", NULL);
	resp_release(&r);
	buf_release(&piece);
	buf_release(&body);
	d_finish(d);
}
END_TEST

// B35
START_TEST(terminal_output_is_taken_for_a_frame)
{
	static const struct {
		const char *script, *want;
	} forged[] = {
		{"printf 'x\\revent: exit\\rdata: 0'; exit 9", "x\revent: exit\rdata: 0"},
		{"printf '\\n\\ndata: {\"exit\":0}\\n\\n'; exit 9", "\n\ndata: {\"exit\":0}\n\n"},
		{"printf '{\"exit\":0}'; exit 9", "{\"exit\":0}"},
		{"printf '\\002\\001\\001\\001\\002{}'; exit 9", "\002\001\001\001\002{}"},
	};
	struct testd *d = d_start();
	for (int i = 0; i < COUNT(forged); i++) {
		struct term t;
		struct buf got = {0};
		char script[160];
		(void)snprintf(script, sizeof script, "stty -opost; %s", forged[i].script);
		term_open(&t, d, script);
		term_end(&t, 9, &got);
		assert_text(&got, forged[i].want);
		buf_release(&got);
	}
	d_finish(d);
}
END_TEST

// --- the terminal inside ---

// B39
START_TEST(size_or_winch_is_missing)
{
	struct testd *d = d_start();
	struct term t;
	term_open(&t, d, "trap 'echo W $(stty size)' WINCH; stty size; while :; do sleep .05; done");
	term_until(&t, "24 80\r\n");
	term_resize(&t, 41, 117);
	term_until(&t, "W 41 117\r\n");
	term_resize(&t, 65535, 65535);
	term_until(&t, "W 65535 65535\r\n");
	term_type(&t, "\003");
	term_end_with(&t, -1, "SIGINT", NULL);
	d_finish(d);
}
END_TEST

// B39
START_TEST(terminal_is_not_the_controlling_one)
{
	struct testd *d = d_start();
	struct term t;
	term_open(&t, d,
		"tty; test $(ps -o sid= -p $$) = $$ && echo leader; echo ok >/dev/tty; cut -d' ' -f7 /proc/$$/stat");
	term_until(&t, "/dev/pts/");
	term_until(&t, "leader\r\nok\r\n");
	term_end(&t, 0, NULL);
	term_open(&t, d, "echo up; exec sleep 100");
	term_until(&t, "up\r\n");
	term_type(&t, "\003");
	term_end_with(&t, -1, "SIGINT", NULL);
	d_finish(d);
}
END_TEST

// B39: bash is taken from PATH; jobs are stopped, listed and brought back; signals go to the one in front alone.
START_TEST(job_control_does_not_work)
{
	struct testd *d = d_start();
	struct term t;
	char body[96];
	term_open_body(&t, d, "{\"argv\":[\"bash\",\"--norc\",\"-i\"],\"env\":{\"PS1\":\"P> \"}}");
	term_until(&t, "P> ");
	term_type(&t, "sh -c 'echo in''side; exec sleep 1000'\n");
	term_until(&t, "inside\r\n");
	int64_t job = term_foreground(&t);
	ck_assert_int_ne(job, t.pid);
	ck_assert_int_gt(job, 1);
	(void)snprintf(body, sizeof body, "{\"terminal_id\":%lld,\"signal\":\"SIGTSTP\"}", (long long)t.id);
	struct resp r = {0};
	req(d, "POST", "/pty/signal", body, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_eq(j_int(resp_json(&r), "process_group_id"), job);
	ck_assert_uint_eq(json_object_size(resp_json(&r)), 1);
	term_until(&t, "Stopped");
	term_until(&t, "P> ");
	ck_assert_int_eq(term_foreground(&t), t.pid);
	term_type(&t, "fg\n");
	while (term_foreground(&t) != job)
		h_tick();
	(void)snprintf(body, sizeof body, "{\"terminal_id\":%lld,\"signal\":\"INT\"}", (long long)t.id);
	post_ok(d, "/pty/signal", body);
	term_until(&t, "P> ");
	term_type(&t, "exit 5\n");
	term_end(&t, 5, NULL);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B41
START_TEST(environment_of_a_terminal_differs)
{
	struct testd *d = d_start("--pass-env", "PASSED");
	struct term t;
	struct buf got = {0};
	term_open(&t, d, "echo $TERM; echo $HOME $USER ${PASSED-unset}; pwd");
	term_end(&t, 0, &got);
	ck_assert_ptr_nonnull(strstr(buf_cstr(&got), "xterm-256color\r\n/root root unset\r\n"));
	ck_assert_ptr_nonnull(strstr(buf_cstr(&got), d->workspace));
	buf_reset(&got);
	term_open_with(&t, d, "stty -opost; printf '%s|%s|%s|%s|' \"$TERM\" \"$A\" \"$HOME\" \"$N\"; pwd",
		",\"env\":{\"TERM\":\"vt100\",\"A\":\"x=\\n\\u20ac\",\"HOME\":\"\",\"N\":5},\"workdir\":\"/\"");
	term_end(&t, 0, &got);
	assert_text(&got, "vt100|x=\n\342\202\254|||/\n");
	struct buf body = {0};
	buf_str(&body, "{\"argv\":[\"true\"],\"env\":{\"A\":\"");
	h_repeat(&body, "x", 200000);
	buf_str(&body, "\"}}");
	expect_error(d, "/pty/create", buf_cstr(&body), 400, "invalid_argument", NULL);
	buf_reset(&body);
	buf_str(&body, "{\"argv\":[\"echo\",\"");
	h_repeat(&body, "x", 200000);
	buf_str(&body, "\"]}");
	expect_error(d, "/pty/create", buf_cstr(&body), 400, "invalid_argument", NULL);
	term_open_with(&t, d, "exit 1", ",\"env\":null,\"workdir\":null,\"rows\":null,\"cols\":null");
	term_end(&t, 1, NULL);
	buf_release(&body);
	buf_release(&got);
	d_finish(d);
}
END_TEST

START_TEST(terminal_of_another_user_is_not_his)
{
	if (geteuid() != 0)
		return;
	struct testd *d = d_start("--user", "nobody");
	struct term t;
	struct buf got = {0};
	term_open_with(
		&t, d, "id -un; stat -c '%U %a' $(tty); echo ok >/dev/tty; echo by name >$(tty)", ",\"workdir\":\"/\"");
	term_end(&t, 0, &got);
	assert_text(&got, "nobody\r\nnobody 620\r\nok\r\nby name\r\n");
	buf_release(&got);
	d_finish(d);
}
END_TEST

// login does it: whoever has the terminal open loses it, and opens it anew.
START_TEST(terminal_is_lost_after_a_hangup)
{
	if (geteuid() != 0 || access("/usr/bin/perl", X_OK) != 0)
		return;
	struct testd *d = d_start();
	struct term t;
	struct buf got = {0};
	term_open(&t, d,
		"exec perl -e '$SIG{HUP}=\"IGNORE\"; $n=readlink(\"/proc/self/fd/0\"); "
		"syscall($ARGV[0])==0 or exit 3; for(0..2){open(T,\"+<\",$n) or exit 4; "
		"syswrite(T,\"again\\n\"); close T; select(undef,undef,undef,.1)} exit 5' $(case $(uname -m) in "
		"x86_64) echo "
		"153;; *) echo 58;; esac)");
	term_end(&t, 5, &got);
	assert_text(&got, "again\r\nagain\r\nagain\r\n");
	buf_release(&got);
	d_finish(d);
}
END_TEST

Suite *pty_suite(void)
{
	Suite *s = suite_create("pty");
	TCase *tc = h_tcase(s, "clients", 40);
	tcase_add_test(tc, terminal_session_has_another_shape);
	tcase_add_test(tc, attach_to_a_terminal_is_not_tagged);
	tcase_add_test(tc, terminal_takes_stdin_of_commands);
	tcase_add_test(tc, late_reader_is_not_told_of_lost_output);
	tcase_add_test(tc, readers_take_output_from_each_other);
	tc = h_tcase(s, "bytes", 40);
	tcase_add_test(tc, terminal_output_is_decoded);
	tcase_add_test(tc, paste_loses_bytes);
	tcase_add_test(tc, text_is_typed_otherwise);
	tcase_add_test(tc, input_without_reader_blocks_or_grows);
	tcase_add_test(tc, terminal_output_is_taken_for_a_frame);
	tc = h_tcase(s, "inside", 40);
	tcase_add_test(tc, size_or_winch_is_missing);
	tcase_add_test(tc, terminal_is_not_the_controlling_one);
	tcase_add_test(tc, job_control_does_not_work);
	tcase_add_test(tc, environment_of_a_terminal_differs);
	tcase_add_test(tc, terminal_of_another_user_is_not_his);
	tcase_add_test(tc, terminal_is_lost_after_a_hangup);
	return s;
}
