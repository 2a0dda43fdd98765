// SPDX-License-Identifier: Apache-2.0
// What /init changes in the machine's own files (contract B 5.4): certificates to trust, and where the host listens for events. And /upgrade
// (5.8).
#include "daemon/core/files.h"
#include "daemon/envd/control.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define INJECTED "/usr/local/share/ca-certificates/e2b-ca.crt"
#define HOSTS "/etc/hosts"
#define EVENTS_HOST "events.e2b.local"
#define FILE_MAX ((size_t)4 * 1024 * 1024)

// All of a file; a missing one is empty. 0 or negative errno.
static int read_whole(const char *path, struct buf *out)
{
	int fd = -1;
	int64_t size;
	int rc = files_open_read(path, (int64_t)FILE_MAX, &fd, &size);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	ssize_t n = 1;
	while (n > 0) {
		unsigned char *room = buf_reserve(out, 16384);
		n = room ? io_read(fd, room, 16384) : buf_failed(out);
		if (n > 0)
			buf_commit(out, (size_t)n);
	}
	io_close(&fd);
	return (int)n;
}

static int write_whole(const char *path, const struct buf *text)
{
	struct files_writer *w = NULL;
	struct files_write spec = {.path = path, .size = (int64_t)buf_len(text)};
	int rc = buf_failed(text);
	if (rc == 0)
		rc = files_writer_new(&w, &spec);
	if (rc == 0)
		rc = files_writer_feed(w, buf_data(text), buf_len(text));
	if (rc == 0)
		do
			rc = files_writer_commit(w);
		while (rc == 1);
	files_writer_free(w);
	return rc;
}

static void end_line(struct buf *b)
{
	if (buf_len(b) > 0 && buf_data(b)[buf_len(b) - 1] != '\n')
		BUF_LIT(b, "\n");
}

// TEXT in the place of OLD within ALL, or behind it.
static void put_certificates(struct buf *out, const struct buf *all, const struct buf *old, const struct buf *text)
{
	const unsigned char *p = buf_data(all);
	const unsigned char *at = buf_len(old) > 0 ? memmem(p, buf_len(all), buf_data(old), buf_len(old)) : NULL;
	size_t before = at ? (size_t)(at - p) : buf_len(all), skip = at ? before + buf_len(old) : before;
	buf_append(out, p, before);
	buf_append(out, p + skip, buf_len(all) - skip);
	end_line(out);
	buf_append(out, buf_data(text), buf_len(text));
}

int control_trust(const char *pem, size_t n, struct err *e)
{
	struct buf text, old, all, out;
	buf_init(&text, FILE_MAX);
	buf_init(&old, FILE_MAX);
	buf_init(&all, FILE_MAX);
	buf_init(&out, 0);
	buf_append(&text, pem, n);
	end_line(&text);
	int rc = read_whole(INJECTED, &old);
	if (rc == 0)
		rc = read_whole(BUNDLE, &all);
	if (rc == 0) {
		put_certificates(&out, &all, &old, &text);
		rc = write_whole(BUNDLE, &out);
	}
	if (rc == 0)
		rc = write_whole(INJECTED, &text);
	buf_release(&text);
	buf_release(&old);
	buf_release(&all);
	buf_release(&out);
	return rc < 0 ? err_http(e, 400, err_errno_code(-rc), "caBundle: %s", strerror(-rc)) : 0;
}

static bool names_events_host(const char *line, size_t n)
{
	const char *p = line, *end = line + n;
	size_t host = sizeof EVENTS_HOST - 1;
	while (p < end) {
		size_t word = 0;
		while (p + word < end && !strchr(" \t#\r", p[word]))
			word++;
		if (word == host && memcmp(p, EVENTS_HOST, host) == 0)
			return true;
		if (p + word < end && p[word] == '#')
			return false;
		p += word + 1;
	}
	return false;
}

int control_hosts(const char *ip)
{
	struct buf all, out;
	buf_init(&all, FILE_MAX);
	buf_init(&out, 0);
	int rc = read_whole(HOSTS, &all);
	const char *p = (const char *)buf_data(&all);
	for (size_t left = buf_len(&all), n; rc == 0 && left > 0; p += n, left -= n) {
		const char *end = memchr(p, '\n', left);
		n = end ? (size_t)(end - p) + 1 : left;
		if (!names_events_host(p, end ? n - 1 : n))
			buf_append(&out, p, n);
	}
	end_line(&out);
	buf_printf(&out, "%s " EVENTS_HOST "\n", ip);
	if (rc == 0)
		rc = write_whole(HOSTS, &out);
	buf_release(&all);
	buf_release(&out);
	return rc;
}

void control_mark(void)
{
	static const char dir[] = "/run/e2b", name[] = ".E2B_SANDBOX", temp[] = ".E2B_SANDBOX.new";
	char is[sizeof CONTROL_SANDBOX + 1];
	// A file that is replaced goes to the disk at once.
	if (io_read_file_now("/run/e2b/.E2B_SANDBOX", is, sizeof is) >= 0 && strcmp(is, CONTROL_SANDBOX) == 0)
		return;
	// Where commands can write to /run, anything may be there: a pipe that nobody reads, another name of a file elsewhere.
	(void)files_make_trusted(dir, &(struct files_owner){geteuid(), getegid()});
	int at = files_open_trusted(dir), fd = -1;
	if (at >= 0) {
		(void)files_unlink(at, temp);
		fd = IO_AGAIN(openat(at, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444));
	}
	if (fd >= 0 &&
		(io_write(fd, CONTROL_SANDBOX, sizeof CONTROL_SANDBOX - 1) < 0 || renameat(at, temp, at, name) < 0))
		(void)files_unlink(at, temp);
	io_close(&fd);
	io_close(&at);
}

// The binary comes by other ways than this request (contract B leaves it open).
void control_upgrade(void *ctx, struct conn *c)
{
	const struct envd *envd = ctx;
	struct err e;
	int rc = 0;
	if (!envd->upgrade)
		err_http(&e, 501, ERR_UNIMPLEMENTED, "/upgrade is not available here");
	else if (!control_initialized(envd->control))
		err_http(&e, 409, ERR_FAILED_PRECONDITION, "envd not initialized");
	else if (buf_len(conn_body(c)) > 0)
		err_http(&e, 501, ERR_UNIMPLEMENTED, "a binary in the request is not taken: put it where this one is");
	else if ((rc = envd->upgrade(envd->upgrade_arg)) < 0)
		err_http(&e, 500, ERR_INTERNAL, "upgrade: %s", strerror(-rc));
	else
		e.status = 0;
	if (e.status)
		envd_error(c, &e, NULL);
	else
		envd_reply(c, 204, "Cache-Control: no-store\r\n", NULL);
}
