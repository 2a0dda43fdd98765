// SPDX-License-Identifier: Apache-2.0
// What config's files share: config_rows.c has the table of options, config_help.c what is said about them, config_token.c the token
// that a file holds, config.c the loading.
#ifndef CELLD_DAEMON_CONFIG_PRIV_H
#define CELLD_DAEMON_CONFIG_PRIV_H

#include "daemon/config.h"
#include "daemon/config_value.h"

#define CONFIG_ROWS_MAX 64
#define CONFIG_TOKEN_WANTS "1 to 4096 bytes without control characters or blanks at the ends"

enum config_kind {
	KIND_LISTEN,  // list of addresses, its count and whether it is the default
	KIND_LIST,    // list of texts and its count
	KIND_LIMITS,  // struct limits, item by item
	KIND_TEXT,    // anything that fits
	KIND_TOKEN,   // a secret: blanked where it came from
	KIND_WORD,    // one of a list of words
	KIND_YES,     // --init: no value, stands for "yes"; the variable takes a word
	KIND_NO,      // --no-init: "no" for the same field, no variable
	KIND_SECONDS, // double
	KIND_SEC_MS,  // seconds as the others, kept in milliseconds
	KIND_MS,      // int64_t
	KIND_COUNT,   // size_t
	KIND_SIZE,    // size_t, with K, M, G
	KIND_HELP,
	KIND_VERSION,
};

struct config_word {
	const char *name;
	int value;
};

struct config_row {
	const char *name;
	const char *arg;  // what --help calls the value; NULL: takes none
	const char *init; // the default, read like any other value; NULL: none
	enum config_kind kind;
	size_t field; // offsets in struct config
	size_t count;
	size_t is_default;
	size_t width;    // sizeof the field
	double min, max; // whole numbers but for seconds
	const struct config_word *words;
	bool (*fits)(const char *s); // of a text, or of each item of a list
	const char *wants;           // what FITS takes
	const char *section;         // begins one of --help
	const char *help;
};

struct config_load {
	struct config *c;
	int status;
	const char *handed; // the token of the binary before, or NULL
	bool set[CONFIG_ROWS_MAX];
	char token_from[32]; // the options or variables that gave them, for messages
	char file_from[32];
};

const struct config_row *config_rows(size_t *count);
// The row's variable into OUT: log-level -> CELLD_LOG_LEVEL. False if it has none.
bool config_variable(const struct config_row *r, char *out, size_t n);

// On stdout. The exit status.
int config_print_help(void);
int config_print_version(void);
// VALUE for a message: one line whatever it holds, and not endless.
const char *config_shown(const char *value, char *out, size_t n);
// One line on stderr about LABEL's VALUE; RC is what setting it gave.
void config_complain(struct config_load *l, const struct config_row *r, const char *label, const char *value, int rc);
// What getopt did not understand: ARG is the word it stands at; R is the option's row, or NULL.
void config_complain_option(struct config_load *l, const struct config_row *r, bool missing, const char *arg);

// The token that was handed over or that the file holds, once options and variables are read.
enum config_action config_load_token(struct config_load *l);

#endif
