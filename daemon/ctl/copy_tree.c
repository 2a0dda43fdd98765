// SPDX-License-Identifier: Apache-2.0
// Directories, as an archive that one tar writes and the other reads.
#include "daemon/ctl/copy.h"
#include "daemon/ctl/progress.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MISSING 127
#define NEEDS_TAR "command -v tar >/dev/null 2>&1 || { echo 'tar is not in the sandbox' >&2; exit 127; }; "

// What changes a tree, by the version of Landlock that the headers may be too old for.
#define MAKES_DEVICES (LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK)
#define CHANGES_FIRST                                                                                      \
	(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |  \
		LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | \
		LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | MAKES_DEVICES)
#define CHANGES_REFER (1ULL << 13)    // 2
#define CHANGES_TRUNCATE (1ULL << 14) // 3

struct tree {
	struct progress progress;
	bool up;
	int fd;   // ours of the local tar's pipe
	int into; // where the local tar writes, or -1
	pid_t pid;
};

static void moved(void *arg, uint64_t in, uint64_t out)
{
	struct tree *t = arg;
	progress_at(&t->progress, (int64_t)(t->up ? in : out));
}

// What the tar here makes is below DIR and no device, also where a link that was copied before leads elsewhere. Without
// Landlock, or with its first version, which knows no hard links between directories, that is left to tar.
static void fence(int dir)
{
	(void)prctl(PR_CAPBSET_DROP, CAP_MKNOD); // refused to those who could not make devices anyway
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	const struct landlock_ruleset_attr all = {
		.handled_access_fs = CHANGES_FIRST | CHANGES_REFER | (version >= 3 ? CHANGES_TRUNCATE : 0)};
	const struct landlock_path_beneath_attr rule = {
		.allowed_access = all.handled_access_fs & ~(uint64_t)MAKES_DEVICES, .parent_fd = dir};
	if (version < 2)
		return;
	int set = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
	if (set >= 0 && syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0 &&
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		(void)syscall(SYS_landlock_restrict_self, set, 0);
	io_close(&set);
}

// The tar here, with its input (or output) at the pipe. 0 or a positive errno.
static int start(struct tree *t, const char *const *argv)
{
	int fds[2];
	int rc = io_pipe(fds);
	if (rc < 0)
		return -rc;
	int theirs = t->up ? fds[1] : fds[0];
	t->fd = t->up ? fds[0] : fds[1];
	t->pid = fork();
	if (t->pid == 0) {
		if (t->into >= 0)
			fence(t->into);
		if (IO_AGAIN(dup2(theirs, t->up ? STDOUT_FILENO : STDIN_FILENO)) >= 0)
			execvp(argv[0], (char *const *)argv);
		_exit(MISSING);
	}
	int sys = t->pid < 0 ? errno : 0;
	io_close(&theirs);
	if (sys)
		io_close(&t->fd);
	return sys;
}

// Ends the tar here: its exit status, or -N if signal N ended it.
static int finish(struct tree *t)
{
	int status = 0;
	io_close(&t->fd);
	if (IO_AGAIN(waitpid(t->pid, &status, 0)) < 0)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int run(struct ctl *ctl, struct tree *t, const char *command, const char *name)
{
	struct buf body;
	struct relay_end end;
	struct err e;
	buf_init(&body, 0);
	copy_put_command(&body, command, t->up);
	const struct relay_spec spec = {
		.target = &ctl->target,
		.kind = RELAY_COMMAND,
		.method = "POST",
		.path = "/exec/stream",
		.body = &body,
		.in = t->up ? t->fd : -1,
		.out = t->up ? STDERR_FILENO : t->fd,
		.err = STDERR_FILENO,
		.safe_err = true,
		.moved = moved,
		.arg = t,
	};
	progress_begin(&t->progress, name, -1, ctl->opt.quiet);
	int rc = relay_run(&spec, &end, &e);
	progress_end(&t->progress);
	buf_release(&body);
	int status = copy_judge(rc, &end, name, &e), here = finish(t);
	if (here == MISSING)
		ctl_say("tar is needed for directories, and is not here");
	else if (here > 0)
		ctl_say("%s: tar here has failed", name);
	if (rc == 0 && end.cut_by)
		return status;
	return here > 0 || (here < 0 && status == CTL_OK) ? CTL_FAILED : status;
}

// Starts ARGV here, which writes below INTO unless that is -1, and LINE there. LINE is released.
static int both(struct ctl *ctl, int into, const char *const *argv, struct buf *line, const char *name)
{
	struct tree t = {.up = into < 0, .fd = -1, .into = into};
	const char *command = buf_cstr(line);
	int sys = command ? start(&t, argv) : ENOMEM;
	int status = sys ? copy_fails(name, sys) : run(ctl, &t, command, name);
	buf_release(line);
	return status;
}

int copy_tree_up(struct ctl *ctl, const char *src, const char *to)
{
	struct buf line;
	const char *const argv[] = {"tar", "-C", src, "-cf", "-", ".", NULL};
	buf_init(&line, 0);
	buf_str(&line, NEEDS_TAR "mkdir -p ");
	copy_put_path(&line, to);
	buf_str(&line, " && exec tar -C ");
	copy_put_path(&line, to);
	buf_str(&line, " -xof -");
	return both(ctl, -1, argv, &line, src);
}

// What a sandbox sends must not make more of itself here than files below TO: no owners, no set-user-ID, no devices.
int copy_tree_down(struct ctl *ctl, const char *src, const char *to)
{
	struct buf line;
	const char *const argv[] = {"tar", "-C", to, "--no-same-permissions", "-xof", "-", NULL};
	struct stat st;
	if (mkdir(to, 0777) < 0 && (errno != EEXIST || stat(to, &st) < 0 || !S_ISDIR(st.st_mode)))
		return copy_fails(to, errno);
	int into = IO_AGAIN(open(to, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (into < 0)
		return copy_fails(to, errno);
	buf_init(&line, 0);
	buf_str(&line, NEEDS_TAR "exec tar -C ");
	copy_put_path(&line, src);
	buf_str(&line, " -cf - .");
	int status = both(ctl, into, argv, &line, src);
	io_close(&into);
	return status;
}
