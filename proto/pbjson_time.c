// SPDX-License-Identifier: Apache-2.0
#include "proto/pbjson.h"
#include "proto/text.h"

#include <errno.h>
#include <string.h>

enum { DAY = 24 * 60 * 60, NANOS = 1000000000 };
// The years 1 to 9999, which proto3 JSON can say.
#define SECONDS_MIN INT64_C(-62135596800)
#define SECONDS_MAX INT64_C(253402300799)
// From 0000-03-01 to 0001-01-01.
#define DAYS_MIN 306

// Days since 1970-01-01 of a date. Years begin in March here, so that the leap day is the last one.
static int64_t days_of(int64_t y, int64_t month, int64_t day)
{
	int64_t m = (month + 9) % 12, since = y - (month <= 2);
	return 365 * since + since / 4 - since / 100 + since / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

static int64_t month_length(int64_t y, int64_t month)
{
	return days_of(month == 12 ? y + 1 : y, month == 12 ? 1 : month + 1, 1) - days_of(y, month, 1);
}

struct scan {
	const char *p, *end;
};

// Exactly N digits within MIN..MAX.
static bool digits(struct scan *s, size_t n, long long min, long long max, int64_t *v)
{
	long long value;
	if ((size_t)(s->end - s->p) < n || *s->p == '-' || text_int(s->p, n, min, max, &value) < 0)
		return false;
	s->p += n;
	*v = value;
	return true;
}

static bool mark(struct scan *s, char c)
{
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

static bool fraction(struct scan *s, int32_t *nanos)
{
	int32_t unit = NANOS / 10;
	*nanos = 0;
	if (!mark(s, '.'))
		return true;
	const char *from = s->p;
	for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++) {
		if (unit == 0)
			return false;
		*nanos += (*s->p - '0') * unit;
		unit /= 10;
	}
	return s->p > from;
}

static bool zone(struct scan *s, int64_t *offset)
{
	int64_t h, m;
	*offset = 0;
	if (mark(s, 'Z'))
		return true;
	int64_t sign = mark(s, '-') ? -1 : 1;
	if (sign > 0 && !mark(s, '+'))
		return false;
	if (!digits(s, 2, 0, 23, &h) || !mark(s, ':') || !digits(s, 2, 0, 59, &m))
		return false;
	*offset = sign * (h * 3600 + m * 60);
	return true;
}

int pbjson_time_read(const char *p, size_t n, int64_t *seconds, int32_t *nanos)
{
	struct scan s = {p, p + n};
	int64_t y, mon, d, h, min, sec, offset;
	bool date = digits(&s, 4, 1, 9999, &y) && mark(&s, '-') && digits(&s, 2, 1, 12, &mon) && mark(&s, '-') &&
		    digits(&s, 2, 1, month_length(y, mon), &d);
	if (!date || !mark(&s, 'T'))
		return -EINVAL;
	bool time = digits(&s, 2, 0, 23, &h) && mark(&s, ':') && digits(&s, 2, 0, 59, &min) && mark(&s, ':') &&
		    digits(&s, 2, 0, 59, &sec);
	if (!time || !fraction(&s, nanos) || !zone(&s, &offset) || s.p != s.end)
		return -EINVAL;
	*seconds = days_of(y, mon, d) * DAY + h * 3600 + min * 60 + sec - offset;
	return *seconds < SECONDS_MIN || *seconds > SECONDS_MAX ? -EINVAL : 0;
}

// N digits of V and what follows them. (Lists of files are full of times: printf was a fifth of their cost.)
static char *put_digits(char *to, unsigned v, size_t n, char then)
{
	for (size_t i = n; i-- > 0; v /= 10)
		to[i] = (char)('0' + v % 10);
	to[n] = then;
	return to + n + 1;
}

static char *put_two(char *to, unsigned v, char then)
{
	to[0] = (char)('0' + v / 10);
	to[1] = (char)('0' + v % 10);
	to[2] = then;
	return to + 3;
}

size_t pbjson_time_fraction(char *to, int32_t nanos)
{
	char *at = to;
	*at = 'Z';
	if (nanos <= 0)
		return 1;
	unsigned n = (unsigned)nanos, small = n % 1000, middle = n / 1000 % 1000;
	*at++ = '.';
	at = put_digits(at, n / 1000000, 3, 'Z');
	if (small || middle)
		at = put_digits(at - 1, middle, 3, 'Z');
	if (small)
		at = put_digits(at - 1, small, 3, 'Z');
	return (size_t)(at - to);
}

size_t pbjson_time_write(char *to, int64_t seconds, int32_t nanos)
{
	if (seconds < SECONDS_MIN) {
		seconds = SECONDS_MIN;
		nanos = 0;
	} else if (seconds > SECONDS_MAX) {
		seconds = SECONDS_MAX;
		nanos = NANOS - 1;
	}
	nanos = nanos < 0 ? 0 : nanos >= NANOS ? NANOS - 1 : nanos;
	int64_t left = seconds - SECONDS_MIN, days = left / DAY + DAYS_MIN;
	left %= DAY;
	// Years begin in March here too: of days since 0000-03-01, by 400 years, centuries, leap cycles and years.
	int64_t y400 = days / 146097, day = days % 146097;
	int64_t y = (day - day / 1460 + day / 36524 - day / 146096) / 365;
	day -= 365 * y + y / 4 - y / 100;
	int64_t m = (5 * day + 2) / 153, month = m < 10 ? m + 3 : m - 9;
	y += 400 * y400 + (month <= 2);
	char *at = to;
	at = put_digits(at, (unsigned)y, 4, '-');
	at = put_two(at, (unsigned)month, '-');
	at = put_two(at, (unsigned)(day - (153 * m + 2) / 5 + 1), 'T');
	at = put_two(at, (unsigned)left / 3600, ':');
	at = put_two(at, (unsigned)left / 60 % 60, ':');
	at = put_two(at, (unsigned)left % 60, 'Z') - 1;
	at += pbjson_time_fraction(at, nanos);
	*at = '\0';
	return (size_t)(at - to);
}
