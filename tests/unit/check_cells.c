// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/cells.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 500 };

static size_t blocks_open(const struct cells *c)
{
	size_t n = 0;
	for (struct { struct cells_block *prev, *next; } *b = (void *)c->open; b; b = (void *)b->next)
		n++;
	return n;
}

// Each is zero when it is taken, apart from all others, and keeps what is written to it, in whatever order they come and go.
START_TEST(objects_lie_in_each_other)
{
	static const size_t sizes[] = {1, 8, 100, 416, 20000};
	unsigned char *taken[MOST] = {0};
	struct cells c;
	size_t size = sizes[_i], n = size > 10000 ? 20 : MOST;
	uint32_t rnd = 2463534242u;
	cells_init(&c, size);
	for (int round = 0; round < 20000; round++) {
		rnd = rnd * 1664525u + 1013904223u;
		size_t i = (rnd >> 8) % n;
		unsigned char mark = (unsigned char)(1 + i % 255);
		bool growing = round / 4000 % 2 == 0;
		if (!taken[i] && (growing || rnd >> 30 == 0)) {
			taken[i] = cells_get(&c);
			ck_assert(taken[i] && (uintptr_t)taken[i] % _Alignof(void *) == 0);
			for (size_t k = 0; k < size; k++)
				if (taken[i][k])
					ck_abort_msg("not zero");
			memset(taken[i], mark, size);
		} else if (taken[i] && (!growing || rnd >> 30 == 0)) {
			for (size_t k = 0; k < size; k++)
				if (taken[i][k] != mark)
					ck_abort_msg("another's byte");
			cells_put(&c, taken[i]);
			taken[i] = NULL;
		}
	}
	for (size_t i = 0; i < n; i++) {
		if (taken[i])
			cells_put(&c, taken[i]);
	}
	ck_assert_uint_le(blocks_open(&c), 1); // the rest is given back
	cells_release(&c);
	ck_assert_ptr_null(c.open);
}
END_TEST

static int take_some(void *arg)
{
	struct cells c;
	void *taken[MOST];
	size_t n = 0;
	(void)arg;
	cells_init(&c, 400);
	while (n < 100 && (taken[n] = cells_get(&c)))
		n++;
	int rc = n == 100 ? 0 : -ENOMEM;
	while (n > 0)
		cells_put(&c, taken[--n]);
	cells_release(&c);
	return rc;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(take_some, NULL);
}
END_TEST

Suite *cells_suite(void)
{
	Suite *s = suite_create("cells");
	TCase *t = tcase_create("cells");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, objects_lie_in_each_other, 0, 5);
	tcase_add_test(t, out_of_memory);
	return s;
}
