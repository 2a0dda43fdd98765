// SPDX-License-Identifier: Apache-2.0
// A transcript is written by a reader of the command's output that takes everything at once and so never holds anybody up.
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/sandboxd/workspace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define FILE_MAX ((int64_t)64 * 1024 * 1024)
// A longer line is cut into several.
#define TEXT_MAX ((size_t)8192)

struct transcript {
	struct output_reader reader; // first: the callbacks get it
	struct workspace *ws;
	struct proc *proc;
	struct journal *journal;
	struct buf part[2]; // the beginnings of lines: stdout, stderr
	struct transcript *prev, *next;
};

static void say_lost(struct buf *out, uint64_t lines)
{
	buf_printf(out, "%lld stderr [%llu lines could not be written]\n", (long long)(io_wall_ms() / 1000),
		(unsigned long long)lines);
}

static void say_full(struct buf *out)
{
	buf_printf(out, "%lld stderr [the transcript is full]\n", (long long)(io_wall_ms() / 1000));
}

static void say_failed(const char *dir, const char *name, int err)
{
	log_warn("journal", "%s/%s: %s", dir, name, strerror(-err));
}

static void transcript_free(struct transcript *t)
{
	output_detach(&t->reader);
	if (t->ws)
		DL_DELETE(t->ws->transcripts, t);
	journal_free(t->journal);
	buf_release(&t->part[0]);
	buf_release(&t->part[1]);
	free(t);
}

static void put_line(struct transcript *t, const char *kind, const void *p, size_t n)
{
	struct buf line;
	buf_init(&line, 0);
	buf_i64(&line, io_wall_ms() / 1000);
	buf_printf(&line, " %s ", kind);
	buf_append(&line, p, n);
	buf_byte(&line, '\n');
	if (!buf_failed(&line))
		journal_append(t->journal, buf_data(&line), buf_len(&line));
	buf_release(&line);
}

static const char *const kinds[2] = {"stdout", "stderr"};

static void flush_part(struct transcript *t, int ch)
{
	struct buf *b = &t->part[ch];
	if (buf_len(b))
		put_line(t, kinds[ch], buf_data(b), buf_len(b));
	buf_reset(b);
}

static void take(struct transcript *t, int ch, const unsigned char *p, size_t n)
{
	struct buf *b = &t->part[ch];
	while (n) {
		size_t room = TEXT_MAX - buf_len(b), most = n < room ? n : room;
		const unsigned char *nl = memchr(p, '\n', most);
		size_t got = nl ? (size_t)(nl - p) : most;
		if (nl && !buf_len(b)) {
			put_line(t, kinds[ch], p, got);
		} else {
			buf_append(b, p, got);
			if (nl || buf_len(b) >= TEXT_MAX || buf_failed(b))
				flush_part(t, ch);
		}
		got += nl != NULL;
		p += got;
		n -= got;
	}
}

static void on_wake(struct output_reader *r)
{
	struct transcript *t = (struct transcript *)r;
	struct output_span s;
	while (output_next(r, SIZE_MAX, &s)) {
		if (!journal_full(t->journal))
			take(t, s.channel == OUTPUT_STDERR, s.p, s.n);
		output_taken(r, s.n);
	}
	if (!proc_end(t->proc))
		return;
	flush_part(t, 0);
	flush_part(t, 1);
	transcript_free(t);
}

static void on_cut(struct output_reader *r)
{
	(void)r; // it never holds anyone up
}

static struct journal *open_journal(struct workspace *ws, const char *session)
{
	char name[256];
	struct journal_spec spec = {
		.dir = TRANSCRIPTS_DIR,
		.name = name,
		.max = FILE_MAX,
		.lost = say_lost,
		.full = say_full,
		.failed = say_failed,
	};
	snprintf(name, sizeof name, "%s.log", session);
	return journal_new(ws->journals, &spec);
}

void transcript_start(struct workspace *ws, struct proc *p)
{
	const char *session = proc_session_id(p);
	if (!session || !workspace_id_ok(session, strlen(session)))
		return;
	struct transcript *t = calloc(1, sizeof *t);
	struct journal *j = t ? open_journal(ws, session) : NULL;
	if (!j) {
		log_warn("transcript", "%s: no memory", session);
		free(t);
		return;
	}
	t->ws = ws;
	t->proc = p;
	t->journal = j;
	t->reader.wake = on_wake;
	t->reader.cut = on_cut;
	t->reader.passive = true;
	DL_APPEND(ws->transcripts, t);
	const char *line = proc_command(p);
	for (;;) {
		size_t n = strcspn(line, "\n");
		put_line(t, "cmd", line, n);
		if (!line[n] || !line[n + 1])
			break;
		line += n + 1;
	}
	output_attach(proc_output(p), &t->reader);
}

void transcripts_drop(struct workspace *ws)
{
	while (ws->transcripts) {
		struct transcript *t = ws->transcripts;
		struct proc *p = t->proc;
		journal_drop(t->journal);
		t->journal = NULL;
		transcript_free(t);
		proc_resume(p);
	}
}
