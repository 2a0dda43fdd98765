// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon.h"

#include "daemon/core/confine.h"
#include "daemon/core/proc.h"
#include "daemon/core/slice.h"
#include "daemon/core/store.h"
#include "daemon/core/users.h"
#include "daemon/core/watch.h"
#include "daemon/daemon_loop.h"
#include "daemon/dump.h"
#include "daemon/envd/envd.h"
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/net/listener.h"
#include "daemon/net/route.h"
#include "daemon/notify.h"
#include "daemon/sandboxd/sandboxd.h"
#include "daemon/trim.h"
#include "proto/text.h"

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define STDIN_MAX ((size_t)1024 * 1024)
#define OUT_MAX ((size_t)256 * 1024)
#define ENDED_MEMORY ((size_t)16 * 1024 * 1024)
// What clients get to read their last frames once everything has ended.
#define FLUSH_S 0.3
// What readers get for output that is still in the pipes when every process has ended.
#define UNREAD_S 0.6
// While ending: how often connections are asked whether they are through, and orphans whether they are gone.
#define LOOK_S 0.01

// UPGRADING: another binary will serve; streams have been told, answers that are under way are waited for.
enum phase { SERVING, STOPPING, DRAINING, UPGRADING };

struct daemon {
	const struct daemon_spec *spec;
	struct ev_loop *loop;
	struct users *users;
	struct procs *procs;
	struct slices *slices;
	struct watches *watches;
	struct net *net;
	struct trim trim;
	struct metrics *metrics, own; // OWN where nothing is shared
	int64_t started_ms;
	struct sandboxd sandboxd;
	struct envd envd;
	struct route_table tables[2]; // surface A, surface B
	struct listener *listeners[2 * CONFIG_LISTEN_MAX];
	size_t listener_count;
	ev_signal signals[8];
	size_t signal_count;
	ev_timer stop;    // STOPPING: until KILL; DRAINING and UPGRADING: until the end
	ev_timer upgrade; // begins it, apart from the request that asked for it
	ev_timer look;
	enum phase phase;
	bool unread; // STOPPING: nothing runs any more, only readers are waited for
	struct err refusal;
};

// --- what the connections ask ---

static const struct err *refuse(void *arg)
{
	struct daemon *d = arg;
	return d->phase == SERVING ? NULL : &d->refusal;
}

static bool token_is(const char *token, struct http_span given)
{
	return given.p && text_equal_ct(given.p, given.n, token, strlen(token));
}

// Surface A's gate; surface B's routes have their own (envd/routes.c), for the same token.
static bool allowed(void *arg, const struct http_head *head)
{
	static const char bearer[] = "Bearer ";
	struct daemon *d = arg;
	const char *token = d->spec->config->token;
	if (!token || token_is(token, http_get(head, "X-Access-Token")))
		return true;
	struct http_span auth = http_get(head, "Authorization");
	size_t n = sizeof bearer - 1;
	if (!auth.p || auth.n < n || strncasecmp(auth.p, bearer, n) != 0)
		return false;
	return token_is(token, (struct http_span){auth.p + n, auth.n - n});
}

static void take_sandboxd(void *arg, int fd)
{
	struct daemon *d = arg;
	net_add_take(d->net, fd, &d->tables[0]);
}

static void take_envd(void *arg, int fd)
{
	struct daemon *d = arg;
	net_add_take(d->net, fd, &d->tables[1]);
}

static bool evict(void *arg)
{
	struct daemon *d = arg;
	return net_evict(d->net);
}

// --- the end ---

static void drain(struct daemon *d)
{
	d->phase = DRAINING;
	ev_timer_stop(d->loop, &d->stop);
	ev_timer_set(&d->stop, FLUSH_S, 0.);
	ev_timer_start(d->loop, &d->stop);
	watches_terminate(d->watches, -ECANCELED);
	net_drain(d->net);
}

static void on_stop_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct daemon *d = w->data;
	if (d->phase == DRAINING || d->phase == UPGRADING) {
		ev_break(loop, EVBREAK_ALL);
		return;
	}
	procs_kill_all(d->procs);
	drain(d);
}

static void hurry(struct daemon *d)
{
	d->unread = true;
	if (ev_timer_remaining(d->loop, &d->stop) <= UNREAD_S)
		return;
	ev_timer_stop(d->loop, &d->stop);
	ev_timer_set(&d->stop, UNREAD_S, 0.);
	ev_timer_start(d->loop, &d->stop);
}

static void on_look(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct daemon *d = w->data;
	if (d->phase == STOPPING && procs_alone(d->procs))
		drain(d);
	if (d->phase == STOPPING && !d->unread && procs_childless(d->procs))
		hurry(d);
	if ((d->phase == DRAINING || d->phase == UPGRADING) && net_drained(d->net))
		ev_break(loop, EVBREAK_ALL);
}

static void stop(struct daemon *d, int sig)
{
	if (d->phase != SERVING && d->phase != UPGRADING)
		return;
	log_info("stop", "%s: %zu commands end", strsignal(sig), procs_living(d->procs));
	d->phase = STOPPING;
	notify_say(d->spec->notify, "STOPPING=1\nSTATUS=stopping");
	workspace_terminate(d->sandboxd.workspace);
	procs_terminate(d->procs);
	ev_now_update(d->loop);
	ev_timer_stop(d->loop, &d->stop);
	ev_timer_set(&d->stop, (double)d->spec->config->stop_grace_ms / 1e3, 0.);
	ev_timer_start(d->loop, &d->stop);
	ev_timer_again(d->loop, &d->look);
	on_look(d->loop, &d->look, 0);
}

// Its end is the next READY=1. The time is for Type=notify-reload.
static void say_reloading(struct notify *n, const char *status)
{
	notify_say(n, "RELOADING=1\nMONOTONIC_USEC=%lld\nSTATUS=%s", (long long)(io_mono_ns() / 1000), status);
}

static void say_serving(const struct daemon *d)
{
	const char *ready = d->spec->ready;
	notify_say(d->spec->notify, "READY=1\nSTATUS=%s", ready ? ready : "serving again");
}

static void on_upgrade(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct daemon *d = w->data;
	if (d->phase != SERVING)
		return;
	log_info("upgrade", "%s takes over: %zu commands go on", d->spec->binary, procs_living(d->procs));
	store_upgrade(d->spec->store);
	d->phase = UPGRADING;
	say_reloading(d->spec->notify, "another binary takes over");
	err_set(&d->refusal, ERR_UNAVAILABLE, "the daemon is being upgraded; reconnect");
	// Who connects from now on waits for the next daemon.
	for (size_t i = 0; i < d->listener_count; i++)
		listener_free(d->listeners[i]);
	d->listener_count = 0;
	procs_leave(d->procs);
	workspace_leave(d->sandboxd.workspace);
	watches_terminate(d->watches, -ERESTART);
	net_drain(d->net);
	ev_now_update(loop);
	ev_timer_set(&d->stop, (double)d->spec->config->stop_grace_ms / 1e3, 0.);
	ev_timer_start(loop, &d->stop);
	ev_timer_again(loop, &d->look);
}

// In the next turn. 0, or what is in the way of it.
static int upgrade(void *arg)
{
	struct daemon *d = arg;
	if (!d->spec->store || !d->spec->binary)
		return -ENOTSUP;
	struct stat st;
	if (stat(d->spec->binary, &st) < 0 || access(d->spec->binary, X_OK) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EACCES; // as execve says
	ev_timer_start(d->loop, &d->upgrade);
	return 0;
}

// What an upgrade that fails is about.
static const char *upgrade_subject(const struct daemon_spec *spec)
{
	if (!spec->under_init)
		return "no init part";
	return !spec->store ? "no store" : spec->binary ? spec->binary : "the binary's path is not known";
}

static void dump(const struct daemon *d)
{
	static const char *const phases[] = {"serving", "stopping", "draining", "upgrading"};
	const struct dump view = {
		.config = d->spec->config,
		.procs = d->procs,
		.net = d->net,
		.watches = d->watches,
		.store = d->spec->store,
		.metrics = d->metrics,
		.phase = phases[d->phase],
		.started_ms = d->started_ms,
	};
	dump_write(&view);
}

static void reload(struct daemon *d)
{
	const char *file = d->spec->config->token_file;
	bool serving = d->phase == SERVING;
	if (serving)
		say_reloading(d->spec->notify, "reading the token file");
	int rc = file ? config_reload_token(d->spec->config) : 0;
	if (file && rc == 0)
		rc = control_reloaded(d->envd.control);
	if (rc < 0)
		log_error("token_reload", "%s: %s", file, strerror(-rc));
	else if (file)
		log_info("token_reload", "%s", "done");
	if (serving)
		notify_say(d->spec->notify, "READY=1\nSTATUS=serving%s", rc < 0 ? ", with the token of before" : "");
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
	(void)loop, (void)revents;
	struct daemon *d = w->data;
	int rc;
	switch (w->signum) {
	case SIGCHLD:
		procs_reap(d->procs);
		break;
	case SIGCONT:
		procs_resumed(d->procs);
		break;
	case SIGHUP:
		reload(d);
		break;
	case SIGUSR1:
		dump(d);
		break;
	case SIGUSR2:
		rc = upgrade(d);
		if (rc < 0)
			log_error("upgrade", "%s: %s", upgrade_subject(d->spec), strerror(-rc));
		break;
	default:
		stop(d, w->signum);
	}
}

// --- building ---

static void watch_signals(struct daemon *d)
{
	static const int handled[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCONT, SIGUSR1, SIGUSR2};
	for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
		ev_signal_init(&d->signals[i], on_signal, handled[i]);
		d->signals[i].data = d;
		ev_signal_start(d->loop, &d->signals[i]);
		d->signal_count++;
	}
	// The rest must not end the daemon; commands get the default back.
	signal(SIGPIPE, SIG_IGN);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

// Whether each request and each command is logged.
static bool tells(const struct config *c)
{
	return c->access_log || c->log_level >= LOG_DEBUG;
}

static int build_core(struct daemon *d)
{
	const struct config *c = d->spec->config;
	struct proc_limits limits = {
		.max_procs = c->max_procs,
		.max_ended = DAEMON_ENDED_MAX,
		.ended_memory = ENDED_MEMORY,
		.stdin_max = STDIN_MAX,
		.replay = c->replay,
		.grace_ms = c->grace_ms,
		.retention_ms = c->retention_ms,
		.init = d->spec->under_init ? getppid() : 0,
		.store = d->spec->store,
		.cgroups = d->spec->cgroups,
		.metrics = d->metrics,
		.tell = tells(c),
	};
	d->loop = loop_new();
	d->users = users_new("/etc/passwd", "/etc/group");
	d->slices = d->loop ? slices_new(d->loop) : NULL;
	d->watches = d->slices ? watches_new(d->loop, d->slices, NULL) : NULL;
	if (!d->loop || !d->users || !d->watches)
		return -ENOMEM;
	loop_measure(d->loop, d->metrics);
	watches_count(d->watches, d->metrics);
	users_by_turns(d->users, d->loop);
	d->procs = procs_new(d->loop, &limits, &d->spec->base);
	return d->procs ? 0 : -ENOMEM;
}

// Connections may take half of the descriptors: the other half is for the commands' pipes.
static size_t conn_limit(size_t wanted)
{
	struct rlimit r;
	size_t half = getrlimit(RLIMIT_NOFILE, &r) < 0 ? wanted : (size_t)r.rlim_cur / 2;
	if (half < wanted)
		log_warn("limits", "max-conns lowered to %zu: half of the descriptor limit", half);
	return half < wanted ? half : wanted;
}

static int listen_on(struct daemon *d, const struct daemon_sockets *s, void (*take)(void *arg, int fd))
{
	for (size_t i = 0; i < s->count; i++) {
		struct listener *l = listener_new(d->loop, s->fd[i], take, d);
		if (!l)
			return -ENOMEM;
		listener_on_full(l, evict);
		d->listeners[d->listener_count++] = l;
	}
	return 0;
}

static bool all_local(const struct daemon_sockets *s)
{
	for (size_t i = 0; i < s->count; i++)
		if (!listener_is_local(s->fd[i]))
			return false;
	return true;
}

static bool answered(void *arg)
{
	return net_answered(arg);
}

static int build_net(struct daemon *d)
{
	const struct config *c = d->spec->config;
	struct net_limits limits = {
		.max_body = c->max_body,
		.max_header = c->max_header,
		.max_conns = conn_limit(c->max_conns),
		.header_timeout = c->header_timeout,
		.idle_timeout = c->idle_timeout,
		.send_timeout = c->send_timeout,
		.out_max = OUT_MAX,
	};
	struct net_hooks hooks = {.arg = d, .refuse = refuse, .allowed = allowed, .tell = tells(c)};
	d->net = net_new(d->loop, &limits, &hooks);
	if (!d->net)
		return -ENOMEM;
	slices_give_way(d->slices, answered, d->net);
	d->sandboxd = (struct sandboxd){.config = c,
		.procs = d->procs,
		.users = d->users,
		.slices = d->slices,
		.watches = d->watches,
		.net = d->net,
		.metrics = d->metrics,
		.started_ms = d->started_ms,
		.store = d->spec->store,
		.confine = d->spec->base.confine ? confine_state(d->spec->base.confine) : NULL,
		.cgroups = cgroups_state(d->spec->cgroups),
		.local_only = all_local(&d->spec->sandboxd) && all_local(&d->spec->envd)};
	d->sandboxd.workspace = workspace_new(&d->sandboxd, d->loop);
	if (!d->sandboxd.workspace)
		return -ENOMEM;
	sandboxd_routes(&d->tables[0], &d->sandboxd);
	d->tables[0].counts = &d->metrics->surface[METRICS_A];
	d->envd = (struct envd){.config = c,
		.procs = d->procs,
		.users = d->users,
		.slices = d->slices,
		.watches = d->watches,
		.loop = d->loop,
		.upgrade = d->spec->store && d->spec->binary ? upgrade : NULL,
		.upgrade_arg = d};
	d->envd.control = control_new(d->spec->config, d->spec->keep);
	if (!d->envd.control)
		return -ENOMEM;
	if (d->spec->envd.count > 0)
		control_mark();
	envd_routes(&d->tables[1], &d->envd);
	d->tables[1].counts = &d->metrics->surface[METRICS_B];
	int rc = listen_on(d, &d->spec->sandboxd, take_sandboxd);
	return rc < 0 ? rc : listen_on(d, &d->spec->envd, take_envd);
}

static void daemon_release(struct daemon *d)
{
	for (size_t i = 0; i < d->listener_count; i++)
		listener_free(d->listeners[i]);
	net_free(d->net);
	envd_filesystem_free(d->envd.filesystem);
	watches_free(d->watches);
	slices_free(d->slices);
	procs_free(d->procs);
	workspace_free(d->sandboxd.workspace);
	control_free(d->envd.control);
	users_free(d->users);
	for (size_t i = 0; i < d->signal_count; i++)
		ev_signal_stop(d->loop, &d->signals[i]);
	if (d->loop) {
		trim_stop(&d->trim, d->loop);
		notify_stop(d->spec->notify);
		ev_timer_stop(d->loop, &d->stop);
		ev_timer_stop(d->loop, &d->upgrade);
		ev_timer_stop(d->loop, &d->look);
		loop_free(d->loop);
	}
}

static int take_back(struct daemon *d)
{
	struct procs_taken taken;
	int rc = procs_take_back(d->procs, &taken);
	if (rc < 0)
		return rc; // all is still there for the next one
	cgroups_settle(d->spec->cgroups);
	if (taken.living || taken.ended)
		log_info("take_back", "%zu commands go on, %zu have ended", taken.living, taken.ended);
	if (taken.refused)
		log_error("take_back", "%zu commands could not be read and were ended", taken.refused);
	return 0;
}

int daemon_run(const struct daemon_spec *spec)
{
	struct daemon d = {.spec = spec, .started_ms = io_wall_ms()};
	d.metrics = spec->metrics ? spec->metrics : &d.own;
	if (!d.metrics->since_ms)
		d.metrics->since_ms = d.started_ms;
	// What a command leaves behind comes here when its parent dies, so that it can be found and ended.
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sandboxd_terminating(&d.refusal);
	ev_timer_init(&d.stop, on_stop_timer, 0., 0.);
	ev_timer_init(&d.look, on_look, LOOK_S, LOOK_S);
	ev_timer_init(&d.upgrade, on_upgrade, 0., 0.);
	d.stop.data = d.upgrade.data = d.look.data = &d;
	int rc = build_core(&d);
	if (rc == 0)
		rc = build_net(&d);
	if (rc == 0)
		rc = take_back(&d);
	if (rc < 0) {
		log_error("start", "%s", strerror(-rc));
		daemon_release(&d);
		return 1;
	}
	watch_signals(&d);
	procs_reap(d.procs); // whatever ended before the handler was there
	if (spec->ready)
		log_plain("%s", spec->ready);
	if (!spec->config->token)
		log_info("no_token", "whoever reaches a port may run commands, as any user");
	workspace_ready(d.sandboxd.workspace);
	trim_start(&d.trim, d.loop);
	notify_start(spec->notify, d.loop);
	say_serving(&d);
	ev_run(d.loop, 0);
	net_flush(d.net);
	if (d.phase != UPGRADING)
		procs_kill_all(d.procs);
	daemon_release(&d);
	return d.phase == UPGRADING ? STORE_EXIT_UPGRADE : 0;
}
