// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/shell.h"

#include <string.h>

// What means nothing to a shell, wherever it stands.
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:@%+-"

void shell_put_word(struct buf *out, const char *s)
{
	if (*s && !s[strspn(s, PLAIN)]) {
		buf_str(out, s);
		return;
	}
	buf_byte(out, '\'');
	for (; *s; s++) {
		if (*s == '\'')
			buf_str(out, "'\\''");
		else
			buf_byte(out, (unsigned char)*s);
	}
	buf_byte(out, '\'');
}

void shell_put_exec(struct buf *out, char *const *words)
{
	buf_str(out, "exec");
	if (words[0] && *words[0] == '-') // older shells know the dashes not, and need them not
		buf_str(out, " --");
	for (size_t i = 0; words[i]; i++) {
		buf_byte(out, ' ');
		shell_put_word(out, words[i]);
	}
}
