// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/proc_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERSION ((uint32_t)2)
#define KINDS_MAX ((uint32_t)16)

// Which strings are there, in the order in which they follow: each with its NUL, then argv's and env's. The command comes first, if it is neither
// argv's last nor all of argv with a blank between.
enum {
	HAS_SESSION = 1,
	HAS_NOTE = 2,
	HAS_ASKED = 4,
	HAS_CWD = 8,
	HAS_TAG = 16,
	WANTED = 32,
	COMMAND_LAST = 64,
	COMMAND_LINE = 128,
	HAS_ALL = 255
};

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

static bool is_line(const char *s, const char *const *argv)
{
	for (; *argv; argv++) {
		size_t n = strlen(*argv);
		if (strncmp(s, *argv, n) != 0)
			return false;
		s += n;
		if (argv[1] && *s++ != ' ')
			return false;
	}
	return !*s;
}

static uint32_t command_in(const char *command, const char *const *argv, uint32_t argc)
{
	if (!argc)
		return 0;
	if (strcmp(command, argv[argc - 1]) == 0)
		return COMMAND_LAST;
	return is_line(command, argv) ? COMMAND_LINE : 0;
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
		f.has |= command_in(r->command, r->asked.argv, f.argc);
	}
	buf_append(out, &f, sizeof f);
	if (!(f.has & (COMMAND_LAST | COMMAND_LINE)))
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

// The lists and, where it is not there as one string, the line of argv: in one piece that ASKED's argv begins.
static int take_lists(struct proc_record *r, struct reader *in, const struct front *f)
{
	size_t pointers = ((size_t)f->argc + f->envc + 2) * sizeof(char *),
	       line = f->has & COMMAND_LINE ? (size_t)(in->end - in->p) : 0;
	const char **lists = calloc(1, pointers + line);
	if (!lists)
		return -ENOMEM;
	r->asked.cwd = optional(in, f->has & HAS_CWD);
	r->asked.tag = optional(in, f->has & HAS_TAG);
	r->asked.argv = list(in, lists, f->argc);
	r->asked.env = list(in, lists + f->argc + 1, f->envc);
	if (in->bad)
		return 0;
	if (f->has & COMMAND_LAST && f->argc)
		r->command = r->asked.argv[f->argc - 1];
	if (f->has & COMMAND_LINE) {
		char *at = (char *)lists + pointers;
		r->command = at;
		for (uint32_t i = 0; i < f->argc; i++) {
			size_t n = strlen(r->asked.argv[i]);
			memcpy(at, r->asked.argv[i], n);
			at += n;
			*at++ = i + 1 < f->argc ? ' ' : '\0';
		}
	}
	// As it would be written, and no other way.
	if (!r->command || command_in(r->command, r->asked.argv, f->argc) != (f->has & (COMMAND_LAST | COMMAND_LINE)))
		in->bad = true;
	return 0;
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
		strings > n - sizeof f ||
		(!(f.has & HAS_ASKED) && (strings || f.has & (HAS_CWD | HAS_TAG | COMMAND_LAST | COMMAND_LINE))) ||
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
	if (!(f.has & (COMMAND_LAST | COMMAND_LINE)))
		r->command = string(&in);
	r->session_id = optional(&in, f.has & HAS_SESSION);
	r->note = optional(&in, f.has & HAS_NOTE);
	if (r->has_asked && take_lists(r, &in, &f) < 0)
		return -ENOMEM;
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
