// SPDX-License-Identifier: Apache-2.0
// What is counted and, where that was asked for, logged of a process's start and end.
#include "daemon/core/proc_priv.h"

#include "daemon/io.h"
#include "daemon/log.h"

#include <stdlib.h>
#include <string.h>

static const char *const step_names[] = {"none", "prepare", "setup", "user", "cwd", "exec"};
_Static_assert(sizeof step_names / sizeof *step_names == METRICS_STEPS, "one for each enum spawn_step");

_Static_assert((int)METRICS_TERMINAL == (int)OUTPUT_PTY && (int)METRICS_STDERR == (int)OUTPUT_STDERR,
	"channels of output are counted by their own numbers");

const char *proc_step_name(int step)
{
	return step_names[step];
}

const char *proc_request(const struct proc *p)
{
	return p->request;
}

enum metrics_kind proc_counted_as(const struct proc *p)
{
	return p->counted;
}

static const char *or_none(const char *s)
{
	return s ? s : "-";
}

static void log_start(const struct proc *p)
{
	const struct log_field fields[] = {
		{"id", or_none(p->request), 0},
		{"pid", NULL, p->pid},
		{"kind", metrics_kind(p->counted), 0},
		{"session", or_none(p->session_id), 0},
		{"command", p->command, 0},
	};
	log_record("command_start", "runs", fields, sizeof fields / sizeof *fields);
}

static void log_failure(const struct proc_spec *spec, enum spawn_step step, int rc)
{
	const struct log_field fields[] = {
		{"id", or_none(spec->request), 0},
		{"kind", metrics_kind(spec->counted), 0},
		{"step", step_names[step], 0},
		{"error", strerrorname_np(-rc), 0},
		{"command", spec->command, 0},
	};
	log_record("command_failed", "did not start", fields, sizeof fields / sizeof *fields);
}

void proc_tell_start(struct procs *t, const struct proc_spec *spec, struct proc *p, int rc, enum spawn_step step)
{
	struct metrics *m = t->limits.metrics;
	if (m && rc < 0)
		m->failed[step]++;
	if (t->limits.tell && rc < 0)
		log_failure(spec, step, rc);
	if (rc < 0)
		return;
	if (m) {
		m->started[p->counted]++;
		metrics_observe(&m->spawn, io_mono_ns() - p->started_ns);
	}
	if (!t->limits.tell)
		return;
	p->request = spec->request ? strdup(spec->request) : NULL;
	log_start(p);
}

static enum metrics_end end_of(const struct proc_end *e)
{
	if (e->stopped)
		return METRICS_STOPPED;
	if (e->oom)
		return METRICS_OOM;
	if (e->timed_out)
		return METRICS_TIMEOUT;
	return e->sig ? METRICS_SIGNAL : e->code ? METRICS_FAILURE : METRICS_SUCCESS;
}

static void log_end(const struct proc *p, enum metrics_end how)
{
	uint64_t out = output_total(p->output, OUTPUT_STDOUT) + output_total(p->output, OUTPUT_PTY);
	const struct log_field fields[] = {
		{"id", or_none(p->request), 0},
		{"pid", NULL, p->pid},
		{"kind", metrics_kind(p->counted), 0},
		{"end", metrics_end(how), 0},
		{"code", NULL, p->end.code},
		{"signal", NULL, p->end.sig},
		{"stdout", NULL, (int64_t)out},
		{"stderr", NULL, (int64_t)output_total(p->output, OUTPUT_STDERR)},
		{"us", NULL, (p->ended_ns - p->started_ns) / 1000},
		{"command", p->command, 0},
	};
	log_record("command_end", "has ended", fields, sizeof fields / sizeof *fields);
}

void proc_tell_end(const struct proc *p)
{
	const struct procs *t = p->table;
	enum metrics_end how = end_of(&p->end);
	if (t->limits.metrics)
		t->limits.metrics->ended[p->counted][how]++;
	if (t->limits.tell)
		log_end(p, how);
}
