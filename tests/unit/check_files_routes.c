// SPDX-License-Identifier: Apache-2.0
// Each /files route with every allocation failing in turn: an answer or a cut connection, never a death, a leak or half of a file.
#include "daemon/config.h"
#include "daemon/core/slice.h"
#include "daemon/net/conn.h"
#include "daemon/sandboxd/sandboxd.h"
#include "oom.h"
#include "suites.h"
#include "treekit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ev_loop *loop;
static struct config config = {.user = "root"};

struct got {
	char head[1024];
	size_t head_n;
	char tail[5]; // the last bytes
	size_t n;
	bool eof;
};

// Nothing of this allocates: it runs with the allocator failing.
static void receive(int fd, struct got *g)
{
	static char piece[65536];
	ssize_t n = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
	if (n == 0)
		g->eof = true;
	for (ssize_t i = 0; i < n; i++) {
		if (g->head_n < sizeof g->head - 1)
			g->head[g->head_n++] = piece[i];
		memmove(g->tail, g->tail + 1, sizeof g->tail - 1);
		g->tail[sizeof g->tail - 1] = piece[i];
	}
	g->n += n > 0 ? (size_t)n : 0;
}

// 0 for a whole 200, -ENOMEM for what says or shows that memory was out, else the status.
static int judge(const struct got *g)
{
	int status = 0;
	if (g->n == 0)
		return -ENOMEM;
	if (sscanf(g->head, "HTTP/1.1 %d ", &status) != 1)
		return 1;
	if (status == 503)
		return -ENOMEM;
	if (status == 200 && strstr(g->head, "chunked") && memcmp(g->tail, "0\r\n\r\n", 5) != 0)
		return -ENOMEM;
	return status == 200 ? 0 : status;
}

static void exchange(int fd, const char *request, struct got *g)
{
	size_t n = strlen(request), sent = 0;
	for (int turns = 0; !g->eof && turns < 100000; turns++) {
		ssize_t put = sent < n ? send(fd, request + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
		sent += put > 0 ? (size_t)put : 0;
		ev_run(loop, EVRUN_NOWAIT);
		receive(fd, g);
	}
}

static int serve(const char *request)
{
	static const struct net_limits limits = {.max_body = 1 << 24,
		.max_header = 65536,
		.max_conns = 8,
		.header_timeout = 20,
		.idle_timeout = 20,
		.send_timeout = 20,
		.out_max = 256 * 1024};
	struct sandboxd ctx = {.config = &config};
	struct net_hooks hooks = {.arg = NULL};
	struct route_table table;
	struct got g = {.n = 0};
	int fds[2], rc = -ENOMEM;
	ctx.users = users_new("/etc/passwd", "/etc/group");
	ctx.slices = slices_new(loop);
	sandboxd_routes(&table, &ctx);
	struct net *net = net_new(loop, &limits, &hooks);
	if (ctx.users && ctx.slices && net &&
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0) {
		rc = net_add_take(net, fds[0], &table);
		if (rc == 0) {
			exchange(fds[1], request, &g);
			rc = g.eof ? judge(&g) : 2;
		}
		close(fds[1]);
	}
	net_free(net);
	slices_free(ctx.slices);
	users_free(ctx.users);
	return rc;
}

#define POST(route, body) \
	"POST /files/" route " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" body
#define GET(target) "GET /files/" target " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
// One chunk: its length in hexadecimal.
#define CHUNK(hex, text) hex "\r\n" text "\r\n0\r\n\r\n"

static const char *const requests[] = {
	GET("read?path=small"),
	GET("read?path=small&encoding=base64"),
	GET("read?path=large"),
	GET("read?path=large&encoding=base64"),
	GET("list"),
	GET("list?path=many&depth=2&since=5"),
	GET("list?path=many%zz"),
	POST("stat", CHUNK("f", "{\"path\":\"link\"}")),
	POST("stat", CHUNK("1b", "{\"path_b64\":\"c21hbGw=\"    }")),
	POST("mkdir", CHUNK("10", "{\"path\":\"new/d\"}")),
	POST("write", CHUNK("1e", "{\"path\":\"new/f\",\"content\":\"x\"}")),
	POST("write", CHUNK("1e", "{\"content\":\"x\",\"path\":\"small\"}")),
	POST("write", CHUNK("33", "{\"content\":\"AAAA\",\"path\":\"old\",\"encoding\":\"base64\"}")),
	POST("write", CHUNK("29", "{\"path\":\"old\",\"content\":\"x\",\"mode\":\"a\"}  ")),
	POST("move", CHUNK("26", "{\"source\":\"old\",\"destination\":\"moved\"}")),
	POST("remove", CHUNK("f", "{\"path\":\"tree\"}")),
};

static void touch(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	(void)!write(fd, "old", 3);
	close(fd);
}

// What a request may have changed is as it was. No allocation here either.
static int run(void *arg)
{
	unlink("new/f");
	rmdir("new/d");
	rmdir("new");
	unlink("moved");
	mkdir("tree", 0755);
	mkdir("tree/a", 0755);
	touch("tree/a/f");
	touch("old");
	return serve(arg);
}

START_TEST(every_allocation_may_fail)
{
	struct tree t;
	char name[32];
	tk_init(&t, false);
	config.workspace = t.top;
	tk_file("small", "small\xff");
	tk_fill("large", 'l', 500000);
	tk_mkdir("many%zz");
	tk_mkdir("many");
	for (int i = 0; i < 4000; i++) {
		(void)snprintf(name, sizeof name, "many/\xff-%d", i);
		tk_file(name, "");
	}
	ck_assert_int_eq(symlink("nowhere", "link"), 0);
	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	ck_assert_ptr_nonnull(loop);
	int fds = tk_fds();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(
			run((void *)(uintptr_t)requests[_i]), 0); // libev has its arrays now; it cannot do without
	OOM_LOOP(run, (void *)(uintptr_t)requests[_i]);
	ck_assert_int_le(tk_fds(), fds + 4); // libev's own
	ev_loop_destroy(loop);
	tk_release(&t);
}
END_TEST

Suite *files_routes_suite(void)
{
	Suite *s = suite_create("files_routes");
	TCase *t = tcase_create("memory");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 40);
	tcase_add_loop_test(t, every_allocation_may_fail, 0, (int)(sizeof requests / sizeof *requests));
	return s;
}
