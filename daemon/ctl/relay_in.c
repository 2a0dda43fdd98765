// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/relay_priv.h"
#include "daemon/io.h"
#include "proto/text.h"

#include <strings.h>
#include <unistd.h>

#define RETRY_FIRST_NS 2000000
#define RETRY_MAX_NS 100000000

static bool is_terminal(const struct relay *r)
{
	return r->spec->kind == RELAY_TERMINAL;
}

// --- from here ---

bool relay_wants_input(const struct relay *r)
{
	return r->spec->in >= 0 && !r->input_end && buf_len(&r->input) < 2 * RELAY_PIECE;
}

int relay_read_input(struct relay *r, struct err *e)
{
	unsigned char *room = buf_reserve(&r->input, RELAY_PIECE);
	if (!room)
		return err_sys(e, buf_failed(&r->input), "input");
	ssize_t n = io_read(r->spec->in, room, RELAY_PIECE);
	buf_commit(&r->input, n > 0 ? (size_t)n : 0);
	if (n > 0 || n == -EAGAIN)
		return 0;
	if (n < 0 && !is_terminal(r))
		return err_sys(e, (int)n, "input");
	r->input_end = true;
	if (is_terminal(r) && !r->over) // the terminal is gone
		r->end->cut_by = SIGHUP;
	return 0;
}

// --- calls ---

static void put_whom(struct relay *r, struct jsonw *w)
{
	jsonw_obj(w);
	if (is_terminal(r))
		jsonw_kint(w, "terminal_id", r->spec->terminal_id);
	else
		jsonw_kint(w, "pid", r->pid);
}

static const char *put_input(struct relay *r, struct jsonw *w)
{
	size_t n = buf_len(&r->input);
	r->call_bytes = n < RELAY_PIECE ? n : RELAY_PIECE;
	if (is_terminal(r))
		jsonw_kstr(w, "encoding", "base64");
	jsonw_key(w, "data");
	jsonw_b64(w, buf_data(&r->input), r->call_bytes);
	return is_terminal(r) ? "/pty/input" : "/exec/stdin";
}

static const char *put_size(struct relay *r, struct jsonw *w)
{
	const struct terminal_size size = terminal_size(r->spec->in);
	r->resize = false;
	jsonw_kint(w, "rows", size.rows);
	jsonw_kint(w, "cols", size.cols);
	return "/pty/resize";
}

static const char *put_signal(struct relay *r, struct jsonw *w)
{
	r->call_signal = ffsll((long long)r->signals);
	jsonw_kint(w, "signal", r->call_signal);
	return "/exec/signal";
}

static enum relay_call next_call(const struct relay *r)
{
	bool waits = r->retry_at && io_mono_ns() < r->retry_at;
	if (!r->begun || r->over || (waits && r->refused != RELAY_INPUT))
		return RELAY_NONE;
	if (r->signals && !is_terminal(r))
		return RELAY_SIGNAL;
	if (r->resize)
		return RELAY_RESIZE;
	if (r->input_closed || waits)
		return RELAY_NONE;
	if (buf_len(&r->input) > 0)
		return RELAY_INPUT;
	return r->input_end && r->spec->in >= 0 && !is_terminal(r) ? RELAY_CLOSE : RELAY_NONE;
}

static int begin(struct relay *r, struct err *e)
{
	struct buf body;
	struct jsonw w;
	const char *path = "/exec/stdin/close";
	buf_init(&body, 0);
	jsonw_init(&w, &body);
	put_whom(r, &w);
	if (r->call == RELAY_INPUT)
		path = put_input(r, &w);
	else if (r->call == RELAY_SIGNAL)
		path = put_signal(r, &w);
	else if (r->call == RELAY_RESIZE)
		path = put_size(r, &w);
	jsonw_obj_end(&w);
	int rc = http_client_begin(&r->calls, "POST", path, &body, e);
	buf_release(&body);
	return rc;
}

static void accepted(struct relay *r)
{
	r->retry_at = 0;
	r->retry_ns = 0;
	if (r->call == RELAY_INPUT) {
		buf_consume(&r->input, r->call_bytes);
		r->in_bytes += r->call_bytes;
	} else if (r->call == RELAY_CLOSE) {
		r->input_closed = true;
	} else if (r->call == RELAY_SIGNAL) {
		r->signals &= ~(1ull << (r->call_signal - 1));
		r->pressed = r->signals ? io_mono_ns() : 0;
	}
}

// The command does not take any more, or is gone, which the stream tells.
static void refused(struct relay *r)
{
	if (r->call == RELAY_SIGNAL) {
		r->signals = 0;
		r->pressed = 0;
	}
	if (r->call != RELAY_INPUT && r->call != RELAY_CLOSE)
		return;
	buf_reset(&r->input);
	r->input_end = true;
	r->input_closed = true;
}

// The queue is full, or the daemon is being replaced: soon.
static void postpone(struct relay *r)
{
	r->refused = r->call;
	r->retry_ns = r->retry_ns ? 2 * r->retry_ns : RETRY_FIRST_NS;
	if (r->retry_ns > RETRY_MAX_NS)
		r->retry_ns = RETRY_MAX_NS;
	r->retry_at = io_mono_ns() + r->retry_ns;
}

static int answered(struct relay *r, struct err *e)
{
	int status = http_client_status(&r->calls);
	if (status == 200) {
		accepted(r);
	} else if (status == 404 || status == 409) {
		refused(r);
	} else {
		http_client_error(&r->calls, e);
		if (!e->retryable)
			return -1;
		postpone(r);
	}
	return 0;
}

int relay_send(struct relay *r, struct err *e)
{
	for (;;) {
		if (r->call == RELAY_NONE) {
			r->call = next_call(r);
			if (r->retry_at && io_mono_ns() >= r->retry_at)
				r->retry_at = 0;
			if (r->call == RELAY_NONE)
				return 0;
			if (begin(r, e) < 0)
				return -1;
		}
		switch (http_client_step(&r->calls, e)) {
		case HTTP_CLIENT_WAIT:
			return 0;
		case HTTP_CLIENT_FAILED:
			return -1;
		case HTTP_CLIENT_END:
			if (answered(r, e) < 0)
				return -1;
			r->call = RELAY_NONE;
			break;
		default:
			break;
		}
	}
}

int64_t relay_retry_at(const struct relay *r)
{
	return r->call == RELAY_NONE ? r->retry_at : 0;
}
