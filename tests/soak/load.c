// SPDX-License-Identifier: Apache-2.0
// How a celld bears crowds: many streams, idle connections, heads that never end, garbage; /health is asked all the while,
// each time on a connection of its own. Times are told, not judged; what was wrong fails the run.
#include "tests/soak/soak.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STREAMS 1000
#define STREAM_FDS 7 // at most, in the daemon, with its connection
#define IDLE 10000
#define SLOW 1000
#define HEADER_S 20 // celld's default time for a head
#define GARBAGE_S 5
#define GARBAGE_RATE ((int64_t)100000000) // bytes a second
#define GARBAGE_SENDERS 4
#define PACE_US 5000
#define PROBES_MAX 60000
#define SPARE_FDS 300
#define STORE_PAGE_KIB 4 // that stays of each command that ran at once, for those to come

// Shared with the processes that ask and send.
struct common {
	struct tally t;
	atomic_bool stop;
	atomic_uint probes, failed;
	uint32_t us[PROBES_MAX];
	atomic_ulong sent, connections, answers;
};

struct load {
	struct sandbox box;
	struct common *m;
	struct worker w;
	char workspace[128];
	int wrongs;
	int streams; // how many, and idle connections: fewer if there are not enough descriptors
	int idle;
	struct holding base;
	pid_t probe;
};

// --- /health meanwhile ---

static void probe_run(struct load *l)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!atomic_load(&l->m->stop)) {
		struct client c;
		int64_t start = client_now_us();
		bool ok = client_open(&c, l->box.port) == 0 && client_get(&c, "/health") == 204;
		client_close(&c);
		unsigned at = atomic_fetch_add(&l->m->probes, 1);
		if (at < PROBES_MAX)
			l->m->us[at] = (uint32_t)(client_now_us() - start);
		atomic_fetch_add(&l->m->failed, !ok);
		pause_us(PACE_US);
	}
	_exit(0);
}

static void begin(struct load *l)
{
	l->m->probes = l->m->failed = 0;
	l->m->stop = false;
	l->probe = fork();
	if (l->probe == 0)
		probe_run(l);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

static void bad(struct load *l, const char *what, long n)
{
	printf("WRONG %s: %ld %s\n", what, n, l->w.wrong);
	l->wrongs++;
}

// One line of the table. RSS is that of the load's peak.
static void end(struct load *l, const char *what, const char *came, long rss)
{
	struct common *m = l->m;
	atomic_store(&m->stop, true);
	waitpid(l->probe, NULL, 0);
	unsigned n = m->probes < PROBES_MAX ? m->probes : PROBES_MAX;
	qsort(m->us, n, sizeof *m->us, by_value);
	if (n == 0 || m->failed)
		bad(l, "/health was not answered", m->failed);
	printf("| %-34s | %-66s | %6.1f | %6.1f | %6.1f | %7ld |\n", what, came, n ? m->us[n / 2] / 1e3 : 0,
		n ? m->us[(n - 1) * 99 / 100] / 1e3 : 0, n ? m->us[n - 1] / 1e3 : 0, rss);
}

static long rss_now(struct load *l)
{
	struct holding h;
	holding_take(&h, &l->box, l->workspace);
	return h.rss;
}

// --- the loads ---

static void streams(struct load *l)
{
	struct stream *st = calloc((size_t)l->streams, sizeof *st);
	const struct command cmd = {.text = "read x; echo tick", .input = true, .timeout_ms = 120000};
	int opened = 0, right = 0;
	char what[64], came[128];
	begin(l);
	int64_t start = client_now_us();
	while (st && opened < l->streams && stream_start(&l->w, &st[opened], opened % 2 ? A : B, &cmd))
		opened++;
	int64_t open = client_now_us();
	long rss = rss_now(l);
	for (int i = 0; i < opened; i++)
		want(&l->w, "input", feed(&l->w, A, &st[i], "\n", 1), 200);
	int64_t fed = client_now_us();
	for (int i = 0; i < opened; i++)
		right += stream_finish(&l->w, &st[i], false) && strcmp(st[i].text, "tick\n") == 0 && st[i].code == 0;
	int64_t over = client_now_us();
	snprintf(came, sizeof came, "%d open at once after %.1f s; fed in %.1f s; %d ticks and ends %.1f s later",
		opened, (double)(open - start) / 1e6, (double)(fed - open) / 1e6, right, (double)(over - fed) / 1e6);
	snprintf(what, sizeof what, "%d streams, both surfaces", l->streams);
	end(l, what, came, rss);
	if (right != l->streams)
		bad(l, "streams without tick and end", l->streams - right);
	free(st);
}

static int connect_to(int port)
{
	const struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	const struct timeval limit = {.tv_sec = 10};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

enum fate { HELD, CLOSED, ANSWERED };

static enum fate fate_of(int fd)
{
	char text[64];
	ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);
	if (n > 0)
		return ANSWERED;
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? HELD : CLOSED;
}

static int open_many(const struct load *l, int *fd, int n)
{
	int failed = 0;
	for (int i = 0; i < n; i++) {
		fd[i] = connect_to(i % 2 ? l->box.port : l->box.envd_port);
		failed += fd[i] < 0;
	}
	return failed;
}

static void close_many(const int *fd, int n)
{
	for (int i = 0; i < n; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

static void idle(struct load *l, int n)
{
	int *fd = calloc((size_t)n, sizeof *fd), count[3] = {0};
	char what[64], came[128];
	begin(l);
	int64_t start = client_now_us();
	int failed = fd ? open_many(l, fd, n) : n;
	double took = (double)(client_now_us() - start) / 1e6;
	pause_us(2000000);
	for (int i = 0; fd && i < n; i++)
		if (fd[i] >= 0)
			count[fate_of(fd[i])]++;
	long rss = rss_now(l);
	snprintf(what, sizeof what, "%d idle connections", n);
	snprintf(came, sizeof came, "in %.1f s; %d held, %d closed as the longest idle, %d got 503, %d failed", took,
		count[HELD], count[CLOSED], count[ANSWERED], failed);
	end(l, what, came, rss);
	if (failed || count[HELD] < (n < 1000 ? n : 1000))
		bad(l, "connections that failed", failed);
	if (fd)
		close_many(fd, n);
	free(fd);
}

static void slow(struct load *l)
{
	static const char head[] =
		"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	int *fd = calloc(SLOW, sizeof *fd), left = SLOW, answers = 0;
	double first = 0, last = 0;
	char came[128];
	begin(l);
	int64_t start = client_now_us(), limit = start + (HEADER_S + 10) * 1000000 * (int64_t)client_scale();
	int failed = fd ? open_many(l, fd, SLOW) : SLOW;
	long rss = rss_now(l);
	for (size_t at = 0; fd && !failed && left > 0 && client_now_us() < limit; at++) {
		for (int i = 0; i < SLOW; i++) {
			enum fate fate = fd[i] < 0 ? HELD : fate_of(fd[i]);
			if (fd[i] >= 0 && fate == HELD)
				send(fd[i], &head[at < sizeof head - 2 ? at : sizeof head - 2], 1, MSG_NOSIGNAL);
			if (fate == HELD)
				continue;
			last = (double)(client_now_us() - start) / 1e6;
			first = left == SLOW ? last : first;
			answers += fate == ANSWERED;
			close(fd[i]);
			fd[i] = -1;
			left--;
		}
		pause_us(500000);
	}
	snprintf(came, sizeof came, "%d closed after %.1f to %.1f s, %d of them with an answer (408)", SLOW - left,
		first, last, answers);
	end(l, "1000 heads, a byte each 0.5 s", came, rss);
	if (left || failed || first < HEADER_S - 2)
		bad(l, "slow heads that were not closed in time", left);
	if (fd)
		close_many(fd, SLOW);
	free(fd);
}

// Sends garbage at its part of the rate: raw, or as the body of a request.
static void garbage_run(struct load *l, int id)
{
	static const char post[] = "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n";
	static unsigned char piece[65536];
	struct worker w = {.random = (uint64_t)id};
	int64_t start = client_now_us(), stop = start + GARBAGE_S * 1000000, mine = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < sizeof piece; i++)
		piece[i] = (unsigned char)pick(&w, 256);
	while (client_now_us() < stop) {
		int fd = connect_to(id % 2 ? l->box.port : l->box.envd_port);
		bool body = chance(&w, 50);
		atomic_fetch_add(&l->m->connections, 1);
		if (fd >= 0 && body)
			send(fd, post, sizeof post - 1, MSG_NOSIGNAL);
		for (int i = 0; fd >= 0 && i < 3000000 / (int)sizeof piece + 1; i++) {
			ssize_t n = send(fd, piece, sizeof piece, MSG_NOSIGNAL);
			if (n <= 0 || fate_of(fd) != HELD)
				break;
			mine += n;
			atomic_fetch_add(&l->m->sent, (unsigned long)n);
			int64_t ahead = mine * 1000000 / (GARBAGE_RATE / GARBAGE_SENDERS) - (client_now_us() - start);
			if (ahead > 0)
				pause_us(ahead);
		}
		if (fd >= 0)
			close(fd);
	}
	_exit(0);
}

static void garbage(struct load *l)
{
	pid_t pid[GARBAGE_SENDERS];
	char came[128];
	begin(l);
	int64_t start = client_now_us();
	for (int i = 0; i < GARBAGE_SENDERS; i++)
		if ((pid[i] = fork()) == 0)
			garbage_run(l, i);
	pause_us(GARBAGE_S * 500000);
	long rss = rss_now(l);
	for (int i = 0; i < GARBAGE_SENDERS; i++)
		waitpid(pid[i], NULL, 0);
	double took = (double)(client_now_us() - start) / 1e6;
	snprintf(came, sizeof came, "%.0f MB/s for %.1f s over %lu connections", (double)l->m->sent / 1e6 / took, took,
		(unsigned long)l->m->connections);
	end(l, "garbage, raw and as bodies", came, rss);
}

// --- all of it ---

// As many descriptors as IDLE needs, or as there may be; the loads shrink with them. False if there are hardly any.
static bool raise_limit(struct load *l)
{
	struct rlimit r = {0}, wish = {.rlim_cur = IDLE + SPARE_FDS, .rlim_max = IDLE + SPARE_FDS};
	getrlimit(RLIMIT_NOFILE, &r);
	if (r.rlim_max < wish.rlim_max && setrlimit(RLIMIT_NOFILE, &wish) == 0)
		r = wish;
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
	long fds = r.rlim_max > 1000000 ? 1000000 : (long)r.rlim_max;
	l->idle = (int)(fds < IDLE + SPARE_FDS ? fds - SPARE_FDS : IDLE);
	l->streams = (int)(fds < STREAMS * STREAM_FDS ? fds / STREAM_FDS : STREAMS);
	if (l->idle < IDLE)
		printf("RLIMIT_NOFILE: the hard limit is %ld: %d idle connections, %d streams\n", fds, l->idle,
			l->streams);
	return l->idle >= SLOW;
}

int load_work(const char *dir, void *celld)
{
	struct load l = {.m = mmap(NULL, sizeof *l.m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
	struct holding after;
	signal(SIGPIPE, SIG_IGN);
	setenv("CELLD_RETENTION", "2", 1);
	snprintf(l.workspace, sizeof l.workspace, "%s/workspace", dir);
	if (l.m == MAP_FAILED || !raise_limit(&l) || sandbox_start(&l.box, celld, dir, sandbox_can_pid1()) < 0)
		return 1;
	l.w = (struct worker){
		.t = &l.m->t, .port = {l.box.port, l.box.envd_port}, .dir = l.workspace, .c = {{.fd = -1}, {.fd = -1}}};
	holding_await(&l.base, NULL, &l.box, l.workspace, 60);
	printf("| %-34s | %-66s | %6s | %6s | %6s | %7s |\n|---|---|---|---|---|---|\n", "load",
		"what came (/health: ms)", "p50", "p99", "max", "RSS KiB");
	begin(&l);
	pause_us(2000000);
	end(&l, "nothing else", "", rss_now(&l));
	streams(&l);
	idle(&l, l.idle);
	slow(&l);
	garbage(&l);
	hang_up(&l.w, A);
	hang_up(&l.w, B);
	holding_await(&after, NULL, &l.box, l.workspace, 60);
	l.base.spare = STORE_PAGE_KIB * l.streams;
	holding_await(&after, &l.base, &l.box, l.workspace, 10);
	l.wrongs += holding_print(&l.base, &after);
	int status = sandbox_stop(&l.box);
	if (status != 0)
		bad(&l, "exit status after TERM", status);
	if (l.wrongs)
		sandbox_print_log(&l.box);
	return l.wrongs ? 1 : 0;
}
