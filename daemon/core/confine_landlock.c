// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/confine_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Rights that the headers may be too old for, and the version of the kernel's interface that has them.
#define RIGHT_REFER (1ULL << 13)     // 2
#define RIGHT_TRUNCATE (1ULL << 14)  // 3
#define RIGHT_IOCTL_DEV (1ULL << 15) // 5

#define RIGHTS_FIRST ((1ULL << 13) - 1)
#define RIGHTS_READ (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RIGHTS_OF_FILE                                                                                                \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE | \
		RIGHT_IOCTL_DEV)

// Devices that reach nothing: writable in any case. Not all of /dev, which may hold the disk that everything is on.
static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
	"/dev/ptmx", "/dev/pts", "/dev/shm", "/dev/mqueue"};
// Not /proc, where root could set what the kernel runs (core_pattern), or restart it.
static const char *const writable[] = {"/tmp", "/var/tmp", "/home", "/root", "/run"};
static const char *const readable[] = {"/"};

static uint64_t rights_of(int version)
{
	return RIGHTS_FIRST | (version >= 2 ? RIGHT_REFER : 0) | (version >= 3 ? RIGHT_TRUNCATE : 0) |
	       (version >= 5 ? RIGHT_IOCTL_DEV : 0);
}

// One tree, or one file. -ENOENT if it is not there.
static int allow(struct confine *c, struct confine_list *list, const char *path, uint64_t rights)
{
	struct stat st;
	int fd = IO_AGAIN(open(path, O_PATH | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	int rc = fstat(fd, &st) < 0 ? -errno : 0;
	if (!S_ISDIR(st.st_mode))
		rights &= RIGHTS_OF_FILE;
	struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
	if (rc == 0 && syscall(SYS_landlock_add_rule, c->ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		rc = -errno;
	close(fd);
	return rc == 0 ? confine_add(list, "%s", path) : rc;
}

struct trees {
	const char *const *at;
	size_t count;
	uint64_t rights;
	bool may_lack;
};

// One that is not there is one less to write or read.
static int allow_all(struct confine *c, struct confine_list *list, const struct trees *t, char *why, size_t n)
{
	for (size_t i = 0; i < t->count; i++) {
		int rc = allow(c, list, t->at[i], t->rights);
		if (rc == -ENOENT && !t->may_lack)
			rc = confine_add(&c->missing, "%s: %s", t->at[i], strerror(ENOENT));
		if (rc < 0 && rc != -ENOENT)
			return confine_why(why, n, rc, "%s: %s", t->at[i], strerror(-rc));
	}
	return 0;
}

static struct trees given_or(const char *const *given, size_t count, const char *const *others, size_t others_count)
{
	return count ? (struct trees){.at = given, .count = count}
		     : (struct trees){.at = others, .count = others_count, .may_lack = true};
}

static int fill(struct confine *c, const struct confine_spec *spec, uint64_t all, char *why, size_t n)
{
	const uint64_t read = RIGHTS_READ & all;
	struct trees own = {.at = &spec->workspace, .count = spec->workspace ? 1 : 0, .rights = all};
	struct trees write =
		given_or(spec->writable, spec->writable_count, writable, sizeof writable / sizeof *writable);
	struct trees look =
		given_or(spec->readable, spec->readable_count, readable, sizeof readable / sizeof *readable);
	struct trees dev = {devices, sizeof devices / sizeof *devices, all, true};
	write.rights = all;
	look.rights = read;
	int rc = allow_all(c, &c->writable, &own, why, n);
	if (rc == 0)
		rc = allow_all(c, &c->writable, &write, why, n);
	if (rc == 0)
		rc = allow_all(c, &c->writable, &dev, why, n);
	return rc == 0 ? allow_all(c, &c->readable, &look, why, n) : rc;
}

int confine_landlock_init(struct confine *c, const struct confine_spec *spec, char *why, size_t n)
{
	long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	if (version < 1)
		return confine_add(&c->missing, "landlock: %s",
			errno == EOPNOTSUPP ? "switched off in this kernel" : "not to be had from this kernel");
	uint64_t all = rights_of((int)version);
	struct landlock_ruleset_attr attr = {.handled_access_fs = all};
	c->ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr.handled_access_fs, 0);
	if (c->ruleset < 0)
		return confine_why(why, n, -errno, "landlock: %s", strerror(errno));
	c->state.landlock = (int)version;
	if (version < 3 && confine_add(&c->missing, "landlock: this kernel does not keep from truncating files") < 0)
		return -ENOMEM;
	return fill(c, spec, all, why, n);
}
