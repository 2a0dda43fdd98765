// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/launch.h"
#include "oom.h"
#include "prockit.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// --- what was asked for ---

static struct asked example(void)
{
	static const char *const argv[] = {"sh", "-c", "", "x y", NULL};
	static const char *const env[] = {"A=1", "B=", NULL};
	return (struct asked){.argv = argv, .env = env, .cwd = "~/x", .tag = "t"};
}

static void assert_example(const struct asked *a)
{
	ck_assert_str_eq(a->argv[0], "sh");
	ck_assert_str_eq(a->argv[2], "");
	ck_assert_str_eq(a->argv[3], "x y");
	ck_assert_ptr_null(a->argv[4]);
	ck_assert_str_eq(a->env[0], "A=1");
	ck_assert_str_eq(a->env[1], "B=");
	ck_assert_ptr_null(a->env[2]);
	ck_assert_str_eq(a->cwd, "~/x");
	ck_assert_str_eq(a->tag, "t");
}

START_TEST(what_was_asked_is_kept_word_for_word)
{
	struct asked a = example();
	size_t size;
	struct asked *copy = asked_dup(&a, &size);
	ck_assert_ptr_nonnull(copy);
	ck_assert_uint_gt(size, sizeof a + 8 * sizeof(char *));
	assert_example(copy);
	struct asked *again = asked_dup(copy, NULL);
	free(copy);
	assert_example(again);
	free(again);
}
END_TEST

START_TEST(nothing_asked_stays_nothing)
{
	const char *const none[] = {NULL};
	struct asked a = {.argv = none, .env = none};
	struct asked *copy = asked_dup(&a, NULL);
	ck_assert_ptr_nonnull(copy);
	ck_assert(!copy->argv[0] && !copy->env[0] && !copy->cwd && !copy->tag);
	free(copy);
}
END_TEST

START_TEST(words_become_one_line)
{
	struct asked a = example();
	const char *const none[] = {NULL};
	char *line = launch_line(a.argv);
	ck_assert_str_eq(line, "sh -c  x y");
	free(line);
	line = launch_line(none);
	ck_assert_str_eq(line, "");
	free(line);
}
END_TEST

static int copy_all(void *arg)
{
	struct asked a = example(), *copy = asked_dup(&a, NULL);
	char *line = copy ? launch_line(a.argv) : NULL;
	(void)arg;
	free(copy);
	free(line);
	return line ? 0 : -ENOMEM;
}

START_TEST(copies_survive_a_lack_of_memory)
{
	OOM_LOOP(copy_all, NULL);
}
END_TEST

// --- kept with the process ---

static struct proc *start_tagged(struct prockit *k, const char *script, const char *tag)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL}, *const none[] = {NULL};
	struct asked asked = {.argv = argv, .env = none, .tag = tag};
	struct proc_spec spec = {
		.run = {.path = argv[0], .argv = argv, .env = k->env, .cwd = "/"},
		.command = script,
		.asked = &asked,
	};
	struct proc *p;
	ck_assert_int_eq(proc_start(k->procs, &spec, &p, &k->step), 0);
	return p;
}

START_TEST(a_tag_names_the_living_before_the_ended)
{
	struct prockit k;
	prockit_init(&k, &prockit_limits);
	ck_assert_ptr_null(procs_tagged(k.procs, "t"));
	struct proc *first = start_tagged(&k, "exit 1", "t");
	PROCKIT_UNTIL(&k, proc_end(first));
	ck_assert_ptr_eq(procs_tagged(k.procs, "t"), first);
	ck_assert_int_ge(proc_ended_ago_ms(first), 0);
	struct proc *second = start_tagged(&k, "exit 2", "t");
	PROCKIT_UNTIL(&k, proc_end(second));
	ck_assert_ptr_eq(procs_tagged(k.procs, "t"), second);
	struct proc *third = start_tagged(&k, "read x <$GATE", "t");
	struct proc *other = start_tagged(&k, "read x <$GATE", NULL);
	ck_assert_ptr_eq(procs_tagged(k.procs, "t"), third);
	ck_assert_ptr_null(procs_tagged(k.procs, "other"));
	ck_assert_str_eq(proc_asked(third)->argv[2], "read x <$GATE");
	ck_assert(!proc_asked(other)->tag && proc_ended_ago_ms(other) == 0);
	prockit_release(&k);
}
END_TEST

Suite *launch_suite(void)
{
	Suite *s = suite_create("launch");
	TCase *t = tcase_create("asked");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, what_was_asked_is_kept_word_for_word);
	tcase_add_test(t, nothing_asked_stays_nothing);
	tcase_add_test(t, words_become_one_line);
	tcase_add_test(t, copies_survive_a_lack_of_memory);
	tcase_add_test(t, a_tag_names_the_living_before_the_ended);
	return s;
}
