// SPDX-License-Identifier: Apache-2.0
// The plainest servers of files: one that takes an upload, one that sends a file, and nginx if it is installed.
#include "tests/bench/bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Reads a request's head into TO, as a string, with what came of the body: their bytes and where the body begins, or -1.
static ssize_t read_head(int fd, char *to, size_t n, const char **body)
{
	size_t have = 0;
	for (;;) {
		ssize_t got = read(fd, to + have, n - 1 - have);
		if (got <= 0)
			return -1;
		have += (size_t)got;
		to[have] = '\0';
		const char *end = strstr(to, "\r\n\r\n");
		if (end) {
			*body = end + 4;
			return (ssize_t)have;
		}
	}
}

static bool write_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t put = write(fd, p, n);
		if (put < 0)
			return false;
		p += put;
		n -= (size_t)put;
	}
	return true;
}

// One upload into the new file PATH.
static void take(int fd, const char *path)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
	char *piece = malloc(BULK_PIECE);
	const char *body;
	ssize_t n = piece ? read_head(fd, piece, BULK_PIECE, &body) : -1;
	const char *length = n > 0 ? strcasestr(piece, "content-length:") : NULL;
	uint64_t left = length ? strtoull(length + strlen("content-length:"), NULL, 10) : 0;
	int out = n > 0 ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : -1;
	if (out >= 0) {
		n -= body - piece;
		bool ok = write_all(out, body, (size_t)n);
		for (left -= (uint64_t)n; ok && left > 0; left -= (uint64_t)n) {
			n = read(fd, piece, BULK_PIECE);
			ok = n > 0 && write_all(out, piece, (size_t)n);
			if (!ok)
				break;
		}
		close(out);
		if (ok)
			write_all(fd, answer, sizeof answer - 1);
	}
	free(piece);
}

// One download of the file PATH.
static void give(int fd, const char *path)
{
	char head[4096];
	const char *body;
	struct stat st = {0};
	int in = open(path, O_RDONLY | O_CLOEXEC);
	if (in < 0 || fstat(in, &st) < 0 || read_head(fd, head, sizeof head, &body) < 0)
		return;
	int n = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %lld\r\n\r\n", (long long)st.st_size);
	bool ok = write_all(fd, head, (size_t)n);
	for (off_t at = 0; ok && at < st.st_size;)
		ok = sendfile(fd, in, &at, (size_t)(st.st_size - at)) > 0;
	close(in);
}

static pid_t fork_one(const char *path, int *port, void (*serve)(int fd, const char *path))
{
	int listening = bench_listen(port);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(accept(listening, NULL, NULL), path);
		_exit(0);
	}
	close(listening);
	return pid;
}

pid_t bulk_floor_take(const char *path, int *port)
{
	return fork_one(path, port, take);
}

pid_t bulk_floor_give(const char *path, int *port)
{
	return fork_one(path, port, give);
}

static void relay(int in, int out)
{
	char piece[4096];
	const int one = 1;
	ssize_t n;
	setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	while ((n = read(in, piece, sizeof piece)) > 0 && write_all(out, piece, (size_t)n))
		;
}

pid_t bulk_floor_relay(int in, int *out)
{
	struct client c;
	int port, listening = bench_listen(&port);
	pid_t pid = -1;
	int theirs = client_open(&c, port) == 0 ? accept(listening, NULL, NULL) : -1;
	if (theirs >= 0)
		pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		client_close(&c);
		relay(in, theirs);
		_exit(0);
	}
	close(theirs);
	close(listening);
	*out = fcntl(c.fd, F_DUPFD_CLOEXEC, 0);
	client_close(&c);
	return pid;
}

// --- nginx ---

static const char config[] = "daemon off; master_process off; pid %1$s/nginx.pid; error_log stderr crit;\n"
			     "events { }\n"
			     "http { access_log off; sendfile on; tcp_nopush on; client_body_temp_path %1$s/nginx; "
			     "proxy_temp_path %1$s/nginx;\n"
			     "fastcgi_temp_path %1$s/nginx; uwsgi_temp_path %1$s/nginx; scgi_temp_path %1$s/nginx;\n"
			     "keepalive_requests 1000000000;\n"
			     "server { listen 127.0.0.1:%2$d; root %3$s; location = /204 { return 204; } } }\n";

static void exec_nginx(const char *dir, const char *path)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execlp("nginx", "nginx", "-e", "stderr", "-p", dir, "-c", path, (char *)NULL);
	if (errno == ENOENT)
		execl("/usr/sbin/nginx", "nginx", "-e", "stderr", "-p", dir, "-c", path, (char *)NULL);
	_exit(127);
}

pid_t bulk_floor_nginx(const char *dir, const char *root, int *port)
{
	char path[256];
	struct client c;
	snprintf(path, sizeof path, "%s/nginx.conf", dir);
	if (access("/usr/sbin/nginx", X_OK) != 0 && system("command -v nginx >/dev/null 2>&1") != 0)
		return -1;
	FILE *f = fopen(path, "we");
	*port = bench_free_port();
	if (f)
		fprintf(f, config, dir, *port, root);
	if (!f || fclose(f) != 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0)
		exec_nginx(dir, path);
	int up = pid > 0 ? bench_connect(&c, *port) : -1;
	if (pid > 0)
		client_close(&c);
	if (up == 0)
		return pid;
	bench_kill(pid);
	return -1;
}
