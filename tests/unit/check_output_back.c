// SPDX-License-Identifier: Apache-2.0
// A log in a store's slot, taken back: after every byte, at every instruction, with everything in it damaged.
#include "daemon/core/output.h"
#include "daemon/core/store_priv.h"
#include "suites.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
	ck_assert_int_eq(output_take_back(&k->o, NULL, k->slot, k->replay), 0);
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

// --- one that has ended ---

static blkcnt_t blocks_of(const struct kit *k)
{
	struct stat st;
	off_t at;
	ck_assert_int_eq(fstat(store_log(k->slot, &at), &st), 0);
	return st.st_blocks;
}

static size_t maps(void)
{
	char line[512];
	size_t n = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof line, f))
		n += strstr(line, "celld-store") != NULL;
	(void)fclose(f);
	return n;
}

// Of any length, and whoever reads it then or in a later daemon: its end is there, in no more memory than that takes, and unmapped.
START_TEST(an_ended_one_is_read_again)
{
	static const size_t sizes[] = {0, 1, 100, 315, 316, 317, 4000, 9000, 64 * 1024, 64 * 1024 + 40, 70001, 500000};
	size_t total = sizes[_i], page = (size_t)sysconf(_SC_PAGESIZE);
	struct kit k;
	struct output_reader late = {.wake = nothing, .cut = nothing};
	kit_init(&k, 64 * 1024);
	size_t room;
	(void)store_log_room(k.slot, &room);
	ck_assert_uint_eq(room, STORE_CARD - STORE_FRONT - 16); // what the sizes above are about
	blkcnt_t before = blocks_of(&k);
	size_t mapped = maps();
	ck_assert_int_eq(output_map(k.o), 0);
	ck_assert_uint_eq(maps(), mapped + 1);
	output_attach_live(k.o, &late);
	while (k.n < total)
		write_some(&k, OUTPUT_STDOUT, total - k.n < 20000 ? total - k.n : 20000), output_detach(&late);
	output_close(k.o);
	output_detach(&late);
	size_t keeps = total < 65536 ? total : 65536 + 40;
	for (int daemon = 0; daemon < 3; daemon++) {
		for (int i = 0; i < 2; i++) {
			size_t held = check_bytes(k.o, k.bytes, total);
			ck_assert(held <= keeps && (held == total || held >= k.replay));
			ck_assert_uint_eq(maps(), mapped);
			size_t more = total + 4 <= room ? 0 : (held + 4 * 5) / page + 2;
			ck_assert_uint_le(
				(size_t)(blocks_of(&k) - before), (more + 2) * page / 512); // two: the card, the table
		}
		ck_assert_uint_eq(written(k.o), total);
		take_back(&k);
		output_close(k.o);
	}
	ck_assert(!output_lost(k.o));
	kit_release(&k);
}
END_TEST

// Where nothing can be mapped who attaches to an ended one is told so, and who reads from its card is served.
START_TEST(an_ended_one_cannot_be_mapped)
{
	struct kit k;
	struct rlimit old, none = {0, RLIM_INFINITY};
	struct output_reader r[3];
	struct output_span s;
	uint64_t from[OUTPUT_CHANNELS] = {0}, skip[OUTPUT_CHANNELS];
	size_t n = _i ? 100 : 100000;
	kit_init(&k, 8 * 1024 * 1024); // too much for what malloc has in store
	for (int i = 0; i < 3; i++)
		r[i] = (struct output_reader){.wake = nothing, .cut = nothing};
	while (k.n < n)
		write_some(&k, OUTPUT_STDOUT, _i ? n : 10000);
	output_close(k.o);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &old), 0);
	none.rlim_max = old.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	output_attach(k.o, &r[0]);
	output_attach_live(k.o, &r[1]);
	output_attach_from(k.o, &r[2], from, skip);
	setrlimit(RLIMIT_AS, &old);
	for (int i = 0; i < 3; i++) {
		ck_assert(r[i].lost == !_i && output_next(&r[i], SIZE_MAX, &s) == (_i && i != 1));
		ck_assert_uint_eq(output_behind(&r[i]), _i && i != 1 ? n : 0);
	}
	check_bytes(k.o, k.bytes, n); // it can be by now
	for (int i = 0; i < 3; i++) {
		ck_assert(output_next(&r[i], SIZE_MAX, &s) == (_i && i != 1));
		output_detach(&r[i]);
	}
	check_bytes(k.o, k.bytes, n);
	kit_release(&k);
}
END_TEST

// One that is cut to its replay is not cut inside a character if that can be.
START_TEST(a_character_is_cut)
{
	struct kit k;
	struct output_reader r = {.wake = nothing, .cut = nothing};
	struct output_span s;
	kit_init(&k, 1000);
	for (size_t i = 0; i < 3000; i++)
		k.bytes[i] = (unsigned char)"\xe2\x82\xac"[i % 3];
	ck_assert_int_eq(copy_in(&k, k.bytes + _i, 3000 - (size_t)_i), 3000 - _i);
	output_filled(k.o, OUTPUT_STDOUT, 3000 - (size_t)_i);
	output_close(k.o);
	output_attach(k.o, &r);
	ck_assert(output_next(&r, SIZE_MAX, &s) && s.n >= 1000 && s.n < 1020 && s.p[0] == 0xe2);
	output_detach(&r);
	kit_release(&k);
}
END_TEST

// --- damage ---

// Whatever stands there: refused, or a log that can be read to its end and written to.
START_TEST(any_damage_is_survived)
{
	struct kit k;
	size_t refused = 0;
	kit_init(&k, 0);
	for (int i = 0; i < (_i == 2 ? 6 : 60); i++)
		write_some(&k, (enum output_channel)(i % 2), 1 + below(&k, _i == 1 ? 9000 : 40));
	off_t at;
	int fd = store_log(k.slot, &at);
	size_t size = output_memory_size(0);
	unsigned char *good = malloc(size);
	ck_assert_ptr_nonnull(good);
	ck_assert_int_eq(pread(fd, good, size, at), (ssize_t)size);
	unsigned char front[STORE_FRONT], *shared = store_log_front(k.slot);
	if (_i == 2)
		output_close(k.o); // the card is what is damaged
	memcpy(front, shared, sizeof front);
	output_free(k.o);
	for (int round = 0; round < 2000; round++) {
		ck_assert_int_eq(pwrite(fd, good, 4096, at), 4096);
		memcpy(shared, front, sizeof front);
		int count = 1 + (int)below(&k, 4);
		for (int i = 0; i < count; i++) {
			unsigned char c = (unsigned char)below(&k, 256);
			if (below(&k, 8))
				shared[below(&k, sizeof front)] = c;
			else
				ck_assert_int_eq(pwrite(fd, &c, 1, at + below(&k, 2000)), 1);
		}
		int rc = output_take_back(&k.o, NULL, k.slot, 0);
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
	ck_assert_msg(refused > 500 && refused < 2000, "%zu refused", refused);
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
static void look(struct kit *k, size_t *seen)
{
	unsigned char front[STORE_FRONT], *shared = store_log_front(k->slot);
	struct output *o;
	memcpy(front, shared, sizeof front);
	ck_assert_int_eq(output_take_back(&o, NULL, k->slot, 0), 0);
	size_t n = (size_t)written(o), sum = k->n;
	ck_assert_uint_ge(n, *seen);
	for (int i = 0; sum < n && i < STEPS; i++)
		sum += steps[i].n;
	ck_assert_uint_eq(sum, n); // whole writes only
	check_bytes(o, k->bytes, n);
	*seen = n;
	output_free(o);
	memcpy(shared, front, sizeof front);
}

// _i: the ring has gone round, so that old records are dropped meanwhile.
START_TEST(at_every_instruction)
{
	struct kit k;
	int status;
	kit_init(&k, 0);
	size_t fill = _i ? 256 * 1024 - 60 : 50, looks = 0;
	for (size_t n; k.n < fill; k.n += 0) {
		n = fill - k.n < 997 ? fill - k.n : 997;
		write_some(&k, OUTPUT_STDOUT, n);
	}
	for (size_t i = k.n; i < k.n + 100; i++)
		k.bytes[i] = (unsigned char)(i * 7 + i / 251 * 3);
	size_t seen = k.n;
	pid_t pid = fork();
	if (pid == 0)
		write_traced(&k, k.bytes);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	while (WIFSTOPPED(status)) {
		look(&k, &seen);
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

// The log as a daemon would find it now, its ring included: whole, and as a reader of its end is to have it.
static void look_at_end(struct kit *k)
{
	static unsigned char ring[512 * 1024];
	size_t size = output_memory_size(k->replay);
	unsigned char front[STORE_FRONT], *shared = store_log_front(k->slot);
	off_t at;
	struct output *o;
	int fd = store_log(k->slot, &at);
	ck_assert_uint_le(size, sizeof ring);
	ck_assert_int_eq(pread(fd, ring, size, at), (ssize_t)size);
	memcpy(front, shared, sizeof front);
	ck_assert_int_eq(output_take_back(&o, NULL, k->slot, k->replay), 0);
	ck_assert_uint_eq(written(o), k->n);
	if (!output_lost(o)) {
		ck_assert_uint_ge(check_bytes(o, k->bytes, k->n), k->n < k->replay ? k->n : k->replay);
		output_close(o);
		check_bytes(o, k->bytes, k->n);
	}
	output_free(o);
	memcpy(shared, front, sizeof front);
	ck_assert_int_eq(pwrite(fd, ring, size, at), (ssize_t)size);
}

// A look copies the whole ring, and a sanitized program has ten times as many instructions: there it is not looked at each of them, and what has
// gone round is left out.
#ifdef __SANITIZE_ADDRESS__
enum { STRIDE = 32, ENDS = 2 };
#else
enum { STRIDE = 1, ENDS = 3 };
#endif

// _i: what goes to the card; what is cut; what has gone round and is cut.
START_TEST(its_end_at_every_instruction)
{
	static const size_t fills[] = {90, 3000, 300000};
	struct kit k;
	int status;
	size_t looks = 0;
	kit_init(&k, 1000);
	while (k.n < fills[_i])
		write_some(
			&k, k.n % 2 ? OUTPUT_STDOUT : OUTPUT_STDERR, fills[_i] - k.n < 2999 ? fills[_i] - k.n : 2999);
	pid_t pid = fork();
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(2);
		raise(SIGSTOP);
		output_close(k.o);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	while (WIFSTOPPED(status)) {
		if (looks++ % (_i == 2 ? 16 * STRIDE : STRIDE) == 0)
			look_at_end(&k);
		ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	}
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_uint_gt(looks, 100);
	look_at_end(&k);
	take_back(&k);
	ck_assert(!output_lost(k.o));
	check_bytes(k.o, k.bytes, k.n);
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
	tcase_add_loop_test(t, an_ended_one_is_read_again, 0, 12);
	tcase_add_loop_test(t, an_ended_one_cannot_be_mapped, 0, 2);
	tcase_add_loop_test(t, a_character_is_cut, 0, 3);
	tcase_add_loop_test(t, any_damage_is_survived, 0, 3);
	tcase_add_loop_test(t, at_every_instruction, 0, 2);
	tcase_add_loop_test(t, its_end_at_every_instruction, 0, ENDS);
	return s;
}
