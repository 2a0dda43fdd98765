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
	struct buf part[2];             // the beginnings of lines: stdout, stderr
	uint64_t at[OUTPUT_CHANNELS];   // bytes of each channel that were taken
	uint64_t line[OUTPUT_CHANNELS]; // up to where they were given to the journal
	uint64_t skip[OUTPUT_CHANNELS]; // bytes that an earlier daemon had written
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
	journal_free(t->journal); // marks how far it has come
	output_detach(&t->reader);
	if (t->ws)
		DL_DELETE(t->ws->transcripts, t);
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
		bool put = true;
		size_t room = TEXT_MAX - buf_len(b), most = n < room ? n : room;
		const unsigned char *nl = memchr(p, '\n', most);
		size_t got = nl ? (size_t)(nl - p) : most;
		if (nl && !buf_len(b)) {
			put_line(t, kinds[ch], p, got);
		} else {
			buf_append(b, p, got);
			put = nl || buf_len(b) >= TEXT_MAX || buf_failed(b);
			if (put)
				flush_part(t, ch);
		}
		got += nl != NULL;
		p += got;
		n -= got;
		t->at[ch] += got;
		if (put)
			t->line[ch] = t->at[ch];
	}
}

// Where the next daemon would go on.
static void mark(void *arg)
{
	struct transcript *t = arg;
	for (int ch = 0; ch < 2 && t->reader.log; ch++)
		output_mark(t->reader.log, (enum output_channel)ch, t->line[ch]);
}

static void take_span(struct transcript *t, const struct output_span *s)
{
	size_t skip = t->skip[s->channel] < s->n ? (size_t)t->skip[s->channel] : s->n;
	int ch = s->channel == OUTPUT_STDERR; // as the channels are counted
	t->skip[s->channel] -= skip;
	if (!journal_full(t->journal)) {
		take(t, ch, s->p + skip, s->n - skip);
		return;
	}
	t->at[ch] += s->n - skip;
	t->line[ch] = t->at[ch];
	mark(t);
}

static void on_wake(struct output_reader *r)
{
	struct transcript *t = (struct transcript *)r;
	struct output_span s;
	while (output_next(r, SIZE_MAX, &s)) {
		take_span(t, &s);
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

static void say_missing(struct transcript *t)
{
	static const char text[] = "[output is missing here]";
	put_line(t, "stderr", text, sizeof text - 1);
}

static struct journal *open_journal(struct workspace *ws, struct transcript *t, const char *session)
{
	char name[256];
	struct journal_spec spec = {
		.dir = TRANSCRIPTS_DIR,
		.name = name,
		.max = FILE_MAX,
		.lost = say_lost,
		.full = say_full,
		.failed = say_failed,
		.settled = mark,
		.arg = t,
	};
	snprintf(name, sizeof name, "%s.log", session);
	return journal_new(ws->journals, &spec);
}

// NULL if P has none.
static struct transcript *transcript_new(struct workspace *ws, struct proc *p)
{
	const char *session = proc_session_id(p);
	if (!session || !workspace_id_ok(session, strlen(session)))
		return NULL;
	struct transcript *t = calloc(1, sizeof *t);
	struct journal *j = t ? open_journal(ws, t, session) : NULL;
	if (!j) {
		log_warn("transcript", "%s: no memory", session);
		free(t);
		return NULL;
	}
	t->ws = ws;
	t->proc = p;
	t->journal = j;
	t->reader.wake = on_wake;
	t->reader.cut = on_cut;
	t->reader.passive = true;
	DL_APPEND(ws->transcripts, t);
	return t;
}

void transcript_start(struct workspace *ws, struct proc *p)
{
	struct transcript *t = transcript_new(ws, p);
	if (!t)
		return;
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

void transcript_take_back(struct workspace *ws, struct proc *p)
{
	uint64_t from[OUTPUT_CHANNELS];
	struct transcript *t = transcript_new(ws, p);
	if (!t)
		return;
	for (int ch = 0; ch < OUTPUT_CHANNELS; ch++)
		from[ch] = output_marked(proc_output(p), (enum output_channel)ch);
	output_attach_from(proc_output(p), &t->reader, from, t->skip);
	memcpy(t->at, from, sizeof from);
	memcpy(t->line, from, sizeof from);
	if (t->reader.lost)
		say_missing(t);
	on_wake(&t->reader);
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

void transcripts_leave(struct workspace *ws)
{
	while (ws->transcripts)
		transcript_free(ws->transcripts);
}
