// SPDX-License-Identifier: Apache-2.0
// One worker: picks actions by its own random numbers, keeps a connection to each surface, counts, reports what was wrong.
#include "tests/soak/soak.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIMIT_US ((int64_t)30000000)

// splitmix64: any seed will do.
static uint64_t next_random(struct worker *w)
{
	uint64_t z = w->random += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint32_t pick(struct worker *w, uint32_t n)
{
	return (uint32_t)((next_random(w) >> 32) * n >> 32);
}

bool chance(struct worker *w, uint32_t percent)
{
	return pick(w, 100) < percent;
}

enum surface any(struct worker *w)
{
	return chance(w, 50) ? A : B;
}

void wrong(struct worker *w, const char *fmt, ...)
{
	va_list ap;
	if (w->wrong[0])
		return;
	va_start(ap, fmt);
	vsnprintf(w->wrong, sizeof w->wrong, fmt, ap);
	va_end(ap);
}

void pause_us(int64_t us)
{
	const struct timespec ts = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
	nanosleep(&ts, NULL);
}

bool dial(struct worker *w, enum surface s, struct client *c)
{
	int rc = client_open(c, w->port[s]);
	c->limit_us = LIMIT_US * client_scale();
	if (rc == 0)
		return true;
	client_close(c);
	wrong(w, "connect to surface %c: %s", "AB"[s], strerror(-rc));
	return false;
}

struct client *surface(struct worker *w, enum surface s)
{
	if (w->c[s].fd >= 0 && chance(w, 20))
		hang_up(w, s);
	if (w->c[s].fd < 0 && !dial(w, s, &w->c[s]))
		return NULL;
	return &w->c[s];
}

void hang_up(struct worker *w, enum surface s)
{
	if (w->c[s].fd >= 0)
		client_close(&w->c[s]);
	w->spent[s] = false;
}

int answered(struct worker *w, enum surface s, int status)
{
	atomic_fetch_add(&w->t->requests, 1);
	if (status > 0 && status < STATUS_MAX)
		atomic_fetch_add(&w->t->status[s][status], 1);
	else
		atomic_fetch_add(&w->t->no_answer, 1);
	return status;
}

static int dump_into(const char *p, size_t n, void *out)
{
	buf_append(out, p, n);
	return buf_failed(out);
}

void put_json(struct buf *out, json_t *doc)
{
	if (doc)
		json_dump_callback(doc, dump_into, out, JSON_COMPACT);
	json_decref(doc);
}

// The kept connection's answer to what was sent with RC.
static int receive(struct worker *w, enum surface s, int rc)
{
	// What was refused before all of it was sent may have been answered all the same.
	int status = rc == 0 || rc == -EPIPE || rc == -ECONNRESET ? client_answer(&w->c[s]) : rc;
	w->spent[s] = status < 200 || status >= 300;
	return answered(w, s, status);
}

// Ready for one more request on the kept connection.
static struct client *ready(struct worker *w, enum surface s)
{
	if (w->spent[s])
		hang_up(w, s);
	return surface(w, s);
}

int get(struct worker *w, enum surface s, const char *target)
{
	struct client *c = ready(w, s);
	return c ? receive(w, s, client_send(c, "GET", target, NULL)) : -ECONNREFUSED;
}

int post(struct worker *w, enum surface s, const char *target, json_t *body)
{
	struct buf text = {0};
	put_json(&text, body);
	struct client *c = ready(w, s);
	const char *json = buf_cstr(&text);
	int rc = c && json ? client_send(c, "POST", target, json) : -ECONNREFUSED;
	buf_release(&text);
	return c ? receive(w, s, rc) : rc;
}

int send_raw(struct worker *w, enum surface s, const char *method, const char *target, const char *headers,
	const void *body, size_t n)
{
	struct buf out = {0};
	buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, target, headers);
	if (body)
		buf_printf(&out, "Content-Length: %zu\r\n", n);
	BUF_LIT(&out, "\r\n");
	buf_append(&out, body ? body : "", n);
	struct client *c = ready(w, s);
	int rc = c ? client_send_bytes(c, &out) : -ECONNREFUSED;
	buf_release(&out);
	return c ? receive(w, s, rc) : rc;
}

const json_t *answer(struct worker *w, enum surface s, const char *key)
{
	return json_object_get(w->c[s].doc, key);
}

bool want_one_of(struct worker *w, const char *what, int status, const int *allowed)
{
	for (int i = 0; allowed[i]; i++)
		if (status == allowed[i])
			return true;
	if (status < 0)
		wrong(w, "%s: no answer: %s", what, strerror(-status));
	else
		wrong(w, "%s: status %d", what, status);
	return false;
}

// --- the loop ---

static const struct action *const lists[] = {actions_process, actions_files, actions_watch, actions_rest};

static const struct action *choose(struct worker *w)
{
	unsigned sum = 0;
	for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
		for (const struct action *a = lists[l]; a->name; a++)
			sum += a->weight;
	unsigned at = pick(w, sum);
	for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
		for (const struct action *a = lists[l]; a->name; a++) {
			if (at < a->weight)
				return a;
			at -= a->weight;
		}
	return NULL;
}

// A daemon that was killed meanwhile excuses what an action missed.
static void report(struct worker *w)
{
	unsigned epoch = atomic_load(&w->t->epoch);
	if (!w->wrong[0])
		return;
	if (epoch != w->epoch || epoch % 2) {
		atomic_fetch_add(&w->t->excused, 1);
		atomic_fetch_add(&w->t->streams_cut, w->cuts);
		return;
	}
	unsigned at = atomic_fetch_add(&w->t->wrongs, 1);
	if (at < WRONGS_MAX)
		snprintf(w->t->wrong[at], sizeof w->t->wrong[at], "worker %d, action %lu, %s: %s", w->id, w->n,
			w->action, w->wrong);
}

int worker_run(struct worker *w)
{
	w->c[A].fd = w->c[B].fd = -1;
	while (!atomic_load(&w->t->stop)) {
		const struct action *a = choose(w);
		w->n++;
		w->action = a->name;
		w->wrong[0] = '\0';
		w->cuts = 0;
		unsigned epoch = atomic_load(&w->t->epoch);
		if (epoch != w->epoch) { // connections to a daemon that was killed
			hang_up(w, A);
			hang_up(w, B);
		}
		w->epoch = epoch;
		snprintf(w->t->doing[w->id], sizeof w->t->doing[w->id], "%s", a->name);
		a->run(w);
		w->t->doing[w->id][0] = '\0';
		atomic_fetch_add(&w->t->actions, 1);
		report(w);
		if (w->wrong[0]) {
			hang_up(w, A);
			hang_up(w, B);
		}
		if (chance(w, 25))
			pause_us(pick(w, 20000));
	}
	hang_up(w, A);
	hang_up(w, B);
	return 0;
}
