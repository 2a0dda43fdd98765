// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/output.h"

#include "daemon/core/store.h"

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
#define MAGIC ((uint32_t)0x6c6f6731)
// Offsets do not come near it, so that sums of them do not wrap.
#define OFFSET_MAX ((uint64_t)1 << 62)
#define RING_MIN ((size_t)256 * 1024)
// A read into less room than this costs more than waiting for the reader.
#define ROOM_MIN ((size_t)16 * 1024)

struct index {
	uint64_t head; // offset behind the newest byte
	uint64_t tail; // the oldest record
	uint64_t last; // the newest record, or NO_RECORD; its length is what head says
	uint64_t total[OUTPUT_CHANNELS];
	uint64_t held; // bytes in the records from tail on, headers not counted
};

// The first page of a log in shared memory, all zero at first. An index is written into the place that does not hold, then TURN says
// that it does: whoever takes the log back finds one that is whole, and behind it bytes that were there before.
struct shared {
	uint32_t magic;
	uint32_t turn; // index[turn % 2] holds
	uint32_t reading;
	uint32_t lost;
	uint64_t cap;
	struct index index[2];
	uint64_t mark[OUTPUT_CHANNELS];
};

struct output {
	struct shared *shared; // in front of the ring, or NULL: a ring of our own
	unsigned char *ring;   // mapped at the first chunk
	size_t cap;            // power of two
	size_t replay;
	struct index ix;
	bool closed;
	bool lost;               // a read was cut by a crash
	struct store_slot *slot; // whose memory it is, or NULL
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

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t ring_size(size_t replay)
{
	size_t cap = RING_MIN;
	while (cap / 4 < replay && cap < SIZE_MAX / 4)
		cap *= 2;
	return cap;
}

size_t output_memory_size(size_t replay)
{
	return page_size() + ring_size(replay);
}

struct output *output_new_in(struct store_slot *slot, size_t replay)
{
	struct output *o = calloc(1, sizeof *o);
	if (!o)
		return NULL;
	o->replay = replay;
	o->cap = ring_size(replay);
	o->ix.last = NO_RECORD;
	o->slot = slot;
	return o;
}

struct output *output_new(size_t replay)
{
	return output_new_in(NULL, replay);
}

int output_map(struct output *o)
{
	if (o->ring)
		return 0;
	int flags = o->slot ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd = -1;
	size_t front = o->slot ? page_size() : 0;
	off_t offset = 0;
	if (o->slot)
		fd = store_log(o->slot, &offset);
	unsigned char *m = mmap(NULL, front + o->cap, PROT_READ | PROT_WRITE, flags, fd, offset);
	if (m == MAP_FAILED)
		return -ENOMEM;
	o->ring = m + front;
	o->shared = o->slot ? (struct shared *)m : NULL;
	return 0;
}

static void unmap_ring(struct output *o)
{
	if (o->shared)
		munmap(o->shared, page_size() + o->cap);
	else if (o->ring)
		munmap(o->ring, o->cap);
	o->shared = NULL;
	o->ring = NULL;
}

void output_free(struct output *o)
{
	if (!o)
		return;
	assert(!o->readers);
	unmap_ring(o);
	free(o);
}

// What is in O holds from now on, also for a daemon that takes it back.
static void publish(struct output *o)
{
	struct shared *s = o->shared;
	if (!s)
		return;
	if (s->magic != MAGIC) {
		s->cap = o->cap;
		store_set(&s->magic, MAGIC);
	}
	uint32_t next = s->turn + 1;
	if (!next)
		next = 2;
	s->index[next % 2] = o->ix;
	store_set(&s->turn, next);
}

void output_reading(struct output *o, bool on)
{
	if (o->shared)
		store_set(&o->shared->reading, on);
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
	o->ix.held -= record_len(o, o->ix.tail);
	if (o->ix.tail == o->ix.last) {
		o->ix.tail = o->ix.head = align4(o->ix.head);
		o->ix.last = NO_RECORD;
	} else {
		o->ix.tail = record_next(o, o->ix.tail);
	}
}

// A record that a cursor stands in stays, even when all of it was read.
static bool pinned(const struct output *o)
{
	const struct output_reader *r = slowest(o);
	return r && r->at <= o->ix.tail;
}

static size_t room_left(const struct output *o)
{
	size_t used = (size_t)(align4(o->ix.head) - o->ix.tail) + RECORD_HEAD;
	return used < o->cap ? o->cap - used : 0;
}

ssize_t output_room(struct output *o, size_t want, struct iovec iov[2], int *count)
{
	int rc = output_map(o);
	if (rc < 0)
		return rc;
	uint64_t tail = o->ix.tail;
	while (room_left(o) < want && o->ix.last != NO_RECORD && !pinned(o))
		drop_oldest(o);
	if (o->ix.tail != tail)
		publish(o); // before anything is written over it
	size_t room = room_left(o);
	if (room < want && room < ROOM_MIN)
		return 0;
	if (room > want)
		room = want;
	// Where the bytes go does not depend on their channel: a new record's header is put in front when they are published, so the
	// room begins behind the place of that header.
	uint64_t from = align4(o->ix.head) + RECORD_HEAD;
	size_t first = o->cap - (size_t)(from & (o->cap - 1));
	iov[0] = (struct iovec){.iov_base = at(o, from), .iov_len = room < first ? room : first};
	*count = 1;
	if (room > first) {
		iov[1] = (struct iovec){.iov_base = o->ring, .iov_len = room - first};
		*count = 2;
	}
	return (ssize_t)room;
}

void output_wake(struct output *o)
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
	uint64_t from = align4(o->ix.head);
	o->ix.total[ch] += n;
	o->ix.held += n;
	// A short piece of the same channel joins the newest record: moved down over the header that it then does not need.
	if (o->ix.last != NO_RECORD && n <= 512 && record_channel(o, o->ix.last) == ch &&
		record_len(o, o->ix.last) + n <= RECORD_MAX) {
		uint32_t len = record_len(o, o->ix.last);
		for (size_t i = 0; i < n; i++)
			*at(o, o->ix.head + i) = *at(o, from + RECORD_HEAD + i);
		o->ix.head += n;
		record_put(o, o->ix.last, ch, len + (uint32_t)n);
	} else {
		record_put(o, from, ch, (uint32_t)n);
		o->ix.last = from;
		o->ix.head = from + RECORD_HEAD + n;
	}
	publish(o);
	output_reading(o, false);
	output_wake(o);
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
		if (start < end && o->slot)
			store_log_punch(o->slot, page + start, end - start);
		else if (start < end)
			madvise(o->ring + start, end - start, MADV_DONTNEED);
		from += n;
	}
}

void output_close(struct output *o)
{
	if (o->closed)
		return;
	o->closed = true;
	uint64_t tail = o->ix.tail;
	while (o->ix.last != NO_RECORD && !pinned(o) && o->ix.held - record_len(o, o->ix.tail) >= o->replay)
		drop_oldest(o);
	if (o->ix.tail != tail)
		publish(o);
	// A ring that has not gone round has no page behind its head.
	if (o->ring && o->ix.head <= o->cap)
		release_pages(o, 0, o->ix.tail);
	else if (o->ring)
		release_pages(o, o->ix.head, o->ix.tail + o->cap);
	if (o->ix.last == NO_RECORD)
		unmap_ring(o);
	output_wake(o);
}

bool output_closed(const struct output *o)
{
	return o->closed;
}

uint64_t output_total(const struct output *o, enum output_channel ch)
{
	return o->ix.total[ch];
}

size_t output_held(const struct output *o)
{
	return o->ix.held;
}

size_t output_memory(const struct output *o)
{
	size_t page = page_size();
	return sizeof *o + (o->ring ? ((size_t)(o->ix.head - o->ix.tail) / page + 1) * page : 0);
}

bool output_lost(const struct output *o)
{
	return o->lost;
}

void output_lose(struct output *o)
{
	o->lost = true;
	if (o->shared)
		store_set(&o->shared->lost, 1);
}

static uint64_t total(const struct output *o)
{
	return o->ix.total[OUTPUT_STDOUT] + o->ix.total[OUTPUT_STDERR] + o->ix.total[OUTPUT_PTY];
}

void output_attach(struct output *o, struct output_reader *r)
{
	uint64_t after = o->ix.held;
	r->log = o;
	r->at = o->ix.tail;
	r->used = 0;
	while (o->ix.last != NO_RECORD && r->at != o->ix.last && after - record_len(o, r->at) >= o->replay) {
		after -= record_len(o, r->at);
		r->at = record_next(o, r->at);
	}
	r->lost = o->lost || total(o) > after;
	DL_APPEND(o->readers, r);
}

void output_attach_from(
	struct output *o, struct output_reader *r, uint64_t from[OUTPUT_CHANNELS], uint64_t skip[OUTPUT_CHANNELS])
{
	uint64_t first[OUTPUT_CHANNELS];
	memcpy(first, o->ix.total, sizeof first);
	for (uint64_t off = o->ix.tail; o->ix.last != NO_RECORD; off = record_next(o, off)) {
		first[record_channel(o, off)] -= record_len(o, off);
		if (off == o->ix.last)
			break;
	}
	r->log = o;
	r->at = o->ix.tail;
	r->used = 0;
	r->lost = o->lost;
	for (int ch = 0; ch < OUTPUT_CHANNELS; ch++) {
		skip[ch] = from[ch] > first[ch] ? from[ch] - first[ch] : 0;
		r->lost |= from[ch] < first[ch];
		from[ch] = from[ch] < first[ch] ? first[ch] : from[ch];
	}
	DL_APPEND(o->readers, r);
}

void output_mark(struct output *o, enum output_channel ch, uint64_t n)
{
	if (o->shared)
		__atomic_store_n(&o->shared->mark[ch], n, __ATOMIC_RELEASE);
}

uint64_t output_marked(const struct output *o, enum output_channel ch)
{
	return o->shared ? __atomic_load_n(&o->shared->mark[ch], __ATOMIC_ACQUIRE) : 0;
}

void output_attach_live(struct output *o, struct output_reader *r)
{
	r->log = o;
	r->lost = o->lost;
	r->at = o->ix.last == NO_RECORD ? o->ix.head : o->ix.last;
	r->used = o->ix.last == NO_RECORD ? 0 : record_len(o, o->ix.last);
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
	if (o->ix.last == NO_RECORD)
		return false;
	while (r->used == record_len(o, r->at)) {
		if (r->at == o->ix.last)
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
	if (r->log->ix.last == NO_RECORD)
		return 0;
	return (size_t)(r->log->ix.head - (r->at + RECORD_HEAD + r->used));
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

// --- taken back ---

// The records of a log that was just mapped, one by one, and what they hold together. The newest one's header may have been of a write
// that was cut: its length is what the index says.
static bool records_make_sense(struct output *o, uint64_t sum[OUTPUT_CHANNELS])
{
	const struct index *ix = &o->ix;
	for (uint64_t off = ix->tail; off <= ix->last; off = record_next(o, off)) {
		uint32_t word = record_word(o, off);
		uint64_t len = off == ix->last ? ix->head - off - RECORD_HEAD : word & 0xffffffu;
		if (word >> 24 >= OUTPUT_CHANNELS || !len || len > 0xffffffu)
			return false;
		if (off == ix->last) {
			record_put(o, off, (enum output_channel)(word >> 24), (uint32_t)len);
			sum[word >> 24] += len;
			return true;
		}
		if (off + RECORD_HEAD + len > ix->last)
			return false;
		sum[word >> 24] += len;
	}
	return false; // the newest one was not met
}

static bool makes_sense(struct output *o)
{
	const struct index *ix = &o->ix;
	uint64_t sum[OUTPUT_CHANNELS] = {0};
	if (o->shared->magic != MAGIC || o->shared->cap != o->cap)
		return false;
	if (ix->head > OFFSET_MAX || ix->tail > ix->head || ix->head - ix->tail > o->cap || ix->tail % 4)
		return false;
	if (ix->last == NO_RECORD ? ix->tail != ix->head
				  : ix->last < ix->tail || ix->last % 4 || ix->head < ix->last + RECORD_HEAD ||
					    !records_make_sense(o, sum))
		return false;
	uint64_t held = 0;
	for (int ch = 0; ch < OUTPUT_CHANNELS; ch++) {
		if (ix->total[ch] > OFFSET_MAX || ix->total[ch] < sum[ch])
			return false;
		held += sum[ch];
	}
	return held == ix->held;
}

int output_take_back(struct output **out, struct store_slot *slot, size_t replay)
{
	struct output *o = output_new_in(slot, replay);
	*out = NULL;
	int rc = o ? output_map(o) : -ENOMEM;
	if (rc == 0) {
		struct shared *s = o->shared;
		uint32_t turn = store_get(&s->turn);
		if (turn)
			o->ix = s->index[turn % 2];
		if (s->lost || s->reading)
			output_lose(o);
		store_set(&s->reading, 0);
		rc = turn && !makes_sense(o) ? -EINVAL : 0;
	}
	if (rc < 0) {
		output_free(o);
		return rc;
	}
	*out = o;
	return 0;
}
