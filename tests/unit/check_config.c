// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1
#include "configkit.h"
#include "daemon/config_value.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct configkit k;

static void setup(void)
{
	configkit_init(&k);
}

enum type { TEXT, LIST, LIMITS, SECONDS, INT64, SIZE, WORD, BOOL };

// Each option's field read back as text (a list's items with a blank between): by default, and for VALUE>TEXT.
#define ONE(f) offsetof(struct config, f), 0
#define MORE(f) offsetof(struct config, f), offsetof(struct config, f##_count)
static const struct good {
	const char *name;
	enum type type;
	size_t field, count;
	const char *init, *pairs;
} good[] = {
	{"listen", LIST, MORE(listen), "[::]:2024",
		"127.0.0.1:1>127.0.0.1:1 [::1]:65535>[::1]:65535 unix:/run/a>unix:/run/a fd:3>fd:3 off>"},
	{"envd-listen", LIST, MORE(envd_listen), "[::]:49983", "0.0.0.0:0>0.0.0.0:0 off>"},
	{"pass-env", LIST, MORE(pass_env), "", "LANG>LANG"},
	{"workspace", TEXT, ONE(workspace), "/workspace", "/w>/w"},
	{"user", TEXT, ONE(user), "root", "1000>1000"},
	{"token", TEXT, ONE(token), "(none)", "s3cret>s3cret"},
	{"token-empty", BOOL, ONE(token_optional), "0", "none>1 refuse>0"},
	{"timeout", SECONDS, ONE(timeout), "30.000", "0>0.000 0.25>0.250 .5>0.500 7.>7.000 31536000>31536000.000"},
	{"grace", INT64, ONE(grace_ms), "200", "0>0 600000>600000"},
	{"retention", INT64, ONE(retention_ms), "60000", "1.5>1500 0.0004>0"},
	{"replay", SIZE, ONE(replay), "65536", "0>0 1k>1024 1G>1073741824"},
	{"stop-grace", INT64, ONE(stop_grace_ms), "1500", "007>7"},
	{"max-body", SIZE, ONE(max_body), "67108864", "1024>1024 64G>68719476736"},
	{"max-header", SIZE, ONE(max_header), "65536", "16M>16777216"},
	{"max-conns", SIZE, ONE(max_conns), "4096", "1>1"},
	{"max-procs", SIZE, ONE(max_procs), "4096", "1000000>1000000"},
	{"header-timeout", SECONDS, ONE(header_timeout), "20.000", "0.01>0.010"},
	{"idle-timeout", SECONDS, ONE(idle_timeout), "640.000", "2.5>2.500"},
	{"send-timeout", SECONDS, ONE(send_timeout), "60.000", "3>3.000"},
	{"venv", BOOL, ONE(venv), "1", "off>0 auto>1"},
	{"allow-origin", LIST, MORE(allow_origin), "",
		"*>* https://a.example>https://a.example http://[::1]:80>http://[::1]:80 "
		"tauri://localhost>tauri://localhost"},
	{"confine", WORD, ONE(confine), "0", "on>1 require>2 off>0"},
	{"writable", LIST, MORE(writable), "", "/w>/w />/"},
	{"read-only", LIST, MORE(readable), "", "/usr>/usr"},
	{"keep-cap", LIST, MORE(keep_caps), "", "chown>chown CAP_KILL>CAP_KILL none>none"},
	{"allow-syscall", LIST, MORE(allow_calls), "", "bpf>bpf io_uring_setup>io_uring_setup"},
	{"rlimit", LIMITS, ONE(limits), "",
		"nofile=1024>7:1024:1024 core=0:unlimited>4:0:-1 as=1G:2G>9:1073741824:2147483648"},
	{"cgroup", TEXT, ONE(cgroup), "auto", "on>on off>off auto>auto /sys/fs/cgroup/c>/sys/fs/cgroup/c"},
	{"log-level", WORD, ONE(log_level), "2", "error>0 warn>1 info>2 debug>3"},
	{"log-format", BOOL, ONE(log_json), "0", "json>1 text>0"},
};

static const char *got(const struct good *g)
{
	static char text[1024];
	const void *p = (const char *)k.c + g->field;
	const char *const *list = p;
	const size_t *count = (const void *)((const char *)k.c + g->count);
	size_t n = 0;
	text[0] = '\0';
	for (size_t i = 0; g->type == LIST && i < *count; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "", list[i]);
	for (int i = 0; g->type == LIMITS && i < LIMITS_COUNT; i++) {
		const struct limits *l = p;
		if (l->set & 1u << i)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%d:%lld:%lld", n ? " " : "", i,
				(long long)l->value[i].rlim_cur, (long long)l->value[i].rlim_max);
	}
	if (g->type == TEXT)
		snprintf(text, sizeof(text), "%s", *list ? *list : "(none)");
	else if (g->type == SECONDS)
		snprintf(text, sizeof(text), "%.3f", *(const double *)p);
	else if (g->type == INT64)
		snprintf(text, sizeof(text), "%lld", (long long)*(const int64_t *)p);
	else if (g->type == SIZE)
		snprintf(text, sizeof(text), "%zu", *(const size_t *)p);
	else if (g->type == WORD)
		snprintf(text, sizeof(text), "%d", (int)*(const enum log_level *)p);
	else if (g->type == BOOL)
		snprintf(text, sizeof(text), "%d", *(const bool *)p);
	return text;
}

START_TEST(defaults)
{
	configkit_must_load(&k, "");
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ck_assert_str_eq(got(&good[i]), good[i].init);
	ck_assert(k.c->listen_default && k.c->envd_listen_default);
	ck_assert_int_eq(k.c->init, CONFIG_INIT_AUTO);
	ck_assert_ptr_null(k.c->token_file);
	char *none[] = {NULL}; // not even a name of its own
	ck_assert_int_eq(config_load(k.c, 0, none, &k.status), CONFIG_RUN);
}
END_TEST

static void accept_value(const struct good *g, const char *value, const char *want)
{
	char line[128];
	for (int with_equals = 0; with_equals < 2; with_equals++) {
		snprintf(line, sizeof(line), "--%s%c%s", g->name, with_equals ? '=' : ' ', value);
		configkit_must_load(&k, line);
		ck_assert_str_eq(got(g), want);
	}
	setenv(configkit_variable(g->name), value, 1);
	configkit_must_load(&k, "");
	ck_assert_str_eq(got(g), want);
	// The option wins, even over a variable that makes no sense.
	setenv(configkit_variable(g->name), "=", 1);
	configkit_must_load(&k, line);
	ck_assert_str_eq(got(g), want);
	unsetenv(configkit_variable(g->name));
}

START_TEST(each_option_and_its_variable)
{
	char pairs[256];
	snprintf(pairs, sizeof(pairs), "%s", good[_i].pairs);
	for (char *save, *p = strtok_r(pairs, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
		char *want = strchr(p, '>');
		*want++ = '\0';
		accept_value(&good[_i], p, want);
	}
}
END_TEST

START_TEST(lists)
{
	configkit_must_load(&k, "--listen 127.0.0.1:1 --listen fd:3 --pass-env A --pass-env=B");
	ck_assert_str_eq(got(&good[0]), "127.0.0.1:1 fd:3");
	ck_assert_str_eq(got(&good[2]), "A B");
	ck_assert(!k.c->listen_default && k.c->envd_listen_default);
	configkit_must_load(&k, "--listen 127.0.0.1:1 --listen off");
	ck_assert_uint_eq(k.c->listen_count, 0);
	ck_assert(!k.c->listen_default);
	configkit_must_load(&k, "--listen off --listen fd:3");
	ck_assert_str_eq(got(&good[0]), "fd:3");
	setenv("CELLD_LISTEN", "[::1]:0,unix:/a", 1);
	setenv("CELLD_ENVD_LISTEN", "fd:3,off", 1);
	setenv("CELLD_PASS_ENV", "A,B_C", 1);
	configkit_must_load(&k, "");
	ck_assert_str_eq(got(&good[0]), "[::1]:0 unix:/a");
	ck_assert_uint_eq(k.c->envd_listen_count, 0);
	ck_assert_str_eq(got(&good[2]), "A B_C");
	ck_assert(!k.c->listen_default && !k.c->envd_listen_default);
	ck_assert_str_eq(getenv("CELLD_LISTEN"), "[::1]:0,unix:/a");
	configkit_must_load(&k, "--listen fd:4");
	ck_assert_str_eq(got(&good[0]), "fd:4");
	setenv("CELLD_PASS_ENV", "", 1);
	configkit_must_load(&k, "");
	ck_assert_uint_eq(k.c->pass_env_count, 0);
}
END_TEST

START_TEST(limits_add_up)
{
	const struct good *limits = good;
	while (limits->type != LIMITS)
		limits++;
	configkit_must_load(&k, "--rlimit nofile=64 --rlimit nproc=9:10 --rlimit=nofile=32:unlimited");
	ck_assert_str_eq(got(limits), "6:9:10 7:32:-1");
	setenv("CELLD_RLIMIT", "core=0,cpu=5", 1);
	configkit_must_load(&k, "");
	ck_assert_str_eq(got(limits), "0:5:5 4:0:0");
	configkit_must_load(&k, "--rlimit nproc=1"); // in the variable's place, not beside it
	ck_assert_str_eq(got(limits), "6:1:1");
	setenv("CELLD_RLIMIT", "", 1);
	configkit_must_load(&k, "");
	ck_assert_str_eq(got(limits), "");
}
END_TEST

START_TEST(dumpable_is_asked_for)
{
	static const struct {
		const char *var, *line;
		bool want;
	} cases[] = {{NULL, "", false}, {NULL, "--dumpable", true}, {"yes", "", true}, {"1", "", true},
		{"no", "", false}, {"0", "", false}, {"no", "--dumpable", true}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsetenv("CELLD_DUMPABLE");
		if (cases[i].var)
			setenv("CELLD_DUMPABLE", cases[i].var, 1);
		configkit_must_load(&k, cases[i].line);
		ck_assert_int_eq(k.c->dumpable, cases[i].want);
	}
	setenv("CELLD_DUMPABLE", "auto", 1);
	configkit_must_refuse(&k, "", 2, "celld: CELLD_DUMPABLE: \"auto\" is not one of yes, no, 1, 0\n");
}
END_TEST

START_TEST(lists_have_an_end)
{
	char line[2048] = "", want[128];
	size_t n = 0;
	for (int i = 0; i < CONFIG_PASS_MAX; i++)
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%sV%d", i ? "," : "", i);
	setenv("CELLD_PASS_ENV", line, 1);
	configkit_must_load(&k, "");
	ck_assert_uint_eq(k.c->pass_env_count, CONFIG_PASS_MAX);
	snprintf(line + n, sizeof(line) - n, ",ONE_MORE");
	setenv("CELLD_PASS_ENV", line, 1);
	snprintf(want, sizeof(want), "celld: CELLD_PASS_ENV: more than %d values\n", CONFIG_PASS_MAX);
	configkit_must_refuse(&k, "", 2, want);
}
END_TEST

#define ADDRESS "ADDR:PORT, unix:PATH, fd:N or off"
#define YEAR "a number of seconds (0 to 31536000)"
#define YEAR_NOT_0 "a number of seconds (0.01 to 31536000)"
#define MILLIS "a number of milliseconds (0 to 600000)"
#define MILLION "a number (1 to 1000000)"
#define BYTES(range) "a size in bytes (" range "; K, M and G may follow the number)"

// Values with a blank between them; the empty one is tried where it is wrong.
static const struct bad {
	const char *name, *values, *wants;
	bool empty;
} bad[] = {
	{"listen", "2024 :2024 127.0.0.1: 127.0.0.1:65536 127.0.0.1:-1 ::1:2024 []:1 [::1:1 unix: fd: fd:-1 fd:3x",
		ADDRESS, true},
	{"envd-listen", "OFF none", ADDRESS, true},
	{"workspace", "work/space ./w", "an absolute path", true},
	{"user", "", "a value", true},
	{"token-file", "", "a value", true},
	{"token-empty", "yes", "one of refuse, none", true},
	{"timeout", "x -1 +1 . 1.2.3 1e3 0x10 inf nan 31536000.001 5s", YEAR, true},
	{"retention", "31536001 -0.5", YEAR, true},
	{"header-timeout", "0 0.001", YEAR_NOT_0, true},
	{"idle-timeout", "0.009", YEAR_NOT_0, true},
	{"send-timeout", "x", YEAR_NOT_0, true},
	{"grace", "x 1.5 -1 600001 18446744073709551617", MILLIS, true},
	{"stop-grace", "1K 0x1", MILLIS, true},
	{"replay", "2G K 1KB 1T -1 9999999999999999999G", BYTES("0 to 1073741824"), true},
	{"max-body", "1023 65G", BYTES("1024 to 68719476736"), true},
	{"max-header", "17M 0", BYTES("1024 to 16777216"), true},
	{"max-conns", "0 1K", MILLION, true},
	{"max-procs", "1000001", MILLION, true},
	{"pass-env", "A=B =", "the name of a variable", false},
	{"venv", "on", "one of auto, off", true},
	{"allow-origin",
		"a.example https:// https://a/ https://a?b https://a#b https://u@a null //a :// ** https://a\\",
		"an origin (https://HOST or https://HOST:PORT) or *", false},
	{"confine", "yes", "one of off, on, require", true},
	{"writable", "w ./w", "an absolute path", false},
	{"read-only", "~", "an absolute path", false},
	{"keep-cap", "a-b cap:x", "the name of a capability", false},
	{"allow-syscall", "a.b -1", "the name of a system call", false},
	{"rlimit", "nofile nofile= =1 nofile=x nofile=2:1 nofiles=1 nofile=1:2:3 nofile=-1 NOFILE=1",
		"NAME=SOFT or NAME=SOFT:HARD (a limit of prlimit's; numbers, or unlimited)", false},
	{"cgroup", "yes sys/fs", "auto, on, off or an absolute path", true},
	{"log-level", "INFO", "one of error, warn, info, debug", true},
	{"log-format", "xml", "one of text, json", true},
};

static void refuse_value(const struct bad *b, const char *value)
{
	char line[256], want[512];
	snprintf(line, sizeof(line), "--%s=%s", b->name, value);
	snprintf(want, sizeof(want), "celld: --%s: \"%s\" is not %s\n", b->name, value, b->wants);
	configkit_must_refuse(&k, line, 2, want);
	setenv(configkit_variable(b->name), value, 1);
	snprintf(want, sizeof(want), "celld: %s: \"%s\" is not %s\n", configkit_variable(b->name), value, b->wants);
	configkit_must_refuse(&k, "", 2, want);
	unsetenv(configkit_variable(b->name));
}

START_TEST(a_bad_value_is_named)
{
	char values[256];
	snprintf(values, sizeof(values), "%s", bad[_i].values);
	for (char *save, *v = strtok_r(values, " ", &save); v; v = strtok_r(NULL, " ", &save))
		refuse_value(&bad[_i], v);
	if (bad[_i].empty)
		refuse_value(&bad[_i], "");
}
END_TEST

START_TEST(a_bad_item_spoils_its_list)
{
	static const char *const bad_lists[] = {"fd:3,", ",fd:3", "fd:3,,fd:4", "fd:3,x", ","};
	char want[128];
	setenv("CELLD_LISTEN", bad_lists[_i], 1);
	snprintf(want, sizeof(want), "celld: CELLD_LISTEN: \"%s\" is not " ADDRESS "\n", bad_lists[_i]);
	configkit_must_refuse(&k, "", 2, want);
	setenv("CELLD_LISTEN", "off", 1);
	setenv("CELLD_PASS_ENV", "A,", 1);
	configkit_must_refuse(&k, "", 2, "celld: CELLD_PASS_ENV: \"A,\" is not the name of a variable\n");
}
END_TEST

START_TEST(an_error_is_one_line)
{
	char value[2048];
	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	memcpy(value, "\n\x1b[31m", 6);
	setenv("CELLD_GRACE", value, 1);
	ck_assert_int_eq(configkit_load(&k, ""), CONFIG_EXIT);
	const char *line = configkit_printed(k.err_fd);
	ck_assert(strncmp(line, "celld: CELLD_GRACE: \"??[31mvvv", 30) == 0);
	ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
	ck_assert_uint_lt(strlen(line), 256);
	ck_assert_ptr_nonnull(strstr(line, "milliseconds"));
}
END_TEST

static const struct {
	const char *line, *message;
} misuse[] = {
	{"--bogus", "celld: --bogus: unknown option (see celld --help)\n"},
	{"--bogus=secret", "celld: --bogus: unknown option (see celld --help)\n"},
	{"--t 1", "celld: --t: unknown option (see celld --help)\n"}, // short for several
	{"-x", "celld: -x: unknown option (see celld --help)\n"},
	{"-xy", "celld: -x: unknown option (see celld --help)\n"},
	{"--grace", "celld: --grace: a value is missing\n"},
	{"--grace 1 --token", "celld: --token: a value is missing\n"},
	{"--init=yes", "celld: --init: takes no value\n"},
	{"--help=x", "celld: --help: takes no value\n"},
	{"run", "celld: \"run\": unexpected argument (see celld --help)\n"},
	{"--grace 1 run --bogus", "celld: \"run\": unexpected argument (see celld --help)\n"},
	{"-- --grace", "celld: \"--grace\": unexpected argument (see celld --help)\n"},
	{"-", "celld: \"-\": unexpected argument (see celld --help)\n"},
	{"''", "celld: \"\": unexpected argument (see celld --help)\n"},
};

START_TEST(misuse_is_status_2)
{
	configkit_must_refuse(&k, misuse[_i].line, 2, misuse[_i].message);
}
END_TEST

START_TEST(init_yes_no_auto)
{
	static const struct {
		const char *var, *line;
		enum config_init want;
	} cases[] = {{NULL, "--init", CONFIG_INIT_YES}, {NULL, "--no-init", CONFIG_INIT_NO},
		{NULL, "--init --no-init", CONFIG_INIT_NO}, {NULL, "--no-init --init", CONFIG_INIT_YES},
		{"yes", "", CONFIG_INIT_YES}, {"1", "", CONFIG_INIT_YES}, {"no", "", CONFIG_INIT_NO},
		{"0", "", CONFIG_INIT_NO}, {"auto", "", CONFIG_INIT_AUTO}, {"yes", "--no-init", CONFIG_INIT_NO},
		{"no", "--init", CONFIG_INIT_YES}, {"bad", "--no-init", CONFIG_INIT_NO}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsetenv("CELLD_INIT");
		if (cases[i].var)
			setenv("CELLD_INIT", cases[i].var, 1);
		configkit_must_load(&k, cases[i].line);
		ck_assert_int_eq(k.c->init, cases[i].want);
	}
	setenv("CELLD_INIT", "maybe", 1);
	configkit_must_refuse(&k, "", 2, "celld: CELLD_INIT: \"maybe\" is not one of auto, yes, no, 1, 0\n");
}
END_TEST

START_TEST(variables_of_others_do_not_matter)
{
	setenv("CELLD_PORT", "tcp://10.0.0.1:2024", 1); // what Kubernetes sets for a service of that name
	setenv("CELLD_SERVICE_HOST", "10.0.0.1", 1);
	setenv("CELLD_HELP", "1", 1);
	setenv("CELLD_NO_INIT", "1", 1);
	configkit_must_load(&k, "");
	ck_assert_int_eq(k.c->init, CONFIG_INIT_AUTO);
}
END_TEST

// Every option with its default and its variable, on stdout.
START_TEST(help_and_version)
{
	ck_assert_int_eq(configkit_load(&k, "--grace 5 --version --bogus"), CONFIG_EXIT);
	ck_assert_int_eq(k.status, 0);
	ck_assert_str_eq(configkit_printed(k.out_fd), "celld 0.1.0\n");
	ck_assert_int_eq(configkit_load(&k, "--help"), CONFIG_EXIT);
	ck_assert_int_eq(k.status, 0);
	ck_assert_str_eq(configkit_printed(k.err_fd), "");
	const char *help = configkit_printed(k.out_fd);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		char want[80];
		snprintf(want, sizeof(want), "\n  --%s ", good[i].name);
		const char *at = strstr(help, want);
		ck_assert_msg(at, "no line for --%s", good[i].name);
		snprintf(want, sizeof(want), "(%s)\n", configkit_variable(good[i].name));
		const char *var = strstr(at, want);
		ck_assert_msg(var && var < strchr(at + 1, '\n'), "no variable for --%s", good[i].name);
	}
	static const char *const others[] = {"--init ", "--no-init ", "--token-file FILE", "--help ", "--version ",
		"[30]", "[[::]:49983]", "[64M]", "CELLD_INIT", "--dumpable ", "CELLD_DUMPABLE", "\nconnections:\n"};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_msg(strstr(help, others[i]), "no %s", others[i]);
}
END_TEST

START_TEST(help_that_cannot_be_written_is_a_failure)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(dup2(full, STDOUT_FILENO), STDOUT_FILENO);
	ck_assert_int_eq(configkit_load(&k, _i ? "--help" : "--version"), CONFIG_EXIT);
	ck_assert_int_eq(k.status, 1);
}
END_TEST

// Loads, and frees what belongs to the process otherwise. The lists come from variables: they are copies.
static int run_oom(void *arg)
{
	(void)arg;
	static char env[32];
	snprintf(env, sizeof(env), "CELLD_TOKEN=abc");
	putenv(env);
	enum config_action action = config_load(k.c, k.argc, k.args, &k.status);
	if (!k.c->envd_listen_default)
		for (size_t i = 0; i < k.c->envd_listen_count; i++)
			free((char *)k.c->envd_listen[i]);
	for (size_t i = 0; i < k.c->writable_count; i++)
		free((char *)k.c->writable[i]);
	for (size_t i = 0; i < k.c->pass_env_count; i++)
		free((char *)k.c->pass_env[i]);
	free((char *)k.c->token);
	return action == CONFIG_RUN ? 0 : k.status == 1 ? -ENOMEM : 1;
}

START_TEST(every_allocation_may_fail)
{
	setenv("CELLD_ENVD_LISTEN", "fd:3,off,fd:4,fd:5", 1);
	setenv("CELLD_PASS_ENV", "A,B,C", 1);
	setenv("CELLD_WRITABLE", "/a,/b", 1);
	setenv("CELLD_RLIMIT", "nofile=64,nproc=9", 1);
	configkit_args(&k, "--grace 1");
	OOM_LOOP(run_oom, NULL);
	ck_assert_ptr_nonnull(strstr(configkit_printed(k.err_fd), "celld: CELLD_TOKEN: out of memory\n"));
}
END_TEST

Suite *config_suite(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("config");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, defaults);
	tcase_add_loop_test(t, each_option_and_its_variable, 0, sizeof(good) / sizeof(good[0]));
	tcase_add_test(t, lists);
	tcase_add_test(t, limits_add_up);
	tcase_add_test(t, dumpable_is_asked_for);
	tcase_add_test(t, lists_have_an_end);
	tcase_add_loop_test(t, a_bad_value_is_named, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_loop_test(t, a_bad_item_spoils_its_list, 0, 5);
	tcase_add_test(t, an_error_is_one_line);
	tcase_add_loop_test(t, misuse_is_status_2, 0, sizeof(misuse) / sizeof(misuse[0]));
	tcase_add_test(t, init_yes_no_auto);
	tcase_add_test(t, variables_of_others_do_not_matter);
	tcase_add_test(t, help_and_version);
	tcase_add_loop_test(t, help_that_cannot_be_written_is_a_failure, 0, 2);
	tcase_add_test(t, every_allocation_may_fail);
	suite_add_tcase(s, t);
	return s;
}
