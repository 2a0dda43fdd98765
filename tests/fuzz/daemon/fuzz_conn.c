// SPDX-License-Identifier: Apache-2.0
// A whole daemon but for its listeners, its init part and its children: connections, both route tables, all handlers, over a clock,
// sockets and children that are not there, in a root directory of its own.
// The first three bytes: which surface, whether a token is set and how it ends; how reads are cut; how writes are. Then what the client
// says, in which MARK and a letter stand for what else happens (`happen`).
#include "daemon/config.h"
#include "daemon/core/proc.h"
#include "daemon/envd/envd.h"
#include "daemon/log.h"
#include "daemon/net/route.h"
#include "daemon/sandboxd/sandboxd.h"
#include "tests/fuzz/daemon/fake.h"
#include "tests/fuzz/daemon/peer.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MARK = 0xfe, PEERS = FAKE_FDS, TURNS = 60, END_TURNS = 400 };
enum { ENVD = 1, TOKEN = 2, ABRUPT = 4, HALF = 8 }; // of the first byte

struct world {
	struct ev_loop *loop;
	struct config config;
	struct spawn_base base;
	struct procs *procs;
	struct net *net;
	struct metrics metrics;
	struct sandboxd sandboxd;
	struct envd envd;
	struct route_table tables[2];
	struct err refusal;
	bool ending;
	unsigned flags, cut, put;
	struct peer peers[PEERS];
	size_t count, at; // peers, the one that speaks
};

// --- what daemon.c does ---

static const struct err *refuse(void *arg)
{
	struct world *w = arg;
	return w->ending ? &w->refusal : NULL;
}

static bool allowed(void *arg, const struct http_head *head)
{
	const struct world *w = arg;
	return !w->config.token || http_span_is(http_get(head, "X-Access-Token"), w->config.token);
}

static void build_net(struct world *w)
{
	const struct net_limits limits = {.max_body = 1 << 20,
		.max_header = 8192,
		.max_conns = 3, // the last peer is beyond it
		.header_timeout = 20,
		.idle_timeout = 640,
		.send_timeout = 60,
		.out_max = 64 * 1024};
	const struct net_hooks hooks = {.arg = w, .refuse = refuse, .allowed = allowed};
	w->net = net_new(w->loop, &limits, &hooks);
	FUZZ_CHECK(w->net);
	w->sandboxd.net = w->net;
	w->sandboxd.metrics = &w->metrics;
	sandboxd_routes(&w->tables[0], &w->sandboxd);
	envd_routes(&w->tables[1], &w->envd);
	for (int i = 0; i < 2; i++)
		w->tables[i].counts = &w->metrics.surface[i];
}

static void build(struct world *w)
{
	const struct proc_limits limits = {.max_procs = 16,
		.max_ended = 16,
		.ended_memory = 1 << 20,
		.stdin_max = 65536,
		.replay = 65536,
		.grace_ms = 200,
		.retention_ms = 60000,
		.metrics = &w->metrics};
	w->config = (struct config){.workspace = "/workspace",
		.user = "root",
		.token = w->flags & TOKEN ? "token" : NULL,
		.timeout = 30,
		.max_body = 1 << 20,
		.venv = false};
	w->base.devnull = -1;
	sandboxd_terminating(&w->refusal);
	w->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	struct users *users = users_new("/etc/passwd", "/etc/group");
	struct slices *slices = slices_new(w->loop);
	struct watches *watches = watches_new(w->loop, slices, NULL);
	w->procs = procs_new(w->loop, &limits, &w->base);
	FUZZ_CHECK(w->loop && users && slices && watches && w->procs);
	w->sandboxd = (struct sandboxd){
		.config = &w->config, .procs = w->procs, .users = users, .slices = slices, .watches = watches};
	w->envd = (struct envd){.config = &w->config,
		.procs = w->procs,
		.users = users,
		.slices = slices,
		.watches = watches,
		.loop = w->loop};
	w->sandboxd.workspace = workspace_new(&w->sandboxd, w->loop);
	w->envd.control = control_new(&w->config, NULL);
	FUZZ_CHECK(w->sandboxd.workspace && w->envd.control);
	build_net(w);
	workspace_ready(w->sandboxd.workspace);
}

static void release(struct world *w)
{
	net_free(w->net);
	envd_filesystem_free(w->envd.filesystem);
	watches_free(w->sandboxd.watches);
	slices_free(w->sandboxd.slices);
	procs_free(w->procs);
	workspace_free(w->sandboxd.workspace);
	control_free(w->envd.control);
	users_free(w->sandboxd.users);
	ev_loop_destroy(w->loop);
}

// --- turns ---

static void turns(struct world *w, unsigned n)
{
	while (n-- > 0) {
		fake_pass(0.002);
		ev_run(w->loop, EVRUN_NOWAIT);
		if (fake_children_turn())
			procs_reap(w->procs);
	}
}

// Until the daemon has read all that was said, or does not want it.
static void settle(struct world *w)
{
	size_t before, now = SIZE_MAX;
	do {
		before = now;
		turns(w, TURNS);
		now = 0;
		for (size_t i = 0; i < w->count; i++)
			now += w->peers[i].closed ? 0 : buf_len(&w->peers[i].in);
	} while (now > 0 && now < before);
}

static void connect_one(struct world *w)
{
	struct peer *p = &w->peers[w->count];
	if (w->count == PEERS || peer_open(p, w->cut, w->put) < 0)
		return;
	w->at = w->count++;
	net_add_take(w->net, p->fd, &w->tables[w->flags & ENVD ? 1 : 0]);
}

static void happen(struct world *w, unsigned what)
{
	struct peer *p = &w->peers[w->at];
	switch (what) {
	case 't': // a turn
		turns(w, 1);
		break;
	case 's': // many
		settle(w);
		break;
	case 'n': // another connection
		connect_one(w);
		break;
	case 'o': // the one before it speaks
		w->at = w->at ? w->at - 1 : w->count - 1;
		break;
	case 'e':
		p->eof = true;
		break;
	case 'r':
		peer_reset(p);
		break;
	case 'w':
		p->stalled = !p->stalled;
		break;
	case 'k': // the children
		fake_children_end();
		procs_reap(w->procs);
		break;
	case 'c': // long enough for every patience but that of the idle
		fake_pass(61);
		turns(w, 4);
		break;
	case 'i':
		fake_pass(641);
		turns(w, 4);
		break;
	default:
		peer_say(p, (const unsigned char[]){MARK}, 1);
	}
}

static void speak(struct world *w, const uint8_t *s, size_t n)
{
	while (n > 0) {
		const uint8_t *mark = memchr(s, MARK, n);
		size_t len = mark ? (size_t)(mark - s) : n;
		peer_say(&w->peers[w->at], s, len);
		s += len;
		n -= len;
		if (n >= 2)
			happen(w, s[1]);
		len = n < 2 ? n : 2;
		s += len;
		n -= len;
	}
}

// As the daemon ends: nobody is left waiting.
static void end(struct world *w)
{
	for (size_t i = 0; i < w->count; i++)
		w->peers[i].stalled = false;
	settle(w);
	for (size_t i = 0; i < w->count && w->flags & HALF; i++)
		w->peers[i].eof = true;
	settle(w);
	for (size_t i = 0; i < w->count; i++)
		peer_ending(&w->peers[i]); // and takes all from now on
	w->ending = true;
	workspace_terminate(w->sandboxd.workspace);
	procs_terminate(w->procs);
	fake_children_end();
	procs_reap(w->procs);
	turns(w, TURNS);
	procs_kill_all(w->procs);
	watches_terminate(w->sandboxd.watches, -ECANCELED);
	net_drain(w->net);
	for (unsigned i = 0; i < END_TURNS && !net_drained(w->net); i++)
		turns(w, 4);
	turns(w, 4);
	FUZZ_CHECK(net_drained(w->net));
	for (size_t i = 0; i < w->count; i++)
		peer_settled(&w->peers[i]);
}

struct input {
	const uint8_t *p;
	size_t n;
};

static void run(void *arg)
{
	struct input *in = arg;
	struct world *w = calloc(1, sizeof *w);
	FUZZ_CHECK(w);
	jail_reset();
	fake_begin();
	w->flags = fuzz_choice(&in->p, &in->n);
	w->cut = fuzz_choice(&in->p, &in->n) & 63;
	w->put = fuzz_choice(&in->p, &in->n) & 63;
	build(w);
	connect_one(w);
	speak(w, in->p, in->n);
	if (!(w->flags & ABRUPT))
		end(w);
	release(w);
	for (size_t i = 0; i < w->count; i++)
		peer_close(&w->peers[i]);
	fake_children_free();
	fake_end();
	free(w);
}

// A report cannot be written from within the jail: the input that is at work is kept in the file that FUZZ_LAST names.
static void keep_last(const uint8_t *p, size_t n)
{
	static int fd = -2;
	const char *path = getenv("FUZZ_LAST");
	if (fd == -2)
		fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644) : -1;
	if (fd >= 0 && (pwrite(fd, p, n, 0) < 0 || ftruncate(fd, (off_t)n) < 0))
		perror(path);
}

int fuzz_conn(const uint8_t *p, size_t n)
{
	struct input in = {p, n};
	keep_last(p, n);
	log_setup(LOG_ERROR, false);
	jail_run(run, &in);
	return 0;
}
