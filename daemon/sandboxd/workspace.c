// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/workspace.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_MAX = 128 };

bool workspace_id_ok(const char *id, size_t n)
{
	static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	if (n < 1 || n > ID_MAX || memchr(id, '\0', n))
		return false;
	if (id[0] == '.' && (n == 1 || (n == 2 && id[1] == '.')))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!strchr(good, id[i]))
			return false;
	}
	return true;
}

struct workspace *workspace_new(struct sandboxd *s, struct ev_loop *loop)
{
	struct workspace *ws = calloc(1, sizeof *ws);
	struct user user = {0};
	if (!ws)
		return NULL;
	ws->sandboxd = s;
	ws->loop = loop;
	venv_init(ws);
	bool root = geteuid() == 0 &&
		    strcmp(s->config->user, "root") == 0; // as in USER, without reading two files at start
	bool known = root || users_find(s->users, s->config->user, &user) == 0;
	ws->journals =
		journals_new(loop, s->config->workspace, known ? user.uid : geteuid(), known ? user.gid : getegid());
	user_release(&user);
	if (!ws->journals || events_open(ws) < 0) {
		workspace_free(ws);
		return NULL;
	}
	return ws;
}

void workspace_free(struct workspace *ws)
{
	if (!ws)
		return;
	reset_free(ws);
	venv_drop(ws);
	transcripts_drop(ws);
	background_drop(ws);
	journal_free(ws->events);
	journals_free(ws->journals);
	free(ws);
}

static void on_end(void *arg, const struct proc *p)
{
	events_end(arg, p);
}

// What an earlier daemon had begun for this surface.
static void take_back(struct workspace *ws)
{
	for (struct proc *p = procs_first(ws->sandboxd->procs); p; p = proc_next(p)) {
		const char *note = proc_note(p);
		if (!note)
			continue;
		if (proc_kind(p) == PROC_BACKGROUND)
			background_take_back(ws, p, note);
		else if (proc_kind(p) == PROC_INTERNAL)
			venv_take_back(ws, p, note);
		else
			proc_on_end(p, on_end, ws);
		if (proc_kind(p) == PROC_EXEC || proc_kind(p) == PROC_BACKGROUND)
			transcript_take_back(ws, p);
	}
}

void workspace_ready(struct workspace *ws)
{
	take_back(ws);
	venv_start(ws);
}

void workspace_leave(struct workspace *ws)
{
	ws->terminating = true;
	venv_leave(ws);
	transcripts_leave(ws);
	background_drop(ws);
}

void workspace_terminate(struct workspace *ws)
{
	ws->terminating = true;
	venv_drop(ws);
}

int workspace_admit(struct workspace *ws, struct err *e)
{
	if (!ws || !ws->reset)
		return 0;
	return err_set(e, ERR_UNAVAILABLE, "workspace is being reset");
}

void workspace_prepare(struct workspace *ws, struct proc_spec *spec)
{
	if (!ws || spec->kind == PROC_BACKGROUND)
		return; // these have events of their own, and their note
	spec->note = SANDBOXD_NOTE;
	spec->on_end = on_end;
	spec->on_end_arg = ws;
}

void workspace_started(struct workspace *ws, struct proc *p)
{
	if (!ws)
		return;
	if (proc_kind(p) != PROC_BACKGROUND)
		events_start(ws, p);
	if (proc_kind(p) != PROC_TERMINAL)
		transcript_start(ws, p);
}
