// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/output_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <utlist.h>

#define RECORD_MAX ((uint32_t)32 * 1024)
#define RING_MIN ((size_t)256 * 1024)
// A read into less room than this costs more than waiting for the reader.
#define ROOM_MIN ((size_t)16 * 1024)

static size_t ring_size(size_t replay)
{
	size_t cap = RING_MIN;
	while (cap / 4 < replay && cap < SIZE_MAX / 4)
		cap *= 2;
	return cap;
}

size_t output_memory_size(size_t replay)
{
	return ring_size(replay);
}

size_t output_place_size(void)
{
	return sizeof(struct output);
}

struct output *output_place(void *mem, struct store_slot *slot, size_t replay)
{
	struct output *o = mem;
	*o = (struct output){.replay = replay, .cap = ring_size(replay), .slot = slot};
	o->ix.last = NO_RECORD;
	o->shared = slot ? store_log_front(slot) : NULL;
	return o;
}

struct output *output_new_in(struct store_slot *slot, size_t replay)
{
	void *mem = malloc(sizeof(struct output));
	if (!mem)
		return NULL;
	struct output *o = output_place(mem, slot, replay);
	o->own = true;
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
	off_t offset = 0;
	if (o->slot)
		fd = store_log(o->slot, &offset);
	unsigned char *m = mmap(NULL, o->cap, PROT_READ | PROT_WRITE, flags, fd, offset);
	if (m == MAP_FAILED)
		return -ENOMEM;
	o->ring = m;
	return 0;
}

void output_unmap(struct output *o)
{
	if (o->ring && !o->ix.card)
		munmap(o->ring, o->cap);
	o->ring = NULL;
}

void output_free(struct output *o)
{
	if (!o)
		return;
	assert(!o->readers);
	output_unmap(o);
	if (o->own)
		free(o);
}

void output_publish(struct output *o)
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

void output_drop_oldest(struct output *o)
{
	o->ix.held -= record_len(o, o->ix.tail);
	if (o->ix.tail == o->ix.last) {
		o->ix.tail = o->ix.head = align4(o->ix.head);
		o->ix.last = NO_RECORD;
	} else {
		o->ix.tail = record_next(o, o->ix.tail);
	}
}

bool output_pinned(const struct output *o)
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
	while (room_left(o) < want && o->ix.last != NO_RECORD && !output_pinned(o))
		output_drop_oldest(o);
	if (o->ix.tail != tail)
		output_publish(o); // before anything is written over it
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
	if (o->slot)
		store_log_used(o->slot);
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
	output_publish(o);
	output_reading(o, false);
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
	bool pages = o->ix.last != NO_RECORD && !o->ix.card;
	return sizeof *o + (pages ? ((size_t)(o->ix.head - o->ix.tail) / page + 1) * page : 0);
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

// False: what it holds cannot be mapped, and R, which is attached, is told that it is lost.
static bool at_hand(struct output *o, struct output_reader *r)
{
	if (o->ix.last == NO_RECORD || output_map(o) == 0)
		return true;
	r->log = o;
	r->at = o->ix.head;
	r->used = 0;
	r->lost = true;
	DL_APPEND(o->readers, r);
	return false;
}

void output_attach(struct output *o, struct output_reader *r)
{
	if (!at_hand(o, r))
		return;
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
	memset(skip, 0, OUTPUT_CHANNELS * sizeof *skip);
	if (!at_hand(o, r))
		return;
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
	if (!at_hand(o, r))
		return;
	r->log = o;
	r->lost = o->lost;
	r->at = o->ix.last == NO_RECORD ? o->ix.head : o->ix.last;
	r->used = o->ix.last == NO_RECORD ? 0 : record_len(o, o->ix.last);
	DL_APPEND(o->readers, r);
}

void output_detach(struct output_reader *r)
{
	struct output *o = r->log;
	if (!o)
		return;
	DL_DELETE(o->readers, r);
	r->log = NULL;
	if (o->closed && !o->readers)
		output_settle(o);
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
	if (o->ix.last == NO_RECORD || r->at >= o->ix.head)
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
	if (r->log->ix.last == NO_RECORD || r->at >= r->log->ix.head)
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
