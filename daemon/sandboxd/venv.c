// SPDX-License-Identifier: Apache-2.0
// The virtual environment of the workspace, made by python3 itself at the lowest priority while requests are served.
#include "daemon/log.h"
#include "daemon/sandboxd/workspace.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// ioprio_set(2); its header is the kernel's own.
#define IO_WHO_PROCESS 1
#define IO_CLASS_IDLE (3 << 13)

#define SAID_MAX ((size_t)200)

// Requests come first.
#define WAIT_S 0.1

struct venv {
	struct workspace *ws;
	struct proc *proc;
};

static const char *find_python(void)
{
	static const char *const places[] = {"/usr/local/bin/python3", "/usr/bin/python3", "/bin/python3"};
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		if (access(places[i], X_OK) == 0)
			return places[i];
	}
	return NULL;
}

static bool venv_path(const struct sandboxd *s, const char *below, char path[PATH_MAX])
{
	int n = snprintf(path, PATH_MAX, "%s/.venv%s", s->config->workspace, below);
	return n > 0 && n < PATH_MAX;
}

bool workspace_venv(const struct sandboxd *s)
{
	char path[PATH_MAX];
	if (s->workspace && s->workspace->venv)
		return false;
	return venv_path(s, "/bin/python3", path) && access(path, X_OK) == 0;
}

// The last words of P's output as one line.
static void last_words(const struct proc *p, char text[SAID_MAX + 1])
{
	struct output_reader r = {.passive = true};
	struct output_span span;
	size_t n = 0;
	output_attach(proc_output(p), &r);
	while (output_next(&r, SIZE_MAX, &span)) {
		size_t keep = span.n < SAID_MAX ? span.n : SAID_MAX;
		size_t old = n + keep > SAID_MAX ? SAID_MAX - keep : n;
		memmove(text, text + n - old, old);
		memcpy(text + old, span.p + span.n - keep, keep);
		n = old + keep;
		output_taken(&r, span.n);
	}
	output_detach(&r);
	for (size_t i = 0; i < n; i++) {
		if (iscntrl((unsigned char)text[i]))
			text[i] = ' ';
	}
	text[n] = '\0';
}

static void on_end(void *arg, const struct proc *p)
{
	struct venv *v = arg;
	const struct proc_end *end = proc_end(p);
	char text[SAID_MAX + 1];
	if (v->ws && !end->stopped && end->code != 0) {
		last_words(p, text);
		log_warn("venv", "python3 -m venv ended with %d: %s", end->code, text);
	} else if (v->ws && !end->stopped) {
		log_info("venv", "made in %lld ms", (long long)proc_duration_ms(p));
	}
	if (v->ws)
		v->ws->venv = NULL;
	free(v);
}

static void lower(pid_t pid)
{
	(void)setpriority(PRIO_PROCESS, (id_t)pid, 19);
	(void)syscall(SYS_ioprio_set, IO_WHO_PROCESS, pid, IO_CLASS_IDLE);
}

static int run(struct workspace *ws, struct venv *v, const char *python, const char *path)
{
	const char *const argv[] = {python, "-I", "-m", "venv", path, NULL};
	const struct sandboxd *s = ws->sandboxd;
	struct user user = {0};
	struct env env;
	enum spawn_step step;
	env_init(&env);
	int rc = users_find(s->users, s->config->user, &user);
	if (rc == 0) {
		env_put(&env, "PATH", "/usr/local/bin:/usr/bin:/bin");
		env_put(&env, "HOME", user.home);
		env_put(&env, "USER", user.name);
		rc = env_list(&env) ? 0 : -ENOMEM;
	}
	if (rc == 0) {
		struct proc_spec spec = {
			.run = {.path = python, .argv = argv, .env = env_list(&env), .cwd = "/", .user = &user},
			.kind = PROC_INTERNAL,
			.counted = METRICS_OWN,
			.command = "python3 -m venv",
			.note = SANDBOXD_NOTE,
			.on_end = on_end,
			.on_end_arg = v,
		};
		rc = proc_start(s->procs, &spec, &v->proc, &step);
	}
	if (rc == 0)
		lower(proc_pid(v->proc));
	env_release(&env);
	user_release(&user);
	return rc;
}

static void make(struct workspace *ws)
{
	char path[PATH_MAX];
	struct stat st;
	const struct sandboxd *s = ws->sandboxd;
	const char *python = s->config->venv && !ws->venv ? find_python() : NULL;
	if (!python || !venv_path(s, "", path) || lstat(path, &st) == 0)
		return;
	struct venv *v = calloc(1, sizeof *v);
	int rc = v ? run(ws, v, python, path) : -ENOMEM;
	if (rc < 0) {
		log_warn("venv", "%s: %s", python, strerror(-rc));
		free(v);
		return;
	}
	v->ws = ws;
	ws->venv = v;
}

static void on_later(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	make(w->data);
}

void venv_init(struct workspace *ws)
{
	ev_timer_init(&ws->venv_later, on_later, WAIT_S, 0.);
	ws->venv_later.data = ws;
}

void venv_start(struct workspace *ws)
{
	if (!ws->sandboxd->config->venv || ws->terminating)
		return;
	ev_now_update(ws->loop);
	ev_timer_stop(ws->loop, &ws->venv_later);
	ev_timer_set(&ws->venv_later, WAIT_S, 0.);
	ev_timer_start(ws->loop, &ws->venv_later);
}

void venv_drop(struct workspace *ws)
{
	ev_timer_stop(ws->loop, &ws->venv_later);
	if (ws->venv)
		ws->venv->ws = NULL; // freed at its end
	ws->venv = NULL;
}

void venv_take_back(struct workspace *ws, struct proc *p, const char *note)
{
	struct venv *v = strcmp(note, SANDBOXD_NOTE) == 0 ? calloc(1, sizeof *v) : NULL;
	if (!v)
		return; // it is ended
	v->ws = ws;
	v->proc = p;
	ws->venv = v;
	proc_on_end(p, on_end, v);
}

void venv_leave(struct workspace *ws)
{
	struct venv *v = ws->venv;
	venv_drop(ws);
	if (!v)
		return;
	proc_on_end(v->proc, NULL, NULL);
	free(v);
}
