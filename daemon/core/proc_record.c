// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/proc_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERSION ((uint32_t)1)
#define KINDS_MAX ((uint32_t)16)

// Which strings are there, in the order in which they follow: each with its NUL, then argv's and env's.
enum { HAS_SESSION = 1, HAS_NOTE = 2, HAS_ASKED = 4, HAS_CWD = 8, HAS_TAG = 16, WANTED = 32, HAS_ALL = 63 };

// The front. Native byte order and layout: both ends are on one machine.
struct front {
	uint32_t version;
	uint32_t kind;
	uint32_t has;
	uint32_t argc, envc;
	uint32_t reserved;
	int64_t started_ms, started_ns;
	int64_t terminal_id;
};

static void put(struct buf *out, const char *s)
{
	if (s)
		buf_append(out, s, strlen(s) + 1);
}

static uint32_t count(const char *const *list)
{
	uint32_t n = 0;
	while (list[n])
		n++;
	return n;
}

static void put_list(struct buf *out, const char *const *list)
{
	for (; *list; list++)
		put(out, *list);
}

void proc_record_encode(struct buf *out, const struct proc_record *r)
{
	struct front f = {
		.version = VERSION,
		.kind = r->kind,
		.started_ms = r->started_ms,
		.started_ns = r->started_ns,
		.terminal_id = r->terminal_id,
	};
	f.has = (r->session_id ? HAS_SESSION : 0) | (r->note ? HAS_NOTE : 0) | (r->wanted ? WANTED : 0);
	if (r->has_asked) {
		f.has |= HAS_ASKED | (r->asked.cwd ? HAS_CWD : 0) | (r->asked.tag ? HAS_TAG : 0);
		f.argc = count(r->asked.argv);
		f.envc = count(r->asked.env);
	}
	buf_append(out, &f, sizeof f);
	put(out, r->command);
	put(out, r->session_id);
	put(out, r->note);
	if (!r->has_asked)
		return;
	put(out, r->asked.cwd);
	put(out, r->asked.tag);
	put_list(out, r->asked.argv);
	put_list(out, r->asked.env);
}

struct reader {
	const char *p, *end;
	bool bad;
};

static const char *string(struct reader *in)
{
	const char *s = in->p, *nul = in->bad ? NULL : memchr(s, '\0', (size_t)(in->end - s));
	if (!nul) {
		in->bad = true;
		return NULL;
	}
	in->p = nul + 1;
	return s;
}

static const char *optional(struct reader *in, bool has)
{
	return has ? string(in) : NULL;
}

static const char *const *list(struct reader *in, const char **out, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = string(in);
	out[n] = NULL;
	return out;
}

int proc_record_decode(struct proc_record *r, const void *p, size_t n)
{
	struct front f;
	memset(r, 0, sizeof *r);
	if (n < sizeof f)
		return -EPROTO;
	memcpy(&f, p, sizeof f);
	struct reader in = {.p = (const char *)p + sizeof f, .end = (const char *)p + n};
	// Every string has a byte at least.
	uint64_t strings = (uint64_t)f.argc + f.envc;
	if (f.version != VERSION || f.kind >= KINDS_MAX || f.has & ~(uint32_t)HAS_ALL || f.reserved ||
		strings > n - sizeof f || (!(f.has & HAS_ASKED) && (strings || f.has & (HAS_CWD | HAS_TAG))) ||
		f.started_ms < 0 || f.started_ns < 0 || f.terminal_id < 0)
		return -EPROTO;
	*r = (struct proc_record){
		.kind = f.kind,
		.wanted = f.has & WANTED,
		.started_ms = f.started_ms,
		.started_ns = f.started_ns,
		.terminal_id = f.terminal_id,
		.has_asked = f.has & HAS_ASKED,
	};
	r->command = string(&in);
	r->session_id = optional(&in, f.has & HAS_SESSION);
	r->note = optional(&in, f.has & HAS_NOTE);
	if (r->has_asked) {
		const char **lists = calloc(strings + 2, sizeof *lists);
		if (!lists)
			return -ENOMEM;
		r->asked.cwd = optional(&in, f.has & HAS_CWD);
		r->asked.tag = optional(&in, f.has & HAS_TAG);
		r->asked.argv = list(&in, lists, f.argc);
		r->asked.env = list(&in, lists + f.argc + 1, f.envc);
	}
	if (!in.bad && in.p == in.end)
		return 0;
	proc_record_release(r);
	return -EPROTO;
}

void proc_record_release(struct proc_record *r)
{
	free((void *)(uintptr_t)r->asked.argv);
	r->asked.argv = r->asked.env = NULL;
}
