// SPDX-License-Identifier: Apache-2.0
// Descriptors on their way to the init part, and all that should not come that way.
#include "daemon/io.h"
#include "daemon/log.h"
#include "storekit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(end_is_dropped_too_early_or_never)
{
	struct storekit k;
	storekit_init(&k, 4);
	size_t before = storekit_fds();
	struct store_slot *slot = storekit_take(&k);
	ck_assert_int_eq(storekit_hand(slot, 0x1f), 0);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_held(&k), 5);
	store_drop(slot, 1u << STORE_STDOUT);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_held(&k), 4);
	ck_assert_int_eq(k.init.store->slots[0].fd[STORE_STDOUT], 0);
	store_drop(slot, 1u << STORE_STDOUT | 1u << STORE_STDIN);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_held(&k), 3);
	// Before init has looked.
	store_release(slot);
	slot = storekit_take(&k);
	ck_assert_int_eq(storekit_hand(slot, 0x3), 0);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_held(&k), 2);
	store_release(slot);
	slot = storekit_take(&k);
	ck_assert_int_eq(storekit_hand(slot, 0x7), 0);
	store_drop(slot, 0x1);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_held(&k), 2);
	store_release(slot);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_fds(), before);
	storekit_release(&k);
}
END_TEST

// Any order of what the daemon does and when init looks ends with exactly what the daemon wants held.
START_TEST(descriptors_drift_apart)
{
	struct storekit k;
	unsigned want[8] = {0}, seed = 7;
	struct store_slot *slots[8] = {NULL};
	storekit_init(&k, 8);
	size_t before = storekit_fds();
	for (int i = 0; i < 20000; i++) {
		unsigned n = (unsigned)rand_r(&seed) % 8, ends = (unsigned)rand_r(&seed) % 31 + 1;
		switch (rand_r(&seed) % 6) {
		case 0:
			init_store_turn(&k.init);
			break;
		case 1:
			if (slots[n])
				store_release(slots[n]);
			slots[n] = NULL;
			want[n] = 0;
			break;
		case 2:
			if (slots[n])
				store_drop(slots[n], ends);
			want[n] &= ~ends;
			break;
		default:
			if (!slots[n])
				slots[n] = storekit_take(&k);
			int rc = storekit_hand(slots[n], ends);
			if (rc == -EAGAIN) {
				storekit_turn(&k);
				rc = storekit_hand(slots[n], ends);
			}
			ck_assert_int_eq(rc, 0);
			want[n] = ends;
		}
	}
	storekit_turn(&k);
	for (int n = 0; n < 8; n++) {
		unsigned is = 0;
		for (unsigned e = 0; slots[n] && e < STORE_ENDS; e++)
			is |= (unsigned)(k.init.store->slots[store_index(slots[n])].fd[e] > 0) << e;
		ck_assert_uint_eq(is, want[n]);
		store_release(slots[n]);
	}
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_held(&k), 0);
	ck_assert_uint_eq(storekit_fds(), before);
	ck_assert_uint_eq(k.init.strange, 0);
	storekit_release(&k);
}
END_TEST

// An init that reads nothing holds the daemon up for a moment, once until it reads again, and it catches up with all at once.
START_TEST(reader_that_never_reads_blocks)
{
	struct storekit k;
	storekit_init(&k, 2000);
	size_t before = storekit_fds(), handed = 0;
	int rc = 0;
	int64_t start = io_mono_ns();
	while (handed < 2000 && (rc = storekit_hand(storekit_take(&k), 0x7)) == 0)
		handed++;
	ck_assert_int_eq(rc, -EAGAIN);
	ck_assert_uint_ge(handed, 8);
	ck_assert_int_ge(io_mono_ns() - start, (int64_t)90000000);
	start = io_mono_ns();
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(storekit_hand(storekit_take(&k), 0x7), -EAGAIN);
	ck_assert_int_lt(io_mono_ns() - start, (int64_t)2000000000);
	start = io_mono_ns();
	for (size_t i = 0; i < handed; i++) {
		k.daemon->slots[i].store = k.daemon;
		store_drop(&k.daemon->slots[i], 0x1);
	}
	ck_assert_int_lt(io_mono_ns() - start, (int64_t)1000000000);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_held(&k), handed * 2);
	for (size_t i = 0; i < handed + 41; i++)
		store_release(&k.daemon->slots[i]);
	storekit_turn(&k);
	ck_assert_int_eq(storekit_hand(storekit_take(&k), 0x7), 0);
	ck_assert(!k.daemon->stuck);
	store_release(&k.daemon->slots[handed + 40]);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_fds(), before);
	// There is nobody any more.
	close(k.init.channel);
	k.init.channel = -1;
	struct store_slot *slot = storekit_take(&k);
	ck_assert_int_eq(storekit_hand(slot, 0x7), -EPIPE);
	store_release(slot);
	storekit_release(&k);
}
END_TEST

START_TEST(init_without_descriptors_leaks_or_says_nothing)
{
	struct storekit k;
	struct rlimit old, few;
	storekit_init(&k, 4);
	size_t before = storekit_fds();
	struct store_slot *slot = storekit_take(&k);
	ck_assert_int_eq(storekit_hand(slot, 0x1f), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	int next = fcntl(0, F_DUPFD, 3);
	close(next);
	few = (struct rlimit){.rlim_cur = (rlim_t)next + 2, .rlim_max = old.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	init_store_turn(&k.init);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	ck_assert_uint_eq(storekit_held(&k), 0);
	ck_assert_uint_eq(storekit_fds(), before);
	ck_assert_uint_eq(k.init.unkept, 1);
	ck_assert_uint_eq(store_entry(slot)->failed, 1);
	store_release(slot);
	ck_assert_uint_eq(store_entry(slot)->failed, 0);
	storekit_release(&k);
}
END_TEST

// --- what no daemon would send ---

static void send_raw(int fd, const void *p, size_t n, const int *fds, size_t count)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(64 * sizeof(int))];
	} control;
	memset(&control, 0, sizeof control);
	struct iovec iov = {(void *)(uintptr_t)p, n};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	if (count > 0) {
		h.msg_control = control.room;
		h.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	}
	(void)!sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// A socket whose close would wait for a peer that takes nothing.
static int lingering(int *peer)
{
	struct sockaddr_storage a = {.ss_family = AF_INET};
	socklen_t n = sizeof(a);
	const struct linger linger = {1, 30};
	static char full[65536];
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(listen(l, 1), 0);
	ck_assert_int_eq(getsockname(l, (struct sockaddr *)&a, &n), 0);
	ck_assert_int_eq(connect(s, (struct sockaddr *)&a, n), 0);
	*peer = accept(l, NULL, NULL);
	ck_assert_int_ge(*peer, 0);
	close(l);
	ck_assert_int_eq(setsockopt(s, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	while (send(s, full, sizeof full, MSG_DONTWAIT) > 0)
		;
	return s;
}

START_TEST(nonsense_wears_init_out)
{
	struct storekit k;
	storekit_init(&k, 4);
	struct store_slot *slot = storekit_take(&k);
	ck_assert_int_eq(storekit_hand(slot, 0x7), 0);
	storekit_turn(&k);
	int fds[64], peer, sock = lingering(&peer), file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < 64; i++)
		fds[i] = storekit_pipe();
	size_t before = storekit_fds();
	uint32_t hands = store_entry(slot)->hands;
	const struct store_msg cases[] = {
		{STORE_OP_HAND, 0, hands, 0},            // no ends
		{STORE_OP_HAND, 0, hands, 0x20},         // an end that there is not
		{STORE_OP_HAND, 0, hands, UINT32_MAX},   //
		{STORE_OP_HAND, 0, hands, 0x1},          // fewer or more descriptors than bits
		{STORE_OP_HAND, 1, hands, 0x3},          // a slot that nobody has
		{STORE_OP_HAND, 4, hands, 0x3},          //
		{STORE_OP_HAND, UINT32_MAX, hands, 0x3}, //
		{STORE_OP_HAND, 0, hands + 1, 0x3},      // one that was not handed
		{0, 0, hands, 0x3},
		{3, 0, hands, 0x3}, // ops that there are not
		{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
	};
	static const size_t counts[] = {0, 2, 5, 6, 64};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
			send_raw(k.daemon->channel, &cases[i], sizeof cases[i], fds, counts[c]);
			storekit_turn(&k);
			ck_assert_uint_eq(storekit_held(&k), 3);
			ck_assert_uint_eq(storekit_fds(), before);
		}
	}
	// The right words with the wrong things.
	const struct store_msg good = {STORE_OP_HAND, 0, hands, 0x1};
	send_raw(k.daemon->channel, &good, sizeof good, &file, 1);
	send_raw(k.daemon->channel, &good, sizeof good, &sock, 1);
	close(sock);
	int64_t start = io_mono_ns();
	storekit_turn(&k);
	ck_assert_int_lt(io_mono_ns() - start, (int64_t)2000000000);
	ck_assert_uint_eq(storekit_held(&k), 3);
	ck_assert_uint_eq(storekit_fds(), before - 1);
	for (int i = 0; i < 64; i++)
		close(fds[i]);
	close(file);
	close(peer);
	ck_assert_uint_gt(k.init.strange, 10);
	storekit_release(&k);
}
END_TEST

// Half closed, it would be readable for ever.
START_TEST(channel_that_has_ended_spins)
{
	struct storekit k;
	storekit_init(&k, 4);
	struct store_slot *slot = storekit_take(&k);
	ck_assert_int_eq(send(k.daemon->channel, "", 0, MSG_NOSIGNAL), 0);
	ck_assert_int_eq(storekit_hand(slot, 0x7), 0);
	storekit_turn(&k);
	ck_assert_uint_eq(storekit_held(&k), 3);
	ck_assert_int_ge(k.init.channel, 0);
	ck_assert_int_eq(shutdown(k.daemon->channel, SHUT_WR), 0);
	storekit_turn(&k);
	ck_assert_int_eq(k.init.channel, -1);
	ck_assert_uint_eq(storekit_held(&k), 3);
	storekit_release(&k);
}
END_TEST

START_TEST(random_bytes_wear_init_out)
{
	struct storekit k;
	unsigned seed = 3;
	storekit_init(&k, 64);
	int fds[8];
	for (int i = 0; i < 8; i++)
		fds[i] = storekit_pipe();
	size_t before = storekit_fds();
	for (int i = 0; i < 30000; i++) {
		uint32_t m[8];
		for (int j = 0; j < 8; j++)
			m[j] = rand_r(&seed) % 3 ? (uint32_t)rand_r(&seed) % 6 : (uint32_t)rand_r(&seed) * 3u;
		size_t n = rand_r(&seed) % 4 ? sizeof(struct store_msg) : (size_t)rand_r(&seed) % sizeof m;
		send_raw(k.daemon->channel, m, n, fds, (size_t)rand_r(&seed) % 9);
		// And in what the daemon can write: the table, the marks, the counts of the head.
		uint32_t *words = rand_r(&seed) % 2 ? (uint32_t *)k.daemon->table : k.daemon->dirty;
		words[rand_r(&seed) % 512] = (uint32_t)rand_r(&seed) % 8 ? (uint32_t)rand_r(&seed) % 4 : UINT32_MAX;
		store_set(&k.daemon->head->used_to, rand_r(&seed) % 4 ? 64 : (uint32_t)rand_r(&seed));
		if (rand_r(&seed) % 3 == 0)
			init_store_turn(&k.init);
		ck_assert_int_ge(k.init.channel, 0);
		ck_assert_uint_le(storekit_fds(), before + (size_t)64 * STORE_ENDS);
	}
	store_set(&k.daemon->head->used_to, 64);
	storekit_turn(&k);
	size_t held = storekit_held(&k);
	ck_assert_uint_eq(storekit_fds(), before + held);
	for (int i = 0; i < 8; i++)
		close(fds[i]);
	storekit_release(&k);
}
END_TEST

// One turn ends, however much there is.
START_TEST(flood_keeps_init_from_everything_else)
{
	struct storekit k;
	storekit_init(&k, 4);
	pid_t pid = fork();
	if (pid == 0) {
		const struct store_msg m = {0};
		for (;;)
			(void)!send(k.daemon->channel, &m, sizeof m, MSG_NOSIGNAL);
	}
	for (int i = 0; i < 200; i++) {
		int64_t start = io_mono_ns();
		init_store_turn(&k.init);
		ck_assert_int_lt(io_mono_ns() - start, (int64_t)2000000000);
	}
	int64_t start = io_mono_ns();
	init_store_gone(&k.init);
	ck_assert_int_lt(io_mono_ns() - start, (int64_t)2000000000);
	ck_assert_int_eq(k.init.channel, -1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	storekit_release(&k);
}
END_TEST

static void quiet(void)
{
	log_setup(LOG_ERROR, false);
}

Suite *store_hands_suite(void)
{
	Suite *s = suite_create("store_hands");
	TCase *tc = tcase_create("store_hands");
	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, quiet, NULL);
	tcase_add_test(tc, end_is_dropped_too_early_or_never);
	tcase_add_test(tc, descriptors_drift_apart);
	tcase_add_test(tc, reader_that_never_reads_blocks);
	tcase_add_test(tc, init_without_descriptors_leaks_or_says_nothing);
	tcase_add_test(tc, nonsense_wears_init_out);
	tcase_add_test(tc, channel_that_has_ended_spins);
	tcase_add_test(tc, random_bytes_wear_init_out);
	tcase_add_test(tc, flood_keeps_init_from_everything_else);
	suite_add_tcase(s, tc);
	return s;
}
