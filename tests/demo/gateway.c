// SPDX-License-Identifier: Apache-2.0
// The gateway that most steps go through: started, a sandbox created and killed by the calls that E2B's SDKs make.
#include "tests/demo/demo.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_US ((int64_t)15000000)
#define STOP_US ((int64_t)10000000)
#define KEY "X-API-Key: demo\r\n"

static void between_looks(void)
{
	nanosleep(&(const struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
}

static void log_path(char to[160], const char *dir)
{
	snprintf(to, 160, "%s/gateway.log", dir);
}

static void run(const struct demo *d, const char *dir)
{
	char log[160], boxes[160];
	log_path(log, dir);
	snprintf(boxes, sizeof boxes, "%s/sandboxes", dir);
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2 && mkdir(boxes, 0755) == 0)
		execl(d->gateway_path, "celld-gateway", "--celld", d->celld, "--listen", "127.0.0.1:0", "--dir", boxes,
			"--pool", "1", "--api-key", "demo", (char *)NULL);
	_exit(127);
}

// The port of its ready line, and that line; 0 while there is none.
static int ready_port(const char *dir, char *line, size_t n)
{
	static const char before[] = " ready: http://127.0.0.1:";
	char path[160], text[4096];
	log_path(path, dir);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	text[got > 0 ? got : 0] = '\0';
	const char *at = strstr(text, before);
	if (!at || !strchr(at, '\n'))
		return 0;
	const char *start = at;
	while (start > text && start[-1] != '\n')
		start--;
	snprintf(line, n, "%.*s", (int)strcspn(start, "\n"), start);
	return atoi(at + sizeof before - 1);
}

static int await_ready(const struct demo *d, const char *dir)
{
	char line[256];
	int64_t end = client_now_us() + START_US * client_scale();
	int port;
	while (!(port = ready_port(dir, line, sizeof line)) && client_now_us() < end &&
		waitpid(d->gateway.pid, NULL, WNOHANG) == 0)
		between_looks();
	if (port)
		printf("%s\n\n%-4s  %-34s  %-42s  %s\n", line, "", "WHAT", "EXPECTED", "CAME");
	return port;
}

// The control plane's call METHOD TARGET, with BODY or NULL.
static int call(struct client *c, int port, const char *method, const char *target, const char *body)
{
	int status = client_open(c, port);
	c->extra = KEY;
	if (status == 0)
		status = client_send(c, method, target, body);
	return status < 0 ? status : client_answer(c);
}

bool demo_gateway_begin(struct demo *d, const char *dir)
{
	struct client c;
	d->gateway.pid = fork();
	if (d->gateway.pid == 0)
		run(d, dir);
	int port = d->gateway.pid > 0 ? await_ready(d, dir) : 0;
	if (!port) {
		demo_line(d, "the gateway", "ready", "not ready");
		return false;
	}
	int status = call(&c, port, "POST", "/v2/sandboxes",
		"{\"templateID\":\"base\",\"metadata\":{\"for\":\"demo\"},\"envVars\":{}}");
	const char *id = json_string_value(json_object_get(c.doc, "sandboxID"));
	const char *token = json_string_value(json_object_get(c.doc, "envdAccessToken"));
	snprintf(d->gateway.id, sizeof d->gateway.id, "%s", id ? id : "");
	snprintf(d->gateway.lines, sizeof d->gateway.lines,
		"E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 2024\r\nX-Access-Token: %s\r\n", d->gateway.id,
		token ? token : "");
	d->gateway.port = port;
	demo_line(d, "create a sandbox", "201, an id and a token", "%d, %s and %s", status, id ? "an id" : "no id",
		token ? "a token" : "no token");
	client_close(&c);
	return status == 201 && id && token;
}

static void kill_sandbox(struct demo *d)
{
	struct client c;
	char target[96];
	int port = d->gateway.port;
	snprintf(target, sizeof target, "/sandboxes/%s", d->gateway.id);
	int status = call(&c, port, "DELETE", target, NULL);
	client_close(&c);
	int after = demo_open(d, &c);
	if (after == 0)
		after = client_get(&c, "/health");
	const char *word = json_string_value(json_object_get(c.doc, "message"));
	demo_line(d, "kill it; its health", "204; 502 The sandbox was not found", "%d; %d %s", status, after,
		word ? word : "-");
	client_close(&c);
}

static int stop(struct demo *d)
{
	int64_t end = client_now_us() + STOP_US * client_scale();
	int status;
	kill(d->gateway.pid, SIGTERM);
	while (waitpid(d->gateway.pid, &status, WNOHANG) == 0) {
		if (client_now_us() > end)
			return -1;
		between_looks();
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void demo_gateway_end(struct demo *d, const char *dir)
{
	char boxes[160];
	if (d->gateway.port && *d->gateway.id)
		kill_sandbox(d);
	d->gateway.port = 0;
	if (d->gateway.pid > 0) {
		int status = stop(d);
		snprintf(boxes, sizeof boxes, "%s/sandboxes", dir);
		bool empty = rmdir(boxes) == 0 || errno == ENOENT;
		demo_line(d, "the gateway ends", "exit status 0, nothing left", "exit status %d, %s", status,
			empty ? "nothing left" : "something left");
	}
	d->gateway.pid = 0;
}
