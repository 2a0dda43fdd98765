// SPDX-License-Identifier: Apache-2.0
// Both codecs of every request: what one reads, both write and read again to the same bytes.
#include "tests/fuzz/fuzz.h"

#include "proto/filesystem.pb-c.h"
#include "proto/pbjson.h"
#include "proto/process.pb-c.h"

#include <string.h>

static const ProtobufCMessageDescriptor *const messages[] = {
	&process__start_request__descriptor,
	&process__start_response__descriptor,
	&process__list_response__descriptor,
	&process__update_request__descriptor,
	&process__stream_input_request__descriptor,
	&process__send_input_request__descriptor,
	&process__send_signal_request__descriptor,
	&filesystem__stat_response__descriptor,
	&filesystem__list_dir_response__descriptor,
	&filesystem__watch_dir_request__descriptor,
	&filesystem__watch_dir_response__descriptor,
	&filesystem__get_watcher_events_response__descriptor,
};

static void same(const struct buf *a, const struct buf *b)
{
	FUZZ_CHECK(buf_len(a) == buf_len(b) && memcmp(buf_data(a), buf_data(b), buf_len(a)) == 0);
}

// M in both forms; each form read again and written again is the same.
static void round_trip(const ProtobufCMessageDescriptor *d, const ProtobufCMessage *m)
{
	struct buf json = {0}, wire = {0}, json2 = {0}, wire2 = {0};
	struct err e;
	FUZZ_CHECK(pbjson_write(&json, m) == 0);
	ProtobufCMessage *from_json = pbjson_read(d, buf_data(&json), buf_len(&json), &e);
	FUZZ_CHECK(from_json);
	FUZZ_CHECK(pbjson_write(&json2, from_json) == 0);
	same(&json, &json2);
	pbwire_write(&wire, from_json);
	ProtobufCMessage *from_wire = pbwire_read(d, buf_data(&wire), buf_len(&wire), &e);
	FUZZ_CHECK(from_wire);
	pbwire_write(&wire2, from_wire);
	same(&wire, &wire2);
	pb_free(from_json);
	pb_free(from_wire);
	buf_release(&json);
	buf_release(&json2);
	buf_release(&wire);
	buf_release(&wire2);
}

int fuzz_pbjson(const uint8_t *p, size_t n)
{
	struct err e;
	unsigned choice = fuzz_choice(&p, &n);
	const ProtobufCMessageDescriptor *d = messages[(choice >> 1) % (sizeof messages / sizeof *messages)];
	ProtobufCMessage *m = choice & 1 ? pbwire_read(d, p, n, &e) : pbjson_read(d, p, n, &e);
	if (m)
		round_trip(d, m);
	else
		FUZZ_CHECK(e.status >= 400);
	pb_free(m);
	return 0;
}
