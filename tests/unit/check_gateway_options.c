// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1
#include "suites.h"
#include "tests/gateway/options.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ARGS = 100 };

static struct options options, *const o = &options;
static char words[1 << 14], *args[ARGS + 1];
static int argc, status, out_fd, err_fd;

// stdout and stderr become files. Each test runs in a process of its own.
static void setup(void)
{
	out_fd = memfd_create("out", MFD_CLOEXEC);
	err_fd = memfd_create("err", MFD_CLOEXEC);
	ck_assert_int_eq(dup2(out_fd, STDOUT_FILENO), STDOUT_FILENO);
	ck_assert_int_eq(dup2(err_fd, STDERR_FILENO), STDERR_FILENO);
}

static const char *printed(int fd)
{
	static char text[16384];
	fflush(stdout);
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	ck_assert_int_eq(ftruncate(fd, 0) | (int)lseek(fd, 0, SEEK_SET), 0);
	return text;
}

// LINE: the arguments with blanks between them; "''" is an empty one. A daemon that can be run is named first.
static bool load(const char *line)
{
	argc = 0;
	snprintf(words, sizeof words, "celld-gateway --celld /bin/sh %s", line);
	for (char *save, *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		ck_assert_int_lt(argc, ARGS);
		args[argc++] = strcmp(w, "''") == 0 ? w + 2 : w;
	}
	args[argc] = NULL;
	status = -1;
	return options_load(o, argc, args, &status);
}

static void must_load(const char *line)
{
	bool run = load(line);
	ck_assert_str_eq(printed(err_fd), "");
	ck_assert_str_eq(printed(out_fd), "");
	ck_assert(run);
}

START_TEST(defaults)
{
	char real[PATH_MAX];
	must_load("");
	ck_assert_ptr_nonnull(realpath("/bin/sh", real));
	ck_assert_str_eq(o->celld, real);
	ck_assert_str_eq(o->listen, "127.0.0.1:3000");
	ck_assert(!o->dir && !o->domain && !o->api_key && !o->command && !o->url);
	ck_assert(!o->private_net && !o->verbose && o->isolation == ISOLATION_AUTO);
	ck_assert(o->pool == 2 && o->max == 64 && o->memory_mb == 0 && o->sandbox_memory_mb == 512);
	ck_assert(o->cpus == 0 && o->sandbox_cpus == 1);
	ck_assert(o->sweep == 10 && o->grace == 30 && o->timeout == 300);
	ck_assert_uint_eq(o->template_count, 1);
	ck_assert_str_eq(o->templates[0].name, "base");
	ck_assert(!o->templates[0].dir && o->templates[0].memory_mb == -1 && o->templates[0].cpus == -1);
}
END_TEST

enum type { TEXT, COUNT, INT, REAL, WORD, FLAG };

// Each option's member read back as text, for "VALUE>TEXT VALUE>TEXT".
#define AT(member) offsetof(struct options, member)
static const struct good {
	const char *name;
	enum type type;
	size_t at;
	const char *pairs;
} good[] = {
	{"listen", TEXT, AT(listen), "[::1]:0>[::1]:0"},
	{"dir", TEXT, AT(dir), "/tmp/x>/tmp/x rel>rel"},
	{"domain", TEXT, AT(domain), "sbx.localhost:3000>sbx.localhost:3000 a-b.c>a-b.c"},
	{"api-key", TEXT, AT(api_key), "e2b_00>e2b_00 a\"b=c>a\"b=c"},
	{"isolation", WORD, AT(isolation), "auto>0 namespaces>1 plain>2"},
	{"net", FLAG, AT(private_net), "host>0 private>1"},
	{"pool", COUNT, AT(pool), "0>0 13>13 10000>10000"},
	{"max-sandboxes", COUNT, AT(max), "1>1 10000>10000"},
	{"memory", INT, AT(memory_mb), "0>0 4096>4096 2147483647>2147483647"},
	{"cpus", REAL, AT(cpus), "0>0.000 2.5>2.500"},
	{"sandbox-memory", INT, AT(sandbox_memory_mb), "1>1 128>128"},
	{"sandbox-cpus", REAL, AT(sandbox_cpus), "0>0.000 .25>0.250"},
	{"sweep", REAL, AT(sweep), "0.05>0.050 10>10.000"},
	{"grace", REAL, AT(grace), "1.5>1.500"},
	{"timeout", REAL, AT(timeout), "3600>3600.000"},
};

static const char *got(const struct good *g)
{
	static char text[256];
	const void *p = (const char *)o + g->at;
	switch (g->type) {
	case TEXT:
		snprintf(text, sizeof text, "%s", *(const char *const *)p);
		break;
	case COUNT:
		snprintf(text, sizeof text, "%zu", *(const size_t *)p);
		break;
	case INT:
		snprintf(text, sizeof text, "%d", *(const int *)p);
		break;
	case REAL:
		snprintf(text, sizeof text, "%.3f", *(const double *)p);
		break;
	case WORD:
		snprintf(text, sizeof text, "%d", (int)*(const enum isolation *)p);
		break;
	case FLAG:
		snprintf(text, sizeof text, "%d", *(const bool *)p);
		break;
	}
	return text;
}

START_TEST(each_option)
{
	const struct good *g = &good[_i];
	char pairs[256], line[256];
	snprintf(pairs, sizeof pairs, "%s", g->pairs);
	for (char *save, *pair = strtok_r(pairs, " ", &save); pair; pair = strtok_r(NULL, " ", &save)) {
		char *want = strchr(pair, '>');
		ck_assert_ptr_nonnull(want);
		*want++ = '\0';
		snprintf(line, sizeof line, "--%s %s", g->name, pair);
		must_load(line);
		ck_assert_str_eq(got(g), want);
		snprintf(line, sizeof line, "--%s=%s", g->name, pair);
		must_load(line);
		ck_assert_str_eq(got(g), want);
	}
}
END_TEST

static const struct bad {
	const char *line, *said;
	int status;
} bad[] = {
	{"--pool -1", "--pool: \"-1\" is not a number from 0 to 10000", 1},
	{"--pool=ten", "--pool: \"ten\" is not a number", 1},
	{"--pool 10001", "--pool: \"10001\" is not", 1},
	{"--pool 99999999999999999999", "--pool: \"99999999999999999999\" is not", 1},
	{"--pool ''", "--pool: \"\" is not", 1},
	{"--max-sandboxes 0", "--max-sandboxes: \"0\" is not a number from 1", 1},
	{"--memory 2147483648", "--memory: \"2147483648\" is not a number of MiB", 1},
	{"--memory 4G", "--memory: \"4G\" is not", 1},
	{"--sandbox-memory 0", "--sandbox-memory: \"0\" is not a number of MiB from 1 on", 1},
	{"--cpus 1.2.3", "--cpus: \"1.2.3\" is not", 1},
	{"--cpus .", "--cpus: \".\" is not", 1},
	{"--cpus nan", "--cpus: \"nan\" is not", 1},
	{"--sandbox-cpus -1", "--sandbox-cpus: \"-1\" is not", 1},
	{"--sweep 0", "--sweep: \"0\" is not a number of seconds", 1},
	{"--timeout 1e3", "--timeout: \"1e3\" is not", 1},
	{"--isolation some", "--isolation: \"some\" is not auto, namespaces or plain", 1},
	{"--net none", "--net: \"none\" is not host or private", 1},
	{"--domain a/b", "--domain: \"a/b\" is not a host name", 1},
	{"--domain ''", "--domain: \"\" is not a host name", 1},
	{"--api-key it's", "--api-key: \"it's\" is not printable text", 1},
	{"--api-key ''", "--api-key: \"\" is not", 1},
	{"--listen ''", "--listen: \"\" is not", 1},
	{"--celld /nowhere/celld", "--celld: \"/nowhere/celld\": No such file", 1},
	{"--celld /etc/passwd", "--celld: \"/etc/passwd\": Permission denied", 1},
	{"--template =/tmp", "--template: \"=/tmp\" is not NAME", 1},
	{"--template a=", "--template: \"a=\" is not NAME", 1},
	{"--template a=/x,", "--template: \"a=/x,\" is not NAME", 1},
	{"--template a=/x,disk=1", "--template: \"a=/x,disk=1\" is not NAME", 1},
	{"--template a,memory=0", "--template: \"a,memory=0\" is not a template whose memory", 1},
	{"--template a,memory=", "--template: \"a,memory=\" is not a template whose memory", 1},
	{"--template a,cpus=x", "--template: \"a,cpus=x\" is not a template whose cpus", 1},
	{"--bogus", "--bogus: no such option", 2},
	{"--po 1", "--po: no such option", 2},
	{"--=1", "--=1: no such option", 2},
	{"--", "--: no such option", 2},
	{"--verbose=1", "--verbose=1: takes no value", 2},
	{"--pool", "--pool: needs a value", 2},
	{"stop", "stop: is neither an option nor a command", 2},
	{"list reclaim", "reclaim: one command at a time", 2},
	{"--url http://127.0.0.1:1", "--url: is for the commands", 2},
};

START_TEST(a_bad_word_is_named)
{
	char want[256];
	bool run = load(bad[_i].line);
	snprintf(want, sizeof want, "celld-gateway: %s", bad[_i].said);
	const char *text = printed(err_fd);
	ck_assert_msg(strncmp(text, want, strlen(want)) == 0, "\"%s\" does not begin with \"%s\"", text, want);
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
	ck_assert_int_eq(status, bad[_i].status);
	ck_assert(!run);
}
END_TEST

START_TEST(templates)
{
	must_load("--template empty --template=web=/srv/web,cpus=0.5,memory=256 --template small,memory=64");
	ck_assert_uint_eq(o->template_count, 4);
	ck_assert_str_eq(o->templates[0].name, "base");
	ck_assert_str_eq(o->templates[1].name, "empty");
	ck_assert_ptr_null(o->templates[1].dir);
	ck_assert_str_eq(o->templates[2].name, "web");
	ck_assert_str_eq(o->templates[2].dir, "/srv/web");
	ck_assert(o->templates[2].memory_mb == 256 && o->templates[2].cpus == 0.5);
	ck_assert_str_eq(o->templates[3].name, "small");
	ck_assert(!o->templates[3].dir && o->templates[3].memory_mb == 64 && o->templates[3].cpus == -1);
}
END_TEST

START_TEST(a_template_given_again_takes_the_place_of_the_first)
{
	must_load("--template base=/srv,memory=100 --template a --template a=/x");
	ck_assert_uint_eq(o->template_count, 2);
	ck_assert_str_eq(o->templates[0].dir, "/srv");
	ck_assert_int_eq(o->templates[0].memory_mb, 100);
	ck_assert_str_eq(o->templates[1].dir, "/x");
}
END_TEST

START_TEST(templates_have_an_end)
{
	char line[2048] = "";
	for (int i = 1; i < OPTIONS_TEMPLATES; i++)
		snprintf(line + strlen(line), sizeof line - strlen(line), " --template t%d", i);
	must_load(line);
	ck_assert_uint_eq(o->template_count, OPTIONS_TEMPLATES);
	snprintf(line + strlen(line), sizeof line - strlen(line), " --template more=/x");
	ck_assert(!load(line));
	ck_assert_str_eq(printed(err_fd), "celld-gateway: --template: \"more\" is not one of the first 31 templates\n");
}
END_TEST

START_TEST(the_last_of_an_option_counts)
{
	must_load("--pool 3 --verbose --pool=4");
	ck_assert_uint_eq(o->pool, 4);
	ck_assert(o->verbose);
}
END_TEST

START_TEST(commands_need_no_daemon)
{
	char *argv[] = {words, words + 100, words + 200, words + 300, NULL};
	snprintf(argv[1], 100, "%s", _i ? "list" : "reclaim");
	snprintf(argv[2], 100, "--url");
	snprintf(argv[3], 100, "http://127.0.0.1:3001");
	ck_assert(options_load(o, 4, argv, &status));
	ck_assert_str_eq(o->command, _i ? "list" : "reclaim");
	ck_assert_str_eq(o->url, "http://127.0.0.1:3001");
	ck_assert_ptr_null(o->celld);
}
END_TEST

// The test program has no celld beside it under that name, or one that can be run: both are told apart.
START_TEST(the_daemon_is_looked_for_beside_the_program)
{
	char own[PATH_MAX] = "";
	char *argv[] = {words, NULL};
	ck_assert_int_gt((int)readlink("/proc/self/exe", own, sizeof own - 8), 0);
	snprintf(strrchr(own, '/'), 8, "/celld");
	bool there = access(own, X_OK) == 0, run = options_load(o, 1, argv, &status);
	const char *text = printed(err_fd);
	ck_assert_int_eq(run, there);
	if (there)
		ck_assert_str_eq(o->celld, own);
	else
		ck_assert_ptr_nonnull(strstr(text, own));
}
END_TEST

START_TEST(help_and_version)
{
	ck_assert(!load("--pool 3 --version"));
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(strncmp(printed(out_fd), "celld-gateway ", sizeof "celld-gateway " - 1), 0);
	ck_assert(!load("--help"));
	ck_assert_int_eq(status, 0);
	const char *text = printed(out_fd);
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		char name[64];
		snprintf(name, sizeof name, "--%s ", good[i].name);
		ck_assert_msg(strstr(text, name) != NULL, "no %s", name);
	}
}
END_TEST

Suite *gateway_options_suite(void)
{
	Suite *s = suite_create("gateway_options");
	TCase *t = tcase_create("gateway_options");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, defaults);
	tcase_add_loop_test(t, each_option, 0, sizeof good / sizeof *good);
	tcase_add_loop_test(t, a_bad_word_is_named, 0, sizeof bad / sizeof *bad);
	tcase_add_test(t, templates);
	tcase_add_test(t, a_template_given_again_takes_the_place_of_the_first);
	tcase_add_test(t, templates_have_an_end);
	tcase_add_test(t, the_last_of_an_option_counts);
	tcase_add_loop_test(t, commands_need_no_daemon, 0, 2);
	tcase_add_test(t, the_daemon_is_looked_for_beside_the_program);
	tcase_add_test(t, help_and_version);
	suite_add_tcase(s, t);
	return s;
}
