// SPDX-License-Identifier: Apache-2.0
// ps and kill.
#include "daemon/ctl/ctl_priv.h"
#include "daemon/io.h"
#include "proto/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

// --- ps ---

static void put_age(char out[24], int64_t started)
{
	int64_t s;
	if (__builtin_sub_overflow(io_wall_ms() / 1000, started, &s) || s < 0) // another clock
		s = 0;
	if (s < 100)
		(void)snprintf(out, 24, "%ds", (int)s);
	else if (s < 6000)
		(void)snprintf(out, 24, "%dm%02ds", (int)(s / 60), (int)(s % 60));
	else if (s < 360000)
		(void)snprintf(out, 24, "%dh%02dm", (int)(s / 3600), (int)(s / 60 % 60));
	else
		(void)snprintf(out, 24, "%lldd", (long long)(s / 86400));
}

static void put_size(char out[24], int64_t n)
{
	static const char units[] = "KMGTPE";
	double v = (double)n;
	int unit = -1;
	for (; v >= 1000 && unit < (int)sizeof units - 2; unit++)
		v /= 1024;
	if (unit < 0)
		(void)snprintf(out, 24, "%d", (int)n);
	else
		(void)snprintf(out, 24, v < 10 ? "%.1f%c" : "%.0f%c", v, units[unit]);
}

static int64_t number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

static int64_t total(const json_t *channels)
{
	int64_t n = 0;
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)channels, key, v) if (__builtin_add_overflow(n, json_integer_value(v), &n)) n =
		INT64_MAX;
	return n;
}

// A column of WIDTH characters and a blank: a longer S is cut, but not inside a character.
static void put_column(struct buf *out, const char *s, size_t width)
{
	size_t n = 0, wide = 0;
	for (; s[n]; n++) {
		if ((s[n] & 0xc0) == 0x80)
			continue;
		if (wide == width)
			break;
		wide++;
	}
	ctl_put_shown(out, s, n);
	for (; wide <= width; wide++)
		buf_byte(out, ' ');
}

static void put_command(struct buf *out, const json_t *o)
{
	char age[24], size[24];
	const char *session = text(o, "session_id");
	put_age(age, number(o, "started_at"));
	put_size(size, total(json_object_get(o, "channel_bytes")));
	buf_printf(out, "%8lld ", (long long)number(o, "pid"));
	put_column(out, text(o, "kind"), 10);
	buf_printf(out, "%7s %6s ", age, size);
	put_column(out, *session ? session : "-", 12);
	ctl_put_shown(out, text(o, "config"), strlen(text(o, "config")));
}

static void put_process(struct buf *out, const json_t *o)
{
	buf_printf(out, "%8lld %8lld ", (long long)number(o, "pid"), (long long)number(o, "ppid"));
	put_column(out, text(o, "state"), 5);
	ctl_put_shown(out, text(o, "comm"), strlen(text(o, "comm")));
}

// As wide as the terminal; 0: as wide as it gets.
static size_t width(void)
{
	struct winsize w;
	return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

// Cuts the line that begins at START, not inside a character.
static void cut(struct buf *out, size_t start, size_t columns)
{
	const unsigned char *p = buf_data(out) + start;
	size_t n = buf_len(out) - start, at = 0, wide = 0;
	if (!columns)
		return;
	for (; at < n; at++) {
		bool inside = (p[at] & 0xc0) == 0x80;
		if (!inside && wide++ == columns)
			break;
	}
	buf_truncate(out, start + at);
}

static void put_table(struct buf *out, const struct ctl *ctl, const json_t *list)
{
	size_t i, columns = width();
	json_t *o;
	if (!ctl->opt.quiet)
		buf_str(out, ctl->opt.all ? "     PID     PPID STATE COMMAND\n"
					  : "     PID KIND           AGE OUTPUT SESSION      COMMAND\n");
	json_array_foreach(list, i, o)
	{
		size_t start = buf_len(out);
		if (ctl->opt.quiet)
			buf_i64(out, number(o, "pid"));
		else if (ctl->opt.all)
			put_process(out, o);
		else
			put_command(out, o);
		cut(out, start, columns);
		buf_byte(out, '\n');
	}
}

int ctl_ps(struct ctl *ctl)
{
	struct buf out;
	struct err e;
	buf_init(&out, 0);
	json_t *doc = ctl_call(
		ctl, "GET", ctl->opt.all ? "/processes" : "/exec/processes", NULL, ctl->opt.json ? &out : NULL, &e);
	if (!doc)
		return ctl_fail(&e);
	if (ctl->opt.json)
		buf_byte(&out, '\n');
	else
		put_table(&out, ctl, json_object_get(doc, "processes"));
	jsonr_free(doc);
	return ctl_print(&out);
}

// --- kill ---

static int kill_one(const struct ctl *ctl, struct http_client *c, long long pid, const char *sig, struct err *e)
{
	struct buf body;
	struct jsonw w;
	buf_init(&body, 0);
	jsonw_init(&w, &body);
	jsonw_obj(&w);
	jsonw_kint(&w, "pid", pid);
	jsonw_kstr(&w, "signal", sig);
	jsonw_kbool(&w, "group", !ctl->opt.no_group);
	jsonw_obj_end(&w);
	json_t *doc = http_client_call(c, "POST", "/exec/signal", &body, e);
	buf_release(&body);
	jsonr_free(doc);
	return doc ? 0 : -1;
}

int ctl_kill(struct ctl *ctl)
{
	struct http_client c;
	struct err e;
	long long pid;
	int status = CTL_OK;
	const char *sig = ctl->opt.signal ? ctl->opt.signal : "TERM";
	for (int i = 0; i < ctl->count; i++)
		if (text_int(ctl->words[i], strlen(ctl->words[i]), 1, INT_MAX, &pid) < 0)
			return ctl_usage(ctl, "\"%.40s\" is no process number", ctl->words[i]);
	http_client_init(&c, &ctl->target);
	for (int i = 0; i < ctl->count && status != CTL_LOST; i++) {
		(void)text_int(ctl->words[i], strlen(ctl->words[i]), 1, INT_MAX, &pid);
		if (kill_one(ctl, &c, pid, sig, &e) == 0)
			continue;
		status = http_client_lost(&e) ? ctl_fail(&e) : CTL_FAILED;
		if (status == CTL_FAILED)
			ctl_say("%lld: %s (%s)", pid, e.msg, err_word(e.code));
	}
	http_client_release(&c);
	return status;
}
