// SPDX-License-Identifier: Apache-2.0
// tunnel: two sockets joined after an upgrade: bytes go both ways, at most TUNNEL_MAX of them queued for each; a side that closes its
// half has only that half closed. Owns both sockets; its owner frees it, also from within CLOSED. Knows no HTTP.
#ifndef CELLD_GATEWAY_TUNNEL_H
#define CELLD_GATEWAY_TUNNEL_H

#include "proto/buf.h"

#include <ev.h>

#define TUNNEL_MAX ((size_t)64 * 1024)

struct tunnel;
// A and B are connected, non-blocking and closed on failure too; TO_A and TO_B is what they have yet to be sent (taken: empty then).
// CLOSED is called once, from the loop, when both sides have ended or one has failed. NULL when out of memory.
struct tunnel *tunnel_new_take(
	struct ev_loop *loop, int a, struct buf *to_a, int b, struct buf *to_b, void (*closed)(void *arg), void *arg);
// Closes both sides at once. Accepts NULL.
void tunnel_free(struct tunnel *t);

#endif
