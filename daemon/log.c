// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // gmtime_r
#include "daemon/log.h"

#include "daemon/io.h"
#include "proto/text.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// At most PIPE_BUF: a pipe that poll calls writable then takes the line whole, without blocking and unmixed.
#define LINE_SIZE 4096
#define CUT "..."
// Room that text leaves at a line's end: the mark of a cut, JSON's closing `"}`, the newline.
#define TAIL_SIZE (sizeof(CUT) - 1 + 3)

static struct {
	enum log_level level;
	bool json;
	uint64_t lost; // lines that no written line has told of yet
	uint64_t lost_ever;
} state = {LOG_INFO, false, 0, 0};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

struct line {
	char p[LINE_SIZE];
	size_t n;
	bool cut;
	bool quoted; // within the quotes of a text line's field
};

void log_setup(enum log_level level, bool json)
{
	state.level = level;
	state.json = json;
}

// Appends N bytes, or nothing but the mark of a cut, after which nothing is appended any more.
static void put(struct line *l, const char *s, size_t n)
{
	if (l->cut)
		return;
	l->cut = n > sizeof(l->p) - TAIL_SIZE - l->n;
	if (l->cut) {
		s = CUT;
		n = sizeof(CUT) - 1;
	}
	memcpy(l->p + l->n, s, n);
	l->n += n;
}

// The end of a line goes into the room that put left free.
static void put_end(struct line *l, const char *s)
{
	size_t n = strlen(s);
	memcpy(l->p + l->n, s, n);
	l->n += n;
}

__attribute__((format(printf, 2, 3))) static void put_format(struct line *l, const char *fmt, ...)
{
	char text[128];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n > 0)
		put(l, text, strnlen(text, sizeof(text)));
}

// Bytes of the UTF-8 character that starts at S with N bytes left; 0 if it is none.
static size_t char_len(const unsigned char *s, size_t n)
{
	size_t len = *s < 0x80 ? 1 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;
	return len <= n && text_utf8_valid(s, len) ? len : 0;
}

// One character of LEN bytes (0: a byte outside UTF-8), such that neither a terminal nor a JSON reader trips over it.
static void put_char(struct line *l, const unsigned char *s, size_t len)
{
	static const char named[] = "\bb\tt\nn\ff\rr";
	const char *name = *s && *s < 0x20 ? strchr(named, *s) : NULL;
	bool c1 = len == 2 && s[0] == 0xc2 && s[1] < 0xa0;
	if (len == 0 && state.json)
		put(l, "\xef\xbf\xbd", 3);
	else if (len == 0)
		put_format(l, "\\x%02x", (unsigned)*s);
	else if (name)
		put_format(l, "\\%c", name[1]);
	else if (*s < 0x20 || *s == 0x7f || c1)
		put_format(l, state.json ? "\\u%04x" : "\\x%02x", (unsigned)s[len - 1]);
	else if ((state.json || l->quoted) && (*s == '"' || *s == '\\'))
		put_format(l, "\\%c", *s);
	else
		put(l, (const char *)s, len);
}

static void put_bytes(struct line *l, const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;
	while (n > 0 && !l->cut) {
		size_t len = char_len(s, n);
		put_char(l, s, len);
		len = len > 0 ? len : 1;
		s += len;
		n -= len;
	}
}

static void put_text(struct line *l, const char *text)
{
	put_bytes(l, text, strlen(text));
}

static void put_time(struct line *l)
{
	int64_t ms = io_wall_ms();
	time_t sec = (time_t)(ms / 1000);
	struct tm tm = {0};
	gmtime_r(&sec, &tm);
	put_format(l, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
		tm.tm_min, tm.tm_sec, (int)(ms % 1000));
}

// Writes the line if stderr takes it at once, else counts it. Not O_NONBLOCK: others share the open description.
static bool emit(struct line *l)
{
	put_end(l, "\n");
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
	size_t done = 0;
	// Anything beside POLLOUT is an error or a reader that has gone, where a write may bring SIGPIPE.
	while (done < l->n && IO_AGAIN(poll(&p, 1, 0)) == 1 && p.revents == POLLOUT) {
		ssize_t n = io_write(p.fd, l->p + done, l->n - done);
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	state.lost += done < l->n;
	state.lost_ever += done < l->n;
	return done == l->n;
}

// A text of a text line needs quotes if without them it would look like something else.
static bool needs_quotes(const char *s)
{
	return !*s || strpbrk(s, " \"=\\");
}

static void put_field(struct line *l, const struct log_field *f)
{
	// The worst case of an escaped byte is six: a field that is begun is never cut, or the line would be no JSON.
	if (sizeof(l->p) - TAIL_SIZE - l->n < (f->text ? 6 * LOG_TEXT_MAX : 0) + strlen(f->key) + 32)
		return;
	bool quotes = f->text && (state.json || needs_quotes(f->text));
	put_format(l, state.json ? ",\"%s\":" : " %s=", f->key);
	if (!f->text)
		put_format(l, "%lld", (long long)f->number);
	put(l, "\"", quotes);
	l->quoted = quotes;
	if (f->text)
		put_bytes(l, f->text, strnlen(f->text, LOG_TEXT_MAX));
	l->quoted = false;
	put(l, "\"", quotes);
}

static void put_fields(struct line *l, const struct log_field *fields, size_t count)
{
	for (size_t i = 0; i < count; i++)
		put_field(l, &fields[i]);
}

struct words {
	const char *event, *msg;
	const struct log_field *fields;
	size_t count;
};

static void compose(struct line *l, enum log_level level, const struct words *w)
{
	put(l, "{\"t\":\"", state.json ? 6 : 0);
	put_time(l);
	put_format(l, state.json ? "\",\"level\":\"%s\",\"event\":\"" : " %s ", level_names[level]);
	put_text(l, w->event);
	put_format(l, state.json ? "\"" : ": ");
	if (state.lost > 0)
		put_format(l, state.json ? ",\"lost\":%llu" : "(%llu lines lost) ", (unsigned long long)state.lost);
	if (state.json)
		put_fields(l, w->fields, w->count); // before the message, which may be cut
	if (state.json)
		put_format(l, ",\"msg\":\"");
	put_text(l, w->msg);
	if (state.json)
		put_end(l, "\"}");
	else
		put_fields(l, w->fields, w->count);
}

static void write_line(enum log_level level, const struct words *w)
{
	struct line l;
	l.n = 0;
	l.cut = l.quoted = false;
	compose(&l, level, w);
	if (emit(&l))
		state.lost = 0;
}

void log_line(enum log_level level, const char *event, const char *fmt, ...)
{
	if (level > state.level)
		return;
	int saved = errno;
	char msg[LINE_SIZE]; // what does not fit here would not fit into the line either
	va_list ap;
	va_start(ap, fmt);
	if (vsnprintf(msg, sizeof(msg), fmt, ap) < 0)
		msg[0] = '\0';
	va_end(ap);
	write_line(level, &(struct words){event, msg, NULL, 0});
	errno = saved;
}

void log_record(const char *event, const char *msg, const struct log_field *fields, size_t count)
{
	int saved = errno;
	write_line(LOG_INFO, &(struct words){event, msg, fields, count});
	errno = saved;
}

uint64_t log_lost(void)
{
	return state.lost_ever;
}

void log_plain(const char *fmt, ...)
{
	int saved = errno;
	char msg[LINE_SIZE];
	va_list ap;
	va_start(ap, fmt);
	if (vsnprintf(msg, sizeof(msg), fmt, ap) < 0)
		msg[0] = '\0';
	va_end(ap);
	struct line l;
	l.n = 0;
	l.cut = l.quoted = false;
	const char *s = msg;
	for (size_t n = strlen(msg); n > 0 && !l.cut;) {
		size_t len = char_len((const unsigned char *)s, n);
		len = len > 0 ? len : 1;
		put(&l, s, len);
		s += len;
		n -= len;
	}
	emit(&l); // the lines lost before are for an ordinary line to tell
	errno = saved;
}
