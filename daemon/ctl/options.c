// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/options.h"
#include "daemon/ctl/ctl_priv.h"

#include <stdio.h>
#include <string.h>

#define FIELD(f) offsetof(struct options, f)
#define FLAG(f) NULL, OPTION_FLAG, FIELD(f)
#define TEXT(a, f) a, OPTION_TEXT, FIELD(f)
#define ALL ((2u << COMMANDS) - 1) // and the bit of those that hold for every command
#define IN(c) (1u << COMMAND_##c)
#define JSON_TOO (IN(EXEC) | IN(PS) | IN(ATTACH) | IN(LS) | IN(WATCH) | IN(READY))

// clang-format off
static const struct option_row rows[] = {
	{"stdin", 'i', FLAG(stdin_too), IN(EXEC), "send this input to the command"},
	{"tty", 't', FLAG(tty), IN(EXEC), "in a terminal, with the size and the keys of this one"},
	{"workdir", 'w', TEXT("DIR", workdir), IN(EXEC), "where it runs; the workspace by default"},
	{"env", 'e', "NAME[=VALUE]", OPTION_LIST, FIELD(env), IN(EXEC),
		"variable of the command, without a value the one here; may be repeated"},
	{"timeout", 0, TEXT("TIME", timeout), IN(EXEC), "kill the command after that time (5, 1.5s, 2m); never by default"},
	{"session", 0, TEXT("ID", session), IN(EXEC), "session whose transcript this belongs to"},
	{"all", 'a', FLAG(all), IN(PS), "all processes of the sandbox"},
	{"signal", 's', TEXT("SIG", signal), IN(KILL), "TERM by default; a name or a number"},
	{"no-group", 0, FLAG(no_group), IN(KILL), "to that process alone, not to its group"},
	{"recursive", 'r', FLAG(recursive), IN(CP), "directories with all below them (both sides need tar)"},
	{"recursive", 'r', FLAG(recursive), IN(WATCH), "all below PATH too"},
	{"long", 'l', FLAG(details), IN(LS), "mode, owner, size and time"},
	{"wait", 0, TEXT("TIME", wait), IN(READY), "ask again for that long (5, 1.5s, 500ms, 2m)"},
	{"json", 0, FLAG(json), JSON_TOO, "JSON as the daemon has it"},
	{"quiet", 'q', FLAG(quiet), IN(READY) | IN(WATCH) | IN(CP), "no word about it"},
	{"quiet", 'q', FLAG(quiet), IN(PS), "the numbers of the processes alone"},
	{"url", 0, TEXT("URL", url), ALL, "http://ADDRESS:PORT or unix:/PATH, where the daemon is"},
	{"token-file", 0, TEXT("FILE", token_file), ALL, "file that holds the access token"},
	{"help", 'h', FLAG(help), ALL, "print this and exit"},
};

static const struct command commands[COMMANDS] = {
	[COMMAND_EXEC] = {"exec", "[--] COMMAND [ARG]...", "run a command", .min = 1, .max = -1, .rest = true, .run = ctl_exec,
		.more =
		"Output comes as it is written, stdout and stderr apart, and the exit status is the command's.\n"
		"SIGINT, SIGTERM, SIGHUP and SIGQUIT go to the command's process group. No shell reads the words:\n"
		"for one say `sh -c 'a | b'`. With --json the frames of the stream are printed instead.\n"
		"Exit status: the command's; 128+N if signal N ended it; 124 if its time was up; 125 if it could not\n"
		"be run or the connection was lost; with -t 126 and 127 if the program may not be run or is not there.\n"},
	[COMMAND_PS] = {"ps", "", "list what runs", .run = ctl_ps},
	[COMMAND_ATTACH] = {"attach", "PID", "follow the output of a command", .min = 1, .max = 1, .run = ctl_attach,
		.more =
		"First what is kept of its output, then all that follows; exit status as of `exec`. Ending it does\n"
		"not end the command.\n"},
	[COMMAND_KILL] = {"kill", "PID...", "send a signal", .min = 1, .max = -1, .run = ctl_kill},
	[COMMAND_CP] = {"cp", "SRC DST", "copy to or from the sandbox", .min = 2, .max = 2, .run = ctl_cp,
		.more =
		"`:PATH` or `sandbox:PATH` is in the sandbox (below the workspace if it is not absolute), the other one\n"
		"is here; a directory as DST takes the copy under its name. A file at DST is the old or the new one at\n"
		"every moment; permission bits are kept.\n"},
	[COMMAND_LS] = {"ls", "[PATH]", "list a directory", .max = 1, .run = ctl_ls},
	[COMMAND_WATCH] = {"watch", "PATH", "print changes as they happen", .min = 1, .max = 1, .run = ctl_watch},
	[COMMAND_READY] = {"ready", "", "whether the daemon serves", .run = ctl_ready,
		.more = "Exit status: 0 if it does, 1 if it does not in that time. Needs no token.\n"},
	[COMMAND_COMPLETION] = {"completion", "bash|zsh", "print a script for the shell", .min = 1, .max = 1,
		.run = ctl_completion,
		.more = "bash: eval \"$(celld ctl completion bash)\"     zsh: eval \"$(celld ctl completion zsh)\"\n"},
};
// clang-format on

const struct command *options_command(enum command_id id)
{
	return &commands[id];
}

enum command_id options_find_command(const char *name)
{
	int id = 0;
	while (id < COMMANDS && strcmp(commands[id].name, name) != 0)
		id++;
	return (enum command_id)id;
}

const struct option_row *options_rows(size_t *count)
{
	*count = sizeof rows / sizeof *rows;
	return rows;
}

// --- reading ---

// By its long name (N bytes at NAME) or, if NAME is NULL, its letter.
static const struct option_row *find(unsigned mask, const char *name, size_t n, char letter)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct option_row *r = &rows[i];
		if (!(r->commands & mask))
			continue;
		if (name ? strlen(r->name) == n && memcmp(r->name, name, n) == 0 : r->letter && r->letter == letter)
			return r;
	}
	return NULL;
}

static void put(struct options *o, const struct option_row *r, const char *value)
{
	char *field = (char *)o + r->field;
	if (r->kind == OPTION_FLAG)
		*(bool *)field = true;
	else if (r->kind == OPTION_TEXT)
		*(const char **)field = value;
	else
		o->env[o->env_count++] = value;
}

static int fault(struct option_fault *f, enum option_trouble kind, const char *dashes, const char *name, size_t n)
{
	f->kind = kind;
	(void)snprintf(f->name, sizeof f->name, "%s%.*s", dashes, (int)(n < 48 ? n : 48), name);
	return -1;
}

// --name, --name=value, --name value: the words of ARGV it took, or -1.
static int take_long(struct options *o, const struct option_input *in, int at, struct option_fault *f)
{
	const char *name = in->argv[at] + 2, *value = strchr(name, '=');
	size_t n = value ? (size_t)(value - name) : strlen(name);
	const struct option_row *r = find(in->mask, name, n, 0);
	if (!r)
		return fault(f, OPTION_UNKNOWN, "--", name, n);
	if (r->kind == OPTION_FLAG && value)
		return fault(f, OPTION_TAKES_NONE, "--", name, n);
	if (r->kind == OPTION_FLAG || value) {
		put(o, r, value ? value + 1 : NULL);
		return 1;
	}
	if (at + 1 >= in->argc)
		return fault(f, OPTION_NO_VALUE, "--", name, n);
	put(o, r, in->argv[at + 1]);
	return 2;
}

// -it, -sKILL, -s KILL: the same.
static int take_short(struct options *o, const struct option_input *in, int at, struct option_fault *f)
{
	for (const char *p = in->argv[at] + 1; *p; p++) {
		const struct option_row *r = find(in->mask, NULL, 0, *p);
		if (!r)
			return fault(f, OPTION_UNKNOWN, "-", p, 1);
		if (r->kind == OPTION_FLAG) {
			put(o, r, NULL);
			continue;
		}
		if (p[1]) {
			put(o, r, p + 1);
			return 1;
		}
		if (at + 1 >= in->argc)
			return fault(f, OPTION_NO_VALUE, "-", p, 1);
		put(o, r, in->argv[at + 1]);
		return 2;
	}
	return 1;
}

int options_parse(struct options *o, const struct option_input *in, char **words, int *count, struct option_fault *f)
{
	int at = 0, n = 0;
	while (at < in->argc) {
		const char *s = in->argv[at];
		if (s[0] != '-' || !s[1]) {
			if (in->rest)
				break;
			words[n++] = in->argv[at++];
			continue;
		}
		if (strcmp(s, "--") == 0) {
			at++;
			break;
		}
		int took = s[1] == '-' ? take_long(o, in, at, f) : take_short(o, in, at, f);
		if (took < 0)
			return -1;
		at += took;
	}
	while (at < in->argc)
		words[n++] = in->argv[at++];
	words[n] = NULL;
	*count = n;
	return 0;
}
