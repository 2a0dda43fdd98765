// SPDX-License-Identifier: Apache-2.0
// What the store keeps of a process while it lives. How it is taken back from there is in proc_back.c.
#include "daemon/core/proc_priv.h"

#include "daemon/core/proc_record.h"
#include "daemon/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

// Behind the log: what its process has not taken of its input yet, when the daemon is replaced.
#define REST_AT(t) (output_memory_size((t)->limits.replay))

size_t proc_log_size(size_t replay)
{
	return output_memory_size(replay) + sizeof(uint64_t) + PROC_INPUT_MAX;
}

static struct proc_drain *drain_of(const struct procs *t, const struct store_slot *slot)
{
	struct proc_drain *d;
	DL_FOREACH(t->drains, d)
	{
		if (d->slot == slot)
			return d;
	}
	return NULL;
}

static bool has_flag(struct store_slot *slot, enum proc_kept flag)
{
	return store_get(&store_life(slot)->flags) & flag;
}

// All slots are in use: pipes that outlived their process are kept no longer, then the ended one that is kept for longest.
static bool make_room(struct procs *t)
{
	struct proc_drain *d;
	struct proc *p;
	DL_FOREACH(t->drains, d)
	{
		struct store_slot *slot = d->slot;
		if (!slot || !has_flag(slot, PROC_KEPT_FORGOTTEN))
			continue;
		while ((d = drain_of(t, slot)))
			d->slot = NULL;
		store_release(slot);
		return true;
	}
	DL_FOREACH(t->ended, p)
	{
		if (!p->slot || output_readers(p->output))
			continue;
		proc_forget(p);
		return true;
	}
	return false;
}

// What does not fit is told shorter: the environment goes first, then the arguments, then the end of the command.
static int put_record(struct store_slot *slot, struct proc_record *r)
{
	char command[1024];
	static const char *const none[] = {NULL};
	const char *program[2] = {NULL, NULL};
	for (int round = 0; round < 4; round++) {
		struct buf b;
		buf_init(&b, 0);
		proc_record_encode(&b, r);
		int rc = buf_failed(&b) ? -ENOMEM : store_record_put(slot, buf_data(&b), buf_len(&b));
		buf_release(&b);
		if (rc != -EMSGSIZE)
			return rc;
		if (round == 0 && r->has_asked)
			r->asked.env = none;
		else if (round == 1 && r->has_asked)
			r->asked.argv = none;
		if (round < 2)
			continue;
		size_t n = strnlen(r->command, sizeof command - 1);
		memcpy(command, r->command, n);
		command[n] = '\0';
		r->command = command;
		program[0] = command;
		if (r->has_asked)
			r->asked.argv = program;
	}
	return -EMSGSIZE;
}

void proc_store_begin(struct proc *p)
{
	struct procs *t = p->table;
	if (!t->limits.store)
		return;
	struct store_slot *slot = store_take(t->limits.store);
	while (!slot && make_room(t))
		slot = store_take(t->limits.store);
	if (!slot)
		return;
	struct proc_record r = {
		.kind = (uint32_t)p->kind,
		.wanted = p->in.wanted,
		.started_ms = p->started_ms,
		.started_ns = p->started_ns,
		.terminal_id = p->terminal_id,
		.command = p->command,
		.session_id = p->session_id,
		.note = p->note,
		.has_asked = p->asked != NULL,
	};
	if (p->asked)
		r.asked = *p->asked;
	store_set(&store_life(slot)->flags, (uint32_t)p->counted << PROC_KEPT_COUNTED);
	__atomic_store_n(&store_life(slot)->deadline_ns, p->deadline_ns, __ATOMIC_RELEASE);
	if (put_record(slot, &r) < 0)
		store_release(slot);
	else
		p->slot = slot;
}

void proc_store_hand(struct proc *p)
{
	if (!p->slot)
		return;
	bool terminal = p->kind == PROC_TERMINAL;
	int fds[STORE_ENDS] = {
		[STORE_STDIN] = terminal ? -1 : p->in.fd,
		[STORE_STDOUT] = terminal ? -1 : p->pipes[0].fd,
		[STORE_STDERR] = terminal ? -1 : p->pipes[1].fd,
		[STORE_MASTER] = terminal ? p->pipes[0].fd : -1,
		[STORE_SLAVE] = p->slave,
	};
	if (store_hand(p->slot, fds) == 0)
		return;
	// It runs all the same. Nothing was written to its log yet.
	output_free(p->output);
	p->output = output_place(p + 1, NULL, p->table->limits.replay);
	store_release(p->slot);
	p->slot = NULL;
}

void proc_store_drop(struct proc *p, unsigned ends)
{
	if (!p->slot)
		return;
	store_drop(p->slot, ends);
	if (p->state == PROC_ENDED)
		procs_stir(p->table);
	else
		store_wake(p->table->limits.store); // who reads its input, or its terminal, waits for the end of it
}

void proc_store_deadline(struct proc *p, int64_t ns)
{
	p->deadline_ns = ns;
	if (p->slot)
		__atomic_store_n(&store_life(p->slot)->deadline_ns, ns, __ATOMIC_RELEASE);
}

void proc_store_flag(struct proc *p, enum proc_kept flag)
{
	if (!p->slot)
		return;
	struct store_life *life = store_life(p->slot);
	store_set(&life->flags, life->flags | flag);
}

void proc_store_end(struct proc *p, int code, int status)
{
	struct store_life *life = p->slot ? store_life(p->slot) : NULL;
	if (!life || store_get(&life->ended))
		return;
	life->code = code;
	life->status = status;
	life->ended_ns = io_mono_ns();
	store_set(&life->ended, 1);
}

int64_t proc_store_ended_ns(const struct proc *p)
{
	const struct store_life *life = p->begun && p->slot ? store_life(p->slot) : NULL;
	return life && store_get(&life->ended) ? life->ended_ns : io_mono_ns();
}

void proc_store_forget(struct procs *t, struct store_slot *slot)
{
	if (!slot)
		return;
	struct store_life *life = store_life(slot);
	if (drain_of(t, slot))
		store_set(&life->flags, life->flags | PROC_KEPT_FORGOTTEN);
	else
		store_release(slot);
	procs_stir(t);
}

void proc_store_drained(struct procs *t, struct store_slot *slot, enum store_end end)
{
	if (!slot)
		return;
	if (has_flag(slot, PROC_KEPT_FORGOTTEN) && !drain_of(t, slot))
		store_release(slot);
	else
		store_drop(slot, 1u << end);
	procs_stir(t);
}

pid_t proc_parent(const struct proc *p)
{
	return p->begun && p->table->limits.init ? p->table->limits.init : getpid();
}

// --- the ends of those that an earlier daemon started ---

void proc_unadopt(struct proc *p)
{
	if (!p->adopted)
		return;
	p->adopted = false;
	p->table->adopted--;
	if (p->slot)
		store_ack(p->slot);
}

void procs_collect(struct procs *t)
{
	struct proc *p, *tmp;
	if (!t->adopted)
		return;
	DL_FOREACH_SAFE(t->living, p, tmp)
	{
		// One that was just taken back is looked at when all who want to know its end are there.
		if (!p->adopted || !p->looked_at || p->waited || !store_get(&store_life(p->slot)->ended))
			continue;
		proc_record_end(p, store_life(p->slot)->code, store_life(p->slot)->status);
		proc_waited(p);
	}
}

bool proc_gone(const struct proc *p)
{
	return p->waited || (p->adopted && store_get(&store_life(p->slot)->ended));
}

// --- input that waits while the daemon is replaced: the bytes, then how many ---

bool proc_store_rest(struct proc *p, uint64_t at, const void *data, size_t n)
{
	off_t log;
	if (!p->slot || at + n > PROC_INPUT_MAX)
		return false;
	int fd = store_log(p->slot, &log);
	log += (off_t)(REST_AT(p->table) + sizeof(uint64_t) + at);
	return io_pwrite(fd, data, n, log) == 0;
}

void proc_store_rest_end(struct proc *p, uint64_t n)
{
	off_t log;
	int fd = store_log(p->slot, &log);
	if (n)
		(void)io_pwrite(fd, &n, sizeof n, log + (off_t)REST_AT(p->table));
}

void proc_store_rest_take(struct proc *p)
{
	off_t log;
	uint64_t n = 0;
	int fd = store_log(p->slot, &log);
	log += (off_t)REST_AT(p->table);
	if (io_pread(fd, &n, sizeof n, log) != (ssize_t)sizeof n || !n || n > PROC_INPUT_MAX)
		return;
	size_t max = p->table->limits.stdin_max;
	buf_init(&p->live->queue, n > max ? (size_t)n : max);
	char *room = p->in.fd < 0 ? NULL : malloc((size_t)n);
	if (room && io_pread(fd, room, (size_t)n, log + (off_t)sizeof n) == (ssize_t)n)
		buf_append(&p->live->queue, room, (size_t)n);
	free(room);
	store_log_punch(p->slot, REST_AT(p->table), sizeof n + (size_t)n);
	n = 0;
	(void)io_pwrite(fd, &n, sizeof n, log); // a page that is not wholly punched stays
}
