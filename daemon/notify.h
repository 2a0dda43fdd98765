// SPDX-License-Identifier: Apache-2.0
// notify: what a service manager (systemd) and celld tell each other: it gives listening sockets and an address for word of the state, and may
// want beats to see that the loop turns. No library for it: a static binary, and the protocol is one datagram of NAME=VALUE lines
// (sd_notify(3), sd_listen_fds(3)). Without such an environment nothing here ever runs. Must not know what is served.
#ifndef CELLD_DAEMON_NOTIFY_H
#define CELLD_DAEMON_NOTIFY_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define NOTIFY_TEXT_MAX ((size_t)512)

struct notify {
	struct sockaddr_un to;
	socklen_t to_len;  // 0: nobody listens
	int64_t beat_us;   // between two beats; 0 = none wanted
	size_t given;      // listening sockets, from descriptor NOTIFY_FIRST on
	const char *names; // theirs, separated by colons, or NULL
	struct ev_loop *loop;
	ev_timer beat, again;
	char unsaid[NOTIFY_TEXT_MAX]; // what its queue had no room for; empty = nothing
};

#define NOTIFY_FIRST 3

// Reads the environment and takes all of it that is the manager's out, so that no command gets it. -EINVAL: NOTIFY_SOCKET is of a form not
// known here, and nothing will be said.
int notify_take(struct notify *n);
// Puts the address and the wish for beats into the environment for a binary that takes this one's place; and out again.
int notify_export(const struct notify *n);
void notify_hide(void);
// The name of socket I (below N->given), not more than SIZE - 1 bytes of it; "" if it has none.
void notify_name(const struct notify *n, size_t i, char *out, size_t size);

// Beats come from LOOP (borrowed) until stopped, if they are wanted.
void notify_start(struct notify *n, struct ev_loop *loop);
// Does nothing if it was never started (zeroed).
void notify_stop(struct notify *n);
// Sends a datagram; never blocks. What finds no room is said as soon as there is some, unless there is something newer to say.
void notify_say(struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
