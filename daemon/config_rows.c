// SPDX-License-Identifier: Apache-2.0
#include "daemon/config_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct config_word init_words[] = {{"auto", CONFIG_INIT_AUTO}, {"yes", CONFIG_INIT_YES},
	{"no", CONFIG_INIT_NO}, {"1", CONFIG_INIT_YES}, {"0", CONFIG_INIT_NO}, {NULL, 0}};
static const struct config_word yes_words[] = {{"yes", true}, {"no", false}, {"1", true}, {"0", false}, {NULL, 0}};
static const struct config_word empty_words[] = {{"refuse", false}, {"none", true}, {NULL, 0}};
static const struct config_word venv_words[] = {{"auto", true}, {"off", false}, {NULL, 0}};
static const struct config_word confine_words[] = {
	{"off", CONFIG_CONFINE_OFF}, {"on", CONFIG_CONFINE_ON}, {"require", CONFIG_CONFINE_REQUIRE}, {NULL, 0}};
static const struct config_word level_words[] = {
	{"error", LOG_ERROR}, {"warn", LOG_WARN}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}, {NULL, 0}};
static const struct config_word format_words[] = {{"text", false}, {"json", true}, {NULL, 0}};

static bool is_text(const char *s)
{
	return *s;
}

static bool is_path(const char *s)
{
	return *s == '/';
}

static bool is_cgroup(const char *s)
{
	return strcmp(s, "auto") == 0 || strcmp(s, "on") == 0 || strcmp(s, "off") == 0 || *s == '/';
}

#define FIELD(f) .field = offsetof(struct config, f), .width = sizeof(((struct config *)0)->f)
#define LIST(f) FIELD(f), .count = offsetof(struct config, f##_count)
#define LISTEN(f) LIST(f), .is_default = offsetof(struct config, f##_default)
#define PATHS .fits = is_path, .wants = "an absolute path"
#define YEAR 31536000.
#define KILO 1024.
#define GIGA (KILO * KILO * KILO)

// clang-format off
static const struct config_row rows[] = {
	{"listen", "ADDR:PORT", "[::]:2024", KIND_LISTEN, LISTEN(listen), .fits = value_is_address,
		.section = "where it serves, and whom",
		.wants = "ADDR:PORT, unix:PATH, fd:N or off",
		.help = "surface A: [::]:2024, unix:PATH, fd:N or off; may be repeated"},
	{"envd-listen", "ADDR:PORT", "[::]:49983", KIND_LISTEN, LISTEN(envd_listen), .fits = value_is_address,
		.wants = "ADDR:PORT, unix:PATH, fd:N or off", .help = "surface B, the same forms"},
	{"token", "TOKEN", NULL, KIND_TOKEN, FIELD(token), .help = "access token, locks both surfaces"},
	{"token-file", "FILE", NULL, KIND_TEXT, FIELD(token_file), .fits = is_text, .wants = "a value",
		.help = "the same from a file, read again on SIGHUP"},
	{"token-empty", "refuse|none", "refuse", KIND_WORD, FIELD(token_optional), .words = empty_words,
		.help = "an empty token file is an error, or no token until SIGHUP finds one"},
	{"allow-origin", "ORIGIN", NULL, KIND_LIST, LIST(allow_origin), .fits = value_is_origin,
		.wants = "an origin (https://HOST or https://HOST:PORT) or *",
		.help = "web site whose pages may use surface A; may be repeated"},

	{"workspace", "DIR", "/workspace", KIND_TEXT, FIELD(workspace), PATHS, .section = "commands",
		.help = "working directory, made if missing"},
	{"user", "NAME", "root", KIND_TEXT, FIELD(user), .fits = is_text, .wants = "a value",
		.help = "who commands run as"},
	{"pass-env", "NAME", NULL, KIND_LIST, LIST(pass_env), .fits = value_is_name, .wants = "the name of a variable",
		.help = "variable that commands inherit; may be repeated"},
	{"venv", "auto|off", "auto", KIND_WORD, FIELD(venv), .words = venv_words,
		.help = "Python environment in the workspace"},
	{"timeout", "S", "30", KIND_SECONDS, FIELD(timeout), .max = YEAR,
		.help = "seconds a command may take by default, 0 for ever"},
	{"grace", "MS", "200", KIND_MS, FIELD(grace_ms), .max = 600000,
		.help = "wait for pipes held open after a command's exit"},
	{"retention", "S", "60", KIND_SEC_MS, FIELD(retention_ms), .max = YEAR,
		.help = "seconds an ended command can still be attached to"},
	{"replay", "BYTES", "65536", KIND_SIZE, FIELD(replay), .max = GIGA, .help = "output kept for those who attach late"},
	{"max-procs", "N", "4096", KIND_COUNT, FIELD(max_procs), .min = 1, .max = 1000000, .help = "commands at once"},

	{"confine", "off|on|require", "off", KIND_WORD, FIELD(confine), .words = confine_words,
		.section = "what commands are kept from",
		.help = "few capabilities, trees, no odd system calls, no way to more: on as far as the kernel can, require wholly or no start"},
	{"writable", "DIR", NULL, KIND_LIST, LIST(writable), PATHS,
		.help = "confined: tree they may write, in place of the defaults; may be repeated"},
	{"read-only", "DIR", NULL, KIND_LIST, LIST(readable), PATHS,
		.help = "confined: tree they may read and run from, in place of all; may be repeated"},
	{"keep-cap", "NAME", NULL, KIND_LIST, LIST(keep_caps), .fits = value_is_word, .wants = "the name of a capability",
		.help = "confined: capability that root keeps, in place of the defaults; none, all; may be repeated"},
	{"allow-syscall", "NAME", NULL, KIND_LIST, LIST(allow_calls), .fits = value_is_word,
		.wants = "the name of a system call", .help = "confined: system call that is not denied; may be repeated"},
	{"rlimit", "NAME=SOFT[:HARD]", NULL, KIND_LIMITS, FIELD(limits),
		.wants = "NAME=SOFT or NAME=SOFT:HARD (a limit of prlimit's; numbers, or unlimited)",
		.help = "resource limit of every command (nofile, nproc, fsize, ...); may be repeated"},
	{"cgroup", "auto|on|off|DIR", "auto", KIND_TEXT, FIELD(cgroup), .fits = is_cgroup,
		.wants = "auto, on, off or an absolute path",
		.help = "a control group for each command: below celld's own (auto: if PID 1) or below DIR"},

	{"max-body", "BYTES", "64M", KIND_SIZE, FIELD(max_body), .min = KILO, .max = 64 * GIGA,
		.section = "connections", .help = "request body held in memory"},
	{"max-header", "BYTES", "64K", KIND_SIZE, FIELD(max_header), .min = KILO, .max = 16 * KILO * KILO,
		.help = "request head"},
	{"max-conns", "N", "4096", KIND_COUNT, FIELD(max_conns), .min = 1, .max = 1000000, .help = "open connections"},
	{"header-timeout", "S", "20", KIND_SECONDS, FIELD(header_timeout), .min = 0.01, .max = YEAR,
		.help = "seconds for a request head to come"},
	{"idle-timeout", "S", "640", KIND_SECONDS, FIELD(idle_timeout), .min = 0.01, .max = YEAR,
		.help = "seconds a connection may wait for its next request"},
	{"send-timeout", "S", "60", KIND_SECONDS, FIELD(send_timeout), .min = 0.01, .max = YEAR,
		.help = "seconds after which a reader that takes nothing is cut"},

	{"init", NULL, NULL, KIND_YES, FIELD(init), .words = init_words, .section = "celld itself",
		.help = "run the init part beside the daemon (default if PID 1; the variable takes yes, no, auto)"},
	{"no-init", NULL, NULL, KIND_NO, FIELD(init), .words = init_words, .help = "run the daemon alone"},
	{"stop-grace", "MS", "1500", KIND_MS, FIELD(stop_grace_ms), .max = 600000,
		.help = "between SIGTERM and SIGKILL at the sandbox's end"},
	{"dumpable", NULL, NULL, KIND_YES, FIELD(dumpable), .words = yes_words,
		.help = "its own user may debug celld (the variable takes yes, no)"},
	{"log-level", "LEVEL", "info", KIND_WORD, FIELD(log_level), .words = level_words,
		.help = "error, warn, info or debug"},
	{"access-log", NULL, NULL, KIND_YES, FIELD(access_log), .words = yes_words,
		.help = "log each request and each command's start and end, as --log-level debug does (the variable takes yes, no)"},
	{"log-format", "text|json", "text", KIND_WORD, FIELD(log_json), .words = format_words, .help = "log on stderr"},
	{"version", NULL, NULL, KIND_VERSION, .help = "print the version and exit"},
	{"help", NULL, NULL, KIND_HELP, .help = "print this and exit"},
};
// clang-format on

const struct config_row *config_rows(size_t *count)
{
	_Static_assert(sizeof(rows) / sizeof(rows[0]) <= CONFIG_ROWS_MAX, "struct config_load has room for each");
	*count = sizeof(rows) / sizeof(rows[0]);
	return rows;
}

bool config_variable(const struct config_row *r, char *out, size_t n)
{
	if (r->kind == KIND_NO || r->kind == KIND_VERSION || r->kind == KIND_HELP)
		return false;
	snprintf(out, n, "CELLD_%s", r->name);
	for (char *p = out; *p; p++)
		*p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
	return true;
}
