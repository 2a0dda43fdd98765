// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/output.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, LOG_MAX = 3 * 1024 * 1024, READERS = 5 };

static const size_t replays[] = {0, 1, 1000, 64 * 1024, 200 * 1024};

// What was written, plainly.
struct model {
	struct output *o;
	unsigned char *bytes, *channels;
	size_t n, replay;
	uint64_t total[OUTPUT_CHANNELS];
	uint32_t rnd;
	bool tiny; // records of a byte or two cost more than they hold: replay keeps less
	struct model_reader {
		struct output_reader r; // first: the callbacks get it
		bool on;
		size_t at;
		int woken;
	} readers[READERS];
};

// For what is asked a million times: ck_assert makes a system call even when all is well.
static void must(bool ok, const char *what)
{
	if (!ok)
		ck_abort_msg("%s", what);
}

static uint32_t below(struct model *m, uint32_t limit)
{
	m->rnd ^= m->rnd << 13;
	m->rnd ^= m->rnd >> 17;
	m->rnd ^= m->rnd << 5;
	return m->rnd % limit;
}

static void count_wake(struct output_reader *r)
{
	((struct model_reader *)r)->woken++;
}

static void never_cut(struct output_reader *r)
{
	(void)r;
	ck_abort_msg("the log cuts nobody by itself");
}

static void model_init(struct model *m, size_t replay, uint32_t seed)
{
	memset(m, 0, sizeof *m);
	m->rnd = seed;
	m->replay = replay;
	m->o = output_new(replay);
	m->bytes = malloc(LOG_MAX);
	m->channels = malloc(LOG_MAX);
	ck_assert(m->o && m->bytes && m->channels);
	for (int i = 0; i < READERS; i++) {
		m->readers[i].r.wake = count_wake;
		m->readers[i].r.cut = never_cut;
	}
}

static void model_release(struct model *m)
{
	for (int i = 0; i < READERS; i++)
		output_detach(&m->readers[i].r);
	output_free(m->o);
	free(m->bytes);
	free(m->channels);
}

static bool all_is_read(const struct model *m)
{
	for (int i = 0; i < READERS; i++) {
		if (m->readers[i].on && m->readers[i].at < m->n)
			return false;
	}
	return true;
}

// Where there is no room somebody lags; and if somebody else does not, the one most behind is named.
static void check_full(struct model *m)
{
	size_t min = m->n;
	bool waiting = false;
	ck_assert(!all_is_read(m));
	for (int i = 0; i < READERS; i++) {
		const struct model_reader *r = &m->readers[i];
		if (r->on && r->at < min)
			min = r->at;
		waiting |= r->on && r->at == m->n;
	}
	const struct model_reader *b = (const struct model_reader *)output_blocker(m->o);
	ck_assert_int_eq(b != NULL, waiting);
	if (b)
		ck_assert_uint_lt(b->at, min + CHUNK); // the same record as the last one's, at least
}

static void write_some(struct model *m, enum output_channel ch, size_t want)
{
	struct iovec iov[2];
	int count = 0;
	ssize_t room = output_room(m->o, want, iov, &count);
	must(room >= 0, "room is an error");
	if (room == 0) {
		check_full(m);
		return;
	}
	size_t sum = iov[0].iov_len + (count == 2 ? iov[1].iov_len : 0);
	must((size_t)room <= want && sum == (size_t)room, "room and pieces differ");
	size_t n = below(m, 4) ? (size_t)room : below(m, (uint32_t)room + 1), done = 0;
	for (int i = 0; i < count; i++) {
		unsigned char *p = iov[i].iov_base;
		for (size_t k = 0; k < iov[i].iov_len && done < n; k++, done++) {
			p[k] = m->bytes[m->n + done] = (unsigned char)below(m, 251);
			m->channels[m->n + done] = (unsigned char)ch;
		}
	}
	m->n += n;
	m->total[ch] += n;
	int before = m->readers[0].woken;
	output_filled(m->o, ch, n);
	must(m->readers[0].woken - before == (m->readers[0].on && n > 0), "woken once a write");
}

// Reads a span for R and takes some of it; false at the end of the log.
static bool read_some(struct model *m, struct model_reader *r, size_t max)
{
	struct output_span s;
	if (!output_next(&r->r, max, &s)) {
		must(r->at == m->n && output_behind(&r->r) == 0, "the end is not the end");
		return false;
	}
	must(s.n > 0 && s.n <= max && r->at + s.n <= m->n, "a span out of bounds");
	must(output_behind(&r->r) >= s.n, "behind by less than the span");
	must(memcmp(s.p, m->bytes + r->at, s.n) == 0, "other bytes");
	for (size_t i = 0; i < s.n; i++)
		must(m->channels[r->at + i] == (unsigned char)s.channel, "another channel");
	size_t n = below(m, 3) ? s.n : below(m, (uint32_t)s.n + 1);
	output_taken(&r->r, n);
	r->at += n;
	return true;
}

// What a reader that attaches now is given, counted by one that does.
static size_t available(struct output *o)
{
	struct output_reader probe = {.wake = count_wake, .cut = never_cut};
	struct output_span s;
	size_t n = 0;
	output_attach(o, &probe);
	while (output_next(&probe, SIZE_MAX, &s)) {
		n += s.n;
		output_taken(&probe, s.n);
	}
	output_detach(&probe);
	return n;
}

static void attach(struct model *m, struct model_reader *r, bool live)
{
	size_t kept = available(m->o), least = m->n < m->replay ? m->n : m->replay;
	r->on = true;
	if (live) {
		output_attach_live(m->o, &r->r);
		r->at = m->n;
		ck_assert(!r->r.lost);
		return;
	}
	output_attach(m->o, &r->r);
	r->at = m->n - kept;
	ck_assert_int_eq(r->r.lost, r->at > 0);
	ck_assert_uint_le(kept, output_held(m->o));
	ck_assert_uint_lt(kept, m->replay + CHUNK + 1);
	if (!m->tiny)
		ck_assert_msg(kept >= least, "%zu of %zu kept, replay %zu", kept, m->n, m->replay);
}

static void step(struct model *m)
{
	static const uint32_t sizes[] = {2, 16, 600, 5000, CHUNK + 1};
	uint32_t what = below(m, 100);
	struct model_reader *r = &m->readers[below(m, READERS)];
	if (what < 45)
		write_some(m, (enum output_channel)(below(m, m->tiny ? 3 : 1)), 1 + below(m, sizes[below(m, 5)]));
	else if (what < 90 && r->on)
		read_some(m, r, below(m, 2) ? SIZE_MAX : 1 + below(m, 4000));
	else if (what >= 95 && r->on) {
		output_detach(&r->r);
		r->on = false;
	} else if (what >= 90 && !r->on)
		attach(m, r, below(m, 3) == 0);
}

START_TEST(readers_see_what_a_plain_log_holds)
{
	struct model m;
	model_init(&m, replays[_i % 5], 2463534242u + (uint32_t)_i);
	m.tiny = _i >= 5;
	for (int i = 0; i < 4000 && m.n + CHUNK <= LOG_MAX; i++)
		step(&m);
	ck_assert_uint_gt(m.n, 600 * 1024); // the ring has gone round
	output_close(m.o);
	ck_assert(output_closed(m.o));
	for (int i = 0; i < READERS; i++) {
		while (m.readers[i].on && read_some(&m, &m.readers[i], SIZE_MAX))
			;
	}
	for (int ch = 0; ch < OUTPUT_CHANNELS; ch++)
		ck_assert_uint_eq(output_total(m.o, (enum output_channel)ch), m.total[ch]);
	model_release(&m);
}
END_TEST

// One channel in pieces of every size keeps at least replay bytes, through any number of rounds.
START_TEST(replay_is_kept_in_full)
{
	static const size_t pieces[] = {1, 3, 511, 512, 513, 4096, 32768, 65535, 65536};
	struct model m;
	for (size_t i = 0; i < sizeof replays / sizeof *replays; i++) {
		model_init(&m, replays[i], 77);
		for (int k = 0; m.n + CHUNK <= LOG_MAX / 2; k++) {
			write_some(&m, OUTPUT_STDERR, pieces[_i]);
			if (k % 997 == 0) {
				attach(&m, &m.readers[1], false);
				output_detach(&m.readers[1].r);
				m.readers[1].on = false;
			}
		}
		output_close(m.o);
		attach(&m, &m.readers[1], false);
		model_release(&m);
	}
}
END_TEST

START_TEST(a_reader_that_takes_nothing_stops_the_writer)
{
	struct model m;
	struct iovec iov[2];
	int count;
	model_init(&m, 0, 5);
	attach(&m, &m.readers[0], false);
	while (output_room(m.o, CHUNK, iov, &count) > 0)
		write_some(&m, OUTPUT_STDOUT, CHUNK);
	ck_assert_uint_gt(m.n, 2 * CHUNK);
	ck_assert_ptr_null(output_blocker(m.o)); // nobody waits for it
	attach(&m, &m.readers[1], true);
	ck_assert_ptr_eq(output_blocker(m.o), &m.readers[0].r);
	ck_assert_uint_eq(output_readers(m.o), 2);
	output_detach(&m.readers[0].r);
	m.readers[0].on = false;
	ck_assert_ptr_null(output_blocker(m.o));
	ck_assert_int_eq(output_room(m.o, CHUNK, iov, &count), CHUNK);
	model_release(&m);
}
END_TEST

// Whoever reads everything is never short of room, whatever the records look like.
START_TEST(a_reader_that_keeps_up_never_stops_the_writer)
{
	struct model m;
	struct iovec iov[2];
	int count;
	model_init(&m, 64 * 1024, 9);
	m.tiny = true;
	attach(&m, &m.readers[0], false);
	for (int i = 0; i < 20000 && m.n + CHUNK <= LOG_MAX; i++) {
		must(output_room(m.o, CHUNK, iov, &count) == CHUNK, "no room");
		write_some(&m, (enum output_channel)(i % 3), i % 100 ? 1 + below(&m, 20) : CHUNK);
		while (read_some(&m, &m.readers[0], SIZE_MAX))
			;
	}
	model_release(&m);
}
END_TEST

static void read_all_and_leave(struct output_reader *r)
{
	struct output_span s;
	while (output_next(r, 3, &s))
		output_taken(r, s.n);
	((struct model_reader *)r)->woken++;
	if (output_closed(r->log))
		output_detach(r);
}

START_TEST(a_reader_may_read_and_detach_when_woken)
{
	struct model m;
	model_init(&m, 0, 11);
	for (int i = 0; i < 3; i++) {
		m.readers[i].r.wake = read_all_and_leave;
		output_attach(m.o, &m.readers[i].r);
	}
	struct iovec iov[2];
	int count;
	ck_assert_int_eq(output_room(m.o, 10, iov, &count), 10);
	memset(iov[0].iov_base, 'x', 10);
	output_filled(m.o, OUTPUT_PTY, 10);
	output_close(m.o);
	output_close(m.o); // once is enough
	ck_assert_uint_eq(output_readers(m.o), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(m.readers[i].woken, 2);
	model_release(&m);
}
END_TEST

// Pages of the log's mapping that are resident. It is found by its address: the room lies in it.
static size_t resident(const unsigned char *ring, size_t cap)
{
	unsigned char vec[1024];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
	if (mincore((void *)((uintptr_t)ring & ~(page - 1)), cap, vec) < 0)
		return 0;
	for (size_t i = 0; i < cap / page; i++)
		n += vec[i] & 1;
	return n * page;
}

START_TEST(close_gives_memory_back)
{
	enum { RING = 256 * 1024 };
	struct model m;
	struct iovec iov[2];
	int count;
	model_init(&m, 10000, 13);
	ck_assert_uint_lt(output_memory(m.o), 1000);
	ck_assert_int_eq(output_room(m.o, 1, iov, &count), 1);
	const unsigned char *ring = iov[0].iov_base;
	for (int i = 0; i < 500 + 37 * _i; i++)
		write_some(&m, OUTPUT_STDOUT, 4000);
	ck_assert_uint_ge(resident(ring, RING), RING - 8192);
	output_close(m.o);
	size_t kept = available(m.o);
	ck_assert(kept >= 10000 && kept < 10000 + 4000);
	ck_assert_uint_le(output_memory(m.o), 10000 + 4000 + 2 * 4096 + 1000);
	ck_assert_uint_le(resident(ring, RING), 10000 + 4000 + 3 * 4096);
	m.n = m.n < LOG_MAX ? m.n : 0;
	attach(&m, &m.readers[0], false);
	while (read_some(&m, &m.readers[0], SIZE_MAX))
		;
	model_release(&m);
}
END_TEST

START_TEST(close_without_replay_keeps_nothing)
{
	struct model m;
	model_init(&m, 0, 17);
	write_some(&m, OUTPUT_STDOUT, CHUNK);
	ck_assert_uint_gt(output_memory(m.o), 0);
	output_close(m.o);
	ck_assert_uint_eq(output_held(m.o), 0);
	ck_assert_uint_lt(output_memory(m.o), 1000);
	attach(&m, &m.readers[0], false);
	ck_assert(!read_some(&m, &m.readers[0], SIZE_MAX));
	model_release(&m);
}
END_TEST

START_TEST(no_mapping_is_enomem_and_may_succeed_later)
{
	struct model m;
	struct iovec iov[2];
	int count;
	struct rlimit old, none = {0, RLIM_INFINITY};
	model_init(&m, 8 * 1024 * 1024, 19); // too much for what malloc has in store
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &old), 0);
	none.rlim_max = old.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	ssize_t room = output_room(m.o, CHUNK, iov, &count);
	size_t memory = output_memory(m.o);
	setrlimit(RLIMIT_AS, &old);
	ck_assert_int_eq(room, -ENOMEM);
	ck_assert_uint_lt(memory, 1000);
	attach(&m, &m.readers[0], false);
	ck_assert(!read_some(&m, &m.readers[0], SIZE_MAX));
	write_some(&m, OUTPUT_STDOUT, CHUNK);
	while (read_some(&m, &m.readers[0], SIZE_MAX))
		;
	output_close(m.o);
	model_release(&m);
}
END_TEST

static int make_one(void *arg)
{
	(void)arg;
	struct output *o = output_new(0);
	output_free(o);
	return o ? 0 : -ENOMEM;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(make_one, NULL);
	output_free(NULL);
	struct output_reader never = {.wake = count_wake};
	output_detach(&never);
}
END_TEST

Suite *output_suite(void)
{
	Suite *s = suite_create("output");
	TCase *t = tcase_create("log");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, readers_see_what_a_plain_log_holds, 0, 20);
	tcase_add_loop_test(t, replay_is_kept_in_full, 0, 9);
	tcase_add_test(t, a_reader_that_takes_nothing_stops_the_writer);
	tcase_add_test(t, a_reader_that_keeps_up_never_stops_the_writer);
	tcase_add_test(t, a_reader_may_read_and_detach_when_woken);
	tcase_add_loop_test(t, close_gives_memory_back, 0, 4);
	tcase_add_test(t, close_without_replay_keeps_nothing);
	tcase_add_test(t, no_mapping_is_enomem_and_may_succeed_later);
	tcase_add_test(t, out_of_memory);
	return s;
}
