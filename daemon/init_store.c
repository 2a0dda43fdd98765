// SPDX-License-Identifier: Apache-2.0
#include "daemon/init_store.h"

#include "daemon/core/store_priv.h"
#include "daemon/core/tree.h"
#include "daemon/io.h"
#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

// Messages read in one turn, so that a flood keeps init from nothing else; of a dead daemon no more can have waited.
#define TURN_MAX 256
#define LAST_MAX 4096
// A daemon that does not say within this time that it knows of an end is not waited for.
#define HOLD_NS ((int64_t)1000000000)

#define PTMX_MAJOR 5
#define PTS_MAJOR_FIRST 136
#define PTS_MAJOR_LAST 143

// --- descriptors ---

static void close_ends(struct store_slot *slot, uint32_t ends)
{
	for (unsigned i = 0; i < STORE_ENDS; i++) {
		if (!(ends & 1u << i) || slot->fd[i] <= 0)
			continue;
		close(slot->fd[i] - 1);
		slot->fd[i] = 0;
	}
}

// Pipes and terminals, which can be closed without waiting for anybody, whatever was done to them.
static bool is_end(int fd)
{
	struct statx st;
	if (fcntl(fd, F_GETPIPE_SZ) >= 0)
		return true;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0 || !S_ISCHR(st.stx_mode))
		return false;
	return st.stx_rdev_major == PTMX_MAJOR ||
	       (st.stx_rdev_major >= PTS_MAJOR_FIRST && st.stx_rdev_major <= PTS_MAJOR_LAST);
}

static void close_all(const int *fds, size_t count)
{
	static const struct linger at_once = {.l_onoff = 1};
	for (size_t i = 0; i < count; i++) {
		// A socket could be set to wait until its data has left.
		if (!is_end(fds[i]))
			setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
		close(fds[i]);
	}
}

// --- zombies ---

static void let_go(struct init_store *is, struct store_slot *slot)
{
	siginfo_t si;
	if (!slot->held)
		return;
	while (waitid(P_PID, (id_t)slot->held, &si, WEXITED | WNOHANG) < 0 && errno == EINTR)
		;
	slot->held = 0;
	is->held--;
}

// The process that init took over with this slot is still the slot's.
static bool is_orphan(const struct store *s, size_t i)
{
	const struct store_entry *e = &s->table[i];
	return s->slots[i].orphan && store_get(&e->takes) == s->slots[i].orphan && store_get(&e->state) == STORE_TAKEN;
}

static void record(struct store_life *life, const siginfo_t *si)
{
	life->code = si->si_code;
	life->status = si->si_status;
	life->ended_ns = io_mono_ns();
	store_set(&life->ended, 1);
}

static bool hold(struct init_store *is, size_t i, const siginfo_t *si)
{
	static const uint64_t one = 1;
	struct store *s = is->store;
	record(&s->table[i].life, si);
	if (!is->daemon)
		return false;
	s->slots[i].held = si->si_pid;
	s->slots[i].held_ns = io_mono_ns();
	is->held++;
	(void)io_write(s->event, &one, sizeof one); // one that is full is readable, which is all it is for
	return true;
}

bool init_store_ended(struct init_store *is, const siginfo_t *si)
{
	if (!is->orphans)
		return false;
	struct store *s = is->store;
	for (size_t i = 0, n = store_used_to(s); i < n; i++) {
		struct store_life *life = &s->table[i].life;
		if (!is_orphan(s, i) || __atomic_load_n(&life->pid, __ATOMIC_ACQUIRE) != si->si_pid)
			continue;
		if (!store_get(&life->ended) && !s->slots[i].held)
			return hold(is, i, si);
	}
	return false;
}

void init_store_look(struct init_store *is)
{
	struct store *s = is->store;
	for (size_t i = 0, n = is->orphans ? store_used_to(s) : 0; i < n; i++) {
		struct store_life *life = &s->table[i].life;
		if (!is_orphan(s, i) || store_get(&life->ended) || s->slots[i].held)
			continue;
		siginfo_t si = {0};
		pid_t pid = __atomic_load_n(&life->pid, __ATOMIC_ACQUIRE);
		if (pid <= 0 || pid == is->daemon)
			continue;
		if (IO_AGAIN(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT)) < 0 || si.si_pid != pid)
			continue;
		if (!hold(is, i, &si))
			IO_AGAIN(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG));
	}
}

bool init_store_holds(const struct init_store *is, pid_t pid)
{
	for (size_t i = 0, n = is->held ? store_used_to(is->store) : 0; i < n; i++) {
		if (is->store->slots[i].held == pid)
			return true;
	}
	return false;
}

int64_t init_store_due(const struct init_store *is)
{
	int64_t due = 0;
	for (size_t i = 0, n = is->held ? store_used_to(is->store) : 0; i < n; i++) {
		const struct store_slot *slot = &is->store->slots[i];
		if (slot->held && (!due || slot->held_ns + HOLD_NS < due))
			due = slot->held_ns + HOLD_NS;
	}
	return due;
}

bool init_store_overdue(struct init_store *is)
{
	size_t before = is->held;
	int64_t now = before ? io_mono_ns() : 0;
	for (size_t i = 0, n = before ? store_used_to(is->store) : 0; i < n; i++) {
		struct store_slot *slot = &is->store->slots[i];
		if (slot->held && now - slot->held_ns >= HOLD_NS)
			let_go(is, slot);
	}
	return is->held != before;
}

// --- messages ---

static size_t take_fds(struct msghdr *h, int *fds, size_t max)
{
	size_t count = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && count < max; i++)
			memcpy(&fds[count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
	return count;
}

static bool are_ends(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!is_end(fds[i]))
			return false;
	}
	return true;
}

static void keep(struct store *s, const struct store_msg *m, const int *fds)
{
	struct store_slot *slot = &s->slots[m->slot];
	size_t next = 0;
	slot->store = s;
	close_ends(slot, STORE_ALL_ENDS);
	for (unsigned i = 0; i < STORE_ENDS; i++)
		slot->fd[i] = m->ends & 1u << i ? fds[next++] + 1 : 0;
	slot->hands = m->hands;
	// What the daemon has dropped meanwhile.
	uint32_t drop = store_get(&s->table[m->slot].drop);
	if (drop >> STORE_DROP_BITS == slot->hands)
		close_ends(slot, drop);
}

static void strange(struct init_store *is)
{
	if (is->strange++ == 0)
		log_warn("store_message", "the daemon sent what makes no sense");
}

static void take_hand(struct init_store *is, const struct store_msg *m, bool whole, const int *fds, size_t count)
{
	struct store_entry *e = &is->store->table[m->slot];
	// Else it comes from a start that has failed since.
	bool newest = store_get(&e->state) == STORE_TAKEN && store_get(&e->hands) == m->hands;
	size_t wanted = (size_t)__builtin_popcount(m->ends);
	if (!whole && count < wanted) {
		store_set(&e->failed, 1);
		if (is->unkept++ == 0)
			log_warn("store_full", "no descriptors left: a crash cuts commands off");
	} else if (count != wanted || !are_ends(fds, count)) {
		strange(is);
	} else if (newest) {
		keep(is->store, m, fds);
		return;
	}
	close_all(fds, count);
}

static void act_on(struct init_store *is, const struct store_msg *m, bool whole, const int *fds, size_t count)
{
	if (m->op == STORE_OP_HAND && m->slot < store_used_to(is->store) && m->ends && !(m->ends & ~STORE_ALL_ENDS)) {
		take_hand(is, m, whole, fds, count);
		return;
	}
	close_all(fds, count);
	strange(is);
}

// Apart from a message without a byte.
static bool has_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};
	return IO_AGAIN(poll(&p, 1, 0)) != 0;
}

// False once there is none. A channel that has ended is closed: it would be readable for ever.
static bool receive(struct init_store *is)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(STORE_ENDS * sizeof(int))];
	} control;
	struct store_msg m;
	struct iovec iov = {&m, sizeof m};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	int fds[STORE_ENDS + 1] = {0};
	ssize_t n;
	do
		n = recvmsg(is->channel, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return false;
	size_t count = n < 0 ? 0 : take_fds(&h, fds, sizeof fds / sizeof *fds);
	if (n == (ssize_t)sizeof m && !(h.msg_flags & MSG_TRUNC)) {
		act_on(is, &m, !(h.msg_flags & MSG_CTRUNC), fds, count);
		return true;
	}
	close_all(fds, count);
	if (n >= 0 && !has_ended(is->channel)) {
		strange(is);
		return true;
	}
	io_close(&is->channel);
	return false;
}

static void look_at(struct init_store *is, size_t i)
{
	struct store *s = is->store;
	struct store_slot *slot = &s->slots[i];
	const struct store_entry *e = &s->table[i];
	uint32_t drop = store_get(&e->drop);
	if (drop >> STORE_DROP_BITS == slot->hands)
		close_ends(slot, drop);
	if (slot->held && (!is_orphan(s, i) || store_get(&e->acked) == slot->orphan))
		let_go(is, slot);
}

static void look_at_dirty(struct init_store *is)
{
	struct store *s = is->store;
	size_t used = store_used_to(s);
	for (size_t w = 0; w < (used + 31) / 32; w++) {
		uint32_t bits = __atomic_load_n(&s->dirty[w], __ATOMIC_ACQUIRE);
		if (!bits)
			continue;
		bits = __atomic_exchange_n(&s->dirty[w], 0, __ATOMIC_ACQ_REL);
		for (; bits; bits &= bits - 1) {
			size_t i = w * 32 + (size_t)__builtin_ctz(bits);
			if (i < used)
				look_at(is, i);
		}
	}
}

bool init_store_turn(struct init_store *is)
{
	if (!is->store || is->channel < 0)
		return false;
	size_t before = is->held;
	__atomic_exchange_n(&is->store->head->woken, 0, __ATOMIC_ACQ_REL); // first: what comes later has its own signal
	is->more = true;
	for (int i = 0; i < TURN_MAX && is->more; i++)
		is->more = receive(is);
	look_at_dirty(is);
	return is->held != before;
}

// --- daemons come and go ---

// The child that is about to be forked finds the same, and ends what ran.
static void forget_all(struct store *s)
{
	for (size_t i = 0; i < s->shape.slots; i++) {
		close_ends(&s->slots[i], STORE_ALL_ENDS);
		s->slots[i].orphan = 0;
	}
}

int init_store_open(struct init_store *is)
{
	int ends[2];
	is->channel = -1;
	is->strange = is->unkept = 0;
	is->more = false;
	if (!is->store)
		return -1;
	if (!store_whole(is->store))
		forget_all(is->store);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
		log_error("store_channel", "%s", strerror(errno));
		return -1;
	}
	is->channel = ends[0];
	return ends[1];
}

void init_store_child(struct init_store *is, int channel)
{
	io_close(&is->channel);
	if (!is->store)
		return;
	if (!store_whole(is->store)) {
		log_error("store_damaged", "what the last daemon left cannot be read: its commands end");
		tree_signal_all(getppid(), getpid(), SIGKILL);
		store_wipe(is->store);
	}
	store_serve(is->store, channel);
}

void init_store_gone(struct init_store *is)
{
	is->daemon = 0;
	struct store *s = is->store;
	if (!s)
		return;
	for (int i = 0; i < LAST_MAX && is->channel >= 0 && receive(is); i++)
		;
	io_close(&is->channel);
	is->more = false;
	store_set(&s->head->woken, 0);
	look_at_dirty(is);
	is->orphans = 0;
	for (size_t i = 0, n = store_used_to(s); i < n; i++) {
		let_go(is, &s->slots[i]);
		s->slots[i].orphan = store_get(&s->table[i].state) == STORE_TAKEN ? store_get(&s->table[i].takes) : 0;
		is->orphans += s->slots[i].orphan != 0;
	}
}
