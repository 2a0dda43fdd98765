// SPDX-License-Identifier: Apache-2.0
// GET /exec/background/<run_id>: how a run is or was, from its files.
#include "daemon/io.h"
#include "daemon/sandboxd/work.h"
#include "daemon/sandboxd/workspace.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTPUT_MAX ((int64_t)10 * 1024 * 1024) // of each channel: the last ones
#define BLOCK ((size_t)16 * 1024)
#define RUN_PREFIX "/exec/background/"

struct text_file {
	int fd; // -1: nothing
	int64_t at, end;
	struct text_tail tail;
};

struct bg_get {
	struct work work; // first
	struct text_file file[2];
	int now;    // which is written
	bool begun; // its opening quote is
	bool head;  // what comes before them is
	bool truncated;
	char run_id[160];
	char words[64]; // of the file "end"
	long exit_code;
	bool failed;
};

static void get_free(struct work *w)
{
	struct bg_get *g = (struct bg_get *)w;
	io_close(&g->file[0].fd);
	io_close(&g->file[1].fd);
	free(g);
}

static bool has_word(const struct bg_get *g, const char *word)
{
	size_t n = strlen(word);
	const char *at = strstr(g->words, word);
	return at && (at == g->words || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' ');
}

static void put_head(struct bg_get *g)
{
	struct jsonw w;
	const char *status = g->failed ? "failed" : has_word(g, "timed_out") ? "timed_out" : "completed";
	jsonw_init(&w, &g->work.out);
	jsonw_obj(&w);
	jsonw_kstr(&w, "run_id", g->run_id);
	jsonw_kstr(&w, "status", status);
	jsonw_kint(&w, "exit_code", g->exit_code);
	BUF_LIT(&g->work.out, ",\"stdout\":");
}

static void put_rest(struct bg_get *g)
{
	struct buf *out = &g->work.out;
	buf_str(out, ",\"truncated\":");
	buf_str(out, g->truncated || has_word(g, "truncated") ? "true" : "false");
	const char *sig = strstr(g->words, " SIG");
	if (sig) {
		struct jsonw w;
		size_t n = strcspn(sig + 1, " ");
		BUF_LIT(out, ",\"signal\":");
		jsonw_init(&w, out);
		jsonw_str(&w, sig + 1, n);
	}
	if (has_word(g, "oom"))
		BUF_LIT(out, ",\"oom\":true");
	BUF_LIT(out, "}");
}

// The text as the inside of a JSON string.
static int put_text(struct buf *out, struct text_tail *tail, const void *p, size_t n, bool final)
{
	struct buf text, json;
	struct jsonw w;
	buf_init(&text, 0);
	buf_init(&json, 0);
	text_utf8_repair(&text, tail, p, n, final, NULL);
	jsonw_init(&w, &json);
	jsonw_str(&w, buf_data(&text), buf_len(&text));
	int rc = buf_failed(&text) ? buf_failed(&text) : buf_failed(&json);
	if (rc == 0)
		buf_append(out, buf_data(&json) + 1, buf_len(&json) - 2);
	buf_release(&text);
	buf_release(&json);
	return rc;
}

// One block of the current file: 1 once it is through, 0 before, or negative errno.
static int put_block(struct bg_get *g)
{
	unsigned char block[BLOCK];
	struct text_file *f = &g->file[g->now];
	if (!g->begun)
		buf_byte(&g->work.out, '"');
	g->begun = true;
	size_t want = f->end - f->at < (int64_t)BLOCK ? (size_t)(f->end - f->at) : BLOCK;
	ssize_t n = want && f->fd >= 0 ? io_pread(f->fd, block, want, f->at) : 0;
	if (n < 0)
		return (int)n;
	bool final = n == 0 || f->at + n >= f->end;
	int rc = put_text(&g->work.out, &f->tail, block, (size_t)n, final);
	f->at += n;
	if (final)
		buf_byte(&g->work.out, '"');
	return rc < 0 ? rc : final;
}

static enum work_state get_step(struct work *w, int64_t until)
{
	struct bg_get *g = (struct bg_get *)w;
	size_t start = buf_len(&w->out);
	if (!g->head)
		put_head(g);
	g->head = true;
	do {
		int rc = put_block(g);
		if (rc < 0) {
			err_sys(&w->err, rc, "output");
			return WORK_FAILED;
		}
		if (!rc)
			continue;
		g->begun = false;
		if (g->now++) {
			put_rest(g);
			return WORK_DONE;
		}
		BUF_LIT(&w->out, ",\"stderr\":");
	} while (io_mono_ns() < until && buf_len(&w->out) - start < 4 * BLOCK && !buf_failed(&w->out));
	return WORK_MORE;
}

static const struct work_ops ops = {.step = get_step, .free = get_free};

// --- opening ---

static int read_small(int dirfd, const char *name, char *text, size_t size)
{
	int64_t ignored;
	int fd = journals_read(dirfd, name, &ignored);
	if (fd < 0)
		return fd;
	ssize_t n = io_pread(fd, text, size - 1, 0);
	int rc = n < 0 ? (int)n : 0;
	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	io_close(&fd);
	return rc;
}

static void open_output(struct bg_get *g, int dirfd, int ch, const char *name)
{
	struct text_file *f = &g->file[ch];
	f->fd = journals_read(dirfd, name, &f->end);
	if (f->fd < 0) {
		f->end = 0;
		g->truncated = true; // somebody took it away
		return;
	}
	if (f->end <= OUTPUT_MAX)
		return;
	g->truncated = true;
	f->at = f->end - OUTPUT_MAX;
	// Not in the middle of a character.
	unsigned char lead[3];
	ssize_t n = io_pread(f->fd, lead, sizeof lead, f->at);
	for (ssize_t i = 0; i < n && (lead[i] & 0xc0) == 0x80; i++)
		f->at++;
}

static int open_run(struct bg_get *g, const struct workspace *ws)
{
	char dir[sizeof BACKGROUND_DIR + sizeof g->run_id], code[32];
	snprintf(dir, sizeof dir, "%s/%s", BACKGROUND_DIR, g->run_id);
	int dirfd = journals_dir(ws->journals, dir, false);
	if (dirfd < 0)
		return dirfd;
	// The code is written last: without it nobody knows how the run has ended.
	int rc = read_small(dirfd, "exit_code", code, sizeof code);
	g->failed = rc < 0;
	g->exit_code = rc < 0 ? -1 : strtol(code, NULL, 10);
	if (rc == 0 && read_small(dirfd, "end", g->words, sizeof g->words) < 0)
		g->words[0] = '\0';
	open_output(g, dirfd, 0, "stdout");
	open_output(g, dirfd, 1, "stderr");
	io_close(&dirfd);
	return 0;
}

// --- the route ---

static void answer_state(struct conn *c, const char *run_id, const char *status, const struct err *e)
{
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kstr(&w, "run_id", run_id);
	jsonw_kstr(&w, "status", status);
	if (e) {
		jsonw_kstr(&w, "error", e->msg);
		jsonw_kstr(&w, "code", err_word(e->code));
		jsonw_kbool(&w, "retryable", e->retryable);
	}
	jsonw_obj_end(&w);
	conn_reply(c, e ? e->status : 200, "application/json", NULL, &out);
	buf_release(&out);
}

// The run_id of the path, decoded and checked.
static int parse(struct bg_get *g, const struct http_head *head, struct err *e)
{
	struct buf id;
	size_t skip = sizeof RUN_PREFIX - 1;
	buf_init(&id, 4096);
	int rc = text_percent_decode(&id, head->path.p + skip, head->path.n - skip, 0);
	if (rc == -ENOMEM)
		rc = err_sys(e, rc, "run_id");
	else if (rc < 0 || !workspace_id_ok((const char *)buf_data(&id), buf_len(&id)))
		rc = err_set(e, ERR_INVALID_ARGUMENT, "invalid run_id");
	else
		snprintf(g->run_id, sizeof g->run_id, "%.*s", (int)buf_len(&id), (const char *)buf_data(&id));
	buf_release(&id);
	return rc;
}

void sandboxd_background_get(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct err e;
	struct bg_get *g = calloc(1, sizeof *g);
	if (!g) {
		err_sys(&e, -ENOMEM, "run");
		conn_error(c, &e);
		return;
	}
	g->file[0].fd = g->file[1].fd = -1;
	int rc = 0;
	if (parse(g, conn_head(c), &e) < 0) {
		conn_error(c, &e);
	} else if (background_running(s->workspace, g->run_id)) {
		answer_state(c, g->run_id, "running", NULL);
	} else if ((rc = open_run(g, s->workspace)) == 0) {
		work_start(&g->work, s->slices, c, &ops);
		return;
	} else if (rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP) {
		err_set(&e, ERR_NOT_FOUND, "run not found");
		answer_state(c, g->run_id, "not_found", &e);
	} else {
		err_sys(&e, rc, "%s", BACKGROUND_DIR);
		conn_error(c, &e);
	}
	get_free(&g->work);
}
