// SPDX-License-Identifier: Apache-2.0
// confine: what commands are kept from, whoever they run as: no_new_privs, a trimmed capability bounding set, Landlock trees, a seccomp
// deny list. Prepared once at start, before the init part forks; entered by each child between clone and exec. What the kernel does
// not have is left out and said (or, if required, an error). Must not know how a child is made, nor who asked.
#ifndef CELLD_CORE_CONFINE_H
#define CELLD_CORE_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct confine;

struct confine_spec {
	bool require;                // what the kernel lacks is an error rather than left out
	const char *const *writable; // trees that may be written below (and read); none of either: the defaults
	size_t writable_count;
	const char *const *readable; // trees that may be read and run from
	size_t readable_count;
	const char *const *keep_caps; // names ("chown", "CAP_CHOWN"); none: the defaults; "none", "all"
	size_t keep_caps_count;
	const char *const *allow_calls; // system calls taken off the deny list
	size_t allow_calls_count;
	const char *workspace; // always writable
};

// What is in force, for logs and clients. The strings live as long as the confine.
struct confine_state {
	bool no_new_privs;
	uint64_t caps; // kept bits of the bounding set; all ones: not trimmed
	int landlock;  // the kernel's ABI version, 0 = none
	bool seccomp;
	const char *const *denied;   // system calls on the deny list, NULL-terminated
	const char *const *writable; // trees in force, NULL-terminated
	const char *const *readable;
	const char *const *
		missing; // what was wanted and is not to be had ("landlock: not supported by this kernel"), NULL-terminated
};

// 0 with *OUT (confine_free); or negative errno with WHY (N bytes) saying what could not be had: -EINVAL for a name that is none.
int confine_new(struct confine **out, const struct confine_spec *spec, char *why, size_t n);
void confine_free(struct confine *c);
const struct confine_state *confine_state(const struct confine *c);
// The name of a capability bit in lower case ("chown"), or NULL.
const char *confine_cap_name(int bit);

// In the child, in this order round the switch of user: caps before (it may need CAP_SETPCAP), the rest after, as late as possible.
// Async-signal-safe; no locks, no allocation. 0 or negative errno. C may be NULL.
int confine_child_caps(const struct confine *c);
int confine_child_enter(const struct confine *c);

// This process and those that are forked from it: its memory, descriptors and environment are for nobody without CAP_SYS_PTRACE.
int confine_hide_self(void);
// The name of a capability that this process lacks to have children that are another user, and to end them; or NULL.
const char *confine_lacks(void);

#endif
