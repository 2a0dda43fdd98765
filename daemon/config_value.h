// SPDX-License-Identifier: Apache-2.0
// config_value: what options and variables may hold. Strict: the whole text, no blanks, no signs. Pure, allocates nothing.
#ifndef CELLD_DAEMON_CONFIG_VALUE_H
#define CELLD_DAEMON_CONFIG_VALUE_H

#include <stdbool.h>

#define VALUE_TOKEN_MAX 4096

// Within MIN..MAX (MIN >= 0): 0 and *OUT, else -EINVAL.
int value_count(const char *s, long long min, long long max, long long *out);
// A count that K, M or G (powers of 1024, either case) may follow.
int value_size(const char *s, long long min, long long max, long long *out);
// Digits, perhaps with one point among them.
int value_seconds(const char *s, double min, double max, double *out);
// The form ADDR:PORT, [ADDR]:PORT, unix:PATH or fd:N. Whether the address is one is for the socket to say.
bool value_is_address(const char *s);
// A variable's name.
bool value_is_name(const char *s);
// Letters, digits, '_'.
bool value_is_word(const char *s);
// What a browser sends as Origin: SCHEME://HOST[:PORT] without a path; or "*".
bool value_is_origin(const char *s);
// 1 to VALUE_TOKEN_MAX bytes that a header can carry: no control characters, no blank at an end.
bool value_is_token(const char *s);

#endif
