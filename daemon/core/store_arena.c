// SPDX-License-Identifier: Apache-2.0
// The arena: one memfd with head, marks, table, kept bytes, records and logs, in this order, each on pages of its own.
#include "daemon/core/store_priv.h"

#include "daemon/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x31726f74736c6563u
#define PAGE ((uint64_t)4096)
#define SLOTS_MAX ((size_t)1 << 24)
#define PART_MAX ((uint64_t)1 << 36)
#define NOEXEC_SEAL 8u // MFD_NOEXEC_SEAL
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static_assert(sizeof(struct store_entry) == 64, "an entry is a line of the cache");

static uint64_t pages(uint64_t n)
{
	return (n + PAGE - 1) / PAGE * PAGE;
}

static uint64_t sum_of(const struct store_shape *shape)
{
	const unsigned char *p = (const unsigned char *)shape;
	uint64_t sum = 0xcbf29ce484222325u;
	for (size_t i = 0; i < sizeof *shape; i++)
		sum = (sum ^ p[i]) * 0x100000001b3u;
	return sum;
}

static uint64_t dirty_at(void)
{
	return pages(sizeof(struct store_head));
}

// The one way from sizes to offsets: what store_open finds has to come out of it too. False if they make no sense.
static bool lay_out(struct store_shape *out, size_t slots, uint64_t record, uint64_t log, uint64_t kept)
{
	if (slots == 0 || slots > SLOTS_MAX || record > PART_MAX || log > PART_MAX || kept > PART_MAX)
		return false;
	memset(out, 0, sizeof *out);
	out->magic = MAGIC;
	out->layout = STORE_LAYOUT;
	out->slots = (uint32_t)slots;
	out->record = pages(record);
	out->log = pages(log);
	out->kept = pages(kept);
	out->table_at = dirty_at() + pages(store_dirty_words(out) * sizeof(uint32_t));
	out->kept_at = out->table_at + pages(slots * sizeof(struct store_entry));
	out->record_at = out->kept_at + out->kept;
	out->log_at = store_long_at(out) + slots * out->record;
	uint64_t logs;
	return !__builtin_mul_overflow((uint64_t)slots, out->log, &logs) &&
	       !__builtin_add_overflow(out->log_at, logs, &out->size) && out->size <= INT64_MAX &&
	       out->log_at <= SIZE_MAX / 2;
}

static bool same_shape(const struct store_shape *a, const struct store_shape *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

static struct store *store_of(const struct store_shape *shape, int memory, int event)
{
	struct store *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->shape = *shape;
	s->memory = memory;
	s->event = event;
	s->channel = -1;
	void *base = mmap(NULL, shape->log_at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory, 0);
	void *slots = mmap(NULL, shape->slots * sizeof(struct store_slot), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	s->base = base == MAP_FAILED ? NULL : base;
	s->slots = slots == MAP_FAILED ? NULL : slots;
	if (!s->base || !s->slots)
		return s;
	madvise(base, shape->log_at, MADV_DONTDUMP); // a core would hold what other commands said
	s->head = base;
	s->dirty = (uint32_t *)(void *)(s->base + dirty_at());
	s->table = (struct store_entry *)(void *)(s->base + shape->table_at);
	return s;
}

static void close_ends(struct store *s)
{
	for (size_t i = 0, n = store_used_to(s); i < n; i++) {
		for (int e = 0; e < STORE_ENDS; e++) {
			if (s->slots[i].fd[e] > 0)
				close(s->slots[i].fd[e] - 1);
		}
	}
}

void store_free(struct store *s)
{
	if (!s)
		return;
	if (s->head && s->slots)
		close_ends(s);
	if (s->base)
		munmap(s->base, s->shape.log_at);
	if (s->slots)
		munmap(s->slots, s->shape.slots * sizeof(struct store_slot));
	io_close(&s->memory);
	io_close(&s->event);
	io_close(&s->channel);
	free(s);
}

static void write_head(struct store *s)
{
	s->head->shape = s->shape;
	s->head->sum = sum_of(&s->shape);
}

int store_memory(const char *name)
{
	// Where the system asks for it (vm.memfd_noexec); a kernel before 6.3 does not know it.
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL);
	return fd < 0 && errno == EINVAL ? memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

struct store *store_new(const struct store_sizes *sizes, size_t kept)
{
	struct store_shape shape;
	if (!lay_out(&shape, sizes->slots, sizes->record, sizes->log, kept)) {
		errno = EINVAL;
		return NULL;
	}
	int memory = store_memory("celld-store");
	int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct store *s = NULL;
	// Sealed, so that nobody can make the mapping end before its end.
	if (memory >= 0 && event >= 0 && IO_AGAIN(ftruncate(memory, (off_t)shape.size)) == 0 &&
		fcntl(memory, F_ADD_SEALS, SEALS) == 0)
		s = store_of(&shape, memory, event);
	if (s && s->head) {
		write_head(s);
		return s;
	}
	int saved = errno;
	if (!s) {
		io_close(&memory);
		io_close(&event);
	}
	store_free(s);
	errno = saved;
	return NULL;
}

static int check(int memory, struct store_shape *out)
{
	struct store_head head;
	struct store_shape should;
	struct stat st;
	int seals = fcntl(memory, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(memory, &st) < 0)
		return -EPROTO;
	if (io_pread(memory, &head, sizeof head, 0) != (ssize_t)sizeof head)
		return -EPROTO;
	const struct store_shape *is = &head.shape;
	if (is->magic != MAGIC || is->layout != STORE_LAYOUT || head.sum != sum_of(is))
		return -EPROTO;
	if (!lay_out(&should, is->slots, is->record, is->log, is->kept) || !same_shape(is, &should))
		return -EPROTO;
	*out = should;
	return (uint64_t)st.st_size == should.size ? 0 : -EPROTO;
}

int store_open(int memory, int event, struct store **out)
{
	struct store_shape shape;
	int rc = check(memory, &shape);
	struct store *s = rc == 0 ? store_of(&shape, memory, event) : NULL;
	*out = s;
	if (s && s->head)
		return 0;
	if (!s) {
		io_close(&memory);
		io_close(&event);
	}
	store_free(s);
	*out = NULL;
	return rc < 0 ? rc : -ENOMEM;
}

bool store_whole(const struct store *s)
{
	return same_shape(&s->head->shape, &s->shape) && s->head->sum == sum_of(&s->shape);
}

void store_wipe(struct store *s)
{
	struct store_deaths deaths = s->head->deaths;
	IO_AGAIN(fallocate(s->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)s->shape.kept_at));
	IO_AGAIN(fallocate(s->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->shape.record_at,
		(off_t)(s->shape.size - s->shape.record_at)));
	write_head(s);
	s->head->deaths = deaths;
}

size_t store_used_to(const struct store *s)
{
	uint32_t n = store_get(&s->head->used_to);
	return n < s->shape.slots ? n : s->shape.slots;
}

void *store_kept(const struct store *s)
{
	return s->base + s->shape.kept_at;
}

void store_deaths(const struct store *s, struct store_deaths *d)
{
	*d = (struct store_deaths){0};
	if (!s)
		return;
	*d = s->head->deaths;
	d->reason[sizeof d->reason - 1] = '\0';
}
