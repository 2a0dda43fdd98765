// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/idem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sha2.h>

#define KEEP_NS (INT64_C(300) * 1000000000)

struct entry {
	uint64_t number; // 0 = free
	int64_t since_ns;
	char key[IDEM_KEY + 1];
	char id[IDEM_ID];
	unsigned char body[SHA256_DIGEST_LENGTH]; // of the request
	struct buf answer;                        // empty until there is one
};

struct idem {
	uint64_t last;
	struct entry entries[IDEM_MAX];
};

struct idem *idem_new(void)
{
	return calloc(1, sizeof(struct idem));
}

static void drop(struct entry *x)
{
	buf_release(&x->answer);
	x->number = 0;
}

void idem_free(struct idem *all)
{
	for (size_t i = 0; all && i < IDEM_MAX; i++)
		drop(&all->entries[i]);
	free(all);
}

static struct entry *by_number(struct idem *all, uint64_t number)
{
	for (size_t i = 0; number && i < IDEM_MAX; i++)
		if (all->entries[i].number == number)
			return &all->entries[i];
	return NULL;
}

// The living entry of KEY, or NULL and in *ROOM the one to use for it: a free one, else the oldest.
static struct entry *by_key(struct idem *all, struct http_span key, int64_t now_ns, struct entry **room)
{
	*room = &all->entries[0];
	for (size_t i = 0; i < IDEM_MAX; i++) {
		struct entry *x = &all->entries[i];
		if (x->number && now_ns - x->since_ns > KEEP_NS)
			drop(x);
		if (x->number && strlen(x->key) == key.n && memcmp(x->key, key.p, key.n) == 0)
			return x;
		if (x->number < (*room)->number)
			*room = x;
	}
	return NULL;
}

static bool key_ok(struct http_span key)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
	for (size_t i = 0; i < key.n; i++)
		if (!key.p[i] || !strchr(good, key.p[i]))
			return false;
	return key.n >= 1 && key.n <= IDEM_KEY;
}

int idem_enter(struct idem *all, struct http_span key, const struct buf *body, int64_t now_ns, uint64_t *entry,
	const char **id, const struct buf **answer, struct err *e)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	struct entry *room;
	SHA2_CTX hash;
	if (!key_ok(key))
		return err_set(
			e, ERR_INVALID_ARGUMENT, "Idempotency-Key must be 1 to %d of a-z, 0-9 and '-'", IDEM_KEY);
	SHA256Init(&hash);
	SHA256Update(&hash, buf_data(body), buf_len(body));
	SHA256Final(digest, &hash);
	struct entry *x = by_key(all, key, now_ns, &room);
	if (x && memcmp(x->body, digest, sizeof digest) != 0)
		return err_set(e, ERR_ALREADY_EXISTS, "this Idempotency-Key was used for another request");
	if (x) {
		*entry = x->number;
		*id = x->id;
		*answer = buf_len(&x->answer) > 0 ? &x->answer : NULL;
		return 1;
	}
	drop(room);
	*room = (struct entry){.number = ++all->last, .since_ns = now_ns};
	memcpy(room->key, key.p, key.n);
	memcpy(room->body, digest, sizeof digest);
	*entry = room->number;
	return 0;
}

void idem_session(struct idem *all, uint64_t entry, const char *id)
{
	struct entry *x = by_number(all, entry);
	if (x)
		snprintf(x->id, sizeof x->id, "%s", id);
}

void idem_answer(struct idem *all, uint64_t entry, const struct buf *answer)
{
	struct entry *x = by_number(all, entry);
	if (!x)
		return;
	buf_reset(&x->answer);
	buf_append(&x->answer, buf_data(answer), buf_len(answer));
	if (buf_failed(answer) || buf_failed(&x->answer))
		drop(x);
}

void idem_drop(struct idem *all, uint64_t entry)
{
	struct entry *x = by_number(all, entry);
	if (x)
		drop(x);
}
