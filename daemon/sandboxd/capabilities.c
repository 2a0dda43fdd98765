// SPDX-License-Identifier: Apache-2.0
// What is in force: for whoever has to judge whether this sandbox keeps what it should.
#include "daemon/limits.h"
#include "daemon/sandboxd/sandboxd.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static void put_list(struct jsonw *w, const char *key, const char *const *list, size_t count)
{
	jsonw_key(w, key);
	jsonw_arr(w);
	for (size_t i = 0; i < count; i++)
		jsonw_cstr(w, list[i]);
	jsonw_arr_end(w);
}

// The same of a list that ends with NULL; LIST may be NULL.
static void put_names(struct jsonw *w, const char *key, const char *const *list)
{
	size_t n = 0;
	while (list && list[n])
		n++;
	put_list(w, key, list, n);
}

static void put_null(struct jsonw *w, const char *key)
{
	jsonw_key(w, key);
	jsonw_null(w);
}

static void put_caps(struct jsonw *w, uint64_t caps)
{
	jsonw_key(w, "capabilities");
	jsonw_arr(w);
	for (int bit = 0; bit < 64; bit++) {
		const char *name = caps >> bit & 1 ? confine_cap_name(bit) : NULL;
		if (name)
			jsonw_cstr(w, name);
	}
	jsonw_arr_end(w);
}

static void put_confine(struct jsonw *w, const struct config *c, const struct confine_state *s)
{
	static const char *const words[] = {
		[CONFIG_CONFINE_OFF] = "off", [CONFIG_CONFINE_ON] = "on", [CONFIG_CONFINE_REQUIRE] = "require"};
	jsonw_kstr(w, "confine", words[c->confine]);
	jsonw_kbool(w, "no_new_privs", s && s->no_new_privs);
	if (s && s->caps != UINT64_MAX)
		put_caps(w, s->caps);
	else
		put_null(w, "capabilities");
	if (s && s->landlock > 0) {
		jsonw_key(w, "landlock");
		jsonw_obj(w);
		jsonw_kint(w, "abi", s->landlock);
		put_names(w, "writable", s->writable);
		put_names(w, "read_only", s->readable);
		jsonw_obj_end(w);
	} else {
		put_null(w, "landlock");
	}
	if (s && s->seccomp) {
		jsonw_key(w, "seccomp");
		jsonw_obj(w);
		put_names(w, "denied", s->denied);
		jsonw_obj_end(w);
	} else {
		put_null(w, "seccomp");
	}
	put_names(w, "missing", s ? s->missing : NULL);
}

static void put_limit(struct jsonw *w, rlim_t v)
{
	if (v == RLIM_INFINITY)
		jsonw_cstr(w, "unlimited");
	else
		jsonw_int(w, (int64_t)v);
}

static void put_rlimits(struct jsonw *w, const struct limits *l)
{
	// None but those that are asked for dump core.
	jsonw_kbool(w, "core_dumps", (l->set & 1u << RLIMIT_CORE) && l->value[RLIMIT_CORE].rlim_cur > 0);
	jsonw_key(w, "rlimits");
	jsonw_obj(w);
	for (int i = 0; i < LIMITS_COUNT; i++) {
		if (!(l->set & 1u << i))
			continue;
		jsonw_key(w, limits_name(i));
		jsonw_arr(w);
		put_limit(w, l->value[i].rlim_cur);
		put_limit(w, l->value[i].rlim_max);
		jsonw_arr_end(w);
	}
	jsonw_obj_end(w);
}

// Kernels before 5.14 cannot.
static bool can_kill(const char *group)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/cgroup.kill", group);
	return n > 0 && (size_t)n < sizeof path && access(path, W_OK) == 0;
}

static void put_cgroup(struct jsonw *w, const struct cgroup_state *s)
{
	if (!s) {
		put_null(w, "cgroup");
		return;
	}
	jsonw_key(w, "cgroup");
	jsonw_obj(w);
	jsonw_kstr(w, "path", s->path);
	jsonw_kbool(w, "kill", can_kill(s->path));
	jsonw_kbool(w, "memory", s->memory);
	jsonw_kbool(w, "cpu", s->cpu);
	jsonw_kbool(w, "pids", s->pids);
	jsonw_obj_end(w);
}

// Commands cannot come back through a port as somebody else. A unix socket keeps out those that are not its owner (nor root).
static bool trust_boundary(const struct sandboxd *s)
{
	struct user user = {0};
	if (s->config->token)
		return true;
	if (!s->local_only)
		return false;
	bool apart = users_find(s->users, s->config->user, &user) == 0 && user.uid != 0 && user.uid != geteuid();
	user_release(&user);
	return apart;
}

static void put_seconds(struct jsonw *w, double v)
{
	if (floor(v) == v)
		jsonw_int(w, (int64_t)v); // 30, where a real would be 3e+01
	else
		jsonw_num(w, v);
}

static void put_limits(struct jsonw *w, const struct config *c)
{
	const struct {
		const char *name;
		int64_t value;
	} whole[] = {{"max_procs", (int64_t)c->max_procs}, {"max_body", (int64_t)c->max_body},
		{"max_header", (int64_t)c->max_header}, {"max_conns", (int64_t)c->max_conns},
		{"replay", (int64_t)c->replay}, {"grace_ms", c->grace_ms}, {"retention_ms", c->retention_ms},
		{"stop_grace_ms", c->stop_grace_ms}};
	const struct {
		const char *name;
		double value;
	} seconds[] = {{"timeout", c->timeout}, {"header_timeout", c->header_timeout},
		{"idle_timeout", c->idle_timeout}, {"send_timeout", c->send_timeout}};
	jsonw_key(w, "limits");
	jsonw_obj(w);
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		jsonw_kint(w, whole[i].name, whole[i].value);
	for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
		jsonw_key(w, seconds[i].name);
		put_seconds(w, seconds[i].value);
	}
	jsonw_obj_end(w);
}

void sandboxd_capabilities(void *ctx, struct conn *c)
{
	const struct sandboxd *s = ctx;
	const struct config *cfg = s->config;
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kstr(&w, "version", CONFIG_VERSION);
	put_confine(&w, cfg, s->confine);
	put_rlimits(&w, &cfg->limits);
	put_cgroup(&w, s->cgroups);
	jsonw_kbool(&w, "dumpable", cfg->dumpable);
	jsonw_kbool(&w, "token", cfg->token);
	jsonw_kbool(&w, "trust_boundary", trust_boundary(s));
	put_list(&w, "allow_origin", cfg->allow_origin, cfg->allow_origin_count);
	jsonw_kbool(&w, "store", s->store);
	put_limits(&w, cfg);
	jsonw_obj_end(&w);
	sandboxd_reply(c, &out);
}
