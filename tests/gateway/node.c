// SPDX-License-Identifier: Apache-2.0
#include "daemon/io.h"
#include "daemon/log.h"
#include "tests/gateway/drive.h"
#include "tests/gateway/gateway.h"
#include "tests/gateway/job.h"
#include "tests/gateway/root.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#define RETRY_S 1.

// Where a slot's celld lives. There from the slot's start until its claim is removed.
struct place {
	struct node *node;
	struct slot *slot;
	struct box *box;     // NULL once it has ended
	struct drive *drive; // of it: ready or reset
	struct job *job;     // removes the claim
	ev_timer later;      // what the pool must not be told from within its own call
	bool doomed;         // LATER: the claim's removal, else the reset's failure
	char why[256];       // it was killed, or ""
	char dir[PATH_MAX];  // "" once it was moved away
	struct place *prev, *next;
};

struct node {
	struct gateway *g;
	struct root root;
	struct place *places;
	ev_timer sweep;
};

// --- places ---

static struct place *place_of(const struct slot *s)
{
	return s->place;
}

struct box *node_box(const struct slot *s)
{
	return s->place ? place_of(s)->box : NULL;
}

const char *node_dir(const struct slot *s)
{
	return place_of(s)->dir;
}

const char *node_root(const struct gateway *g)
{
	return g->node->root.path;
}

static void place_free(struct place *p)
{
	drive_cancel(p->drive);
	box_free(p->box);
	job_stop(p->job);
	ev_timer_stop(p->node->g->loop, &p->later);
	DL_DELETE(p->node->places, p);
	free(p);
}

static void do_later(struct place *p, double s)
{
	struct ev_loop *loop = p->node->g->loop;
	ev_now_update(loop);
	ev_timer_stop(loop, &p->later);
	ev_timer_set(&p->later, s, 0.);
	ev_timer_start(loop, &p->later);
}

// --- the end of one ---

static void gone(struct place *p)
{
	struct slot *s = p->slot;
	s->place = NULL;
	place_free(p);
	pool_removed(s, io_mono_ns());
}

static void on_removed(void *arg, int status)
{
	struct place *p = arg;
	p->job = NULL;
	if (status != 0)
		log_warn("left", "%s could not be removed: status %d", p->dir, status);
	gone(p);
}

static void on_later(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct place *p = w->data;
	if (!p->doomed) {
		pool_reset_done(p->slot, -ENOMEM, "out of memory", io_mono_ns());
		return;
	}
	if (!p->dir[0] || !p->slot->remove_when_gone) {
		gone(p);
		return;
	}
	p->job = job_remove(loop, p->dir, on_removed, p);
	if (!p->job)
		do_later(p, RETRY_S);
}

// --- what its celld says ---

// It is of no use: the pool hears of it when it has ended.
static void give_up(struct place *p, const char *why)
{
	(void)snprintf(p->why, sizeof p->why, "%s", why);
	log_warn("sandbox", "%u: %s", p->slot->number, why);
	box_kill(p->box);
}

static void on_driven_ready(void *arg, int rc, const char *why)
{
	struct place *p = arg;
	p->drive = NULL;
	if (rc < 0)
		give_up(p, why);
	else
		pool_started(p->slot, io_mono_ns());
}

static void on_ready(void *arg, struct box *b)
{
	struct place *p = arg;
	p->drive = drive_ready(p->node->g->loop, b, on_driven_ready, p);
	if (!p->drive)
		give_up(p, "out of memory");
}

static void on_ended(void *arg, struct box *b, const char *why)
{
	struct place *p = arg;
	char text[256];
	(void)snprintf(text, sizeof text, "%s", p->why[0] ? p->why : why);
	drive_cancel(p->drive);
	p->drive = NULL;
	p->box = NULL;
	log_debug("sandbox", "%u: ended: %s", p->slot->number, text);
	pool_ended(p->slot, text, io_mono_ns());
	box_free(b);
}

// --- what the pool wants ---

static struct place *place_new(struct node *n, struct slot *s)
{
	struct place *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->node = n;
	p->slot = s;
	ev_timer_init(&p->later, on_later, 0., 0.);
	p->later.data = p;
	DL_APPEND(n->places, p);
	return p;
}

static int start_box(struct place *p)
{
	static const struct box_events events = {.ready = on_ready, .ended = on_ended};
	const struct gateway *g = p->node->g;
	char name[32];
	(void)snprintf(name, sizeof name, "%u", p->slot->number);
	struct box_spec spec = {
		.celld = g->options->celld,
		.dir = p->dir,
		.hide = p->node->root.path,
		.namespaces = g->namespaces,
		.private_net = g->options->private_net,
		.verbose = g->options->verbose,
		.name = name,
	};
	p->box = box_start(g->loop, &spec, &events, p);
	return p->box ? 0 : -errno;
}

static int start(void *arg, struct slot *s)
{
	struct node *n = arg;
	struct place *p = place_new(n, s);
	if (!p)
		return -ENOMEM;
	int len = snprintf(p->dir, sizeof p->dir, "%s/slots/%u", n->root.path, s->number);
	// What its root leaves there for others of this machine's users is not for them.
	mode_t mode = n->g->namespaces ? 0700 : 0711;
	int rc = len < 0 || (size_t)len >= sizeof p->dir ? -ENAMETOOLONG : mkdir(p->dir, mode) < 0 ? -errno : 0;
	if (rc == 0) {
		rc = start_box(p);
		if (rc < 0)
			rmdir(p->dir);
	}
	if (rc < 0) {
		log_warn("sandbox", "%u cannot be started: %s", s->number, strerror(-rc));
		place_free(p);
		return rc;
	}
	s->place = p;
	return 0;
}

static void on_reset(void *arg, int rc, const char *why)
{
	struct place *p = arg;
	p->drive = NULL;
	if (rc < 0)
		log_warn("reset", "%u: %s", p->slot->number, why);
	pool_reset_done(p->slot, rc, why, io_mono_ns());
}

static void reset(void *arg, struct slot *s)
{
	struct node *n = arg;
	struct place *p = place_of(s);
	drive_cancel(p->drive);
	p->drive = NULL;
	if (!p->box)
		return; // the pool knows
	if (box_frozen(p->box))
		box_thaw(p->box);
	p->drive = drive_reset(n->g->loop, p->box, on_reset, p);
	if (!p->drive)
		do_later(p, 0.);
}

static bool alive(void *arg, const struct slot *s)
{
	(void)arg;
	const struct box *b = node_box(s);
	return b && box_alive(b);
}

static void kill_slot(void *arg, struct slot *s)
{
	(void)arg;
	struct place *p = place_of(s);
	drive_cancel(p->drive);
	p->drive = NULL;
	if (p->box)
		box_kill(p->box);
}

static void remove_claim(void *arg, struct slot *s)
{
	(void)arg;
	struct place *p = place_of(s);
	p->doomed = true;
	do_later(p, 0.);
}

static void lost(void *arg, struct slot *s, const char *why)
{
	struct node *n = arg;
	log_warn("sandbox", "%u: lost: %s", s->number, why);
	sessions_lost(n->g, s, why);
}

int node_keep_claim(struct slot *s, const char *to)
{
	struct place *p = place_of(s);
	if (!p || !p->dir[0])
		return -ENOENT;
	if (rename(p->dir, to) < 0)
		return -errno;
	p->dir[0] = '\0';
	return 0;
}

// --- the node ---

size_t node_sweep(struct gateway *g)
{
	size_t n = pool_sweep(g->pool, io_mono_ns());
	if (n > 0)
		log_info("sweep", "%zu sandboxes reclaimed", n);
	return n;
}

static void on_sweep(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	node_sweep(w->data);
}

// Warm ones are of the first template, which a create without wishes gets.
static struct slot_size warm_size(const struct options *o)
{
	const struct template_option *base = &o->templates[0];
	return (struct slot_size){
		.memory_mb = base->memory_mb >= 0 ? base->memory_mb : o->sandbox_memory_mb,
		.cpus = base->cpus >= 0 ? base->cpus : o->sandbox_cpus,
	};
}

static struct pool *new_pool(struct node *n)
{
	static const struct pool_driver driver = {
		.start = start,
		.reset = reset,
		.alive = alive,
		.kill = kill_slot,
		.remove = remove_claim,
		.lost = lost,
	};
	const struct options *o = n->g->options;
	struct pool_limits limits = {
		.warm = o->pool,
		.max = o->max,
		.memory_mb = o->memory_mb,
		.cpus = o->cpus,
		.grace_ns = (int64_t)(o->grace * 1e9),
		.size = warm_size(o),
	};
	return pool_new(&limits, &driver, n);
}

int node_open(struct gateway *g)
{
	struct node *n = calloc(1, sizeof *n);
	if (!n)
		return -ENOMEM;
	int rc = root_open(&n->root, g->options->dir);
	if (rc < 0) {
		free(n);
		return rc;
	}
	n->g = g;
	g->node = n;
	ev_timer_init(&n->sweep, on_sweep, g->options->sweep, g->options->sweep);
	n->sweep.data = g;
	g->pool = new_pool(n);
	if (!g->pool) {
		node_close(g);
		return -ENOMEM;
	}
	ev_timer_start(g->loop, &n->sweep);
	pool_fill(g->pool, io_mono_ns());
	return 0;
}

void node_close(struct gateway *g)
{
	struct node *n = g->node;
	if (!n)
		return;
	ev_timer_stop(g->loop, &n->sweep);
	pool_free(g->pool);
	g->pool = NULL;
	while (n->places)
		place_free(n->places);
	root_close(&n->root);
	free(n);
	g->node = NULL;
}
