// SPDX-License-Identifier: Apache-2.0
#include "daemon/config_value.h"

#include "proto/text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool starts_with_digit(const char *s)
{
	return *s >= '0' && *s <= '9';
}

// N characters at S, counted in units of UNIT.
static int parse(const char *s, size_t n, long long unit, long long min, long long max, long long *out)
{
	long long v;
	if (!starts_with_digit(s) || text_int(s, n, 0, max / unit, &v) < 0 || v * unit < min)
		return -EINVAL;
	*out = v * unit;
	return 0;
}

int value_count(const char *s, long long min, long long max, long long *out)
{
	return parse(s, strlen(s), 1, min, max, out);
}

int value_size(const char *s, long long min, long long max, long long *out)
{
	static const char units[] = "KMG";
	size_t n = strspn(s, DIGITS);
	const char *unit = s[n] ? strchr(units, toupper((unsigned char)s[n])) : NULL;
	if (s[n] && (!unit || s[n + 1]))
		return -EINVAL;
	return parse(s, n, unit ? 1LL << (10 * (unit - units + 1)) : 1, min, max, out);
}

int value_seconds(const char *s, double min, double max, double *out)
{
	size_t whole = strspn(s, DIGITS), n = whole, part = 0;
	if (s[whole] == '.') {
		part = strspn(s + whole + 1, DIGITS);
		n = whole + 1 + part;
	}
	// Beyond this strtod takes signs, blanks, 1e9, 0x10, inf and nan.
	if (s[n] || whole + part == 0)
		return -EINVAL;
	double v = strtod(s, NULL);
	if (!(v >= min && v <= max))
		return -EINVAL;
	*out = v;
	return 0;
}

bool value_is_address(const char *s)
{
	long long v;
	if (strncmp(s, "unix:", 5) == 0)
		return s[5] != '\0';
	if (strncmp(s, "fd:", 3) == 0)
		return value_count(s + 3, 0, INT_MAX, &v) == 0;
	const char *colon = strrchr(s, ':');
	if (!colon || colon == s || value_count(colon + 1, 0, 65535, &v) < 0)
		return false;
	size_t n = (size_t)(colon - s);
	if (s[0] == '[')
		return n > 2 && s[n - 1] == ']';
	return !memchr(s, ':', n); // IPv6 needs its brackets
}

bool value_is_name(const char *s)
{
	return *s && !strchr(s, '=');
}

bool value_is_word(const char *s)
{
	return *s && !s[strspn(s, LETTERS DIGITS "_")];
}

bool value_is_origin(const char *s)
{
	if (strcmp(s, "*") == 0)
		return true;
	size_t n = strspn(s, LETTERS DIGITS "+-.");
	if (n == 0 || strncmp(s + n, "://", 3) != 0)
		return false;
	const char *host = s + n + 3;
	return *host && !host[strspn(host, LETTERS DIGITS "-._~:[]")];
}

bool value_is_token(const char *s)
{
	size_t n = strlen(s);
	if (n == 0 || n > VALUE_TOKEN_MAX || s[0] == ' ' || s[n - 1] == ' ')
		return false;
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	return true;
}
