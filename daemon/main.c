// SPDX-License-Identifier: Apache-2.0
#include "daemon/config.h"
#include "daemon/core/keep.h"
#include "daemon/core/tree.h"
#include "daemon/core/users.h"
#include "daemon/daemon.h"
#include "daemon/envd/envd.h"
#include "daemon/init.h"
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// Low, but not exempt: if celld itself eats the memory it has to go.
#define DAEMON_OOM "-900"
// Beyond --stop-grace: the flush, and reserve for a busy machine.
#define STOP_RESERVE_MS 1000

static int start_fails(const char *what, const char *arg, int rc)
{
	log_plain("celld: %s %s: %s", what, arg, strerror(-rc));
	return 1;
}

// Descriptors 0-2 are celld's own from here on, whatever it was started with.
static int open_standard_fds(void)
{
	int fd;
	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= 2);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void reset_signals(void)
{
	sigset_t none;
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

// DIR and what is missing above it. A new directory belongs to who runs commands.
static int make_workspace(const char *dir, const struct user *user)
{
	char path[PATH_MAX];
	struct stat st;
	size_t n = strlen(dir);
	if (n >= sizeof path)
		return -ENAMETOOLONG;
	memcpy(path, dir, n + 1);
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	if (mkdir(path, 0755) == 0)
		return user->uid == geteuid() || chown(path, user->uid, user->gid) == 0 ? 0 : -errno;
	if (errno != EEXIST)
		return -errno;
	if (stat(path, &st) < 0)
		return -errno;
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
	struct users *users = users_new("/etc/passwd", "/etc/group");
	int rc = users ? users_find(users, c->user, &user) : -ENOMEM;
	if (rc < 0) {
		rc = rc == -ENOENT ? start_fails("user", c->user, -ESRCH) : start_fails("user", c->user, rc);
	} else if (geteuid() != 0 && user.uid != geteuid()) {
		rc = start_fails("user", c->user, -EPERM);
	} else {
		rc = make_workspace(c->workspace, &user);
		if (rc < 0)
			rc = start_fails("workspace", c->workspace, rc);
	}
	user_release(&user);
	users_free(users);
	return rc;
}

static int open_sockets(
	struct daemon_sockets *s, const char *const *specs, size_t count, bool fallback4, char *names, size_t n)
{
	size_t used = 0;
	snprintf(names, n, "off");
	for (size_t i = 0; i < count; i++) {
		char name[160];
		int fd = listener_open(specs[i], fallback4);
		int rc = fd < 0 ? fd : listener_name(fd, name, sizeof name);
		if (rc < 0)
			return start_fails("listen", specs[i], rc);
		s->fd[s->count++] = fd;
		int len = snprintf(names + used, n - used, "%s%s", i ? "," : "", name);
		used += len > 0 && (size_t)len < n - used ? (size_t)len : 0;
	}
	return 0;
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

static int run_daemon(void *arg, unsigned restarts)
{
	struct daemon_spec spec = *(const struct daemon_spec *)arg;
	if (restarts) {
		log_warn("daemon_restart", "start %u serves again", restarts);
		spec.ready = NULL;
		// The init part keeps the token of the start: one taken back since must not open anything again.
		config_reload_token(spec.config);
	}
	return daemon_run(&spec);
}

static bool wants_init(const struct config *c)
{
	return c->init == CONFIG_INIT_YES || (c->init == CONFIG_INIT_AUTO && getpid() == 1);
}

int main(int argc, char **argv)
{
	// Static, for its strings live as long as the process and stay reachable so (a leak checker looks after main).
	static struct config config;
	struct daemon_spec spec = {.config = &config};
	struct rlimit nofile;
	char own[16], a[1024], b[1024], ready[2200];
	int status, oom;
	if (open_standard_fds() < 0)
		return 1;
	if (config_load(&config, argc, argv, &status) == CONFIG_EXIT)
		return status;
	log_setup(config.log_level, config.log_json);
	reset_signals();
	tune_memory();
	umask(022);
	settle_user(&config, own, sizeof own);
	if (prepare_workspace(&config) != 0 ||
		open_sockets(&spec.sandboxd, config.listen, config.listen_count, config.listen_default, a, sizeof a) !=
			0 ||
		open_sockets(&spec.envd, config.envd_listen, config.envd_listen_count, config.envd_listen_default, b,
			sizeof b) != 0)
		return 1;
	raise_limits(&nofile, &oom);
	int rc = spawn_base_init(&spec.base, &nofile, oom);
	if (rc < 0)
		return start_fails("open", "/dev/null", rc);
	spec.keep = keep_new(ENVD_KEEP_MAX);
	if (!spec.keep)
		return start_fails("memory", "shared", -ENOMEM);
	snprintf(ready, sizeof ready, "celld %s ready: sandboxd %s, envd %s", CONFIG_VERSION, a, b);
	spec.ready = ready;
	struct init_spec init = {
		.daemon = run_daemon,
		.arg = &spec,
		.stop_ms = config.stop_grace_ms + STOP_RESERVE_MS,
	};
	spec.under_init = wants_init(&config);
	status = spec.under_init ? init_run(&init) : run_daemon(&spec, 0);
	spawn_base_release(&spec.base);
	keep_free(spec.keep);
	return status;
}
