// SPDX-License-Identifier: Apache-2.0
// The table of sessions, who watches and waits for one, and its end.
#include "tests/gateway/session_priv.h"

#include "daemon/io.h"
#include "proto/json.h"
#include "proto/sign.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

// --- one session ---

int session_random_id(char *out, size_t n)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	enum { LETTERS = sizeof alphabet - 1, FAIR = 256 / LETTERS * LETTERS };
	for (size_t i = 0; i < n;) {
		unsigned char c;
		if (getrandom(&c, 1, 0) != 1)
			return -errno;
		if (c < FAIR)
			out[i++] = alphabet[c % LETTERS];
	}
	out[n] = '\0';
	return 0;
}

static void session_free(struct session *s)
{
	if (!s)
		return;
	free(s->token);
	free(s->template);
	json_decref(s->metadata);
	json_decref(s->env);
	json_decref(s->network);
	json_decref(s->volumes);
	free(s);
}

struct session *session_new(struct gateway *g, struct err *e)
{
	struct sessions *all = g->sessions;
	if (HASH_COUNT(all->table) >= SESSIONS_MAX) {
		err_set(e, ERR_RESOURCE_EXHAUSTED, "sandboxes: there are %d already, paused ones counted",
			SESSIONS_MAX);
		return NULL;
	}
	struct session *s = calloc(1, sizeof *s);
	int rc = -ENOMEM;
	if (s) {
		s->id[0] = 'i';
		rc = session_random_id(s->id + 1, SESSION_ID - 1);
	}
	if (rc == 0) {
		HASH_ADD_KEYPTR(hh, all->table, s->id, SESSION_ID, s);
		rc = s->hh.tbl ? 0 : -ENOMEM;
	}
	if (rc < 0) {
		err_sys(e, rc, "sandbox");
		session_free(s);
		return NULL;
	}
	s->g = g;
	s->serial = ++all->serial;
	s->state = SESSION_CREATING;
	s->internet = -1;
	s->started_ms = s->end_ms = io_wall_ms();
	s->watches.prev = s->watches.next = &s->watches;
	session_expiry_init(s);
	return s;
}

const char *session_id(const struct session *s)
{
	return s->id;
}

const char *session_token(const struct session *s)
{
	return s->token;
}

enum session_state session_state(const struct session *s)
{
	return s->state;
}

struct box *session_box(const struct session *s)
{
	struct box *b = s->state == SESSION_RUNNING && s->slot ? node_box(s->slot) : NULL;
	return b && box_alive(b) ? b : NULL;
}

int session_not_found(struct err *e)
{
	return err_http(e, 502, ERR_UNAVAILABLE, "The sandbox was not found");
}

// --- who watches it, who waits for it ---

void session_attach(struct session *s, struct session_watch *w)
{
	w->next = &s->watches;
	w->prev = s->watches.prev;
	w->prev->next = w->next->prev = w;
}

void session_detach(struct session_watch *w)
{
	if (!w->next)
		return;
	w->prev->next = w->next;
	w->next->prev = w->prev;
	w->prev = w->next = NULL;
}

void session_tell_watches(struct session *s, const char *why)
{
	while (s->watches.next != &s->watches) {
		struct session_watch *w = s->watches.next;
		session_detach(w);
		w->gone(w->arg, why);
	}
}

int session_await(struct session *s, void (*done)(void *arg, const struct err *e), void *arg, struct err *e)
{
	struct session_wait *w;
	int count;
	DL_COUNT(s->waits, w, count);
	if (count >= SESSION_WAITS_MAX)
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "too many requests wait for the sandbox");
	w = calloc(1, sizeof *w);
	if (!w)
		return err_sys(e, -ENOMEM, "sandbox");
	w->done = done;
	w->arg = arg;
	DL_APPEND(s->waits, w);
	return 0;
}

void session_tell_waits(struct session *s, const struct err *e)
{
	while (s->waits) {
		struct session_wait *w = s->waits, got = *w;
		struct err moved;
		if (!e && s->state == SESSION_MOVING)
			return; // the one before has it copied: the others wait on
		DL_DELETE(s->waits, w);
		free(w);
		// The one before may have paused it again.
		if (!e && s->state != SESSION_RUNNING) {
			err_http(
				&moved, 409, ERR_ABORTED, "The sandbox is still transitioning. Try again in a moment.");
			e = &moved;
		}
		got.done(got.arg, e);
		if (e == &moved)
			e = NULL;
	}
}

void session_wake_forget(struct session *s, void *arg)
{
	struct session_wait *w, *next;
	DL_FOREACH_SAFE(s->waits, w, next)
	{
		if (w->arg == arg) {
			DL_DELETE(s->waits, w);
			free(w);
		}
	}
}

// --- its end ---

static void end(struct session *s, const char *why, const struct err *e, bool release)
{
	struct sessions *all = s->g->sessions;
	struct err gone;
	if (s->ended)
		return;
	struct box *b = session_box(s);
	bool reuse = b && !box_frozen(b);
	s->ended = true;
	s->state = SESSION_MOVING;
	session_timer(s, false);
	HASH_DEL(all->table, s);
	session_boot_cancel(s);
	if (s->making)
		snapshot_lost(s->making);
	session_not_found(&gone);
	session_tell_watches(s, why);
	session_tell_waits(s, e ? e : &gone);
	if (s->slot) {
		s->slot->session = NULL;
		if (release)
			pool_release(s->slot, reuse, io_mono_ns());
		s->slot = NULL;
	}
	if (s->files_only && release)
		session_drop_files(s);
	s->next_dead = all->dead;
	all->dead = s;
}

void session_end(struct session *s, const char *why, const struct err *e)
{
	end(s, why, e, true);
}

void sessions_lost(struct gateway *g, struct slot *slot, const char *why)
{
	struct session *s = slot->session;
	char text[160];
	(void)g;
	if (!s)
		return;
	slot->session = NULL;
	s->slot = NULL;
	if (s->state == SESSION_CREATING || (s->state == SESSION_MOVING && s->files_only)) {
		session_boot_lost(s, why);
		return;
	}
	snprintf(text, sizeof text, "has ended: %s", why);
	session_end(s, text, NULL);
}

// --- the table ---

static void free_dead(struct sessions *all)
{
	while (all->dead) {
		struct session *s = all->dead;
		all->dead = s->next_dead;
		session_free(s);
	}
}

static void before_sleep(struct ev_loop *loop, struct ev_prepare *w, int revents)
{
	(void)loop;
	(void)revents;
	free_dead(w->data);
}

int sessions_open(struct gateway *g)
{
	struct sessions *all = calloc(1, sizeof *all);
	if (!all)
		return -ENOMEM;
	all->snapshots = snapshots_new(g);
	all->idem = idem_new();
	if (!all->snapshots || !all->idem) {
		snapshots_free(all->snapshots);
		idem_free(all->idem);
		free(all);
		return -ENOMEM;
	}
	all->g = g;
	ev_prepare_init(&all->sweep, before_sleep);
	all->sweep.data = all;
	ev_prepare_start(g->loop, &all->sweep);
	ev_unref(g->loop);
	g->sessions = all;
	return 0;
}

// The slots are the pool's, which is about to end too.
void sessions_close(struct gateway *g)
{
	struct sessions *all = g->sessions;
	struct session *s, *next;
	struct err e;
	if (!all)
		return;
	err_set(&e, ERR_UNAVAILABLE, "the gateway is stopping");
	HASH_ITER(hh, all->table, s, next)
	end(s, "was killed", &e, false);
	free_dead(all);
	snapshots_free(all->snapshots);
	idem_free(all->idem);
	ev_ref(g->loop);
	ev_prepare_stop(g->loop, &all->sweep);
	g->sessions = NULL;
	free(all);
}

struct session *session_get(const struct gateway *g, const char *id, size_t n)
{
	struct session *s;
	const char *dash = n > 0 ? memchr(id, '-', n) : NULL;
	if (dash)
		n = (size_t)(dash - id);
	if (n != SESSION_ID)
		return NULL;
	HASH_FIND(hh, g->sessions->table, id, n, s);
	return s;
}

struct session *sessions_find(const struct gateway *g, const char *id, size_t n)
{
	struct session *s = session_get(g, id, n);
	return s && s->state != SESSION_CREATING ? s : NULL;
}

size_t sessions_running(const struct gateway *g)
{
	struct session *s, *next;
	size_t n = 0;
	HASH_ITER(hh, g->sessions->table, s, next)
	n += s->state == SESSION_RUNNING;
	return n;
}

// The only running one without a token.
static struct session *only_open(const struct gateway *g)
{
	struct session *s, *next, *found = NULL;
	HASH_ITER(hh, g->sessions->table, s, next)
	{
		if (s->state != SESSION_RUNNING || s->token)
			continue;
		if (found)
			return NULL;
		found = s;
	}
	return found;
}

// A paused one is found too: what becomes of the request is session_wake's to say.
struct session *sessions_signed(const struct gateway *g, const char *method, const char *path, const char *username,
	const char *signature, const char *expiration)
{
	struct session *s, *next;
	long long until = 0;
	if (!signature)
		return only_open(g);
	if (expiration && text_int(expiration, strlen(expiration), INT64_MIN, INT64_MAX, &until) < 0)
		return NULL;
	const struct sign_url url = {
		.path = path ? path : "",
		.path_n = path ? strlen(path) : 0,
		.operation = strcmp(method, "POST") == 0 ? "write" : "read",
		.user = username ? username : "",
		.user_n = username ? strlen(username) : 0,
		.expires = expiration != NULL,
		.expiration = until,
	};
	HASH_ITER(hh, g->sessions->table, s, next)
	{
		if (s->state != SESSION_CREATING && s->token &&
			sign_check(&url, s->token, strlen(s->token), signature, strlen(signature)) == 1)
			return s;
	}
	return NULL;
}
