// SPDX-License-Identifier: Apache-2.0
// bench-floor ROLE: the small static program whose cost the daemon's is compared with.
//   serve PORT        listens there, and answers each request with 204, one connection after the other
//   crowd PORT        the same for many connections at once
//   tick N US         writes CLOCK_MONOTONIC N times, each nanoseconds in eight bytes, US microseconds apart
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";

static int listen_on(int port)
{
	const struct sockaddr_in a = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 128) < 0)
		exit(1);
	return fd;
}

static int serve(int port)
{
	char request[4096];
	int listening = listen_on(port);
	for (;;) {
		int fd = accept(listening, NULL, NULL);
		if (fd < 0)
			return 1;
		while (read(fd, request, sizeof request) > 0)
			if (write(fd, answer, sizeof answer - 1) < 0)
				break;
		close(fd);
	}
}

static int crowd(int port)
{
	struct epoll_event ev[64];
	char request[4096];
	int listening = listen_on(port), epoll = epoll_create1(0);
	ev[0] = (struct epoll_event){.events = EPOLLIN, .data.fd = listening};
	epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &ev[0]);
	int n;
	while ((n = epoll_wait(epoll, ev, 64, -1)) > 0) {
		for (int i = 0; i < n; i++) {
			int fd = ev[i].data.fd;
			if (fd == listening) {
				struct epoll_event in = {.events = EPOLLIN, .data.fd = accept(listening, NULL, NULL)};
				epoll_ctl(epoll, EPOLL_CTL_ADD, in.data.fd, &in);
			} else if (read(fd, request, sizeof request) <= 0 || write(fd, answer, sizeof answer - 1) < 0) {
				close(fd);
			}
		}
	}
	return 1;
}

static int tick(long n, long us)
{
	const struct timespec pause = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
	for (long i = 0; i < n; i++) {
		struct timespec ts;
		nanosleep(&pause, NULL);
		clock_gettime(CLOCK_MONOTONIC, &ts);
		int64_t ns = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
		if (write(1, &ns, sizeof ns) != sizeof ns)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]));
	if (argc == 3 && strcmp(argv[1], "crowd") == 0)
		return crowd(atoi(argv[2]));
	if (argc == 4 && strcmp(argv[1], "tick") == 0)
		return tick(atol(argv[2]), atol(argv[3]));
	fputs("usage: bench-floor serve PORT | crowd PORT | tick N US\n", stderr);
	return 2;
}
