// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/output.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

// The ring holds records: a four-byte header (channel, length), aligned so that it never wraps, then the bytes. The newest
// record grows while the channel stays the same, so that a program that writes byte by byte costs no header a byte.
#define RECORD_HEAD ((uint64_t)4)
#define RECORD_MAX ((uint32_t)32 * 1024)
#define NO_RECORD UINT64_MAX
#define RING_MIN ((size_t)256 * 1024)
// A read into less room than this costs more than waiting for the reader.
#define ROOM_MIN ((size_t)16 * 1024)

struct output {
	unsigned char *ring; // mapped at the first chunk
	size_t cap;          // power of two
	size_t replay;
	uint64_t head; // offset behind the newest byte
	uint64_t tail; // the oldest record
	uint64_t last; // the newest record, or NO_RECORD
	uint64_t total[OUTPUT_CHANNELS];
	size_t held; // bytes in the records from tail on, headers not counted
	bool closed;
	struct output_reader *readers;
};

static uint64_t align4(uint64_t v)
{
	return (v + 3) & ~(uint64_t)3;
}

static unsigned char *at(const struct output *o, uint64_t off)
{
	return o->ring + (off & (o->cap - 1));
}

static uint32_t record_word(const struct output *o, uint64_t off)
{
	uint32_t w;
	memcpy(&w, at(o, off), sizeof w);
	return w;
}

static uint32_t record_len(const struct output *o, uint64_t off)
{
	return record_word(o, off) & 0xffffffu;
}

static enum output_channel record_channel(const struct output *o, uint64_t off)
{
	return (enum output_channel)(record_word(o, off) >> 24);
}

static void record_put(struct output *o, uint64_t off, enum output_channel ch, uint32_t len)
{
	uint32_t w = (uint32_t)ch << 24 | len;
	memcpy(at(o, off), &w, sizeof w);
}

static uint64_t record_next(const struct output *o, uint64_t off)
{
	return align4(off + RECORD_HEAD + record_len(o, off));
}

struct output *output_new(size_t replay)
{
	struct output *o = calloc(1, sizeof *o);
	if (!o)
		return NULL;
	o->replay = replay;
	o->cap = RING_MIN;
	while (o->cap / 4 < replay && o->cap < SIZE_MAX / 4)
		o->cap *= 2;
	o->last = NO_RECORD;
	return o;
}

void output_free(struct output *o)
{
	if (!o)
		return;
	assert(!o->readers);
	if (o->ring)
		munmap(o->ring, o->cap);
	free(o);
}

static struct output_reader *slowest(const struct output *o)
{
	struct output_reader *r, *min = NULL;
	DL_FOREACH(o->readers, r)
	{
		if (!min || r->at < min->at)
			min = r;
	}
	return min;
}

static void drop_oldest(struct output *o)
{
	o->held -= record_len(o, o->tail);
	if (o->tail == o->last) {
		o->tail = o->head = align4(o->head);
		o->last = NO_RECORD;
	} else {
		o->tail = record_next(o, o->tail);
	}
}

// A record that a cursor stands in stays, even when all of it was read.
static bool pinned(const struct output *o)
{
	const struct output_reader *r = slowest(o);
	return r && r->at <= o->tail;
}

static size_t room_left(const struct output *o)
{
	size_t used = (size_t)(align4(o->head) - o->tail) + RECORD_HEAD;
	return used < o->cap ? o->cap - used : 0;
}

ssize_t output_room(struct output *o, size_t want, struct iovec iov[2], int *count)
{
	if (!o->ring) {
		void *m =
			mmap(NULL, o->cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (m == MAP_FAILED)
			return -ENOMEM;
		o->ring = m;
	}
	while (room_left(o) < want && o->last != NO_RECORD && !pinned(o))
		drop_oldest(o);
	size_t room = room_left(o);
	if (room < want && room < ROOM_MIN)
		return 0;
	if (room > want)
		room = want;
	// Where the bytes go does not depend on their channel: a new record's header is put in front when they are published, so the
	// room begins behind the place of that header.
	uint64_t from = align4(o->head) + RECORD_HEAD;
	size_t first = o->cap - (size_t)(from & (o->cap - 1));
	iov[0] = (struct iovec){.iov_base = at(o, from), .iov_len = room < first ? room : first};
	*count = 1;
	if (room > first) {
		iov[1] = (struct iovec){.iov_base = o->ring, .iov_len = room - first};
		*count = 2;
	}
	return (ssize_t)room;
}

static void wake_all(struct output *o)
{
	struct output_reader *r, *tmp;
	DL_FOREACH_SAFE(o->readers, r, tmp)
	{
		r->wake(r);
	}
}

void output_filled(struct output *o, enum output_channel ch, size_t n)
{
	if (!n)
		return;
	assert(!o->closed);
	uint64_t from = align4(o->head);
	o->total[ch] += n;
	o->held += n;
	// A short piece of the same channel joins the newest record: moved down over the header that it then does not need.
	if (o->last != NO_RECORD && n <= 512 && record_channel(o, o->last) == ch &&
		record_len(o, o->last) + n <= RECORD_MAX) {
		uint32_t len = record_len(o, o->last);
		for (size_t i = 0; i < n; i++)
			*at(o, o->head + i) = *at(o, from + RECORD_HEAD + i);
		o->head += n;
		record_put(o, o->last, ch, len + (uint32_t)n);
	} else {
		record_put(o, from, ch, (uint32_t)n);
		o->last = from;
		o->head = from + RECORD_HEAD + n;
	}
	wake_all(o);
}

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

// Gives back the pages of the ring between two offsets (the bytes from..to are not needed any more).
static void release_pages(struct output *o, uint64_t from, uint64_t to)
{
	size_t page = page_size();
	while (from < to) {
		size_t pos = (size_t)(from & (o->cap - 1));
		size_t n = o->cap - pos < to - from ? o->cap - pos : (size_t)(to - from);
		size_t start = (pos + page - 1) / page * page, end = (pos + n) / page * page;
		if (pos + n == o->cap)
			end = o->cap;
		if (start < end)
			madvise(o->ring + start, end - start, MADV_DONTNEED);
		from += n;
	}
}

void output_close(struct output *o)
{
	if (o->closed)
		return;
	o->closed = true;
	while (o->last != NO_RECORD && !pinned(o) && o->held - record_len(o, o->tail) >= o->replay)
		drop_oldest(o);
	if (o->ring && o->last == NO_RECORD) {
		munmap(o->ring, o->cap);
		o->ring = NULL;
	} else if (o->ring) {
		release_pages(o, o->head, o->tail + o->cap);
	}
	wake_all(o);
}

bool output_closed(const struct output *o)
{
	return o->closed;
}

uint64_t output_total(const struct output *o, enum output_channel ch)
{
	return o->total[ch];
}

size_t output_held(const struct output *o)
{
	return o->held;
}

size_t output_memory(const struct output *o)
{
	size_t page = page_size();
	return sizeof *o + (o->ring ? ((size_t)(o->head - o->tail) / page + 1) * page : 0);
}

void output_attach(struct output *o, struct output_reader *r)
{
	uint64_t all = o->total[OUTPUT_STDOUT] + o->total[OUTPUT_STDERR] + o->total[OUTPUT_PTY];
	size_t after = o->held;
	r->log = o;
	r->at = o->tail;
	r->used = 0;
	while (o->last != NO_RECORD && r->at != o->last && after - record_len(o, r->at) >= o->replay) {
		after -= record_len(o, r->at);
		r->at = record_next(o, r->at);
	}
	r->lost = all > after;
	DL_APPEND(o->readers, r);
}

void output_attach_live(struct output *o, struct output_reader *r)
{
	r->log = o;
	r->lost = false;
	r->at = o->last == NO_RECORD ? o->head : o->last;
	r->used = o->last == NO_RECORD ? 0 : record_len(o, o->last);
	DL_APPEND(o->readers, r);
}

void output_detach(struct output_reader *r)
{
	if (!r->log)
		return;
	DL_DELETE(r->log->readers, r);
	r->log = NULL;
}

size_t output_readers(const struct output *o)
{
	struct output_reader *r;
	size_t n = 0;
	DL_FOREACH(o->readers, r)
	{
		n++;
	}
	return n;
}

bool output_next(struct output_reader *r, size_t max, struct output_span *s)
{
	struct output *o = r->log;
	if (o->last == NO_RECORD)
		return false;
	while (r->used == record_len(o, r->at)) {
		if (r->at == o->last)
			return false;
		r->at = record_next(o, r->at);
		r->used = 0;
	}
	uint64_t from = r->at + RECORD_HEAD + r->used;
	size_t n = record_len(o, r->at) - r->used;
	size_t first = o->cap - (size_t)(from & (o->cap - 1));
	if (n > first)
		n = first;
	s->channel = record_channel(o, r->at);
	s->p = at(o, from);
	s->n = n < max ? n : max;
	return true;
}

void output_taken(struct output_reader *r, size_t n)
{
	assert(r->used + n <= record_len(r->log, r->at));
	r->used += (uint32_t)n;
}

size_t output_behind(const struct output_reader *r)
{
	if (r->log->last == NO_RECORD)
		return 0;
	return (size_t)(r->log->head - (r->at + RECORD_HEAD + r->used));
}

struct output_reader *output_blocker(const struct output *o)
{
	struct output_reader *r, *min = slowest(o);
	if (!min)
		return NULL;
	DL_FOREACH(o->readers, r)
	{
		if (r != min && !r->passive && output_behind(r) == 0)
			return min;
	}
	return NULL;
}
