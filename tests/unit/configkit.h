// SPDX-License-Identifier: Apache-2.0
// configkit: loads a config from a line of arguments and looks at what is said about it. stdout and stderr become files, and the
// environment starts empty: each test runs in a process of its own.
#ifndef CELLD_UNIT_CONFIGKIT_H
#define CELLD_UNIT_CONFIGKIT_H

#include "daemon/config.h"

#include <check.h>

enum { CONFIGKIT_ARGS = 24, CONFIGKIT_LOADS = 128 };

struct configkit {
	struct config
		pool[CONFIGKIT_LOADS]; // a fresh one for each load: what they point to lives as long as the process
	struct config *c;              // of the last load
	char words[1 << 14], *args[CONFIGKIT_ARGS + 1];
	int argc, status, out_fd, err_fd;
};

void configkit_init(struct configkit *k);
// What was printed since the last call.
const char *configkit_printed(int fd);
// LINE: the arguments, with blanks between them ("''" is an empty one), in memory that may be written to, as main's.
void configkit_args(struct configkit *k, const char *line);
enum config_action configkit_load(struct configkit *k, const char *line);
// Must run, without a word.
void configkit_must_load(struct configkit *k, const char *line);
// Must end with STATUS and MESSAGE on stderr.
void configkit_must_refuse(struct configkit *k, const char *line, int status, const char *message);
// --log-level -> CELLD_LOG_LEVEL
const char *configkit_variable(const char *name);

#endif
