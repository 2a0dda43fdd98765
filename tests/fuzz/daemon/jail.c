// SPDX-License-Identifier: Apache-2.0
// A daemon does what it is asked for, to any path, as root. So the inputs run in a thread apart: its own root directory (unshare and
// chroot are a thread's own), and a filter that the kernel keeps. The rest of the program still reads corpora and writes reports.
#include "daemon/io.h"
#include "tests/fuzz/daemon/fake.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct jail {
	pthread_t thread;
	sem_t work, done;
	void (*fn)(void *arg); // NULL: the end
	void *arg;
	char dir[64];
} jail;

// Other architectures have other numbers and no way out either: whatever is not of this one is refused as a whole.
#if defined(__x86_64__)
#define ARCH 0xc000003eu
#elif defined(__aarch64__)
#define ARCH 0xc00000b7u
#else
#error "no system call numbers for the filter"
#endif

#define REFUSE(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static int refuse_calls(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1), // x32
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
#ifdef SYS_fork
		REFUSE(SYS_fork),
		REFUSE(SYS_vfork),
		REFUSE(SYS_mknod),
#endif
		REFUSE(SYS_clone),
		REFUSE(SYS_clone3),
		REFUSE(SYS_execve),
		REFUSE(SYS_execveat),
		REFUSE(SYS_kill),
		REFUSE(SYS_tkill),
		REFUSE(SYS_pidfd_open),
		REFUSE(SYS_pidfd_send_signal),
		REFUSE(SYS_ptrace),
		REFUSE(SYS_process_vm_writev),
		REFUSE(SYS_mknodat),
		REFUSE(SYS_chroot),
		REFUSE(SYS_pivot_root),
		REFUSE(SYS_unshare),
		REFUSE(SYS_setns),
		REFUSE(SYS_mount),
		REFUSE(SYS_umount2),
		REFUSE(SYS_move_mount),
		REFUSE(SYS_open_tree),
		REFUSE(SYS_fsopen),
		REFUSE(SYS_open_by_handle_at),
		REFUSE(SYS_socket),
		REFUSE(SYS_clock_settime),
		REFUSE(SYS_settimeofday),
		REFUSE(SYS_adjtimex),
		REFUSE(SYS_clock_adjtime),
		REFUSE(SYS_sethostname),
		REFUSE(SYS_ioprio_set),
		REFUSE(SYS_setpriority),
		REFUSE(SYS_setrlimit),
		REFUSE(SYS_reboot),
		REFUSE(SYS_bpf),
		REFUSE(SYS_init_module),
		REFUSE(SYS_finit_module),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// --- the tree ---

void jail_empty(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(fd, e->d_name, 0) == 0 || errno != EISDIR)
			continue;
		jail_empty(fd, e->d_name);
		unlinkat(fd, e->d_name, AT_REMOVEDIR);
	}
	if (d)
		closedir(d);
}

static void file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	FUZZ_CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

void jail_reset(void)
{
	static const char *const dirs[] = {"/etc", "/root", "/home", "/home/user", "/tmp", "/run", "/proc",
		"/workspace", "/workspace/d", "/home/user/g", "/home/user/g/wd"};
	FUZZ_CHECK(chdir("/") == 0);
	jail_empty(AT_FDCWD, "/");
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
		FUZZ_CHECK(mkdir(dirs[i], 0755) == 0);
	file("/etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n");
	file("/etc/group", "root:x:0:\nuser:x:1000:\n");
	file("/workspace/f", "some text\n");
	file("/home/user/f", "0123456789\n");
	file("/home/user/g/r.txt", "0123456789\n");
	FUZZ_CHECK(symlink("f", "/workspace/link") == 0);
}

// --- the thread ---

static void *serve(void *arg)
{
	(void)arg;
	if (unshare(CLONE_FS) < 0 || chroot(jail.dir) < 0 || chdir("/") < 0 || refuse_calls() < 0) {
		perror("fuzz: no root directory of its own");
		_exit(1);
	}
	// The proof, before anything else runs in here.
	FUZZ_CHECK(access("/proc", F_OK) < 0 && access("/usr", F_OK) < 0 && syscall(SYS_clone, 0, 0, 0, 0, 0) < 0);
	FUZZ_CHECK(
		syscall(SYS_kill, getpid(), 0) < 0 && execl("/bin/true", "true", (char *)NULL) < 0 && errno == EPERM);
	for (;;) {
		while (sem_wait(&jail.work) < 0)
			;
		if (!jail.fn)
			break;
		jail.fn(jail.arg);
		sem_post(&jail.done);
	}
	jail_empty(AT_FDCWD, "/");
	return NULL;
}

static void leave(void)
{
	jail.fn = NULL;
	sem_post(&jail.work);
	pthread_join(jail.thread, NULL);
	rmdir(jail.dir);
}

// Without root a user namespace may do: it needs a program that has no other thread yet.
static void become_root(void)
{
	char line[32];
	unsigned uid = geteuid(), gid = getegid();
	bool ok = unshare(CLONE_NEWUSER) == 0 && io_write_file("/proc/self/setgroups", "deny") == 0;
	snprintf(line, sizeof line, "0 %u 1", uid);
	ok = ok && io_write_file("/proc/self/uid_map", line) == 0;
	snprintf(line, sizeof line, "0 %u 1", gid);
	if (!ok || io_write_file("/proc/self/gid_map", line) < 0)
		perror("fuzz: neither root nor a user namespace");
}

static void enter(void)
{
	snprintf(jail.dir, sizeof jail.dir, "/dev/shm/celld-fuzz.XXXXXX");
	if (!mkdtemp(jail.dir)) {
		perror(jail.dir);
		_exit(1);
	}
	if (geteuid() != 0)
		become_root();
	sem_init(&jail.work, 0, 0);
	sem_init(&jail.done, 0, 0);
	if (pthread_create(&jail.thread, NULL, serve, NULL) != 0)
		_exit(1);
	atexit(leave);
}

bool jail_possible(void)
{
	int status = 1;
	if (geteuid() == 0)
		return true;
	pid_t pid = fork();
	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) < 0);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

void jail_run(void (*fn)(void *arg), void *arg)
{
	if (!*jail.dir)
		enter();
	jail.fn = fn;
	jail.arg = arg;
	sem_post(&jail.work);
	while (sem_wait(&jail.done) < 0)
		;
}
