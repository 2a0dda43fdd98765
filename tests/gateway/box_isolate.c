// SPDX-License-Identifier: Apache-2.0
// The child half: its descriptors, its namespaces, what it sees of the file system and what it may do, then celld. It runs in a copy of the gateway
// until exec and says on its log why it cannot go on.
#include "daemon/io.h"
#include "tests/gateway/box_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Above all that the child is given, so that nothing is overwritten while it is put in place.
#define ASIDE 16

static _Noreturn void fail(const char *step)
{
	dprintf(STDERR_FILENO, "%s: %s\n", step, strerrordesc_np(errno));
	_exit(127);
}

// --- what it is given ---

static int aside(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, ASIDE);
	if (copy < 0)
		_exit(127);
	return copy;
}

// 0 and 1 nothing, 2 the log, 3 and 4 the sockets; returns the parent's. All others close here, not at exec: the gateway's clients wait for their ends.
static int put_descriptors(const struct isolate *s)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int from[] = {aside(null), aside(null), aside(s->log), -1, -1}, parent = aside(s->parent);
	int count = s->listen[0] < 0 ? 3 : 5;
	for (int i = 3; i < count; i++)
		from[i] = aside(s->listen[i - 3]);
	for (int i = 0; i < count; i++)
		dup2(from[i], i);
	parent = dup3(parent, 5, O_CLOEXEC);
	if (count == 3)
		close_range(3, 4, 0);
	close_range(6, ~0U, 0);
	return parent;
}

static void reset_signals(void)
{
	sigset_t none;
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

// Dies with the gateway: the signal is ordered before the look whether it still lives (within, its pid says nothing).
static void bind_to_parent(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (poll(&p, 1, 0) != 0)
		_exit(127);
	close(pidfd);
}

// --- who it is ---

static void map_ids(uid_t uid, gid_t gid)
{
	char text[48];
	prctl(PR_SET_DUMPABLE, 1); // a gateway that has changed its user may not write there otherwise
	int rc = io_write_file("/proc/self/setgroups", "deny");
	(void)snprintf(text, sizeof text, "0 %u 1", (unsigned)uid);
	if (rc == 0 || rc == -ENOENT)
		rc = io_write_file("/proc/self/uid_map", text);
	(void)snprintf(text, sizeof text, "0 %u 1", (unsigned)gid);
	if (rc == 0)
		rc = io_write_file("/proc/self/gid_map", text);
	errno = -rc;
	if (rc < 0)
		fail("user namespace");
}

// Root within is root outside, or may become so by a mount: what could reach the machine goes for good.
// Raw sockets see what passes in a network: the gateway's keys, where that is the machine's. What root could inherit would come back at exec.
static void drop_capabilities(bool private_net)
{
	const uint64_t kept = 1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID |
			      1ULL << CAP_KILL | 1ULL << CAP_SETGID | 1ULL << CAP_SETUID | 1ULL << CAP_SETPCAP |
			      1ULL << CAP_NET_BIND_SERVICE | (private_net ? 1ULL << CAP_NET_RAW : 0) |
			      1ULL << CAP_SYS_CHROOT | 1ULL << CAP_SETFCAP | 1ULL << CAP_AUDIT_WRITE;
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
	if (syscall(SYS_capget, &head, sets) < 0)
		fail("capabilities");
	sets[0].inheritable = sets[1].inheritable = 0;
	if (syscall(SYS_capset, &head, sets) < 0) // the ambient ones go with them
		fail("capabilities");
	for (unsigned cap = 0; cap < 64; cap++) {
		if (kept & 1ULL << cap)
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL)
				return; // the kernel knows no more
			fail("capabilities");
		}
	}
}

// The kernel's keyrings know no sandboxes: root's and user's keys would be those of all of them, and of the machine.
static void close_keyrings(void)
{
	// x32 marks its numbers with a bit, 32-bit programs have others.
	enum { X32 = 0x40000000, I386_ADD_KEY = 286, I386_KEYCTL = 288 };
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef __x86_64__
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)~X32),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_I386, 0, 3),
		BPF_STMT(BPF_MISC | BPF_TXA, 0),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, I386_ADD_KEY, 0, 6),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, I386_KEYCTL, 5, 4),
		BPF_STMT(BPF_MISC | BPF_TXA, 0),
#endif
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_add_key, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_request_key, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_keyctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 && errno != EINVAL) // a kernel without it
		fail("keyrings");
}

static void loopback_up(void)
{
	struct ifreq r = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
		fail("loopback");
	r.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		fail("loopback");
	close(fd);
}

// --- what it sees ---

enum {
	OPTIONAL = 1, // there are systems without it
	FIXED = 2,    // read-only; for a device: its node, which is the machine's own
};

// What is taken from outside and where it comes to lie. Without a slash in front FROM is in DIR.
static const struct place {
	const char *from, *to;
	unsigned how;
} places[] = {
	{"work", "/home/" BOX_USER, 0},
	{"tmp", "/tmp", 0},
	{"tmp", "/var/tmp", OPTIONAL},
	{"root", "/root", OPTIONAL},
	{"key", ISOLATE_KEY, FIXED},
	{"etc/passwd", "/etc/passwd", FIXED},
	{"etc/group", "/etc/group", FIXED},
	{"shm", "/dev/shm", 0},
	{"/dev/null", "/dev/null", FIXED},
	{"/dev/zero", "/dev/zero", FIXED},
	{"/dev/full", "/dev/full", FIXED},
	{"/dev/random", "/dev/random", FIXED},
	{"/dev/urandom", "/dev/urandom", FIXED},
	{"/dev/tty", "/dev/tty", FIXED},
};
#define PLACES (sizeof places / sizeof *places)

// What of a fresh /proc speaks to the whole machine.
static const char *const proc_fixed[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"};

static int take(const char *path)
{
	return open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}

static void put(int fd, const char *to, unsigned how)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
	if (how & FIXED && mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		fail(to);
	if (move_mount(fd, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0 && !(how & OPTIONAL && errno == ENOENT))
		fail(to);
	close(fd);
}

static void fix(const char *path, unsigned flags)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
	if (mount_setattr(AT_FDCWD, path, flags, &attr, sizeof attr) < 0)
		fail(path);
}

static void cover(const char *path, const char *options)
{
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID, options) < 0)
		fail(path);
}

static void make_dir(const char *path)
{
	if (mkdir(path, 0755) < 0)
		fail(path);
}

static void make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		fail(path);
	close(fd);
}

static void make_dev(void)
{
	static const struct {
		const char *to, *name;
	} links[] = {{"pts/ptmx", "/dev/ptmx"}, {"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
		{"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}};
	cover("/dev", "mode=755,size=64k");
	make_dir("/dev/pts");
	make_dir("/dev/shm");
	make_dir("/dev/mqueue");
	for (size_t i = 0; i < PLACES; i++) {
		if (strncmp(places[i].from, "/dev/", 5) == 0)
			make_file(places[i].to);
	}
	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		if (symlink(links[i].to, links[i].name) < 0)
			fail(links[i].name);
	}
	if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620") < 0)
		fail("/dev/pts");
	// So that its queues, which outlive processes, can be seen and removed.
	if (mount("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 && errno != ENODEV)
		fail("/dev/mqueue");
}

static void make_run(void)
{
	cover("/run", "mode=755,size=64k");
	make_dir(ISOLATE_KEY);
	make_dir("/run/e2b"); // celld's mark
	make_dir("/run/lock");
	make_file(ISOLATE_CELLD);
	int fd = open("/run/e2b/.E2B_SANDBOX", O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
	if (fd < 0 || io_write(fd, "false", 5) != 5)
		fail("/run/e2b");
	close(fd);
}

static void make_proc(void)
{
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		fail("/proc");
	for (size_t i = 0; i < sizeof proc_fixed / sizeof *proc_fixed; i++) {
		int fd = take(proc_fixed[i]);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0)
			fail(proc_fixed[i]);
		put(fd, proc_fixed[i], FIXED);
	}
}

// What lies beside the box is others', unless it is out of sight already.
static void hide(const char *path, const struct stat *before)
{
	struct stat now, root;
	if (stat(path, &now) < 0 || now.st_dev != before->st_dev || now.st_ino != before->st_ino)
		return;
	if (stat("/", &root) == 0 && root.st_dev == now.st_dev && root.st_ino == now.st_ino)
		return;
	cover(path, "mode=755,size=4k");
}

static void arrange(const struct isolate *s)
{
	char path[PATH_MAX], parent[PATH_MAX];
	int fd[PLACES], celld = take(s->celld ? s->celld : "/bin/sh");
	const char *hidden = s->hide ? s->hide : parent;
	struct stat others = {0};
	if (celld < 0)
		fail(s->celld ? s->celld : "/bin/sh");
	for (size_t i = 0; i < PLACES; i++) {
		bool ours = places[i].from[0] != '/';
		(void)snprintf(path, sizeof path, "%s%s%s", ours ? s->dir : "", ours ? "/" : "", places[i].from);
		fd[i] = take(path);
		if (fd[i] < 0)
			fail(path);
	}
	(void)snprintf(parent, sizeof parent, "%s/..", s->dir);
	if (stat(hidden, &others) < 0)
		fail(hidden);
	fix("/", AT_RECURSIVE);
	make_dev();
	make_run();
	cover("/home", "mode=755,size=64k");
	make_dir("/home/" BOX_USER);
	make_proc();
	for (size_t i = 0; i < PLACES; i++)
		put(fd[i], places[i].to, places[i].how);
	put(celld, ISOLATE_CELLD, FIXED);
	hide(hidden, &others);
	fix("/dev", 0);
	fix("/run", 0);
	fix("/home", 0);
}

static void enter(const struct isolate *s, uid_t uid, gid_t gid)
{
	if (s->user_ns)
		map_ids(uid, gid);
	if (unshare(CLONE_NEWIPC | CLONE_NEWUTS | (s->private_net ? CLONE_NEWNET : 0)) < 0)
		fail("namespaces");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		fail("mount namespace");
	arrange(s);
	if (s->private_net)
		loopback_up();
	close_keyrings();
	drop_capabilities(s->private_net);
}

static _Noreturn void child(const struct isolate *s, uid_t uid, gid_t gid)
{
	bind_to_parent(put_descriptors(s));
	reset_signals();
	setsid();
	umask(022);
	if (s->namespaces)
		enter(s, uid, gid);
	if (chdir("/") < 0)
		fail("/");
	if (!s->celld)
		_exit(0);
	const char *path = s->namespaces ? ISOLATE_CELLD : s->celld;
	execve(path, s->argv, s->env);
	fail(path);
}

pid_t isolate_start(const struct isolate *s, int cgroup)
{
	// The child has other ids until it has mapped them.
	uid_t uid = geteuid();
	gid_t gid = getegid();
	uint64_t flags = s->namespaces ? CLONE_NEWPID | CLONE_NEWNS | (s->user_ns ? CLONE_NEWUSER : 0) : 0;
	struct clone_args args = {.flags = flags, .exit_signal = SIGCHLD};
	if (cgroup >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (__u64)cgroup;
	}
	long pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid < 0 && !args.flags && (errno == ENOSYS || errno == EPERM))
		pid = fork();
	if (pid == 0)
		child(s, uid, gid);
	return pid < 0 ? -errno : (pid_t)pid;
}
