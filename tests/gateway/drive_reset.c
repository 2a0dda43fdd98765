// SPDX-License-Identifier: Apache-2.0
// The end of a session and the proof that nothing of it is left.
#include "proto/json.h"
#include "tests/gateway/drive_priv.h"

#include <errno.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
// More commands than these are not signalled one by one: the reset ends all.
#define SIGNALS_MAX 32
// Of each place besides the workspace where commands may leave things (drive_put_exec names them), ACTION for what is in it.
#define PLACES(action)                                                              \
	"for d in \"$BOX_TEMP0\" \"$BOX_TEMP1\" \"$BOX_TEMP2\" \"$BOX_TEMP3\"; do " \
	"[ ! -d \"$d\" ] || find \"$d\" -xdev -mindepth 1 " action " || exit 1; done"

// Memory, queues and semaphores of System V outlive processes too, and only their owner may remove them: a sandbox with some is not used again.
// A plain child shares those of the machine.
#define LOOK_IPC "; cat /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem 2>/dev/null | grep -v key || :"

// --- ending ---

static int drop_token(struct drive *d, struct buf *body)
{
	(void)body;
	int rc = d->begun ? 0 : box_set_token(d->box, NULL);
	return rc < 0 ? rc : STEP_MORE;
}

static int keep_list(struct drive *d, const json_t *doc)
{
	json_t *list = json_object_get(doc, "processes");
	if (!json_is_array(list))
		return drive_because(d, -EPROTO, "processes: no list");
	d->list = json_incref(list);
	return STEP_NEXT;
}

static int put_signal(struct drive *d, struct buf *body)
{
	const json_t *pid = NULL;
	struct jsonw w;
	// One after the other; one that has ended meanwhile is no matter.
	while (!pid && d->list_at < json_array_size(d->list) && d->list_at < SIGNALS_MAX)
		pid = json_object_get(json_array_get(d->list, d->list_at++), "pid");
	if (!pid)
		return STEP_NEXT;
	jsonw_init(&w, body);
	jsonw_obj(&w);
	jsonw_kint(&w, "pid", json_integer_value(pid));
	jsonw_kstr(&w, "signal", "SIGTERM");
	jsonw_obj_end(&w);
	return STEP_MORE;
}

static int mend(struct drive *d, struct buf *body)
{
	(void)body;
	int rc = box_mend(d->box);
	return rc < 0 ? rc : STEP_NEXT;
}

static int put_empty(struct drive *d, struct buf *body)
{
	return drive_put_exec(d, body, PLACES("-delete"));
}

static int went_well(struct drive *d, const json_t *doc)
{
	return drive_printed(d, doc) ? STEP_NEXT : -ENOTEMPTY;
}

// --- the proof ---

static int no_variables(struct drive *d, const json_t *doc)
{
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)doc, name, value)
	{
		if (strcmp(name, "E2B_SANDBOX") != 0 && (drive_isolated(d) || strcmp(name, "HOME") != 0))
			return drive_because(d, -ENOTEMPTY, "variables: %.100s is still there", name);
	}
	return STEP_NEXT;
}

static int put_look(struct drive *d, struct buf *body)
{
	return drive_put_exec(d, body, drive_isolated(d) ? PLACES("-print") LOOK_IPC : PLACES("-print"));
}

static int nothing_printed(struct drive *d, const json_t *doc)
{
	const char *out = drive_printed(d, doc);
	if (out && *out)
		return drive_because(d, -ENOTEMPTY, "left over: %.*s", (int)strcspn(out, "\n"), out);
	return out ? STEP_NEXT : -ENOTEMPTY;
}

static int put_env(struct drive *d, struct buf *body)
{
	return drive_put_exec(d, body, "env");
}

// Only what any command is given.
static int plain_env(struct drive *d, const json_t *doc)
{
	static const char *const usual[] = {"PATH", "VIRTUAL_ENV", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "PWD",
		"OLDPWD", "SHLVL", "_", "BOX_WORK", "BOX_TEMP0", "BOX_TEMP1", "BOX_TEMP2", "BOX_TEMP3", "TMPDIR"};
	const char *out = drive_printed(d, doc);
	for (const char *s = out; s && *s;) {
		size_t n = strcspn(s, "=\n"), i = 0;
		while (i < COUNT(usual) && (strlen(usual[i]) != n || memcmp(usual[i], s, n) != 0))
			i++;
		if (i == COUNT(usual))
			return drive_because(
				d, -ENOTEMPTY, "environment: %.*s is still there", (int)(n < 100 ? n : 100), s);
		s += strcspn(s, "\n");
		s += *s == '\n';
	}
	return out ? STEP_NEXT : -EPROTO;
}

// Root could have changed celld's own, which all commands have from it.
static int same_surroundings(struct drive *d, const json_t *doc)
{
	const char *out = drive_printed(d, doc), *was = box_remembered(d->box);
	if (!out || !was)
		return -EPROTO;
	if (strcmp(out, was) == 0)
		return STEP_NEXT;
	while (*out && *out == *was)
		out++, was++;
	return drive_because(d, -ENOTEMPTY, "surroundings: now %.40s, before %.40s", out, was);
}

static int empty_workspace(struct drive *d, const json_t *doc)
{
	const json_t *list = json_object_get(doc, "files");
	const char *path = json_string_value(json_object_get(json_array_get(list, 0), "path"));
	if (json_is_array(list) && json_array_size(list) == 0)
		return STEP_NEXT;
	return drive_because(d, -ENOTEMPTY, "workspace: %.150s is left", path ? path : "something");
}

static int no_processes(struct drive *d, const json_t *doc)
{
	const json_t *list = json_object_get(doc, "processes");
	if (!json_is_array(list))
		return drive_because(d, -EPROTO, "processes: no list");
	if (json_array_size(list) == 0)
		return STEP_NEXT;
	drive_because(d, 0, "processes: %zu commands are left", json_array_size(list));
	return STEP_AGAIN;
}

// In a namespace of its own: celld as PID 1 and its daemon, nobody else. A plain child sees all of the machine's.
static int only_celld(struct drive *d, const json_t *doc)
{
	const json_t *list = json_object_get(doc, "processes");
	if (!drive_isolated(d))
		return STEP_NEXT;
	if (json_array_size(list) == 0)
		return drive_because(d, -EPROTO, "processes: no list");
	if (json_array_size(list) > 2) // a name can be taken by anybody
		return drive_because(d, STEP_AGAIN, "processes: %zu are left", json_array_size(list));
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *p = json_array_get(list, i);
		const char *comm = json_string_value(json_object_get(p, "comm"));
		if (json_integer_value(json_object_get(p, "ppid")) <= 1 && comm && strcmp(comm, "celld") == 0)
			continue;
		drive_because(d, 0, "processes: %.60s is left", comm ? comm : "one");
		return STEP_AGAIN;
	}
	return STEP_NEXT;
}

static const struct step reset_steps[] = {
	{"token", BOX_SANDBOXD, "GET", "/exec/processes", drop_token, keep_list, PATIENT},
	{"signal", BOX_SANDBOXD, "POST", "/exec/signal", put_signal, NULL, LENIENT},
	{"reset", BOX_SANDBOXD, "POST", "/workspace/reset", NULL, NULL, STRICT},
	// First of the proofs: what is empty with nobody there stays so.
	{"commands", BOX_SANDBOXD, "GET", "/exec/processes", NULL, no_processes, STRICT},
	{"processes", BOX_SANDBOXD, "GET", "/processes", NULL, only_celld, STRICT},
	{"places", BOX_SANDBOXD, "POST", "/exec", mend, NULL, STRICT},
	{"temporary files", BOX_SANDBOXD, "POST", "/exec", put_empty, went_well, STRICT},
	{"init", BOX_ENVD, "POST", "/init", drive_put_init, NULL, STRICT},
	{"variables", BOX_ENVD, "GET", "/envs", NULL, no_variables, STRICT},
	{"environment", BOX_SANDBOXD, "POST", "/exec", put_env, plain_env, STRICT},
	{"surroundings", BOX_SANDBOXD, "POST", "/exec", drive_put_surroundings, same_surroundings, STRICT},
	{"temporary files", BOX_SANDBOXD, "POST", "/exec", put_look, nothing_printed, STRICT},
	{"journal", BOX_SANDBOXD, "POST", "/files/remove", drive_put_journal, NULL, LENIENT},
	{"workspace", BOX_SANDBOXD, "GET", "/files/list?path=.&depth=1", NULL, empty_workspace, STRICT},
};

struct drive *drive_reset(struct ev_loop *loop, struct box *b, drive_done *done, void *arg)
{
	struct drive *d = drive_new(loop, b, reset_steps, COUNT(reset_steps), arg);
	if (!d)
		return NULL;
	d->done = done;
	d->init = drive_init_body(b, NULL, NULL);
	if (!d->init) {
		drive_free(d);
		return NULL;
	}
	return drive_begin(d);
}
