// SPDX-License-Identifier: Apache-2.0
// thread: starts a thread beside the loop, for what the kernel itself takes long at. All else in the daemon is done by the one loop: such
// a thread touches only what it was given, and takes no signal.
#ifndef CELLD_CORE_THREAD_H
#define CELLD_CORE_THREAD_H

#include <pthread.h>

// Runs FN(ARG) in a thread that the loop goes before. *OUT is to be joined; OUT NULL: nobody will. 0 or negative errno.
int thread_start(pthread_t *out, void *(*fn)(void *arg), void *arg);
// The first thing in FN.
void thread_be_nice(void);

#endif
