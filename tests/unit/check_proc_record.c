// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/proc_record.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const argv[] = {"/bin/sh", "-c", "echo \"$1\"", "", NULL};
static const char *const env[] = {"A=1", "B=", "LONG=a value with blanks", NULL};
static const char *const none[] = {NULL};
static const char *const program[] = {"/bin/sh", NULL};

static const struct proc_record samples[] = {
	{.command = ""},
	{.kind = 3, .wanted = true, .started_ms = 1, .started_ns = 2, .terminal_id = 3, .command = "sleep 1"},
	{.kind = 2, .command = "x", .session_id = "s", .note = "run-1"},
	{.command = "x", .note = "n", .has_asked = true, .asked = {.argv = none, .env = none}},
	{.kind = 1,
		.started_ms = INT64_MAX,
		.started_ns = INT64_MAX,
		.terminal_id = INT64_MAX,
		.command = "/bin/sh -c ...",
		.session_id = "",
		.has_asked = true,
		.asked = {.argv = argv, .env = env, .cwd = "/tmp", .tag = "t"}},
	{.command = "x", .has_asked = true, .asked = {.argv = argv, .env = none, .tag = ""}},
	// A command that is in its argv: as the last, as all of it, but for an end.
	{.command = "", .has_asked = true, .asked = {.argv = argv, .env = env}},
	{.command = "/bin/sh -c echo \"$1\" ", .has_asked = true, .asked = {.argv = argv, .env = env, .tag = "t"}},
	{.command = "/bin/sh -c echo \"$1\"", .has_asked = true, .asked = {.argv = argv, .env = env}},
	{.command = "/bin/sh", .has_asked = true, .asked = {.argv = program, .env = none}},
};

enum { SAMPLES = sizeof samples / sizeof *samples };

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_list(const char *const *a, const char *const *b)
{
	for (; *a && *b && strcmp(*a, *b) == 0; a++, b++)
		;
	return !*a && !*b;
}

static bool same_record(const struct proc_record *a, const struct proc_record *b)
{
	return a->kind == b->kind && a->wanted == b->wanted && a->started_ms == b->started_ms &&
	       a->started_ns == b->started_ns && a->terminal_id == b->terminal_id && same(a->command, b->command) &&
	       same(a->session_id, b->session_id) && same(a->note, b->note) && a->has_asked == b->has_asked &&
	       (!a->has_asked ||
		       (same(a->asked.cwd, b->asked.cwd) && same(a->asked.tag, b->asked.tag) &&
			       same_list(a->asked.argv, b->asked.argv) && same_list(a->asked.env, b->asked.env)));
}

// A copy of exactly N bytes, so that a sanitizer sees a step beyond them.
static unsigned char *encoded(const struct proc_record *r, size_t *n)
{
	struct buf b;
	buf_init(&b, 0);
	proc_record_encode(&b, r);
	*n = buf_len(&b);
	unsigned char *p = malloc(*n);
	ck_assert_ptr_nonnull(p);
	memcpy(p, buf_data(&b), *n);
	buf_release(&b);
	return p;
}

START_TEST(what_goes_in_comes_out)
{
	struct proc_record r;
	size_t n;
	unsigned char *p = encoded(&samples[_i], &n);
	ck_assert_int_eq(proc_record_decode(&r, p, n), 0);
	ck_assert(same_record(&r, &samples[_i]));
	proc_record_release(&r);
	free(p);
}
END_TEST

START_TEST(a_shorter_or_longer_one_is_refused)
{
	struct proc_record r;
	size_t n;
	unsigned char *p = encoded(&samples[_i], &n);
	for (size_t k = 0; k < n; k++) {
		unsigned char *cut = malloc(k + 1);
		ck_assert_ptr_nonnull(cut);
		unsigned char *at = cut + 1; // exactly up to the end
		memcpy(at, p, k);
		ck_assert_int_eq(proc_record_decode(&r, at, k), -EPROTO);
		ck_assert_ptr_null(r.asked.argv);
		free(cut);
	}
	unsigned char *more = malloc(n + 1);
	ck_assert_ptr_nonnull(more);
	memcpy(more, p, n);
	more[n] = '\0';
	ck_assert_int_eq(proc_record_decode(&r, more, n + 1), -EPROTO);
	free(more);
	free(p);
}
END_TEST

// Whatever is flipped: refused, or something that is read within its bounds.
START_TEST(every_bit_may_be_wrong)
{
	struct proc_record r;
	size_t n, taken = 0;
	unsigned char *p = encoded(&samples[_i], &n);
	for (size_t bit = 0; bit < n * 8; bit++) {
		p[bit / 8] ^= (unsigned char)(1u << bit % 8);
		int rc = proc_record_decode(&r, p, n);
		ck_assert(rc == 0 || rc == -EPROTO);
		if (rc == 0) {
			taken += same_record(&r, &r);
			ck_assert(!same_record(&r, &samples[_i]));
		}
		proc_record_release(&r);
		p[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	ck_assert_uint_gt(taken, 0);
	free(p);
}
END_TEST

static int decode_all(void *arg)
{
	(void)arg;
	struct proc_record r;
	struct buf b;
	buf_init(&b, 0);
	proc_record_encode(&b, &samples[4]);
	int rc = buf_failed(&b) ? -ENOMEM : proc_record_decode(&r, buf_data(&b), buf_len(&b));
	if (rc == 0 && !same_record(&r, &samples[4]))
		rc = 1;
	if (rc >= 0)
		proc_record_release(&r);
	buf_release(&b);
	return rc;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(decode_all, NULL);
}
END_TEST

Suite *proc_record_suite(void)
{
	Suite *s = suite_create("proc_record");
	TCase *t = tcase_create("record");
	suite_add_tcase(s, t);
	tcase_add_loop_test(t, what_goes_in_comes_out, 0, SAMPLES);
	tcase_add_loop_test(t, a_shorter_or_longer_one_is_refused, 0, SAMPLES);
	tcase_add_loop_test(t, every_bit_may_be_wrong, 0, SAMPLES);
	tcase_add_test(t, out_of_memory);
	return s;
}
