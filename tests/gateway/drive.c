// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/drive.h"

#include "daemon/io.h"
#include "proto/json.h"
#include "tests/gateway/drive_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define STEP_S 10
#define AGAIN_S 0.02
#define PLACES_MAX 4
#define ANSWER_MAX ((size_t)4 * 1024 * 1024)

// --- the chain ---

static void try_step(struct drive *d);

int drive_because(struct drive *d, int rc, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(d->why, sizeof d->why, fmt, ap);
	va_end(ap);
	return rc;
}

void drive_free(struct drive *d)
{
	if (!d)
		return;
	call_cancel(d->call);
	ev_timer_stop(d->loop, &d->timer);
	if (d->extra)
		explicit_bzero(d->extra, strlen(d->extra));
	free(d->extra);
	jsonr_free(d->init);
	jsonr_free(d->list);
	jsonr_free(d->doc);
	free(d);
}

void drive_cancel(struct drive *d)
{
	if (d && !d->ending)
		drive_free(d);
}

// The last thing that happens to D.
static void finish(struct drive *d)
{
	ev_timer_stop(d->loop, &d->timer);
	d->ending = true;
	if (d->metrics)
		d->metrics(d->arg, d->rc < 0 ? NULL : d->doc);
	else
		d->done(d->arg, d->rc, d->rc < 0 ? d->why : "done");
	drive_free(d);
}

static void after(struct drive *d, double s)
{
	ev_now_update(d->loop);
	ev_timer_stop(d->loop, &d->timer);
	ev_timer_set(&d->timer, s, 0.);
	ev_timer_start(d->loop, &d->timer);
}

// RC of the step at work: a step_result or negative errno. What follows comes from the loop.
static void proceed(struct drive *d, int rc)
{
	if (rc == STEP_AGAIN && io_mono_ns() >= d->until)
		rc = -ETIMEDOUT;
	if (rc < 0)
		d->rc = rc;
	if (rc == STEP_NEXT) {
		d->at++;
		d->begun = false;
		d->why[0] = '\0';
	}
	after(d, rc == STEP_AGAIN ? AGAIN_S : 0.);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct drive *d = w->data;
	if (d->rc < 0 || d->at == d->count)
		finish(d);
	else
		try_step(d);
}

static int judge(struct drive *d, const struct step *s, const struct call_answer *a)
{
	struct err e;
	if (a->status == 0)
		return drive_because(d, a->error, "%s: %s", s->what, strerror(-a->error));
	if (a->status / 100 != 2) {
		size_t n = buf_len(a->body) < 120 ? buf_len(a->body) : 120;
		drive_because(d, 0, "%s: status %d: %.*s", s->what, a->status, (int)n, (const char *)buf_data(a->body));
		return s->mood == PATIENT ? STEP_AGAIN : s->mood == LENIENT ? STEP_MORE : -EPROTO;
	}
	if (!s->check)
		return s->mood == LENIENT ? STEP_MORE : STEP_NEXT;
	json_t *doc = buf_len(a->body) > 0 ? jsonr_parse(buf_data(a->body), buf_len(a->body), &e) : NULL;
	if (!doc)
		return drive_because(d, -EPROTO, "%s: no JSON object", s->what);
	int rc = s->check(d, doc);
	jsonr_free(doc);
	return rc;
}

static void on_answer(void *arg, const struct call_answer *a)
{
	struct drive *d = arg;
	d->call = NULL;
	proceed(d, judge(d, &d->steps[d->at], a));
}

static int call_step(struct drive *d, const struct step *s)
{
	struct buf body;
	buf_init(&body, 0);
	int rc = s->prepare ? s->prepare(d, &body) : STEP_MORE;
	if (rc == STEP_MORE) {
		struct call_spec spec = {
			.method = s->method,
			.target = s->target,
			.extra = d->extra,
			.body = buf_len(&body) > 0 ? &body : NULL,
			.timeout = (double)(d->until - io_mono_ns()) / 1e9,
			.max = ANSWER_MAX,
		};
		if (spec.timeout < AGAIN_S)
			spec.timeout = AGAIN_S;
		d->call = buf_failed(&body) ? NULL : call_start(d->loop, d->box, s->port, &spec, on_answer, d);
		if (!d->call)
			rc = drive_because(d, -ENOMEM, "%s: out of memory", s->what);
	}
	buf_release(&body);
	return rc;
}

static void try_step(struct drive *d)
{
	const struct step *s = &d->steps[d->at];
	if (!d->begun)
		d->until = io_mono_ns() + (int64_t)STEP_S * 1000000000;
	int rc = call_step(d, s);
	d->begun = true;
	if (rc < 0 && !d->why[0])
		drive_because(d, rc, "%s: %s", s->what, strerror(-rc));
	if (!d->call)
		proceed(d, rc);
}

struct drive *drive_new(struct ev_loop *loop, struct box *b, const struct step *steps, size_t count, void *arg)
{
	struct drive *d = calloc(1, sizeof *d);
	if (!d)
		return NULL;
	d->loop = loop;
	d->box = b;
	d->steps = steps;
	d->count = count;
	d->arg = arg;
	ev_timer_init(&d->timer, on_timer, 0., 0.);
	d->timer.data = d;
	return d;
}

struct drive *drive_begin(struct drive *d)
{
	after(d, 0.);
	return d;
}

// --- pieces of steps ---

static bool isolated(const struct box *b)
{
	return strcmp(box_home(b), box_work(b)) != 0;
}

bool drive_isolated(const struct drive *d)
{
	return isolated(d->box);
}

int drive_put_exec(struct drive *d, struct buf *body, const char *command)
{
	char name[] = "BOX_TEMP0";
	struct jsonw w;
	jsonw_init(&w, body);
	jsonw_obj(&w);
	jsonw_kstr(&w, "command", command);
	jsonw_kstr(&w, "workdir", "/");
	jsonw_kint(&w, "timeout", STEP_S);
	jsonw_key(&w, "env");
	jsonw_obj(&w);
	jsonw_kstr(&w, "BOX_WORK", box_home(d->box));
	for (size_t i = 0; i < PLACES_MAX && box_temp(d->box, i); i++) {
		name[sizeof name - 2] = (char)('0' + i);
		jsonw_kstr(&w, name, box_temp(d->box, i));
	}
	jsonw_obj_end(&w);
	jsonw_obj_end(&w);
	return STEP_MORE;
}

int drive_put_journal(struct drive *d, struct buf *body)
{
	if (d->begun)
		return STEP_NEXT;
	BUF_LIT(body, "{\"path\":\".k8e_events\"}");
	return STEP_MORE;
}

const char *drive_printed(struct drive *d, const json_t *doc)
{
	const char *what = d->steps[d->at].what, *out = json_string_value(json_object_get(doc, "stdout"));
	const char *complaint = json_string_value(json_object_get(doc, "stderr"));
	const json_t *code = json_object_get(doc, "exit_code");
	if (out && json_is_integer(code) && json_integer_value(code) == 0)
		return out;
	drive_because(
		d, 0, "%s: exit code %d: %.150s", what, (int)json_integer_value(code), complaint ? complaint : "");
	return NULL;
}

json_t *drive_init_body(const struct box *b, const char *token, const json_t *env)
{
	json_t *doc = json_object(), *vars = env ? json_deep_copy(env) : json_object();
	bool ok = doc && vars;
	// A plain child's user has a home of his own, which is not the sandbox's to write to.
	if (ok && !isolated(b) && !json_object_get(vars, "HOME"))
		ok = json_object_set_new(vars, "HOME", json_string(box_home(b))) == 0;
	// Without this the variables would stay as they are.
	ok = ok && json_object_set(doc, "envVars", vars) == 0;
	ok = ok && json_object_set_new(doc, "defaultUser", json_string(box_user(b))) == 0;
	ok = ok && json_object_set_new(doc, "defaultWorkdir", json_string(box_home(b))) == 0;
	ok = ok && (!token || json_object_set_new(doc, "accessToken", json_string(token)) == 0);
	json_decref(vars);
	if (!ok) {
		json_decref(doc);
		return NULL;
	}
	return doc;
}

static int append(const char *p, size_t n, void *arg)
{
	buf_append(arg, p, n);
	return 0;
}

int drive_put_init(struct drive *d, struct buf *body)
{
	return json_dump_callback(d->init, append, body, JSON_COMPACT) < 0 ? -ENOMEM : STEP_MORE;
}

int drive_put_surroundings(struct drive *d, struct buf *body)
{
#define PROCESSES                                                                    \
	"ulimit -a; ulimit -Ha; nice; umask; for p in 1 self; do "                   \
	"cat /proc/$p/limits /proc/$p/oom_score_adj; cut -d\\  -f19 /proc/$p/stat; " \
	"grep -e Cap -e _allowed: /proc/$p/status; done"
#define NODES "; cat /proc/self/mountinfo; stat -c '%n %a %u %g' / /dev/mqueue /dev/pts /dev/pts/ptmx"
	return drive_put_exec(d, body, drive_isolated(d) ? PROCESSES NODES : "ulimit -a; ulimit -Ha; nice; umask");
}

// --- ready ---

static int is_ready(struct drive *d, const json_t *doc)
{
	const char *status = json_string_value(json_object_get(doc, "status"));
	if (status && strcmp(status, "ready") == 0)
		return STEP_NEXT;
	return drive_because(d, -EPROTO, "ready: it says \"%.80s\"", status ? status : "");
}

static int put_echo(struct drive *d, struct buf *body)
{
	return drive_put_exec(d, body, "echo $((6 * 7))");
}

static int has_echo(struct drive *d, const json_t *doc)
{
	const char *out = drive_printed(d, doc);
	if (out && strcmp(out, "42\n") == 0)
		return STEP_NEXT;
	return out ? drive_because(d, -EPROTO, "exec: it printed \"%.80s\"", out) : -EPROTO;
}

static int keep_surroundings(struct drive *d, const json_t *doc)
{
	const char *out = drive_printed(d, doc);
	if (!out)
		return -EPROTO;
	return box_remember(d->box, out) < 0 ? -ENOMEM : STEP_NEXT;
}

static const struct step ready_steps[] = {
	{"ready", BOX_SANDBOXD, "POST", "/ready", NULL, is_ready, PATIENT},
	{"health", BOX_ENVD, "GET", "/health", NULL, NULL, PATIENT},
	{"exec", BOX_SANDBOXD, "POST", "/exec", put_echo, has_echo, STRICT},
	{"surroundings", BOX_SANDBOXD, "POST", "/exec", drive_put_surroundings, keep_surroundings, STRICT},
	{"journal", BOX_SANDBOXD, "POST", "/files/remove", drive_put_journal, NULL, LENIENT},
};

struct drive *drive_ready(struct ev_loop *loop, struct box *b, drive_done *done, void *arg)
{
	struct drive *d = drive_new(loop, b, ready_steps, COUNT(ready_steps), arg);
	if (!d)
		return NULL;
	d->done = done;
	return drive_begin(d);
}

// --- a session ---

// What the daemon has now is what the session asked for; variables of the daemon's own are nobody's to set.
static int has_env(struct drive *d, const json_t *doc)
{
	const char *name;
	json_t *wanted;
	json_object_foreach(json_object_get(d->init, "envVars"), name, wanted)
	{
		if (strncmp(name, "E2B_", 4) != 0 && !json_equal(wanted, json_object_get(doc, name)))
			return drive_because(d, -EPROTO, "init: the variable %.100s is not what it was set to", name);
	}
	return STEP_NEXT;
}

static const struct step session_steps[] = {
	{"init", BOX_ENVD, "POST", "/init", drive_put_init, NULL, STRICT},
	{"health", BOX_ENVD, "GET", "/health", NULL, NULL, STRICT},
	{"envs", BOX_ENVD, "GET", "/envs", NULL, has_env, STRICT},
};

static bool set_token(struct drive *d, const char *token)
{
	static const char line[] = "X-Access-Token: %s\r\n";
	if (!token)
		return true;
	size_t n = sizeof line + strlen(token);
	d->extra = malloc(n);
	return d->extra && snprintf(d->extra, n, line, token) > 0;
}

struct drive *drive_session(
	struct ev_loop *loop, struct box *b, const char *token, const json_t *env, drive_done *done, void *arg)
{
	struct drive *d = drive_new(loop, b, session_steps, COUNT(session_steps), arg);
	if (!d)
		return NULL;
	d->done = done;
	d->init = drive_init_body(b, token, env);
	if (!d->init || !set_token(d, token)) {
		drive_free(d);
		return NULL;
	}
	return drive_begin(d);
}

// --- metrics ---

static int keep_doc(struct drive *d, const json_t *doc)
{
	d->doc = json_deep_copy(doc);
	return d->doc ? STEP_NEXT : -ENOMEM;
}

static const struct step metrics_steps[] = {{"metrics", BOX_ENVD, "GET", "/metrics", NULL, keep_doc, STRICT}};

struct drive *drive_metrics(
	struct ev_loop *loop, struct box *b, const char *token, void (*done)(void *arg, const json_t *doc), void *arg)
{
	struct drive *d = drive_new(loop, b, metrics_steps, COUNT(metrics_steps), arg);
	if (!d)
		return NULL;
	d->metrics = done;
	if (!set_token(d, token)) {
		drive_free(d);
		return NULL;
	}
	return drive_begin(d);
}
