// SPDX-License-Identifier: Apache-2.0
// Requests by their ids: one that a client gave comes back with the answer; where requests are logged each one has an id, and a line at its end.
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/net/conn_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ID_HEADER "X-Request-Id"

struct conn_trace {
	bool begun;
	char id[CONN_ID_MAX + 1];
	char method[16];
	char path[LOG_TEXT_MAX + 1];
	int64_t began_ns;
	uint64_t before; // bytes of the connection's earlier answers
	int status;      // 0: not answered yet
};

// Of a kind that can stand in a header, a log line and a shell without quotes.
static bool is_sane(struct http_span id)
{
	for (size_t i = 0; i < id.n; i++)
		if (!isalnum((unsigned char)id.p[i]) && !strchr("-_.:/+=@", id.p[i]))
			return false;
	return id.n > 0 && id.n <= CONN_ID_MAX;
}

static void copy(char *out, size_t size, struct http_span s)
{
	size_t n = s.n < size - 1 ? s.n : size - 1;
	if (n > 0)
		memcpy(out, s.p, n);
	out[n] = '\0';
}

void conn_trace_seed(struct net *n)
{
	uint32_t seed;
	if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
		seed = (uint32_t)io_wall_ms();
	n->last_id = (uint64_t)seed << 32;
}

// Bytes queued for the peer so far. (HEAD is empty if none could be read.)
static uint64_t queued(const struct conn *c)
{
	return c->sent + buf_len(&c->out);
}

void conn_trace_begin(struct conn *c, const struct http_head *head)
{
	if (!c->trace)
		c->trace = calloc(1, sizeof *c->trace);
	struct conn_trace *t = c->trace;
	if (!t)
		return;
	struct http_span given = http_get(head, ID_HEADER);
	t->begun = true;
	if (is_sane(given))
		copy(t->id, sizeof t->id, given);
	else
		snprintf(t->id, sizeof t->id, "%016llx", (unsigned long long)++c->net->last_id);
	copy(t->method, sizeof t->method, head->method);
	copy(t->path, sizeof t->path, head->path); // the query may hold a signature
	t->began_ns = conn_now(c->net);
	t->before = queued(c);
	t->status = 0;
}

void conn_trace_answer(struct conn *c, int status)
{
	if (!c->trace || !c->trace->begun)
		conn_trace_begin(c, http_head(c->http));
	if (c->trace)
		c->trace->status = status;
}

void conn_trace_end(struct conn *c, bool whole)
{
	struct conn_trace *t = c->trace;
	if (!t || !t->begun)
		return;
	const char *surface = c->table->name ? c->table->name : "";
	const struct log_field fields[] = {
		{"id", t->id, 0},
		{"surface", surface, 0},
		{"method", t->method, 0},
		{"path", t->path, 0},
		{"status", NULL, t->status},
		{"bytes", NULL, (int64_t)(queued(c) - t->before)},
		{"us", NULL, (io_mono_ns() - t->began_ns) / 1000},
	};
	t->begun = false;
	log_record("request", whole ? "answered" : "cut", fields, sizeof fields / sizeof *fields);
}

void conn_put_id(const struct conn *c, struct buf *out)
{
	const struct conn_trace *t = c->trace;
	struct http_span id =
		t && t->begun ? (struct http_span){t->id, strlen(t->id)} : http_get(http_head(c->http), ID_HEADER);
	if (!id.p || !is_sane(id))
		return;
	BUF_LIT(out, ID_HEADER ": ");
	buf_append(out, id.p, id.n);
	BUF_LIT(out, "\r\n");
}

const char *conn_request_id(const struct conn *c)
{
	return c->trace && c->trace->begun ? c->trace->id : NULL;
}
