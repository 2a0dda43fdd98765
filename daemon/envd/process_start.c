// SPDX-License-Identifier: Apache-2.0
// Start: user, environment and directory of a new process (contract B 3.2), and what is answered when it cannot begin.
#include "daemon/envd/process.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// A request and what it became.
struct start {
	struct rpc *rpc;
	const Process__StartRequest *req;
	const Process__ProcessConfig *config; // never NULL
	struct proc_spec spec;                // points into the rest
	struct asked asked;
	const char **argv;
	char *line; // argv in one, for lists and errors
	struct env env;
	struct env own_env; // what the request alone sets
	char *cwd;
};

static void start_release(struct start *s)
{
	free(s->argv);
	free(s->line);
	free(s->cwd);
	env_release(&s->env);
	env_release(&s->own_env);
}

static int out_of_memory(struct err *e)
{
	return err_set(e, ERR_RESOURCE_EXHAUSTED, "out of memory");
}

// "error starting process 'CMD ARGS': WHY". The command is shortened so that WHY is always there.
static int cannot_start(const struct start *s, struct err *e, const char *why)
{
	const struct pty_size *size = &s->spec.size;
	if (s->spec.kind != PROC_TERMINAL)
		return err_set(e, ERR_INVALID_ARGUMENT, "error starting process '%.120s': %s", s->line, why);
	return err_set(e, ERR_INVALID_ARGUMENT,
		"error starting pty with command '%.60s' in dir '%.60s' with '%u' cols and '%u' rows: %s", s->line,
		s->cwd, size->cols, size->rows, why);
}

static int spawn_error(const struct start *s, struct err *e, int rc)
{
	const char *desc = strerrordesc_np(-rc);
	char why[160];
	snprintf(why, sizeof why, "fork/exec %.60s: %s", s->argv[0], desc ? desc : "failed");
	char *first = desc ? strstr(why, desc) : NULL;
	if (first)
		*first = (char)tolower((unsigned char)*first);
	return cannot_start(s, e, why);
}

// --- what is asked ---

static int request_argv(struct start *s, struct err *e)
{
	const Process__ProcessConfig *c = s->config;
	s->argv = calloc(c->n_args + 2, sizeof *s->argv);
	if (!s->argv)
		return out_of_memory(e);
	s->argv[0] = c->cmd;
	for (size_t i = 0; i < c->n_args; i++)
		s->argv[i + 1] = c->args[i];
	s->line = launch_line(s->argv);
	return s->line ? 0 : out_of_memory(e);
}

static void request_kind(struct start *s)
{
	const Process__StartRequest *req = s->req;
	s->spec.kind = PROC_EXEC;
	s->spec.counted = METRICS_ENVD;
	s->spec.request = conn_request_id(rpc_conn(s->rpc));
	s->spec.want_stdin = req->_stdin_case != PROCESS__START_REQUEST___STDIN_STDIN || req->stdin;
	if (req->_pty_case != PROCESS__START_REQUEST___PTY_PTY)
		return;
	const Process__PTY__Size *size = req->pty->size;
	s->spec.kind = PROC_TERMINAL;
	if (size)
		s->spec.size = (struct pty_size){(unsigned short)size->rows, (unsigned short)size->cols};
}

static int request_cwd(struct start *s, const struct user *u, struct err *e)
{
	const Process__ProcessConfig *c = s->config;
	bool given = c->_cwd_case == PROCESS__PROCESS_CONFIG___CWD_CWD;
	struct stat st;
	s->cwd = envd_path(rpc_envd(s->rpc), u, given ? c->cwd : "", e);
	if (!s->cwd)
		return -1;
	if (stat(s->cwd, &st) < 0 && errno == ENOENT)
		return err_set(e, ERR_INVALID_ARGUMENT, "cwd '%.200s' does not exist", s->cwd);
	s->asked.cwd = given ? c->cwd : NULL;
	return 0;
}

// A name may hold '=': what is behind the first one then belongs to the value, as the process will see it.
static int put_env(struct env *env, const char *name, const char *value)
{
	const char *eq = strchr(name, '=');
	if (!eq)
		return env_set(env, name, strlen(name), value, strlen(value));
	char *rest;
	if (asprintf(&rest, "%s=%s", eq + 1, value) < 0)
		return -ENOMEM;
	int rc = env_set(env, name, (size_t)(eq - name), rest, strlen(rest));
	free(rest);
	return rc;
}

static int request_env(struct start *s, struct err *e)
{
	const Process__ProcessConfig *c = s->config;
	for (size_t i = 0; i < c->n_envs; i++) {
		const char *name = c->envs[i]->key, *value = c->envs[i]->value;
		int rc = put_env(&s->env, name, value);
		if (rc == 0)
			rc = put_env(&s->own_env, name, value);
		if (rc == -EINVAL)
			return cannot_start(s, e, "exec: environment variable without a name");
		if (rc == -E2BIG)
			return cannot_start(s, e, "exec: too many environment variables");
		if (rc < 0)
			return out_of_memory(e);
	}
	return 0;
}

// The user's, the daemon's, the request's: later ones win; and PWD, which is what it is.
static int environment(struct start *s, const struct user *u, struct err *e)
{
	const char *path = getenv("PATH");
	char pwd[PATH_MAX];
	env_put(&s->env, "PATH", path ? path : LAUNCH_PATH);
	launch_env_user(&s->env, u);
	envd_env(rpc_envd(s->rpc), &s->env);
	if (request_env(s, e) < 0)
		return -1;
	if (realpath(s->cwd, pwd))
		env_put(&s->env, "PWD", pwd);
	s->spec.run.env = env_list(&s->env);
	s->asked.env = env_list(&s->own_env);
	return s->spec.run.env && s->asked.env ? 0 : out_of_memory(e);
}

static int parse(struct start *s, struct err *e)
{
	const struct user *u = rpc_user(s->rpc, e);
	if (!u || request_argv(s, e) < 0)
		return -1;
	request_kind(s);
	if (request_cwd(s, u, e) < 0 || environment(s, u, e) < 0)
		return -1;
	s->asked.argv = s->argv;
	s->asked.tag = s->req->_tag_case == PROCESS__START_REQUEST___TAG_TAG ? s->req->tag : NULL;
	s->spec.asked = &s->asked;
	s->spec.command = s->line;
	s->spec.timeout = (double)rpc_timeout_ms(s->rpc) / 1e3;
	s->spec.run.path = s->argv[0];
	s->spec.run.argv = s->argv;
	s->spec.run.cwd = s->cwd;
	s->spec.run.user = u;
	s->spec.run.like_shell = s->spec.run.even_priority = true;
	return 0;
}

// --- the start ---

static int start_error(const struct start *s, int rc, enum spawn_step step, struct err *e)
{
	if (rc == -EUSERS)
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "too many processes");
	if (rc == -EBUSY && step == SPAWN_PREPARE)
		return err_set(e, ERR_UNAVAILABLE, "workspace is being reset");
	if (rc == -ERESTART && step == SPAWN_PREPARE)
		return envd_leaving(e);
	if (rc == -ENOSPC && s->spec.kind == PROC_TERMINAL)
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "no terminal is left");
	if (rc == -ETIMEDOUT)
		return err_set(e, ERR_UNAVAILABLE, "start: the program does not begin to run");
	// What the sandbox has run out of is not the request's fault.
	if (step == SPAWN_PREPARE || rc == -EAGAIN || rc == -ENOMEM)
		return err_sys(e, rc, "error starting process");
	return spawn_error(s, e, rc);
}

void process_start(struct rpc *r, const ProtobufCMessage *m)
{
	static const Process__ProcessConfig nothing = PROCESS__PROCESS_CONFIG__INIT;
	struct start s = {.rpc = r, .req = (const Process__StartRequest *)m};
	struct proc *p;
	enum spawn_step step;
	struct err e;
	s.config = s.req->process ? s.req->process : &nothing;
	env_init(&s.env);
	env_init(&s.own_env);
	int rc = parse(&s, &e);
	if (rc == 0) {
		rc = proc_start(rpc_envd(r)->procs, &s.spec, &p, &step);
		if (rc < 0)
			start_error(&s, rc, step, &e);
	}
	if (rc == 0)
		process_stream(r, p, true);
	else
		rpc_error(r, &e);
	start_release(&s);
}
