// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/sandboxd.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Bytes of each channel that one answer carries (contract A section 4).
#define KEEP_MAX ((size_t)1024 * 1024)

// A command whose whole output goes into one answer: a reader that collects.
struct collect {
	struct output_reader reader; // first: the callbacks get it
	struct conn *conn;
	struct proc *proc;
	struct buf kept[2]; // stdout, stderr
	bool base64;
	bool truncated;
};

static void collect_free(struct collect *k)
{
	output_detach(&k->reader);
	for (int i = 0; i < 2; i++)
		buf_release(&k->kept[i]);
	free(k);
}

static void collect_drop(void *arg)
{
	struct collect *k = arg;
	struct proc *p = k->proc;
	collect_free(k);
	proc_resume(p);
}

static void keep(struct collect *k, const struct output_span *s)
{
	struct buf *b = &k->kept[s->channel == OUTPUT_STDERR];
	size_t left = KEEP_MAX - buf_len(b);
	if (s->n > left)
		k->truncated = true;
	buf_append(b, s->p, s->n < left ? s->n : left);
}

static void put_text(struct jsonw *w, const struct collect *k, const char *key, const struct buf *b)
{
	jsonw_key(w, key);
	if (k->base64)
		jsonw_b64(w, buf_data(b), buf_len(b));
	else
		jsonw_str(w, buf_data(b), buf_len(b));
}

static void put_signal(struct jsonw *w, int sig)
{
	const char *name = proc_signal_name(sig);
	char number[16];
	snprintf(number, sizeof number, "SIG%d", sig);
	jsonw_kstr(w, "signal", name ? name : number);
}

static void collect_answer(struct collect *k, const struct proc_end *end)
{
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	put_text(&w, k, "stdout", &k->kept[0]);
	put_text(&w, k, "stderr", &k->kept[1]);
	jsonw_kint(&w, "exit_code", end->code);
	jsonw_kint(&w, "duration_ms", proc_duration_ms(k->proc));
	jsonw_kbool(&w, "truncated", k->truncated || k->reader.lost);
	jsonw_kbool(&w, "timed_out", end->timed_out);
	if (end->sig)
		put_signal(&w, end->sig);
	if (k->base64)
		jsonw_kstr(&w, "encoding", "base64");
	if (end->oom)
		jsonw_kbool(&w, "oom", true);
	jsonw_obj_end(&w);
	sandboxd_reply(k->conn, &out);
}

// Takes all there is at once, so that a command is never held up by its answer; at the end the answer goes out.
static void collect_wake(struct output_reader *r)
{
	struct collect *k = (struct collect *)r;
	struct output_span s;
	while (output_next(r, SIZE_MAX, &s)) {
		keep(k, &s);
		output_taken(r, s.n);
	}
	const struct proc_end *end = proc_stream_end(k->proc);
	if (!end)
		return;
	struct err e;
	if (end->stopped || end->leaving) {
		(end->leaving ? sandboxd_leaving : sandboxd_terminating)(&e);
		conn_error(k->conn, &e);
	} else if (buf_failed(&k->kept[0]) || buf_failed(&k->kept[1])) {
		err_sys(&e, -ENOMEM, "output");
		conn_error(k->conn, &e);
	} else {
		collect_answer(k, end);
	}
	collect_free(k);
}

static void collect_cut(struct output_reader *r)
{
	(void)r; // it takes all at every wake and so never holds anyone up
}

int sandboxd_base64(const json_t *doc, bool *base64, struct err *e)
{
	const char *encoding = "text";
	if (jsonr_str(doc, "encoding", 0, &encoding, NULL, e) < 0)
		return -1;
	*base64 = strcmp(encoding, "base64") == 0;
	if (!*base64 && *encoding && strcmp(encoding, "text") != 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "encoding must be text or base64");
	return 0;
}

void sandboxd_exec(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct launch l;
	struct err e;
	if (launch_parse(&l, s, c, &e) < 0) {
		conn_error(c, &e);
		return;
	}
	struct collect *k = calloc(1, sizeof *k);
	if (!k)
		err_sys(&e, -ENOMEM, "command");
	if (!k || sandboxd_base64(l.doc, &k->base64, &e) < 0 || launch_start(&l, s, &k->proc, &e) < 0) {
		conn_error(c, &e);
		free(k);
	} else {
		k->conn = c;
		k->reader.wake = collect_wake;
		k->reader.cut = collect_cut;
		output_attach(proc_output(k->proc), &k->reader);
		conn_on_close(c, collect_drop, k);
	}
	launch_release(&l);
}

double sandboxd_keepalive(const struct http_head *head)
{
	struct http_span v = http_get(head, "Keepalive-Ping-Interval");
	const char *p = v.p;
	size_t n = v.n;
	long long s;
	if (!p && !text_query_raw(head->query.p, head->query.n, "keepalive", &p, &n))
		return 0;
	return text_int(p, n, 1, 86400, &s) == 0 ? (double)s : 0;
}

void sandboxd_exec_stream(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct launch l;
	struct proc *p;
	struct err e;
	if (launch_parse(&l, s, c, &e) < 0) {
		conn_error(c, &e);
		return;
	}
	l.spec.want_stdin = true;
	l.spec.counted = METRICS_STREAM;
	if (jsonr_bool(l.doc, "stdin", 0, &l.spec.want_stdin, &e) < 0 || launch_start(&l, s, &p, &e) < 0)
		conn_error(c, &e);
	else
		stream_start(c, p, sandboxd_sse(false), STREAM_REPLAY, sandboxd_keepalive(conn_head(c)));
	launch_release(&l);
}

void sandboxd_exec_attach(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	const struct http_head *head = conn_head(c);
	struct err e;
	const char *v;
	size_t n;
	long long pid;
	if (!text_query_raw(head->query.p, head->query.n, "pid", &v, &n) || !n) {
		err_set(&e, ERR_INVALID_ARGUMENT, "pid required");
		conn_error(c, &e);
		return;
	}
	int rc = text_int(v, n, 1, INT32_MAX, &pid);
	struct proc *p = rc == 0 ? procs_find(s->procs, (pid_t)pid) : NULL;
	if (p) {
		stream_start(c, p, sandboxd_sse(true), STREAM_REPLAY, sandboxd_keepalive(head));
		return;
	}
	if (rc == -EINVAL)
		err_set(&e, ERR_INVALID_ARGUMENT, "pid must be a number");
	else
		err_set(&e, ERR_NOT_FOUND, "process not found");
	conn_error(c, &e);
}
