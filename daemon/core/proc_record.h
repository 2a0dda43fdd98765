// SPDX-License-Identifier: Apache-2.0
// proc_record: what a process's slot says about it, as bytes that a later daemon on the same machine reads. Pure: bytes in, bytes out.
// Must not know where they lie, nor whether they are whole: that is the store's.
#ifndef CELLD_CORE_PROC_RECORD_H
#define CELLD_CORE_PROC_RECORD_H

#include "daemon/core/launch.h"
#include "proto/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc_record {
	uint32_t kind; // enum proc_kind
	bool wanted;   // it was started with a stdin
	int64_t started_ms, started_ns;
	int64_t terminal_id;
	const char *command;
	const char *session_id, *note; // or NULL
	bool has_asked;
	struct asked asked;
};

// Appends R to OUT, whose failure sticks.
void proc_record_encode(struct buf *out, const struct proc_record *r);
// The N bytes at P, which R's strings point into (or into what is released): 0; -EPROTO if they make no sense; -ENOMEM.
int proc_record_decode(struct proc_record *r, const void *p, size_t n);
// Frees the lists of a decoded one.
void proc_record_release(struct proc_record *r);

#endif
