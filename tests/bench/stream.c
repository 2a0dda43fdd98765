// SPDX-License-Identifier: Apache-2.0
// One long stream of zeros: raw bytes a second, and the CPU it costs who relays it.
#include "tests/bench/bench.h"

#include "proto/frame.h"

#include <fcntl.h>
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

// Counts what the frames of a stream carry without decoding them, so that the reader is no bottleneck.
struct counter {
	uint64_t quarters;       // four for each raw byte, so that a group of base64 may be cut anywhere
	size_t data_at, exit_at; // how much of each mark is matched
	bool in_data;
	bool exited;  // {"exit":0} has come
	bool strange; // a byte that is not of zeros' base64
};

static const char data_mark[] = "\"data\":\"";
static const char exit_mark[] = "{\"exit\":0}";

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
			k->exited = step(exit_mark, &k->exit_at, *p) || k->exited;
			k->in_data = step(data_mark, &k->data_at, *p++);
			continue;
		}
		const char *quote = memchr(p, '"', (size_t)(end - p));
		count_base64(k, p, (size_t)((quote ? quote : end) - p));
		k->in_data = !quote;
		p = quote ? quote + 1 : end;
	}
}

static bool verify(struct bench *b, const char *who, const struct counter *k, uint64_t bytes, bool exits)
{
	bool right = k->quarters == 4 * bytes && !k->strange && k->exited == exits;
	if (!right)
		bench_wrong(b, "%s's stream: %.2f bytes of %llu, %s%s", who, (double)k->quarters / 4,
			(unsigned long long)bytes, k->strange ? "not all zero, " : "",
			k->exited == exits ? "" : "end frame missing");
	return right;
}

// --- the floor: a process that reads a pipe, makes the same frames and writes them to a loopback socket ---

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
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (dup2(out, 1) == 1)
			execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void floor_stream(struct bench *b, const char *command, uint64_t bytes, char *piece)
{
	struct counter k = {0};
	struct client c;
	struct rusage used = {0};
	int port, pipes[2], listening = bench_listen(&port);
	int64_t start = client_now_us();
	ssize_t n;
	if (pipe2(pipes, O_CLOEXEC) < 0 || client_open(&c, port) < 0) {
		bench_wrong(b, "no pipe or socket for the relay");
		return;
	}
	pid_t head = fork_head(command, pipes[1]);
	close(pipes[1]);
	pid_t relayer = fork();
	if (relayer == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		relay(pipes[0], accept(listening, NULL, NULL));
		_exit(0);
	}
	close(pipes[0]);
	while ((n = recv(c.fd, piece, PIECE, 0)) > 0)
		count(&k, piece, (size_t)n);
	double seconds = (double)(client_now_us() - start) / 1e6;
	waitpid(head, NULL, 0);
	wait4(relayer, NULL, 0, &used);
	close(listening);
	client_close(&c);
	if (!verify(b, "the relay", &k, bytes, false))
		return;
	bench_floor(b, ROW_STREAM, (double)bytes / 1e6 / seconds);
	double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
		     (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
	bench_floor(b, ROW_STREAM_CPU, cpu / ((double)bytes / 1e9));
}

// --- celld ---

// Counts the body bytes among N bytes of an answer: true at its end.
static bool feed(struct bench *b, struct client *c, struct counter *k, const char *p, size_t n)
{
	while (n > 0) {
		size_t used = 0;
		struct http_span body = {0};
		enum http_event ev = http_feed(c->http, p, n, &used, &body);
		p += used;
		n -= used;
		if (ev == HTTP_BODY)
			count(k, body.p, body.n);
		if (ev == HTTP_ERROR)
			bench_wrong(b, "the stream is no HTTP: %s", http_error(c->http)->msg);
		if (ev == HTTP_END || ev == HTTP_ERROR)
			return true;
	}
	return false;
}

// Reads the body of C's answer to its end without keeping it. What came with the head is in the client's buffer.
static void count_body(struct bench *b, struct client *c, struct counter *k, char *piece)
{
	bool over = feed(b, c, k, (const char *)buf_data(&c->in), buf_len(&c->in));
	while (!over) {
		ssize_t n = recv(c->fd, piece, PIECE, 0);
		over = n > 0 ? feed(b, c, k, piece, (size_t)n) : true;
		if (n < 0 || (n == 0 && http_eof(c->http) != HTTP_END))
			bench_wrong(b, "the stream was cut");
	}
}

static void celld_stream(struct bench *b, const char *command, uint64_t bytes, char *piece)
{
	struct counter k = {0};
	struct client c;
	pid_t daemon = sandbox_daemon(&b->box);
	double cpu = bench_cpu(daemon);
	int64_t start = client_now_us();
	int status = client_open(&c, b->box.port);
	const struct timeval silence = {.tv_sec = c.limit_us / 1000000};
	setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
	if (status == 0)
		status = client_post_stream(&c, "/exec/stream", "{s:s}", "command", command);
	if (status == 200)
		count_body(b, &c, &k, piece);
	double seconds = (double)(client_now_us() - start) / 1e6;
	if (status != 200)
		bench_wrong(b, "/exec/stream: %d", status);
	client_close(&c);
	if (!verify(b, "celld", &k, bytes, true))
		return;
	bench_celld(b, ROW_STREAM, (double)bytes / 1e6 / seconds);
	bench_celld(b, ROW_STREAM_CPU, (bench_cpu(daemon) - cpu) / ((double)bytes / 1e9));
}

void bench_stream(struct bench *b)
{
	uint64_t bytes = b->quick ? (uint64_t)256 << 20 : (uint64_t)1 << 30;
	char command[64];
	char *piece = malloc(PIECE);
	snprintf(command, sizeof command, "head -c %llu /dev/zero", (unsigned long long)bytes);
	if (piece) {
		floor_stream(b, command, bytes, piece);
		celld_stream(b, command, bytes, piece);
	} else {
		bench_wrong(b, "no memory");
	}
	free(piece);
}
