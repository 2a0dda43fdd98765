// SPDX-License-Identifier: Apache-2.0
// What relay's files share: relay.c has the loop and the signals, relay_in.c what goes to the command, relay_out.c what comes from it.
#ifndef CELLD_DAEMON_CTL_RELAY_PRIV_H
#define CELLD_DAEMON_CTL_RELAY_PRIV_H

#include "daemon/ctl/http_client.h"
#include "daemon/ctl/relay.h"
#include "proto/frame.h"

#include <signal.h>

// Of input in one call; as much again is read ahead meanwhile.
#define RELAY_PIECE ((size_t)192 * 1024)

enum relay_call { RELAY_NONE, RELAY_INPUT, RELAY_CLOSE, RELAY_SIGNAL, RELAY_RESIZE };

struct sink {
	int fd;
	bool plain;  // a file: takes any length at once
	bool broken; // nobody reads it any more
	bool safe;   // control characters are shown, not sent
	struct buf pending;
};

struct relay {
	const struct relay_spec *spec;
	struct relay_end *end;
	struct http_client stream, calls;
	struct frame_reader frames;
	bool failed; // the stream's answer was an error: its body is still coming
	bool begun;  // head and pid have come
	bool over;   // and the end
	bool more;   // the stream may have more at once: what else waits has its turn first
	int64_t pid;
	struct sink sinks[2];
	uint64_t in_bytes, out_bytes;

	struct buf input;
	bool input_end;    // nothing more to read
	bool input_closed; // nothing more to send
	uint64_t signals;  // to be sent: bit N - 1
	int64_t pressed;   // io_mono_ns when the first of them came
	bool resize;
	enum relay_call call; // under way
	size_t call_bytes;
	int call_signal;
	enum relay_call refused; // for now, until retry_at
	int64_t retry_at;        // 0: at once
	int64_t retry_ns;
};

// Reads what the stream has as long as the sinks have room. 0, or -1 with E filled.
int relay_take(struct relay *r, struct err *e);
// Writes what FD takes without waiting.
void relay_flush(struct relay *r, struct sink *s);
bool relay_pending(const struct relay *r);
bool relay_has_room(const struct relay *r);

bool relay_wants_input(const struct relay *r);
// Reads from spec->in, which is readable. 0, or -1 with E filled.
int relay_read_input(struct relay *r, struct err *e);
// Begins the next call if none is under way, and goes on with the one that is. 0, or -1 with E filled.
int relay_send(struct relay *r, struct err *e);
// When relay_send has to be asked again (io_mono_ns), or 0.
int64_t relay_retry_at(const struct relay *r);

#endif
