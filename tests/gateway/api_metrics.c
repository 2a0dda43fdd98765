// SPDX-License-Identifier: Apache-2.0
// Metrics: one sample, now: of the sandbox's processes as the gateway sees them, of its machine as its daemon does. None ([]) of one that
// is paused, or that does not say.
#include "tests/gateway/api_priv.h"

#include "daemon/io.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct metrics {
	struct conn *c;
	struct session *s;
	struct drive *drive;
	struct session_watch watch;
	int64_t start, end; // seconds since 1970, of the samples that are wanted
};

static void release(struct metrics *m)
{
	drive_cancel(m->drive);
	session_detach(&m->watch);
	free(m);
}

static void reply_none(struct conn *c)
{
	struct buf out;
	buf_init(&out, 0);
	BUF_LIT(&out, "[]");
	api_reply(c, 200, NULL, &out);
	buf_release(&out);
}

// Percent of its processors since the last sample.
static double cpu_used(struct session *s, double seconds)
{
	int64_t now = io_mono_ns();
	double used = seconds - s->cpu_seconds, time = (double)(now - s->cpu_ns) / 1e9;
	bool known = s->cpu_ns > 0 && time > 0 && used >= 0;
	s->cpu_seconds = seconds;
	s->cpu_ns = now;
	double percent = known ? used / time / api_cpus(s) * 100 : 0;
	return floor((percent > 100 ? 100 : percent) * 100 + 0.5) / 100;
}

static int64_t member(const json_t *doc, const char *key)
{
	return (int64_t)json_number_value(json_object_get(doc, key));
}

static bool put(struct buf *out, struct session *s, const struct box *b, const json_t *doc)
{
	struct jsonw w;
	long long memory = 0;
	double seconds = 0;
	int64_t now_ms = io_wall_ms(), total = (int64_t)s->size.memory_mb * 1024 * 1024;
	if (box_usage(b, &memory, &seconds) < 0)
		return false;
	jsonw_init(&w, out);
	jsonw_arr(&w);
	jsonw_obj(&w);
	api_put_time(&w, "timestamp", now_ms);
	jsonw_kint(&w, "timestampUnix", now_ms / 1000);
	jsonw_kint(&w, "cpuCount", api_cpus(s));
	jsonw_key(&w, "cpuUsedPct");
	jsonw_num(&w, cpu_used(s, seconds));
	jsonw_kint(&w, "memUsed", memory);
	jsonw_kint(&w, "memTotal", total > 0 ? total : member(doc, "mem_total"));
	jsonw_kint(&w, "memCache", member(doc, "mem_cache"));
	jsonw_kint(&w, "diskUsed", member(doc, "disk_used"));
	jsonw_kint(&w, "diskTotal", member(doc, "disk_total"));
	jsonw_obj_end(&w);
	jsonw_arr_end(&w);
	return true;
}

static void finish(struct metrics *m, const json_t *doc)
{
	struct conn *c = m->c;
	struct session *s = m->s;
	struct box *b = session_box(s);
	int64_t now = io_wall_ms() / 1000;
	bool wanted = now >= m->start && now <= m->end;
	struct buf out;
	release(m);
	buf_init(&out, 0);
	if (wanted && b && doc && put(&out, s, b, doc))
		api_reply(c, 200, NULL, &out);
	else
		reply_none(c);
	buf_release(&out);
}

static void sampled(void *arg, const json_t *doc)
{
	struct metrics *m = arg;
	m->drive = NULL;
	finish(m, doc);
}

static void gone(void *arg, const char *why)
{
	(void)why;
	finish(arg, NULL);
}

static void on_close(void *arg)
{
	release(arg);
}

static int parse_range(struct conn *c, struct metrics *m)
{
	long long start = INT64_MIN, end = INT64_MAX;
	int rc = api_query_int(c, "start", INT64_MIN, INT64_MAX, &start);
	if (rc >= 0)
		rc = api_query_int(c, "end", INT64_MIN, INT64_MAX, &end);
	m->start = start;
	m->end = end;
	return rc;
}

void api_metrics(void *ctx, struct conn *c)
{
	struct gateway *g = ctx;
	struct session *s = api_session(g, c);
	struct metrics range = {.c = c, .s = s};
	struct err e;
	if (!s || parse_range(c, &range) < 0)
		return;
	struct box *b = session_box(s);
	if (!b) {
		reply_none(c);
		return;
	}
	struct metrics *m = malloc(sizeof *m);
	if (!m) {
		err_sys(&e, -ENOMEM, "metrics");
		conn_error(c, &e);
		return;
	}
	*m = range;
	m->drive = drive_metrics(g->loop, b, s->token, sampled, m);
	if (!m->drive) {
		free(m);
		reply_none(c);
		return;
	}
	session_attach(s, &m->watch);
	m->watch.gone = gone;
	m->watch.arg = m;
	conn_on_close(c, on_close, m);
}
