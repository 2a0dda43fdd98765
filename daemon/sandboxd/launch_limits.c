// SPDX-License-Identifier: Apache-2.0
// What a request says about the resources of its command: "rlimits", the kernel's limits of each process, and "limits", those of
// the control group that all of the command's processes are in.
#include "daemon/limits.h"
#include "daemon/sandboxd/sandboxd.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MEMORY_MIN ((int64_t)1 << 20)
#define MEMORY_MAX ((int64_t)1 << 53)
#define PIDS_MAX ((int64_t)1 << 22)
#define CPUS_MIN 0.01
#define CPUS_MAX 1024.

// A number from 0 to 2^63 - 1, or "unlimited".
static bool read_value(const json_t *v, uint64_t *out)
{
	if (json_is_integer(v) && json_integer_value(v) >= 0) {
		*out = (uint64_t)json_integer_value(v);
		return true;
	}
	if (json_is_real(v)) {
		double d = json_real_value(v);
		bool whole = d >= 0 && d < 0x1p63 && floor(d) == d;
		*out = whole ? (uint64_t)d : 0;
		return whole;
	}
	*out = RLIM_INFINITY;
	return json_is_string(v) && strcmp(json_string_value(v), "unlimited") == 0;
}

// A value of both limits, or [soft, hard].
static int read_rlimit(struct limits *l, const char *key, const json_t *v, struct err *e)
{
	uint64_t soft, hard;
	int resource = limits_find(key, strlen(key));
	if (resource < 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "rlimits: %.64s is not the name of a limit", key);
	bool pair = json_is_array(v) && json_array_size(v) == 2;
	if (!read_value(pair ? json_array_get(v, 0) : v, &soft) || !read_value(pair ? json_array_get(v, 1) : v, &hard))
		return err_set(e, ERR_INVALID_ARGUMENT,
			"rlimits.%s must be a number, \"unlimited\", or [soft, hard] of these", key);
	if (limits_put(l, resource, soft, hard) < 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "rlimits.%s: soft limit above the hard limit", key);
	return 0;
}

static int read_rlimits(struct launch *l, struct err *e)
{
	const json_t *obj = NULL;
	const char *key;
	json_t *v;
	if (jsonr_obj(l->doc, "rlimits", 0, &obj, e) < 0)
		return -1;
	json_object_foreach((json_t *)obj, key, v)
	{
		if (read_rlimit(&l->limits, key, v, e) < 0)
			return -1;
	}
	if (l->limits.set)
		l->spec.run.limits = &l->limits;
	return 0;
}

static int read_bounds(struct launch *l, struct err *e)
{
	static const char *const known[] = {"memory", "cpus", "pids"};
	const json_t *obj = NULL;
	struct cgroup_bounds *b = &l->spec.bounds;
	int64_t memory = 0, pids = 0;
	const char *key;
	json_t *v;
	if (jsonr_obj(l->doc, "limits", 0, &obj, e) < 0)
		return -1;
	json_object_foreach((json_t *)obj, key, v)
	{
		(void)v;
		if (strcmp(key, known[0]) != 0 && strcmp(key, known[1]) != 0 && strcmp(key, known[2]) != 0)
			return err_set(e, ERR_INVALID_ARGUMENT, "limits: %.64s is not one of memory, cpus, pids", key);
	}
	if (obj && (jsonr_int(obj, known[0], 0, MEMORY_MIN, MEMORY_MAX, &memory, e) < 0 ||
			   jsonr_num(obj, known[1], 0, CPUS_MIN, CPUS_MAX, &b->cpus, e) < 0 ||
			   jsonr_int(obj, known[2], 0, 1, PIDS_MAX, &pids, e) < 0)) {
		struct err inner = *e;
		return err_set(e, ERR_INVALID_ARGUMENT, "limits.%s", inner.msg);
	}
	b->memory = (uint64_t)memory;
	b->pids = (uint64_t)pids;
	return 0;
}

int launch_limits(struct launch *l, struct err *e)
{
	return read_rlimits(l, e) < 0 ? -1 : read_bounds(l, e);
}

int launch_limits_missing(const struct launch *l, const struct sandboxd *s, struct err *e)
{
	const struct cgroup_bounds *b = &l->spec.bounds;
	const struct cgroup_state *have = s->cgroups;
	if (!have)
		return err_http(e, 501, ERR_UNIMPLEMENTED,
			"limits: there is no control group to put the command into (see --cgroup)");
	const char *which = b->memory && !have->memory ? "memory" : b->cpus > 0 && !have->cpu ? "cpus" : "pids";
	return err_http(e, 501, ERR_UNIMPLEMENTED,
		"limits: %s cannot be limited: the control group %.128s has no such controller", which, have->path);
}
