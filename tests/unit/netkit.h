// SPDX-License-Identifier: Apache-2.0
// netkit: a net with a few routes and clients in one thread: each wait turns the loop and reads the client until a condition
// holds or a deadline ends the test. Allocates nothing itself while a test runs.
#ifndef CELLD_UNIT_NETKIT_H
#define CELLD_UNIT_NETKIT_H

#include "daemon/net/conn.h"
#include "daemon/net/route.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KIT_GOT = 64 * 1024 };

enum kit_mode { KIT_UNIX, KIT_TCP };

// A producer of the digits 0123456789 over and over.
struct kit_source {
	uint64_t made, left; // bytes
	size_t piece;        // a pull gives at most so many; 0 = as many as there is room for
	enum conn_pull last; // what follows the last byte
	int dry;             // so many pulls give nothing first
	int closed;
	size_t room_min, room_max; // seen
	struct conn *conn;
};

struct kit {
	struct ev_loop *loop;
	struct net *net;
	struct conn *held[512]; // by /later, in order
	size_t held_count;
	struct kit_source source[2]; // of /stream and /stream2
	int handled, cut;            // handlers called; on_close called
	bool locked;                 // no token is good
	bool refusing;
	struct err refusal;
	const char *order; // what /later held, for its bodies
};

struct kit_client {
	int fd;
	char got[KIT_GOT]; // NUL-terminated; what is beyond is only counted
	size_t n;
	uint64_t total;
	bool eof;
	int error; // errno of the read that failed
};

extern const struct route_table kit_table;
extern const struct net_limits kit_limits;

void kit_init(struct kit *k, const struct net_limits *limits);
// With a line in the log for each request.
void kit_init_telling(struct kit *k, const struct net_limits *limits);
// The same on a loop of the caller's. False when out of memory.
bool kit_init_on(struct kit *k, struct ev_loop *loop, const struct net_limits *limits);
void kit_release(struct kit *k);

// Connects; the result is net_add_take's.
int kit_try(struct kit *k, struct kit_client *c, enum kit_mode mode);
void kit_open(struct kit *k, struct kit_client *c, enum kit_mode mode);
void kit_close(struct kit_client *c);
// One turn of the loop, and what has come is read into C (may be NULL).
void kit_turn(struct kit *k, struct kit_client *c);
// Sends all of it, turning the loop when the socket is full. Returns the bytes sent before the peer was gone.
size_t kit_send(struct kit *k, struct kit_client *c, const void *p, size_t n);
void kit_say(struct kit *k, struct kit_client *c, const char *text);
// Turns until COND; fails the test after ten seconds.
#define KIT_UNTIL(k, c, cond)                                                \
	do {                                                                 \
		double kit_end = kit_time() + 10;                            \
		while (!(cond)) {                                            \
			ck_assert_msg(kit_time() < kit_end, "no %s", #cond); \
			kit_turn((k), (c));                                  \
		}                                                            \
	} while (0)
// Turns for so many seconds.
void kit_turns_for(struct kit *k, struct kit_client *c, double seconds);
double kit_time(void);
// Forgets what came so far.
void kit_forget(struct kit_client *c);
bool kit_has(const struct kit_client *c, const char *text);
// How often TEXT is in what came.
size_t kit_times(const struct kit_client *c, const char *text);
// Answers the oldest of the held requests with BODY.
void kit_answer(struct kit *k, const char *body);

#endif
