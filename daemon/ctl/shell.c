// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/shell.h"
#include "proto/text.h"

#include <string.h>

// What means nothing to a shell, wherever it stands.
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:@%+-"

// Bytes of the character at S, 0 if it is none of UTF-8.
static size_t char_len(const char *s)
{
	size_t n = 1;
	while (n < 4 && (s[n] & 0xc0) == 0x80)
		n++;
	for (; n > 0 && !text_utf8_valid(s, n); n--)
		;
	return n;
}

// A command is text: the shell makes the other bytes.
void shell_put_word(struct buf *out, const char *s)
{
	if (*s && !s[strspn(s, PLAIN)]) {
		buf_str(out, s);
		return;
	}
	buf_byte(out, '\'');
	while (*s) {
		size_t n = char_len(s);
		if (*s == '\'')
			buf_str(out, "'\\''");
		else if (n)
			buf_append(out, s, n);
		else
			buf_printf(out, "'\"$(printf '\\%03o')\"'", (unsigned)(unsigned char)*s);
		s += n ? n : 1;
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
