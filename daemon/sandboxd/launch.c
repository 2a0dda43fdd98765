// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/sandboxd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MAX 1e9

static int out_of_memory(struct err *e)
{
	return err_sys(e, -ENOMEM, "command");
}

static char *join(const char *a, const char *sep, const char *b)
{
	char *s;
	return asprintf(&s, "%s%s%s", a, sep, b) < 0 ? NULL : s;
}

// What a login would have, the virtual environment in front; then the names that the operator lets through.
static void default_env(struct launch *l, const struct sandboxd *s)
{
	const struct config *cfg = s->config;
	if (l->spec.kind == PROC_TERMINAL)
		env_put(&l->env, "TERM", "xterm-256color");
	char *path = join(cfg->workspace, "/.venv/bin:", LAUNCH_PATH);
	char *venv = join(cfg->workspace, "/", ".venv");
	if (path && venv) {
		env_put(&l->env, "PATH", path);
		env_put(&l->env, "VIRTUAL_ENV", venv);
	} else {
		l->env.fail = -ENOMEM;
	}
	free(path);
	free(venv);
	launch_env_user(&l->env, &l->user);
	env_put(&l->env, "SHELL", l->user.shell);
	const char *lang = getenv("LANG");
	if (lang)
		env_put(&l->env, "LANG", lang);
	for (size_t i = 0; i < cfg->pass_env_count; i++) {
		const char *value = getenv(cfg->pass_env[i]);
		if (value)
			env_put(&l->env, cfg->pass_env[i], value);
	}
}

static int request_env(struct launch *l, struct err *e)
{
	const json_t *obj = NULL;
	if (jsonr_obj(l->doc, "env", 0, &obj, e) < 0)
		return -1;
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)obj, key, value)
	{
		if (!json_is_string(value))
			continue;
		size_t n = json_string_length(value);
		if (strlen(key) + n + 2 > LAUNCH_STRING_MAX)
			return err_sys(e, -E2BIG, "env %.64s", key);
		int rc = env_set(&l->env, key, strlen(key), json_string_value(value), n);
		if (rc == 0)
			rc = env_set(&l->own_env, key, strlen(key), json_string_value(value), n);
		if (rc == -EINVAL)
			return err_set(e, ERR_INVALID_ARGUMENT, "env %.64s: invalid name or value", key);
		if (rc < 0)
			return err_sys(e, rc, "env");
	}
	return env_list(&l->env) && env_list(&l->own_env) ? 0 : out_of_memory(e);
}

static int request_cwd(struct launch *l, const struct sandboxd *s, struct err *e)
{
	const char *dir = "";
	int rc = jsonr_str(l->doc, "workdir", 0, &dir, NULL, e);
	if (rc < 0)
		return -1;
	l->asked.cwd = rc > 0 ? dir : NULL;
	if (*dir == '/')
		l->cwd = strdup(dir);
	else
		l->cwd = join(s->config->workspace, *dir ? "/" : "", dir);
	return l->cwd ? 0 : out_of_memory(e);
}

static int request_command(struct launch *l, struct err *e)
{
	const char *command;
	size_t n;
	if (jsonr_str(l->doc, "command", JSONR_REQUIRED, &command, &n, e) < 0)
		return -1;
	if (n + 1 > LAUNCH_STRING_MAX) {
		err_sys(e, -E2BIG, "command");
		return err_http(e, 400, ERR_INVALID_ARGUMENT, "command too long");
	}
	l->argv[0] = "/bin/sh";
	l->argv[1] = "-c";
	l->argv[2] = command;
	l->spec.command = command;
	l->spec.run.argv = l->argv;
	return 0;
}

int launch_common(struct launch *l, const struct sandboxd *s, struct err *e)
{
	if (request_cwd(l, s, e) < 0 || jsonr_str(l->doc, "session_id", 0, &l->spec.session_id, NULL, e) < 0)
		return -1;
	int rc = users_find(s->users, s->config->user, &l->user);
	if (rc < 0)
		return err_sys(e, rc, "user %s", s->config->user);
	default_env(l, s);
	if (request_env(l, e) < 0 || launch_limits(l, e) < 0)
		return -1;
	l->spec.run.path = l->spec.run.argv[0];
	l->spec.run.env = env_list(&l->env);
	l->spec.run.cwd = l->cwd;
	l->spec.run.user = &l->user;
	l->asked.argv = l->spec.run.argv;
	l->asked.env = env_list(&l->own_env);
	l->spec.asked = &l->asked;
	return 0;
}

int launch_open(struct launch *l, struct conn *c, struct err *e)
{
	memset(l, 0, sizeof *l);
	env_init(&l->env);
	env_init(&l->own_env);
	l->spec.request = conn_request_id(c);
	l->doc = sandboxd_json(c, e);
	if (l->doc)
		return 0;
	if (e->status == 413) { // whatever is so long in it, the kernel does not take it either
		err_http(e, 400, ERR_INVALID_ARGUMENT, "command too long");
		e->sys = E2BIG;
	}
	return -1;
}

int launch_parse(struct launch *l, const struct sandboxd *s, struct conn *c, struct err *e)
{
	if (launch_open(l, c, e) < 0)
		return -1;
	l->spec.timeout = s->config->timeout;
	if (request_command(l, e) == 0 && jsonr_num(l->doc, "timeout", 0, 0, TIMEOUT_MAX, &l->spec.timeout, e) >= 0 &&
		launch_common(l, s, e) == 0)
		return 0;
	launch_release(l);
	return -1;
}

// What fails before the child is made.
static void prepare_error(const struct launch *l, const struct sandboxd *s, int rc, struct err *e)
{
	bool terminal = l->spec.kind == PROC_TERMINAL;
	switch (rc) {
	case -EUSERS:
		err_http(e, terminal ? 503 : 429, ERR_RESOURCE_EXHAUSTED, "too many commands");
		e->retryable = true;
		return;
	case -ENOSPC:
		err_sys(e, rc, terminal ? "terminal" : "start");
		if (terminal) { // no disk is full: kernel.pty.max
			e->status = 503;
			e->retryable = true;
		}
		return;
	case -ERESTART:
		sandboxd_leaving(e);
		return;
	case -EOPNOTSUPP:
		launch_limits_missing(l, s, e);
		return;
	default:
		err_sys(e, rc, "start");
	}
}

static void start_error(const struct launch *l, const struct sandboxd *s, int rc, enum spawn_step step, struct err *e)
{
	if (rc == -ETIMEDOUT) { // a file system that hangs, a lease: the next time it may be there
		err_sys(e, rc, "start");
		e->code = ERR_UNAVAILABLE;
		e->status = 503;
		e->retryable = true;
		return;
	}
	switch (step) {
	case SPAWN_CWD:
		err_sys(e, rc, "workdir %.128s", l->cwd);
		if (e->status == 404) { // what is missing is no resource that was asked for
			e->status = 400;
			e->code = ERR_INVALID_ARGUMENT;
		}
		break;
	case SPAWN_USER:
		err_sys(e, rc, "user %.64s", l->user.name);
		break;
	case SPAWN_EXEC:
		err_sys(e, rc, "exec %.128s", l->spec.run.path);
		break;
	case SPAWN_SETUP:
		err_sys(e, rc, rc == -EPERM && l->spec.run.limits ? "rlimits: hard limit above celld's own" : "start");
		break;
	default:
		prepare_error(l, s, rc, e);
	}
}

int launch_start(struct launch *l, const struct sandboxd *s, struct proc **out, struct err *e)
{
	enum spawn_step step;
	if (workspace_admit(s->workspace, e) < 0)
		return -1;
	workspace_prepare(s->workspace, &l->spec);
	int rc = proc_start(s->procs, &l->spec, out, &step);
	if (rc == 0) {
		workspace_started(s->workspace, *out);
		return 0;
	}
	start_error(l, s, rc, step, e);
	return -1;
}

void launch_release(struct launch *l)
{
	jsonr_free(l->doc);
	env_release(&l->env);
	env_release(&l->own_env);
	user_release(&l->user);
	free(l->cwd);
	free(l->list);
	free(l->line);
	memset(l, 0, sizeof *l);
}
