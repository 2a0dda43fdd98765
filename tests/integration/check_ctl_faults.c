// SPDX-License-Identifier: Apache-2.0
// celld ctl when it gets no memory: any one allocation of it, each in its turn. It says so and fails, or did not need it; what it says
// to have done it has done.
#include "tests/faults/plan.h"
#include "tests/integration/ctlkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
	const char *words[8], *input, *output; // NULL: not compared
} runs[] = {
	{{"exec", "-e", "A=1", "--", "echo", "a b"}, "", "a b\n"},
	{{"exec", "-i", "cat"}, "what is sent", "what is sent"},
	{{"ps"}, "", "     PID KIND           AGE OUTPUT SESSION      COMMAND\n"},
	{{"ls", "dir"}, "", "a\nb\n"},
	{{"ls", "-l", "dir/a"}, "", NULL},
	{{"cp", "/dev/stdin", ":sent"}, "sent", ""},
	{{"cp", ":dir/a", "/dev/stdout"}, "", "content of a\n"},
	{{"ready"}, "", "ready\n"},
	{{"completion", "bash"}, "", NULL},
	{{"--help"}, "", NULL},
};

static struct fault_plan *map(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(struct fault_plan)), 0);
	struct fault_plan *plan = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(plan != MAP_FAILED);
	(void)close(fd);
	return plan;
}

// One run with the allocation AT failing. False if there are not so many.
static bool run_once(const struct testd *d, int which, unsigned at, struct fault_plan *plan, const char *path)
{
	struct ctlrun c;
	*plan = (struct fault_plan){.kinds = FAULT_MEMORY, .err = ENOMEM, .at = at};
	ctl_start_faulty(&c, d, runs[which].words, plan, path);
	int status = ctl_finish(&c, runs[which].input, strlen(runs[which].input));
	bool hit = atomic_load(&plan->hits) > 0;
	ck_assert_msg(status == 0 || (hit && (status == 1 || status == 125)), "%s, allocation %u (%s): status %d, %s",
		runs[which].words[0], at, plan->name, status, ctl_err(&c));
	if (status == 0 && runs[which].output)
		ck_assert_msg(strcmp(ctl_out(&c), runs[which].output) == 0, "%s, allocation %u (%s): %s",
			runs[which].words[0], at, plan->name, ctl_out(&c));
	ck_assert_msg(status == 0 || buf_len(&c.said[1]) > 0, "%s, allocation %u (%s): %d and not a word",
		runs[which].words[0], at, plan->name, status);
	ctl_release(&c);
	return hit;
}

START_TEST(no_memory_is_said)
{
	struct testd *d = d_start();
	char path[512], command[600];
	unsigned at = 1;
	ctl_file(d, "plan", path);
	struct fault_plan *plan = map(path);
	(void)snprintf(
		command, sizeof command, "cd %s && mkdir dir && echo content of a >dir/a && echo >dir/b", d->workspace);
	ck_assert_int_eq(system(command), 0);
	while (run_once(d, _i, at, plan, path))
		at++;
	ck_assert_uint_gt(at, 3);
	(void)munmap(plan, sizeof *plan);
	d_finish(d);
}
END_TEST

Suite *faults_ctl_suite(void)
{
	Suite *s = suite_create("faults_ctl");
	TCase *tc = h_tcase(s, "memory", 120);
	tcase_add_loop_test(tc, no_memory_is_said, 0, (int)(sizeof runs / sizeof *runs));
	return s;
}
