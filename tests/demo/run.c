// SPDX-License-Identifier: Apache-2.0
#include "tests/demo/demo.h"

#include "proto/text.h"

#include <string.h>

// One frame into R: false at the end, in whatever way it came.
static bool take(struct client *c, struct run *r, bool show)
{
	struct event e = {0};
	int rc = client_event(c, &e);
	if (rc <= 0) {
		r->status = rc < 0 ? rc : 200;
		event_release(&e);
		return false;
	}
	if (show)
		demo_note("data: %s", e.text);
	if (e.kind == EVENT_PID)
		r->pid = e.pid;
	if (e.kind == EVENT_DATA)
		buf_append(&r->out[e.channel], buf_data(&e.data), buf_len(&e.data));
	r->done = r->done || e.kind == EVENT_DONE;
	if (e.kind == EVENT_EXIT || e.kind == EVENT_ERROR) {
		event_release(&r->end);
		r->end = e;
		r->ended = true;
		return true;
	}
	event_release(&e);
	return true;
}

void run_collect(struct client *c, struct run *r, bool show)
{
	while (take(c, r, show))
		;
}

bool run_until(struct client *c, struct run *r, enum frame_channel ch, const char *text)
{
	while (!memmem(buf_data(&r->out[ch]), buf_len(&r->out[ch]), text, strlen(text)))
		if (r->ended || !take(c, r, false))
			return false;
	return true;
}

const char *run_text(struct run *r, enum frame_channel ch)
{
	const char *s = buf_cstr(&r->out[ch]);
	return s ? s : "(no memory)";
}

void run_release(struct run *r)
{
	for (size_t i = 0; i < FRAME_CHANNELS; i++)
		buf_release(&r->out[i]);
	event_release(&r->end);
	*r = (struct run){0};
}

bool run_feed(const struct demo *d, int pid, const void *p, size_t n, bool closing)
{
	struct client c;
	struct buf b64 = {0};
	text_b64_encode(&b64, p, n);
	const char *text = buf_cstr(&b64);
	int status = demo_open(d, &c);
	if (status == 0 && text)
		status = client_post(&c, "/exec/stdin", "{s:i,s:s}", "pid", pid, "data", text);
	if (status == 200 && closing)
		status = client_post(&c, "/exec/stdin/close", "{s:i}", "pid", pid);
	client_close(&c);
	buf_release(&b64);
	return status == 200;
}
