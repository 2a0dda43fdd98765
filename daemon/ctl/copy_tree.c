// SPDX-License-Identifier: Apache-2.0
// Directories, as an archive that one tar writes and the other reads.
#include "daemon/ctl/copy.h"
#include "daemon/ctl/progress.h"
#include "daemon/io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MISSING 127
#define NEEDS_TAR "command -v tar >/dev/null 2>&1 || { echo 'tar is not in the sandbox' >&2; exit 127; }; "

struct tree {
	struct progress progress;
	bool up;
	int fd; // ours of the local tar's pipe
	pid_t pid;
};

static void moved(void *arg, uint64_t in, uint64_t out)
{
	struct tree *t = arg;
	progress_at(&t->progress, (int64_t)(t->up ? in : out));
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

// Starts ARGV here and LINE there. LINE is released.
static int both(struct ctl *ctl, bool up, const char *const *argv, struct buf *line, const char *name)
{
	struct tree t = {.up = up, .fd = -1};
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
	return both(ctl, true, argv, &line, src);
}

// What a sandbox sends must not make more of itself here than files: no owners, no set-user-ID.
int copy_tree_down(struct ctl *ctl, const char *src, const char *to)
{
	struct buf line;
	const char *const argv[] = {"tar", "-C", to, "--no-same-permissions", "-xof", "-", NULL};
	struct stat st;
	if (mkdir(to, 0777) < 0 && (errno != EEXIST || stat(to, &st) < 0 || !S_ISDIR(st.st_mode)))
		return copy_fails(to, errno);
	buf_init(&line, 0);
	buf_str(&line, NEEDS_TAR "exec tar -C ");
	copy_put_path(&line, src);
	buf_str(&line, " -cf - .");
	return both(ctl, false, argv, &line, src);
}
