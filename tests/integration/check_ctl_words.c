// SPDX-License-Identifier: Apache-2.0
// celld ctl: help, what is not understood, completion, and that the manual page leaves nothing out.
#include "tests/integration/ctlkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE "daemon/celld.8"

static const char *const commands[] = {"exec", "ps", "attach", "kill", "cp", "ls", "watch", "ready", "completion"};
#define COMMANDS ((int)(sizeof commands / sizeof *commands))

// What COMMAND of a shell prints on stdout and stderr, with *STATUS as system has it.
static void shell(const char *command, struct buf *out, int *status)
{
	char part[4096];
	size_t n;
	FILE *f = popen(command, "re");
	ck_assert_ptr_nonnull(f);
	while ((n = fread(part, 1, sizeof part, f)) > 0)
		buf_append(out, part, n);
	*status = pclose(f);
}

static bool there_is(const char *program)
{
	char command[64];
	(void)snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
	return system(command) == 0;
}

START_TEST(help_is_whole)
{
	struct ctlrun c;
	char line[64];
	ctl_ok(NULL, &c, "--help");
	for (int i = 0; i < COMMANDS; i++) {
		(void)snprintf(line, sizeof line, "\n  %s ", commands[i]);
		ctl_assert_has(ctl_out(&c), line);
	}
	ctl_release(&c);
	for (int i = 0; i < COMMANDS; i++) {
		struct ctlrun same;
		(void)snprintf(line, sizeof line, "celld ctl %s: ", commands[i]);
		ctl_ok(NULL, &c, commands[i], "--help");
		ck_assert_int_eq(strncmp(ctl_out(&c), line, strlen(line)), 0);
		ctl_assert_has(ctl_out(&c), "  -h, --help ");
		ctl_ok(NULL, &same, "help", commands[i]);
		ck_assert_str_eq(ctl_out(&same), ctl_out(&c));
		ctl_release(&same);
		ctl_release(&c);
	}
}
END_TEST

static const struct {
	const char *words[4], *says;
} misused[] = {
	{{NULL}, "celld ctl: a command is missing\ntry: celld ctl --help\n"},
	{{"fly"}, "celld ctl: \"fly\" is no command\n"},
	{{"--fly"}, "celld ctl: --fly: unknown option\n"},
	{{"ps", "--fly=1"}, "celld ctl ps: --fly: unknown option\ntry: celld ctl ps --help\n"},
	{{"ps", "-ax"}, "celld ctl ps: -x: unknown option\n"},
	{{"ps", "--tty"}, "celld ctl ps: --tty: unknown option\n"},
	{{"ps", "--json=1"}, "celld ctl ps: --json: takes no value\n"},
	{{"ps", "--url"}, "celld ctl ps: --url: a value is missing\n"},
	{{"kill", "-s"}, "celld ctl kill: -s: a value is missing\n"},
	{{"exec"}, "celld ctl exec: [--] COMMAND [ARG]... is missing\n"},
	{{"cp", "a"}, "celld ctl cp: SRC DST is missing\n"},
	{{"ps", "1"}, "celld ctl ps: \"1\" is too much\n"},
	{{"ready", "--wait", "-1"}, "celld ctl ready: --wait: \"-1\" is no time"},
	{{"completion", "fish"}, "celld ctl completion: \"fish\" is neither bash nor zsh\n"},
	{{"exec", "-e\033[2J"}, "is missing"},
};

START_TEST(what_is_not_understood_is_named)
{
	struct ctlrun c;
	ck_assert_int_eq(ctl_run_env(&c, NULL, NULL, misused[_i].words), 2);
	ctl_assert_has(ctl_err(&c), misused[_i].says);
	ck_assert_str_eq(ctl_out(&c), "");
	ctl_release(&c);
}
END_TEST

// --- completion ---

static void completion(const char *shell_name, char path[64])
{
	struct ctlrun c;
	(void)snprintf(path, 64, "/tmp/celld-it-comp-XXXXXX");
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ctl_ok(NULL, &c, "completion", shell_name);
	ck_assert_int_eq(write(fd, buf_data(&c.said[0]), buf_len(&c.said[0])), (ssize_t)buf_len(&c.said[0]));
	(void)close(fd);
	ctl_release(&c);
}

// What bash offers for the words LINE, the last of them begun.
static void offered(const char *script, const char *line, struct buf *out)
{
	char command[1024];
	int status;
	buf_reset(out);
	(void)snprintf(command, sizeof command,
		"bash -c 'set -u; . %s; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _celld; echo "
		"\"${COMPREPLY[*]}\"' "
		"2>&1",
		script, line);
	shell(command, out, &status);
	ck_assert_msg(status == 0, "%s: %s", line, buf_cstr(out));
}

static const struct {
	const char *line, *offers;
} completed[] = {
	{"celld c", "ctl\n"}, {"celld --envd", "--envd-listen\n"}, {"celld --listen x --env", "--envd-listen\n"},
	{"celld ctl e", "exec\n"}, {"celld ctl help comp", "completion\n"}, {"celld ctl --u", "--url\n"},
	{"celld ctl --url http://x k", "kill\n"}, {"celld ctl exec --t", "--tty --timeout --token-file\n"},
	{"celld ctl ready --w", "--wait\n"}, {"celld ctl kill -s KI", "KILL\n"}, {"celld ctl completion z", "zsh\n"},
	{"celld ctl cp fi", "\n"}, // files: the shell's own
};

START_TEST(bash_completes)
{
	char script[64], command[256];
	struct buf out = {0};
	int status;
	completion("bash", script);
	(void)snprintf(command, sizeof command, "bash -n %s && bash -c '. %s; complete -p celld'", script, script);
	shell(command, &out, &status);
	ck_assert_int_eq(status, 0);
	ck_assert_str_eq(buf_cstr(&out), "complete -o default -F _celld celld\n");
	for (size_t i = 0; i < sizeof completed / sizeof *completed; i++) {
		offered(script, completed[i].line, &out);
		ck_assert_msg(
			strcmp(buf_cstr(&out), completed[i].offers) == 0, "%s: %s", completed[i].line, buf_cstr(&out));
	}
	buf_release(&out);
	(void)unlink(script);
}
END_TEST

START_TEST(bash_knows_what_runs)
{
	char script[64], line[600], want[32];
	struct buf out = {0};
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "exec sleep 60");
	completion("bash", script);
	(void)snprintf(want, sizeof want, "%lld\n", (long long)sse_pid(s));
	(void)snprintf(line, sizeof line, "http://%s:%d", d->host, d->port);
	(void)setenv("CELLD_URL", line, 1);
	(void)snprintf(line, sizeof line, "\"%s\" ctl kill \"\"", ctl_binary());
	offered(script, line, &out);
	ck_assert_str_eq(buf_cstr(&out), want);
	(void)unlink(script);
	buf_release(&out);
	sse_close(s);
	struct ctlrun c;
	want[strlen(want) - 1] = '\0';
	ctl_ok(d, &c, "kill", want);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(zsh_reads_its_script)
{
	char script[64], command[256];
	struct buf out = {0};
	int status = 0;
	completion("zsh", script);
	// Without the shell here: as much as can be seen.
	(void)snprintf(command, sizeof command, there_is("zsh") ? "zsh -n %s 2>&1" : "head -n 0 %s", script);
	shell(command, &out, &status);
	ck_assert_msg(status == 0 && buf_len(&out) == 0, "%s", buf_cstr(&out));
	(void)snprintf(command, sizeof command, "head -n 1 %s; grep -c \"^\t(exec) options=\" %s", script, script);
	shell(command, &out, &status);
	ck_assert_str_eq(buf_cstr(&out), "#compdef celld\n1\n");
	buf_release(&out);
	(void)unlink(script);
}
END_TEST

// --- the manual page ---

// Its source without backslashes and font changes: "\-\-url" is "--url".
static void page(struct buf *out)
{
	int c, fd = open(PAGE, O_RDONLY | O_CLOEXEC);
	ck_assert_msg(fd >= 0, PAGE);
	FILE *f = fdopen(fd, "r");
	ck_assert_ptr_nonnull(f);
	while ((c = getc(f)) != EOF) {
		if (c != '\\') {
			buf_byte(out, (unsigned char)c);
			continue;
		}
		c = getc(f);
		if (c == 'f')
			(void)getc(f);
		else if (c != EOF && c != '(')
			buf_byte(out, (unsigned char)c);
	}
	(void)fclose(f);
}

// True if WORD stands in TEXT with neither letter nor dash beside it.
static bool stands_in(const char *text, const char *end, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = text; (p = strstr(p, word)) && p < end; p++) {
		unsigned char before = p > text ? (unsigned char)p[-1] : ' ', after = (unsigned char)p[n];
		if (!isalnum(before) && before != '-' && before != '_' && !isalnum(after) && after != '-' &&
			after != '_')
			return true;
	}
	return false;
}

// Every --option that HELP has has to be in the page between FROM and END.
static void assert_options(const char *help, const char *from, const char *end, const char *what)
{
	char word[64];
	int count = 0;
	for (const char *p = help; (p = strstr(p, "--")); p += 2) {
		size_t n = 2 + strspn(p + 2, "abcdefghijklmnopqrstuvwxyz-");
		if (n < 4 || (p > help && (isalnum((unsigned char)p[-1]) || p[-1] == '-')))
			continue;
		(void)snprintf(word, sizeof word, "%.*s", (int)n, p);
		ck_assert_msg(stands_in(from, end, word), PAGE ": %s of %s is missing", word, what);
		count++;
	}
	ck_assert_int_ge(count, 1);
}

START_TEST(manual_has_every_option)
{
	struct buf text = {0}, help = {0};
	char command[600], heading[64];
	struct ctlrun c;
	int status;
	page(&text);
	const char *all = buf_cstr(&text), *ctl = strstr(all, ".SH CTL");
	ck_assert_ptr_nonnull(ctl);
	(void)snprintf(command, sizeof command, "'%s' --help", ctl_binary());
	shell(command, &help, &status);
	ck_assert_int_eq(status, 0);
	assert_options(buf_cstr(&help), all, ctl, "celld");
	for (const char *p = buf_cstr(&help); (p = strstr(p, "(CELLD_")); p++) {
		(void)snprintf(heading, sizeof heading, "%.*s", (int)strcspn(p + 1, ")"), p + 1);
		ck_assert_msg(stands_in(strstr(all, ".SH ENVIRONMENT"), all + buf_len(&text), heading),
			PAGE ": %s is missing", heading);
	}
	const char *common = strstr(ctl, ".SS");
	ctl_ok(NULL, &c, "--help");
	assert_options(strstr(ctl_out(&c), "of every command:"), ctl, common, "ctl");
	ctl_release(&c);
	for (int i = 0; i < COMMANDS; i++) {
		(void)snprintf(heading, sizeof heading, ".SS \"celld ctl %s ", commands[i]);
		const char *from = strstr(ctl, heading);
		ck_assert_msg(from, PAGE ": no %s", heading);
		const char *end = strstr(from + 1, "\n.S");
		ctl_ok(NULL, &c, commands[i], "--help");
		char *own = strstr(ctl_out(&c), "\nusage:"), *behind = strstr(ctl_out(&c), "\nof every command:");
		ck_assert(own && behind);
		*behind = '\0';
		own = strstr(own, "\n  ");
		if (own)
			assert_options(own, from, end, commands[i]);
		ctl_release(&c);
	}
	buf_release(&text);
	buf_release(&help);
}
END_TEST

// And names none that is not there.
START_TEST(manual_invents_no_option)
{
	struct buf text = {0}, help = {0};
	char command[900], word[64];
	int status;
	page(&text);
	(void)snprintf(command, sizeof command,
		"'%s' --help; '%s' ctl --help; for c in exec ps attach kill cp ls watch ready completion; do '%s' ctl "
		"$c --help; done",
		ctl_binary(), ctl_binary(), ctl_binary());
	shell(command, &help, &status);
	ck_assert_int_eq(status, 0);
	const char *known = buf_cstr(&help);
	for (const char *p = buf_cstr(&text); (p = strstr(p, "--")); p += 2) {
		size_t n = 2 + strspn(p + 2, "abcdefghijklmnopqrstuvwxyz-");
		(void)snprintf(word, sizeof word, "%.*s", (int)n, p);
		ck_assert_msg(n < 4 || stands_in(known, known + strlen(known), word), PAGE ": there is no %s", word);
	}
	buf_release(&text);
	buf_release(&help);
}
END_TEST

START_TEST(manual_is_clean)
{
	struct buf out = {0};
	int status = 0;
	if (there_is("groff"))
		shell("groff -man -ww -z " PAGE " 2>&1", &out, &status);
	ck_assert_msg(status == 0 && buf_len(&out) == 0, "%s", buf_cstr(&out));
	if (there_is("mandoc"))
		shell("mandoc -Tlint -W warning " PAGE " 2>&1", &out, &status);
	ck_assert_msg(status == 0 && buf_len(&out) == 0, "%s", buf_cstr(&out));
	buf_release(&out);
}
END_TEST

Suite *ctl_words_suite(void)
{
	Suite *s = suite_create("ctl_words");
	TCase *tc = h_tcase(s, "help", 60);
	tcase_add_test(tc, help_is_whole);
	tcase_add_loop_test(tc, what_is_not_understood_is_named, 0, (int)(sizeof misused / sizeof *misused));
	tc = h_tcase(s, "completion", 60);
	tcase_add_test(tc, bash_completes);
	tcase_add_test(tc, bash_knows_what_runs);
	tcase_add_test(tc, zsh_reads_its_script);
	tc = h_tcase(s, "manual", 60);
	tcase_add_test(tc, manual_has_every_option);
	tcase_add_test(tc, manual_invents_no_option);
	tcase_add_test(tc, manual_is_clean);
	return s;
}
