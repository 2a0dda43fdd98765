// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/uploadkit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct testd *up_start(void)
{
	return d_start("--envd-listen", "127.0.0.1:0", "--user", "user");
}

struct client *up_connect(const struct testd *d)
{
	struct client *c = client_connect_to(d->envd_host, d->envd_port, 0);
	c->deadline = 60000;
	return c;
}

// POST /files?QUERY on a connection of its own.
int up_post(const struct testd *d, const char *query, const char *headers, const void *body, size_t n, struct resp *r)
{
	struct buf head = {0};
	struct client *c = up_connect(d);
	buf_printf(&head, "POST /files%s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n", query, headers, n);
	resp_release(r);
	client_send_raw(c, buf_data(&head), buf_len(&head));
	client_send_raw(c, body, n);
	client_response(c, r);
	client_close(c);
	buf_release(&head);
	return r->status;
}

void up_content(const char *path, const void *want, size_t n)
{
	char *got = malloc(n + 1);
	FILE *f = fopen(path, "re");
	ck_assert_msg(got && f, "%s", path);
	size_t len = fread(got, 1, n + 1, f);
	ck_assert_msg(len == n && memcmp(got, want, n) == 0, "%s: %zu bytes of %zu", path, len, n);
	(void)fclose(f);
	free(got);
}

// How many names DIR has.
int up_entries(const char *dir)
{
	DIR *d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	int n = -2;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

char *up_filled(char c, size_t n)
{
	char *p = malloc(n + 1);
	ck_assert_ptr_nonnull(p);
	memset(p, c, n);
	return p;
}

void up_beat(struct up_pulse *p)
{
	struct resp r = {0};
	int64_t asked = h_now_ms();
	if (asked < p->next)
		return;
	struct client *c = up_connect(p->d);
	client_request(c, "GET", "/health", NULL, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 204);
	client_close(c);
	resp_release(&r);
	int64_t took = h_now_ms() - asked;
	p->slowest = took > p->slowest ? took : p->slowest;
	p->next = h_now_ms() + 50;
}
