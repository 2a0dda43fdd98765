// SPDX-License-Identifier: Apache-2.0
// What is written: messages as JSON, byte for byte as recorded from the daemon that this one replaces.
#include "proto/filesystem.pb-c.h"
#include "proto/pbjson.h"
#include "proto/process.pb-c.h"
#include "suites.h"

#include <errno.h>
#include <string.h>

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

static void ck_written(const ProtobufCMessage *m, const char *want)
{
	struct buf b;
	buf_init(&b, 0);
	BUF_LIT(&b, ">");
	ck_assert_int_eq(pbjson_write(&b, m), 0);
	ck_assert_str_eq(buf_cstr(&b) + 1, want);
	buf_release(&b);
}

START_TEST(process_list)
{
	char *args[] = {text("20")};
	Process__ProcessConfig__EnvsEntry pairs[] = {PROCESS__PROCESS_CONFIG__ENVS_ENTRY__INIT,
		PROCESS__PROCESS_CONFIG__ENVS_ENTRY__INIT, PROCESS__PROCESS_CONFIG__ENVS_ENTRY__INIT};
	Process__ProcessConfig__EnvsEntry *envs[] = {&pairs[0], &pairs[1], &pairs[2]};
	Process__ProcessConfig config = PROCESS__PROCESS_CONFIG__INIT;
	Process__ProcessInfo info = PROCESS__PROCESS_INFO__INIT, *list[] = {&info};
	Process__ListResponse m = PROCESS__LIST_RESPONSE__INIT;
	ck_written(&m.base, "{}");
	// Of two equal keys the last one counts.
	pairs[0].key = text("B");
	pairs[0].value = text("0");
	pairs[1].key = text("B");
	pairs[1].value = text("2");
	pairs[2].key = text("A");
	pairs[2].value = text("1");
	config.cmd = text("sleep");
	config.n_args = 1;
	config.args = args;
	config.n_envs = 3;
	config.envs = envs;
	config._cwd_case = PROCESS__PROCESS_CONFIG___CWD_CWD;
	config.cwd = text("~/g");
	info.config = &config;
	info.pid = 812;
	info._tag_case = PROCESS__PROCESS_INFO___TAG_TAG;
	info.tag = text("lt");
	m.n_processes = 1;
	m.processes = list;
	ck_written(&m.base, "{\"processes\":[{\"config\":{\"cmd\":\"sleep\", \"args\":[\"20\"], \"envs\":{\"A\":\"1\", "
			    "\"B\":\"2\"}, "
			    "\"cwd\":\"~/g\"}, \"pid\":812, \"tag\":\"lt\"}]}");
}
END_TEST

START_TEST(entry)
{
	Filesystem__EntryInfo__MetadataEntry pair = FILESYSTEM__ENTRY_INFO__METADATA_ENTRY__INIT, *pairs[] = {&pair};
	Filesystem__Timestamp time = FILESYSTEM__TIMESTAMP__INIT;
	Filesystem__EntryInfo e = FILESYSTEM__ENTRY_INFO__INIT, *list[] = {&e, &e};
	Filesystem__ListDirResponse dir = FILESYSTEM__LIST_DIR_RESPONSE__INIT;
	e.name = text("ln");
	e.type = FILESYSTEM__FILE_TYPE__FILE_TYPE_FILE;
	e.path = text("/home/user/g/ln");
	e.size = 5;
	e.mode = 420;
	e.permissions = text("Lrwxrwxrwx");
	e.owner = e.group = text("root");
	time.seconds = 1714557600;
	time.nanos = 123456789;
	e.modified_time = &time;
	e._symlink_target_case = FILESYSTEM__ENTRY_INFO___SYMLINK_TARGET_SYMLINK_TARGET;
	e.symlink_target = text("/home/user/g/a.txt");
	pair.key = text("k");
	pair.value = text("v");
	e.n_metadata = 1;
	e.metadata = pairs;
	Filesystem__StatResponse m = FILESYSTEM__STAT_RESPONSE__INIT;
	m.entry = &e;
	ck_written(&m.base,
		"{\"entry\":{\"name\":\"ln\", \"type\":\"FILE_TYPE_FILE\", \"path\":\"/home/user/g/ln\", "
		"\"size\":\"5\", \"mode\":420, "
		"\"permissions\":\"Lrwxrwxrwx\", \"owner\":\"root\", \"group\":\"root\", "
		"\"modifiedTime\":\"2024-05-01T10:00:00.123456789Z\", \"symlinkTarget\":\"/home/user/g/a.txt\", "
		"\"metadata\":{\"k\":\"v\"}}}");
	e = (Filesystem__EntryInfo)FILESYSTEM__ENTRY_INFO__INIT;
	e.name = text("a<&>\xff");
	dir.n_entries = 2;
	dir.entries = list;
	ck_written(&dir.base, "{\"entries\":[{\"name\":\"a<&>\xEF\xBF\xBD\"}, {\"name\":\"a<&>\xEF\xBF\xBD\"}]}");
}
END_TEST

START_TEST(events)
{
	Process__ProcessEvent__EndEvent end = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
	Process__ProcessEvent__StartEvent begin = PROCESS__PROCESS_EVENT__START_EVENT__INIT;
	Process__ProcessEvent__KeepAlive alive = PROCESS__PROCESS_EVENT__KEEP_ALIVE__INIT;
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__StartResponse m = PROCESS__START_RESPONSE__INIT;
	m.event = &event;
	ck_written(&m.base, "{\"event\":{}}");
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_START;
	event.start = &begin;
	begin.pid = 7;
	ck_written(&m.base, "{\"event\":{\"start\":{\"pid\":7}}}");
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_KEEPALIVE;
	event.keepalive = &alive;
	ck_written(&m.base, "{\"event\":{\"keepalive\":{}}}");
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
	event.end = &end;
	end.exited = true;
	end.status = text("exit status 0");
	ck_written(&m.base, "{\"event\":{\"end\":{\"exited\":true, \"status\":\"exit status 0\"}}}");
	end.exit_code = -1;
	end.exited = false;
	end.status = end.error = text("signal: terminated");
	end._error_case = PROCESS__PROCESS_EVENT__END_EVENT___ERROR_ERROR;
	ck_written(&m.base, "{\"event\":{\"end\":{\"exitCode\":-1, \"status\":\"signal: terminated\", "
			    "\"error\":\"signal: terminated\"}}}");
}
END_TEST

// Taken back whole, wherever the room ends.
START_TEST(no_room)
{
	Filesystem__EntryInfo e = FILESYSTEM__ENTRY_INFO__INIT;
	Filesystem__StatResponse m = FILESYSTEM__STAT_RESPONSE__INIT;
	struct buf b;
	e.name = text("name");
	m.entry = &e;
	enum { WHOLE = sizeof("{\"entry\":{\"name\":\"name\"}}") - 1 };
	for (size_t max = 1; max <= WHOLE + 1; max++) {
		buf_init(&b, max);
		BUF_LIT(&b, "x");
		int rc = pbjson_write(&b, &m.base);
		ck_assert_int_eq(rc, max == WHOLE + 1 ? 0 : -EMSGSIZE);
		ck_assert_uint_eq(buf_len(&b), max == WHOLE + 1 ? WHOLE + 1 : 1);
		buf_release(&b);
	}
}
END_TEST

static const struct moment {
	const char *text;
	int64_t seconds;
	int32_t nanos;
} moments[] = {
	{"1970-01-01T00:00:00Z", 0, 0},
	{"1970-01-01T00:00:00.001Z", 0, 1000000},
	{"1970-01-01T00:00:00.000001Z", 0, 1000},
	{"1970-01-01T00:00:00.000000001Z", 0, 1},
	{"1969-12-31T23:59:59.500Z", -1, 500000000},
	{"2000-02-29T12:34:56.120Z", 951827696, 120000000},
	{"1900-03-01T00:00:00Z", -2203891200, 0},
	{"2100-03-01T00:00:00Z", 4107542400, 0},
	{"2023-12-31T23:59:59Z", 1704067199, 0},
	{"2024-12-31T00:00:00Z", 1735603200, 0},
	{"2038-01-19T03:14:08Z", 2147483648, 0},
	{"0001-01-01T00:00:00Z", -62135596800, 0},
	{"9999-12-31T23:59:59.999999999Z", 253402300799, 999999999},
};

START_TEST(times_both_ways)
{
	const struct moment *m = &moments[_i];
	char out[PBJSON_TIME];
	int64_t seconds;
	int32_t nanos;
	ck_assert_uint_eq(pbjson_time_write(out, m->seconds, m->nanos), strlen(m->text));
	ck_assert_str_eq(out, m->text);
	ck_assert_int_eq(pbjson_time_read(m->text, strlen(m->text), &seconds, &nanos), 0);
	ck_assert_int_eq(seconds, m->seconds);
	ck_assert_int_eq(nanos, m->nanos);
}
END_TEST

// Every day of a cycle of the calendar, and then some.
START_TEST(every_day)
{
	int64_t seconds, day = 0;
	int32_t nanos;
	char out[PBJSON_TIME];
	for (int64_t s = INT64_C(-62135596800); s < INT64_C(253402300800); s += 86400 * (s % 7 == 0 ? 1 : 13), day++) {
		size_t n = pbjson_time_write(out, s + day % 86400, 0);
		ck_assert_int_eq(pbjson_time_read(out, n, &seconds, &nanos), 0);
		ck_assert_int_eq(seconds, s + day % 86400);
	}
	ck_assert_int_gt(day, 100000);
}
END_TEST

START_TEST(times_outside)
{
	static const char *const bad[] = {"", "Z", "2024-05-01T10:00:00", "2024-05-01 10:00:00Z",
		"2024-13-01T10:00:00Z", "2024-00-01T10:00:00Z", "2023-02-29T10:00:00Z", "1900-02-29T10:00:00Z",
		"2024-05-32T10:00:00Z", "2024-05-00T10:00:00Z", "2024-05-01T24:00:00Z", "2024-05-01T10:60:00Z",
		"2024-05-01T10:00:60Z", "2024-05-01T10:00:00.Z", "2024-05-01T10:00:00.1234567890Z",
		"2024-05-01T10:00:00z", "2024-05-01T10:00:00+0200", "2024-05-01T10:00:00+24:00",
		"2024-05-01T10:00:00Z ", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01",
		"9999-12-31T23:59:59-00:01", "-024-05-01T10:00:00Z", "2024-05-01T10:00:00+02:00Z",
		"2024-05-01T1:00:00Z"};
	char out[PBJSON_TIME];
	int64_t seconds;
	int32_t nanos;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(pbjson_time_read(bad[i], strlen(bad[i]), &seconds, &nanos) == -EINVAL, "%s", bad[i]);
	pbjson_time_write(out, INT64_MAX, 5);
	ck_assert_str_eq(out, "9999-12-31T23:59:59.999999999Z");
	pbjson_time_write(out, INT64_MIN, 5);
	ck_assert_str_eq(out, "0001-01-01T00:00:00Z");
	pbjson_time_write(out, 0, -1);
	ck_assert_str_eq(out, "1970-01-01T00:00:00Z");
	pbjson_time_write(out, 0, INT32_MAX);
	ck_assert_str_eq(out, "1970-01-01T00:00:00.999999999Z");
}
END_TEST

START_TEST(names)
{
	static const char *const pairs[][2] = {{"pid", "pid"}, {"exit_code", "exitCode"},
		{"allow_network_mounts", "allowNetworkMounts"}, {"a__b_", "aB"}, {"x_1", "x1"}};
	char name[32];
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		pbjson_name(name, sizeof(name), pairs[i][0]);
		ck_assert_str_eq(name, pairs[i][1]);
	}
	pbjson_name(name, 4, "exit_code");
	ck_assert_str_eq(name, "exi");
}
END_TEST

Suite *pbjson_out_suite(void)
{
	Suite *s = suite_create("pbjson_out");
	TCase *tc = tcase_create("write");
	tcase_add_test(tc, process_list);
	tcase_add_test(tc, entry);
	tcase_add_test(tc, events);
	tcase_add_test(tc, no_room);
	tcase_add_loop_test(tc, times_both_ways, 0, (int)(sizeof(moments) / sizeof(moments[0])));
	tcase_add_test(tc, every_day);
	tcase_add_test(tc, times_outside);
	tcase_add_test(tc, names);
	tcase_set_timeout(tc, 30);
	suite_add_tcase(s, tc);
	return s;
}
