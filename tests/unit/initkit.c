// SPDX-License-Identifier: Apache-2.0
#include "initkit.h"

#include "daemon/core/tree.h"
#include "daemon/init.h"
#include "daemon/io.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(void *arg, unsigned restarts)
{
	struct world *w = arg;
	w->starts++;
	store_catch_faults(w->store);
	size_t i = restarts < WORLD_STEPS ? restarts : WORLD_STEPS - 1;
	while (!w->daemon[i])
		i--;
	return w->daemon[i](w);
}

static int renew(void *arg, unsigned restarts, int channel)
{
	struct world *w = arg;
	(void)restarts, (void)channel;
	w->renewals++;
	return w->renew(w);
}

struct world *world_new(void)
{
	const struct store_sizes sizes = {.slots = 64, .record = 4096, .log = 4096};
	struct world *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(w, MAP_FAILED);
	w->store = store_new(&sizes, 4096);
	ck_assert_ptr_nonnull(w->store);
	ck_assert_int_eq(io_pipe(w->go), 0);
	return w;
}

void world_free(struct world *w)
{
	ck_assert_msg(!w->failed, "line %d", w->failed);
	store_free(w->store);
	close(w->go[0]);
	close(w->go[1]);
	munmap(w, sizeof *w);
}

pid_t world_start(struct world *w)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	const struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, STDERR_FILENO);
	const struct init_spec spec = {
		.daemon = run, .renew = w->renew ? renew : NULL, .arg = w, .stop_ms = 300, .store = w->store};
	w->init = getpid();
	_exit(init_run(&spec));
}

void world_end(pid_t pid, int status)
{
	int is;
	ck_assert_int_eq(waitpid(pid, &is, 0), pid);
	ck_assert_msg(WIFEXITED(is) && WEXITSTATUS(is) == status, "init ended with 0x%x", (unsigned)is);
}

void world_run(struct world *w)
{
	world_end(world_start(w), 0);
}

// --- in daemons ---

int world_die(void)
{
	kill(getpid(), SIGKILL);
	return 1;
}

int world_failed(struct world *w, int line)
{
	w->failed = line;
	return 0;
}

bool world_until(bool (*what)(struct world *w), struct world *w, int64_t ms)
{
	int64_t end = io_mono_ns() + ms * 1000000;
	while (!what(w)) {
		if (io_mono_ns() > end)
			return false;
		usleep(500);
	}
	return true;
}

char world_state_of(pid_t pid)
{
	struct tree_stat st;
	return tree_stat(pid, &st) < 0 ? '-' : st.state;
}

struct store_slot *world_command(struct world *w, int code, int n)
{
	struct store_slot *slot = store_take(w->store);
	int fds[STORE_ENDS] = {-1, -1, -1, -1, -1}, out[2];
	char c;
	if (!slot || io_pipe(out) < 0 || store_record_put(slot, "command", 7) < 0)
		_exit(101);
	fds[STORE_STDOUT] = out[0];
	if (store_hand(slot, fds) < 0)
		_exit(102);
	pid_t pid = fork();
	if (pid == 0) {
		if (w->delay_us)
			usleep((useconds_t)w->delay_us);
		store_child(slot);

		if (n >= 0)
			(void)!io_read(w->go[0], &c, 1);
		_exit(code & 0xff);
	}
	close(out[0]);
	close(out[1]);
	if (n >= 0)
		w->pids[n] = pid;
	return slot;
}

struct store_life *world_left(struct world *w, size_t n)
{
	struct store_slot *slot = world_left_slot(w, n);
	return slot ? store_life(slot) : NULL;
}

struct store_slot *world_left_slot(struct world *w, size_t n)
{
	size_t at;
	struct store_slot *slot = store_left(w->store, 0, &at);
	while (slot && n-- > 0)
		slot = store_left(w->store, at + 1, &at);
	return slot;
}

bool world_first_gone(struct world *w)
{
	return world_state_of(w->pids[0]) == '-';
}

int world_do_die(struct world *w)
{
	(void)w;
	return world_die();
}

void world_go(struct world *w)
{
	(void)!io_write(w->go[1], "x", 1);
}
