// SPDX-License-Identifier: Apache-2.0
#include "daemon/config.h"
#include "daemon/core/cgroup.h"
#include "daemon/core/confine.h"
#include "daemon/core/files.h"
#include "daemon/core/keep.h"
#include "daemon/core/proc.h"
#include "daemon/core/store_priv.h"
#include "daemon/core/tree.h"
#include "daemon/core/users.h"
#include "daemon/ctl/ctl.h"
#include "daemon/daemon.h"
#include "daemon/envd/envd.h"
#include "daemon/handoff.h"
#include "daemon/init.h"
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/main_listen.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

// Low, but not exempt: if celld itself eats the memory it has to go.
#define DAEMON_OOM "-900"
// Beyond --stop-grace: the flush, and reserve for a busy machine.
#define STOP_RESERVE_MS 1000
// What is kept of one process beside its output: at most this, and only as much as it is.
#define RECORD_SIZE ((size_t)64 * 1024)
enum { DESCRIPTORS_MIN = 16 };

// What the daemon and a binary that may follow it are started with.
struct start {
	struct config config;
	struct daemon_spec spec;
	struct handoff handoff;
	struct notify notify;
	struct confine *confine;
	char **argv;
	char own[16];
	char ready[2200];
};

static int start_fails(const char *what, const char *arg, int rc)
{
	log_plain("celld: %s %.900s%s: %s", what, arg, strlen(arg) > 900 ? "..." : "", strerror(-rc));
	return 1;
}

// Descriptors 0-2 are celld's own from here on, whatever it was started with.
static int open_standard_fds(void)
{
	int fd;
	do {
		fd = IO_AGAIN(open("/dev/null", O_RDWR | O_CLOEXEC));
	} while (fd >= 0 && fd <= 2);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

// What would only end celld as long as it has no handlers waits for them.
static void reset_signals(void)
{
	sigset_t wait;
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	signal(SIGXFSZ, SIG_IGN); // a write beyond RLIMIT_FSIZE, the log's too, is EFBIG; commands get the default back
	sigemptyset(&wait);
	sigaddset(&wait, SIGHUP);
	sigaddset(&wait, SIGUSR1);
	sigaddset(&wait, SIGUSR2);
	sigprocmask(SIG_SETMASK, &wait, NULL);
}

// DIR and what is missing above it. A new directory belongs to who runs commands.
static int make_workspace(const char *dir, const struct user *user)
{
	char path[PATH_MAX];
	struct stat st;
	const struct files_owner own = {geteuid(), getegid()};
	size_t n = strlen(dir);
	if (n >= sizeof path)
		return -ENAMETOOLONG;
	memcpy(path, dir, n + 1);
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		int rc = stat(path, &st) < 0 ? files_make_trusted(path, &own) : 0;
		if (rc < 0 && rc != -EEXIST)
			return rc;
		*p = '/';
	}
	if (stat(path, &st) < 0)
		return errno == ENOENT ? files_make_trusted(path, &(struct files_owner){user->uid, user->gid}) : -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

// Without root there is nobody to switch to: commands run as who celld is, which is also what the default asks for then.
static void settle_user(struct config *c, char *own, size_t n)
{
	if (geteuid() == 0 || strcmp(c->user, "root") != 0)
		return;
	snprintf(own, n, "%u", (unsigned)geteuid());
	c->user = own;
}

static int prepare_workspace(const struct config *c)
{
	struct user user = {0};
	// Which is there in any case: that saves a start the reading of two files.
	if (geteuid() == 0 && strcmp(c->user, "root") == 0) {
		int rc = make_workspace(c->workspace, &user);
		return rc < 0 ? start_fails("workspace", c->workspace, rc) : 0;
	}
	struct users *users = users_new("/etc/passwd", "/etc/group");
	int rc = users ? users_find(users, c->user, &user) : -ENOMEM;
	if (rc == -ENOENT) {
		log_plain("celld: user %s: there is none of that name", c->user);
		rc = 1;
	} else if (rc < 0) {
		rc = start_fails("user", c->user, rc);
	} else if (geteuid() != 0 && user.uid != geteuid()) {
		rc = start_fails("user", c->user, -EPERM);
	} else if (user.uid != geteuid() && confine_lacks()) {
		log_plain("celld: user %s: celld has not the capability %s", c->user, confine_lacks());
		rc = 1;
	} else {
		rc = make_workspace(c->workspace, &user);
		if (rc < 0)
			rc = start_fails("workspace", c->workspace, rc);
	}
	user_release(&user);
	users_free(users);
	return rc;
}

// Small blocks that are free are joined at once, or the heap of a large JSON document would never go back to the kernel.
static void tune_memory(void)
{
	mallopt(M_MXFAST, 0);
	// Set, so that glibc does not raise it after the first large block: those go back as soon as they are freed.
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

static void raise_limits(struct rlimit *original, int *original_oom)
{
	char text[16];
	*original = (struct rlimit){.rlim_cur = 1024, .rlim_max = 1024};
	if (getrlimit(RLIMIT_NOFILE, original) == 0) {
		struct rlimit all = {.rlim_cur = original->rlim_max, .rlim_max = original->rlim_max};
		if (all.rlim_max != RLIM_INFINITY && all.rlim_max > 4 * TREE_SPARE)
			all.rlim_cur -= TREE_SPARE;
		setrlimit(RLIMIT_NOFILE, &all);
	}
	*original_oom = io_read_file("/proc/self/oom_score_adj", text, sizeof text) > 0 ? atoi(text) : 0;
	io_write_file("/proc/self/oom_score_adj", DAEMON_OOM);
}

// What it holds itself. With fewer it could not even say that it has none left.
static int check_descriptors(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= DESCRIPTORS_MIN)
		return 0;
	log_plain("celld: a limit of %llu open files: %d are needed", (unsigned long long)r.rlim_cur, DESCRIPTORS_MIN);
	return 1;
}

static int run_daemon(void *arg, unsigned restarts)
{
	struct start *start = arg;
	struct daemon_spec spec = start->spec;
	if (spec.store)
		store_catch_faults(spec.store);
	if (restarts) {
		log_warn("daemon_restart", "start %u serves again", restarts);
		spec.ready = NULL;
		// The init part keeps the token of the start: one taken back since must not open anything again.
		int rc = config_reload_token(spec.config);
		if (rc < 0 && spec.config->token_optional) {
			log_error("token_reload", "%s: %s", spec.config->token_file, strerror(-rc));
			return 1;
		}
	}
	return daemon_run(&spec);
}

static const char *groups_path(const struct cgroups *g)
{
	const struct cgroup_state *state = cgroups_state(g);
	return state ? state->path : "";
}

static int renew(void *arg, unsigned restarts, int channel)
{
	struct start *start = arg;
	struct handoff *h = &start->handoff;
	h->sandboxd = start->spec.sandboxd;
	h->envd = start->spec.envd;
	h->store = start->spec.store;
	h->restarts = restarts;
	snprintf(h->cgroups, sizeof h->cgroups, "%s", groups_path(start->spec.cgroups));
	snprintf(h->token, sizeof h->token, "%s", start->config.token ? start->config.token : "");
	int rc = notify_export(&start->notify);
	if (rc == 0)
		rc = handoff_exec(h, start->argv, channel);
	notify_hide();
	explicit_bzero(h->token, sizeof h->token);
	return rc;
}

static bool wants_init(const struct config *c)
{
	return c->init == CONFIG_INIT_YES || (c->init == CONFIG_INIT_AUTO && getpid() == 1);
}

static struct store *make_store(const struct config *c)
{
	const struct store_sizes sizes = {
		.slots = c->max_procs + DAEMON_ENDED_MAX,
		.record = RECORD_SIZE,
		.log = proc_log_size(c->replay),
	};
	// It counts as a file, of a size that nothing like it will ever take.
	struct rlimit size = io_limit_lift(RLIMIT_FSIZE);
	struct store *store = store_new(&sizes, keep_size(ENVD_KEEP_MAX));
	if (!store)
		log_warn("store", "%s: a crash of the daemon will cut commands off", strerror(errno));
	io_limit_restore(RLIMIT_FSIZE, &size);
	return store;
}

static struct keep *make_keep(struct store *store)
{
	return store ? keep_at(store_kept(store), ENVD_KEEP_MAX) : keep_new(ENVD_KEEP_MAX);
}

// The path by which a later binary is found, as long as it has a name.
static void record_binary(struct handoff *h)
{
	ssize_t n = readlink("/proc/self/exe", h->binary, sizeof h->binary - 1);
	h->binary[n > 0 ? n : 0] = '\0';
}

// Before there is a second process, which would be in the way of controllers. Asked for as such they have to be there; what lies at a path may come
// and go with the machine.
static int make_groups(const struct config *c, struct cgroups **out)
{
	char why[PATH_MAX + 128] = "";
	int rc = cgroups_new(out, c->cgroup, why, sizeof why);
	const struct cgroup_state *s = cgroups_state(*out);
	if (s) {
		log_info("cgroup", "%s: limits of%s%s%s%s", s->path, s->memory ? " memory" : "", s->cpu ? " cpu" : "",
			s->pids ? " pids" : "", s->memory || s->cpu || s->pids ? "" : " nothing");
	} else if (rc < 0 && *c->cgroup != '/') {
		log_plain("celld: --cgroup %s: %s", c->cgroup, why);
		return rc;
	} else if (why[0]) {
		log_line(rc < 0 ? LOG_WARN : LOG_INFO, "cgroup", "commands have no groups of their own: %s", why);
	}
	return 0;
}

// --- what commands are kept from ---

static bool any_tcp(const struct daemon_sockets *s)
{
	for (size_t i = 0; i < s->count; i++) {
		int domain = 0;
		socklen_t n = sizeof domain;
		if (getsockopt(s->fd[i], SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain != AF_UNIX)
			return true;
	}
	return false;
}

static void say_confine(const struct start *st)
{
	const struct confine_state *s = confine_state(st->confine);
	char landlock[32] = "none";
	if (s->landlock)
		snprintf(landlock, sizeof landlock, "version %d", s->landlock);
	log_info("confine", "no new privileges, %s, landlock %s, seccomp %s",
		s->caps == UINT64_MAX ? "bounding set as it is" : "bounding set trimmed", landlock,
		s->seccomp ? "on" : "none");
	for (size_t i = 0; s->missing[i]; i++)
		log_warn("confine", "left out: %s", s->missing[i]);
	if (!st->config.token && (any_tcp(&st->spec.sandboxd) || any_tcp(&st->spec.envd)))
		log_warn("confine_open", "%s",
			"without a token any command can reach the port and have things run as another user: "
			"confinement needs a token, or unix: sockets");
}

// Options that only --confine uses.
static void warn_idle(const struct config *c)
{
	const struct {
		const char *name;
		size_t count;
	} all[] = {{"--keep-cap", c->keep_caps_count}, {"--allow-syscall", c->allow_calls_count},
		{"--writable", c->writable_count}, {"--read-only", c->readable_count}};
	char names[64] = "";
	size_t n = 0;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (all[i].count)
			n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", all[i].name);
	}
	if (n)
		log_warn("confine", "%s have no effect without --confine", names);
}

// One that follows another binary does not ask anew whether what is required is there: it was.
static int make_confine(struct start *st, bool resumed)
{
	const struct config *c = &st->config;
	const struct confine_spec spec = {
		.require = c->confine == CONFIG_CONFINE_REQUIRE && !resumed,
		.writable = c->writable,
		.writable_count = c->writable_count,
		.readable = c->readable,
		.readable_count = c->readable_count,
		.keep_caps = c->keep_caps,
		.keep_caps_count = c->keep_caps_count,
		.allow_calls = c->allow_calls,
		.allow_calls_count = c->allow_calls_count,
		.workspace = c->workspace,
	};
	char why[PATH_MAX + 64];
	if (c->confine == CONFIG_CONFINE_OFF) {
		warn_idle(c);
		return 0;
	}
	int rc = confine_new(&st->confine, &spec, why, sizeof why);
	if (rc < 0) {
		log_plain("celld: --confine %s: %s", c->confine == CONFIG_CONFINE_ON ? "on" : "require", why);
		return rc == -EINVAL ? 2 : 1;
	}
	st->spec.base.confine = st->confine;
	say_confine(st);
	return 0;
}

// Whether children may have that hard limit.
static int try_limit(int resource, const struct rlimit *wanted)
{
	struct rlimit old;
	if (getrlimit((__rlimit_resource_t)resource, &old) < 0)
		return -errno;
	if (wanted->rlim_max <= old.rlim_max)
		return 0;
	const struct rlimit raised = {.rlim_cur = old.rlim_cur, .rlim_max = wanted->rlim_max};
	if (setrlimit((__rlimit_resource_t)resource, &raised) < 0)
		return -errno;
	setrlimit((__rlimit_resource_t)resource, &old);
	return 0;
}

// Core dumps are for who asks for them.
static int settle_limits(struct start *st)
{
	struct limits *l = &st->config.limits;
	struct rlimit core = {0};
	for (int i = 0; i < LIMITS_COUNT; i++) {
		int rc = l->set & 1u << i ? try_limit(i, &l->value[i]) : 0;
		if (rc < 0)
			return start_fails("--rlimit", limits_name(i), rc);
	}
	if (st->config.confine == CONFIG_CONFINE_OFF)
		getrlimit(RLIMIT_CORE, &core);
	if (!(l->set & 1u << RLIMIT_CORE))
		limits_put(l, RLIMIT_CORE, 0, core.rlim_max);
	st->spec.base.limits = l;
	return 0;
}

static int settle_children(struct start *st, bool resumed)
{
	int status = settle_limits(st);
	return status ? status : make_confine(st, resumed);
}

static int begin(struct start *st)
{
	struct config *c = &st->config;
	struct daemon_spec *spec = &st->spec;
	struct handoff *h = &st->handoff;
	char a[1024], b[1024];
	int status = prepare_workspace(c);
	if (status == 0)
		status = main_listen(c, &st->notify, spec, a, b, sizeof a);
	if (status)
		return status;
	raise_limits(&h->nofile, &h->oom_score_adj);
	status = check_descriptors();
	if (status)
		return status;
	int rc = spawn_base_init(&spec->base, &h->nofile, h->oom_score_adj);
	if (rc < 0)
		return start_fails("open", "/dev/null", rc);
	spec->under_init = wants_init(c);
	if (spec->under_init)
		spec->store = make_store(c);
	spec->keep = make_keep(spec->store);
	if (!spec->keep)
		return start_fails("memory", "shared", -ENOMEM);
	if (make_groups(c, &spec->cgroups) < 0)
		return 1;
	record_binary(h);
	if (spec->store && h->binary[0])
		spec->binary = h->binary;
	snprintf(st->ready, sizeof st->ready, "celld %s ready: sandboxd %s, envd %s", CONFIG_VERSION, a, b);
	spec->ready = st->ready;
	return 0;
}

// In the place of an earlier binary: everything is there already.
static int resume(struct start *st)
{
	struct daemon_spec *spec = &st->spec;
	struct handoff *h = &st->handoff;
	const struct store_shape *shape = &h->store->shape;
	if (shape->log < proc_log_size(st->config.replay) || shape->kept < keep_size(ENVD_KEEP_MAX))
		return STORE_EXIT_LAYOUT;
	int rc = spawn_base_init(&spec->base, &h->nofile, h->oom_score_adj);
	if (rc < 0)
		return start_fails("open", "/dev/null", rc);
	spec->sandboxd = h->sandboxd;
	spec->envd = h->envd;
	spec->store = h->store;
	spec->binary = h->binary;
	spec->under_init = true;
	rc = cgroups_resume(&spec->cgroups, h->cgroups);
	if (rc < 0)
		log_error("cgroup", "%s: %s", h->cgroups, strerror(-rc));
	spec->keep = make_keep(spec->store);
	store_set(&spec->store->head->renew, STORE_RENEW_DONE);
	return 0;
}

static int run(struct start *st, bool resumed)
{
	const struct init_spec init = {
		.daemon = run_daemon,
		.renew = st->spec.binary ? renew : NULL,
		.arg = st,
		.stop_ms = st->config.stop_grace_ms + STOP_RESERVE_MS,
		.store = st->spec.store,
	};
	if (resumed || !st->spec.under_init)
		return run_daemon(st, st->handoff.restarts);
	return init_run(&init);
}

int main(int argc, char **argv)
{
	// Static, for its strings live as long as the process and stay reachable so (a leak checker looks after main).
	static struct start st;
	int status;
	int rc = open_standard_fds();
	if (rc < 0)
		return start_fails("open", "/dev/null", rc);
	if (argc > 1 && strcmp(argv[1], "ctl") == 0)
		return ctl_main(argc - 1, argv + 1);
	reset_signals();
	int told = notify_take(&st.notify); // first: its sockets are to meet nothing of ours
	int resumed = handoff_take(&st.handoff);
	if (resumed < 0) {
		log_plain("celld: what the binary before has left cannot be read: %s", strerror(-resumed));
		return STORE_EXIT_LAYOUT;
	}
	const char *token = resumed ? st.handoff.token : NULL;
	if (config_resume(&st.config, argc, argv, token, &status) == CONFIG_EXIT)
		return status;
	explicit_bzero(st.handoff.token, sizeof st.handoff.token);
	st.argv = argv;
	st.spec.base.devnull = -1;
	st.spec.config = &st.config;
	st.spec.notify = &st.notify;
	log_setup(st.config.log_level, st.config.log_json);
	if (told < 0)
		log_warn("notify", "NOTIFY_SOCKET: %s", strerror(-told));
	st.spec.metrics = metrics_new(); // before the init part forks its first daemon; NULL: each counts for itself
	tune_memory();
	umask(022);
	settle_user(&st.config, st.own, sizeof st.own);
	if (!st.config.dumpable)
		confine_hide_self(); // commands of the same user read neither its memory nor its token
	status = resumed ? resume(&st) : begin(&st);
	if (status == 0)
		status = settle_children(&st, resumed);
	if (status == 0)
		status = run(&st, resumed);
	confine_free(st.confine);
	if (!resumed)
		cgroups_free(st.spec.cgroups);
	if (!st.spec.store)
		keep_free(st.spec.keep);
	spawn_base_release(&st.spec.base);
	store_free(st.spec.store);
	metrics_free(st.spec.metrics);
	return status;
}
