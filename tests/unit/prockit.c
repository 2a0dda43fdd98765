// SPDX-License-Identifier: Apache-2.0
#include "prockit.h"

#include "daemon/io.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

const struct proc_limits prockit_limits = {
	.max_procs = 100,
	.max_ended = 100,
	.ended_memory = 100 * 1024 * 1024,
	.stdin_max = 100000,
	.replay = 64 * 1024,
	.grace_ms = 60000,
	.retention_ms = 60000,
};

static void on_child(struct ev_loop *loop, ev_signal *w, int revents)
{
	(void)loop, (void)revents;
	procs_reap(w->data);
}

static void on_tick(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents;
}

void prockit_init(struct prockit *k, const struct proc_limits *limits)
{
	struct rlimit nofile;
	memset(k, 0, sizeof *k);
	signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &nofile), 0);
	ck_assert_int_eq(spawn_base_init(&k->base, &nofile, 0), 0);
	k->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	k->procs = k->loop ? procs_new(k->loop, limits, &k->base) : NULL;
	ck_assert_ptr_nonnull(k->procs);
	ev_signal_init(&k->chld, on_child, SIGCHLD);
	k->chld.data = k->procs;
	ev_signal_start(k->loop, &k->chld);
	ev_timer_init(&k->tick, on_tick, 0.005, 0.005);
	ev_timer_start(k->loop, &k->tick);
	snprintf(k->dir, sizeof k->dir, "/tmp/celld-proc-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(k->dir));
	snprintf(k->gate_path, sizeof k->gate_path, "%s/gate", k->dir);
	ck_assert_int_eq(mkfifo(k->gate_path, 0600), 0);
	k->gate = open(k->gate_path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(k->gate, 0);
	snprintf(k->env_dir, sizeof k->env_dir, "DIR=%s", k->dir);
	snprintf(k->env_gate, sizeof k->env_gate, "GATE=%s", k->gate_path);
	k->env[0] = "PATH=/usr/bin:/bin";
	k->env[1] = k->env_dir;
	k->env[2] = k->env_gate;
}

void prockit_release(struct prockit *k)
{
	char mark[96];
	procs_kill_all(k->procs);
	PROCKIT_UNTIL(k, procs_alone(k->procs));
	procs_free(k->procs);
	ev_signal_stop(k->loop, &k->chld);
	ev_timer_stop(k->loop, &k->tick);
	ev_loop_destroy(k->loop);
	spawn_base_release(&k->base);
	io_close(&k->gate);
	unlink(k->gate_path);
	snprintf(mark, sizeof mark, "%s/mark", k->dir);
	unlink(mark);
	rmdir(k->dir);
}

int prockit_try(struct prockit *k, const char *script, double timeout, bool want_stdin, struct proc **out)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	struct proc_spec spec = {
		.run = {.path = argv[0], .argv = argv, .env = k->env, .cwd = "/"},
		.kind = PROC_EXEC,
		.command = script,
		.session_id = "session",
		.timeout = timeout,
		.want_stdin = want_stdin,
	};
	return proc_start(k->procs, &spec, out, &k->step);
}

struct proc *prockit_start(struct prockit *k, const char *script)
{
	struct proc *p = NULL;
	ck_assert_int_eq(prockit_try(k, script, 0, true, &p), 0);
	return p;
}

void prockit_open_gate(struct prockit *k)
{
	ck_assert_int_eq(io_write(k->gate, "go\n", 3), 3);
}

void prockit_turn(struct prockit *k)
{
	ev_run(k->loop, EVRUN_ONCE);
}

double prockit_time(void)
{
	return (double)io_mono_ns() / 1e9;
}

void prockit_turns_for(struct prockit *k, double seconds)
{
	double end = prockit_time() + seconds;
	while (prockit_time() < end)
		prockit_turn(k);
}

static void read_all(struct prockit_reader *r)
{
	struct output_span s;
	while (output_next(&r->r, SIZE_MAX, &s)) {
		size_t room = r->n < sizeof r->text - 1 ? sizeof r->text - 1 - r->n : 0;
		size_t n = s.n < room ? s.n : room;
		memcpy(r->text + (sizeof r->text - 1 - room), s.p, n);
		r->n += s.n;
		output_taken(&r->r, s.n);
	}
}

static void on_wake(struct output_reader *o)
{
	struct prockit_reader *r = (struct prockit_reader *)o;
	if (!r->hold)
		read_all(r);
}

static void on_cut(struct output_reader *r)
{
	((struct prockit_reader *)r)->cut++;
}

void prockit_attach(struct prockit_reader *r, struct proc *p, bool hold)
{
	memset(r, 0, sizeof *r);
	r->hold = hold;
	r->r.wake = on_wake;
	r->r.cut = on_cut;
	output_attach(proc_output(p), &r->r);
	on_wake(&r->r);
}

void prockit_read(struct prockit_reader *r, struct proc *p)
{
	read_all(r);
	proc_resume(p);
}

void prockit_output(struct prockit_reader *r, struct proc *p)
{
	prockit_attach(r, p, false);
	output_detach(&r->r);
	proc_resume(p);
}
