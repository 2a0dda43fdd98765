// SPDX-License-Identifier: Apache-2.0
// ls: /files/list of a directory, /files/stat of what is none.
#include "daemon/ctl/ctl_priv.h"
#include "daemon/ctl/remote.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct entry {
	const json_t *o;
	struct buf name; // the bytes of the last part
};

static int by_name(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	size_t n = buf_len(&x->name), m = buf_len(&y->name);
	int rc = memcmp(buf_data(&x->name), buf_data(&y->name), n < m ? n : m);
	return rc ? rc : n < m ? -1 : n > m;
}

// KEY's bytes, from the base64 beside it if they are not UTF-8.
static void take_bytes(struct buf *out, const json_t *o, const char *key)
{
	char b64[32];
	(void)snprintf(b64, sizeof b64, "%s_b64", key);
	const json_t *raw = json_object_get(o, b64), *plain = json_object_get(o, key);
	if (json_is_string(raw) && text_b64_decode(out, json_string_value(raw), json_string_length(raw)) == 0)
		return;
	if (json_is_string(plain))
		buf_append(out, json_string_value(plain), json_string_length(plain));
}

static void last_part(struct buf *name)
{
	const unsigned char *slash = memrchr(buf_data(name), '/', buf_len(name));
	if (slash && buf_len(name) > 1)
		buf_consume(name, (size_t)(slash - buf_data(name)) + 1);
}

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

static void put_mode(struct buf *out, const json_t *o)
{
	static const char bits[] = "rwxrwxrwx";
	const char *type = text(o, "type");
	unsigned long mode = strtoul(text(o, "mode"), NULL, 8);
	char s[11] = "?---------";
	s[0] = *type == 'f' ? '-' : *type == 'd' ? 'd' : *type == 's' ? 'l' : '?';
	for (size_t i = 0; i < 9; i++)
		s[i + 1] = mode >> (8 - i) & 1 ? bits[i] : '-';
	if (mode & S_ISUID)
		s[3] = mode & S_IXUSR ? 's' : 'S';
	if (mode & S_ISGID)
		s[6] = mode & S_IXGRP ? 's' : 'S';
	if (mode & S_ISVTX)
		s[9] = mode & S_IXOTH ? 't' : 'T';
	buf_str(out, s);
}

static void put_details(struct buf *out, const json_t *o)
{
	char when[32] = "?";
	struct tm tm;
	const json_t *at = json_object_get(o, "modified");
	time_t t = (time_t)json_integer_value(at ? at : json_object_get(o, "mtime"));
	if (localtime_r(&t, &tm))
		(void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
	put_mode(out, o);
	buf_printf(out, " %6lld %6lld %10lld %s ", json_integer_value(json_object_get(o, "uid")),
		json_integer_value(json_object_get(o, "gid")), json_integer_value(json_object_get(o, "size")), when);
}

static void put_entry(struct buf *out, const struct entry *e, bool details)
{
	struct buf target;
	if (details)
		put_details(out, e->o);
	ctl_put_shown(out, (const char *)buf_data(&e->name), buf_len(&e->name));
	buf_init(&target, 0);
	if (details)
		take_bytes(&target, e->o, "symlink_target");
	if (buf_len(&target) > 0) {
		buf_str(out, " -> ");
		ctl_put_shown(out, (const char *)buf_data(&target), buf_len(&target));
	}
	if (buf_failed(&target))
		out->fail = buf_failed(&target);
	buf_release(&target);
	buf_byte(out, '\n');
}

static void put_list(struct buf *out, const json_t *files, bool details)
{
	size_t count = json_array_size(files);
	struct entry *all = calloc(count ? count : 1, sizeof *all);
	if (!all) {
		out->fail = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < count; i++) {
		all[i].o = json_array_get(files, i);
		take_bytes(&all[i].name, all[i].o, "path");
		last_part(&all[i].name);
		if (buf_failed(&all[i].name))
			out->fail = buf_failed(&all[i].name);
	}
	qsort(all, count, sizeof *all, by_name);
	for (size_t i = 0; i < count; i++) {
		put_entry(out, &all[i], details);
		buf_release(&all[i].name);
	}
	free(all);
}

static json_t *list(const struct ctl *ctl, const char *path, struct buf *text_out, struct err *e)
{
	struct buf target;
	buf_init(&target, 0);
	buf_str(&target, "/files/list?path=");
	text_percent_encode(&target, path, strlen(path));
	const char *s = buf_cstr(&target);
	json_t *doc = s ? ctl_call(ctl, "GET", s, NULL, text_out, e) : NULL;
	if (!s)
		err_sys(e, -ENOMEM, "path");
	buf_release(&target);
	return doc;
}

// A single entry: as it was asked for.
static int show_one(const struct ctl *ctl, const char *path, const json_t *o)
{
	struct buf out;
	struct entry entry = {.o = o};
	buf_init(&out, 0);
	buf_str(&entry.name, path);
	put_entry(&out, &entry, ctl->opt.details);
	buf_release(&entry.name);
	return ctl_print(&out);
}

int ctl_ls(struct ctl *ctl)
{
	struct buf out;
	struct err e;
	const char *path = ctl->count ? ctl->words[0] : ".";
	buf_init(&out, 0);
	json_t *doc = list(ctl, path, ctl->opt.json ? &out : NULL, &e);
	if (!doc && e.status == 400) { // no directory
		doc = remote_stat(ctl, path, ctl->opt.json ? &out : NULL, &e);
		if (doc && !ctl->opt.json) {
			int status = show_one(ctl, path, doc);
			jsonr_free(doc);
			return status;
		}
	}
	if (!doc) {
		buf_release(&out);
		return ctl_fail(&e);
	}
	if (ctl->opt.json)
		buf_byte(&out, '\n');
	else
		put_list(&out, json_object_get(doc, "files"), ctl->opt.details);
	jsonr_free(doc);
	return ctl_print(&out);
}
