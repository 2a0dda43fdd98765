// SPDX-License-Identifier: Apache-2.0
// How sessions and snapshots look to a client (contract 2.3). The SDKs demand members and refuse nulls: nothing optional is null.
#include "tests/gateway/api_priv.h"

#include <math.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define ENVD_VERSION "0.6.13" // whose wire celld speaks; opens all of the SDKs' gates

static const char client_id[] = "celld";

static int dump(const char *p, size_t n, void *arg)
{
	buf_append(arg, p, n);
	return buf_failed(arg);
}

static void put_json(struct jsonw *w, const char *key, const json_t *value)
{
	jsonw_key(w, key);
	jsonw_raw(w, "", 0);
	if (json_dump_callback(value, dump, w->out, JSON_COMPACT) < 0)
		(void)buf_reserve(w->out, SIZE_MAX); // half of it is none: the whole answer fails
}

void api_put_time(struct jsonw *w, const char *key, int64_t wall_ms)
{
	struct tm tm;
	char text[64], day[32];
	time_t t = (time_t)(wall_ms / 1000);
	gmtime_r(&t, &tm);
	strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof text, "%s.%03dZ", day, (int)(wall_ms % 1000));
	jsonw_kstr(w, key, text);
}

int api_cpus(const struct session *s)
{
	double n = s->size.cpus > 0 ? ceil(s->size.cpus) : (double)sysconf(_SC_NPROCESSORS_ONLN);
	return n < 1 ? 1 : (int)n;
}

static int64_t disk_mb(const struct session *s)
{
	struct statvfs disk;
	if (statvfs(node_root(s->g), &disk) < 0)
		return 0;
	return (int64_t)((uint64_t)disk.f_blocks * disk.f_frsize / (1024 * 1024));
}

static void put_names(struct jsonw *w, const struct session *s)
{
	jsonw_kstr(w, "templateID", s->template);
	jsonw_kstr(w, "alias", s->template);
	jsonw_kstr(w, "sandboxID", s->id);
	jsonw_kstr(w, "clientID", client_id);
	jsonw_kstr(w, "envdVersion", ENVD_VERSION);
}

static void put_access(struct jsonw *w, const struct session *s)
{
	if (s->token)
		jsonw_kstr(w, "envdAccessToken", s->token);
	jsonw_kstr(w, "domain", s->g->domain);
}

void api_put_sandbox(struct jsonw *w, const struct session *s)
{
	jsonw_obj(w);
	put_names(w, s);
	put_access(w, s);
	jsonw_obj_end(w);
}

static void put_listed(struct jsonw *w, const struct session *s)
{
	put_names(w, s);
	api_put_time(w, "startedAt", s->started_ms);
	api_put_time(w, "endAt", s->end_ms);
	jsonw_kint(w, "cpuCount", api_cpus(s));
	jsonw_kint(w, "memoryMB", s->size.memory_mb);
	jsonw_kint(w, "diskSizeMB", disk_mb(s));
	// There are only these two; one that is being copied or resumed counts as running.
	jsonw_kstr(w, "state", s->state == SESSION_PAUSED ? "paused" : "running");
	if (s->metadata)
		put_json(w, "metadata", s->metadata);
	if (s->volumes)
		put_json(w, "volumeMounts", s->volumes);
}

void api_put_listed(struct jsonw *w, const struct session *s)
{
	jsonw_obj(w);
	put_listed(w, s);
	jsonw_obj_end(w);
}

void api_put_detail(struct jsonw *w, const struct session *s)
{
	jsonw_obj(w);
	put_listed(w, s);
	put_access(w, s);
	if (s->internet >= 0)
		jsonw_kbool(w, "allowInternetAccess", s->internet);
	if (s->network)
		put_json(w, "network", s->network);
	jsonw_key(w, "lifecycle");
	jsonw_obj(w);
	jsonw_kstr(w, "onTimeout", s->auto_pause ? "pause" : "kill");
	jsonw_kbool(w, "autoResume", s->auto_resume);
	jsonw_obj_end(w);
	if (s->state == SESSION_PAUSED)
		jsonw_kstr(w, "pauseMode", s->files_only ? "filesystem" : "full");
	jsonw_obj_end(w);
}

void api_put_snapshot(struct jsonw *w, const struct snapshot *p)
{
	jsonw_obj(w);
	jsonw_kstr(w, "snapshotID", p->id);
	jsonw_key(w, "names");
	jsonw_arr(w);
	if (p->name[0])
		jsonw_cstr(w, p->name);
	jsonw_arr_end(w);
	jsonw_obj_end(w);
}

void api_reply_sandbox(struct conn *c, int status, const struct session *s)
{
	struct jsonw w;
	struct buf out;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	api_put_sandbox(&w, s);
	api_reply(c, status, NULL, &out);
	buf_release(&out);
}
