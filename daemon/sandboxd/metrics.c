// SPDX-License-Identifier: Apache-2.0
// GET /metrics: what is counted (daemon/metrics.h) and what there is to see now, as Prometheus reads it (text format 0.0.4).
#include "daemon/metrics.h"

#include "daemon/core/store.h"
#include "daemon/core/watch.h"
#include "daemon/log.h"
#include "daemon/net/conn.h"
#include "daemon/sandboxd/sandboxd.h"

#include <string.h>

#define CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

// What is counted only when somebody asks.
struct look {
	uint64_t running[METRICS_KINDS], readers;
	uint64_t conns[METRICS_SURFACES][8], streams[METRICS_SURFACES];
	const struct metrics *m;
};

static const char *const surfaces[METRICS_SURFACES] = {"sandboxd", "envd"};
static const char *const states[] = {"idle", "head", "body", "handler", "stream", "close"};
enum { STATES = sizeof states / sizeof *states };

static void look_at_conn(void *arg, const struct conn_info *c)
{
	struct look *l = arg;
	size_t s = c->table->counts == &l->m->surface[METRICS_B] ? METRICS_B : METRICS_A;
	l->streams[s] += c->streams;
	for (size_t i = 0; i < STATES; i++)
		l->conns[s][i] += strcmp(c->state, states[i]) == 0;
}

static void look(struct look *l, const struct sandboxd *s)
{
	*l = (struct look){.m = s->metrics};
	for (const struct proc *p = procs_first(s->procs); p; p = proc_next(p)) {
		l->running[proc_counted_as(p)]++;
		l->readers += output_readers(proc_output(p));
	}
	for (const struct proc *p = procs_first_ended(s->procs); p; p = proc_next(p))
		l->readers += output_readers(proc_output(p));
	net_each(s->net, look_at_conn, l);
}

// --- lines ---

static void family(struct buf *out, enum metrics_family f)
{
	const struct metrics_info *i = metrics_info(f);
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", i->name, i->help, i->name, i->type);
}

// Nanoseconds as seconds: exact, for a double is not.
static void put_ns(struct buf *out, uint64_t ns)
{
	buf_printf(out, "%llu.%09llu", (unsigned long long)(ns / 1000000000), (unsigned long long)(ns % 1000000000));
}

static void plain(struct buf *out, enum metrics_family f, uint64_t v)
{
	family(out, f);
	buf_printf(out, "%s %llu\n", metrics_info(f)->name, (unsigned long long)v);
}

static void seconds(struct buf *out, enum metrics_family f, uint64_t ns)
{
	family(out, f);
	buf_printf(out, "%s ", metrics_info(f)->name);
	put_ns(out, ns);
	BUF_LIT(out, "\n");
}

// Labels' values are our own words: nothing in them is to be escaped.
static void sample(struct buf *out, enum metrics_family f, const char *label, const char *value, uint64_t v)
{
	buf_printf(out, "%s{%s=\"%s\"} %llu\n", metrics_info(f)->name, label, value, (unsigned long long)v);
}

static void sample2(
	struct buf *out, enum metrics_family f, const char *const labels[2], const char *const values[2], uint64_t v)
{
	buf_printf(out, "%s{%s=\"%s\",%s=\"%s\"} %llu\n", metrics_info(f)->name, labels[0], values[0], labels[1],
		values[1], (unsigned long long)v);
}

static void histogram(struct buf *out, enum metrics_family f, const struct metrics_histogram *h)
{
	const char *name = metrics_info(f)->name;
	uint64_t all = 0;
	family(out, f);
	for (size_t i = 0; i < METRICS_BUCKETS; i++) {
		all += h->bucket[i];
		buf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, (double)metrics_bound(i) / 1e9,
			(unsigned long long)all);
	}
	all += h->bucket[METRICS_BUCKETS];
	buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum ", name, (unsigned long long)all, name);
	put_ns(out, h->sum_ns);
	buf_printf(out, "\n%s_count %llu\n", name, (unsigned long long)all);
}

// --- the page ---

static void put_daemon(struct buf *out, const struct sandboxd *s)
{
	struct store_deaths d;
	store_deaths(s->store, &d);
	family(out, METRICS_BUILD);
	buf_printf(out, "%s{version=\"" CONFIG_VERSION "\"} 1\n", metrics_info(METRICS_BUILD)->name);
	seconds(out, METRICS_START_TIME, (uint64_t)s->metrics->since_ms * 1000000);
	seconds(out, METRICS_DAEMON_START, (uint64_t)s->started_ms * 1000000);
	plain(out, METRICS_RESTARTS, d.restarts);
	plain(out, METRICS_UPGRADES, d.upgrades);
}

static void put_commands(struct buf *out, const struct sandboxd *s, const struct look *l)
{
	static const char *const labels[2] = {"kind", "end"};
	const struct metrics *m = s->metrics;
	family(out, METRICS_STARTED);
	for (int k = 0; k < METRICS_KINDS; k++)
		sample(out, METRICS_STARTED, "kind", metrics_kind((enum metrics_kind)k), m->started[k]);
	family(out, METRICS_FAILED);
	for (int i = SPAWN_PREPARE; i < METRICS_STEPS; i++)
		sample(out, METRICS_FAILED, "step", proc_step_name(i), m->failed[i]);
	family(out, METRICS_ENDED);
	for (int k = 0; k < METRICS_KINDS; k++) {
		for (int e = 0; e < METRICS_ENDS; e++)
			sample2(out, METRICS_ENDED, labels,
				(const char *[]){metrics_kind((enum metrics_kind)k), metrics_end((enum metrics_end)e)},
				m->ended[k][e]);
	}
	family(out, METRICS_RUNNING);
	for (int k = 0; k < METRICS_KINDS; k++)
		sample(out, METRICS_RUNNING, "kind", metrics_kind((enum metrics_kind)k), l->running[k]);
	plain(out, METRICS_KEPT, procs_ended(s->procs));
	plain(out, METRICS_COMMANDS_MAX, s->config->max_procs);
	family(out, METRICS_COMMAND_BYTES);
	for (int i = 0; i < METRICS_CHANNELS; i++)
		sample(out, METRICS_COMMAND_BYTES, "channel", metrics_channel((enum metrics_channel)i), m->bytes[i]);
	histogram(out, METRICS_SPAWN, &m->spawn);
	plain(out, METRICS_READERS, l->readers);
	plain(out, METRICS_CUT, m->readers_cut);
}

static void by_surface(struct buf *out, enum metrics_family f, uint64_t a, uint64_t b)
{
	family(out, f);
	sample(out, f, "surface", surfaces[METRICS_A], a);
	sample(out, f, "surface", surfaces[METRICS_B], b);
}

static void put_requests(struct buf *out, const struct metrics *m)
{
	static const char *const labels[2] = {"surface", "code"};
	static const char *const classes[] = {NULL, NULL, "2xx", "3xx", "4xx", "5xx"};
	family(out, METRICS_REQUESTS);
	for (int s = 0; s < METRICS_SURFACES; s++) {
		for (int i = 2; i < 6; i++)
			sample2(out, METRICS_REQUESTS, labels, (const char *[]){surfaces[s], classes[i]},
				m->surface[s].answers[i]);
	}
}

static void put_conns(struct buf *out, const struct sandboxd *s, const struct look *l)
{
	static const char *const labels[2] = {"surface", "state"};
	const struct metrics_surface *a = &s->metrics->surface[METRICS_A], *b = &s->metrics->surface[METRICS_B];
	put_requests(out, s->metrics);
	by_surface(out, METRICS_STREAMS, a->streams, b->streams);
	by_surface(out, METRICS_STREAMS_OPEN, l->streams[METRICS_A], l->streams[METRICS_B]);
	family(out, METRICS_CONNECTIONS);
	for (int i = 0; i < METRICS_SURFACES; i++) {
		for (int j = 0; j < STATES; j++)
			sample2(out, METRICS_CONNECTIONS, labels, (const char *[]){surfaces[i], states[j]},
				l->conns[i][j]);
	}
	plain(out, METRICS_CONNECTIONS_MAX, net_max_conns(s->net));
	by_surface(out, METRICS_ACCEPTED, a->accepted, b->accepted);
	by_surface(out, METRICS_REFUSED, a->refused, b->refused);
	by_surface(out, METRICS_RECEIVED, a->received, b->received);
	by_surface(out, METRICS_SENT, a->sent, b->sent);
}

static size_t watchers(const struct watches *ws)
{
	size_t n = 0;
	for (const struct watcher *w = watches_first(ws); w; w = watcher_after(w))
		n++;
	return n;
}

static void put_rest(struct buf *out, const struct sandboxd *s)
{
	struct metrics_self self;
	metrics_self(&self);
	plain(out, METRICS_WATCHERS, watchers(s->watches));
	plain(out, METRICS_WATCH_DIRS, watches_nodes(s->watches));
	plain(out, METRICS_WATCH_LOST, s->metrics->watch_lost);
	histogram(out, METRICS_TURN, &s->metrics->turn);
	plain(out, METRICS_RSS, self.rss);
	seconds(out, METRICS_CPU, self.cpu_ns);
	plain(out, METRICS_FDS, self.fds);
	plain(out, METRICS_FDS_MAX, self.fds_max);
	plain(out, METRICS_LOG_LOST, log_lost());
}

void sandboxd_metrics(void *ctx, struct conn *c)
{
	const struct sandboxd *s = ctx;
	struct look l;
	struct buf out;
	buf_init(&out, 0);
	look(&l, s);
	put_daemon(&out, s);
	put_commands(&out, s, &l);
	put_conns(&out, s, &l);
	put_rest(&out, s);
	conn_reply(c, 200, CONTENT_TYPE, NULL, &out);
	buf_release(&out);
}
