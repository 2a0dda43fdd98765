// SPDX-License-Identifier: Apache-2.0
// listener: listening sockets. Opening is apart from serving, since the init part opens them once and every daemon serves them.
// Must not know HTTP.
#ifndef CELLD_NET_LISTENER_H
#define CELLD_NET_LISTENER_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

// Opens the listening socket that SPEC names: "ADDR:PORT" ("[::]:2024" is dual-stack, "[::1]:0", "127.0.0.1:0"), "unix:PATH" (a stale
// socket file is replaced, mode 0600), "fd:N" (already listening; checked). FALLBACK4: "[::]:PORT" becomes "0.0.0.0:PORT"
// where there is no IPv6. Non-blocking, close-on-exec. The descriptor, or negative errno (-EINVAL: not of these forms).
int listener_open(const char *spec, bool fallback4);
// The address it really has ("[::]:2024", "unix:/run/celld.sock") into OUT; 0 or negative errno.
int listener_name(int fd, char *out, size_t n);
// True for a unix socket: who may connect is for its file to say.
bool listener_is_local(int fd);

struct listener;
// Accepts from FD (borrowed, stays open) until freed; each connection goes to TAKE, which owns the descriptor whatever it does.
// At EMFILE, ENFILE, ENOMEM and ENOBUFS it rests for 100 ms instead of spinning. NULL when out of memory.
struct listener *listener_new(struct ev_loop *loop, int fd, void (*take)(void *arg, int fd), void *arg);
// FULL is called with TAKE's argument when there is no descriptor for a connection: true if it has closed one.
void listener_on_full(struct listener *l, bool (*full)(void *arg));
void listener_free(struct listener *l);

#endif
