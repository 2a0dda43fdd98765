// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/keep.h"
#include "daemon/io.h"
#include "oom.h"
#include "storekit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *log_map(const struct store_slot *slot)
{
	off_t at;
	int fd = store_log(slot, &at);
	void *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

// --- slots, records, logs ---

START_TEST(slot_that_was_released_is_not_empty)
{
	struct storekit k;
	storekit_init(&k, 2);
	struct store_slot *a = storekit_take(&k), *b = storekit_take(&k);
	ck_assert_ptr_null(store_take(k.daemon));
	static const char record[6000] = "record";
	ck_assert_int_eq(store_record_put(a, record, sizeof record), 0);
	store_life(a)->code = 7;
	store_child(a);
	ck_assert_int_eq(store_life(a)->pid, getpid());
	char *log = (char *)(uintptr_t)log_map(a);
	store_log_used(a);
	memset(log, 'x', 65536);
	memset(store_log_front(a), 'f', STORE_FRONT);
	store_release(a);
	struct store_slot *again = storekit_take(&k);
	ck_assert_ptr_eq(again, a);
	size_t n;
	static const char nothing[STORE_FRONT];
	ck_assert_mem_eq(store_log_front(again), nothing, STORE_FRONT);
	ck_assert_ptr_null(store_record_get(again, &n));
	static const struct store_life zero;
	ck_assert_mem_eq(store_life(again), &zero, sizeof zero);
	for (size_t i = 0; i < 65536; i++)
		ck_assert_int_eq(log[i], 0);
	munmap(log, 65536);
	store_release(b);
	store_release(again);
	store_release(NULL);
	storekit_release(&k);
}
END_TEST

START_TEST(record_that_is_not_whole_is_believed)
{
	struct storekit k;
	storekit_init(&k, 4);
	struct store_slot *slot = storekit_take(&k);
	size_t n, at;
	char big[8192] = {0};
	ck_assert_ptr_null(store_record_get(slot, &n));
	ck_assert_int_eq(store_record_put(slot, big, sizeof big), -EMSGSIZE);
	ck_assert_int_eq(store_record_put(slot, "", 0), -EMSGSIZE);
	ck_assert_int_eq(store_record_put(slot, "hello", 5), 0);
	ck_assert_int_eq(store_record_put(slot, "hello again", 11), 0);
	struct store *next = storekit_daemon(&k, false);
	struct store_slot *left = store_left(next, 0, &at);
	ck_assert_ptr_nonnull(left);
	ck_assert_uint_eq(at, 0);
	ck_assert_ptr_null(store_left(next, at + 1, &at));
	const char *p = store_record_get(left, &n);
	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(n, 11);
	ck_assert_mem_eq(p, "hello again", 11);
	// Whatever single byte is wrong, in its head or in its text.
	unsigned char *base = (unsigned char *)store_log_front(slot) + STORE_FRONT;
	for (size_t i = 0; i < 16 + 11; i++) {
		base[i] ^= 0x40;
		ck_assert_ptr_null(store_record_get(left, &n));
		base[i] ^= 0x40;
	}
	ck_assert_ptr_nonnull(store_record_get(left, &n));
	store_free(next);
	storekit_release(&k);
}
END_TEST

static off_t blocks_of(const struct store *s)
{
	struct stat st;
	ck_assert_int_eq(fstat(s->memory, &st), 0);
	return st.st_blocks;
}

// Short ones lie side by side, long ones on pages of their own, which are given back.
START_TEST(records_of_any_size_come_back)
{
	static const size_t sizes[] = {1, STORE_SHORT, STORE_SHORT + 1, 4080};
	struct storekit k;
	storekit_init(&k, 16);
	char text[4096];
	memset(text, 'r', sizeof text);
	struct store_slot *before = storekit_take(&k), *slot = storekit_take(&k), *after = storekit_take(&k);
	ck_assert_int_eq(store_record_put(before, "before", 6), 0);
	ck_assert_int_eq(store_record_put(after, "after", 5), 0);
	store_release(storekit_take(&k)); // writes the page of the marks
	off_t blocks = blocks_of(k.daemon);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		size_t n;
		text[sizes[i] - 1] = 'e';
		ck_assert_int_eq(store_record_put(slot, text, sizes[i]), 0);
		const char *p = store_record_get(slot, &n);
		ck_assert_ptr_nonnull(p);
		ck_assert_uint_eq(n, sizes[i]);
		ck_assert_mem_eq(p, text, n);
		ck_assert_mem_eq(store_record_get(before, &n), "before", 6);
		ck_assert_mem_eq(store_record_get(after, &n), "after", 5);
		text[sizes[i] - 1] = 'r';
	}
	ck_assert_int_gt(blocks_of(k.daemon), blocks);
	store_release(slot);
	ck_assert_int_eq(blocks_of(k.daemon), blocks);
	storekit_release(&k);
}
END_TEST

START_TEST(punching_reaches_beyond_the_log)
{
	struct storekit k;
	storekit_init(&k, 2);
	struct store_slot *a = storekit_take(&k), *b = storekit_take(&k);
	char *la = (char *)(uintptr_t)log_map(a), *lb = (char *)(uintptr_t)log_map(b);
	memset(la, 'a', 65536);
	memset(lb, 'b', 65536);
	store_log_punch(a, 4096, 8192);
	ck_assert_int_eq(la[4095], 'a');
	ck_assert_int_eq(la[4096], 0);
	ck_assert_int_eq(la[12287], 0);
	ck_assert_int_eq(la[12288], 'a');
	store_log_punch(a, 61440, SIZE_MAX);
	store_log_punch(a, SIZE_MAX, 10);
	ck_assert_int_eq(la[65535], 0);
	ck_assert_int_eq(lb[0], 'b');
	munmap(la, 65536);
	munmap(lb, 65536);
	storekit_release(&k);
}
END_TEST

// A daemon that was killed while it released a slot.
START_TEST(slot_half_released_is_lost)
{
	struct storekit k;
	storekit_init(&k, 1);
	struct store_slot *slot = storekit_take(&k);
	store_life(slot)->code = 3;
	store_set(&store_entry(slot)->state, STORE_RELEASING);
	struct store *next = storekit_daemon(&k, true);
	size_t at;
	ck_assert_ptr_null(store_left(next, 0, &at));
	struct store_slot *again = store_take(next);
	ck_assert_ptr_nonnull(again);
	ck_assert_int_eq(store_life(again)->code, 0);
	store_free(next);
	storekit_release(&k);
}
END_TEST

// --- the arena ---

START_TEST(damaged_arena_is_opened)
{
	struct storekit k;
	storekit_init(&k, 3);
	unsigned char *head = (unsigned char *)k.init.store->base;
	for (size_t i = 0; i < sizeof(struct store_shape) + 8; i++) {
		struct store *out = (struct store *)&k;
		head[i] ^= 1;
		int rc = store_open(dup(k.init.store->memory), dup(k.init.store->event), &out);
		ck_assert_msg(rc == -EPROTO && !out, "byte %zu: %d", i, rc);
		ck_assert(!store_whole(k.init.store));
		head[i] ^= 1;
	}
	ck_assert(store_whole(k.init.store));
	storekit_release(&k);
}
END_TEST

START_TEST(other_files_are_opened_as_arena)
{
	struct store *out;
	size_t before = storekit_fds();
	int fds[2];
	ck_assert_int_eq(io_pipe(fds), 0);
	ck_assert_int_eq(store_open(fds[0], fds[1], &out), -EPROTO);
	ck_assert_int_eq(store_open(-1, -1, &out), -EPROTO);
	ck_assert_int_eq(store_open(open("/dev/null", O_RDWR), -1, &out), -EPROTO);
	// The right bytes, but who holds them may make them end.
	struct storekit k;
	storekit_init(&k, 1);
	int copy = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(copy, (off_t)k.daemon->shape.size), 0);
	ck_assert_int_eq(pwrite(copy, k.daemon->base, 4096, 0), 4096);
	ck_assert_int_eq(store_open(copy, -1, &out), -EPROTO);
	storekit_release(&k);
	ck_assert_uint_eq(storekit_fds(), before);
}
END_TEST

START_TEST(arena_can_be_cut_off)
{
	struct storekit k;
	storekit_init(&k, 1);
	ck_assert_int_lt(ftruncate(k.daemon->memory, 0), 0);
	ck_assert_int_lt(ftruncate(k.daemon->memory, (off_t)k.daemon->shape.size * 2), 0);
	storekit_release(&k);
}
END_TEST

START_TEST(sizes_beyond_sense_are_taken)
{
	static const struct store_sizes cases[] = {
		{0, 1, 1}, {(size_t)1 << 40, 1, 1}, {1, SIZE_MAX, 1}, {1, 1, SIZE_MAX}, {1 << 24, 1, (size_t)1 << 50}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ck_assert_ptr_null(store_new(&cases[i], 1));
	const struct store_sizes some = {1, 1, 1};
	ck_assert_ptr_null(store_new(&some, SIZE_MAX));
	// The largest that the options allow costs address space alone.
	const struct store_sizes most = {1000000, 65536, (size_t)1 << 30};
	struct store *s = store_new(&most, 4096);
	ck_assert_ptr_nonnull(s);
	store_free(s);
}
END_TEST

static int make(void *arg)
{
	const struct store_sizes sizes = {4, 100, 100};
	(void)arg;
	errno = ENOMEM;
	struct store *s = store_new(&sizes, 100);
	if (!s)
		return -errno;
	struct store *out = NULL;
	int rc = store_open(dup(s->memory), dup(s->event), &out);
	store_free(out);
	store_free(s);
	return rc;
}

START_TEST(out_of_memory)
{
	size_t before = storekit_fds();
	OOM_LOOP(make, NULL);
	ck_assert_uint_eq(storekit_fds(), before);
}
END_TEST

// What is kept beside the processes is found by the next daemon, unless that expects another size, or it makes no sense.
START_TEST(kept_bytes_are_lost)
{
	struct storekit k;
	size_t n;
	storekit_init(&k, 1);
	ck_assert_uint_le(keep_size(1000), 4096);
	struct keep *a = keep_at(store_kept(k.daemon), 1000);
	ck_assert_ptr_null(keep_get(a, &n));
	ck_assert_int_eq(keep_put(a, "one", 3), 0);
	ck_assert_int_eq(keep_put(a, "three", 5), 0);
	struct store *next = storekit_daemon(&k, false);
	struct keep *b = keep_at(store_kept(next), 1000);
	ck_assert_mem_eq(keep_get(b, &n), "three", 5);
	ck_assert_uint_eq(n, 5);
	for (size_t i = 0; i < 64; i++) {
		unsigned char *p = store_kept(next), old = p[i];
		p[i] = 0xff;
		const char *text = keep_get(b, &n);
		ck_assert(!text || n <= 1000);
		p[i] = old;
	}
	ck_assert_ptr_null(keep_get(keep_at(store_kept(next), 900), &n));
	store_free(next);
	storekit_release(&k);
}
END_TEST

START_TEST(no_store_at_all)
{
	struct store_deaths d = {.restarts = 3};
	store_deaths(NULL, &d);
	ck_assert_uint_eq(d.restarts, 0);
	ck_assert_int_eq(store_event_fd(NULL), -1);
	store_free(NULL);
	store_child(NULL);
	struct init_store is = {.channel = -1};
	siginfo_t si = {0};
	ck_assert_int_eq(init_store_open(&is), -1);
	ck_assert(!init_store_turn(&is));
	ck_assert(!init_store_ended(&is, &si));
	ck_assert(!init_store_overdue(&is));
	ck_assert_int_eq(init_store_due(&is), 0);
	init_store_look(&is);
	init_store_gone(&is);
}
END_TEST

// --- where it died ---

// What a child that does BAD leaves in the arena.
static struct store_fault fault_of(struct store *s, void (*bad)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		const struct rlimit none = {0, 0};
		for (int sig = 1; sig < NSIG; sig++)
			signal(sig, SIG_DFL);
		setrlimit(RLIMIT_CORE, &none);
		store_catch_faults(s);
		bad();
		_exit(0);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGSEGV);
	ck_assert_int_eq(s->head->fault.pid, pid);
	return s->head->fault;
}

static void write_at_16(void)
{
	volatile uintptr_t at = 16;
	*(volatile char *)at = 1;
}

static void be_killed(void)
{
	kill(getpid(), SIGSEGV);
}

static int eat_stack(volatile char *p, int n)
{
	volatile char more[4096];
	more[0] = p ? p[0] : 0;
	return n == 0 ? 0 : eat_stack(more, n - 1) + more[0];
}

static void overflow(void)
{
	const struct rlimit small = {1 << 18, 1 << 18};
	setrlimit(RLIMIT_STACK, &small);
	eat_stack(NULL, 1 << 20);
}

START_TEST(address_of_a_fault_is_not_known)
{
	struct storekit k;
	storekit_init(&k, 1);
	struct store_fault f = fault_of(k.daemon, write_at_16);
	ck_assert_uint_eq(f.sig, SIGSEGV);
	ck_assert_uint_eq(f.address, 16);
	f = fault_of(k.daemon, be_killed);
	ck_assert_uint_eq(f.sig, 0);
	f = fault_of(k.daemon, overflow);
	ck_assert_uint_eq(f.sig, SIGSEGV);
	storekit_release(&k);
}
END_TEST

Suite *store_suite(void)
{
	Suite *s = suite_create("store");
	TCase *tc = tcase_create("arena");
	tcase_add_test(tc, slot_that_was_released_is_not_empty);
	tcase_add_test(tc, record_that_is_not_whole_is_believed);
	tcase_add_test(tc, records_of_any_size_come_back);
	tcase_add_test(tc, punching_reaches_beyond_the_log);
	tcase_add_test(tc, slot_half_released_is_lost);
	tcase_add_test(tc, damaged_arena_is_opened);
	tcase_add_test(tc, other_files_are_opened_as_arena);
	tcase_add_test(tc, arena_can_be_cut_off);
	tcase_add_test(tc, sizes_beyond_sense_are_taken);
	tcase_add_test(tc, out_of_memory);
	tcase_add_test(tc, kept_bytes_are_lost);
	tcase_add_test(tc, no_store_at_all);
	tcase_add_test(tc, address_of_a_fault_is_not_known);
	suite_add_tcase(s, tc);
	return s;
}
