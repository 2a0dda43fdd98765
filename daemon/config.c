// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // getopt_long, strchrnul
#include "daemon/config.h"

#include "daemon/config_value.h"
#include "daemon/io.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TOKEN_WANTS "1 to 4096 bytes without control characters or blanks at the ends"

enum kind {
	KIND_LISTEN,  // list of addresses, its count and whether it is the default
	KIND_NAMES,   // list of environment variables and its count
	KIND_DIR,     // absolute path
	KIND_TEXT,    // anything but nothing
	KIND_TOKEN,   // a secret: blanked where it came from
	KIND_WORD,    // one of a list of words
	KIND_YES,     // --init: no value; the variable takes a word
	KIND_NO,      // --no-init: the same field, no variable
	KIND_SECONDS, // double
	KIND_SEC_MS,  // seconds as the others, kept in milliseconds
	KIND_MS,      // int64_t
	KIND_COUNT,   // size_t
	KIND_SIZE,    // size_t, with K, M, G
	KIND_HELP,
	KIND_VERSION,
};

struct word {
	const char *name;
	int value;
};

static const struct word init_words[] = {{"auto", CONFIG_INIT_AUTO}, {"yes", CONFIG_INIT_YES}, {"no", CONFIG_INIT_NO},
	{"1", CONFIG_INIT_YES}, {"0", CONFIG_INIT_NO}, {NULL, 0}};
static const struct word empty_words[] = {{"refuse", false}, {"none", true}, {NULL, 0}};
static const struct word venv_words[] = {{"auto", true}, {"off", false}, {NULL, 0}};
static const struct word level_words[] = {
	{"error", LOG_ERROR}, {"warn", LOG_WARN}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}, {NULL, 0}};
static const struct word format_words[] = {{"text", false}, {"json", true}, {NULL, 0}};

struct row {
	const char *name;
	const char *arg;  // what --help calls the value; NULL: takes none
	const char *init; // the default, read like any other value; NULL: none
	enum kind kind;
	size_t field; // offsets in struct config
	size_t count;
	size_t is_default;
	size_t width;    // sizeof the field
	double min, max; // whole numbers but for seconds
	const struct word *words;
	const char *help;
};

#define FIELD(f) .field = offsetof(struct config, f), .width = sizeof(((struct config *)0)->f)
#define LIST(f) FIELD(f), .count = offsetof(struct config, f##_count)
#define LISTEN(f) LIST(f), .is_default = offsetof(struct config, f##_default)
#define YEAR 31536000.
#define KILO 1024.
#define GIGA (KILO * KILO * KILO)

// clang-format off
static const struct row rows[] = {
	{"listen", "ADDR:PORT", "[::]:2024", KIND_LISTEN, LISTEN(listen),
		.help = "surface A: [::]:2024, unix:PATH, fd:N or off; may be repeated"},
	{"envd-listen", "ADDR:PORT", "[::]:49983", KIND_LISTEN, LISTEN(envd_listen), .help = "surface B, the same forms"},
	{"workspace", "DIR", "/workspace", KIND_DIR, FIELD(workspace), .help = "working directory, made if missing"},
	{"user", "NAME", "root", KIND_TEXT, FIELD(user), .help = "who commands run as"},
	{"init", NULL, NULL, KIND_YES, FIELD(init), .words = init_words,
		.help = "run the init part beside the daemon (default if PID 1; the variable takes yes, no, auto)"},
	{"no-init", NULL, NULL, KIND_NO, FIELD(init), .help = "run the daemon alone"},
	{"token", "TOKEN", NULL, KIND_TOKEN, FIELD(token), .help = "access token, locks both surfaces"},
	{"token-file", "FILE", NULL, KIND_TEXT, FIELD(token_file), .help = "the same from a file, read again on SIGHUP"},
	{"token-empty", "refuse|none", "refuse", KIND_WORD, FIELD(token_optional), .words = empty_words,
		.help = "an empty token file is an error, or no token until SIGHUP finds one"},
	{"timeout", "S", "30", KIND_SECONDS, FIELD(timeout), .max = YEAR,
		.help = "seconds a command may take by default, 0 for ever"},
	{"grace", "MS", "200", KIND_MS, FIELD(grace_ms), .max = 600000,
		.help = "wait for pipes held open after a command's exit"},
	{"retention", "S", "60", KIND_SEC_MS, FIELD(retention_ms), .max = YEAR,
		.help = "seconds an ended command can still be attached to"},
	{"replay", "BYTES", "65536", KIND_SIZE, FIELD(replay), .max = GIGA, .help = "output kept for those who attach late"},
	{"stop-grace", "MS", "1500", KIND_MS, FIELD(stop_grace_ms), .max = 600000,
		.help = "between SIGTERM and SIGKILL at the sandbox's end"},
	{"max-body", "BYTES", "64M", KIND_SIZE, FIELD(max_body), .min = KILO, .max = 64 * GIGA,
		.help = "request body held in memory"},
	{"max-header", "BYTES", "64K", KIND_SIZE, FIELD(max_header), .min = KILO, .max = 16 * KILO * KILO,
		.help = "request head"},
	{"max-conns", "N", "4096", KIND_COUNT, FIELD(max_conns), .min = 1, .max = 1000000, .help = "open connections"},
	{"max-procs", "N", "4096", KIND_COUNT, FIELD(max_procs), .min = 1, .max = 1000000, .help = "commands at once"},
	{"header-timeout", "S", "20", KIND_SECONDS, FIELD(header_timeout), .min = 0.01, .max = YEAR,
		.help = "seconds for a request head to come"},
	{"idle-timeout", "S", "640", KIND_SECONDS, FIELD(idle_timeout), .min = 0.01, .max = YEAR,
		.help = "seconds a connection may wait for its next request"},
	{"send-timeout", "S", "60", KIND_SECONDS, FIELD(send_timeout), .min = 0.01, .max = YEAR,
		.help = "seconds after which a reader that takes nothing is cut"},
	{"pass-env", "NAME", NULL, KIND_NAMES, LIST(pass_env),
		.help = "variable that commands inherit; may be repeated"},
	{"venv", "auto|off", "auto", KIND_WORD, FIELD(venv), .words = venv_words,
		.help = "Python environment in the workspace"},
	{"log-level", "LEVEL", "info", KIND_WORD, FIELD(log_level), .words = level_words,
		.help = "error, warn, info or debug"},
	{"log-format", "text|json", "text", KIND_WORD, FIELD(log_json), .words = format_words, .help = "log on stderr"},
	{"version", NULL, NULL, KIND_VERSION, .help = "print the version and exit"},
	{"help", NULL, NULL, KIND_HELP, .help = "print this and exit"},
};
// clang-format on

#define ROWS (sizeof(rows) / sizeof(rows[0]))
#define VALUE_BASE 256 // getopt's answer for row 0: apart from every character

struct load {
	struct config *c;
	int status;
	const char *handed; // the token of the binary before, or NULL
	bool set[ROWS];
	char token_from[32]; // the options or variables that gave them, for messages
	char file_from[32];
};

static void *field(struct config *c, size_t offset)
{
	return (char *)c + offset;
}

// The row's variable into OUT: log-level -> CELLD_LOG_LEVEL. False if it has none.
static bool variable(const struct row *r, char *out, size_t n)
{
	if (r->kind == KIND_NO || r->kind == KIND_VERSION || r->kind == KIND_HELP)
		return false;
	snprintf(out, n, "CELLD_%s", r->name);
	for (char *p = out; *p; p++)
		*p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
	return true;
}

// VALUE for a message: one line whatever it holds, and not endless.
static const char *shown(const char *value, char *out, size_t n)
{
	size_t i = 0;
	for (; value[i] && i < n - 1; i++)
		out[i] = (unsigned char)value[i] < 0x20 || value[i] == 0x7f ? '?' : value[i];
	out[i] = '\0';
	return out;
}

// What a row's value should have been.
static void wanted(const struct row *r, char *out, size_t n)
{
	switch (r->kind) {
	case KIND_LISTEN:
		snprintf(out, n, "ADDR:PORT, unix:PATH, fd:N or off");
		break;
	case KIND_NAMES:
		snprintf(out, n, "the name of a variable");
		break;
	case KIND_DIR:
		snprintf(out, n, "an absolute path");
		break;
	case KIND_SECONDS:
	case KIND_SEC_MS:
		snprintf(out, n, "a number of seconds (%.15g to %.15g)", r->min, r->max);
		break;
	case KIND_MS:
		snprintf(out, n, "a number of milliseconds (%.15g to %.15g)", r->min, r->max);
		break;
	case KIND_COUNT:
		snprintf(out, n, "a number (%.15g to %.15g)", r->min, r->max);
		break;
	case KIND_SIZE:
		snprintf(out, n, "a size in bytes (%.15g to %.15g; K, M and G may follow the number)", r->min, r->max);
		break;
	case KIND_WORD:
	case KIND_YES:
		for (size_t i = 0, at = 0; r->words[i].name && at < n; i++)
			at += (size_t)snprintf(out + at, n - at, "%s%s", i == 0 ? "one of " : ", ", r->words[i].name);
		break;
	case KIND_TEXT:
	case KIND_TOKEN:
	case KIND_NO:
	case KIND_VERSION:
	case KIND_HELP:
		snprintf(out, n, "a value");
	}
}

// One line on stderr about LABEL's VALUE; RC is what setting it gave.
static void complain(struct load *l, const struct row *r, const char *label, const char *value, int rc)
{
	char text[96], want[128];
	l->status = rc == -ENOMEM ? 1 : 2;
	if (rc == -ENOMEM)
		log_plain("celld: %s: out of memory", label);
	else if (rc == -E2BIG)
		log_plain("celld: %s: more than %zu values", label, r->width / sizeof(char *));
	else if (r->kind == KIND_TOKEN)
		log_plain("celld: %s: a token is " TOKEN_WANTS, label); // the value is a secret
	else {
		wanted(r, want, sizeof(want));
		log_plain("celld: %s: \"%s\" is not %s", label, shown(value, text, sizeof(text)), want);
	}
}

static int set_number(const struct row *r, struct config *c, const char *s)
{
	long long v = 0;
	double d = 0;
	int rc;
	if (r->kind == KIND_SECONDS || r->kind == KIND_SEC_MS)
		rc = value_seconds(s, r->min, r->max, &d);
	else if (r->kind == KIND_SIZE)
		rc = value_size(s, (long long)r->min, (long long)r->max, &v);
	else
		rc = value_count(s, (long long)r->min, (long long)r->max, &v);
	if (rc < 0)
		return rc;
	if (r->kind == KIND_SECONDS)
		*(double *)field(c, r->field) = d;
	else if (r->kind == KIND_SEC_MS)
		*(int64_t *)field(c, r->field) = (int64_t)(d * 1000 + 0.5);
	else if (r->kind == KIND_MS)
		*(int64_t *)field(c, r->field) = v;
	else
		*(size_t *)field(c, r->field) = (size_t)v;
	return 0;
}

static int set_word(const struct row *r, struct config *c, const char *s)
{
	const struct word *w = r->words;
	while (w->name && strcmp(w->name, s) != 0)
		w++;
	if (!w->name)
		return -EINVAL;
	if (r->width == sizeof(bool))
		*(bool *)field(c, r->field) = w->value;
	else
		memcpy(field(c, r->field), &w->value, sizeof(w->value)); // an enum
	return 0;
}

// Adds one item to a row's list; "off" takes away the ones before it.
static int add_item(const struct row *r, struct config *c, const char *s)
{
	const char **list = field(c, r->field);
	size_t *count = field(c, r->count);
	if (r->kind == KIND_LISTEN && strcmp(s, "off") == 0) {
		*count = 0;
		return 0;
	}
	if (r->kind == KIND_LISTEN ? !value_is_address(s) : !value_is_name(s))
		return -EINVAL;
	if (*count == r->width / sizeof(*list))
		return -E2BIG;
	list[(*count)++] = s;
	return 0;
}

static char *copy_text(const char *s, size_t n)
{
	char *copy = malloc(n + 1);
	if (copy) {
		memcpy(copy, s, n);
		copy[n] = '\0';
	}
	return copy;
}

// A variable's items, separated by commas. They stay for the process's life, apart from the environment, which stays whole.
static int set_list(const struct row *r, struct config *c, const char *s)
{
	if (r->kind == KIND_NAMES && !*s)
		return 0;
	for (const char *end; s; s = *end ? end + 1 : NULL) {
		end = strchrnul(s, ',');
		char *item = copy_text(s, (size_t)(end - s));
		if (!item)
			return -ENOMEM;
		const char **list = field(c, r->field);
		size_t *count = field(c, r->count), before = *count;
		int rc = add_item(r, c, item);
		for (size_t i = *count; rc == 0 && i < before; i++)
			free((char *)list[i]); // "off" took them away, copies all of them
		if (rc < 0 || *count <= before)
			free(item);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int set_token(struct config *c, char *s)
{
	bool fits = value_is_token(s);
	char *copy = fits ? copy_text(s, strlen(s)) : NULL;
	// /proc/PID/cmdline and /proc/PID/environ show this very memory.
	explicit_bzero(s, strlen(s));
	if (copy) {
		free((char *)c->token); // an earlier --token's copy
		c->token = copy;
	}
	return copy ? 0 : fits ? -ENOMEM : -EINVAL;
}

// Gives a row's field the VALUE of an option (VAR false), of a variable, or the default.
static int set_value(const struct row *r, struct config *c, char *value, bool var)
{
	switch (r->kind) {
	case KIND_LISTEN:
	case KIND_NAMES:
		return var ? set_list(r, c, value) : add_item(r, c, value);
	case KIND_DIR:
	case KIND_TEXT:
		if (r->kind == KIND_DIR ? *value != '/' : !*value)
			return -EINVAL;
		*(const char **)field(c, r->field) = value;
		return 0;
	case KIND_TOKEN:
		return set_token(c, value);
	case KIND_YES:
		if (var)
			return set_word(r, c, value);
		c->init = CONFIG_INIT_YES;
		return 0;
	case KIND_NO:
		c->init = CONFIG_INIT_NO;
		return 0;
	case KIND_WORD:
		return set_word(r, c, value);
	default:
		return set_number(r, c, value);
	}
}

// The first value of an option or variable takes the place of the default.
static int apply(struct load *l, const struct row *r, char *value, bool var, const char *label)
{
	size_t i = (size_t)(r - rows);
	if (!l->set[i] && r->count)
		*(size_t *)field(l->c, r->count) = 0;
	if (!l->set[i] && r->is_default)
		*(bool *)field(l->c, r->is_default) = false;
	l->set[i] = true;
	if (r->kind == KIND_TOKEN)
		snprintf(l->token_from, sizeof(l->token_from), "%s", label);
	else if (r->field == offsetof(struct config, token_file))
		snprintf(l->file_from, sizeof(l->file_from), "%s", label);
	int rc = r->kind == KIND_TOKEN && l->handed ? 0 : set_value(r, l->c, value, var);
	if (rc < 0)
		complain(l, r, label, value, rc);
	return rc;
}

static void set_defaults(struct config *c)
{
	memset(c, 0, sizeof(*c));
	for (size_t i = 0; i < ROWS; i++) {
		if (!rows[i].init)
			continue;
		int rc = set_value(&rows[i], c, (char *)rows[i].init, false);
		assert(rc == 0);
		(void)rc;
		if (rows[i].is_default)
			*(bool *)field(c, rows[i].is_default) = true;
	}
}

static int print_help(void)
{
	printf("celld " CONFIG_VERSION ": runs commands, files, terminals and watches of a sandbox over HTTP\n"
	       "usage: celld [OPTION]...\n\n"
	       "Each option has a variable, --envd-listen for one CELLD_ENVD_LISTEN (lists: separated by commas);\n"
	       "the option wins. Sizes take K, M and G; seconds may have a fraction.\n\n");
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		char head[48], var[40];
		snprintf(head, sizeof(head), "--%s%s%s", r->name, r->arg ? " " : "", r->arg ? r->arg : "");
		printf("  %-26s %s", head, r->help);
		if (r->init)
			printf(" [%s]", r->init);
		printf(variable(r, var, sizeof(var)) ? " (%s)\n" : "\n", var);
	}
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}

static int print_version(void)
{
	printf("celld " CONFIG_VERSION "\n");
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}

// What getopt did not understand: ARG is the word it stands at. What follows a '=' may be a secret.
static void complain_option(struct load *l, int ch, const char *arg)
{
	char text[64];
	bool ours = optopt >= VALUE_BASE && optopt < VALUE_BASE + (int)ROWS;
	const char *name = ours ? rows[optopt - VALUE_BASE].name : NULL;
	l->status = 2;
	if (name && ch == ':')
		log_plain("celld: --%s: a value is missing", name);
	else if (name)
		log_plain("celld: --%s: takes no value", name);
	else if (optopt)
		log_plain("celld: -%c: unknown option (see celld --help)", isprint(optopt) ? optopt : '?');
	else {
		shown(arg, text, sizeof(text));
		*strchrnul(text, '=') = '\0';
		log_plain("celld: %s: unknown option (see celld --help)", text);
	}
}

static enum config_action load_options(struct load *l, int argc, char **argv)
{
	struct option options[ROWS + 1];
	memset(options, 0, sizeof(options));
	for (size_t i = 0; i < ROWS; i++)
		options[i] = (struct option){.name = rows[i].name,
			.has_arg = rows[i].arg ? required_argument : no_argument,
			.val = VALUE_BASE + (int)i};
	char label[40], text[96];
	int ch;
	opterr = 0;
	optind = 0; // getopt starts anew
	while ((ch = getopt_long(argc, argv, "+:", options, NULL)) != -1) {
		if (ch < VALUE_BASE) {
			complain_option(l, ch, argv[optind - 1]);
			return CONFIG_EXIT;
		}
		const struct row *r = &rows[ch - VALUE_BASE];
		if (r->kind == KIND_HELP || r->kind == KIND_VERSION) {
			l->status = r->kind == KIND_HELP ? print_help() : print_version();
			return CONFIG_EXIT;
		}
		snprintf(label, sizeof(label), "--%s", r->name);
		if (apply(l, r, optarg, false, label) < 0)
			return CONFIG_EXIT;
	}
	if (optind >= argc)
		return CONFIG_RUN;
	log_plain("celld: \"%s\": unexpected argument (see celld --help)", shown(argv[optind], text, sizeof(text)));
	l->status = 2;
	return CONFIG_EXIT;
}

// A row that an option of the same field has set is out of its variable's reach.
static bool is_set(const struct load *l, const struct row *r)
{
	for (size_t i = 0; i < ROWS; i++)
		if (l->set[i] && rows[i].width > 0 && rows[i].field == r->field)
			return true;
	return false;
}

static enum config_action load_variables(struct load *l)
{
	char var[40];
	for (size_t i = 0; i < ROWS; i++) {
		char *value = variable(&rows[i], var, sizeof(var)) ? getenv(var) : NULL;
		if (!value)
			continue;
		int rc = is_set(l, &rows[i]) ? 0 : apply(l, &rows[i], value, true, var);
		if (rows[i].kind == KIND_TOKEN) {
			explicit_bzero(value, strlen(value)); // one that an option beats is a secret still
			unsetenv(var);
		}
		if (rc < 0)
			return CONFIG_EXIT;
	}
	return CONFIG_RUN;
}

// The token file into OUT, empty if it is and may be. Its final newline is not part of the token. 0 or negative errno.
static int read_token(const struct config *c, char out[VALUE_TOKEN_MAX + 3])
{
	ssize_t n = io_read_file(c->token_file, out, VALUE_TOKEN_MAX + 3); // room for CR, LF and the NUL
	if (n < 0)
		return (int)n;
	if (n > 0 && out[n - 1] == '\n')
		n--;
	if (n > 0 && out[n - 1] == '\r')
		n--;
	bool nul = memchr(out, '\0', (size_t)n) != NULL;
	out[n] = '\0';
	return (n == 0 && c->token_optional) || (!nul && value_is_token(out)) ? 0 : -EINVAL;
}

static void put_file_token(struct config *c, const char *token)
{
	memcpy(c->file_token, token, strlen(token) + 1);
	c->token = *token ? c->file_token : NULL;
}

static enum config_action take_handed(struct load *l)
{
	struct config *c = l->c;
	char *copy = malloc(VALUE_TOKEN_MAX + 1);
	if (!copy || strlen(l->handed) > VALUE_TOKEN_MAX) {
		free(copy);
		log_plain("celld: token: %s", strerror(copy ? EINVAL : ENOMEM));
		l->status = 1;
		return CONFIG_EXIT;
	}
	memcpy(copy, l->handed, strlen(l->handed) + 1);
	c->token = *copy ? copy : NULL;
	if (c->token_file)
		c->file_token = copy;
	else if (!*copy)
		free(copy);
	return CONFIG_RUN;
}

static enum config_action load_token(struct load *l)
{
	struct config *c = l->c;
	char text[96], token[VALUE_TOKEN_MAX + 3];
	if (l->handed)
		return take_handed(l);
	if (!c->token_file)
		return CONFIG_RUN;
	if (c->token) {
		log_plain("celld: %s: not together with %s", l->token_from, l->file_from);
		l->status = 2;
		return CONFIG_EXIT;
	}
	int rc = read_token(c, token);
	c->file_token = rc == 0 ? malloc(VALUE_TOKEN_MAX + 1) : NULL;
	if (c->file_token) {
		put_file_token(c, token);
		explicit_bzero(token, sizeof(token));
		return CONFIG_RUN;
	}
	l->status = 1;
	shown(c->token_file, text, sizeof(text));
	if (rc == -EINVAL || rc == -EFBIG)
		log_plain("celld: %s: \"%s\" holds no token (" TOKEN_WANTS ")", l->file_from, text);
	else
		log_plain("celld: %s: \"%s\": %s", l->file_from, text, strerror(rc < 0 ? -rc : ENOMEM));
	return CONFIG_EXIT;
}

enum config_action config_resume(struct config *c, int argc, char **argv, const char *token, int *status)
{
	struct load l = {.c = c, .handed = token};
	set_defaults(c);
	enum config_action action = load_options(&l, argc, argv);
	if (action == CONFIG_RUN)
		action = load_variables(&l);
	if (action == CONFIG_RUN)
		action = load_token(&l);
	*status = l.status;
	return action;
}

enum config_action config_load(struct config *c, int argc, char **argv, int *status)
{
	return config_resume(c, argc, argv, NULL, status);
}

int config_reload_token(struct config *c)
{
	char token[VALUE_TOKEN_MAX + 3];
	struct stat st;
	if (!c->token_file || !c->file_token)
		return -EINVAL;
	// A pipe (`--token-file <(...)`) gave what it had at the start; opening it again could block for ever.
	if (stat(c->token_file, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESPIPE;
	int rc = read_token(c, token);
	if (rc == 0)
		put_file_token(c, token);
	explicit_bzero(token, sizeof(token));
	return rc;
}
