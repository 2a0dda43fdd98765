// SPDX-License-Identifier: Apache-2.0
#include "crashkit.h"

#include "daemon/core/store_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_turn(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct crashkit *s = w->data;
	init_store_turn(&s->init);
}

static int copy_of(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(copy, 0);
	return copy;
}

// What a fork gives to a daemon.
static void daemon_begins(struct crashkit *s)
{
	struct store *kept = s->init.store;
	int channel = init_store_open(&s->init);
	ck_assert_int_ge(channel, 0);
	s->init.daemon = getpid();
	ck_assert_int_eq(store_open(copy_of(kept->memory), copy_of(kept->event), &s->store), 0);
	for (size_t i = 0; i < store_used_to(kept); i++) {
		for (int e = 0; e < STORE_ENDS; e++) {
			int fd = kept->slots[i].fd[e];
			s->store->slots[i].fd[e] = fd > 0 ? copy_of(fd - 1) + 1 : 0;
		}
	}
	store_serve(s->store, channel);
	s->limits.store = s->store;
}

void crashkit_init(struct crashkit *s, const struct proc_limits *limits)
{
	struct store_sizes sizes = {.slots = CRASHKIT_SLOTS, .record = 8192, .log = proc_log_size(limits->replay)};
	memset(s, 0, sizeof *s);
	s->limits = *limits;
	s->init.channel = -1;
	s->init.store = store_new(&sizes, 4096);
	ck_assert_ptr_nonnull(s->init.store);
	daemon_begins(s);
	prockit_init(&s->k, &s->limits);
	ev_timer_init(&s->turn, on_turn, 0.002, 0.002);
	s->turn.data = s;
	ev_timer_start(s->k.loop, &s->turn);
}

void crashkit_release(struct crashkit *s)
{
	ev_timer_stop(s->k.loop, &s->turn);
	prockit_release(&s->k);
	store_free(s->store);
	io_close(&s->init.channel);
	store_free(s->init.store);
}

void crashkit_crash(struct crashkit *s)
{
	procs_free(s->k.procs);
	s->k.procs = NULL;
	store_free(s->store);
	init_store_gone(&s->init);
}

void crashkit_back(struct crashkit *s, struct procs_taken *taken)
{
	daemon_begins(s);
	s->k.procs = procs_new(s->k.loop, &s->limits, &s->k.base);
	ck_assert_ptr_nonnull(s->k.procs);
	s->k.chld.data = s->k.procs;
	ck_assert_int_eq(procs_take_back(s->k.procs, taken), 0);
}

void crashkit_restart(struct crashkit *s, size_t living, size_t ended)
{
	struct procs_taken taken;
	crashkit_crash(s);
	crashkit_back(s, &taken);
	ck_assert_uint_eq(taken.living, living);
	ck_assert_uint_eq(taken.ended, ended);
	ck_assert_uint_eq(taken.refused, 0);
}

struct proc *crashkit_only(struct crashkit *s)
{
	struct proc *p = procs_first(s->k.procs);
	ck_assert(p && !proc_next(p));
	return p;
}

void crashkit_init_reaps(struct crashkit *s, pid_t pid)
{
	siginfo_t si = {0};
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
	s->init.daemon = 0;
	ck_assert(!init_store_ended(&s->init, &si));
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &si, WEXITED), 0);
}

size_t crashkit_held(const struct crashkit *s)
{
	size_t n = 0;
	for (size_t i = 0; i < CRASHKIT_SLOTS; i++) {
		for (int e = 0; e < STORE_ENDS; e++)
			n += s->init.store->slots[i].fd[e] > 0;
	}
	return n;
}

size_t crashkit_used(const struct crashkit *s)
{
	size_t n = 0;
	for (size_t i = 0; i < CRASHKIT_SLOTS; i++)
		n += s->init.store->table[i].state == STORE_TAKEN;
	return n;
}

struct store_slot *crashkit_slot(struct crashkit *s, size_t i)
{
	return &s->store->slots[i];
}
