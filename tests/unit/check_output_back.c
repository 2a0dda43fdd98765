// SPDX-License-Identifier: Apache-2.0
// A log in a store's slot, taken back: after every byte, at every instruction, with everything in it damaged.
#include "daemon/core/output.h"
#include "daemon/core/store.h"
#include "suites.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOG_MAX = 2 * 1024 * 1024 };

struct kit {
	struct store *store;
	struct store_slot *slot;
	struct output *o;
	unsigned char *bytes; // what was written, plainly
	size_t n, replay;
	uint32_t rnd;
};

static uint32_t below(struct kit *k, uint32_t limit)
{
	k->rnd ^= k->rnd << 13;
	k->rnd ^= k->rnd >> 17;
	k->rnd ^= k->rnd << 5;
	return k->rnd % limit;
}

static void kit_init(struct kit *k, size_t replay)
{
	struct store_sizes sizes = {.slots = 2, .record = 4096, .log = output_memory_size(replay)};
	*k = (struct kit){.replay = replay, .rnd = 2463534242u};
	k->store = store_new(&sizes, 4096);
	ck_assert_ptr_nonnull(k->store);
	k->slot = store_take(k->store);
	k->o = output_new_in(k->slot, replay);
	k->bytes = malloc(LOG_MAX);
	ck_assert(k->slot && k->o && k->bytes);
}

static void kit_release(struct kit *k)
{
	output_free(k->o);
	free(k->bytes);
	store_free(k->store);
}

static void nothing(struct output_reader *r)
{
	(void)r;
}

static ssize_t copy_in(struct kit *k, const unsigned char *p, size_t n)
{
	struct iovec iov[2];
	int count;
	ssize_t room = output_room(k->o, n, iov, &count);
	if (room < (ssize_t)n)
		return -1;
	output_reading(k->o, true);
	size_t first = iov[0].iov_len < n ? iov[0].iov_len : n;
	memcpy(iov[0].iov_base, p, first);
	if (first < n)
		memcpy(iov[1].iov_base, p + first, n - first);
	return (ssize_t)n;
}

// A channel's bytes follow from their places in the log, so that a reader can tell them.
static void write_some(struct kit *k, enum output_channel ch, size_t n)
{
	for (size_t i = 0; i < n; i++)
		k->bytes[k->n + i] = (unsigned char)((k->n + i) * 7 + (k->n + i) / 251 * 3);
	ck_assert_int_eq(copy_in(k, k->bytes + k->n, n), (ssize_t)n);
	output_filled(k->o, ch, n);
	k->n += n;
}

// What O holds is the end of the first N bytes written; how much.
static size_t check_bytes(struct output *o, const unsigned char *bytes, size_t n)
{
	struct output_reader r = {.wake = nothing, .cut = nothing};
	uint64_t none[OUTPUT_CHANNELS] = {0}, skip[OUTPUT_CHANNELS];
	struct output_span s;
	size_t held = output_held(o), at = n - held;
	ck_assert_uint_le(held, n);
	output_attach_from(o, &r, none, skip);
	while (output_next(&r, SIZE_MAX, &s)) {
		ck_assert(s.n <= n - at && memcmp(s.p, bytes + at, s.n) == 0);
		at += s.n;
		output_taken(&r, s.n);
	}
	ck_assert_uint_eq(at, n);
	output_detach(&r);
	return held;
}

static uint64_t written(const struct output *o)
{
	uint64_t n = 0;
	for (int ch = 0; ch < OUTPUT_CHANNELS; ch++)
		n += output_total(o, (enum output_channel)ch);
	return n;
}

static void take_back(struct kit *k)
{
	output_free(k->o);
	ck_assert_int_eq(output_take_back(&k->o, k->slot, k->replay), 0);
}

START_TEST(an_untouched_one_is_empty)
{
	struct kit k;
	struct output_reader r = {.wake = nothing, .cut = nothing};
	kit_init(&k, 1000);
	for (int i = 0; i < 3; i++) {
		take_back(&k);
		ck_assert(written(k.o) == 0 && output_held(k.o) == 0 && !output_lost(k.o) && !output_closed(k.o));
		output_attach(k.o, &r);
		ck_assert(!r.lost && output_behind(&r) == 0);
		output_detach(&r);
	}
	write_some(&k, OUTPUT_STDERR, 5);
	check_bytes(k.o, k.bytes, 5);
	kit_release(&k);
}
END_TEST

// Byte by byte, and in pieces of all sizes round and round: what was there is there, and it goes on.
START_TEST(after_every_write)
{
	static const uint32_t sizes[] = {1, 2, 9, 600, 5000, 65536};
	struct kit k;
	kit_init(&k, _i % 2 ? 64 * 1024 : 0);
	uint64_t total[OUTPUT_CHANNELS] = {0};
	for (int round = 0; round < 3000 && k.n + 65536 < LOG_MAX; round++) {
		enum output_channel ch = (enum output_channel)(_i < 2 ? round / 16 % 3 : (int)below(&k, 3));
		size_t n = _i < 2 ? 1 : 1 + below(&k, sizes[below(&k, 6)]);
		write_some(&k, ch, n);
		total[ch] += n;
		take_back(&k);
		ck_assert_uint_eq(written(k.o), k.n);
		ck_assert(!output_lost(k.o) && output_total(k.o, ch) == total[ch]);
		size_t held = check_bytes(k.o, k.bytes, k.n);
		ck_assert(held == k.n || held >= k.replay);
	}
	ck_assert_uint_gt(k.n, _i < 2 ? 2999 : 600 * 1024);
	output_close(k.o);
	take_back(&k);
	check_bytes(k.o, k.bytes, k.n);
	kit_release(&k);
}
END_TEST

START_TEST(a_read_that_was_cut_is_told_for_ever)
{
	struct kit k;
	struct output_reader r = {.wake = nothing, .cut = nothing};
	kit_init(&k, 1000);
	write_some(&k, OUTPUT_STDOUT, 100);
	ck_assert_int_eq(copy_in(&k, k.bytes, 50), 50);
	for (int i = 0; i < 3; i++) {
		take_back(&k);
		ck_assert(output_lost(k.o) && written(k.o) == 100);
		output_attach(k.o, &r);
		ck_assert(r.lost);
		output_detach(&r);
		output_attach_live(k.o, &r);
		ck_assert(r.lost);
		output_detach(&r);
	}
	kit_release(&k);
	// One that had brought nothing is none.
	kit_init(&k, 1000);
	write_some(&k, OUTPUT_STDOUT, 100);
	output_reading(k.o, true);
	output_reading(k.o, false);
	take_back(&k);
	ck_assert(!output_lost(k.o));
	kit_release(&k);
}
END_TEST

// --- where a reader of the dead daemon was ---

START_TEST(a_reader_goes_on_where_it_was)
{
	struct kit k;
	struct output_reader r = {.wake = nothing, .cut = nothing};
	uint64_t from[OUTPUT_CHANNELS] = {0}, skip[OUTPUT_CHANNELS];
	kit_init(&k, 0);
	write_some(&k, OUTPUT_STDOUT, 10);
	write_some(&k, OUTPUT_STDERR, 20);
	write_some(&k, OUTPUT_STDOUT, 30);
	output_mark(k.o, OUTPUT_STDOUT, 15);
	output_mark(k.o, OUTPUT_STDERR, 20);
	take_back(&k);
	for (int ch = 0; ch < OUTPUT_CHANNELS; ch++)
		from[ch] = output_marked(k.o, (enum output_channel)ch);
	ck_assert(from[OUTPUT_STDOUT] == 15 && from[OUTPUT_STDERR] == 20 && from[OUTPUT_PTY] == 0);
	output_attach_from(k.o, &r, from, skip);
	ck_assert(!r.lost && skip[OUTPUT_STDOUT] == 15 && skip[OUTPUT_STDERR] == 20 && skip[OUTPUT_PTY] == 0);
	output_detach(&r);
	for (int i = 0; i < 20; i++)
		write_some(&k, OUTPUT_STDOUT, 65536);
	take_back(&k);
	output_attach_from(k.o, &r, from, skip);
	ck_assert(r.lost && skip[OUTPUT_STDOUT] == 0); // the ring has gone on since
	output_detach(&r);
	from[OUTPUT_STDOUT] = output_total(k.o, OUTPUT_STDOUT) - 7;
	output_attach_from(k.o, &r, from, skip);
	ck_assert(!r.lost && skip[OUTPUT_STDOUT] == output_held(k.o) - 7);
	output_detach(&r);
	kit_release(&k);
}
END_TEST

// --- damage ---

// Whatever stands there: refused, or a log that can be read to its end and written to.
START_TEST(any_damage_is_survived)
{
	struct kit k;
	size_t front = output_memory_size(0) - 256 * 1024, refused = 0;
	kit_init(&k, 0);
	for (int i = 0; i < 60; i++)
		write_some(&k, (enum output_channel)(i % 2), 1 + below(&k, _i ? 9000 : 40));
	off_t at;
	int fd = store_log(k.slot, &at);
	size_t size = output_memory_size(0);
	unsigned char *good = malloc(size);
	ck_assert_ptr_nonnull(good);
	ck_assert_int_eq(pread(fd, good, size, at), (ssize_t)size);
	output_free(k.o);
	for (int round = 0; round < 2000; round++) {
		ck_assert_int_eq(pwrite(fd, good, front + 4096, at), (ssize_t)front + 4096);
		int count = 1 + (int)below(&k, 4);
		for (int i = 0; i < count; i++) {
			unsigned char c = (unsigned char)below(&k, 256);
			uint32_t where = below(&k, 8) ? below(&k, 256) : (uint32_t)front + below(&k, 2000);
			ck_assert_int_eq(pwrite(fd, &c, 1, at + where), 1);
		}
		int rc = output_take_back(&k.o, k.slot, 0);
		ck_assert(rc == 0 || rc == -EINVAL);
		refused += rc < 0;
		if (rc < 0)
			continue;
		struct output_reader r = {.wake = nothing, .cut = nothing};
		struct output_span s;
		size_t n = 0;
		output_attach(k.o, &r);
		while (output_next(&r, SIZE_MAX, &s)) {
			n += s.n;
			output_taken(&r, s.n);
		}
		output_detach(&r);
		ck_assert_uint_le(n, output_held(k.o));
		ck_assert_int_eq(copy_in(&k, good, 4096), 4096);
		output_filled(k.o, OUTPUT_STDOUT, 4096);
		output_close(k.o);
		output_free(k.o);
	}
	ck_assert(refused > 500 && refused < 2000);
	k.o = NULL;
	free(good);
	kit_release(&k);
}
END_TEST

// --- at every instruction ---

static const struct {
	enum output_channel ch;
	size_t n;
} steps[] = {{OUTPUT_STDOUT, 3}, {OUTPUT_STDOUT, 2}, {OUTPUT_STDERR, 1}, {OUTPUT_STDERR, 5}, {OUTPUT_STDOUT, 7}};
enum { STEPS = sizeof steps / sizeof *steps };

static _Noreturn void write_traced(struct kit *k, const unsigned char *bytes)
{
	size_t at = k->n;
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(2);
	raise(SIGSTOP);
	for (int i = 0; i < STEPS; i++) {
		if (copy_in(k, bytes + at, steps[i].n) < 0)
			_exit(1);
		output_filled(k->o, steps[i].ch, steps[i].n);
		at += steps[i].n;
	}
	_exit(0);
}

// The log as a daemon would find it now; it is not to be changed.
static void look(struct kit *k, int fd, off_t at, size_t *seen)
{
	unsigned char front[64];
	struct output *o;
	ck_assert_int_eq(pread(fd, front, sizeof front, at), sizeof front);
	ck_assert_int_eq(output_take_back(&o, k->slot, 0), 0);
	size_t n = (size_t)written(o), sum = k->n;
	ck_assert_uint_ge(n, *seen);
	for (int i = 0; sum < n && i < STEPS; i++)
		sum += steps[i].n;
	ck_assert_uint_eq(sum, n); // whole writes only
	check_bytes(o, k->bytes, n);
	*seen = n;
	output_free(o);
	ck_assert_int_eq(pwrite(fd, front, sizeof front, at), sizeof front);
}

// _i: the ring has gone round, so that old records are dropped meanwhile.
START_TEST(at_every_instruction)
{
	struct kit k;
	off_t at;
	int status, fd;
	kit_init(&k, 0);
	size_t fill = _i ? 256 * 1024 - 60 : 50, looks = 0;
	for (size_t n; k.n < fill; k.n += 0) {
		n = fill - k.n < 997 ? fill - k.n : 997;
		write_some(&k, OUTPUT_STDOUT, n);
	}
	for (size_t i = k.n; i < k.n + 100; i++)
		k.bytes[i] = (unsigned char)(i * 7 + i / 251 * 3);
	fd = store_log(k.slot, &at);
	size_t seen = k.n;
	pid_t pid = fork();
	if (pid == 0)
		write_traced(&k, k.bytes);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	while (WIFSTOPPED(status)) {
		look(&k, fd, at, &seen);
		looks++;
		ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	}
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_uint_gt(looks, 500);
	ck_assert_uint_eq(seen, k.n + 18);
	kit_release(&k);
}
END_TEST

Suite *output_back_suite(void)
{
	Suite *s = suite_create("output_back");
	TCase *t = tcase_create("back");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, an_untouched_one_is_empty);
	tcase_add_loop_test(t, after_every_write, 0, 4);
	tcase_add_test(t, a_read_that_was_cut_is_told_for_ever);
	tcase_add_test(t, a_reader_goes_on_where_it_was);
	tcase_add_loop_test(t, any_damage_is_survived, 0, 2);
	tcase_add_loop_test(t, at_every_instruction, 0, 2);
	return s;
}
