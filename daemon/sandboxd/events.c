// SPDX-License-Identifier: Apache-2.0
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/sandboxd/workspace.h"

#include <errno.h>
#include <string.h>

#define FILE_MAX ((int64_t)4 * 1024 * 1024)
// Longer texts are cut, so that a line stays a line.
#define VALUE_MAX ((size_t)4096)

struct event {
	struct workspace *ws;
	struct buf line;
	struct jsonw w;
};

static void begin(struct event *ev, struct workspace *ws, const char *name, const char *session)
{
	size_t n = session ? strlen(session) : 0;
	ev->ws = ws;
	buf_init(&ev->line, 0);
	jsonw_init(&ev->w, &ev->line);
	jsonw_obj(&ev->w);
	jsonw_kint(&ev->w, "t", io_wall_ms() / 1000);
	jsonw_kstr(&ev->w, "ev", name);
	jsonw_key(&ev->w, "sid");
	jsonw_str(&ev->w, session, n < VALUE_MAX ? n : VALUE_MAX);
}

static void put(struct event *ev, const char *key, const char *value)
{
	size_t n = strlen(value);
	jsonw_key(&ev->w, key);
	jsonw_str(&ev->w, value, n < VALUE_MAX ? n : VALUE_MAX);
}

static void end(struct event *ev)
{
	jsonw_obj_end(&ev->w);
	buf_byte(&ev->line, '\n');
	if (!buf_failed(&ev->line))
		journal_append(ev->ws->events, buf_data(&ev->line), buf_len(&ev->line));
	buf_release(&ev->line);
}

static void put_end(struct event *ev, const struct proc *p)
{
	const struct proc_end *pe = proc_end(p);
	jsonw_kint(&ev->w, "exit", pe->stopped ? -1 : pe->code);
	jsonw_kint(&ev->w, "dur_ms", proc_duration_ms(p));
	const char *sig = pe->sig ? proc_signal_name(pe->sig) : NULL;
	if (sig)
		jsonw_kstr(&ev->w, "signal", sig);
	if (pe->timed_out)
		jsonw_kbool(&ev->w, "timed_out", true);
	if (pe->oom)
		jsonw_kbool(&ev->w, "oom", true);
}

void events_put(const struct sandboxd *s, const char *name, const char *session, const char *key, const char *value)
{
	struct event ev;
	if (!s->workspace)
		return;
	begin(&ev, s->workspace, name, session);
	if (key)
		put(&ev, key, value);
	end(&ev);
}

void events_put_int(const struct sandboxd *s, const char *name, const char *session, const char *key, int64_t value)
{
	struct event ev;
	if (!s->workspace)
		return;
	begin(&ev, s->workspace, name, session);
	jsonw_kint(&ev.w, key, value);
	end(&ev);
}

static void begin_command(struct event *ev, struct workspace *ws, const struct proc *p, bool ends)
{
	bool terminal = proc_kind(p) == PROC_TERMINAL;
	begin(ev, ws,
		terminal ? ends ? "pty_end" : "pty_create"
		: ends   ? "exec_end"
			 : "exec_start",
		proc_session_id(p));
	if (terminal)
		jsonw_kint(&ev->w, "terminal_id", proc_terminal_id(p));
	jsonw_kint(&ev->w, "pid", proc_pid(p));
}

void events_start(struct workspace *ws, const struct proc *p)
{
	struct event ev;
	begin_command(&ev, ws, p, false);
	put(&ev, "cmd", proc_command(p));
	end(&ev);
}

void events_end(struct workspace *ws, const struct proc *p)
{
	struct event ev;
	begin_command(&ev, ws, p, true);
	put_end(&ev, p);
	end(&ev);
}

void events_background(
	struct workspace *ws, const char *name, const char *session, const char *run_id, const struct proc *p)
{
	struct event ev;
	begin(&ev, ws, name, session);
	put(&ev, "run_id", run_id);
	if (p)
		put_end(&ev, p);
	end(&ev);
}

// --- the journal ---

static void say_lost(struct buf *out, uint64_t lines)
{
	struct jsonw w;
	jsonw_init(&w, out);
	jsonw_obj(&w);
	jsonw_kint(&w, "t", io_wall_ms() / 1000);
	jsonw_kstr(&w, "ev", "lost");
	jsonw_kstr(&w, "sid", "");
	jsonw_kint(&w, "lines", (int64_t)lines);
	jsonw_obj_end(&w);
	buf_byte(out, '\n');
}

static void say_failed(const char *dir, const char *name, int err)
{
	log_warn("journal", "%s/%s: %s", dir, name, strerror(-err));
}

int events_open(struct workspace *ws)
{
	struct journal_spec spec = {
		.dir = EVENTS_DIR,
		.name = EVENTS_FILE,
		.max = FILE_MAX,
		.rotate = true,
		.lost = say_lost,
		.failed = say_failed,
	};
	ws->events = journal_new(ws->journals, &spec);
	return ws->events ? 0 : -ENOMEM;
}
