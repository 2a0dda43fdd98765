// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/ctl_priv.h"
#include "daemon/io.h"
#include "proto/frame.h"
#include "proto/text.h"

#include <errno.h>
#include <string.h>

#define FRAME_MAX ((size_t)1024 * 1024)
// For a large tree to be taken in.
#define HEAD_NS 600000000000ll
#define FOREVER_NS (INT64_MAX / 2)

struct watching {
	const struct ctl *ctl;
	const char *path;
	struct http_client c;
	struct frame_reader frames;
	bool failed; // the answer is an error
	bool begun;
	bool ended;
};

static void put_name(struct buf *out, const json_t *doc)
{
	const json_t *raw = json_object_get(doc, "name_b64"), *plain = json_object_get(doc, "name");
	struct buf name;
	buf_init(&name, 0);
	if (json_is_string(raw))
		(void)text_b64_decode(&name, json_string_value(raw), json_string_length(raw));
	else if (json_is_string(plain))
		buf_append(&name, json_string_value(plain), json_string_length(plain));
	ctl_put_shown(out, (const char *)buf_data(&name), buf_len(&name));
	buf_release(&name);
}

static const char *kind(int64_t type)
{
	static const char *const words[] = {"?", "create", "write", "remove", "rename", "chmod"};
	return words[type >= 1 && type <= 5 ? type : 0];
}

// 0, 1 if stdout is gone, -1 with E filled.
static int show(struct watching *w, const json_t *doc, const struct buf *text, struct err *e)
{
	struct buf out;
	const char *message = json_string_value(json_object_get(doc, "error"));
	const char *code = json_string_value(json_object_get(doc, "code"));
	buf_init(&out, 0);
	if (json_object_get(doc, "watcher_id")) {
		w->begun = true;
		if (!w->ctl->opt.quiet)
			ctl_say("watching %s", w->path);
		return 0;
	}
	if (message)
		return err_set(e, http_client_code(code), "%s", message);
	w->ended = json_is_true(json_object_get(doc, "ended"));
	if (w->ctl->opt.json) {
		buf_append(&out, buf_data(text), buf_len(text));
		buf_byte(&out, '\n');
	} else if (json_object_get(doc, "type")) {
		buf_printf(&out, "%-6s ", kind(json_integer_value(json_object_get(doc, "type"))));
		put_name(&out, doc);
		buf_byte(&out, '\n');
	} else if (json_is_true(json_object_get(doc, "overflow"))) {
		ctl_say("events were lost: there were too many at once");
	} else if (w->ended && !w->ctl->opt.quiet) {
		ctl_say("%s is gone", w->path);
	}
	return ctl_print(&out) == CTL_OK ? 0 : 1;
}

static int take_frames(struct watching *w, struct err *e)
{
	struct buf *body = &w->c.body;
	while (buf_len(body) > 0 && !w->ended) {
		const struct buf *ev;
		size_t used = 0;
		int rc = frame_reader_feed(&w->frames, buf_data(body), buf_len(body), &used, &ev);
		if (rc < 0)
			return err_sys(e, rc, "stream");
		if (rc == 1) {
			json_t *doc = jsonr_parse(buf_data(ev), buf_len(ev), e);
			rc = doc ? show(w, doc, ev, e)
				 : err_set(e, ERR_INTERNAL, "a frame of the stream is not understood");
			jsonr_free(doc);
			if (rc)
				return rc;
		}
		buf_consume(body, used);
	}
	return 0;
}

// 0 to go on, 1 at the end, -1 with E filled.
static int step(struct watching *w, int64_t head_by, struct err *e)
{
	int rc;
	switch (http_client_step(&w->c, e)) {
	case HTTP_CLIENT_WAIT:
		return http_client_wait(&w->c, w->begun ? io_mono_ns() + FOREVER_NS : head_by, e);
	case HTTP_CLIENT_HEAD:
		w->failed = http_client_status(&w->c) != 200;
		return 0;
	case HTTP_CLIENT_BODY:
		rc = w->failed ? 0 : take_frames(w, e);
		return rc == 0 && w->ended ? 1 : rc;
	case HTTP_CLIENT_END:
		if (w->failed)
			http_client_error(&w->c, e);
		else
			err_set(e, ERR_UNAVAILABLE, "the stream has ended");
		return -1;
	default:
		return -1;
	}
}

int ctl_watch(struct ctl *ctl)
{
	struct watching w = {.ctl = ctl, .path = ctl->words[0]};
	struct buf target;
	struct err e;
	int rc = -1;
	buf_init(&target, 0);
	buf_str(&target, "/watch/stream?path=");
	text_percent_encode(&target, w.path, strlen(w.path));
	buf_str(&target, ctl->opt.recursive ? "&recursive=true" : "");
	http_client_init(&w.c, &ctl->target);
	frame_reader_init(&w.frames, FRAME_MAX);
	if (!buf_cstr(&target))
		err_sys(&e, -ENOMEM, "path");
	else
		rc = http_client_begin(&w.c, "GET", buf_cstr(&target), NULL, &e);
	int64_t head_by = io_mono_ns() + HEAD_NS;
	while (rc == 0)
		rc = step(&w, head_by, &e);
	frame_reader_release(&w.frames);
	http_client_release(&w.c);
	buf_release(&target);
	if (rc > 0)
		return w.ended ? CTL_OK : CTL_FAILED;
	return ctl_fail(&e);
}
