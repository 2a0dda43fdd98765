// SPDX-License-Identifier: Apache-2.0
// peer: the other end of one connection: gives the daemon the bytes it was given in pieces, takes what comes back in pieces, and checks
// it as a client would see it: each answer well-formed, one for each request, none after the last.
#ifndef CELLD_FUZZ_PEER_H
#define CELLD_FUZZ_PEER_H

#include "proto/buf.h"
#include "proto/http.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PEER_REQUESTS = 1024, PEER_BODY = 64 * 1024 };

struct peer {
	int fd, far;          // FD is the daemon's; it is always readable and writable
	struct buf in;        // said, not read yet
	unsigned cut, put;    // how reads and writes are cut: 0 = not
	uint32_t dice;        // of the pieces without a rule
	size_t pieces;        // of input
	bool eof, reset;      // what it does next
	bool stalled;         // takes nothing
	bool shut, closed;    // what the daemon has done
	bool over;            // nothing may come any more
	struct http *asked;   // the requests as they went out
	bool asked_bad;       // ... of which one made no sense: nothing of what follows counts
	struct http *told;    // the answers
	size_t heads, whole;  // requests whose head, or all, the daemon has read
	size_t answers;       // whole ones, interim ones left out
	bool answering, last; // within one; no other may follow it
	bool streamed;        // the daemon's end came within one
	bool json;            // its body has to be a JSON object
	struct buf body;
	bool head[PEER_REQUESTS]; // was a HEAD
};

// 0, or a negative errno when there are no descriptors.
int peer_open(struct peer *p, unsigned cut, unsigned put);
void peer_say(struct peer *p, const void *bytes, size_t n);
void peer_reset(struct peer *p);
// All has been said and the daemon is through: each request that it read whole has its answer, the last one is not cut.
void peer_settled(const struct peer *p);
// The daemon is about to end: a stream that runs is the last answer, though it could not say so.
void peer_ending(struct peer *p);
void peer_close(struct peer *p);

#endif
