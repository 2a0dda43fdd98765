// SPDX-License-Identifier: Apache-2.0
#include "spawnkit.h"

#include "daemon/io.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void spawnkit_init(struct spawnkit *f)
{
	struct rlimit nofile;
	memset(f, 0, sizeof *f);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &nofile), 0);
	nofile.rlim_cur = 77;
	ck_assert_int_eq(spawn_base_init(&f->base, &nofile, 0), 0);
	snprintf(f->dir, sizeof f->dir, "/tmp/celld-spawn-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(f->dir));
	ck_assert_int_eq(chmod(f->dir, 0755), 0);
	f->env[0] = "PATH=/usr/bin:/bin";
	f->spec = (struct spawn_spec){.argv = f->argv, .env = f->env, .cwd = "/", .fd = {-1, -1, -1}};
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
	(void)st, (void)type, (void)where;
	return remove(path);
}

void spawnkit_release(struct spawnkit *f)
{
	nftw(f->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	spawn_base_release(&f->base);
}

const char *spawnkit_path(struct spawnkit *f, const char *name)
{
	snprintf(f->path, sizeof f->path, "%s/%s", f->dir, name);
	return f->path;
}

void spawnkit_file(struct spawnkit *f, const char *name, const char *text, mode_t mode)
{
	int fd = open(spawnkit_path(f, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

size_t spawnkit_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

// Runs the spec; its output, and its status, are in F. The result is spawn_run's.
static int run(struct spawnkit *f)
{
	int out[2], err[2];
	pid_t pid = -1;
	ck_assert_int_eq(io_pipe(out), 0);
	ck_assert_int_eq(io_pipe(err), 0);
	f->spec.fd[1] = out[1];
	int given = f->spec.fd[2];
	if (given == -1)
		f->spec.fd[2] = err[1];
	f->step = (enum spawn_step)99;
	int rc = spawn_run(&f->base, &f->spec, &pid, &f->step);
	close(out[1]);
	close(err[1]);
	f->spec.fd[1] = -1;
	f->spec.fd[2] = given;
	if (rc == 0) {
		ck_assert_int_eq(f->step, SPAWN_NONE);
		size_t n = 0;
		ssize_t got;
		while (n < sizeof f->out - 1 && (got = io_read(out[0], f->out + n, sizeof f->out - 1 - n)) > 0)
			n += (size_t)got;
		f->out[n] = '\0';
		got = io_read(err[0], f->err, sizeof f->err - 1); // what is said at once
		f->err[got > 0 ? got : 0] = '\0';
		siginfo_t si;
		ck_assert_int_eq(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
		ck_assert_int_eq(si.si_pid, pid);
		ck_assert_int_eq(waitpid(pid, &f->status, 0), pid);
	} else {
		ck_assert_msg(pid == -1, "set though it failed");
	}
	close(out[0]);
	close(err[0]);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); // no child, dead or alive
	ck_assert_int_eq(errno, ECHILD);
	return rc;
}

int spawnkit_program(struct spawnkit *f, const char *path)
{
	f->spec.path = f->argv[0] = path;
	return run(f);
}

int spawnkit_shell(struct spawnkit *f, const char *script)
{
	f->argv[1] = "-c";
	f->argv[2] = script;
	int rc = spawnkit_program(f, "/bin/sh");
	f->argv[1] = NULL;
	return rc;
}

void spawnkit_fork_only(void)
{
	const char *ck_fork = getenv("CK_FORK");
	if (ck_fork && strcmp(ck_fork, "no") == 0)
		return;
	// Not of vfork, by which shells start commands, nor of the leak checker, who looks at its own process so.
	unsigned long shares = CLONE_VM | CLONE_VFORK | CLONE_THREAD | CLONE_UNTRACED;
	struct scmp_arg_cmp flags = SCMP_A0(SCMP_CMP_MASKED_EQ, shares, CLONE_VM);
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	ck_assert_ptr_nonnull(ctx);
	ck_assert_int_eq(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0), 0);
	ck_assert_int_eq(seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, &flags), 0);
	ck_assert_int_eq(seccomp_load(ctx), 0);
	seccomp_release(ctx);
	// The kernel itself has another error for these.
	ck_assert_int_eq(syscall(SYS_clone, CLONE_VM | CLONE_FS | CLONE_NEWNS, NULL, NULL, NULL, NULL), -1);
	ck_assert_int_eq(errno, EPERM);
}
