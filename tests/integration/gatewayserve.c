// SPDX-License-Identifier: Apache-2.0
// The server that tests put into a sandbox: this very program in the mode "--serve", uploaded there. One process a connection; each answers one
// request, by its path, and says little else. It ends when its standard input does.
#include "tests/integration/gatewaykit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MAX 16384
#define PLACE "server"

// --- the client's side ---

int gw_serve(const struct gw *g, const struct sbx *s, struct stream **run)
{
	static const char request[] = "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"chmod 755 " PLACE
				      " && exec ./" PLACE " --serve\"]},\"stdin\":true}";
	struct buf program = {0}, out = {0};
	char part[65536];
	ssize_t n;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	while ((n = read(fd, part, sizeof part)) > 0)
		buf_append(&program, part, (size_t)n);
	(void)close(fd);
	ck_assert_int_eq(buf_failed(&program), 0);
	gw_put(g, s, PLACE, buf_data(&program), buf_len(&program));
	*run = stream_open(g->d, "process.Process/Start", CODEC_JSON, s->headers, request);
	stream_pid(*run);
	stream_until(*run, FRAME_STDOUT, "\n", &out, 10000);
	int port = (int)strtol(buf_cstr(&out), NULL, 10);
	ck_assert_int_gt(port, 0);
	buf_release(&program);
	buf_release(&out);
	return port;
}

// --- the server ---

static bool put(int fd, const void *p, size_t n)
{
	for (const char *at = p; n > 0;) {
		ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
		if (sent <= 0)
			return false;
		at += sent;
		n -= (size_t)sent;
	}
	return true;
}

static bool put_str(int fd, const char *s)
{
	return put(fd, s, strlen(s));
}

// The head up to its empty line, and nothing of what follows.
static bool read_head(int fd, char *head)
{
	for (size_t n = 0; n + 1 < HEAD_MAX;) {
		if (recv(fd, head + n, 1, 0) != 1)
			return false;
		head[++n] = '\0';
		if (n >= 4 && memcmp(head + n - 4, "\r\n\r\n", 4) == 0)
			return true;
	}
	return false;
}

// All that comes goes back, as it comes.
static void echo(int fd)
{
	char part[65536];
	ssize_t n;
	while ((n = recv(fd, part, sizeof part, 0)) > 0 && put(fd, part, (size_t)n))
		;
}

// The head of the request as the body.
static void show(int fd, const char *head)
{
	char text[128];
	(void)snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nX-Kept: a\r\nX-Kept: b\r\n\r\n",
		strlen(head));
	if (put_str(fd, text))
		(void)put_str(fd, head);
}

// A chunked body without end, as fast as it is taken.
static void flood(int fd)
{
	static char part[65536];
	memset(part, 'x', sizeof part);
	(void)put_str(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	while (put(fd, "10000\r\n", 7) && put(fd, part, 65536) && put(fd, "\r\n", 2))
		;
}

static void serve_one(int fd)
{
	char head[HEAD_MAX];
	if (!read_head(fd, head))
		return;
	const char *path = strchr(head, ' ') ? strchr(head, ' ') + 1 : "";
	if (strncmp(path, "/flood", 6) == 0) {
		flood(fd);
	} else if (strncmp(path, "/echo", 5) == 0) { // the request's chunks are the answer's
		if (put_str(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
			echo(fd);
	} else if (strncmp(path, "/socket", 7) == 0) {
		if (put_str(fd,
			    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"))
			echo(fd);
	} else if (strncmp(path, "/part", 5) == 0) { // less than was promised, then nothing
		(void)put_str(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegin");
		(void)recv(fd, head, 1, 0);
	} else if (strncmp(path, "/chunks", 7) == 0) {
		(void)put_str(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n");
		(void)recv(fd, head, 1, 0);
	} else if (strncmp(path, "/until", 6) == 0) {
		(void)put_str(fd, "HTTP/1.0 200 OK\r\n\r\nwhole");
	} else if (strncmp(path, "/slow", 5) == 0) { // takes nothing of the body
		(void)poll(NULL, 0, 600 * 1000);
	} else {
		show(fd, head);
	}
}

int gateway_serve(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 512) < 0 ||
		getsockname(fd, (struct sockaddr *)&a, &n) < 0)
		return EXIT_FAILURE;
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	(void)signal(SIGCHLD, SIG_IGN);
	struct pollfd p[2] = {{fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
	char c;
	while (poll(p, 2, -1) >= 0 && (!p[1].revents || read(STDIN_FILENO, &c, 1) > 0)) {
		int one = p[0].revents ? accept(fd, NULL, NULL) : -1;
		if (one < 0)
			continue;
		if (fork() == 0) {
			(void)close(fd);
			serve_one(one);
			_exit(0);
		}
		(void)close(one);
	}
	return EXIT_SUCCESS;
}
