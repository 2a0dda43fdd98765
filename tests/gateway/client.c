// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/client.h"

#include "daemon/io.h"
#include "proto/buf.h"
#include "proto/http.h"
#include "proto/json.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define ANSWER_MAX ((size_t)16 * 1024 * 1024)
#define WAIT_S 30

struct client {
	char host[256], port[16];
	const char *prefix; // of the path
	const char *key;
	struct buf body;
	int status;
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "celld-gateway: %s: %s\n", what, why);
	return 1;
}

// http://HOST[:PORT][/PREFIX]
static int take_url(struct client *c, const char *url)
{
	static const char scheme[] = "http://";
	size_t n = sizeof scheme - 1;
	if (strncmp(url, scheme, n) != 0)
		return complain(url, "not a http:// URL");
	const char *host = url + n, *end = host + strcspn(host, "/"), *colon = memrchr(host, ':', (size_t)(end - host));
	bool bracket = *host == '[';
	if (bracket && end > host && end[-1] == ']')
		colon = NULL;
	size_t len = (size_t)((colon ? colon : end) - host), digits = colon ? (size_t)(end - colon - 1) : 0;
	if (bracket) {
		host++;
		len -= len >= 2 ? 2 : 0;
	}
	if (len == 0 || len >= sizeof c->host || (colon && digits == 0) || digits >= sizeof c->port)
		return complain(url, "no host and port");
	(void)snprintf(c->host, sizeof c->host, "%.*s", (int)len, host);
	(void)snprintf(c->port, sizeof c->port, "%.*s", colon ? (int)digits : 2, colon ? colon + 1 : "80");
	c->prefix = strcmp(end, "/") == 0 ? "" : end;
	return 0;
}

static int reach(const struct client *c)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
	struct timeval limit = {.tv_sec = WAIT_S};
	int fd = -1, error = 0, rc = getaddrinfo(c->host, c->port, &hints, &all);
	if (rc != 0) {
		complain(c->host, gai_strerror(rc));
		return -1;
	}
	for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
		if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
			setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
			connect(fd, a->ai_addr, a->ai_addrlen) == 0)
			break;
		error = errno;
		io_close(&fd);
	}
	freeaddrinfo(all);
	if (fd < 0)
		complain(c->host, strerror(error));
	return fd;
}

static int put_all(int fd, const struct buf *out)
{
	for (size_t at = 0; at < buf_len(out);) {
		ssize_t n = io_send(fd, buf_data(out) + at, buf_len(out) - at);
		if (n < 0)
			return (int)n;
		at += (size_t)n;
	}
	return 0;
}

// Reads the whole answer. 0 or negative errno.
static int take_answer(struct client *c, int fd, struct http *h)
{
	for (;;) {
		char bytes[16384];
		ssize_t n = io_read(fd, bytes, sizeof bytes);
		if (n < 0)
			return n == -EAGAIN ? -ETIMEDOUT : (int)n;
		enum http_event ev = n == 0 ? http_eof(h) : HTTP_BODY;
		for (const char *p = bytes; n > 0 && ev != HTTP_MORE && ev != HTTP_END && ev != HTTP_ERROR;) {
			size_t used;
			struct http_span body;
			ev = http_feed(h, p, (size_t)(bytes + n - p), &used, &body);
			p += used;
			if (ev == HTTP_BODY)
				buf_append(&c->body, body.p, body.n);
		}
		c->status = http_head(h)->status;
		if (ev == HTTP_END)
			return buf_failed(&c->body);
		if (ev == HTTP_ERROR || n == 0)
			return -EPROTO;
	}
}

static int exchange(struct client *c, const char *method, const char *path)
{
	static const struct http_limits limits = {.head = 65536, .headers = 128, .overhead = 65536};
	struct buf out;
	int fd = reach(c);
	if (fd < 0)
		return 1;
	struct http *h = http_new(HTTP_RESPONSE, &limits);
	buf_init(&out, 0);
	buf_printf(&out, "%s %s%s HTTP/1.1\r\n", method, c->prefix, path);
	http_put_header(&out, "Host", c->host);
	http_put_header(&out, "X-API-KEY", c->key);
	http_put_header(&out, "Connection", "close");
	http_put_length(&out, 0);
	http_put_end(&out);
	int rc = !h ? -ENOMEM : buf_failed(&out);
	if (rc == 0)
		rc = put_all(fd, &out);
	if (rc == 0)
		rc = take_answer(c, fd, h);
	http_free(h);
	buf_release(&out);
	io_close(&fd);
	return rc < 0 ? complain(c->host, strerror(-rc)) : 0;
}

// --- showing ---

static int show_reclaim(const char *text, size_t n)
{
	struct err e;
	int64_t reclaimed = 0;
	json_t *doc = jsonr_parse(text, n, &e);
	const char *name;
	json_t *count;
	int rc = doc ? jsonr_int(doc, "reclaimed", JSONR_REQUIRED, 0, INT64_MAX, &reclaimed, &e) : -1;
	if (rc >= 0) {
		printf("reclaimed %lld;", (long long)reclaimed);
		json_object_foreach(json_object_get(doc, "slots"), name, count)
			printf(" %lld %s", (long long)json_integer_value(count), name);
		printf("\n");
	}
	jsonr_free(doc);
	return rc < 0 ? complain("answer", e.msg) : 0;
}

static int show_list(const char *text, size_t n)
{
	json_t *all = json_loadb(text, n, 0, NULL);
	if (!json_is_array(all)) {
		json_decref(all);
		return complain("answer", "no list");
	}
	printf("%6s %-10s %9s %6s %9s %8s %s\n", "slot", "state", "seconds", "MiB", "cpus", "pid", "sandbox");
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *s = json_array_get(all, i);
		const char *state = json_string_value(json_object_get(s, "state"));
		const char *id = json_string_value(json_object_get(s, "sandboxID"));
		printf("%6lld %-10s %9.1f %6lld %9.2f %8lld %s\n",
			(long long)json_integer_value(json_object_get(s, "number")), state ? state : "?",
			json_number_value(json_object_get(s, "seconds")),
			(long long)json_integer_value(json_object_get(s, "memoryMB")),
			json_number_value(json_object_get(s, "cpus")),
			(long long)json_integer_value(json_object_get(s, "pid")), id ? id : "-");
	}
	json_decref(all);
	return 0;
}

static const struct command {
	const char *name, *method, *path;
	int (*show)(const char *text, size_t n);
} commands[] = {
	{"reclaim", "POST", "/gateway/reclaim", show_reclaim},
	{"list", "GET", "/gateway/sandboxes", show_list},
};

int client_run(const struct options *o)
{
	const char *url = o->url ? o->url : getenv("E2B_API_URL"),
		   *key = o->api_key ? o->api_key : getenv("E2B_API_KEY");
	struct client c = {.key = key && *key ? key : "local"};
	const struct command *x = commands;
	while (strcmp(x->name, o->command) != 0)
		x++;
	buf_init(&c.body, ANSWER_MAX);
	int rc = take_url(&c, url && *url ? url : "http://127.0.0.1:3000");
	if (rc == 0)
		rc = exchange(&c, x->method, x->path);
	if (rc == 0 && c.status != 200) {
		fprintf(stderr, "celld-gateway: %s: status %d: %.*s\n", x->name, c.status, (int)buf_len(&c.body),
			(const char *)buf_data(&c.body));
		rc = 1;
	}
	if (rc == 0)
		rc = x->show((const char *)buf_data(&c.body), buf_len(&c.body));
	buf_release(&c.body);
	return rc;
}
