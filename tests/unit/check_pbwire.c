// SPDX-License-Identifier: Apache-2.0
#include "oom.h"
#include "proto/filesystem.pb-c.h"
#include "proto/pbwire.h"
#include "proto/process.pb-c.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void ck_bytes(const struct buf *b, const void *want, size_t n)
{
	ck_assert_uint_eq(buf_len(b), n);
	ck_assert_mem_eq(buf_data(b), want, n);
}

static Filesystem__EntryInfo entry(Filesystem__Timestamp *time)
{
	Filesystem__EntryInfo e = FILESYSTEM__ENTRY_INFO__INIT;
	*time = (Filesystem__Timestamp)FILESYSTEM__TIMESTAMP__INIT;
	time->seconds = 1700000000;
	e.name = (char *)(uintptr_t) "p.txt";
	e.type = FILESYSTEM__FILE_TYPE__FILE_TYPE_FILE;
	e.path = (char *)(uintptr_t) "/home/user/g/p.txt";
	e.size = 5;
	e.mode = 0644;
	e.permissions = (char *)(uintptr_t) "-rw-r--r--";
	e.owner = e.group = (char *)(uintptr_t) "user";
	e.modified_time = time;
	return e;
}

// Recorded from the daemon that this one replaces (binary codec: Stat, Start).
static const char stat_bytes[] =
	"\x0a\x42\x0a\x05p.txt\x10\x01\x1a\x12/home/user/g/p.txt\x20\x05\x28\xa4\x03\x32\x0a-rw-r--r--"
	"\x3a\x04user\x42\x04user\x4a\x06\x08\x80\xe2\xcf\xaa\x06";
static const char end_bytes[] = "\x0a\x24\x1a\x22\x08\x0e\x10\x01\x1a\x0d"
				"exit status 7\x22\x0d"
				"exit status 7";
static const char start_bytes[] = "\x0a\x1e\x0a\x07/bin/sh\x12\x02-c\x12\x0f"
				  "echo hi; exit 7";

START_TEST(written_as_recorded)
{
	struct buf b;
	Filesystem__Timestamp time;
	Filesystem__EntryInfo e = entry(&time);
	Filesystem__StatResponse stat = FILESYSTEM__STAT_RESPONSE__INIT;
	stat.entry = &e;
	buf_init(&b, 0);
	pbwire_write(&b, &stat.base);
	ck_bytes(&b, stat_bytes, sizeof(stat_bytes) - 1);

	Process__ProcessEvent__EndEvent end = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__StartResponse start = PROCESS__START_RESPONSE__INIT;
	end.exit_code = 7;
	end.exited = true;
	end.status = end.error = (char *)(uintptr_t) "exit status 7";
	end._error_case = PROCESS__PROCESS_EVENT__END_EVENT___ERROR_ERROR;
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
	event.end = &end;
	start.event = &event;
	buf_reset(&b);
	pbwire_write(&b, &start.base);
	ck_bytes(&b, end_bytes, sizeof(end_bytes) - 1);
	buf_release(&b);
}
END_TEST

START_TEST(read_as_recorded)
{
	struct err e;
	Process__StartRequest *start = (Process__StartRequest *)pbwire_read(
		&process__start_request__descriptor, start_bytes, sizeof(start_bytes) - 1, &e);
	ck_assert_ptr_nonnull(start);
	ck_assert_str_eq(start->process->cmd, "/bin/sh");
	ck_assert_uint_eq(start->process->n_args, 2);
	ck_assert_str_eq(start->process->args[1], "echo hi; exit 7");
	ck_assert_int_eq(start->process->_cwd_case, 0);
	ck_assert_int_eq(start->_stdin_case, 0);
	struct buf b;
	buf_init(&b, 0);
	pbwire_write(&b, &start->base);
	ck_bytes(&b, start_bytes, sizeof(start_bytes) - 1);
	buf_release(&b);
	pb_free(&start->base);
	ProtobufCMessage *empty = pbwire_read(&process__list_request__descriptor, NULL, 0, &e);
	ck_assert_ptr_nonnull(empty);
	pb_free(empty);
}
END_TEST

#define TEXT(lit) "" lit, sizeof(lit) - 1
#define INTO "unmarshal message: unmarshal into *filesystem.StatRequest: "
#define BROKEN INTO "proto: cannot parse invalid wire-format data"

static const struct bad {
	const char *p;
	size_t n;
	const char *msg;
} bads[] = {
	{TEXT("\x0a\x7f"), BROKEN},
	{TEXT("\x0a"), BROKEN},
	{TEXT("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), BROKEN},
	{TEXT("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), BROKEN},
	{TEXT("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), BROKEN},
	{TEXT("\x00\x01"), BROKEN},
	{TEXT("\x0b\x0c"), BROKEN}, // a group
	{TEXT("\x0e"), BROKEN},
	{TEXT("\x0f"), BROKEN},
	{TEXT("\x08\x01"), BROKEN}, // a string as a number
	{TEXT("\x15\x01\x01\x01"), BROKEN},
	{TEXT("\x11\x01\x01\x01\x01\x01\x01\x01"), BROKEN},
	{TEXT("\x0a\x01\xff"), INTO "string field contains invalid UTF-8"},
	{TEXT("\x0a\x03\xed\xa0\x80"), INTO "string field contains invalid UTF-8"},
	{TEXT("\x0a\x03x\0y"), INTO "string field contains NUL"},
	{TEXT("\x0a\x01x\x0a\x01\xc0"), INTO "string field contains invalid UTF-8"},
};

START_TEST(refused)
{
	const struct bad *bad = &bads[_i];
	struct err e;
	char *copy = malloc(bad->n);
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bad->p, bad->n);
	ck_assert_ptr_null(pbwire_read(&filesystem__stat_request__descriptor, copy, bad->n, &e));
	ck_assert_str_eq(e.msg, bad->msg);
	ck_assert_int_eq(e.code, ERR_INVALID_ARGUMENT);
	free(copy);
}
END_TEST

// Strings are looked at however deep they are, in maps and in messages that come twice.
START_TEST(strings_inside)
{
	static const struct {
		const char *p;
		size_t n;
	} inside[] = {
		{TEXT("\x0a\x03\x12\x01\xff")},
		{TEXT("\x0a\x07\x1a\x05\x0a\x01k\x12\x00\x0a\x05\x1a\x03\x0a\x01\xff")},
		{TEXT("\x0a\x05\x1a\x03\x12\x01\xff")},
		{TEXT("\x1a\x01\xff")},
	};
	struct err e;
	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
		ck_assert_ptr_null(pbwire_read(&process__start_request__descriptor, inside[i].p, inside[i].n, &e));
		ck_assert_str_eq(e.msg,
			"unmarshal message: unmarshal into *process.StartRequest: string field contains invalid UTF-8");
	}
}
END_TEST

START_TEST(unknown_fields_and_repeats)
{
	struct err e;
	static const char bytes[] = "\x0a\x01x\xfa\x06\x03"
				    "abc\x18\x05\x25\x01\x02\x03\x04\x29"
				    "12345678\x0a\x02yz";
	Filesystem__StatRequest *m = (Filesystem__StatRequest *)pbwire_read(
		&filesystem__stat_request__descriptor, bytes, sizeof(bytes) - 1, &e);
	ck_assert_ptr_nonnull(m);
	ck_assert_str_eq(m->path, "yz");
	pb_free(&m->base);
	// Of two members of a oneof the last one counts; of a message that comes twice both parts do.
	static const char both[] = "\x0a\x02\x08\x07\x0a\x03\x12\x01t\x12\x04\x0a\x02hi";
	Process__SendInputRequest *in = (Process__SendInputRequest *)pbwire_read(
		&process__send_input_request__descriptor, both, sizeof(both) - 1, &e);
	ck_assert_ptr_nonnull(in);
	ck_assert_int_eq(in->process->selector_case, PROCESS__PROCESS_SELECTOR__SELECTOR_TAG);
	ck_assert_str_eq(in->process->tag, "t");
	ck_assert_uint_eq(in->input->stdin.len, 2);
	pb_free(&in->base);
}
END_TEST

// Two bytes an element: without a bound each would cost some hundred.
START_TEST(amplification_is_bounded)
{
	static const char *const units[] = {"\x12\x00", "\x1a\x00", "\x7a\x00"};
	struct err e;
	struct buf b, whole;
	enum { MANY = 1000 * 1000, SOME = 20 * 1000 };
	for (int many = 0; many < 2; many++) {
		buf_init(&b, 0);
		buf_init(&whole, 0);
		for (size_t i = 0; i < (many ? MANY : SOME); i++)
			buf_append(&b, units[_i], 2);
		buf_byte(&whole, 0x0a);
		for (size_t n = buf_len(&b); n > 0; n >>= 7)
			buf_byte(&whole, (unsigned char)((n & 0x7f) | (n > 0x7f ? 0x80 : 0)));
		buf_append(&whole, buf_data(&b), buf_len(&b));
		ProtobufCMessage *m =
			pbwire_read(&process__start_request__descriptor, buf_data(&whole), buf_len(&whole), &e);
		ck_assert(many ? m == NULL : m != NULL);
		if (many)
			ck_assert_int_eq(e.status, 413);
		pb_free(m);
		buf_release(&whole);
		buf_release(&b);
	}
}
END_TEST

START_TEST(big_bytes_fit)
{
	enum { BIG = 15 * 1024 * 1024 };
	struct err e;
	struct buf b;
	buf_init(&b, 0);
	char *big = malloc(BIG);
	ck_assert_ptr_nonnull(big);
	memset(big, 0xff, BIG);
	Process__ProcessInput input = PROCESS__PROCESS_INPUT__INIT;
	Process__SendInputRequest m = PROCESS__SEND_INPUT_REQUEST__INIT;
	input.input_case = PROCESS__PROCESS_INPUT__INPUT_STDIN;
	input.stdin = (ProtobufCBinaryData){BIG, (uint8_t *)big};
	m.input = &input;
	pbwire_write(&b, &m.base);
	Process__SendInputRequest *back = (Process__SendInputRequest *)pbwire_read(
		&process__send_input_request__descriptor, buf_data(&b), buf_len(&b), &e);
	ck_assert_ptr_nonnull(back);
	ck_assert_uint_eq(back->input->stdin.len, BIG);
	ck_assert_mem_eq(back->input->stdin.data, big, BIG);
	pb_free(&back->base);
	buf_release(&b);
	free(big);
}
END_TEST

// A name that is not UTF-8 must not make the client refuse the whole answer.
START_TEST(strings_are_mended)
{
	struct buf b;
	struct err err;
	Filesystem__Timestamp time;
	Filesystem__EntryInfo e = entry(&time), *list[] = {&e};
	Filesystem__EntryInfo__MetadataEntry pair = FILESYSTEM__ENTRY_INFO__METADATA_ENTRY__INIT, *pairs[] = {&pair};
	Filesystem__ListDirResponse dir = FILESYSTEM__LIST_DIR_RESPONSE__INIT;
	e.name = (char *)(uintptr_t) "\xc3\xa9\xff\xe2\x82x\xf0\x9f\x98\x80\xc3";
	pair.key = (char *)(uintptr_t) "\x80";
	e.n_metadata = 1;
	e.metadata = pairs;
	dir.n_entries = 1;
	dir.entries = list;
	buf_init(&b, 0);
	pbwire_write(&b, &dir.base);
	Filesystem__ListDirResponse *back = (Filesystem__ListDirResponse *)pbwire_read(
		&filesystem__list_dir_response__descriptor, buf_data(&b), buf_len(&b), &err);
	ck_assert_ptr_nonnull(back);
	ck_assert_str_eq(back->entries[0]->name, "\xc3\xa9???x\xf0\x9f\x98\x80?");
	ck_assert_str_eq(back->entries[0]->metadata[0]->key, "?");
	pb_free(&back->base);
	buf_release(&b);
}
END_TEST

static const char rich[] = "\x0a\x24\x0a\x02ls\x12\x02-l\x12\x01.\x1a\x08\x0a\x01"
			   "A\x12\x03"
			   "b=c\x1a\x06\x0a\x01"
			   "B\x12\x01"
			   "d\x22\x05/home"
			   "\x12\x06\x0a\x04\x08\x50\x10\x18\x1a\x01t\x20\x01\x7a\x03"
			   "abc\x0a\x04\x12\x02zz\x12\x04\x0a\x02\x08\x51";

static int run_read(void *arg)
{
	(void)arg;
	struct err e;
	Process__StartRequest *m =
		(Process__StartRequest *)pbwire_read(&process__start_request__descriptor, rich, sizeof(rich) - 1, &e);
	if (!m)
		return e.sys == ENOMEM ? -ENOMEM : 1;
	bool right = m->process->n_args == 3 && m->process->n_envs == 2 && m->pty->size->cols == 81 && m->stdin == 1;
	pb_free(&m->base);
	return right ? 0 : 2;
}

START_TEST(reading_out_of_memory)
{
	OOM_LOOP(run_read, NULL);
}
END_TEST

// Each cut and each damaged byte is either read or refused, and nothing leaks.
START_TEST(damaged_input)
{
	char bytes[sizeof(rich)];
	struct err e;
	size_t n = sizeof(rich) - 1, whole = 0;
	for (size_t cut = 0; cut <= n; cut++) {
		ProtobufCMessage *m = pbwire_read(&process__start_request__descriptor, rich, cut, &e);
		whole += m != NULL;
		pb_free(m);
	}
	ck_assert_uint_gt(whole, 1);
	for (size_t at = 0; at < n; at++)
		for (unsigned v = 0; v < 256; v++) {
			memcpy(bytes, rich, n);
			bytes[at] = (char)v;
			pb_free(pbwire_read(&process__start_request__descriptor, bytes, n, &e));
		}
}
END_TEST

Suite *pbwire_suite(void)
{
	Suite *s = suite_create("pbwire");
	TCase *tc = tcase_create("wire");
	tcase_add_test(tc, written_as_recorded);
	tcase_add_test(tc, read_as_recorded);
	tcase_add_loop_test(tc, refused, 0, (int)(sizeof(bads) / sizeof(bads[0])));
	tcase_add_test(tc, strings_inside);
	tcase_add_test(tc, unknown_fields_and_repeats);
	tcase_add_loop_test(tc, amplification_is_bounded, 0, 3);
	tcase_add_test(tc, big_bytes_fit);
	tcase_add_test(tc, strings_are_mended);
	tcase_add_test(tc, reading_out_of_memory);
	tcase_add_test(tc, damaged_input);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return s;
}
