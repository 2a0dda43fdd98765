// SPDX-License-Identifier: Apache-2.0
// celld-gateway: a local control plane with a pool of warm sandboxes, for the unmodified E2B SDKs. Options, limits, one loop, an orderly end.
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/net/listener.h"
#include "tests/gateway/client.h"
#include "tests/gateway/gateway.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define API_BODY_MAX ((size_t)1024 * 1024)
#define CONNS_MAX 4096
// How long the ready line waits for the first warm sandbox.
#define WARM_S 10
#define LOOK_S 0.02
#define JOBS_S 5.

struct run {
	struct gateway g;
	int fd;
	struct listener *listener;
	ev_signal signals[3];
	ev_timer look; // until the ready line is out
	int64_t begun;
	char url[192], port[8];
};

static int start_fails(const char *what, const char *value, int rc)
{
	log_plain("celld-gateway: %s %s: %s", what, value, strerror(-rc));
	return 1;
}

// --- the ready line, and what to try ---

static void say_ready(const struct run *r, size_t warm)
{
	const struct gateway *g = &r->g;
	const char *key = g->options->api_key ? g->options->api_key : "e2b_00";
	if (g->namespaces)
		log_plain("celld-gateway %s ready: %s (%zu warm, namespaces)", GATEWAY_VERSION, r->url, warm);
	else
		log_plain("celld-gateway %s ready: %s (%zu warm, plain children: %s)", GATEWAY_VERSION, r->url, warm,
			g->plain_why);
	printf("export E2B_API_URL=%s E2B_SANDBOX_URL=%s E2B_API_KEY='%s'\n", r->url, r->url, key);
	printf("python3 -c 'from e2b import Sandbox; s = Sandbox.create(); print(s.commands.run(\"id; pwd\").stdout); "
	       "s.kill()'\n");
	printf("curl -sS -H \"X-API-Key: $E2B_API_KEY\" -H 'Content-Type: application/json' -d "
	       "'{\"templateID\":\"base\"}' "
	       "%s/v2/sandboxes\n",
		r->url);
	fflush(stdout);
}

static void on_look(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct run *r = w->data;
	struct pool_counts n;
	pool_count(r->g.pool, &n);
	bool late = io_mono_ns() - r->begun > (int64_t)WARM_S * 1000000000;
	if (n.slots[SLOT_WARM] == 0 && r->g.options->pool > 0 && !late)
		return;
	ev_timer_stop(loop, w);
	say_ready(r, n.slots[SLOT_WARM]);
}

// --- building ---

static rlim_t raise_limits(void)
{
	struct rlimit n = {.rlim_cur = 1024};
	if (getrlimit(RLIMIT_NOFILE, &n) == 0) {
		n.rlim_cur = n.rlim_max;
		setrlimit(RLIMIT_NOFILE, &n);
		getrlimit(RLIMIT_NOFILE, &n);
	}
	return n.rlim_cur;
}

// How sandboxes are kept apart: an error if what was asked for is not to be had.
static int choose_isolation(struct gateway *g)
{
	enum isolation wanted = g->options->isolation;
	g->plain_why = wanted == ISOLATION_PLAIN ? "as asked for" : box_can_isolate();
	g->namespaces = !g->plain_why;
	if (!g->namespaces)
		log_warn("isolation", "none: what runs in a sandbox can do to this machine whatever %s can",
			geteuid() == 0 ? "root" : "its user");
	if (g->namespaces || wanted != ISOLATION_NAMESPACES)
		return 0;
	log_plain("celld-gateway: --isolation namespaces: %s", g->plain_why);
	return 1;
}

// Where it is reached: what listens everywhere is reached over loopback.
static int name_it(struct run *r)
{
	char name[160];
	int rc = listener_name(r->fd, name, sizeof name);
	const char *colon = rc < 0 ? NULL : strrchr(name, ':');
	if (!colon || strncmp(name, "unix:", 5) == 0 || strlen(colon + 1) >= sizeof r->port)
		return start_fails("--listen", r->g.options->listen, rc < 0 ? rc : -EINVAL);
	memcpy(r->port, colon + 1, strlen(colon + 1) + 1);
	bool any = strncmp(name, "0.0.0.0:", 8) == 0 || strncmp(name, "[::]:", 5) == 0;
	(void)snprintf(r->url, sizeof r->url, any ? "http://127.0.0.1%s" : "http://%s", any ? colon : name);
	if (r->g.options->domain)
		(void)snprintf(r->g.domain, sizeof r->g.domain, "%s", r->g.options->domain);
	else
		(void)snprintf(r->g.domain, sizeof r->g.domain, "localhost:%s", r->port);
	return 0;
}

static void take(void *arg, int fd)
{
	struct run *r = arg;
	net_add_take(r->g.net, fd, &r->g.table);
}

static bool evict(void *arg)
{
	struct run *r = arg;
	return net_evict(r->g.net);
}

// A request to a sandbox takes two descriptors, and half of all are for the sandboxes' own affairs.
static int open_net(struct run *r, rlim_t files)
{
	struct net_limits limits = {
		.max_body = API_BODY_MAX,
		.max_header = 65536,
		.max_conns = files / 4 < CONNS_MAX ? (size_t)files / 4 : CONNS_MAX,
		.header_timeout = 20,
		.idle_timeout = 640,
		.send_timeout = 60,
		.out_max = 256 * 1024,
	};
	struct net_hooks hooks = {.arg = r};
	r->g.net = net_new(r->g.loop, &limits, &hooks);
	r->listener = r->g.net ? listener_new(r->g.loop, r->fd, take, r) : NULL;
	if (!r->listener)
		return -ENOMEM;
	listener_on_full(r->listener, evict);
	return 0;
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
	(void)revents;
	log_info("stop", "%s", strsignal(w->signum));
	ev_break(loop, EVBREAK_ALL);
}

static void watch(struct run *r)
{
	static const int handled[COUNT(r->signals)] = {SIGTERM, SIGINT, SIGHUP};
	for (size_t i = 0; i < COUNT(handled); i++) {
		ev_signal_init(&r->signals[i], on_signal, handled[i]);
		ev_signal_start(r->g.loop, &r->signals[i]);
	}
	ev_timer_init(&r->look, on_look, 0., LOOK_S);
	r->look.data = r;
	ev_timer_start(r->g.loop, &r->look);
}

static int build(struct run *r, rlim_t files)
{
	r->begun = io_mono_ns();
	r->g.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	if (!r->g.loop)
		return start_fails("event", "loop", -ENOMEM);
	watch(r);
	r->fd = listener_open(r->g.options->listen, false);
	if (r->fd < 0)
		return start_fails("--listen", r->g.options->listen, r->fd);
	if (name_it(r) != 0 || choose_isolation(&r->g) != 0)
		return 1;
	int rc = node_open(&r->g);
	if (rc == -EBUSY) {
		log_plain("celld-gateway: --dir %s: another gateway is at work in it", r->g.options->dir);
		return 1;
	}
	if (rc < 0)
		return start_fails("--dir", r->g.options->dir ? r->g.options->dir : "/tmp", rc);
	rc = sessions_open(&r->g);
	gateway_routes(&r->g.table, &r->g);
	if (rc == 0)
		rc = open_net(r, files);
	return rc < 0 ? start_fails("memory", "for the gateway", rc) : 0;
}

static void on_late(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)w, (void)revents;
	ev_break(loop, EVBREAK_ALL);
}

// Only jobs are left in the loop (what they remove is gone, what they copy has no reader): they are waited for, but not for ever.
static void end_jobs(struct ev_loop *loop)
{
	ev_timer late;
	ev_now_update(loop);
	ev_timer_init(&late, on_late, JOBS_S, 0.);
	ev_timer_start(loop, &late);
	ev_unref(loop);
	ev_run(loop, 0);
	ev_ref(loop);
	ev_timer_stop(loop, &late);
}

static void release(struct run *r)
{
	struct gateway *g = &r->g;
	listener_free(r->listener);
	net_free(g->net);
	if (g->sessions)
		sessions_close(g);
	node_close(g);
	if (g->loop) {
		for (size_t i = 0; i < COUNT(r->signals); i++)
			ev_signal_stop(g->loop, &r->signals[i]);
		ev_timer_stop(g->loop, &r->look);
		end_jobs(g->loop);
		ev_loop_destroy(g->loop);
	}
	if (r->fd >= 0)
		io_close(&r->fd);
}

int main(int argc, char **argv)
{
	struct options options;
	struct run r = {.fd = -1, .g.options = &options};
	int status;
	if (!options_load(&options, argc, argv, &status))
		return status;
	if (options.command)
		return client_run(&options);
	signal(SIGPIPE, SIG_IGN);
	umask(022);
	log_setup(LOG_INFO, false);
	rlim_t files = raise_limits();
	status = build(&r, files);
	if (status == 0)
		ev_run(r.g.loop, 0);
	release(&r);
	return status;
}
