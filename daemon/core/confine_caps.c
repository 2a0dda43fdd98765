// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/confine_priv.h"

#include <ctype.h>
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// In the order of their numbers. One that is newer than this list is known by its number only, and never kept but by "all".
static const char *const names[] = {"chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid",
	"setuid", "setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock",
	"ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot",
	"sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control",
	"setfcap", "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
	"checkpoint_restore"};
enum { NAMES = sizeof names / sizeof *names };

// What package managers, build tools and servers use, and nothing that reaches beyond files and processes of the sandbox.
#define BIT(cap) ((uint64_t)1 << (cap))
#define DEFAULT                                                                                       \
	(BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) | BIT(CAP_KILL) | \
		BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SYS_CHROOT))

struct sets {
	struct __user_cap_header_struct head;
	struct __user_cap_data_struct data[2];
};

const char *confine_cap_name(int bit)
{
	return bit >= 0 && bit < NAMES ? names[bit] : NULL;
}

static int find(const char *name)
{
	if (strncasecmp(name, "cap_", 4) == 0)
		name += 4;
	for (int i = 0; i < NAMES; i++) {
		if (strcasecmp(name, names[i]) == 0)
			return i;
	}
	return -1;
}

static int parse(uint64_t *keep, const struct confine_spec *spec, char *why, size_t n)
{
	*keep = spec->keep_caps_count ? 0 : DEFAULT;
	for (size_t i = 0; i < spec->keep_caps_count; i++) {
		const char *name = spec->keep_caps[i];
		if (strcasecmp(name, "none") == 0)
			continue;
		int bit = find(name);
		if (strcasecmp(name, "all") == 0)
			*keep = ~(uint64_t)0;
		else if (bit >= 0)
			*keep |= BIT(bit);
		else
			return confine_why(why, n, -EINVAL, "%s: no such capability", name);
	}
	return 0;
}

static int get(struct sets *s)
{
	memset(s, 0, sizeof *s);
	s->head.version = _LINUX_CAPABILITY_VERSION_3;
	return syscall(SYS_capget, &s->head, s->data) < 0 ? -errno : 0;
}

const char *confine_lacks(void)
{
	static const int wanted[] = {CAP_SETUID, CAP_SETGID, CAP_KILL};
	struct sets s;
	int rc = get(&s);
	for (size_t i = 0; rc == 0 && i < sizeof wanted / sizeof *wanted; i++) {
		if (!(s.data[0].effective & BIT(wanted[i])))
			return confine_cap_name(wanted[i]);
	}
	return NULL;
}

int confine_caps_init(struct confine *c, const struct confine_spec *spec, char *why, size_t n)
{
	struct sets s;
	int rc = parse(&c->keep, spec, why, n);
	if (rc == 0 && get(&s) < 0)
		rc = confine_why(why, n, -EIO, "capabilities cannot be read");
	c->state.caps = ~(uint64_t)0;
	if (rc < 0 || c->keep == ~(uint64_t)0)
		return rc;
	// Who may not touch the bounding set has no_new_privs to the same end: what is not held cannot be gained.
	if (!(s.data[0].effective & BIT(CAP_SETPCAP)))
		return 0;
	uint64_t bounding = 0;
	for (int i = 0; i < CONFINE_CAPS; i++) {
		if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1)
			bounding |= BIT(i);
	}
	c->drop = bounding & ~c->keep;
	c->state.caps = bounding & c->keep;
	return 0;
}

int confine_child_caps(const struct confine *c)
{
	if (!c || c->keep == ~(uint64_t)0)
		return 0;
	for (int i = 0; i < CONFINE_CAPS; i++) {
		if (c->drop & BIT(i) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0)
			return -errno;
	}
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); // before Linux 4.3 there is nothing to clear
	return 0;
}

// Those of somebody who stays root, too: a switch of user has cleared the others'.
int confine_caps_trim(const struct confine *c)
{
	struct sets s;
	if (c->keep == ~(uint64_t)0)
		return 0;
	int rc = get(&s);
	if (rc < 0)
		return rc;
	for (int i = 0; i < 2; i++) {
		uint32_t keep = (uint32_t)(c->keep >> (32 * i));
		s.data[i].permitted &= keep;
		s.data[i].effective &= keep;
		s.data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &s.head, s.data) < 0 ? -errno : 0;
}
