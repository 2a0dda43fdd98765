// SPDX-License-Identifier: Apache-2.0
// work: a request that is served in slices, and an answer that is made in slices: while it is short it goes out whole with its
// length, else it is streamed as the reader takes it, in constant memory. The owner embeds a struct work as its first member
// and allocates it; work_start takes it over.
#ifndef CELLD_SANDBOXD_WORK_H
#define CELLD_SANDBOXD_WORK_H

#include "daemon/core/slice.h"
#include "daemon/net/conn.h"
#include "proto/buf.h"
#include "proto/err.h"

#include <stdbool.h>
#include <stdint.h>

enum work_state {
	WORK_MORE,   // step again
	WORK_DONE,   // the answer in out is whole
	WORK_FAILED, // err says why: the answer is that, or, if half of another one is out, the connection is cut
};

struct work;

struct work_ops {
	// Goes on until UNTIL (io_mono_ns) or until out has grown by some 64 KiB.
	enum work_state (*step)(struct work *w, int64_t until);
	// The end, also of one that was given up. Frees W itself.
	void (*free)(struct work *w);
	bool keep_on; // it goes on to its end even if nobody waits for the answer any more
};

struct work {
	struct slice_job job; // private
	struct slices *slices;
	struct conn *conn;          // private: NULL once the client is gone
	const struct work_ops *ops; // private
	struct buf out;             // the answer's body, JSON
	struct err err;
	bool streaming; // private: the answer has begun
	bool ended;     // private: out has its last bytes
};

// Serves the request of C with W (zeroed, or filled by its owner beyond the work), its first step now: W may be gone afterwards.
void work_start(struct work *w, struct slices *slices, struct conn *c, const struct work_ops *ops);

#endif
