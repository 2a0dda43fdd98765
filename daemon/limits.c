// SPDX-License-Identifier: Apache-2.0
#include "daemon/limits.h"

#include "daemon/config_value.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

static const char *const names[LIMITS_COUNT] = {
	[RLIMIT_CPU] = "cpu",
	[RLIMIT_FSIZE] = "fsize",
	[RLIMIT_DATA] = "data",
	[RLIMIT_STACK] = "stack",
	[RLIMIT_CORE] = "core",
	[RLIMIT_RSS] = "rss",
	[RLIMIT_NPROC] = "nproc",
	[RLIMIT_NOFILE] = "nofile",
	[RLIMIT_MEMLOCK] = "memlock",
	[RLIMIT_AS] = "as",
	[RLIMIT_LOCKS] = "locks",
	[RLIMIT_SIGPENDING] = "sigpending",
	[RLIMIT_MSGQUEUE] = "msgqueue",
	[RLIMIT_NICE] = "nice",
	[RLIMIT_RTPRIO] = "rtprio",
	[RLIMIT_RTTIME] = "rttime",
};
_Static_assert(RLIM_NLIMITS == LIMITS_COUNT, "a resource of the kernel has no name here");

int limits_find(const char *name, size_t n)
{
	for (int i = 0; i < LIMITS_COUNT; i++) {
		if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
			return i;
	}
	return -EINVAL;
}

const char *limits_name(int resource)
{
	return resource >= 0 && resource < LIMITS_COUNT ? names[resource] : NULL;
}

int limits_put(struct limits *l, int resource, uint64_t soft, uint64_t hard)
{
	if (!limits_name(resource) || soft > hard)
		return -EINVAL;
	l->set |= 1u << resource;
	l->value[resource] = (struct rlimit){.rlim_cur = soft, .rlim_max = hard};
	return 0;
}

// N characters: "unlimited", or a number that a unit may follow.
static int parse_value(const char *text, size_t n, uint64_t *out)
{
	char value[24];
	long long v;
	if (n >= sizeof value)
		return -EINVAL;
	memcpy(value, text, n);
	value[n] = '\0';
	if (strcmp(value, "unlimited") == 0) {
		*out = RLIM_INFINITY;
		return 0;
	}
	if (value_size(value, 0, LLONG_MAX, &v) < 0)
		return -EINVAL;
	*out = (uint64_t)v;
	return 0;
}

int limits_parse(struct limits *l, const char *text)
{
	const char *value = strchr(text, '=');
	int resource = value ? limits_find(text, (size_t)(value - text)) : -EINVAL;
	uint64_t soft, hard;
	if (resource < 0)
		return -EINVAL;
	value++;
	size_t n = strcspn(value, ":");
	if (parse_value(value, n, &soft) < 0)
		return -EINVAL;
	hard = soft;
	if (value[n] && parse_value(value + n + 1, strlen(value + n + 1), &hard) < 0)
		return -EINVAL;
	return limits_put(l, resource, soft, hard);
}

void limits_over(struct limits *l, const struct limits *top)
{
	for (int i = 0; i < LIMITS_COUNT; i++) {
		if (top->set & 1u << i)
			l->value[i] = top->value[i];
	}
	l->set |= top->set;
}
