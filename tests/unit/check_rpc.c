// SPDX-License-Identifier: Apache-2.0
// Surface B's requests with every allocation failing in turn: an answer or a cut connection, never a death or a leak; in a fresh
// surface each, so that what /init sets is all there or not.
#include "daemon/config.h"
#include "daemon/core/slice.h"
#include "daemon/envd/envd.h"
#include "daemon/log.h"
#include "daemon/net/conn.h"
#include "oom.h"
#include "prockit.h"
#include "suites.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct prockit kit;

struct got {
	char text[16384]; // NUL-terminated
	size_t n;
	bool eof;
};

// Nothing of this allocates: it runs with the allocator failing.
static void exchange(int fd, const void *request, size_t n, struct got *g)
{
	size_t sent = 0;
	*g = (struct got){.n = 0};
	for (int turns = 0; !g->eof && turns < 100000; turns++) {
		ssize_t put =
			sent < n ? send(fd, (const char *)request + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
		sent += put > 0 ? (size_t)put : 0;
		ev_run(kit.loop, EVRUN_NOWAIT);
		ssize_t got = recv(fd, g->text + g->n, sizeof g->text - 1 - g->n, MSG_DONTWAIT);
		g->n += got > 0 ? (size_t)got : 0;
		g->eof = got == 0;
	}
}

static bool has(const struct got *g, const char *text)
{
	return memmem(g->text, g->n, text, strlen(text)) != NULL;
}

struct exchange {
	const char *request;
	size_t n;
	int status;
	const char *want; // in the answer when memory was there
};
#define REQUEST(r) "" r, sizeof(r) - 1

// 0 for the answer that is wanted, -ENOMEM for what says or shows that memory was out, else something positive.
static int judge(const struct exchange *x, const struct got *g)
{
	int status = 0;
	if (!g->eof)
		return 2;
	if (g->n == 0 || has(g, "503 Service") || has(g, "resource_exhausted"))
		return -ENOMEM;
	if (sscanf(g->text, "HTTP/1.1 %d ", &status) != 1)
		return 1;
	if (has(g, "Transfer-Encoding: chunked") && memcmp(g->text + g->n - 5, "0\r\n\r\n", 5) != 0)
		return -ENOMEM;
	if (status == x->status && has(g, x->want))
		return 0;
	// No memory to compress it with.
	if (status == x->status && has(g, "FILE_TYPE_DIRECTORY"))
		return -ENOMEM;
	return status == 500 ? -ENOMEM : status;
}

static int serve(void *arg)
{
	static const struct net_limits limits = {.max_body = 1 << 24,
		.max_header = 65536,
		.max_conns = 8,
		.header_timeout = 20,
		.idle_timeout = 20,
		.send_timeout = 20,
		.out_max = 256 * 1024};
	const struct exchange *x = arg;
	struct config config = {.user = "root"};
	struct envd ctx = {.config = &config, .procs = kit.procs, .loop = kit.loop};
	struct net_hooks hooks = {.arg = NULL};
	struct route_table table;
	static struct got g;
	int fds[2], rc = -ENOMEM;
	ctx.users = users_new("/etc/passwd", "/etc/group");
	ctx.slices = slices_new(kit.loop);
	ctx.control = control_new(&config, NULL);
	envd_routes(&table, &ctx);
	struct net *net = net_new(kit.loop, &limits, &hooks);
	if (ctx.users && ctx.slices && ctx.control && net &&
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0) {
		rc = net_add_take(net, fds[0], &table);
		if (rc == 0) {
			exchange(fds[1], x->request, x->n, &g);
			rc = judge(x, &g);
		}
		close(fds[1]);
	}
	net_free(net);
	control_free(ctx.control);
	slices_free(ctx.slices);
	users_free(ctx.users);
	return rc;
}

#define HEAD(method, target, lines, length) \
	method " " target " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" lines "Content-Length: " length "\r\n\r\n"
#define JSON "Content-Type: application/json\r\n"
#define PROTO "Content-Type: application/proto\r\n"
#define STREAM "Content-Type: application/connect+json\r\n"
#define STREAM_PROTO "Content-Type: application/connect+proto\r\n"
#define STAT "/filesystem.Filesystem/Stat"

static const struct exchange exchanges[] = {
	{REQUEST(HEAD("GET", "/health", "Origin: a\r\n", "0")), 204, "Access-Control-Allow-Origin: *"},
	{REQUEST(HEAD("OPTIONS", "/x", "Origin: a\r\nAccess-Control-Request-Method: GET\r\n", "0")), 204, "7200"},
	{REQUEST(HEAD("GET", "/metrics", "", "0")), 200, "\"disk_total\":"},
	{REQUEST(HEAD("GET", "/envs", "", "0")), 200, "{\"E2B_SANDBOX\":\"false\"}\n"},
	{REQUEST(HEAD("GET", "/nope", "", "0")), 404, "{\"code\":404,"},
	{REQUEST(HEAD("POST", "/freeze", "", "0")), 501, "{\"code\":501,"},
	{REQUEST(HEAD("POST", "/init", JSON,
		 "87") "{\"accessToken\":\"t\",\"envVars\":{\"A\":\"1\",\"B\":\"2\"},\"defaultUser\":\"u\","
		       "\"defaultWorkdir\":\"/w\"}"),
		204, "X-Envd-Version"},
	{REQUEST(HEAD("POST", STAT, JSON, "12") "{\"path\":\"/\"}"), 200, "FILE_TYPE_DIRECTORY"},
	{REQUEST(HEAD("POST", STAT, JSON "Accept-Encoding: gzip\r\n", "12") "{\"path\":\"/\"}"), 200, "\x1f\x8b"},
	{REQUEST(HEAD("POST", STAT, PROTO, "3") "\n\1/"), 200, "application/proto"},
	{REQUEST(HEAD("POST", STAT, JSON, "12") "{\"path\":1234"), 400, "unmarshal"},
	{REQUEST(HEAD("POST", STAT, JSON "Authorization: Basic bm9ib2R5LWhlcmU6\r\n", "2") "{}"), 401, "nobody-here"},
	{REQUEST(HEAD("POST", STAT, STREAM, "2") "{}"), 415, "Accept-Post"},
	{REQUEST(HEAD("POST", "/process.Process/Nope", JSON, "2") "{}"), 404, "unimplemented"},
	{REQUEST(HEAD("POST", "/process.Process/List", JSON, "2") "{}"), 200, "{}"},
	{REQUEST(HEAD("POST", "/process.Process/Connect", STREAM, "30") "\0\0\0\0\031{\"process\":{\"pid\":99999}}"),
		200, "not_found"},
	{REQUEST(HEAD("POST", "/process.Process/Connect", STREAM_PROTO, "5") "\0\0\0\0\0"), 200, "unimplemented"},
	{REQUEST(HEAD("POST", "/process.Process/StreamInput", STREAM, "0")), 200, "\2{}\r\n0\r\n"},
	{REQUEST(HEAD("POST", "/process.Process/StreamInput", STREAM,
		 "40") "\0\0\0\0\043{\"start\":{\"process\":{\"pid\":99999}}}"),
		200, "not_found"},
};

// libev would end the process; what it has grown to is no leak either. Not through the allocator that fails.
static void *loop_memory(void *p, long n)
{
	if (n > 0)
		return reallocarray(p, 1, (size_t)n);
	free(p);
	return NULL;
}

START_TEST(out_of_memory)
{
	struct exchange x = exchanges[_i];
	log_setup(LOG_ERROR, false);
	ev_set_allocator(loop_memory);
	prockit_init(&kit, &prockit_limits);
	ck_assert_int_eq(serve(&x), 0); // also what libraries allocate once for all
	OOM_LOOP(serve, &x);
	prockit_release(&kit);
}
END_TEST

Suite *rpc_suite(void)
{
	Suite *s = suite_create("rpc");
	TCase *tc = tcase_create("oom");
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, out_of_memory, 0, sizeof exchanges / sizeof *exchanges);
	suite_add_tcase(s, tc);
	return s;
}
