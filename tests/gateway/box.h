// SPDX-License-Identifier: Apache-2.0
// box: one running celld: PID 1 of its own PID and mount namespaces (a user namespace too when the gateway is not root), or a plain child
// where those are not to be had. Its writable places (workspace = /home/user, /tmp, /dev/shm) are directories under the box's DIR. Both surfaces listen on
// Unix sockets in DIR that the gateway opens beforehand and passes on (fd:N), so that a box has no port of the host's.
// A box is used once: start, ready, ended. Must not know HTTP, pools or sessions.
#ifndef CELLD_GATEWAY_BOX_H
#define CELLD_GATEWAY_BOX_H

#include "tests/gateway/options.h"

#include <ev.h>
#include <stdbool.h>
#include <sys/types.h>

enum { BOX_SANDBOXD = 2024, BOX_ENVD = 49983 }; // ports by which box_connect means the daemon's own surfaces

struct box;
struct box_events {
	// Its celld has said that it is ready. Once, from the loop.
	void (*ready)(void *arg, struct box *b);
	// Its celld has ended (WHY: "exit status 1", "killed by SIGKILL") or could not be started. Once, last, from the loop. The box may be freed in it.
	void (*ended)(void *arg, struct box *b, const char *why);
};
struct box_spec {
	const char *celld;
	const char *dir; // absolute, exists, empty or left from an earlier box (its places are used again then)
	const char *
		hide; // a directory that holds other boxes' files too: out of sight within. NULL: the one that DIR is in
	bool namespaces; // box_can_isolate said that it works
	bool private_net;
	bool verbose; // its log on our stderr too, each line behind "[NAME] "
	const char *name;
};

// What isolation this machine gives: tries it once with a short-lived child. NULL, or why not.
const char *box_can_isolate(void);
// NULL with errno set when it cannot even be tried. EV and SPEC are copied (strings too).
struct box *box_start(struct ev_loop *loop, const struct box_spec *spec, const struct box_events *ev, void *arg);
pid_t box_pid(const struct box *b);  // of its PID 1 as we see it; 0 once it has ended
bool box_alive(const struct box *b); // its PID 1 runs (asked of the kernel, not remembered)
// KILL to its PID 1, and with the namespace to all in it (as a plain child: to its tree). `ended` follows, also for one that is frozen.
void box_kill(struct box *b);
// Stops (cgroup freezer of a group of its own where one can be made, else SIGSTOP to all its processes, celld too, until a look finds none that runs)
// and continues. 0 or negative errno.
int box_freeze(struct box *b);
int box_thaw(struct box *b);
bool box_frozen(const struct box *b);
// A new non-blocking, connecting socket to PORT of the box: its surfaces' sockets, or 127.0.0.1:PORT (in its own network where it has one).
// The descriptor or negative errno (-ECONNREFUSED: nothing listens there, as far as that is known at once).
int box_connect(const struct box *b, unsigned port);
// New tokens: writes the token file that celld was started with (--token-file; empty or NULL = none) and sends HUP; when it holds is for the caller to ask. -ESRCH before it is ready.
int box_set_token(struct box *b, const char *token);
const char *box_dir(const struct box *b);
// Where the workspace is as the gateway sees it ("DIR/work"), and as the sandbox does ("/home/user", or the former where it is a plain child).
const char *box_work(const struct box *b);
const char *box_home(const struct box *b);
// The places besides the workspace that it writes to, as the sandbox sees them ("/tmp" ...): I from 0 on, NULL behind the last one. A reset has to empty them.
const char *box_temp(const struct box *b, size_t i);
// Between sessions: its places have the modes, owners and attributes that they were made with again. 0 or negative errno.
int box_mend(const struct box *b);
// A text of the owner's about it, kept with it. 0 or -ENOMEM; then, or before: NULL.
int box_remember(struct box *b, const char *text);
const char *box_remembered(const struct box *b);
// Its default user for /init: "user" in namespaces, else the gateway's own.
const char *box_user(const struct box *b);
// Bytes of memory and CPU seconds of all its processes so far, for metrics. 0 or negative errno.
int box_usage(const struct box *b, long long *memory, double *cpu_seconds);
// Kills it without telling, if it lives. Accepts NULL.
void box_free(struct box *b);

#endif
