// SPDX-License-Identifier: Apache-2.0
// demo CELLD GATEWAY: starts a gateway, creates a sandbox there and has it do real work through the API; then a celld of its own, to be killed. Each
// line says what was expected and what came; the exit status is 1 if any of them differ.
#include "tests/demo/demo.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LIMIT_S 60

void demo_line(struct demo *d, const char *what, const char *want, const char *fmt, ...)
{
	char got[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(got, sizeof got, fmt, ap);
	va_end(ap);
	bool ok = strcmp(want, got) == 0;
	d->steps++;
	d->failed += !ok;
	printf("%-4s  %-34s  %-42s  %s\n", ok ? "ok" : "FAIL", what, want, got);
}

void demo_note(const char *fmt, ...)
{
	va_list ap;
	printf("          ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void ready(struct demo *d)
{
	struct client c;
	int status = demo_open(d, &c);
	if (status == 0)
		status = client_post(&c, "/ready", "{}");
	const char *word = json_string_value(json_object_get(c.doc, "status"));
	demo_line(d, "POST /ready", "200 ready", "%d %s", status, word ? word : "-");
	client_close(&c);
}

int demo_open(const struct demo *d, struct client *c)
{
	int rc = client_open(c, d->gateway.port ? d->gateway.port : d->box.port);
	if (d->gateway.port)
		c->extra = d->gateway.lines;
	return rc;
}

static void through_the_gateway(struct demo *d, const char *dir)
{
	if (demo_gateway_begin(d, dir)) {
		ready(d);
		demo_commands(d);
		demo_streams(d);
		demo_files(d);
	}
	demo_gateway_end(d, dir);
}

static bool alone(struct demo *d, const char *dir)
{
	bool pid1 = sandbox_can_pid1();
	if (sandbox_start(&d->box, d->celld, dir, pid1) < 0)
		return false;
	printf("\n%s alone: %s, port %d\n\n", d->celld,
		pid1 ? "PID 1 of a namespace of its own" : "with --init (no PID namespace to be had here)",
		d->box.port);
	demo_survival(d);
	return true;
}

static int work(const char *dir, void *arg)
{
	struct demo *d = arg;
	int64_t start = client_now_us();
	through_the_gateway(d, dir);
	if (!alone(d, dir))
		return 1;
	if (d->failed)
		sandbox_print_log(&d->box);
	printf("\n%d of %d as expected, %.1f s\n", d->steps - d->failed, d->steps,
		(double)(client_now_us() - start) / 1e6);
	return d->failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: demo CELLD GATEWAY\n");
		return 2;
	}
	struct demo d = {.celld = argv[1], .gateway_path = argv[2]};
	return keeper_run(work, &d, LIMIT_S * client_scale());
}
