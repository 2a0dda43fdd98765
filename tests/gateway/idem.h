// SPDX-License-Identifier: Apache-2.0
// idem: which Idempotency-Keys creates came with in the last minutes, and what they were answered. Bounded: the oldest entry makes room.
// An entry is known by a number, 0 = none; every function accepts one that is gone. Must not know sessions.
#ifndef CELLD_GATEWAY_IDEM_H
#define CELLD_GATEWAY_IDEM_H

#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"

#include <stdint.h>

enum { IDEM_MAX = 256, IDEM_KEY = 255, IDEM_ID = 32 };

struct idem;
struct idem *idem_new(void);
void idem_free(struct idem *all);
// 0: KEY is new, *ENTRY its number. 1: it was used for the same body: *ANSWER is what it was answered (borrowed), or NULL while that is made for the
// session *ID (borrowed, maybe ""). -1 with E filled: 400, or 409 for another body.
int idem_enter(struct idem *all, struct http_span key, const struct buf *body, int64_t now_ns, uint64_t *entry,
	const char **id, const struct buf **answer, struct err *e);
void idem_session(struct idem *all, uint64_t entry, const char *id);
// Without memory for a copy the entry is dropped.
void idem_answer(struct idem *all, uint64_t entry, const struct buf *answer);
void idem_drop(struct idem *all, uint64_t entry);

#endif
