// SPDX-License-Identifier: Apache-2.0
// What is read: proto3 JSON into messages. What is written is in check_pbjson_out.c.
#include "oom.h"
#include "proto/filesystem.pb-c.h"
#include "proto/json.h"
#include "proto/pbjson_priv.h"
#include "proto/process.pb-c.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const ProtobufCMessageDescriptor *const types[] = {
	&process__start_request__descriptor,
	&process__send_input_request__descriptor,
	&process__send_signal_request__descriptor,
	&filesystem__create_watcher_request__descriptor,
	&filesystem__stat_response__descriptor,
	&filesystem__list_dir_request__descriptor,
	&process__list_request__descriptor,
	&process__start_response__descriptor,
};
enum { START, INPUT, SIGNAL, WATCH, STAT, DIR, LIST, EVENT };

// Read and written again: the canonical form, or what is refused.
static const struct reading {
	int type;
	const char *in;
	const char *out; // NULL = refused
	const char *msg; // behind "unmarshal into *TYPE: "
} readings[] = {
	{START, "{}", "{}", NULL},
	{START, " {\"process\" : {\"cmd\":\"a\"} }\n", "{\"process\":{\"cmd\":\"a\"}}", NULL},
	{START, "{\"process\":{\"cmd\":\"\",\"args\":[],\"envs\":{},\"cwd\":\"\"},\"tag\":\"\",\"stdin\":false}",
		"{\"process\":{\"cwd\":\"\"}, \"tag\":\"\", \"stdin\":false}", NULL},
	{START,
		"{\"stdin\":true,\"tag\":\"t\",\"pty\":{\"size\":{\"cols\":80,\"rows\":\"24\"}},\"process\":{\"cwd\":"
		"\"/x\",\"envs\":"
		"{\"B\":\"2\",\"A\":\"1\"},\"args\":[\"-l\",\"\"],\"cmd\":\"ls\"}}",
		"{\"process\":{\"cmd\":\"ls\", \"args\":[\"-l\", \"\"], \"envs\":{\"A\":\"1\", \"B\":\"2\"}, "
		"\"cwd\":\"/x\"}, "
		"\"pty\":{\"size\":{\"cols\":80, \"rows\":24}}, \"tag\":\"t\", \"stdin\":true}",
		NULL},
	// null is absent, but not as an element
	{START, "{\"process\":null,\"pty\":null,\"tag\":null,\"stdin\":null}", "{}", NULL},
	{START, "{\"process\":{\"args\":null,\"envs\":null,\"cmd\":null,\"cwd\":null}}", "{\"process\":{}}", NULL},
	{START, "{\"pty\":{}}", "{\"pty\":{}}", NULL},
	{START, "{\"process\":{\"cmd\":\"true\",\"args\":[null]}}", NULL,
		"proto: invalid value for string field args: null"},
	{START, "{\"process\":{\"cmd\":\"true\",\"args\":[\"a\",5]}}", NULL,
		"proto: invalid value for string field args: 5"},
	{START, "{\"process\":{\"cmd\":\"true\",\"envs\":{\"A\":null}}}", NULL,
		"proto: invalid value for string field value: null"},
	{START, "{\"process\":{\"envs\":[]}}", NULL, "proto: invalid value for message field envs: ["},
	{START, "{\"process\":{\"args\":{}}}", NULL, "proto: invalid value for string field args: {"},
	{START, "{\"process\":{\"args\":\"x\"}}", NULL, "proto: invalid value for string field args: \"x\""},
	{START, "{\"process\":[]}", NULL, "proto: invalid value for message field process: ["},
	{START, "{\"process\":\"x\"}", NULL, "proto: invalid value for message field process: \"x\""},
	{START, "{\"pty\":5}", NULL, "proto: invalid value for message field pty: 5"},
	{START, "{\"stdin\":\"false\"}", NULL, "proto: invalid value for bool field stdin: \"false\""},
	{START, "{\"stdin\":0}", NULL, "proto: invalid value for bool field stdin: 0"},
	{START, "{\"tag\":true}", NULL, "proto: invalid value for string field tag: true"},
	{START, "{\"process\":{\"cmd\":\"a\\u0000b\"}}", NULL, "proto: string field cmd contains NUL"},
	{START, "{\"process\":{\"envs\":{\"A\":\"\\u0000\"}}}", NULL, "proto: string field value contains NUL"},
	// unknown fields, at any depth
	{START, "{\"x\":null,\"process\":{\"y\":[1,{\"z\":{}}],\"cmd\":\"a\"},\"@type\":\"\\u0000\"}",
		"{\"process\":{\"cmd\":\"a\"}}", NULL},
	// what is no object
	{START, "", NULL, NULL},
	{START, "null", NULL, "proto: syntax error: invalid json"},
	{START, "[]", NULL, "proto: syntax error: invalid json"},
	{START, "\"x\"", NULL, "proto: syntax error: invalid json"},
	{START, "7", NULL, "proto: syntax error: invalid json"},
	{START, "{bad", NULL, "proto: syntax error: invalid json"},
	{START, "{} x", NULL, "proto: syntax error: invalid json"},
	{START, "{\"tag\":\"\xff\"}", NULL, "proto: syntax error: invalid json"},
	{START, "{\"tag\":\"a\",\"tag\":\"b\"}", NULL, "proto: syntax error: invalid json"},
	// integers
	{INPUT, "{\"process\":{\"pid\":\"7\"}}", "{\"process\":{\"pid\":7}}", NULL},
	{INPUT, "{\"process\":{\"pid\":7.0}}", "{\"process\":{\"pid\":7}}", NULL},
	{INPUT, "{\"process\":{\"pid\":1e2}}", "{\"process\":{\"pid\":100}}", NULL},
	{INPUT, "{\"process\":{\"pid\":\"1e2\"}}", "{\"process\":{\"pid\":100}}", NULL},
	{INPUT, "{\"process\":{\"pid\":\"12.50E+1\"}}", "{\"process\":{\"pid\":125}}", NULL},
	{INPUT, "{\"process\":{\"pid\":0}}", "{\"process\":{\"pid\":0}}", NULL},
	{INPUT, "{\"process\":{\"pid\":-0}}", "{\"process\":{\"pid\":0}}", NULL},
	{INPUT, "{\"process\":{\"pid\":4294967295}}", "{\"process\":{\"pid\":4294967295}}", NULL},
	{INPUT, "{\"process\":{\"pid\":4294967296}}", NULL, "proto: invalid value for uint32 field pid: 4294967296"},
	{INPUT, "{\"process\":{\"pid\":1.5}}", NULL, "proto: invalid value for uint32 field pid: 1.5"},
	{INPUT, "{\"process\":{\"pid\":-1}}", NULL, "proto: invalid value for uint32 field pid: -1"},
	{INPUT, "{\"process\":{\"pid\":1e30}}", NULL, "proto: invalid value for uint32 field pid: 1e+30"},
	{INPUT, "{\"process\":{\"pid\":\"\"}}", NULL, "proto: invalid value for uint32 field pid: \"\""},
	{INPUT, "{\"process\":{\"pid\":\"01\"}}", NULL, "proto: invalid value for uint32 field pid: \"01\""},
	{INPUT, "{\"process\":{\"pid\":\"+1\"}}", NULL, "proto: invalid value for uint32 field pid: \"+1\""},
	{INPUT, "{\"process\":{\"pid\":\" 1\"}}", NULL, "proto: invalid value for uint32 field pid: \" 1\""},
	{INPUT, "{\"process\":{\"pid\":\"1.\"}}", NULL, "proto: invalid value for uint32 field pid: \"1.\""},
	{INPUT, "{\"process\":{\"pid\":\"1e\"}}", NULL, "proto: invalid value for uint32 field pid: \"1e\""},
	{INPUT, "{\"process\":{\"pid\":\"0x1\"}}", NULL, "proto: invalid value for uint32 field pid: \"0x1\""},
	{INPUT, "{\"process\":{\"pid\":\"nan\"}}", NULL, "proto: invalid value for uint32 field pid: \"nan\""},
	{INPUT, "{\"process\":{\"pid\":\"1\\u0000\"}}", NULL, "proto: invalid value for uint32 field pid: \"1\""},
	{INPUT, "{\"process\":{\"pid\":\"99999999999999999999\"}}", NULL,
		"proto: invalid value for uint32 field pid: \"99999999999999999999\""},
	{INPUT, "{\"process\":{\"pid\":true}}", NULL, "proto: invalid value for uint32 field pid: true"},
	{DIR, "{\"depth\":-1}", NULL, "proto: invalid value for uint32 field depth: -1"},
	{STAT, "{\"entry\":{\"size\":\"9223372036854775807\"}}", "{\"entry\":{\"size\":\"9223372036854775807\"}}",
		NULL},
	{STAT, "{\"entry\":{\"size\":-9223372036854775808}}", "{\"entry\":{\"size\":\"-9223372036854775808\"}}", NULL},
	{STAT, "{\"entry\":{\"size\":\"9223372036854775808\"}}", NULL,
		"proto: invalid value for int64 field size: \"9223372036854775808\""},
	{STAT, "{\"entry\":{\"size\":1e19}}", NULL, "proto: invalid value for int64 field size: 1e+19"},
	{EVENT, "{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":\"s\",\"error\":\"\"}}}",
		"{\"event\":{\"end\":{\"exitCode\":-1, \"status\":\"s\", \"error\":\"\"}}}", NULL},
	{EVENT, "{\"event\":{\"end\":{\"exitCode\":2147483648}}}", NULL,
		"proto: invalid value for sint32 field exit_code: 2147483648"},
	{EVENT, "{\"event\":{\"keepalive\":{}}}", "{\"event\":{\"keepalive\":{}}}", NULL},
	// oneofs
	{INPUT, "{\"process\":{\"pid\":7,\"tag\":\"x\"}}", NULL,
		"proto: error parsing \"tag\", oneof of process.ProcessSelector is already set"},
	{INPUT, "{\"process\":{\"pid\":7,\"tag\":null},\"input\":{\"pty\":null,\"stdin\":\"\"}}",
		"{\"process\":{\"pid\":7}, \"input\":{\"stdin\":\"\"}}", NULL},
	// bytes
	{INPUT, "{\"input\":{\"stdin\":\"YQ==\"}}", "{\"input\":{\"stdin\":\"YQ==\"}}", NULL},
	{INPUT, "{\"input\":{\"stdin\":\"YQ\"}}", "{\"input\":{\"stdin\":\"YQ==\"}}", NULL},
	{INPUT, "{\"input\":{\"stdin\":\"YWI\"}}", "{\"input\":{\"stdin\":\"YWI=\"}}", NULL},
	{INPUT, "{\"input\":{\"pty\":\"-_8=\"}}", "{\"input\":{\"pty\":\"+/8=\"}}", NULL},
	{INPUT, "{\"input\":{\"pty\":\"-_8\"}}", "{\"input\":{\"pty\":\"+/8=\"}}", NULL},
	{INPUT, "{\"input\":{\"pty\":\"+/8\"}}", "{\"input\":{\"pty\":\"+/8=\"}}", NULL},
	{INPUT, "{\"input\":{\"pty\":\"+_8=\"}}", NULL, "proto: invalid value for bytes field pty: \"+_8=\""},
	{INPUT, "{\"input\":{\"stdin\":\"!!\"}}", NULL, "proto: invalid value for bytes field stdin: \"!!\""},
	{INPUT, "{\"input\":{\"stdin\":\"YQ=\"}}", NULL, "proto: invalid value for bytes field stdin: \"YQ=\""},
	{INPUT, "{\"input\":{\"stdin\":\"YQ===\"}}", NULL, "proto: invalid value for bytes field stdin: \"YQ===\""},
	{INPUT, "{\"input\":{\"stdin\":\"Y\"}}", NULL, "proto: invalid value for bytes field stdin: \"Y\""},
	{INPUT, "{\"input\":{\"stdin\":5}}", NULL, "proto: invalid value for bytes field stdin: 5"},
	// enums
	{SIGNAL, "{\"signal\":\"SIGNAL_SIGKILL\"}", "{\"signal\":\"SIGNAL_SIGKILL\"}", NULL},
	{SIGNAL, "{\"signal\":15}", "{\"signal\":\"SIGNAL_SIGTERM\"}", NULL},
	{SIGNAL, "{\"signal\":2}", "{\"signal\":2}", NULL},
	{SIGNAL, "{\"signal\":\"SIGNAL_NOPE\"}", "{}", NULL},
	{SIGNAL, "{\"signal\":\"SIGNAL_UNSPECIFIED\"}", "{}", NULL},
	{SIGNAL, "{\"signal\":4294967296}", NULL, "proto: invalid value for enum field signal: 4294967296"},
	{SIGNAL, "{\"signal\":false}", NULL, "proto: invalid value for enum field signal: false"},
	// names
	{WATCH, "{\"path\":\"/x\",\"include_entry\":true,\"allowNetworkMounts\":true}",
		"{\"path\":\"/x\", \"includeEntry\":true, \"allowNetworkMounts\":true}", NULL},
	{WATCH, "{\"include_entry\":true,\"includeEntry\":true}", NULL, "proto: duplicate field \"includeEntry\""},
	{WATCH, "{\"include_entry\":null,\"includeEntry\":true}", NULL, "proto: duplicate field \"includeEntry\""},
	{WATCH, "{\"IncludeEntry\":true,\"includeentry\":true}", "{}", NULL},
	{LIST, "{\"anything\":[[[]]]}", "{}", NULL},
	// time
	{STAT, "{\"entry\":{\"modifiedTime\":\"2024-05-01T10:00:00.123456789Z\"}}",
		"{\"entry\":{\"modifiedTime\":\"2024-05-01T10:00:00.123456789Z\"}}", NULL},
	{STAT, "{\"entry\":{\"modified_time\":\"2024-05-01T12:30:00.5+02:30\"}}",
		"{\"entry\":{\"modifiedTime\":\"2024-05-01T10:00:00.500Z\"}}", NULL},
	{STAT, "{\"entry\":{\"modifiedTime\":\"2024-05-01\"}}", NULL,
		"proto: invalid value for message field modified_time: \"2024-05-01\""},
	{STAT, "{\"entry\":{\"modifiedTime\":{\"seconds\":1}}}", NULL,
		"proto: invalid value for message field modified_time: {"},
	{STAT, "{\"entry\":{\"metadata\":{\"k\":\"v\",\"\":\"\"},\"symlinkTarget\":\"\"}}",
		"{\"entry\":{\"symlinkTarget\":\"\", \"metadata\":{\"\":\"\", \"k\":\"v\"}}}", NULL},
};

START_TEST(read_and_written)
{
	const struct reading *r = &readings[_i];
	const ProtobufCMessageDescriptor *d = types[r->type];
	struct err e = {.code = ERR_NONE};
	struct buf out, want;
	size_t n = strlen(r->in);
	char *copy = malloc(n > 0 ? n : 1); // not terminated
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, r->in, n);
	ProtobufCMessage *m = pbjson_read(d, copy, n, &e);
	free(copy);
	buf_init(&out, 0);
	buf_init(&want, 0);
	if (r->out) {
		ck_assert_msg(m != NULL, "%s: %s", r->in, e.msg);
		ck_assert_int_eq(pbjson_write(&out, m), 0);
		ck_assert_str_eq(buf_cstr(&out), r->out);
	} else {
		ck_assert_msg(m == NULL, "%s", r->in);
		ck_assert_int_eq(e.code, ERR_INVALID_ARGUMENT);
		if (r->msg)
			buf_printf(&want, "unmarshal message: unmarshal into *%s: %s", d->name, r->msg);
		else
			buf_str(&want, "unmarshal message: zero-length payload is not a valid JSON object");
		ck_assert_str_eq(e.msg, buf_cstr(&want));
	}
	pb_free(m);
	buf_release(&want);
	buf_release(&out);
}
END_TEST

// What was read is a message like any other: written in the binary form and read back it says the same.
START_TEST(both_codecs_agree)
{
	const struct reading *r = &readings[_i];
	struct err e;
	struct buf wire, out;
	if (!r->out)
		return;
	buf_init(&wire, 0);
	buf_init(&out, 0);
	ProtobufCMessage *m = pbjson_read(types[r->type], r->in, strlen(r->in), &e);
	ck_assert_ptr_nonnull(m);
	pbwire_write(&wire, m);
	pb_free(m);
	m = pbwire_read(types[r->type], buf_data(&wire), buf_len(&wire), &e);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(pbjson_write(&out, m), 0);
	ck_assert_str_eq(buf_cstr(&out), r->out);
	pb_free(m);
	buf_release(&out);
	buf_release(&wire);
}
END_TEST

START_TEST(empty_stdin_is_set)
{
	static const char text[] = "{\"input\":{\"stdin\":\"\"}}";
	struct err e;
	Process__SendInputRequest *m = (Process__SendInputRequest *)pbjson_read(
		&process__send_input_request__descriptor, text, sizeof(text) - 1, &e);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->input->input_case, PROCESS__PROCESS_INPUT__INPUT_STDIN);
	ck_assert_uint_eq(m->input->stdin.len, 0);
	pb_free(&m->base);
}
END_TEST

START_TEST(all_bytes_come_through)
{
	unsigned char bytes[256];
	struct buf text;
	struct err e;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	for (size_t n = 0; n <= sizeof(bytes); n++) {
		Process__ProcessInput input = PROCESS__PROCESS_INPUT__INIT;
		Process__SendInputRequest m = PROCESS__SEND_INPUT_REQUEST__INIT, *back;
		input.input_case = PROCESS__PROCESS_INPUT__INPUT_PTY;
		input.pty = (ProtobufCBinaryData){n, bytes + sizeof(bytes) - n};
		m.input = &input;
		buf_init(&text, 0);
		ck_assert_int_eq(pbjson_write(&text, &m.base), 0);
		back = (Process__SendInputRequest *)pbjson_read(m.base.descriptor, buf_data(&text), buf_len(&text), &e);
		ck_assert_ptr_nonnull(back);
		ck_assert_uint_eq(back->input->pty.len, n);
		ck_assert_mem_eq(back->input->pty.data, input.pty.data, n);
		pb_free(&back->base);
		buf_release(&text);
	}
}
END_TEST

// An element of three bytes ("",) would become some hundred.
START_TEST(amplification_is_bounded)
{
	static const size_t counts[] = {10 * 1000, 1000 * 1000};
	struct buf b;
	struct err e;
	buf_init(&b, 0);
	BUF_LIT(&b, "{\"process\":{\"args\":[\"\"");
	for (size_t i = 0; i < counts[_i]; i++)
		BUF_LIT(&b, ",\"\"");
	BUF_LIT(&b, "]}}");
	ProtobufCMessage *m = pbjson_read(&process__start_request__descriptor, buf_data(&b), buf_len(&b), &e);
	ck_assert(_i == 0 ? m != NULL : m == NULL);
	if (_i > 0)
		ck_assert_int_eq(e.status, 413);
	pb_free(m);
	buf_release(&b);
}
END_TEST

static const char rich[] =
	"{\"process\":{\"cmd\":\"ls\",\"args\":[\"-l\",\"x\"],\"envs\":{\"A\":\"b\",\"C\":\"d\"},\"cwd\":\"/\"},"
	"\"pty\":{\"size\":{\"cols\":80}},\"tag\":\"t\",\"stdin\":true}";
static const char rich_input[] = "{\"process\":{\"tag\":\"t\"},\"input\":{\"stdin\":\"-_8\"}}";
static const char rich_stat[] =
	"{\"entry\":{\"name\":\"n\",\"modifiedTime\":\"2024-05-01T10:00:00Z\",\"metadata\":{\"k\":\"v\",\"a\":\"b\"}}}";
static const struct rich {
	int type;
	const char *text;
} riches[] = {{START, rich}, {INPUT, rich_input}, {STAT, rich_stat}};

static int run(void *arg)
{
	const struct rich *r = arg;
	struct err e;
	struct buf out;
	ProtobufCMessage *m = pbjson_read(types[r->type], r->text, strlen(r->text), &e);
	if (!m)
		return e.sys == ENOMEM ? -ENOMEM : 1;
	buf_init(&out, 0);
	int rc = pbjson_write(&out, m);
	if (rc < 0 && buf_len(&out) > 0)
		rc = 2;
	if (rc == 0 && buf_len(&out) < strlen(r->text))
		rc = 3;
	buf_release(&out);
	pb_free(m);
	return rc;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(run, (void *)(uintptr_t)&riches[_i]);
}
END_TEST

START_TEST(damaged_input)
{
	const struct rich *r = &riches[_i];
	char text[sizeof(rich)];
	struct err e;
	size_t n = strlen(r->text);
	for (size_t cut = 0; cut < n; cut++)
		ck_assert_ptr_null(pbjson_read(types[r->type], r->text, cut, &e));
	for (size_t at = 0; at < n; at++)
		for (const char *c = "\"{}[]:,0n\\"; *c; c++) {
			memcpy(text, r->text, n);
			text[at] = *c;
			pb_free(pbjson_read(types[r->type], text, n, &e));
		}
}
END_TEST

// What is read the short way and the long way must come to the same, byte by byte and error by error.
START_TEST(simple_or_not_is_the_same)
{
	static const struct {
		int type;
		const char *in;
	} texts[] = {
		{DIR, "{\"path\":\"/a b\",\"depth\":12}"},
		{DIR, " { \"depth\" : 0 , \"path\" : \"\" } "},
		{WATCH, "{\"path\":\"/x\",\"recursive\":true,\"includeEntry\":false}"},
		{WATCH, "{\"include_entry\":true}"},
		{START, "{\"tag\":\"t\",\"stdin\":true}"},
		{LIST, "{}"},
	};
	static const char changes[] = "\"{}[]:,0179n\\ -.eE\x7f\x01\t\xc3tfu";
	const ProtobufCMessageDescriptor *d = types[texts[_i].type];
	char text[128];
	size_t n = strlen(texts[_i].in);
	for (size_t at = 0; at < n; at++) {
		for (size_t c = 0; c < sizeof changes - 1; c++) {
			struct err e, f;
			struct buf a = {0}, b = {0};
			memcpy(text, texts[_i].in, n);
			text[at] = changes[c];
			ProtobufCMessage *one = pbjson_read(d, text, n, &e), *two = NULL;
			json_t *doc = jsonr_parse(text, n, &f);
			if (doc)
				two = pbjson_read_tree(d, doc, n, &f);
			jsonr_free(doc);
			ck_assert_msg(!one == !two, "%.*s", (int)n, text);
			if (one && two) {
				ck_assert_int_eq(pbjson_write(&a, one), 0);
				ck_assert_int_eq(pbjson_write(&b, two), 0);
				ck_assert_str_eq(buf_cstr(&a), buf_cstr(&b));
			} else if (doc) {
				ck_assert_str_eq(e.msg, f.msg);
			}
			pb_free(one);
			pb_free(two);
			buf_release(&a);
			buf_release(&b);
		}
	}
}
END_TEST

START_TEST(what_is_simple)
{
	static const struct {
		const char *in;
		bool simple;
	} texts[] = {
		{"{}", true},
		{"{\"path\":\"/a\"}", true},
		{"{\"path\":\"/a\",\"depth\":999999999}", true},
		{"{\"path\":\"/a\",\"depth\":1000000000}", false},
		{"{\"depth\":01}", false},
		{"{\"depth\":1.0}", false},
		{"{\"depth\":\"1\"}", false},
		{"{\"path\":\"\\u0041\"}", false},
		{"{\"path\":\"\xc3\xa4\"}", false},
		{"{\"path\":null}", false},
		{"{\"path\":\"a\",\"path\":\"b\"}", false},
		{"{\"other\":\"a\"}", false},
		{"{\"path\":\"a\",}", false},
		{"{\"path\":\"a\"}}", false},
		{"[]", false},
		{"", false},
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		ProtobufCMessage *m;
		int rc = pbjson_read_flat(types[DIR], texts[i].in, strlen(texts[i].in), &m);
		ck_assert_msg(rc == texts[i].simple && !m == !rc, "%s", texts[i].in);
		pb_free(m);
	}
}
END_TEST

Suite *pbjson_suite(void)
{
	Suite *s = suite_create("pbjson");
	TCase *tc = tcase_create("read");
	tcase_add_loop_test(tc, read_and_written, 0, (int)(sizeof(readings) / sizeof(readings[0])));
	tcase_add_loop_test(tc, both_codecs_agree, 0, (int)(sizeof(readings) / sizeof(readings[0])));
	tcase_add_loop_test(tc, simple_or_not_is_the_same, 0, 6);
	tcase_add_test(tc, what_is_simple);
	tcase_add_test(tc, empty_stdin_is_set);
	tcase_add_test(tc, all_bytes_come_through);
	tcase_add_loop_test(tc, amplification_is_bounded, 0, 2);
	tcase_add_loop_test(tc, out_of_memory, 0, (int)(sizeof(riches) / sizeof(riches[0])));
	tcase_add_loop_test(tc, damaged_input, 0, (int)(sizeof(riches) / sizeof(riches[0])));
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return s;
}
