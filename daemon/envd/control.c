// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/control.h"

#include "daemon/log.h"
#include "proto/json.h"
#include "proto/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// The daemon's own variables, which /init cannot touch, sorted.
#define EVENTS "E2B_EVENTS_ADDRESS"
#define SANDBOX "E2B_SANDBOX"

static bool is_internal(const char *name)
{
	return strcmp(name, EVENTS) == 0 || strcmp(name, SANDBOX) == 0;
}

void control_state_release(struct control_state *s)
{
	if (s->token)
		explicit_bzero(s->token, strlen(s->token));
	for (size_t i = 0; i < s->var_count; i++) {
		free(s->vars[i].name);
		free(s->vars[i].value);
	}
	free(s->vars);
	free(s->token);
	free(s->user);
	free(s->workdir);
	free(s->events);
	*s = (struct control_state){0};
}

// --- a new state ---

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct control_var *)a)->name, ((const struct control_var *)b)->name);
}

static bool add_var(struct control_state *s, const char *name, const char *value)
{
	struct control_var *v = &s->vars[s->var_count];
	v->name = strdup(name);
	v->value = strdup(value);
	s->var_count++;
	return v->name && v->value;
}

static int no_memory(struct err *e)
{
	return err_sys(e, -ENOMEM, "init");
}

static int json_vars(const json_t *obj, struct control_state *next, struct err *e)
{
	const char *key;
	json_t *value;
	next->vars = calloc(json_object_size(obj) + 1, sizeof *next->vars);
	if (!next->vars)
		return no_memory(e);
	json_object_foreach((json_t *)(uintptr_t)obj, key, value)
	{
		const char *text = json_is_null(value) ? "" : json_string_value(value);
		if (!text)
			return err_http(e, 400, ERR_INVALID_ARGUMENT, "envVars: %s must be a string", key);
		if (!*key || strchr(key, '=') || (!json_is_null(value) && strlen(text) != json_string_length(value)))
			return err_http(
				e, 400, ERR_INVALID_ARGUMENT, "envVars: \"%s\" cannot be in an environment", key);
		if (!is_internal(key) && !add_var(next, key, text))
			return no_memory(e);
	}
	qsort(next->vars, next->var_count, sizeof *next->vars, by_name);
	return 0;
}

static int copy_vars(const struct control_state *from, struct control_state *next, struct err *e)
{
	next->vars = calloc(from->var_count + 1, sizeof *next->vars);
	if (!next->vars)
		return no_memory(e);
	for (size_t i = 0; i < from->var_count; i++)
		if (!add_var(next, from->vars[i].name, from->vars[i].value))
			return no_memory(e);
	return 0;
}

// The string KEY of DOC, or OLD, copied to *OUT.
static int text_or_old(const json_t *doc, const char *key, const char *old, char **out, struct err *e)
{
	const char *s = old;
	if (jsonr_str(doc, key, 0, &s, NULL, e) < 0)
		return -1;
	if (s && !*s)
		s = old;
	*out = s ? strdup(s) : NULL;
	return s && !*out ? no_memory(e) : 0;
}

static int take(const struct control *c, const json_t *doc, struct control_state *next, struct err *e)
{
	const char *stamp = NULL, *pem = NULL;
	const json_t *vars = NULL, *mounts = json_object_get(doc, "volumeMounts");
	next->newest = c->now.newest;
	if (jsonr_str(doc, "timestamp", 0, &stamp, NULL, e) < 0 || jsonr_str(doc, "caBundle", 0, &pem, NULL, e) < 0)
		return -1;
	if (mounts && !json_is_null(mounts) && !json_is_array(mounts))
		return err_http(e, 400, ERR_INVALID_ARGUMENT, "volumeMounts must be an array");
	if (stamp && control_time(stamp, &next->newest) < 0)
		return err_http(e, 400, ERR_INVALID_ARGUMENT, "timestamp must be an RFC 3339 time");
	// A token of the configuration stays there: SIGHUP reads it again.
	bool own = c->now.token || !c->config->token;
	if ((own && text_or_old(doc, "accessToken", c->now.token, &next->token, e) < 0) ||
		text_or_old(doc, "defaultUser", c->now.user, &next->user, e) < 0 ||
		text_or_old(doc, "defaultWorkdir", c->now.workdir, &next->workdir, e) < 0 ||
		text_or_old(doc, "hyperloopIP", c->now.events, &next->events, e) < 0 ||
		jsonr_obj(doc, "envVars", 0, &vars, e) < 0)
		return -1;
	unsigned char address[sizeof(struct in6_addr)];
	if (next->events && inet_pton(AF_INET, next->events, address) != 1 &&
		inet_pton(AF_INET6, next->events, address) != 1)
		return err_http(e, 400, ERR_INVALID_ARGUMENT, "hyperloopIP must be an address");
	return vars ? json_vars(vars, next, e) : copy_vars(&c->now, next, e);
}

int control_next(const struct control *c, const json_t *doc, struct control_state *next, struct err *e)
{
	*next = (struct control_state){0};
	int rc = take(c, doc, next, e);
	if (rc < 0)
		control_state_release(next);
	return rc;
}

// --- kept beyond a crash: the state as an /init body ---

static void put_state(struct buf *out, const struct control_state *s)
{
	struct jsonw w;
	char stamp[64];
	struct tm tm;
	jsonw_init(&w, out);
	jsonw_obj(&w);
	if (s->token)
		jsonw_kstr(&w, "accessToken", s->token);
	if (s->user)
		jsonw_kstr(&w, "defaultUser", s->user);
	if (s->workdir)
		jsonw_kstr(&w, "defaultWorkdir", s->workdir);
	if (s->events)
		jsonw_kstr(&w, "hyperloopIP", s->events);
	if ((s->newest.tv_sec || s->newest.tv_nsec) && gmtime_r(&s->newest.tv_sec, &tm)) {
		size_t n = strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
		(void)snprintf(stamp + n, sizeof stamp - n, ".%09ldZ", s->newest.tv_nsec);
		jsonw_kstr(&w, "timestamp", stamp);
	}
	jsonw_key(&w, "envVars");
	jsonw_obj(&w);
	for (size_t i = 0; i < s->var_count; i++)
		jsonw_kstr(&w, s->vars[i].name, s->vars[i].value);
	jsonw_obj_end(&w);
	jsonw_obj_end(&w);
}

static int keep_state(struct control *c, const struct control_state *s, struct err *e)
{
	struct buf b;
	buf_init(&b, ENVD_KEEP_MAX);
	put_state(&b, s);
	int rc = buf_failed(&b);
	if (rc == 0 && c->keep)
		rc = keep_put(c->keep, buf_data(&b), buf_len(&b));
	buf_release(&b);
	if (rc == -EMSGSIZE)
		return err_http(e, 413, ERR_RESOURCE_EXHAUSTED, "more than %zu bytes of settings", ENVD_KEEP_MAX);
	return rc < 0 ? no_memory(e) : 0;
}

static void put_in_place(struct control *c, struct control_state *next)
{
	struct control_state old = c->now;
	c->now = *next;
	*next = (struct control_state){0};
	if (c->now.token)
		c->config->token = c->now.token;
	control_state_release(&old);
}

int control_commit(struct control *c, struct control_state *next, struct err *e)
{
	int rc = keep_state(c, next, e);
	if (rc == 0)
		put_in_place(c, next);
	else
		control_state_release(next);
	return rc;
}

bool control_initialized(const struct control *c)
{
	size_t n;
	return c->keep && keep_get(c->keep, &n);
}

static void restore(struct control *c)
{
	size_t n;
	const void *p = c->keep ? keep_get(c->keep, &n) : NULL;
	struct control_state next;
	struct err e;
	json_t *doc = p ? jsonr_parse(p, n, &e) : NULL;
	if (!p)
		return;
	if (doc && control_next(c, doc, &next, &e) == 0)
		put_in_place(c, &next);
	else
		log_error("init_lost", "%s", e.msg);
	jsonr_free(doc);
}

struct control *control_new(struct config *config, struct keep *keep)
{
	struct control *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->config = config;
	c->keep = keep;
	c->first_user = config->user;
	control_metrics_start(c);
	restore(c);
	return c;
}

int control_reloaded(struct control *c)
{
	struct control_state rest = c->now;
	struct err e;
	if (!c->now.token)
		return 0;
	rest.token = NULL;
	if (keep_state(c, &rest, &e) < 0) {
		if (!c->config->token)
			c->config->token = c->now.token; // locked rather than open
		return -ENOMEM;
	}
	explicit_bzero(c->now.token, strlen(c->now.token));
	free(c->now.token);
	c->now.token = NULL;
	return 0;
}

void control_free(struct control *c)
{
	if (!c)
		return;
	if (c->now.token)
		c->config->token = NULL;
	control_state_release(&c->now);
	free(c->last.auth);
	user_release(&c->last.user);
	free(c);
}

// --- what the surface asks ---

const char *envd_token(const struct envd *e)
{
	return e->config->token;
}

const char *envd_default_user(const struct envd *e)
{
	return e->control->now.user ? e->control->now.user : e->control->first_user;
}

// Into TEXT: the value of EVENTS; false if there is none.
static bool events_address(const struct control_state *s, char *text, size_t n)
{
	bool v6 = s->events && strchr(s->events, ':');
	return s->events && snprintf(text, n, v6 ? "http://[%s]" : "http://%s", s->events) > 0;
}

void envd_env(const struct envd *e, struct env *env)
{
	const struct control_state *s = &e->control->now;
	char address[80];
	if (events_address(s, address, sizeof address))
		env_put(env, EVENTS, address);
	env_put(env, SANDBOX, CONTROL_SANDBOX);
	for (size_t i = 0; i < s->var_count; i++)
		env_put(env, s->vars[i].name, s->vars[i].value);
}

int envd_user(const struct envd *e, const char *name, size_t n, struct user *out)
{
	char copy[256];
	*out = (struct user){0};
	if (!name) {
		name = envd_default_user(e);
		n = strlen(name);
	}
	if (n == 0 || n >= sizeof copy || memchr(name, '\0', n))
		return -ENOENT;
	memcpy(copy, name, n);
	copy[n] = '\0';
	int rc = users_find(e->users, copy, out);
	// The configuration may name its user by uid; nobody else may.
	if (rc < 0 || strcmp(out->name, copy) == 0 || name == e->control->first_user)
		return rc;
	user_release(out);
	*out = (struct user){0};
	return -ENOENT;
}

bool control_basic(const struct http_head *head, struct buf *name)
{
	static const char scheme[] = "Basic ";
	struct http_span auth = http_get(head, "Authorization");
	size_t n = sizeof scheme - 1;
	if (auth.n < n || strncasecmp(auth.p, scheme, n) != 0)
		return false;
	if (text_b64_decode(name, auth.p + n, auth.n - n) < 0)
		return false;
	const unsigned char *colon = memchr(buf_data(name), ':', buf_len(name));
	if (colon)
		buf_truncate(name, (size_t)(colon - buf_data(name)));
	return colon;
}

const struct user *control_known(const struct envd *e, const struct http_head *head)
{
	const struct control *c = e->control;
	struct http_span auth = http_get(head, "Authorization");
	if (!c->last.auth || auth.n == 0 || auth.n != c->last.n || memcmp(auth.p, c->last.auth, auth.n) != 0)
		return NULL;
	unsigned now = users_generation(e->users);
	return now != 0 && now == c->last.generation ? &c->last.user : NULL;
}

static void forget_last(struct control *c)
{
	free(c->last.auth);
	c->last.auth = NULL;
	user_release(&c->last.user);
}

void control_remember(const struct envd *e, const struct http_head *head, const struct user *u)
{
	struct control *c = e->control;
	struct http_span auth = http_get(head, "Authorization");
	forget_last(c);
	if (auth.n == 0 || user_dup(&c->last.user, u) < 0)
		return;
	c->last.auth = malloc(auth.n); // a header's value, no string
	if (c->last.auth)
		memcpy(c->last.auth, auth.p, auth.n);
	c->last.n = auth.n;
	c->last.generation = users_generation(e->users);
}

void control_envs(void *ctx, struct conn *c)
{
	const struct envd *e = ctx;
	const struct control_state *s = &e->control->now;
	char address[80];
	bool events = events_address(s, address, sizeof address);
	const struct control_var own[] = {
		{(char *)(uintptr_t)EVENTS, address}, {(char *)(uintptr_t)SANDBOX, (char *)(uintptr_t)CONTROL_SANDBOX}};
	struct buf out;
	struct jsonw w;
	size_t at = 0;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	w.html = true;
	jsonw_obj(&w);
	for (size_t i = events ? 0 : 1; i < 2; i++) {
		for (; at < s->var_count && strcmp(s->vars[at].name, own[i].name) < 0; at++)
			jsonw_kstr(&w, s->vars[at].name, s->vars[at].value);
		jsonw_kstr(&w, own[i].name, own[i].value);
	}
	for (; at < s->var_count; at++)
		jsonw_kstr(&w, s->vars[at].name, s->vars[at].value);
	jsonw_obj_end(&w);
	BUF_LIT(&out, "\n");
	envd_reply(c, 200, "Cache-Control: no-store\r\nContent-Type: application/json\r\n", &out);
	buf_release(&out);
}
