// SPDX-License-Identifier: Apache-2.0
// What a daemon reads back after a crash of the one before it: a process's record, an output log and an arena's head in which anything may
// stand. Refused, or something that can be worked with. The first byte chooses.
#include "daemon/core/output.h"
#include "daemon/core/proc_record.h"
#include "daemon/core/store_priv.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPLAY = 4096, RECORD = 4096, SLOTS = 3 };

// --- a record ---

// Whatever is taken is just what would be written.
static void record(const uint8_t *p, size_t n)
{
	struct proc_record r;
	struct buf again;
	int rc = proc_record_decode(&r, p, n);
	FUZZ_CHECK(rc == 0 || rc == -EPROTO);
	if (rc < 0) {
		FUZZ_CHECK(!r.asked.argv && !r.asked.env);
		return;
	}
	buf_init(&again, 0);
	proc_record_encode(&again, &r);
	FUZZ_CHECK(buf_len(&again) == n && memcmp(buf_data(&again), p, n) == 0);
	buf_release(&again);
	proc_record_release(&r);
}

// --- an arena with a log ---

static struct store *make(void)
{
	const struct store_sizes sizes = {.slots = SLOTS, .record = RECORD, .log = output_memory_size(REPLAY)};
	struct store *s = store_new(&sizes, 64);
	FUZZ_CHECK(s);
	store_serve(s, -1);
	return s;
}

// As another process finds it.
static int open_again(const struct store *s, struct store **out)
{
	*out = NULL;
	int memory = fcntl(s->memory, F_DUPFD_CLOEXEC, 3), event = fcntl(s->event, F_DUPFD_CLOEXEC, 3);
	FUZZ_CHECK(memory >= 0 && event >= 0);
	int rc = store_open(memory, event, out);
	FUZZ_CHECK(rc == 0 ? *out != NULL : rc == -EPROTO);
	if (rc == 0)
		store_serve(*out, -1);
	return rc;
}

static size_t read_all(struct output *o)
{
	struct output_reader r = {.at = 0};
	struct output_span s;
	size_t n = 0;
	volatile unsigned char seen = 0; // each byte has to be there
	output_attach(o, &r);
	while (output_next(&r, SIZE_MAX, &s)) {
		FUZZ_CHECK(s.n > 0 && s.channel < OUTPUT_CHANNELS);
		for (size_t i = 0; i < s.n; i++)
			seen = s.p[i];
		n += s.n;
		output_taken(&r, s.n);
	}
	(void)seen;
	FUZZ_CHECK(output_behind(&r) == 0 && n <= output_held(o) && (n == output_held(o) || n >= REPLAY));
	output_detach(&r);
	return n;
}

static size_t write_some(struct output *o, enum output_channel ch, size_t want)
{
	struct iovec iov[2];
	int count = 0;
	ssize_t room = output_room(o, want, iov, &count);
	FUZZ_CHECK(room > 0 && (size_t)room <= want && count >= 1 && count <= 2);
	output_reading(o, true);
	for (int i = 0; i < count; i++)
		memset(iov[i].iov_base, 'a' + (int)ch, iov[i].iov_len);
	output_filled(o, ch, (size_t)room);
	return (size_t)room;
}

// Writes as the bytes say: a length and a channel each.
static void write_pieces(struct output *o, const uint8_t **p, size_t *n, unsigned count)
{
	while (count-- > 0 && *n >= 2) {
		size_t want = 1 + (size_t)fuzz_choice(p, n) * fuzz_choice(p, n);
		write_some(o, (enum output_channel)(want % OUTPUT_CHANNELS), want);
	}
}

// Any bytes over what lies at P (ROOM bytes): pairs of a place and a value of 1, 4 or 8 bytes.
static void spoil(unsigned char *base, size_t room, const uint8_t *p, size_t n)
{
	while (n >= 4) {
		size_t at = fuzz_choice(&p, &n);
		at = (at | (size_t)fuzz_choice(&p, &n) << 8) * 4 % room;
		unsigned what = fuzz_choice(&p, &n);
		size_t len = what & 1 ? 1 : what & 2 ? 4 : 8;
		uint64_t v = 0;
		for (size_t i = 0; i < len && n > 0 && i < 1 + (what >> 5); i++)
			v |= (uint64_t)fuzz_choice(&p, &n) << 8 * i;
		if (what & 4)
			v = ~v;
		if (at + len <= room)
			memcpy(base + at, &v, len);
	}
}

// Mostly the front, where the indices lie, and what may lie on the card behind it.
static void spoil_log(const struct store_slot *slot, const uint8_t *p, size_t n)
{
	off_t offset;
	if (fuzz_choice(&p, &n) & 1) {
		spoil(store_log_front(slot), STORE_CARD, p, n);
		return;
	}
	int fd = store_log(slot, &offset);
	size_t size = output_memory_size(REPLAY);
	unsigned char *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	FUZZ_CHECK(m != MAP_FAILED);
	spoil(m, size, p, n);
	munmap(m, size);
}

static void log_again(struct store_slot *slot)
{
	struct output *o;
	int rc = output_take_back(&o, NULL, slot, REPLAY);
	FUZZ_CHECK(rc == 0 || rc == -EINVAL);
	if (rc < 0)
		return;
	read_all(o);
	// And goes on.
	for (int i = 0; i < 40; i++)
		write_some(o, (enum output_channel)(i % 2), 9000);
	FUZZ_CHECK(output_held(o) >= REPLAY && read_all(o) >= REPLAY);
	output_close(o);
	read_all(o);
	output_free(o);
}

static void output_log(const uint8_t *p, size_t n)
{
	struct store *s = make();
	struct store_slot *slot = store_take(s);
	struct output *o = slot ? output_new_in(slot, REPLAY) : NULL;
	FUZZ_CHECK(o);
	write_pieces(o, &p, &n, fuzz_choice(&p, &n) % 32);
	if (fuzz_choice(&p, &n) & 1)
		output_close(o);
	output_free(o);
	if (n)
		spoil_log(slot, p, n);
	log_again(slot);
	store_free(s);
}

// --- the head, the table, the records ---

static void look_through(struct store *s)
{
	size_t index, n, seen = 0, taken = 0;
	for (struct store_slot *slot = store_left(s, 0, &index); slot; slot = store_left(s, index + 1, &index)) {
		FUZZ_CHECK(index < SLOTS && ++seen <= SLOTS);
		const void *p = store_record_get(slot, &n);
		if (p && n)
			record(p, n);
		for (int e = 0; e < STORE_ENDS; e++)
			FUZZ_CHECK(store_end_take(slot, (enum store_end)e) < 0);
		store_release(slot);
	}
	while (store_take(s))
		FUZZ_CHECK(++taken <= SLOTS);
}

static void arena(const uint8_t *p, size_t n)
{
	struct store *s = make(), *again;
	for (unsigned i = fuzz_choice(&p, &n) % (SLOTS + 1); i > 0; i--) {
		struct store_slot *slot = store_take(s);
		FUZZ_CHECK(slot && store_record_put(slot, p, n < 200 ? n : 200) == (n ? 0 : -EMSGSIZE));
	}
	// Up to the logs, in words: the head, the table, the records.
	spoil((unsigned char *)s->base, (size_t)s->shape.log_at, p, n);
	if (open_again(s, &again) == 0) {
		FUZZ_CHECK(store_whole(again) && store_used_to(again) <= SLOTS);
		look_through(again);
		store_free(again);
	}
	store_free(s);
}

int fuzz_record(const uint8_t *p, size_t n)
{
	static void (*const kinds[])(const uint8_t *p, size_t n) = {record, output_log, arena};
	unsigned kind = fuzz_choice(&p, &n);
	kinds[kind % (sizeof kinds / sizeof *kinds)](p, n);
	return 0;
}
