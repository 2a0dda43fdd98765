// SPDX-License-Identifier: Apache-2.0
// The daemon's side.
#include "daemon/core/store_priv.h"

#include "daemon/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECORD_VERSION 1u
// How long init may take to make room for a message.
#define ROOM_MS 100
// Init is woken for so many hands, drops and releases at the latest; each hand may hold three descriptors or more until then.
#define UNTOLD_MAX 32

// The N of a short one whose slot has a long one.
#define IS_LONG UINT32_MAX

struct record {
	uint32_t version;
	uint32_t n; // 0: not whole
	uint64_t sum;
	unsigned char bytes[];
};

_Static_assert(sizeof(struct record) == STORE_RECORD_HEAD, "what is behind it is the record");

void *store_log_front(const struct store_slot *slot)
{
	const struct store *s = slot->store;
	return s->base + s->shape.record_at + store_index(slot) * STORE_CARD;
}

static struct record *short_of(const struct store_slot *slot)
{
	return (struct record *)(void *)((char *)store_log_front(slot) + STORE_FRONT);
}

static uint64_t long_at(const struct store_slot *slot)
{
	const struct store *s = slot->store;
	return store_long_at(&s->shape) + store_index(slot) * s->shape.record;
}

static struct record *long_of(const struct store_slot *slot)
{
	return (struct record *)(void *)(slot->store->base + long_at(slot));
}

static uint64_t log_at(const struct store_slot *slot)
{
	return slot->store->shape.log_at + store_index(slot) * slot->store->shape.log;
}

// Zero again, at no cost in memory.
static void punch(const struct store *s, uint64_t at, uint64_t n)
{
	if (n > 0)
		IO_AGAIN(fallocate(s->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n));
}

// --- slots ---

static void put_free(struct store *s, size_t i)
{
	s->slots[i].next = s->free;
	s->free = (uint32_t)i + 1;
}

static void wipe_record(struct store_slot *slot)
{
	struct record *r = short_of(slot);
	if (store_get(&r->n) == IS_LONG)
		punch(slot->store, long_at(slot), slot->store->shape.record);
	store_set(&r->n, 0);
}

void store_log_clear(struct store_slot *slot)
{
	if (!slot->clean)
		punch(slot->store, log_at(slot), slot->store->shape.log);
	slot->clean = true;
}

static void wipe(struct store_slot *slot)
{
	struct store_entry *e = store_entry(slot);
	wipe_record(slot);
	store_log_clear(slot);
	memset(store_log_front(slot), 0, STORE_FRONT);
	memset(&e->life, 0, sizeof e->life);
	e->failed = 0;
	store_set(&e->state, STORE_FREE);
}

void store_serve(struct store *s, int channel)
{
	s->channel = channel;
	s->init = getppid();
	s->free = 0;
	for (size_t i = store_used_to(s); i-- > 0;) {
		s->slots[i].store = s;
		uint32_t state = store_get(&s->table[i].state);
		s->slots[i].left = state == STORE_TAKEN;
		if (state == STORE_TAKEN)
			continue;
		if (state != STORE_FREE)
			store_release(&s->slots[i]); // the last daemon was at it
		else
			put_free(s, i);
	}
}

struct store_slot *store_take(struct store *s)
{
	size_t i;
	if (s->free) {
		i = s->free - 1;
		s->free = s->slots[i].next;
	} else {
		i = store_used_to(s);
		if (i == s->shape.slots)
			return NULL;
		store_set(&s->head->used_to, (uint32_t)i + 1);
	}
	struct store_slot *slot = &s->slots[i];
	struct store_entry *e = &s->table[i];
	slot->store = s;
	slot->left = false;
	slot->clean = true;
	store_set(&e->takes, e->takes + 1 ? e->takes + 1 : 1);
	store_set(&e->state, STORE_TAKEN);
	return slot;
}

struct store_life *store_life(struct store_slot *slot)
{
	return &store_entry(slot)->life;
}

void store_child(struct store_slot *slot)
{
	if (slot)
		__atomic_store_n(&store_entry(slot)->life.pid, (int32_t)getpid(), __ATOMIC_RELEASE);
}

// --- records and logs ---

static uint64_t sum_of(const unsigned char *p, size_t n)
{
	uint64_t sum = 0xcbf29ce484222325u;
	for (size_t i = 0; i < n; i++)
		sum = (sum ^ p[i]) * 0x100000001b3u;
	return sum;
}

int store_record_put(struct store_slot *slot, const void *p, size_t n)
{
	struct record *brief = short_of(slot), *r = n <= STORE_SHORT ? brief : long_of(slot);
	if (n == 0 || n > slot->store->shape.record - sizeof *r)
		return -EMSGSIZE;
	wipe_record(slot);
	memcpy(r->bytes, p, n);
	r->version = RECORD_VERSION;
	r->sum = sum_of(r->bytes, n);
	store_set(&r->n, (uint32_t)n);
	if (r != brief)
		store_set(&brief->n, IS_LONG);
	return 0;
}

const void *store_record_get(const struct store_slot *slot, size_t *n)
{
	const struct record *r = short_of(slot);
	size_t max = STORE_SHORT;
	if (store_get(&r->n) == IS_LONG) {
		r = long_of(slot);
		max = slot->store->shape.record - sizeof *r;
	}
	*n = store_get(&r->n);
	if (*n == 0 || *n > max || r->version != RECORD_VERSION)
		return NULL;
	return sum_of(r->bytes, *n) == r->sum ? r->bytes : NULL;
}

int store_log(const struct store_slot *slot, off_t *offset)
{
	*offset = (off_t)log_at(slot);
	return slot->store->memory;
}

void store_log_used(struct store_slot *slot)
{
	slot->clean = false;
}

void *store_log_room(const struct store_slot *slot, size_t *n)
{
	struct record *r = short_of(slot);
	uint32_t used = store_get(&r->n);
	if (used > STORE_SHORT) // long, or not to be believed
		used = 0;
	*n = STORE_SHORT - used;
	return r->bytes + used;
}

void store_log_punch(const struct store_slot *slot, size_t at, size_t n)
{
	uint64_t max = slot->store->shape.log;
	if (at < max)
		punch(slot->store, log_at(slot) + at, n < max - at ? n : max - at);
}

// --- what init is told ---

static int send_message(const struct store *s, const struct store_msg *m, const int *fds, size_t count)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(STORE_ENDS * sizeof(int))];
	} control;
	struct iovec iov = {(void *)(uintptr_t)m, sizeof *m};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	if (count > 0) {
		memset(&control, 0, sizeof control);
		h.msg_control = control.room;
		h.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	}
	ssize_t n;
	do
		n = sendmsg(s->channel, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

void store_wake(struct store *s)
{
	if (!s || !s->untold)
		return;
	s->untold = 0;
	if (s->channel >= 0 && s->init > 0 && !__atomic_exchange_n(&s->head->woken, 1, __ATOMIC_ACQ_REL))
		kill(s->init, STORE_SIGNAL);
}

// To wake init costs more than all else that keeps a command: for several at once it is worth it (30 us of a command's 900).
static void told(struct store *s)
{
	if (++s->untold >= UNTOLD_MAX)
		store_wake(s);
}

static void mark(struct store_slot *slot)
{
	struct store *s = slot->store;
	size_t i = store_index(slot);
	__atomic_fetch_or(&s->dirty[i / 32], 1u << i % 32, __ATOMIC_RELEASE);
	told(s);
}

// One start may wait in vain; those behind it do not, or an init part that was stopped would hold all of the daemon up.
static int send_in_time(struct store *s, const struct store_msg *m, const int *fds, size_t count)
{
	int64_t end = io_mono_ns() + (s->stuck ? 0 : (int64_t)ROOM_MS * 1000000);
	for (;;) {
		int rc = send_message(s, m, fds, count);
		int64_t left = end - io_mono_ns();
		if (rc != -EAGAIN || left <= 0) {
			s->stuck = rc == -EAGAIN;
			return rc == -ETOOMANYREFS ? -EMFILE : rc;
		}
		struct pollfd p = {.fd = s->channel, .events = POLLOUT};
		store_wake(s);
		(void)IO_AGAIN(poll(&p, 1, (int)(left / 1000000) + 1));
	}
}

int store_hand(struct store_slot *slot, const int fds[STORE_ENDS])
{
	struct store *s = slot->store;
	struct store_entry *e = store_entry(slot);
	struct store_msg m = {.op = STORE_OP_HAND, .slot = (uint32_t)store_index(slot)};
	int list[STORE_ENDS];
	size_t count = 0;
	for (unsigned i = 0; i < STORE_ENDS; i++) {
		if (fds[i] < 0)
			continue;
		m.ends |= 1u << i;
		list[count++] = fds[i];
	}
	if (s->channel < 0)
		return -ENOTCONN;
	// From here on no older word of this slot counts.
	store_set(&e->hands, (e->hands + 1) & (UINT32_MAX >> STORE_DROP_BITS));
	store_set(&e->drop, store_drop_word(e->hands, 0));
	m.hands = e->hands;
	int rc = send_in_time(s, &m, list, count);
	if (rc == 0)
		told(s);
	return rc;
}

// In this process: what it inherited and has not taken.
static void close_inherited(struct store_slot *slot, unsigned ends)
{
	for (unsigned i = 0; i < STORE_ENDS; i++) {
		if (!(ends & 1u << i) || slot->fd[i] <= 0)
			continue;
		close(slot->fd[i] - 1);
		slot->fd[i] = 0;
	}
}

void store_drop(struct store_slot *slot, unsigned ends)
{
	struct store_entry *e = store_entry(slot);
	uint32_t mask = e->drop & STORE_ALL_ENDS;
	close_inherited(slot, ends);
	if ((mask | ends) == mask)
		return;
	store_set(&e->drop, store_drop_word(e->hands, mask | ends));
	mark(slot);
}

void store_ack(struct store_slot *slot)
{
	struct store_entry *e = store_entry(slot);
	if (!slot->left || e->acked == e->takes)
		return;
	store_set(&e->acked, e->takes);
	mark(slot);
	store_wake(slot->store);
}

void store_release(struct store_slot *slot)
{
	if (!slot)
		return;
	struct store *s = slot->store;
	struct store_entry *e = store_entry(slot);
	assert(e->state != STORE_FREE);
	close_inherited(slot, STORE_ALL_ENDS);
	store_set(&e->state, STORE_RELEASING);
	store_set(&e->acked, e->takes);
	store_set(&e->drop, store_drop_word(e->hands, STORE_ALL_ENDS));
	wipe(slot);
	slot->left = false;
	mark(slot);
	put_free(s, store_index(slot));
}

// --- what an earlier daemon left ---

struct store_slot *store_left(struct store *s, size_t from, size_t *index)
{
	for (size_t i = from, n = store_used_to(s); i < n; i++) {
		if (!s->slots[i].left)
			continue;
		*index = i;
		return &s->slots[i];
	}
	return NULL;
}

int store_end_take(struct store_slot *slot, enum store_end end)
{
	int fd = slot->fd[end] - 1;
	slot->fd[end] = 0;
	return fd;
}

void store_upgrade(struct store *s)
{
	store_set(&s->head->upgrade, 1);
}

int store_event_fd(const struct store *s)
{
	return s ? s->event : -1;
}
