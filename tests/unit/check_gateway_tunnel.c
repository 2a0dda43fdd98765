// SPDX-License-Identifier: Apache-2.0
// The gateway's tunnel: two sockets joined.
#include "netkit.h"
#include "suites.h"
#include "tests/gateway/tunnel.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ev_loop *loop;
static struct tunnel *tunnel;
static int far[2]; // the other ends of both sides' sockets
static int closed;

static void on_closed(void *arg)
{
	ck_assert_ptr_eq(arg, &closed);
	closed++;
	tunnel_free(tunnel);
	tunnel = NULL;
}

static void open_with(const char *to_a, const char *to_b)
{
	int near[2];
	struct buf out[2] = {{0}, {0}};
	for (int i = 0; i < 2; i++) {
		int fds[2];
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
		near[i] = fds[0];
		far[i] = fds[1];
	}
	buf_str(&out[0], to_a);
	buf_str(&out[1], to_b);
	tunnel = tunnel_new_take(loop, near[0], &out[0], near[1], &out[1], on_closed, &closed);
	ck_assert_ptr_nonnull(tunnel);
	ck_assert_uint_eq(buf_len(&out[0]) + buf_len(&out[1]), 0);
}

static void setup(void)
{
	loop = ev_loop_new(EVFLAG_NOENV);
	closed = 0;
	far[0] = far[1] = -1;
}

static void teardown(void)
{
	tunnel_free(tunnel);
	tunnel = NULL;
	for (int i = 0; i < 2; i++) {
		if (far[i] >= 0)
			close(far[i]);
	}
	ev_loop_destroy(loop);
}

// Turns until FD has something: the bytes read, 0 at its end.
static size_t await(int fd, char *p, size_t n)
{
	for (double end = kit_time() + 10; kit_time() < end;) {
		ev_run(loop, EVRUN_NOWAIT);
		ssize_t rc = read(fd, p, n);
		if (rc >= 0)
			return (size_t)rc;
		ck_assert_int_eq(errno, EAGAIN);
	}
	ck_abort_msg("nothing came");
	return 0;
}

START_TEST(what_was_queued_goes_first)
{
	char got[16];
	open_with("to a", "to b");
	ck_assert_int_eq(write(far[1], "!", 1), 1);
	ck_assert_uint_eq(await(far[1], got, sizeof got), 4);
	ck_assert_mem_eq(got, "to b", 4);
	size_t n = await(far[0], got, sizeof got);
	if (n < 5)
		n += await(far[0], got + n, sizeof got - n);
	ck_assert_uint_eq(n, 5);
	ck_assert_mem_eq(got, "to a!", 5);
}
END_TEST

// A side that does not read holds the other one up, and not its own direction.
START_TEST(backpressure)
{
	static char piece[64 * 1024];
	char got[8];
	size_t sent = 0, read_back = 0;
	open_with("", "");
	for (double end = kit_time() + 0.2; kit_time() < end;) {
		ssize_t n = write(far[_i], piece, sizeof piece);
		sent += n > 0 ? (size_t)n : 0;
		ev_run(loop, EVRUN_NOWAIT);
	}
	ck_assert_uint_gt(sent, TUNNEL_MAX);
	ck_assert_uint_lt(sent, 4 * 1024 * 1024);
	ck_assert_int_eq(write(far[1 - _i], "back", 4), 4);
	ck_assert_uint_eq(await(far[_i], got, sizeof got), 4);
	while (read_back < sent)
		read_back += await(far[1 - _i], piece, sizeof piece);
	ck_assert_uint_eq(read_back, sent);
	ck_assert_int_eq(closed, 0);
}
END_TEST

START_TEST(half_closed)
{
	char got[8];
	open_with("", "");
	int a = far[_i], b = far[1 - _i];
	ck_assert_int_eq(write(a, "last", 4), 4);
	shutdown(a, SHUT_WR);
	ck_assert_uint_eq(await(b, got, sizeof got), 4);
	ck_assert_uint_eq(await(b, got, sizeof got), 0);
	ck_assert_int_eq(closed, 0);
	ck_assert_int_eq(write(b, "still", 5), 5);
	ck_assert_uint_eq(await(a, got, sizeof got), 5);
	shutdown(b, SHUT_WR);
	ck_assert_uint_eq(await(a, got, sizeof got), 0);
	ck_assert_int_eq(closed, 1);
}
END_TEST

// A side that is gone altogether ends it as soon as something is for it.
START_TEST(gone)
{
	char got[8];
	open_with("", "");
	close(far[_i]);
	far[_i] = -1;
	ck_assert_uint_eq(await(far[1 - _i], got, sizeof got), 0);
	(void)send(far[1 - _i], "x", 1, MSG_NOSIGNAL);
	for (double end = kit_time() + 10; !closed && kit_time() < end;)
		ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_eq(closed, 1);
}
END_TEST

START_TEST(freed_by_its_owner)
{
	char got[8];
	open_with("", "");
	tunnel_free(tunnel);
	tunnel = NULL;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(read(far[i], got, sizeof got), 0);
	ck_assert_int_eq(closed, 0);
}
END_TEST

// Sockets are not left open by a tunnel that could not be made.
START_TEST(not_made)
{
	int a[2], b[2];
	char got[8];
	struct buf ok, bad;
	buf_init(&ok, 0);
	buf_init(&bad, 1);
	buf_str(&ok, "x");
	buf_str(&bad, "too long");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, a), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, b), 0);
	ck_assert_ptr_null(tunnel_new_take(loop, a[0], &ok, b[0], &bad, on_closed, &closed));
	ck_assert_int_eq(read(a[1], got, sizeof got), 0);
	ck_assert_int_eq(read(b[1], got, sizeof got), 0);
	ck_assert_uint_eq(buf_len(&ok), 0);
	close(a[1]);
	close(b[1]);
}
END_TEST

Suite *gateway_tunnel_suite(void)
{
	Suite *s = suite_create("gateway_tunnel");
	TCase *t = tcase_create("tunnel");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_was_queued_goes_first);
	tcase_add_loop_test(t, backpressure, 0, 2);
	tcase_add_loop_test(t, half_closed, 0, 2);
	tcase_add_loop_test(t, gone, 0, 2);
	tcase_add_test(t, freed_by_its_owner);
	tcase_add_test(t, not_made);
	suite_add_tcase(s, t);
	return s;
}
