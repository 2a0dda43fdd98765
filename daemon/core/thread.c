// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/thread.h"

#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#define STACK_SIZE ((size_t)128 * 1024)
// On a single CPU the slowest answer of the loop beside the removal of a large tree took 2 ms so, 7 ms without. More would starve the
// thread beside commands.
enum { NICE = 10 };

int thread_start(pthread_t *out, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int rc = pthread_attr_init(&attr);
	if (rc != 0)
		return -rc;
	(void)pthread_attr_setstacksize(&attr, STACK_SIZE);
	(void)pthread_attr_setdetachstate(&attr, out ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, &attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (rc == 0 && out)
		*out = thread;
	return -rc;
}

void thread_be_nice(void)
{
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
}
