// SPDX-License-Identifier: Apache-2.0
// job: a program run beside the loop (cp, rm), for what would hold it up: copying a workspace, removing one.
#ifndef CELLD_GATEWAY_JOB_H
#define CELLD_GATEWAY_JOB_H

#include <ev.h>

struct job;
// Runs ARGV (found in PATH, stdin and stdout /dev/null). DONE is called once, from the loop: STATUS is its exit code, 128 + signal, or negative errno.
// NULL with errno set if it could not be started (DONE is not called then).
struct job *job_start(struct ev_loop *loop, const char *const *argv, void (*done)(void *arg, int status), void *arg);
// DONE will not be called; the program goes on. Accepts NULL.
void job_forget(struct job *j);
// The same, but the program gets a KILL: nothing of it writes where its files are about to be removed. Accepts NULL.
void job_stop(struct job *j);
// "cp -a --reflink=auto FROM/. TO" and "rm -rf --one-file-system DIR", as root also across owners.
struct job *job_copy(
	struct ev_loop *loop, const char *from, const char *to, void (*done)(void *arg, int status), void *arg);
struct job *job_remove(struct ev_loop *loop, const char *dir, void (*done)(void *arg, int status), void *arg);

#endif
