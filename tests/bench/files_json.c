// SPDX-License-Identifier: Apache-2.0
// One file each way over surface A, which carries it as base64 in a JSON body.
#include "tests/bench/bulk.h"

#include "proto/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES ((size_t)24 * 1024 * 1024)

struct job {
	struct bulk k;
	struct wire w;
	char path[256];
	struct buf request; // of the write: head and body
	struct buf base64;  // the content
	char *answer;       // of the read: its body
	size_t room, have;
};

static bool job_init(struct job *j, const struct bench *b)
{
	struct buf json = {0};
	*j = (struct job){.w.c.fd = -1, .room = BYTES / 3 * 4 + 65536};
	j->answer = malloc(j->room);
	snprintf(j->path, sizeof j->path, "%s/base64", b->room);
	if (!bulk_init(&j->k) || !j->answer)
		return false;
	// Three bytes become four characters, so the parts may be encoded each for itself.
	for (size_t at = 0, n; at < BYTES; at += n) {
		n = BYTES - at < BULK_PIECE / 3 * 3 ? BYTES - at : BULK_PIECE / 3 * 3;
		text_b64_encode(&j->base64, bulk_at(&j->k, at), n);
	}
	buf_printf(&json, "{\"path\":\"%s\",\"encoding\":\"base64\",\"content\":\"", j->path);
	buf_append(&json, buf_data(&j->base64), buf_len(&j->base64));
	buf_str(&json, "\"}");
	const char *text = buf_cstr(&json);
	if (text)
		wire_put_post(&j->request, SURFACE_A, "/files/write", text);
	buf_release(&json);
	return text && !buf_failed(&j->request);
}

static void job_release(struct job *j)
{
	bulk_release(&j->k);
	wire_close(&j->w);
	buf_release(&j->request);
	buf_release(&j->base64);
	free(j->answer);
}

// Seconds, or a negative number after saying what is wrong.
static double write_it(struct bench *b, struct job *j, const struct target *t)
{
	unlink(j->path);
	int64_t start = bench_now_ns();
	int rc = client_send_bytes(&j->w.c, &j->request);
	rc = rc < 0 ? rc : client_answer(&j->w.c);
	double seconds = (double)(bench_now_ns() - start) / 1e9;
	if (rc == 200 && bulk_file_right(&j->k, j->path, BYTES))
		return seconds;
	bench_wrong(b, "base64 written by %s: %d, %.100s", bench_name(t), rc, wire_text(&j->w));
	return -1;
}

static void keep(void *arg, const char *p, size_t n)
{
	struct job *j = arg;
	if (n <= j->room - j->have)
		memcpy(j->answer + j->have, p, n);
	j->have += n <= j->room - j->have ? n : j->room;
}

static double read_it(struct bench *b, struct job *j, const struct target *t)
{
	static const char key[] = "\"content\":\"";
	char target[512];
	snprintf(target, sizeof target, "/files/read?path=%s&encoding=base64", j->path);
	j->have = 0;
	int64_t start = bench_now_ns();
	int rc = client_get_stream(&j->w.c, target);
	if (rc == 200)
		rc = wire_drain(&j->w, keep, j);
	double seconds = (double)(bench_now_ns() - start) / 1e9;
	size_t n = buf_len(&j->base64);
	const char *at = rc == 0 && j->have <= j->room ? memmem(j->answer, j->have, key, sizeof key - 1) : NULL;
	if (at)
		at += sizeof key - 1;
	if (at && n < (size_t)(j->answer + j->have - at) && memcmp(at, buf_data(&j->base64), n) == 0 && at[n] == '"')
		return seconds;
	bench_wrong(b, "base64 read from %s: %d, %zu bytes", bench_name(t), rc, j->have);
	return -1;
}

static void run(struct bench *b, struct job *j, const struct target *t)
{
	enum { MOST = 5 };
	double written[MOST], got[MOST];
	size_t n = b->quick ? 2 : MOST;
	for (size_t i = 0; i < n; i++) {
		double w = write_it(b, j, t);
		double r = w < 0 ? w : read_it(b, j, t);
		if (r < 0)
			return;
		written[i] = (double)BYTES / 1e6 / w;
		got[i] = (double)BYTES / 1e6 / r;
	}
	bench_put(b, ROW_JSON_WRITE, t, bench_percentile(written, n, 50));
	bench_put(b, ROW_JSON_READ, t, bench_percentile(got, n, 50));
}

// What is still taken once the daemon has had time to give memory back: KiB more than BEFORE.
static double left(const struct target *t, double before)
{
	double more = 0;
	for (int i = 0; i < 25; i++) {
		more = bench_rss(t) - before;
		if (more < 256)
			break;
		bench_pause_ms(100);
	}
	return more;
}

void bench_files_json(struct bench *b, struct target *t)
{
	struct job j;
	double before = bench_rss(t);
	if (!job_init(&j, b) || bulk_open(&j.w, t, 0) < 0) {
		bench_wrong(b, "no memory or connection for base64");
	} else {
		int wrong = b->wrong;
		run(b, &j, t);
		if (b->wrong == wrong && before > 0)
			bench_put(b, ROW_JSON_LEFT, t, left(t, before));
	}
	unlink(j.path);
	job_release(&j);
}
