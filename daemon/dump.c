// SPDX-License-Identifier: Apache-2.0
#include "daemon/dump.h"

#include "daemon/config.h"
#include "daemon/core/proc.h"
#include "daemon/core/store.h"
#include "daemon/core/watch.h"
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/net/conn.h"
#include "daemon/net/route.h"

#include <unistd.h>

#define RECORD(event, msg, fields) log_record(event, msg, fields, sizeof(fields) / sizeof *(fields))

static int64_t ms_since(int64_t ns)
{
	return (io_mono_ns() - ns) / 1000000;
}

static void put_more(const char *what, size_t seen)
{
	if (seen <= DUMP_MAX)
		return;
	const struct log_field fields[] = {{"of", what, 0}, {"more", NULL, (int64_t)(seen - DUMP_MAX)}};
	RECORD("dump_more", "not shown", fields);
}

static void put_state(const struct dump *d)
{
	struct metrics_self self;
	struct store_deaths deaths;
	metrics_self(&self);
	store_deaths(d->store, &deaths);
	const struct log_field fields[] = {
		{"version", CONFIG_VERSION, 0},
		{"pid", NULL, getpid()},
		{"phase", d->phase, 0},
		{"uptime_ms", NULL, io_wall_ms() - d->started_ms},
		{"restarts", NULL, deaths.restarts},
		{"upgrades", NULL, deaths.upgrades},
		{"commands", NULL, (int64_t)procs_living(d->procs)},
		{"kept", NULL, (int64_t)procs_ended(d->procs)},
		{"connections", NULL, (int64_t)net_conn_count(d->net)},
		{"watched_directories", NULL, (int64_t)watches_nodes(d->watches)},
		{"memory", NULL, (int64_t)self.rss},
		{"descriptors", NULL, (int64_t)self.fds},
		{"cpu_ms", NULL, (int64_t)(self.cpu_ns / 1000000)},
		{"readers_cut", NULL, (int64_t)d->metrics->readers_cut},
		{"watch_overflows", NULL, (int64_t)d->metrics->watch_lost},
		{"log_lost", NULL, (int64_t)log_lost()},
	};
	RECORD("dump", "state", fields);
	const struct log_field limits[] = {
		{"commands", NULL, (int64_t)d->config->max_procs},
		{"connections", NULL, (int64_t)net_max_conns(d->net)},
		{"descriptors", NULL, (int64_t)self.fds_max},
		{"body", NULL, (int64_t)d->config->max_body},
		{"head", NULL, (int64_t)d->config->max_header},
		{"replay", NULL, (int64_t)d->config->replay},
	};
	RECORD("dump_limits", "limits", limits);
}

static void put_command(const struct proc *p)
{
	static const char *const states[] = {"running", "exited", "drained", "ended"};
	const struct output *o = proc_output(p);
	const char *request = proc_request(p), *session = proc_session_id(p);
	const struct log_field fields[] = {
		{"pid", NULL, proc_pid(p)},
		{"kind", metrics_kind(proc_counted_as(p)), 0},
		{"state", states[proc_state(p)], 0},
		{"ms", NULL, proc_duration_ms(p)},
		{"readers", NULL, (int64_t)output_readers(o)},
		{"stdout", NULL, (int64_t)(output_total(o, OUTPUT_STDOUT) + output_total(o, OUTPUT_PTY))},
		{"stderr", NULL, (int64_t)output_total(o, OUTPUT_STDERR)},
		{"held", NULL, (int64_t)output_held(o)},
		{"input", NULL, (int64_t)proc_input_left(p)},
		{"starved", NULL, proc_is_starved(p)},
		{"id", request ? request : "-", 0},
		{"session", session ? session : "-", 0},
		{"command", proc_command(p), 0},
	};
	RECORD("dump_command", "command", fields);
}

static void put_commands(const struct dump *d)
{
	size_t seen = 0;
	for (const struct proc *p = procs_first(d->procs); p; p = proc_next(p)) {
		if (seen++ < DUMP_MAX)
			put_command(p);
	}
	put_more("commands", seen);
}

// The idle ones are only many.
static void put_conn(void *arg, const struct conn_info *c)
{
	size_t *seen = arg;
	if (c->state[0] == 'i' || (*seen)++ >= DUMP_MAX)
		return;
	const struct log_field fields[] = {
		{"surface", c->table->name, 0},
		{"state", c->state, 0},
		{"ms", NULL, ms_since(c->since_ns)},
		{"in", NULL, (int64_t)c->in},
		{"body", NULL, (int64_t)c->body},
		{"out", NULL, (int64_t)c->out},
		{"sent", NULL, (int64_t)c->sent},
		{"blocked", NULL, c->blocked},
		{"reserve", NULL, c->reserve},
		{"id", c->request ? c->request : "-", 0},
	};
	RECORD("dump_connection", "connection", fields);
}

static void put_watches(const struct dump *d)
{
	size_t seen = 0;
	for (const struct watcher *w = watches_first(d->watches); w; w = watcher_after(w)) {
		if (seen++ >= DUMP_MAX)
			continue;
		const struct log_field fields[] = {
			{"id", NULL, (int64_t)watcher_id(w)},
			{"directories", NULL, (int64_t)watcher_nodes(w)},
			{"waiting", NULL, (int64_t)watcher_count(w)},
			{"ready", NULL, watcher_ready(w)},
			{"path", watcher_path(w), 0},
		};
		RECORD("dump_watch", "watch", fields);
	}
	put_more("watches", seen);
}

void dump_write(const struct dump *d)
{
	size_t seen = 0;
	put_state(d);
	put_commands(d);
	net_each(d->net, put_conn, &seen);
	put_more("connections", seen);
	put_watches(d);
}
