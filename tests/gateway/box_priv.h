// SPDX-License-Identifier: Apache-2.0
// box_priv: what the parts of box share: box.c (its life), box_place.c (its directories and sockets), box_isolate.c (the child half), box_freeze.c (its
// processes and its cgroup), box_connect.c.
#ifndef CELLD_GATEWAY_BOX_PRIV_H
#define CELLD_GATEWAY_BOX_PRIV_H

#include "daemon/core/tree.h"
#include "proto/buf.h"
#include "tests/gateway/box.h"

#include <stddef.h>

#define BOX_USER "user"
#define BOX_UID 1000
#define BOX_LAST 400

struct box_member {
	pid_t pid;
	unsigned long long start;
	bool own; // its user had stopped it: it stays so when the box goes on
};

struct box {
	struct ev_loop *loop;
	struct box_events ev;
	void *arg;
	char *name, *dir, *hide, *work, *tmp, *remembered;
	bool namespaces, private_net, verbose;
	bool ready, frozen;
	pid_t pid; // 0 once it has ended
	int pidfd, dirfd;
	int log;    // what its celld says on stderr
	int netns;  // its network, -1 = ours
	int cgroup; // a group of its own, -1 = none
	char *cgroup_path;
	ev_io on_end, on_log;
	struct buf line;            // a piece of a line
	char last[BOX_LAST];        // the last line
	struct box_member *stopped; // by box_freeze, in that order
	size_t stopped_count, room;
};

// --- box_place.c ---
// Makes the places in DIR: work, tmp, shm, root, key (an empty token), etc. 0 or negative errno.
int box_places_make(const struct box *b);
void box_places_remove(const struct box *b); // as they were made
// Gives them back the modes, owners and attributes that they were made with. 0 or negative errno.
int box_places_mend(const struct box *b);
// A listening socket for PORT in DIR, or negative errno.
int box_listen(const struct box *b, unsigned port);
// "/proc/self/fd/N/PORT.sock": DIR may be longer than an address can be.
struct sockaddr_un;
void box_address(const struct box *b, unsigned port, struct sockaddr_un *out);
// Writes TOKEN as the token file. 0 or negative errno.
int box_write_token(const struct box *b, const char *token);

// --- box_isolate.c: everything between fork and exec ---
struct isolate {
	bool namespaces, private_net;
	bool user_ns;
	const char *dir;   // of the places
	const char *hide;  // out of sight within; NULL: what DIR is in
	const char *celld; // executed; NULL: only tries
	char *const *argv, *const *env;
	int listen[2]; // become 3 and 4; -1 = none
	int log;       // becomes 2
	int parent;    // pidfd of the gateway
};
// Where celld and its key are within.
#define ISOLATE_CELLD "/run/celld"
#define ISOLATE_KEY "/run/key"
// A child as S wants it, in CGROUP (or -1). Its pid or negative errno.
pid_t isolate_start(const struct isolate *s, int cgroup);

// --- box_freeze.c ---
// Kills what box_freeze had stopped: as a plain child it outlives its PID 1, which alone would have told it.
void box_stopped_kill(struct box *b);

// --- box_connect.c ---
// B lives and has the network that it is to keep.
void box_net_open(struct box *b);

// --- box_cgroup.c ---
// Makes a group of its own for B, where that is possible ($CELLD_GATEWAY_CGROUP is not "off").
void box_cgroup_open(struct box *b);
// Kills what is left in it and removes it; later, if somebody in it takes his time to die.
void box_cgroup_close(struct box *b);
// Kills all in it at once. False if there is none, or if the kernel cannot.
bool box_cgroup_kill(const struct box *b);
int box_cgroup_freeze(const struct box *b, bool freeze);
int box_cgroup_cpu(const struct box *b, double *seconds);
// Removes the groups of gateways that are not there any more, and those of ours that could not be removed with their boxes.
void box_cgroup_sweep(void);

#endif
