// SPDX-License-Identifier: Apache-2.0
// The corpora of the daemon's targets as tests; a program of its own, for the system under it is not the real one.
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/daemon/fake.h"

#include <check.h>
#include <string.h>

static const struct {
	const char *name;
	fuzz_target *run;
} targets[] = {
	{"conn", fuzz_conn},
	{"inotify", fuzz_inotify},
	{"record", fuzz_record},
};

START_TEST(corpus)
{
	if (targets[_i].run == fuzz_conn && !jail_possible())
		puts("conn: left out, needs root or a user namespace");
	else
		corpus_replay(targets[_i].run, targets[_i].name);
}
END_TEST

// With --list: the one suite's name, for tests/run.sh.
int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--list") == 0)
		return puts("daemon_corpora") < 0;
	Suite *s = suite_create("daemon_corpora");
	TCase *t = tcase_create("corpora");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, corpus, 0, (int)(sizeof targets / sizeof *targets));
	suite_add_tcase(s, t);
	SRunner *runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return ran > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
