// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/gatewaykit.h"

#include "tests/integration/envdkit.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define START_DEADLINE 20000
#define STOP_DEADLINE 20000
#define ARGS_MAX 64

// --- start ---

static char *read_all(const char *path)
{
	FILE *f = fopen(path, "re");
	struct buf b = {0};
	char part[4096];
	size_t n;
	while (f && (n = fread(part, 1, sizeof part, f)) > 0)
		buf_append(&b, part, n);
	if (f)
		(void)fclose(f);
	char *text = buf_take(&b, NULL);
	return text ? text : strdup("");
}

// The binary: GATEWAY, or celld-gateway beside CELLD; the caller's.
static char *find_binary(void)
{
	const char *given = getenv("GATEWAY"), *celld = getenv("CELLD");
	char path[4096];
	if (given && *given) {
		(void)snprintf(path, sizeof path, "%s", given);
	} else {
		const char *slash = celld ? strrchr(celld, '/') : NULL;
		(void)snprintf(path, sizeof path, "%.*s/celld-gateway", slash ? (int)(slash - celld) : 5,
			slash ? celld : "build");
	}
	char *real = realpath(path, NULL);
	if (!real)
		ck_abort_msg("no gateway %s", path);
	return real;
}

// "... ready: http://127.0.0.1:PORT (N warm, namespaces)". True once the line is there.
static bool parse_ready(struct gw *g, const char *log)
{
	const char *p = strstr(log, " ready: http://127.0.0.1:");
	if (!p || !strchr(p, '\n'))
		return false;
	g->d->port = (int)strtol(p + strlen(" ready: http://127.0.0.1:"), NULL, 10);
	g->d->envd_port = g->d->port;
	const char *end = strchr(p, '\n'), *how = strstr(p, "namespaces)");
	g->isolated = how && how < end;
	return true;
}

static void wait_ready(struct gw *g)
{
	int64_t end = h_now_ms() + h_scaled(START_DEADLINE);
	for (;;) {
		char *log = read_all(g->d->log);
		ck_assert_ptr_nonnull(log);
		bool ready = parse_ready(g, log);
		free(log);
		if (ready)
			return;
		if (!pid_alive(g->d->init))
			ck_abort_msg("the gateway ended before it was ready");
		if (h_now_ms() > end)
			ck_abort_msg("no ready line within %d ms", START_DEADLINE);
		h_tick();
	}
}

struct gw *gw_start_args(const char *const *args)
{
	const char *argv[ARGS_MAX], *tmp = getenv("TMPDIR");
	struct gw *g = calloc(1, sizeof *g);
	struct testd *d = calloc(1, sizeof *d);
	ck_assert(g && d);
	g->d = d;
	(void)snprintf(d->base, sizeof d->base, "%.200s/celld-gw-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(d->base))
		ck_abort_msg("mkdtemp %s: %s", d->base, strerror(errno));
	ck_assert_int_eq(chmod(d->base, 0755), 0);
	(void)snprintf(d->log, sizeof d->log, "%s/stderr", d->base);
	(void)snprintf(g->dir, sizeof g->dir, "%s/node", d->base);
	(void)snprintf(d->host, sizeof d->host, "127.0.0.1");
	(void)snprintf(d->envd_host, sizeof d->envd_host, "127.0.0.1");
	char *binary = find_binary();
	const char *celld = getenv("CELLD");
	size_t n = 0;
	argv[n++] = binary;
	argv[n++] = "--listen";
	argv[n++] = "127.0.0.1:0";
	argv[n++] = "--dir";
	argv[n++] = g->dir;
	if (celld && *celld) {
		argv[n++] = "--celld";
		argv[n++] = celld;
	}
	for (size_t i = 0; args[i]; i++) {
		ck_assert_uint_lt(n, ARGS_MAX - 1);
		argv[n++] = args[i];
	}
	argv[n] = NULL;
	struct guard_spec spec = {.argv = (char **)(uintptr_t)argv, .log = d->log, .base = d->base};
	d->guard = guard_start(&spec, &d->ctl);
	ck_assert_int_gt(d->guard, 0);
	struct pollfd p = {d->ctl, POLLIN, 0};
	struct guard_msg m;
	if (poll(&p, 1, (int)h_scaled(START_DEADLINE)) <= 0 || recv(d->ctl, &m, sizeof m, 0) != (ssize_t)sizeof m ||
		m.word != GUARD_STARTED)
		ck_abort_msg("the guard could not start %s", binary);
	free(binary);
	d->init = d->daemon = (pid_t)m.value;
	wait_ready(g);
	g->sanitized = d_sanitized(d);
	return g;
}

// --- the end ---

static void want_no_mounts(const struct gw *g)
{
	char *text = read_all("/proc/self/mountinfo");
	ck_assert_ptr_nonnull(text);
	if (strstr(text, g->d->base))
		ck_abort_msg("a mount is left below %s", g->d->base);
	free(text);
}

// Nor any control group, named after its pid, where ours is.
static void want_no_groups(const struct gw *g)
{
	static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	char *own = read_all("/proc/self/cgroup"), prefix[64], path[4096];
	ck_assert_ptr_nonnull(own);
	const char *line = strncmp(own, "0::", 3) == 0 ? own : strstr(own, "\n0::");
	line = line ? strchr(line, '/') : NULL;
	(void)snprintf(prefix, sizeof prefix, "celld-gateway-%d-", (int)g->d->init);
	for (size_t i = 0; line && i < sizeof roots / sizeof *roots; i++) {
		(void)snprintf(path, sizeof path, "%s%.*s", roots[i], (int)strcspn(line, "\n"), line);
		DIR *at = opendir(path);
		const struct dirent *e;
		while (at && (e = readdir(at))) {
			if (strncmp(e->d_name, prefix, strlen(prefix)) == 0)
				ck_abort_msg("the control group %s is left", e->d_name);
		}
		if (at)
			(void)closedir(at);
	}
	free(own);
}

// What is in DIR: the number of entries; the first one's name goes to NAME.
static size_t entries(const char *dir, char name[300])
{
	DIR *at = opendir(dir);
	size_t n = 0;
	const struct dirent *e;
	while (at && (e = readdir(at))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (n++ == 0)
			(void)snprintf(name, 300, "%s", e->d_name);
	}
	if (at)
		(void)closedir(at);
	return n;
}

void gw_finish(struct gw *g)
{
	char name[300] = "";
	d_assert_alive(g->d);
	int status = d_stop(g->d, STOP_DEADLINE);
	ck_assert_msg(status == 0, "exit status %d after TERM", status);
	if (entries(g->dir, name) > 0)
		ck_abort_msg("%s is left in its directory", name);
	want_no_mounts(g);
	want_no_groups(g);
	d_finish(g->d);
	free(g);
}

// --- control plane ---

void gw_api(const struct gw *g, const char *method, const char *target, const char *body, struct resp *r)
{
	struct client *c = client_connect(g->d);
	c->deadline = 30000;
	resp_release(r);
	client_request(c, method, target, GW_KEY, body, body ? strlen(body) : 0);
	client_response(c, r);
	client_close(c);
}

void gw_want(const struct gw *g, const char *method, const char *target, const char *body, int status, struct resp *r)
{
	gw_api(g, method, target, body, r);
	if (r->status != status)
		ck_abort_msg("%s %s %s: %d, want %d: %s", method, target, body ? body : "", r->status, status,
			buf_cstr(&r->body));
}

void gw_on(const struct gw *g, const char *method, const char *format, const char *id, const char *body, int status,
	struct resp *r)
{
	char target[512];
	const char *at = strstr(format, "%s");
	ck_assert_ptr_nonnull(at);
	(void)snprintf(target, sizeof target, "%.*s%s%s", (int)(at - format), format, id, at + 2);
	gw_want(g, method, target, body, status, r);
}

void gw_error(struct resp *r, int status, const char *message)
{
	if (r->status != status)
		ck_abort_msg("status %d, want %d: %s", r->status, status, buf_cstr(&r->body));
	const json_t *o = resp_json(r);
	ck_assert_int_eq(j_int(o, "code"), status);
	ck_assert_str_ne(j_str(o, "message"), "");
	if (message)
		ck_assert_str_eq(j_str(o, "message"), message);
}

json_t *gw_array(struct resp *r)
{
	json_error_t why;
	const char *type = resp_header(r, "Content-Type");
	ck_assert_msg(type && strncmp(type, "application/json", 16) == 0, "type %s", type ? type : "none");
	if (!r->json)
		r->json = json_loadb((const char *)buf_data(&r->body), buf_len(&r->body), 0, &why);
	ck_assert_msg(json_is_array(r->json), "no array: %s", buf_cstr(&r->body));
	return r->json;
}

static void set_headers(struct sbx *s)
{
	char token[192] = "";
	if (s->token[0])
		(void)snprintf(token, sizeof token, "X-Access-Token: %s\r\n", s->token);
	(void)snprintf(
		s->headers, sizeof s->headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\n%s", s->id, token);
	(void)snprintf(
		s->a_headers, sizeof s->a_headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 2024\r\n%s", s->id, token);
}

static void take_object(const json_t *o, struct sbx *s)
{
	memset(s, 0, sizeof *s);
	(void)snprintf(s->id, sizeof s->id, "%s", j_str(o, "sandboxID"));
	if (j_has(o, "envdAccessToken"))
		(void)snprintf(s->token, sizeof s->token, "%s", j_str(o, "envdAccessToken"));
	if (json_is_string(json_object_get(o, "domain")))
		(void)snprintf(s->domain, sizeof s->domain, "%s", j_str(o, "domain"));
	set_headers(s);
}

void gw_take_sandbox(struct resp *r, struct sbx *s)
{
	take_object(resp_json(r), s);
}

void gw_create(const struct gw *g, struct sbx *s, const char *body)
{
	struct resp r = {0};
	gw_want(g, "POST", "/v2/sandboxes", body, 201, &r);
	gw_take_sandbox(&r, s);
	resp_release(&r);
}

void gw_kill(const struct gw *g, const struct sbx *s)
{
	struct resp r = {0};
	gw_on(g, "DELETE", "/sandboxes/%s", s->id, NULL, 204, &r);
	ck_assert_uint_eq(buf_len(&r.body), 0);
	resp_release(&r);
}

// --- to a sandbox ---

static void ask_health(const struct gw *g, const struct sbx *s, struct resp *r)
{
	struct client *c = client_connect(g->d);
	resp_release(r);
	client_request(c, "GET", "/health", s->headers, NULL, 0);
	client_response(c, r);
	client_close(c);
}

int gw_health(const struct gw *g, const struct sbx *s)
{
	struct resp r = {0};
	ask_health(g, s, &r);
	int status = r.status;
	resp_release(&r);
	return status;
}

void gw_want_gone(struct resp *r, const char *id)
{
	gw_error(r, 502, "The sandbox was not found");
	ck_assert_str_eq(j_str(resp_json(r), "sandboxId"), id);
	ck_assert_uint_eq(json_object_size(resp_json(r)), 3);
}

void gw_gone(const struct gw *g, const struct sbx *s)
{
	struct resp r = {0};
	ask_health(g, s, &r);
	gw_want_gone(&r, s->id);
	resp_release(&r);
}

char *gw_sh(const struct gw *g, const struct sbx *s, const char *script)
{
	struct played o = {0};
	sh_play(g->d, CODEC_JSON, s->headers, script, &o);
	if (!o.end)
		ck_abort_msg("no end event of %s: %s", script, j_text(o.last));
	played_assert_exit(&o, 0);
	char *text = strdup(buf_cstr(&o.ch[FRAME_STDOUT]));
	ck_assert_ptr_nonnull(text);
	played_release(&o);
	return text;
}

void gw_put(const struct gw *g, const struct sbx *s, const char *path, const void *p, size_t n)
{
	struct resp r = {0};
	char target[512], headers[768];
	(void)snprintf(target, sizeof target, "/files?path=%s", path);
	(void)snprintf(headers, sizeof headers, "%sContent-Type: application/octet-stream\r\n", s->headers);
	envd_req(g->d, "POST", target, headers, p, n, &r);
	ck_assert_msg(r.status == 200, "POST %s: %d %s", target, r.status, buf_cstr(&r.body));
	resp_release(&r);
}

void gw_get(const struct gw *g, const struct sbx *s, const char *path, struct buf *out)
{
	struct resp r = {0};
	char target[512];
	(void)snprintf(target, sizeof target, "/files?path=%s", path);
	envd_req(g->d, "GET", target, s->headers, NULL, 0, &r);
	ck_assert_msg(r.status == 200, "GET %s: %d %s", target, r.status, buf_cstr(&r.body));
	buf_append(out, buf_data(&r.body), buf_len(&r.body));
	resp_release(&r);
}

// --- operators ---

json_t *gw_slots(const struct gw *g)
{
	struct resp r = {0};
	gw_want(g, "GET", "/gateway/sandboxes", NULL, 200, &r);
	json_t *list = json_incref(gw_array(&r));
	resp_release(&r);
	return list;
}

size_t gw_in(const struct gw *g, const char *state)
{
	json_t *list = gw_slots(g), *o;
	size_t i, n = 0;
	json_array_foreach(list, i, o) n += strcmp(j_str(o, "state"), state) == 0;
	json_decref(list);
	return n;
}

struct awaited {
	const struct gw *g;
	const char *state;
	size_t count;
};

static bool are_in(void *arg)
{
	const struct awaited *a = arg;
	return gw_in(a->g, a->state) == a->count;
}

void gw_await(const struct gw *g, const char *state, size_t count)
{
	struct awaited a = {g, state, count};
	if (!wait_until(are_in, &a, 15000))
		ck_abort_msg("%zu %s, want %zu: %s", gw_in(g, state), state, count, j_text(gw_slots(g)));
}

pid_t gw_pid(const struct gw *g, const struct sbx *s, int64_t *number)
{
	json_t *list = gw_slots(g), *o;
	size_t i;
	pid_t pid = 0;
	json_array_foreach(list, i, o)
	{
		const char *id = json_string_value(json_object_get(o, "sandboxID"));
		if (!id || strcmp(id, s->id) != 0)
			continue;
		pid = (pid_t)j_int(o, "pid");
		if (number)
			*number = j_int(o, "number");
	}
	json_decref(list);
	ck_assert_msg(pid > 0, "%s runs nowhere", s->id);
	return pid;
}

static bool is_gone(void *arg)
{
	const pid_t *pid = arg;
	return !pid_alive(*pid);
}

void gw_crash(const struct gw *g, const struct sbx *s)
{
	pid_t pid = gw_pid(g, s, NULL);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert(wait_until(is_gone, &pid, 5000));
}

int64_t gw_reclaim(const struct gw *g)
{
	struct resp r = {0};
	gw_want(g, "POST", "/gateway/reclaim", NULL, 200, &r);
	int64_t n = j_int(resp_json(&r), "reclaimed");
	resp_release(&r);
	return n;
}
