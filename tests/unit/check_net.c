// SPDX-License-Identifier: Apache-2.0
// The set of connections: limits, deadlines, vanished peers, the orderly end, running out of memory.
#include "netkit.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define READY "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n"
#define PLAIN "GET /plain HTTP/1.1\r\nHost: x\r\n\r\n"

enum { RESERVE = 16 };

static struct kit kit;
static struct kit_client clients[RESERVE + 4];

static void setup_limits(size_t max_conns, double header, double idle)
{
	struct net_limits l = kit_limits;
	l.max_conns = max_conns;
	l.header_timeout = header;
	l.idle_timeout = idle;
	l.send_timeout = 0.5;
	kit_init(&kit, &l);
}

static void teardown(void)
{
	for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++)
		if (clients[i].fd > 0)
			kit_close(&clients[i]);
	kit_release(&kit);
}

static void open_said(size_t i, const char *text)
{
	kit_open(&kit, &clients[i], KIT_TCP);
	kit_say(&kit, &clients[i], text);
	kit_turn(&kit, &clients[i]);
}

// --- limits ---

START_TEST(longest_idle_makes_room)
{
	setup_limits(3, 20, 100);
	open_said(0, READY);
	open_said(1, READY);
	open_said(2, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &clients[0], kit_has(&clients[0], "ok"));
	KIT_UNTIL(&kit, &clients[1], kit_has(&clients[1], "ok"));
	kit_forget(&clients[0]);
	kit_say(&kit, &clients[0], READY); // now the other one is idle longer
	KIT_UNTIL(&kit, &clients[0], kit_has(&clients[0], "ok"));
	kit_open(&kit, &clients[3], KIT_TCP);
	ck_assert_uint_eq(net_conn_count(kit.net), 3);
	KIT_UNTIL(&kit, &clients[1], clients[1].eof);
	ck_assert_int_eq(clients[1].error, 0);
	kit_turn(&kit, &clients[0]);
	ck_assert(!clients[0].eof);
	kit_say(&kit, &clients[3], PLAIN);
	KIT_UNTIL(&kit, &clients[3], kit_has(&clients[3], "ok"));
	teardown();
}
END_TEST

START_TEST(reserve_serves_vital_routes)
{
	setup_limits(1, 20, 100);
	open_said(0, "GET /pl"); // half a head is not idle
	open_said(1, READY);
	open_said(2, PLAIN);
	KIT_UNTIL(&kit, &clients[1], clients[1].eof);
	KIT_UNTIL(&kit, &clients[2], clients[2].eof);
	ck_assert(kit_has(&clients[1], "HTTP/1.1 200 OK\r\n"));
	ck_assert(kit_has(&clients[1], "Connection: close\r\n"));
	ck_assert(kit_has(&clients[2], "HTTP/1.1 503 Service Unavailable\r\n"));
	ck_assert(kit_has(&clients[2], "{\"error\":\"too many connections\",\"retryable\":true}"));
	ck_assert(kit_has(&clients[2], "Connection: close\r\n"));
	kit_close(&clients[1]);
	kit_close(&clients[2]);
	KIT_UNTIL(&kit, NULL, net_conn_count(kit.net) == 1);
	kit_say(&kit, &clients[0], "ain HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &clients[0], kit_has(&clients[0], "ok"));
	teardown();
}
END_TEST

START_TEST(reserve_is_bounded)
{
	setup_limits(1, 20, 100);
	open_said(0, "GET /pl");
	for (size_t i = 1; i <= RESERVE; i++)
		kit_open(&kit, &clients[i], KIT_TCP);
	ck_assert_uint_eq(net_conn_count(kit.net), RESERVE + 1);
	open_said(RESERVE + 1, READY);
	KIT_UNTIL(&kit, &clients[RESERVE + 1], kit_has(&clients[RESERVE + 1], "ok"));
	ck_assert_uint_le(net_conn_count(kit.net), RESERVE + 1);
	KIT_UNTIL(&kit, &clients[1], clients[1].eof); // the oldest
	kit_turn(&kit, &clients[2]);
	ck_assert(!clients[2].eof);
	double start = kit_time();
	kit_say(&kit, &clients[2], "GE"); // does not extend its second
	KIT_UNTIL(&kit, &clients[2], clients[2].eof);
	KIT_UNTIL(&kit, NULL, net_conn_count(kit.net) <= 2);
	ck_assert_double_lt(kit_time() - start, 5);
	teardown();
}
END_TEST

START_TEST(all_in_use_is_an_error)
{
	setup_limits(1, 20, 100);
	open_said(0, "GET /pl");
	for (size_t i = 1; i <= RESERVE; i++)
		open_said(i, "GET /vital-later HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, NULL, kit.held_count == RESERVE);
	ck_assert_int_eq(kit_try(&kit, &clients[RESERVE + 1], KIT_TCP), -EUSERS);
	KIT_UNTIL(&kit, &clients[RESERVE + 1], clients[RESERVE + 1].eof);
	ck_assert_uint_eq(net_conn_count(kit.net), RESERVE + 1);
	teardown();
	ck_assert_int_eq(kit.cut, RESERVE);
}
END_TEST

// --- deadlines ---

START_TEST(dripping_head_is_408)
{
	setup_limits(10, 0.3, 100);
	double start = kit_time();
	kit_open(&kit, &clients[0], KIT_TCP);
	const char *drip = READY;
	while (!clients[0].eof && kit_time() < start + 8) {
		if (*drip && kit_time() < start + 2)
			(void)!send(clients[0].fd, drip++, 1, MSG_NOSIGNAL);
		kit_turns_for(&kit, &clients[0], 0.02);
	}
	ck_assert_double_ge(kit_time() - start, 0.29);
	ck_assert_double_lt(kit_time() - start, 6);
	ck_assert(strncmp(clients[0].got, "HTTP/1.1 408 Request Timeout\r\n", 30) == 0);
	ck_assert(kit_has(&clients[0], "{\"error\":\"request timeout\""));
	ck_assert(kit_has(&clients[0], "Connection: close\r\n"));
	ck_assert_int_eq(kit.handled, 0);
	teardown();
}
END_TEST

START_TEST(stalled_body_is_408)
{
	setup_limits(10, 0.1, 100);
	open_said(0, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
	// Each byte gives it another three tenths.
	for (int i = 0; i < 4; i++) {
		kit_turns_for(&kit, &clients[0], 0.15);
		ck_assert_uint_eq(clients[0].n, 0);
		kit_say(&kit, &clients[0], "x");
	}
	KIT_UNTIL(&kit, &clients[0], clients[0].eof);
	ck_assert(strncmp(clients[0].got, "HTTP/1.1 408 ", 13) == 0);
	ck_assert_int_eq(kit.handled, 0);
	teardown();
}
END_TEST

START_TEST(idle_connection_is_closed_silently)
{
	setup_limits(10, 20, 0.3);
	kit_open(&kit, &clients[1], KIT_TCP); // never says a word
	open_said(0, READY);
	KIT_UNTIL(&kit, &clients[0], kit_has(&clients[0], "ok"));
	size_t n = clients[0].n;
	KIT_UNTIL(&kit, &clients[0], clients[0].eof);
	KIT_UNTIL(&kit, &clients[1], clients[1].eof);
	ck_assert_uint_eq(clients[0].n, n);
	ck_assert_uint_eq(clients[1].n, 0);
	ck_assert_uint_eq(net_conn_count(kit.net), 0);
	teardown();
}
END_TEST

START_TEST(no_deadline_while_the_handler_has_it)
{
	setup_limits(10, 0.1, 0.1);
	open_said(0, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	open_said(1, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	kit.source[0].last = CONN_PULL_IDLE;
	KIT_UNTIL(&kit, &clients[1], clients[1].n > 0 || kit.source[0].closed);
	kit_turns_for(&kit, &clients[0], 0.6);
	ck_assert(!clients[0].eof);
	kit_answer(&kit, "done");
	KIT_UNTIL(&kit, &clients[0], kit_has(&clients[0], "done"));
	teardown();
}
END_TEST

// After a stop of the daemon the timer and the bytes come up together: what was sent in time counts.
START_TEST(bytes_that_wait_beat_the_deadline)
{
	setup_limits(10, 0.2, 100);
	open_said(0, "GET /ready HTTP/1.1\r\n");
	kit_turn(&kit, NULL);
	ck_assert_int_eq(send(clients[0].fd, "Host: x\r\n\r\n", 11, MSG_NOSIGNAL), 11);
	usleep(400 * 1000); // as if stopped: the loop does not run
	KIT_UNTIL(&kit, &clients[0], clients[0].n > 0);
	ck_assert(strncmp(clients[0].got, "HTTP/1.1 200 OK", 15) == 0);
	teardown();
}
END_TEST

// --- vanished peers ---

static void fill_stream(void)
{
	kit.source[0] = (struct kit_source){.left = 1 << 30, .last = CONN_PULL_END};
	open_said(0, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	uint64_t made = 0;
	do {
		made = kit.source[0].made;
		for (int i = 0; i < 20; i++)
			kit_turn(&kit, NULL);
	} while (kit.source[0].made > made);
}

START_TEST(slow_but_alive_is_waited_for)
{
	setup_limits(10, 20, 100); // 0.5 s send timeout
	fill_stream();
	kit_turns_for(&kit, NULL, 3);
	ck_assert_int_eq(kit.source[0].closed, 0);
	KIT_UNTIL(&kit, &clients[0], clients[0].total > 8000000);
	teardown();
}
END_TEST

static void loopback(bool up)
{
	struct ifreq r = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	ck_assert_int_eq(ioctl(fd, SIOCGIFFLAGS, &r), 0);
	r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
	ck_assert_int_eq(ioctl(fd, SIOCSIFFLAGS, &r), 0);
	close(fd);
}

// In a network of its own, whose only device goes down.
START_TEST(vanished_peer_is_noticed)
{
	if (unshare(CLONE_NEWNET) < 0)
		return; // needs root; the part that decides is the same in slow_but_alive_is_waited_for
	loopback(true);
	setup_limits(10, 20, 100);
	fill_stream();
	loopback(false);
	double end = kit_time() + 20;
	while (kit.source[0].closed == 0 && kit_time() < end)
		kit_turn(&kit, NULL);
	ck_assert_int_eq(kit.source[0].closed, 1);
	ck_assert_uint_eq(net_conn_count(kit.net), 0);
	teardown();
}
END_TEST

// --- the end ---

// Without a turn of the loop.
static void put_request(const struct kit_client *c, const char *text)
{
	ck_assert_int_eq(send(c->fd, text, strlen(text), 0), (int)strlen(text));
}

// Forty requests whose handlers take a millisecond each, all there before the loop looks.
START_TEST(busy_handlers_hold_up_health)
{
	static struct kit_client many[40], health;
	kit_init(&kit, &kit_limits);
	for (size_t i = 0; i < 40; i++) {
		kit_open(&kit, &many[i], KIT_UNIX);
		put_request(&many[i], "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
	}
	kit_open(&kit, &health, KIT_UNIX);
	put_request(&health, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
	kit.handled = 0;
	KIT_UNTIL(&kit, &health, kit_has(&health, "HTTP/1.1 200"));
	ck_assert_msg(kit.handled < 12, "%d others were served first", kit.handled);
	for (size_t i = 0; i < 40; i++) {
		KIT_UNTIL(&kit, &many[i], kit_has(&many[i], "HTTP/1.1 200"));
		kit_close(&many[i]);
	}
	// What waits for its turn when the end comes is refused.
	for (size_t i = 0; i < 40; i++) {
		kit_forget(&many[i]);
		kit_open(&kit, &many[i], KIT_UNIX);
		put_request(&many[i], "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
	}
	kit_turn(&kit, NULL);
	err_set(&kit.refusal, ERR_UNAVAILABLE, "ending");
	kit.refusing = true;
	int started = kit.handled;
	size_t refused = 0;
	for (size_t i = 0; i < 40; i++) {
		KIT_UNTIL(&kit, &many[i], kit_has(&many[i], "HTTP/1.1 "));
		refused += kit_has(&many[i], "HTTP/1.1 503");
		kit_close(&many[i]);
	}
	ck_assert_int_eq(kit.handled, started);
	ck_assert_uint_gt(refused, 0);
	kit_close(&health);
	kit_release(&kit);
}
END_TEST

START_TEST(idle_connections_can_be_evicted)
{
	static struct kit_client a, b;
	kit_init(&kit, &kit_limits);
	kit_open(&kit, &a, KIT_UNIX);
	kit_open(&kit, &b, KIT_UNIX);
	kit_say(&kit, &a, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &a, kit_has(&a, "HTTP/1.1 200"));
	ck_assert(net_evict(kit.net)); // b: it has been idle for longer
	KIT_UNTIL(&kit, &b, b.eof);
	ck_assert(!a.eof);
	ck_assert(net_evict(kit.net));
	ck_assert(!net_evict(kit.net));
	kit_close(&a);
	kit_close(&b);
	kit_release(&kit);
}
END_TEST

START_TEST(drain_lets_answers_out)
{
	setup_limits(10, 20, 100);
	kit.source[0] = (struct kit_source){.left = 3, .last = CONN_PULL_IDLE};
	open_said(0, READY);
	open_said(1, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	open_said(2, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &clients[0], kit_has(&clients[0], "ok"));
	KIT_UNTIL(&kit, &clients[2], kit_has(&clients[2], "012"));
	net_drain(kit.net);
	ck_assert(!net_drained(kit.net));
	KIT_UNTIL(&kit, &clients[0], clients[0].eof);
	kit.source[0].last = CONN_PULL_END;
	conn_wake(kit.source[0].conn);
	net_flush(kit.net); // by hand, as after ev_break
	KIT_UNTIL(&kit, &clients[2], clients[2].eof);
	ck_assert(kit_has(&clients[2], "\r\n0\r\n\r\n"));
	kit_close(&clients[2]);
	KIT_UNTIL(&kit, NULL, net_conn_count(kit.net) == 1);
	ck_assert(!net_drained(kit.net));
	kit_answer(&kit, "done");
	KIT_UNTIL(&kit, &clients[1], clients[1].eof);
	ck_assert(kit_has(&clients[1], "Connection: close\r\n"));
	ck_assert(kit_has(&clients[1], "done"));
	KIT_UNTIL(&kit, NULL, net_drained(kit.net));
	teardown();
}
END_TEST

// Whoever has said all of his request has an answer, not a reset.
START_TEST(drain_reads_what_was_said)
{
	setup_limits(10, 20, 100);
	open_said(0, READY);
	open_said(1, READY);
	KIT_UNTIL(&kit, &clients[0], kit_has(&clients[0], "ok"));
	KIT_UNTIL(&kit, &clients[1], kit_has(&clients[1], "ok"));
	kit_forget(&clients[0]);
	kit_forget(&clients[1]);
	ck_assert_int_eq(write(clients[0].fd, READY, sizeof READY - 1), sizeof READY - 1);
	net_drain(kit.net);
	ck_assert(!net_drained(kit.net));
	KIT_UNTIL(&kit, &clients[0], clients[0].eof);
	ck_assert(kit_has(&clients[0], "Connection: close\r\n"));
	ck_assert(kit_has(&clients[0], "ok"));
	KIT_UNTIL(&kit, &clients[1], clients[1].eof);
	ck_assert_uint_eq(clients[1].n, 0);
	KIT_UNTIL(&kit, NULL, net_drained(kit.net));
	teardown();
}
END_TEST

START_TEST(free_tells_everybody)
{
	setup_limits(10, 20, 100);
	kit.source[0].last = CONN_PULL_IDLE;
	open_said(0, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	open_said(1, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	open_said(2, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
	KIT_UNTIL(&kit, &clients[1], clients[1].n > 0);
	teardown();
	ck_assert_int_eq(kit.cut, 1);
	ck_assert_int_eq(kit.source[0].closed, 1);
}
END_TEST

// --- out of memory ---

static const char cycle[] = "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 300\r\n\r\n";
static const char pipelined[] = "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /stream HTTP/1.1\r\nHost: x\r\n\r\n"
				"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n";

// Says TEXT and turns until WANT came (or the end); false at the end.
static bool talk(struct kit_client *c, const char *text, size_t n, const char *want)
{
	(void)!send(c->fd, text, n, MSG_NOSIGNAL);
	for (int i = 0; i < 400; i++) {
		kit_turn(&kit, c);
		if (kit_has(c, want))
			return true;
		if (c->eof)
			return false;
		if (kit.held_count > 0)
			kit_answer(&kit, "held");
	}
	return false;
}

static int whole_cycle(void *arg)
{
	char body[300];
	struct kit_client *c = &clients[0];
	memset(body, 'x', sizeof(body));
	if (!kit_init_on(&kit, arg, &kit_limits))
		return -ENOMEM;
	int rc = kit_try(&kit, c, KIT_UNIX);
	kit.source[0] = (struct kit_source){.left = 1000, .piece = 100, .last = CONN_PULL_END};
	bool all = rc == 0 && talk(c, cycle, sizeof(cycle) - 1, "100 Continue\r\n\r\n") &&
		   talk(c, body, sizeof(body), "Content-Length: 300\r\n\r\n") &&
		   talk(c, pipelined, sizeof(pipelined) - 1, "{\"error\":\"not found\"");
	bool answered = kit_has(c, " 503 Service Unavailable\r\n");
	bool closed = c->eof;
	kit.held_count = 0;
	net_free(kit.net);
	kit_close(c);
	if (rc == 0 && !all && !answered && !closed)
		return 1; // neither an answer nor an end
	if (kit.source[0].closed > 1)
		return 2;
	return all && !answered ? 0 : -ENOMEM;
}

START_TEST(every_allocation_may_fail)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_NOENV);
	ck_assert_ptr_nonnull(loop);
	ck_assert_int_eq(whole_cycle(loop), 0); // libev has its arrays now; it cannot do without
	OOM_LOOP(whole_cycle, loop);
	ev_loop_destroy(loop);
}
END_TEST

Suite *net_suite(void)
{
	const TTest *const tests[] = {longest_idle_makes_room, reserve_serves_vital_routes, reserve_is_bounded,
		all_in_use_is_an_error, dripping_head_is_408, stalled_body_is_408, idle_connection_is_closed_silently,
		no_deadline_while_the_handler_has_it, bytes_that_wait_beat_the_deadline, slow_but_alive_is_waited_for,
		vanished_peer_is_noticed, busy_handlers_hold_up_health, idle_connections_can_be_evicted,
		drain_lets_answers_out, drain_reads_what_was_said, free_tells_everybody, every_allocation_may_fail};
	Suite *s = suite_create("net");
	TCase *tc = tcase_create("net");
	tcase_set_timeout(tc, 60);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	return s;
}
