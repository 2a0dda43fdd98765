// SPDX-License-Identifier: Apache-2.0
// What is left of a log that has ended, and what a later daemon finds of one.
#include "daemon/core/output_priv.h"

#include <errno.h>
#include <sys/mman.h>

// Less than that too much is not worth a cut.
#define CUT_MIN 16u

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
			store_log_punch(o->slot, start, end - start);
		else if (start < end)
			madvise(o->ring + start, end - start, MADV_DONTNEED);
		from += n;
	}
}

// How much of the oldest record can go: to where a new header would be aligned, and not in the middle of a character if that can be.
static uint32_t spare_of(const struct output *o)
{
	uint32_t spare = (uint32_t)(o->ix.held - o->replay) & ~3u;
	for (uint32_t less = 0; less < CUT_MIN; less += 4) {
		if ((*at(o, o->ix.tail + RECORD_HEAD + spare - less) & 0xc0) != 0x80)
			return spare - less;
	}
	return spare;
}

// The oldest record begins later. Its new header is written over what it loses: a crash meanwhile has cut it.
static void cut_oldest(struct output *o)
{
	uint64_t from = o->ix.tail;
	uint32_t spare = spare_of(o);
	output_reading(o, true);
	record_put(o, from + spare, record_channel(o, from), record_len(o, from) - spare);
	o->ix.last = o->ix.last == from ? from + spare : o->ix.last;
	o->ix.tail = from + spare;
	o->ix.held -= spare;
	output_publish(o);
	output_reading(o, false);
}

// What replay does not need and no reader stands in.
static void drop_spare(struct output *o)
{
	uint64_t tail = o->ix.tail;
	while (o->ix.last != NO_RECORD && !output_pinned(o) && o->ix.held - record_len(o, o->ix.tail) >= o->replay)
		output_drop_oldest(o);
	if (o->ix.tail != tail)
		output_publish(o);
	if (o->ix.last != NO_RECORD && !output_pinned(o) && o->ix.held >= o->replay + 2 * CUT_MIN)
		cut_oldest(o);
	// A ring that has not gone round has no page behind its head.
	if (o->ix.head <= o->cap)
		release_pages(o, 0, o->ix.tail);
	else
		release_pages(o, o->ix.head, o->ix.tail + o->cap);
}

// True if all of it lies in the slot's room from now on.
static bool move_to_card(struct output *o)
{
	size_t room, n = (size_t)(o->ix.head - o->ix.tail);
	unsigned char *card = store_log_room(o->slot, &room);
	if (n > room)
		return false;
	size_t first = o->cap - (size_t)(o->ix.tail & (o->cap - 1));
	memcpy(card, at(o, o->ix.tail), n < first ? n : first);
	if (n > first)
		memcpy(card + first, o->ring, n - first);
	output_unmap(o);
	o->ring = card;
	o->ix.head -= o->ix.tail;
	o->ix.last -= o->ix.tail;
	o->ix.tail = 0;
	o->ix.card = 1;
	output_publish(o);
	store_log_clear(o->slot);
	return true;
}

void output_settle(struct output *o)
{
	if (!o->ring || o->ix.card)
		return;
	drop_spare(o);
	if (o->ix.last == NO_RECORD) {
		output_unmap(o);
		if (o->slot)
			store_log_clear(o->slot);
	} else if (o->slot && !o->readers && !move_to_card(o)) {
		output_unmap(o);
	}
}

void output_close(struct output *o)
{
	if (o->closed)
		return;
	o->closed = true;
	output_settle(o);
	output_wake(o);
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
	if (o->shared->magic != MAGIC || o->shared->cap != o->cap || ix->card)
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

// What had ended and lies in the slot's room is in the ring again, where the rest is done with it as with any other. False if it makes no sense.
static bool back_from_card(struct output *o)
{
	size_t room;
	const unsigned char *card = store_log_room(o->slot, &room);
	bool fits = o->ix.card == 1 && !o->ix.tail && o->ix.head <= room;
	o->ix.card = 0;
	if (!fits)
		return false;
	store_log_used(o->slot);
	memcpy(o->ring, card, (size_t)o->ix.head);
	if (!makes_sense(o))
		return false;
	output_publish(o);
	return true;
}

int output_take_back(struct output **out, void *mem, struct store_slot *slot, size_t replay)
{
	struct output *o = mem ? output_place(mem, slot, replay) : output_new_in(slot, replay);
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
		if (turn && !(o->ix.card ? back_from_card(o) : makes_sense(o)))
			rc = -EINVAL;
	}
	if (rc < 0) {
		output_free(o);
		return rc;
	}
	*out = o;
	return 0;
}
