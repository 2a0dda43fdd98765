// SPDX-License-Identifier: Apache-2.0
// config: a plain struct from argv and CELLD_* variables; an option wins over its variable. Strings point into argv, the
// environment or memory that lives as long as the process: nothing to free. Knows no socket and no file but the token file.
#ifndef CELLD_DAEMON_CONFIG_H
#define CELLD_DAEMON_CONFIG_H

#include "daemon/limits.h"
#include "daemon/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_LISTEN_MAX 16
#define CONFIG_PASS_MAX 64
#define CONFIG_NAMES_MAX 32
#define CONFIG_VERSION "0.1.0"

enum config_init { CONFIG_INIT_AUTO, CONFIG_INIT_YES, CONFIG_INIT_NO };
enum config_confine { CONFIG_CONFINE_OFF, CONFIG_CONFINE_ON, CONFIG_CONFINE_REQUIRE };
enum config_action { CONFIG_RUN, CONFIG_EXIT };

struct config {
	const char *listen[CONFIG_LISTEN_MAX]; // surface A: "ADDR:PORT", "unix:PATH", "fd:N"; empty list = off
	size_t listen_count;
	bool listen_default;                        // nobody named an address: fall back to IPv4 where there is no IPv6
	const char *envd_listen[CONFIG_LISTEN_MAX]; // surface B
	size_t envd_listen_count;
	bool envd_listen_default;
	const char *workspace; // absolute
	const char *user;
	enum config_init init;
	const char *token;      // NULL = none; also what --token-file held, without its final newline
	const char *token_file; // NULL, or to read again on SIGHUP
	char *file_token;       // room for what that holds, now and later
	bool token_optional;    // it may be empty: no token as long as it is
	double timeout;         // seconds a command may take by default, 0 = for ever
	int64_t grace_ms;       // wait for pipes held open after the exit
	int64_t retention_ms;   // an ended command can be attached to so long
	size_t replay;          // bytes of output kept for attachers
	int64_t stop_grace_ms;  // between TERM and KILL at the sandbox's end
	size_t max_body;
	size_t max_header;
	size_t max_conns;
	size_t max_procs;
	double header_timeout; // seconds
	double idle_timeout;
	double send_timeout;
	const char *pass_env[CONFIG_PASS_MAX];
	size_t pass_env_count;
	bool venv;
	enum config_confine confine;
	const char *writable[CONFIG_NAMES_MAX]; // trees, absolute
	size_t writable_count;
	const char *readable[CONFIG_NAMES_MAX];
	size_t readable_count;
	const char *keep_caps[CONFIG_NAMES_MAX];
	size_t keep_caps_count;
	const char *allow_calls[CONFIG_NAMES_MAX];
	size_t allow_calls_count;
	struct limits limits;                       // of every command
	const char *cgroup;                         // "auto", "on", "off" or an absolute path
	bool dumpable;                              // a debugger of the same user may look at celld
	const char *allow_origin[CONFIG_NAMES_MAX]; // of browsers' pages that may use surface A; "*" = any
	size_t allow_origin_count;
	enum log_level log_level;
	bool log_json;
	bool access_log; // a line for each request, and for each command's start and end
};

// Fills C. CONFIG_RUN; or CONFIG_EXIT with *STATUS set: 0 after --help or --version (printed on stdout), 2 after one line on
// stderr that names the option or variable, its value and what it wants; 1 if the token file cannot be read.
// Option names, defaults and variables: `celld --help`. --token is blanked in ARGV once read, so that `ps` does not show it.
enum config_action config_load(struct config *c, int argc, char **argv, int *status);
// The same for a binary that goes on in the place of an earlier one: ARGV's token is blanked already, so TOKEN (empty: none) stands for it and for
// what the token file held. C gets a copy.
enum config_action config_resume(struct config *c, int argc, char **argv, const char *token, int *status);
// Reads C->token_file again into C->token (on SIGHUP). 0 or negative errno (-EINVAL: empty, and not optional); the old token
// stays on failure.
int config_reload_token(struct config *c);

#endif
