// SPDX-License-Identifier: Apache-2.0
// Long streams of zeros, one and several at once: raw bytes a second, the CPU they cost who relays them, and who gets how much.
#include "tests/bench/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE ((size_t)256 * 1024)
#define STREAMS 8
#define MIB ((uint64_t)1024 * 1024)

struct marks {
	const char *data, *exit;
};
static const struct marks marks[] = {
	[SURFACE_A] = {"\"data\":\"", "{\"exit\":0}"},
	[SURFACE_B] = {"\"stdout\":\"", "\"exited\":true"},
};

// Counts what the frames of a stream carry without decoding them, so that the reader is no bottleneck.
struct counter {
	const struct marks *marks;
	uint64_t quarters;       // four for each raw byte, so that a group of base64 may be cut anywhere
	size_t data_at, exit_at; // how much of each mark is matched
	bool in_data;
	bool exited;  // with 0
	bool strange; // a byte that is not of zeros' base64
};

static bool step(const char *mark, size_t *at, char c)
{
	if (c != mark[*at])
		*at = c == mark[0];
	else
		++*at;
	if (mark[*at])
		return false;
	*at = 0;
	return true;
}

// N base64 characters, or a part of them: padding ends them, and lessens what they carry.
static void count_base64(struct counter *k, const char *p, size_t n)
{
	size_t pad = 0;
	while (pad < n && pad < 2 && p[n - 1 - pad] == '=')
		pad++;
	size_t plain = n - pad;
	if (plain && (p[0] != 'A' || memcmp(p, p + 1, plain - 1) != 0))
		k->strange = true;
	k->quarters += 3 * n - 4 * pad;
}

static void count(struct counter *k, const char *p, size_t n)
{
	const char *end = p + n;
	while (p < end) {
		if (!k->in_data) {
			k->exited = step(k->marks->exit, &k->exit_at, *p) || k->exited;
			k->in_data = step(k->marks->data, &k->data_at, *p++);
			continue;
		}
		const char *quote = memchr(p, '"', (size_t)(end - p));
		count_base64(k, p, (size_t)((quote ? quote : end) - p));
		k->in_data = !quote;
		p = quote ? quote + 1 : end;
	}
}

// --- readers ---

struct reader {
	struct wire w; // of the floor, only its connection
	bool http;
	struct counter k;
	pid_t head, relay; // the floor's processes
	int64_t end_ns;    // 0 while it runs
};

// Counts the body bytes among the N of an answer: 1 at its end, 0, or negative errno.
static int feed(struct reader *r, const char *p, size_t n)
{
	if (!r->http)
		count(&r->k, p, n);
	enum http_event ev = r->http ? HTTP_HEAD : HTTP_MORE;
	while (ev != HTTP_MORE) {
		size_t used = 0;
		struct http_span body = {0};
		ev = http_feed(r->w.c.http, p, n, &used, &body);
		p += used;
		n -= used;
		if (ev == HTTP_BODY)
			count(&r->k, body.p, body.n);
		if (ev == HTTP_END || ev == HTTP_ERROR)
			return ev == HTTP_END ? 1 : -EPROTO;
	}
	return 0;
}

static int read_some(struct reader *r, char *piece)
{
	ssize_t n = recv(r->w.c.fd, piece, PIECE, MSG_DONTWAIT);
	if (n > 0)
		return feed(r, piece, (size_t)n);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	return !r->http || http_eof(r->w.c.http) == HTTP_END ? 1 : -ECONNRESET;
}

// Reads all to their ends. 0 or negative errno.
static int read_all(struct reader *r, size_t n)
{
	struct pollfd p[STREAMS];
	char *piece = malloc(PIECE);
	int rc = piece ? 0 : -ENOMEM;
	size_t left = n;
	// What came with the heads.
	for (size_t i = 0; i < n && rc == 0; i++) {
		p[i] = (struct pollfd){.fd = r[i].w.c.fd, .events = POLLIN};
		rc = feed(&r[i], (const char *)buf_data(&r[i].w.c.in), buf_len(&r[i].w.c.in));
	}
	while (left && rc == 0) {
		if (poll(p, (nfds_t)n, (int)(r[0].w.c.limit_us / 1000)) <= 0)
			rc = -ETIMEDOUT;
		for (size_t i = 0; i < n && rc >= 0; i++) {
			rc = p[i].revents ? read_some(&r[i], piece) : 0;
			if (rc != 1)
				continue;
			r[i].end_ns = bench_now_ns();
			p[i].fd = -1;
			left--;
		}
		rc = rc > 0 ? 0 : rc;
	}
	free(piece);
	return rc;
}

// --- the floor: a process for each that reads a pipe, makes frames of surface A and writes them to a loopback socket ---

static void relay(int pipe, int socket)
{
	struct buf out = {0};
	char *raw = malloc(FRAME_RAW_MAX);
	ssize_t n, sent = 0;
	while (raw && sent >= 0 && (n = read(pipe, raw, FRAME_RAW_MAX)) > 0) {
		frame_sse_data(&out, FRAME_STDOUT, raw, (size_t)n);
		while (buf_len(&out) && (sent = write(socket, buf_data(&out), buf_len(&out))) >= 0)
			buf_consume(&out, (size_t)sent);
	}
	buf_release(&out);
	free(raw);
}

// The command with OUT as its stdout.
static pid_t fork_head(const char *command, int out)
{
	pid_t pid = vfork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (dup2(out, 1) == 1)
			execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static int open_relay(struct reader *r, const char *command)
{
	int port, pipes[2], listening = bench_listen(&port);
	int rc = pipe2(pipes, O_CLOEXEC) < 0 ? -errno : client_open(&r->w.c, port);
	if (rc < 0) {
		close(listening);
		return rc;
	}
	r->head = fork_head(command, pipes[1]);
	close(pipes[1]);
	r->relay = fork();
	if (r->relay == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		relay(pipes[0], accept(listening, NULL, NULL));
		_exit(0);
	}
	close(pipes[0]);
	close(listening);
	return 0;
}

// Ends the floor's processes: the CPU seconds of the relay.
static double close_relay(struct reader *r)
{
	struct rusage used = {0};
	if (r->head > 0)
		waitpid(r->head, NULL, 0);
	if (r->relay > 0)
		wait4(r->relay, NULL, 0, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// --- the measurement ---

struct result {
	double seconds, cpu, even;
};

static int open_stream(struct reader *r, const struct target *t, const char *command)
{
	*r = (struct reader){.w.c.fd = -1, .http = t, .k.marks = &marks[t ? t->surface : SURFACE_A]};
	if (!t)
		return open_relay(r, command);
	int rc = wire_open(&r->w, t);
	return rc < 0 ? rc : wire_stream_open(&r->w, command);
}

static bool right(struct bench *b, const struct target *t, const struct counter *k, uint64_t bytes)
{
	bool exited = k->exited == (t != NULL);
	bool ok = k->quarters == 4 * bytes && !k->strange && exited;
	if (!ok)
		bench_wrong(b, "%s's stream: %.2f bytes of %llu%s%s", bench_name(t), (double)k->quarters / 4,
			(unsigned long long)bytes, k->strange ? ", not all zero" : "", exited ? "" : ", no end event");
	return ok;
}

// N streams of BYTES each: true with S filled if all was right.
static bool run(struct bench *b, const struct target *t, size_t n, uint64_t bytes, struct result *s)
{
	struct reader *r = calloc(STREAMS, sizeof *r);
	char command[64];
	double cpu = t ? bench_cpu(t) : 0;
	int rc = r ? 0 : -ENOMEM;
	size_t opened = 0;
	snprintf(command, sizeof command, "head -c %llu /dev/zero", (unsigned long long)bytes);
	int64_t start = bench_now_ns(), first = INT64_MAX, last = 0;
	for (; rc == 0 && opened < n; opened++)
		rc = open_stream(&r[opened], t, command);
	if (rc == 0)
		rc = read_all(r, n);
	s->cpu = t ? bench_cpu(t) - cpu : 0;
	bool ok = rc == 0;
	if (!ok)
		bench_wrong(b, "%s: %zu streams: %s", bench_name(t), n, strerror(-rc));
	for (size_t i = 0; i < opened; i++) {
		first = r[i].end_ns < first ? r[i].end_ns : first;
		last = r[i].end_ns > last ? r[i].end_ns : last;
		ok = ok && right(b, t, &r[i].k, bytes);
		wire_close(&r[i].w);
		s->cpu += t ? 0 : close_relay(&r[i]);
	}
	free(r);
	s->seconds = (double)(last - start) / 1e9;
	s->even = (double)(first - start) / (double)(last - start);
	return ok;
}

void bench_stream(struct bench *b, struct target *t)
{
	uint64_t bytes = (b->quick ? 256 : 1024) * MIB;
	struct result one, many;
	if (!run(b, t, 1, bytes, &one) || !run(b, t, STREAMS, bytes / STREAMS, &many))
		return;
	double rate = (double)bytes / 1e6 / one.seconds, rates = (double)bytes / 1e6 / many.seconds;
	bench_put(b, ROW_STREAM, t, rate);
	bench_put(b, ROW_STREAM_CPU, t, one.cpu / ((double)bytes / 1e9));
	bench_put(b, ROW_STREAMS, t, rates);
	bench_put(b, ROW_STREAMS_SHARE, t, rates / rate);
	bench_put(b, ROW_STREAMS_EVEN, t, many.even);
}
