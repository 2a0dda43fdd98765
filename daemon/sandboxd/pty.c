// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/sandboxd.h"
#include "proto/text.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_MAX_MS ((int64_t)86400000)

// --- which terminal ---

static struct proc *terminal_of(const struct sandboxd *s, int64_t id, struct err *e)
{
	struct proc *p = procs_terminal(s->procs, id);
	if (!p)
		err_set(e, ERR_NOT_FOUND, "terminal not found");
	return p;
}

// Parses the body and finds its terminal: NULL with E filled; *DOC is freed by the caller either way.
static struct proc *named_terminal(const struct sandboxd *s, struct conn *c, json_t **doc, struct err *e)
{
	int64_t id;
	*doc = sandboxd_json(c, e);
	if (!*doc || jsonr_int(*doc, "terminal_id", JSONR_REQUIRED, INT64_MIN, INT64_MAX, &id, e) < 0)
		return NULL;
	return terminal_of(s, id, e);
}

static struct proc *queried_terminal(const struct sandboxd *s, const struct conn *c, struct err *e)
{
	const struct http_head *head = conn_head(c);
	const char *v;
	size_t n;
	long long id;
	if (!text_query_raw(head->query.p, head->query.n, "terminal_id", &v, &n) || !n) {
		err_set(e, ERR_INVALID_ARGUMENT, "terminal_id required");
		return NULL;
	}
	int rc = text_int(v, n, INT64_MIN, INT64_MAX, &id);
	if (rc == -EINVAL) {
		err_set(e, ERR_INVALID_ARGUMENT, "terminal_id must be a number");
		return NULL;
	}
	return terminal_of(s, rc == 0 ? id : 0, e);
}

// What a failed call on a terminal means.
static int terminal_error(struct err *e, int rc)
{
	switch (rc) {
	case 0:
		return 0;
	case -ESRCH:
	case -EPIPE:
		return err_set(e, ERR_NOT_FOUND, "terminal not found");
	case -ENOBUFS:
		err_set(e, ERR_RESOURCE_EXHAUSTED, "input queue full");
		e->retryable = true;
		return -1;
	case -ERESTART:
		sandboxd_leaving(e);
		return -1;
	case -ENXIO:
		return err_set(e, ERR_FAILED_PRECONDITION, "no foreground process group");
	default:
		return err_sys(e, rc, "terminal");
	}
}

static void answer(struct conn *c, int rc, const struct err *e)
{
	if (rc < 0)
		conn_error(c, e);
	else
		sandboxd_ok(c);
}

// --- create ---

static int bad_argv(struct err *e)
{
	return err_set(e, ERR_INVALID_ARGUMENT, "argv must be a non-empty array of strings");
}

static int request_argv(struct launch *l, struct err *e)
{
	const json_t *argv = json_object_get(l->doc, "argv");
	size_t count = json_array_size(argv), i; // 0 for what is no array
	json_t *v;
	if (!count)
		return bad_argv(e);
	l->list = calloc(count + 1, sizeof *l->list);
	if (!l->list)
		return err_sys(e, -ENOMEM, "argv");
	json_array_foreach(argv, i, v)
	{
		const char *text = json_string_value(v);
		size_t n = text ? json_string_length(v) : 0;
		if (!text || memchr(text, '\0', n) || n + 1 > LAUNCH_STRING_MAX)
			return text && n + 1 > LAUNCH_STRING_MAX ? err_sys(e, -E2BIG, "argv") : bad_argv(e);
		l->list[i] = text;
	}
	l->line = launch_line(l->list);
	return l->line ? 0 : err_sys(e, -ENOMEM, "argv");
}

// Sets ROWS and COLS where they are given. FLAGS as for jsonr_int.
static int request_size(const json_t *doc, unsigned flags, struct pty_size *size, struct err *e)
{
	int64_t rows = size->rows, cols = size->cols;
	if (jsonr_int(doc, "rows", flags, 1, UINT16_MAX, &rows, e) < 0 ||
		jsonr_int(doc, "cols", flags, 1, UINT16_MAX, &cols, e) < 0)
		return -1;
	*size = (struct pty_size){(unsigned short)rows, (unsigned short)cols};
	return 0;
}

static int terminal_parse(struct launch *l, const struct sandboxd *s, struct conn *c, struct err *e)
{
	if (launch_open(l, c, e) < 0)
		return -1;
	l->spec.kind = PROC_TERMINAL;
	l->spec.counted = METRICS_PTY;
	l->spec.size = (struct pty_size){24, 80};
	if (request_argv(l, e) < 0 || request_size(l->doc, 0, &l->spec.size, e) < 0)
		return -1;
	l->spec.run.argv = l->list;
	l->spec.command = l->line;
	return launch_common(l, s, e);
}

static void answer_terminal(struct conn *c, const struct proc *p)
{
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kint(&w, "terminal_id", proc_terminal_id(p));
	jsonw_kint(&w, "pid", proc_pid(p));
	jsonw_obj_end(&w);
	sandboxd_reply(c, &out);
}

void sandboxd_pty_create(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct launch l;
	struct proc *p;
	struct err e;
	if (terminal_parse(&l, s, c, &e) < 0 || launch_start(&l, s, &p, &e) < 0)
		conn_error(c, &e);
	else
		answer_terminal(c, p);
	launch_release(&l);
}

// --- input, size, foreground group ---

static int type(struct proc *p, const json_t *doc, struct err *e)
{
	const char *data;
	size_t n;
	bool base64;
	struct buf raw;
	int rc = jsonr_str(doc, "data", JSONR_NUL_OK, &data, &n, e);
	if (rc == 0)
		err_set(e, ERR_INVALID_ARGUMENT, "data required");
	if (rc <= 0 || sandboxd_base64(doc, &base64, e) < 0)
		return -1;
	if (!base64)
		return terminal_error(e, proc_write(p, data, n));
	buf_init(&raw, 0);
	rc = text_b64_decode(&raw, data, n);
	if (rc == -EINVAL)
		rc = err_set(e, ERR_INVALID_ARGUMENT, "invalid base64");
	else
		rc = terminal_error(e, rc < 0 ? rc : proc_write(p, buf_data(&raw), buf_len(&raw)));
	buf_release(&raw);
	return rc;
}

void sandboxd_pty_input(void *ctx, struct conn *c)
{
	json_t *doc;
	struct err e;
	struct proc *p = named_terminal(ctx, c, &doc, &e);
	answer(c, p ? type(p, doc, &e) : -1, &e);
	jsonr_free(doc);
}

void sandboxd_pty_resize(void *ctx, struct conn *c)
{
	json_t *doc;
	struct err e;
	struct pty_size size = {0};
	struct proc *p = named_terminal(ctx, c, &doc, &e);
	int rc = p ? request_size(doc, JSONR_REQUIRED, &size, &e) : -1;
	answer(c, rc < 0 ? rc : terminal_error(&e, proc_resize(p, &size)), &e);
	jsonr_free(doc);
}

static void answer_group(struct conn *c, pid_t pgrp, bool waiting)
{
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kint(&w, "process_group_id", pgrp);
	if (waiting)
		jsonw_kbool(&w, "input_waiting", false);
	jsonw_obj_end(&w);
	sandboxd_reply(c, &out);
}

void sandboxd_pty_foreground(void *ctx, struct conn *c)
{
	struct err e;
	pid_t pgrp;
	const struct proc *p = queried_terminal(ctx, c, &e);
	if (!p || terminal_error(&e, proc_foreground(p, &pgrp)) < 0)
		conn_error(c, &e);
	else
		answer_group(c, pgrp, true);
}

static int request_signal(const json_t *doc, struct err *e)
{
	static const struct {
		const char *name;
		int sig;
	} known[] = {{"INT", SIGINT}, {"TERM", SIGTERM}, {"KILL", SIGKILL}, {"TSTP", SIGTSTP}, {"HUP", SIGHUP}};
	const char *name;
	if (jsonr_str(doc, "signal", JSONR_REQUIRED, &name, NULL, e) < 0)
		return -1;
	if (strncmp(name, "SIG", 3) == 0)
		name += 3;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (strcmp(known[i].name, name) == 0)
			return known[i].sig;
	}
	return err_set(e, ERR_INVALID_ARGUMENT, "unsupported signal");
}

void sandboxd_pty_signal(void *ctx, struct conn *c)
{
	json_t *doc;
	struct err e;
	pid_t pgrp;
	struct proc *p = named_terminal(ctx, c, &doc, &e);
	int sig = p ? request_signal(doc, &e) : -1;
	if (sig < 0 || terminal_error(&e, proc_signal_foreground(p, sig, &pgrp)) < 0)
		conn_error(c, &e);
	else
		answer_group(c, pgrp, false);
	jsonr_free(doc);
}

// --- the end ---

static void ended(void *arg, int rc)
{
	struct err e;
	if (rc == -EBUSY)
		err_set(&e, ERR_INTERNAL, "processes of the terminal are left");
	else if (rc < 0)
		err_sys(&e, rc, "terminal");
	answer(arg, rc, &e);
}

static void forget(void *arg)
{
	proc_ending_forget(arg);
}

void sandboxd_pty_destroy(void *ctx, struct conn *c)
{
	json_t *doc;
	struct err e;
	int64_t grace = 5000;
	struct proc_ending *ending = NULL;
	struct proc *p = named_terminal(ctx, c, &doc, &e);
	if (p && jsonr_int(doc, "grace_ms", 0, 0, GRACE_MAX_MS, &grace, &e) >= 0) {
		ending = proc_end_session(p, grace, ended, c);
		if (!ending)
			err_sys(&e, -ENOMEM, "terminal");
	}
	if (ending)
		conn_on_close(c, forget, ending);
	else
		conn_error(c, &e);
	jsonr_free(doc);
}

void sandboxd_pty_stream(void *ctx, struct conn *c)
{
	struct err e;
	struct proc *p = queried_terminal(ctx, c, &e);
	if (p)
		stream_start(c, p, sandboxd_sse_terminal(), STREAM_REPLAY, sandboxd_keepalive(conn_head(c)));
	else
		conn_error(c, &e);
}
