// SPDX-License-Identifier: Apache-2.0
// options: the tables of `celld ctl`: its commands and their options, from which parsing, help and completion come.
// Strings point into argv; struct options owns the lists alone. Parsing says nothing itself: struct option_fault tells.
#ifndef CELLD_DAEMON_CTL_OPTIONS_H
#define CELLD_DAEMON_CTL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct ctl;

enum command_id {
	COMMAND_EXEC,
	COMMAND_PS,
	COMMAND_ATTACH,
	COMMAND_KILL,
	COMMAND_CP,
	COMMAND_LS,
	COMMAND_WATCH,
	COMMAND_READY,
	COMMAND_COMPLETION,
	COMMANDS,
};

struct options {
	const char *url;
	const char *token_file;
	bool help;
	bool json;
	bool quiet;
	bool stdin_too;
	bool tty;
	bool all;
	bool recursive;
	bool details;
	bool no_group;
	const char *workdir;
	const char *timeout;
	const char *session;
	const char *signal;
	const char *wait;
	const char **env; // the one list, with room for every argument
	size_t env_count;
};

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_LIST };

struct option_row {
	const char *name; // --name
	char letter;      // -n, or 0
	const char *arg;  // what help calls the value; NULL: a flag
	enum option_kind kind;
	size_t field;      // in struct options
	unsigned commands; // one bit each
	const char *help;
};

struct command {
	const char *name;
	const char *words; // "PID", "SRC DST": what follows the options
	const char *help;  // one line
	const char *more;  // paragraphs behind the options
	int min, max;      // words; max -1: any
	bool rest;         // what follows the first word is not looked at: it is another command's
	int (*run)(struct ctl *ctl);
};

const struct command *options_command(enum command_id id);
// COMMANDS if there is none.
enum command_id options_find_command(const char *name);
const struct option_row *options_rows(size_t *count);

enum option_trouble { OPTION_UNKNOWN, OPTION_NO_VALUE, OPTION_TAKES_NONE };

struct option_fault {
	enum option_trouble kind;
	char name[64]; // "--foo", "-f"
};
// Reads ARGV[0..ARGC) into O, the words into WORDS (room for ARGC + 1), their number into *COUNT. MASK: whose options are known.
// REST: the first word ends the options, "--" or not. 0, or -1 with F filled.
struct option_input {
	int argc;
	char **argv;
	unsigned mask;
	bool rest;
};
int options_parse(struct options *o, const struct option_input *in, char **words, int *count, struct option_fault *f);

#endif
