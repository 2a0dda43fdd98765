// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/ctl_priv.h"
#include "daemon/io.h"

#include <string.h>
#include <time.h>

// One that does not answer for so long is not ready; the next try is made soon, or later if that goes on.
#define TRY_MS 1500
#define FIRST_MS 5
#define LATER_MS 100

static void pause_ms(int64_t ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	(void)nanosleep(&t, NULL);
}

// TEXT gets the answer.
static bool try_once(const struct ctl *ctl, int64_t ms, struct buf *text, struct err *e)
{
	struct http_client c;
	http_client_init(&c, &ctl->target);
	c.limit_ms = ms;
	json_t *doc = http_client_call(&c, "POST", "/ready", NULL, e);
	const char *status = json_string_value(json_object_get(doc, "status"));
	bool ready = status && strcmp(status, "ready") == 0;
	if (doc && !ready)
		err_set(e, ERR_UNAVAILABLE, "not ready");
	if (ready)
		buf_append(text, buf_data(&c.body), buf_len(&c.body));
	jsonr_free(doc);
	http_client_release(&c);
	return ready;
}

int ctl_ready(struct ctl *ctl)
{
	struct buf text;
	struct err e;
	double seconds = 0;
	if (ctl->opt.wait && !ctl_period(ctl->opt.wait, &seconds))
		return ctl_usage(ctl, "--wait: \"%.40s\" is no time (5, 1.5s, 500ms, 2m)", ctl->opt.wait);
	buf_init(&text, 0);
	int64_t end = io_mono_ns() / 1000000 + (int64_t)(seconds * 1000), next = FIRST_MS;
	int64_t left = seconds > 0 ? (int64_t)(seconds * 1000) : TRY_MS;
	while (!try_once(ctl, left < TRY_MS ? left : TRY_MS, &text, &e)) {
		left = end - io_mono_ns() / 1000000;
		if (left <= 0) {
			if (!ctl->opt.quiet)
				ctl_say("%s (%s)", e.msg, err_word(e.code));
			return CTL_FAILED;
		}
		pause_ms(next < left ? next : left);
		next = 2 * next < LATER_MS ? 2 * next : LATER_MS;
		left = end - io_mono_ns() / 1000000;
		left = left > 0 ? left : 1;
	}
	if (!ctl->opt.json)
		buf_reset(&text);
	buf_str(&text, ctl->opt.json ? "\n" : "ready\n");
	if (!ctl->opt.quiet)
		return ctl_print(&text);
	buf_release(&text);
	return CTL_OK;
}
