// SPDX-License-Identifier: Apache-2.0
#include "storekit.h"

#include "daemon/io.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

void storekit_init(struct storekit *k, size_t slots)
{
	const struct store_sizes sizes = {.slots = slots, .record = 8192, .log = 65536};
	*k = (struct storekit){.init = {.store = store_new(&sizes, 4096), .channel = -1}};
	ck_assert_ptr_nonnull(k->init.store);
	k->daemon = storekit_daemon(k, true);
}

struct store *storekit_daemon(struct storekit *k, bool channel)
{
	const struct store *s = k->init.store;
	struct store *out = NULL;
	int memory = fcntl(s->memory, F_DUPFD_CLOEXEC, 3), event = fcntl(s->event, F_DUPFD_CLOEXEC, 3);
	ck_assert_int_eq(store_open(memory, event, &out), 0);
	store_serve(out, channel ? init_store_open(&k->init) : -1);
	ck_assert(!channel || out->channel >= 0);
	return out;
}

void storekit_release(struct storekit *k)
{
	store_free(k->daemon);
	store_free(k->init.store);
	if (k->init.channel >= 0)
		close(k->init.channel);
}

void storekit_turn(struct storekit *k)
{
	struct pollfd p = {.fd = k->init.channel, .events = POLLIN};
	do
		init_store_turn(&k->init);
	while (k->init.channel >= 0 && poll(&p, 1, 0) > 0);
}

size_t storekit_held(const struct storekit *k)
{
	size_t n = 0;
	for (size_t i = 0; i < k->init.store->shape.slots; i++) {
		for (int e = 0; e < STORE_ENDS; e++)
			n += k->init.store->slots[i].fd[e] > 0;
	}
	return n;
}

size_t storekit_fds(void)
{
	size_t n = 0;
	DIR *d = opendir("/proc/self/fd");
	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

struct store_slot *storekit_take(struct storekit *k)
{
	struct store_slot *slot = store_take(k->daemon);
	ck_assert_ptr_nonnull(slot);
	return slot;
}

int storekit_pipe(void)
{
	int fds[2];
	ck_assert_int_eq(io_pipe(fds), 0);
	close(fds[1]);
	return fds[0];
}

int storekit_hand(struct store_slot *slot, unsigned mask)
{
	int fds[STORE_ENDS];
	for (unsigned i = 0; i < STORE_ENDS; i++)
		fds[i] = mask & 1u << i ? storekit_pipe() : -1;
	int rc = store_hand(slot, fds);
	for (unsigned i = 0; i < STORE_ENDS; i++)
		io_close(&fds[i]);
	return rc;
}
