// SPDX-License-Identifier: Apache-2.0
// Start on surface B: exits, signals, bytes, what cannot be started, environment, user, directory; List; SendSignal.
#include "tests/integration/calls.h"
#include "tests/integration/golden.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START "process.Process/Start"

static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// The caller's.
static char *format(const char *fmt, ...)
{
	char *s;
	va_list ap;
	va_start(ap, fmt);
	ck_assert_int_ge(vasprintf(&s, fmt, ap), 0);
	va_end(ap);
	return s;
}

// --- what envd put on the wire ---

// Appends "[02] {}\n" for each envelope of BODY, its pid as <PID>.
static void put_envelopes(struct buf *out, const struct buf *body)
{
	const unsigned char *p = buf_data(body), *end = p + buf_len(body);
	while (p < end) {
		ck_assert_int_ge(end - p, 5);
		size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
		ck_assert_uint_le(n, (size_t)(end - p) - 5);
		const char *text = (const char *)p + 5, *pid = memmem(text, n, "\"pid\":", 6);
		buf_printf(out, "[%02x] ", p[0]);
		if (pid) {
			size_t before = (size_t)(pid + 6 - text), digits = strspn(pid + 6, "0123456789");
			buf_append(out, text, before);
			buf_str(out, "<PID>");
			buf_append(out, text + before + digits, n - before - digits);
		} else {
			buf_append(out, text, n);
		}
		buf_byte(out, '\n');
		p += 5 + n;
	}
}

// The same of a transcript's lines "[02 2] {}".
static void put_golden(struct buf *out, const char *text)
{
	for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : p) {
		const char *payload = strstr(p, "] ");
		if (*p == '[' && payload)
			buf_printf(out, "[%.2s] %.*s\n", p + 1, (int)strcspn(payload + 2, "\n"), payload + 2);
	}
}

static void replay(const struct testd *d, const struct golden *g)
{
	struct buf got = {0}, want = {0};
	struct resp r = {0};
	struct client *c = calls_connect(d, 0);
	const char *json = strstr(g->body, "] ");
	ck_assert_ptr_nonnull(json);
	size_t n = strcspn(json + 2, "\n");
	struct buf out = {0};
	buf_printf(&out,
		"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\n"
		"Connect-Protocol-Version: 1\r\nContent-Length: %zu\r\n\r\n",
		g->target, n + 5);
	buf_append(&out, "\0\0", 2);
	buf_byte(&out, (unsigned char)(n >> 16));
	buf_byte(&out, (unsigned char)(n >> 8));
	buf_byte(&out, (unsigned char)n);
	buf_append(&out, json + 2, n);
	ck_assert(client_send_raw(c, buf_data(&out), buf_len(&out)));
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	golden_assert_head(g, &r);
	put_envelopes(&got, &r.body);
	put_golden(&want, g->answer);
	ck_assert_msg(strcmp(buf_cstr(&got), buf_cstr(&want)) == 0, "%s: got\n%s\nwant\n%s", g->label, buf_cstr(&got),
		buf_cstr(&want));
	buf_release(&out);
	buf_release(&got);
	buf_release(&want);
	resp_release(&r);
	client_close(c);
}

START_TEST(starts_look_as_envd_makes_them)
{
	static const char *const files[] = {"start-exit", "start-signal"};
	struct testd *d = d_start(CALLS_ENVD);
	struct golden g;
	int count = 0;
	for (size_t i = 0; i < 2; i++) {
		golden_open(&g, files[i]);
		while (golden_next(&g)) {
			if (strstr(g.label, "70000 bytes") || strstr(g.body, "/bin/bash"))
				continue; // cut as it comes; not everywhere
			replay(d, &g);
			count++;
		}
		golden_close(&g);
	}
	ck_assert_int_ge(count, 16);
	d_finish(d);
}
END_TEST

// Unary calls whose answer depends on no process.
START_TEST(refusals_look_as_envd_makes_them)
{
	static const struct {
		const char *name;
		int count; // what comes behind was not answered
	} files[] = {{"list", 7}, {"signal", 11}, {"input", 19}};
	struct testd *d = d_start(CALLS_ENVD);
	struct golden g;
	int count = 0;
	for (size_t i = 0; i < 3; i++) {
		golden_open(&g, files[i].name);
		for (int n = 0; n < files[i].count && golden_next(&g); n++) {
			struct resp r = {0};
			struct client *c;
			bool stream = strncmp(g.body, "[0", 2) == 0 || strstr(g.target, "StreamInput");
			if (stream || strstr(g.body, "<PID>") || strstr(g.body, "\"tag\"") || strstr(g.answer, "<PID>"))
				continue;
			c = calls_connect(d, 0);
			call_on(c, g.target + 1, CODEC_JSON, NULL, g.body, &r);
			ck_assert_msg(r.status == g.status, "%s: %d", g.label, r.status);
			golden_assert_head(&g, &r);
			assert_text(&r.body, g.answer);
			count++;
			resp_release(&r);
			client_close(c);
		}
		golden_close(&g);
	}
	ck_assert_int_ge(count, 8);
	d_finish(d);
}
END_TEST

// --- ends ---

// B11, B12
START_TEST(exit_codes)
{
	static const int codes[] = {0, 1, 2, 137, 255};
	struct testd *d = d_start(CALLS_ENVD);
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		struct played o = {0};
		char script[32];
		(void)snprintf(script, sizeof script, "exit %d", codes[i]);
		sh_play(d, (enum codec)_i, NULL, script, &o);
		played_assert_exit(&o, codes[i]);
		ck_assert_uint_eq(o.data, 0);
		played_release(&o);
	}
	d_finish(d);
}
END_TEST

// B13
START_TEST(signal_deaths)
{
	static const struct {
		int sig;
		const char *word;
	} cases[] = {{9, "killed"}, {11, "segmentation fault"}, {15, "terminated"}, {13, "broken pipe"},
		{2, "interrupt"}, {30, "power failure"}, {40, "signal 40"}};
	struct testd *d = d_start(CALLS_ENVD);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct played o = {0};
		char script[64];
		(void)snprintf(script, sizeof script, "ulimit -c 0; kill -%d $$", cases[i].sig);
		sh_play(d, (enum codec)_i, NULL, script, &o);
		played_assert_signal(&o, cases[i].word);
		played_release(&o);
	}
	d_finish(d);
}
END_TEST

// B01, B03, B35
START_TEST(output_is_byte_for_byte)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct played o = {0};
	unsigned char all[256];
	for (int i = 0; i < 256; i++)
		all[i] = (unsigned char)i;
	char *path = format("%s/all", d->workspace);
	FILE *f = fopen(path, "w");
	ck_assert(f && fwrite(all, 1, 256, f) == 256 && fclose(f) == 0);
	char *script = format("cat %s; printf '\\n\\n\\002\\000\\000\\000\\002{}' >&2; exit 9", path);
	sh_play(d, (enum codec)_i, NULL, script, &o);
	played_assert_exit(&o, 9);
	assert_bytes(&o.ch[FRAME_STDOUT], all, 256);
	assert_bytes(&o.ch[FRAME_STDERR], "\n\n\002\0\0\0\002{}", 9);
	played_release(&o);
	sh_play(d, (enum codec)_i, NULL, "head -c 3000000 /dev/zero | tr '\\0' a & head -c 3000000 /dev/zero >&2; wait",
		&o);
	played_assert_exit(&o, 0);
	ck_assert_uint_eq(buf_len(&o.ch[FRAME_STDOUT]), 3000000);
	ck_assert_uint_eq(buf_len(&o.ch[FRAME_STDERR]), 3000000);
	played_release(&o);
	free(script);
	free(path);
	d_finish(d);
}
END_TEST

// --- what cannot be run ---

static void put_file(const struct testd *d, const char *name, const char *text, mode_t mode)
{
	char *path = format("%s/%s", d->workspace, name);
	FILE *f = fopen(path, "w");
	ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0 && chmod(path, mode) == 0);
	free(path);
}

static void play_command(const struct testd *d, enum codec codec, const char *cmd, struct played *o)
{
	char *json = format("{\"process\":{\"cmd\":\"%s\"},\"stdin\":false}", cmd);
	start_and_play(d, codec, NULL, json, o);
	free(json);
}

// B10
START_TEST(a_command_that_cannot_run_ends_at_once)
{
	struct testd *d = d_start(CALLS_ENVD);
	put_file(d, "plain", "x", 0644);
	put_file(d, "bad", "#!/nope/sh\n", 0755);
	put_file(d, "empty", "", 0755);
	static const struct {
		const char *cmd;
		bool here;
		int code;
		const char *said;
	} cases[] = {
		{"no-such-command", false, 127, "No such file"},
		{"/nope/bin", false, 127, "No such file"},
		{"", false, 127, "No such file"},
		{"/", false, 126, "Permission denied"},
		{"plain", true, 126, "Permission denied"},
		{"bad", true, 127, "No such file"},
		{"empty", true, 0, NULL},
	};
	int64_t start = h_now_ms();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct played o = {0};
		char *cmd = cases[i].here ? format("%s/%s", d->workspace, cases[i].cmd) : format("%s", cases[i].cmd);
		play_command(d, (enum codec)_i, cmd, &o);
		ck_assert_int_gt(o.pid, 0);
		played_assert_exit(&o, cases[i].code);
		const char *said = buf_cstr(&o.ch[FRAME_STDERR]);
		ck_assert_msg(cases[i].said ? strstr(said, cases[i].said) != NULL : !*said, "%s: %s", cmd, said);
		played_release(&o);
		free(cmd);
	}
	for (int i = 0; i < 100; i++) {
		struct played o = {0};
		play_command(d, (enum codec)_i, "no-such-command", &o);
		played_assert_exit(&o, 127);
		played_release(&o);
	}
	ck_assert_int_lt(h_now_ms() - start, h_scaled(5000));
	d_finish(d);
}
END_TEST

static void start_fails(const struct testd *d, enum codec codec, const char *headers, const char *json,
	const char *code, const char *message)
{
	struct played o = {0};
	start_and_play(d, codec, headers, json, &o);
	const char *got = played_assert_error(&o, code);
	ck_assert_msg(o.pid == 0 && strstr(got, message), "%s: %s", json, got);
	played_release(&o);
}

// B10, B33, B63
START_TEST(what_cannot_be_started_is_told)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	put_file(d, "plain", "x", 0644);
	start_fails(d, codec, NULL, "{\"process\":{\"cmd\":\"true\",\"cwd\":\"/no/such\"}}", "invalid_argument",
		"cwd '/no/such' does not exist");
	start_fails(d, codec, NULL, "{\"process\":{\"cmd\":\"true\",\"cwd\":\"~root/x\"}}", "invalid_argument",
		"cannot expand user-specific home dir");
	start_fails(d, codec, "Authorization: Basic bm9ib2R5LWhlcmU6\r\n", "{\"process\":{\"cmd\":\"true\"}}",
		"unauthenticated", "invalid username: 'nobody-here'");
	char *json = format("{\"process\":{\"cmd\":\"true\",\"args\":[\"x\"],\"cwd\":\"%s/plain\"}}", d->workspace);
	start_fails(d, codec, NULL, json, "invalid_argument",
		"error starting process 'true x': fork/exec true: not a "
		"directory");
	free(json);
	json = format("{\"process\":{\"cmd\":\"true\",\"cwd\":\"%s/plain\"},\"pty\":{\"size\":{\"cols\":80,"
		      "\"rows\":24}}}",
		d->workspace);
	start_fails(d, codec, NULL, json, "invalid_argument",
		"with '80' cols and '24' rows: fork/exec true: not a "
		"directory");
	free(json);
	struct buf big = {0};
	buf_str(&big, "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"true ");
	h_repeat(&big, "x", 200000);
	buf_str(&big, "\"]}}");
	start_fails(d, codec, NULL, buf_cstr(&big), "invalid_argument", "argument list too long");
	buf_reset(&big);
	buf_str(&big, "{\"process\":{\"cmd\":\"true\",\"envs\":{\"A\":\"");
	h_repeat(&big, "x", 200000);
	buf_str(&big, "\"}}}");
	start_fails(d, codec, NULL, buf_cstr(&big), "invalid_argument", "argument list too long");
	buf_release(&big);
	start_fails(d, codec, "Connect-Timeout-Ms: x\r\n", "{\"process\":{\"cmd\":\"true\"}}", "invalid_argument",
		"parse timeout");
	start_fails(d, codec, "Connect-Timeout-Ms: 0\r\n", "{\"process\":{\"cmd\":\"true\"}}", "deadline_exceeded",
		"context deadline exceeded");
	d_finish(d);
}
END_TEST

START_TEST(too_many_processes_is_resource_exhausted)
{
	struct testd *d = d_start(CALLS_ENVD, "--max-procs", "1");
	struct stream *s = stream_open(d, START, CODEC_JSON, NULL, "{\"process\":{\"cmd\":\"cat\"}}");
	(void)stream_pid(s);
	start_fails(d, CODEC_JSON, NULL, "{\"process\":{\"cmd\":\"true\"}}", "resource_exhausted", "too many");
	stream_close(s);
	d_finish(d);
}
END_TEST

// B23
START_TEST(starts_leave_no_descriptors)
{
	static const struct {
		const char *headers, *json;
	} cases[] = {
		{NULL, "{\"process\":{\"cmd\":\"true\"}}"},
		{NULL, "{\"process\":{\"cmd\":\"true\"},\"pty\":{}}"},
		{NULL, "{\"process\":{\"cmd\":\"no-such-command\"}}"},
		{NULL, "{\"process\":{\"cmd\":\"true\",\"cwd\":\"/no/such\"}}"},
		{NULL, "{\"process\":{\"cmd\":\"true\",\"cwd\":\"/etc/passwd\"},\"pty\":{}}"},
		{"Authorization: Basic bm9ib2R5LWhlcmU6\r\n", "{\"process\":{\"cmd\":\"true\"}}"},
	};
	struct testd *d = d_start(CALLS_ENVD);
	int before = 0;
	for (int round = 0; round < 40; round++) {
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
			struct played o = {0};
			start_and_play(d, (enum codec)_i, cases[i].headers, cases[i].json, &o);
			played_release(&o);
		}
		if (round == 0)
			before = d_fd_count(d);
	}
	int64_t end = h_now_ms() + h_scaled(3000);
	while (d_fd_count(d) > before && h_now_ms() < end)
		h_tick();
	ck_assert_int_le(d_fd_count(d), before);
	ck_assert_int_eq(d_zombies(d), 0);
	d_finish(d);
}
END_TEST

START_TEST(without_descriptors_a_start_is_refused_and_later_works)
{
	struct testd *d = d_start_opts(&(struct d_opts){.args = (const char *const[]){CALLS_ENVD, NULL}, .nofile = 64});
	struct stream *s[32] = {NULL};
	size_t n = 0;
	json_t *msg = NULL;
	do {
		json_decref(msg);
		ck_assert_uint_lt(n, 32);
		s[n] = stream_open(d, START, CODEC_JSON, NULL, "{\"process\":{\"cmd\":\"cat\"}}");
	} while (stream_next(s[n++], &msg, 5000) == STREAM_MESSAGE);
	ck_assert_str_eq(j_str(j_get(msg, "error"), "code"), "resource_exhausted");
	json_decref(msg);
	while (n > 0)
		stream_close(s[--n]);
	json_t *l = call(d, "process.Process/List", CODEC_JSON, NULL, "{}"), *one;
	size_t i;
	json_array_foreach(j_get(l, "processes"), i, one)
	{
		char *kill = format("{\"process\":{\"pid\":%lld},\"signal\":9}", (long long)j_int(one, "pid"));
		json_decref(call(d, "process.Process/SendSignal", CODEC_JSON, NULL, kill));
		free(kill);
	}
	json_decref(l);
	ck_assert(wait_until((bool (*)(void *))d_no_commands, d, 3000));
	struct played o = {0};
	sh_play(d, CODEC_JSON, NULL, "exit 3", &o);
	played_assert_exit(&o, 3);
	played_release(&o);
	d_finish(d);
}
END_TEST

// --- environment, user, directory ---

static void assert_prints(
	const struct testd *d, enum codec codec, const char *headers, const char *json, const char *want)
{
	struct played o = {0};
	start_and_play(d, codec, headers, json, &o);
	played_assert_exit(&o, 0);
	ck_assert_msg(strcmp(buf_cstr(&o.ch[FRAME_STDOUT]), want) == 0, "%s: %s, want %s", json,
		buf_cstr(&o.ch[FRAME_STDOUT]), want);
	played_release(&o);
}

static void init(const struct testd *d, const char *json)
{
	struct resp r = {0};
	struct client *c = calls_connect(d, 0);
	client_request(c, "POST", "/init", NULL, json, strlen(json));
	client_response(c, &r);
	ck_assert_msg(r.status == 204, "%d %s", r.status, buf_cstr(&r.body));
	resp_release(&r);
	client_close(c);
}

// B41
START_TEST(the_requests_environment_wins_over_inits_over_the_defaults)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	init(d, "{\"envVars\":{\"HOME\":\"/from/init\",\"A\":\"init=\\n\\u00e9\",\"B\":\"init\",\"E\":\"\"}}");
	assert_prints(d, codec, NULL,
		"{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"echo $HOME $USER $LOGNAME $A $B; env | grep -c "
		"^E=$; pwd\"],\"envs\":{\"B\":\"request\"},\"cwd\":\"/\"}}",
		"/from/init root root init= \xc3\xa9 request\n1\n/\n");
	struct played o = {0};
	start_and_play(d, codec, NULL,
		"{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"echo $HOME $B\"],\"envs\":{\"B\":\"request\"}},"
		"\"pty\":{}}",
		&o);
	ck_assert_str_eq(buf_cstr(&o.ch[FRAME_PTY]), "/from/init request\r\n");
	played_release(&o);
	d_finish(d);
}
END_TEST

START_TEST(nothing_of_the_daemons_environment_leaks)
{
	struct testd *d = d_start_opts(&(struct d_opts){
		.args = (const char *const[]){CALLS_ENVD, NULL},
		.env = (const char *const[]){"SECRET=x", "TERM=vt100", "PATH=/usr/bin:/bin", NULL},
	});
	assert_prints(d, CODEC_JSON, NULL,
		"{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"env | cut -d= -f1 | sort | tr '\\\\n' ' '; echo "
		"$PATH\"],\"envs\":{\"X=Y\":\"z\"}}}",
		"E2B_SANDBOX HOME LOGNAME PATH PWD USER X /usr/bin:/bin\n");
	// PATH of the request is where its command is looked for.
	struct played o = {0};
	start_and_play(d, CODEC_JSON, NULL,
		"{\"process\":{\"cmd\":\"true\",\"envs\":{\"PATH\":\"/nowhere\"}},\"stdin\":false}", &o);
	played_assert_exit(&o, 127);
	played_release(&o);
	d_finish(d);
}
END_TEST

START_TEST(directories)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	char *want;
#define PWD(cwd) "{\"process\":{\"cmd\":\"pwd\"" cwd "},\"stdin\":false}"
	assert_prints(d, codec, NULL, PWD(""), "/root\n");
	assert_prints(d, codec, NULL, PWD(",\"cwd\":\"~\""), "/root\n");
	assert_prints(d, codec, NULL, PWD(",\"cwd\":\"../tmp\""), "/tmp\n");
	assert_prints(d, codec, NULL, PWD(",\"cwd\":\"/usr/../tmp\""), "/tmp\n");
	char *json = format("{\"defaultWorkdir\":\"%s\"}", d->workspace);
	init(d, json);
	want = format("%s\n", d->workspace);
	assert_prints(d, codec, NULL, PWD(""), want);
	assert_prints(d, codec, NULL, PWD(",\"cwd\":\".\""), "/root\n");
	init(d, "{\"defaultWorkdir\":\"/no/such\"}");
	start_fails(d, codec, NULL, PWD(""), "invalid_argument", "cwd '/no/such' does not exist");
#undef PWD
	free(json);
	free(want);
	d_finish(d);
}
END_TEST

START_TEST(another_user_is_who_runs)
{
	struct testd *d = d_start(CALLS_ENVD);
	static const char ids[] =
		"{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"echo $(id -un) $(id -gn) $(id -Gn) $USER "
		"$(cat /proc/self/oom_score_adj | sed 's/[1-9]...*/ok/') $(nice)\"],\"cwd\":\"/\"},\"stdin\":false}";
	if (geteuid() == 0) {
		assert_prints(d, (enum codec)_i, "Authorization: Basic ZGFlbW9uOnB3\r\n", ids,
			"daemon daemon daemon daemon ok 0\n");
		init(d, "{\"defaultUser\":\"daemon\"}");
		assert_prints(d, (enum codec)_i, NULL, ids, "daemon daemon daemon daemon ok 0\n");
		assert_prints(
			d, (enum codec)_i, "Authorization: basic cm9vdDo=\r\n", ids, "root root root root ok 0\n");
	}
	d_finish(d);
}
END_TEST

Suite *envd_process_suite(void)
{
	Suite *s = suite_create("envd_process");
	TCase *t = h_tcase(s, "start", 40);
	tcase_add_test(t, starts_look_as_envd_makes_them);
	tcase_add_test(t, refusals_look_as_envd_makes_them);
	tcase_add_loop_test(t, exit_codes, 0, CODECS);
	tcase_add_loop_test(t, signal_deaths, 0, CODECS);
	tcase_add_loop_test(t, output_is_byte_for_byte, 0, CODECS);
	tcase_add_loop_test(t, a_command_that_cannot_run_ends_at_once, 0, CODECS);
	tcase_add_loop_test(t, what_cannot_be_started_is_told, 0, CODECS);
	tcase_add_test(t, too_many_processes_is_resource_exhausted);
	tcase_add_loop_test(t, starts_leave_no_descriptors, 0, CODECS);
	tcase_add_test(t, without_descriptors_a_start_is_refused_and_later_works);
	tcase_add_loop_test(t, the_requests_environment_wins_over_inits_over_the_defaults, 0, CODECS);
	tcase_add_test(t, nothing_of_the_daemons_environment_leaks);
	tcase_add_loop_test(t, directories, 0, CODECS);
	tcase_add_loop_test(t, another_user_is_who_runs, 0, CODECS);
	return s;
}
