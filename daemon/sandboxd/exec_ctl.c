// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/sandboxd.h"
#include "proto/frame.h"
#include "proto/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Parses the body and finds its process: NULL with E filled; *DOC is freed by the caller either way.
static struct proc *named_process(const struct sandboxd *s, struct conn *c, json_t **doc, struct err *e)
{
	*doc = sandboxd_json(c, e);
	return *doc ? sandboxd_pid(s, *doc, e) : NULL;
}

static void answer(struct conn *c, int rc, const struct err *e)
{
	if (rc < 0)
		conn_error(c, e);
	else
		sandboxd_ok(c);
}

// What a failed proc_write, proc_close_stdin or proc_signal means.
static int process_error(struct err *e, int rc)
{
	switch (rc) {
	case 0:
		return 0;
	case -ESRCH:
		return err_set(e, ERR_NOT_FOUND, "process not found");
	case -EPIPE:
		return err_set(e, ERR_FAILED_PRECONDITION, "stdin closed");
	case -ENOBUFS:
		err_set(e, ERR_RESOURCE_EXHAUSTED, "stdin queue full");
		e->retryable = true;
		return -1;
	case -ERESTART:
		sandboxd_leaving(e);
		return -1;
	default:
		return err_sys(e, rc, "process");
	}
}

static int write_stdin(struct proc *p, const json_t *doc, struct err *e)
{
	const char *data;
	size_t n;
	struct buf raw;
	if (proc_kind(p) == PROC_TERMINAL)
		return err_set(e, ERR_FAILED_PRECONDITION, "a terminal has no stdin of its own: /pty/input");
	int rc = jsonr_str(doc, "data", 0, &data, &n, e);
	if (rc < 0)
		return -1;
	if (rc == 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "data required");
	buf_init(&raw, 0);
	rc = text_b64_decode(&raw, data, n);
	if (rc == -EINVAL)
		rc = err_set(e, ERR_INVALID_ARGUMENT, "invalid base64");
	else if (rc < 0)
		rc = err_sys(e, rc, "data");
	else
		rc = process_error(e, proc_write(p, buf_data(&raw), buf_len(&raw)));
	buf_release(&raw);
	return rc;
}

void sandboxd_exec_stdin(void *ctx, struct conn *c)
{
	json_t *doc;
	struct err e;
	struct proc *p = named_process(ctx, c, &doc, &e);
	answer(c, p ? write_stdin(p, doc, &e) : -1, &e);
	jsonr_free(doc);
}

void sandboxd_exec_stdin_close(void *ctx, struct conn *c)
{
	json_t *doc;
	struct err e;
	struct proc *p = named_process(ctx, c, &doc, &e);
	answer(c, p ? process_error(&e, proc_close_stdin(p)) : -1, &e);
	jsonr_free(doc);
}

// "signal" is a name, a number, or a number as a string.
static int signal_of(const json_t *doc, struct err *e)
{
	const json_t *v = json_object_get(doc, "signal");
	int sig = -EINVAL;
	if (!v || json_is_null(v))
		return err_set(e, ERR_INVALID_ARGUMENT, "signal required");
	if (json_is_string(v))
		sig = proc_signal_parse(json_string_value(v), json_string_length(v));
	else if (json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) < NSIG)
		sig = (int)json_integer_value(v);
	return sig > 0 ? sig : err_set(e, ERR_INVALID_ARGUMENT, "unsupported signal");
}

static int send_signal(struct proc *p, const json_t *doc, struct err *e)
{
	bool group = true;
	int sig = signal_of(doc, e);
	if (sig < 0 || jsonr_bool(doc, "group", 0, &group, e) < 0)
		return -1;
	return process_error(e, proc_signal(p, sig, group));
}

void sandboxd_exec_signal(void *ctx, struct conn *c)
{
	json_t *doc;
	struct err e;
	struct proc *p = named_process(ctx, c, &doc, &e);
	answer(c, p ? send_signal(p, doc, &e) : -1, &e);
	jsonr_free(doc);
}

static const char *const kinds[] = {
	[PROC_EXEC] = "exec",
	[PROC_TERMINAL] = "terminal",
	[PROC_BACKGROUND] = "background",
};

static void put_process(struct jsonw *w, const struct proc *p)
{
	const struct output *o = proc_output(p);
	bool terminal = proc_kind(p) == PROC_TERMINAL;
	jsonw_obj(w);
	jsonw_kint(w, "pid", proc_pid(p));
	jsonw_kbool(w, "alive", proc_waitable(p));
	jsonw_kstr(w, "config", proc_command(p));
	jsonw_key(w, "channel_bytes");
	jsonw_obj(w);
	for (int ch = terminal ? OUTPUT_PTY : OUTPUT_STDOUT; ch <= (terminal ? OUTPUT_PTY : OUTPUT_STDERR); ch++)
		jsonw_kint(w, frame_channel_name((enum frame_channel)ch),
			(int64_t)output_total(o, (enum output_channel)ch));
	jsonw_obj_end(w);
	jsonw_kint(w, "started_at", proc_started_ms(p) / 1000);
	jsonw_kstr(w, "session_id", proc_session_id(p) ? proc_session_id(p) : "");
	jsonw_kstr(w, "kind", kinds[proc_kind(p)]);
	jsonw_obj_end(w);
}

void sandboxd_exec_processes(void *ctx, struct conn *c)
{
	const struct sandboxd *s = ctx;
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_key(&w, "processes");
	jsonw_arr(&w);
	for (const struct proc *p = procs_first(s->procs); p; p = proc_next(p)) {
		if (proc_waitable(p) && proc_kind(p) != PROC_INTERNAL)
			put_process(&w, p);
	}
	jsonw_arr_end(&w);
	jsonw_obj_end(&w);
	sandboxd_reply(c, &out);
}
