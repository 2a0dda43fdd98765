// SPDX-License-Identifier: Apache-2.0
// shell: words for /bin/sh, so that it reads exactly them.
#ifndef CELLD_DAEMON_CTL_SHELL_H
#define CELLD_DAEMON_CTL_SHELL_H

#include "proto/buf.h"

// S as one word, quoted where it has to be.
void shell_put_word(struct buf *out, const char *s);
// A line that becomes the program of WORDS (NULL-terminated): no shell stays between it and the signals to its group.
void shell_put_exec(struct buf *out, char *const *words);

#endif
