// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/workkit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *wk_path(const struct testd *d, const char *name)
{
	static char path[4][600];
	static int turn;
	char *p = path[turn++ % 4];
	(void)snprintf(p, sizeof *path, "%s/%s", d->workspace, name);
	return p;
}

const char *wk_run_path(const struct testd *d, const char *id, const char *name)
{
	char part[256];
	(void)snprintf(part, sizeof part, ".k8e_bg/%s/%s", id, name);
	return wk_path(d, part);
}

const char *wk_content(const char *path)
{
	static char text[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ck_assert_msg(fd >= 0, "%s cannot be read", path);
	ssize_t n = read(fd, text, sizeof text - 1);
	(void)close(fd);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

void wk_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

void wk_submit(const struct testd *d, const char *id, const char *command)
{
	struct resp r = {0};
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s}", "command", command, "run_id", id);
	ck_assert_msg(r.status == 200, "status %d: %s", r.status, buf_cstr(&r.body));
	ck_assert_str_eq(j_str(resp_json(&r), "status"), "started");
	ck_assert_str_eq(j_str(resp_json(&r), "run_id"), id);
	resp_release(&r);
}

json_t *wk_run(const struct testd *d, const char *id, struct resp *r)
{
	char target[256];
	(void)snprintf(target, sizeof target, "/exec/background/%s", id);
	req(d, "GET", target, NULL, r);
	return resp_json(r);
}

struct awaited {
	const struct testd *d;
	const char *id;
	struct resp *r;
};

static bool is_over(void *arg)
{
	const struct awaited *a = arg;
	return strcmp(j_str(wk_run(a->d, a->id, a->r), "status"), "running") != 0;
}

json_t *wk_await(const struct testd *d, const char *id, struct resp *r)
{
	struct awaited a = {d, id, r};
	ck_assert_msg(wait_until(is_over, &a, 10000), "run %s does not end", id);
	ck_assert_int_eq(r->status, 200);
	ck_assert_str_eq(j_str(resp_json(r), "run_id"), id);
	return resp_json(r);
}

void wk_assert_over(const struct testd *d, const char *id, const char *status, int code)
{
	struct resp r = {0};
	const json_t *o = wk_await(d, id, &r);
	ck_assert_str_eq(j_str(o, "status"), status);
	ck_assert_int_eq(j_int(o, "exit_code"), code);
	resp_release(&r);
}

json_t *wk_events(const struct testd *d, const char *query)
{
	struct resp r = {0};
	char target[64];
	json_error_t e;
	(void)snprintf(target, sizeof target, "/events%s", query);
	req(d, "GET", target, NULL, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_str_eq(resp_header(&r, "Content-Type"), "application/json");
	json_t *list = json_loadb((const char *)buf_data(&r.body), buf_len(&r.body), JSON_REJECT_DUPLICATES, &e);
	ck_assert_msg(json_is_array(list), "no array: %.300s", buf_cstr(&r.body));
	size_t i;
	json_t *ev;
	json_array_foreach(list, i, ev)
	{
		ck_assert_int_ge(j_int(ev, "t"), 1000000000);
		(void)j_str(ev, "ev");
		(void)j_str(ev, "sid");
	}
	resp_release(&r);
	return list;
}

const char *wk_event_names(const struct testd *d)
{
	static struct buf out;
	json_t *list = wk_events(d, ""), *ev;
	size_t i;
	buf_reset(&out);
	json_array_foreach(list, i, ev)
	{
		buf_str(&out, j_str(ev, "ev"));
		buf_byte(&out, ' ');
	}
	json_decref(list);
	return buf_cstr(&out);
}

struct wanted {
	const struct testd *d;
	const char *names;
};

static bool has_names(void *arg)
{
	const struct wanted *w = arg;
	return strcmp(wk_event_names(w->d), w->names) == 0;
}

void wk_await_events(const struct testd *d, const char *want)
{
	struct wanted w = {d, want};
	if (!wait_until(has_names, &w, 5000))
		ck_abort_msg("events %s, want %s", wk_event_names(d), want);
}

json_t *wk_reset(const struct testd *d, struct resp *r)
{
	req(d, "POST", "/workspace/reset", NULL, r);
	if (r->status != 200)
		ck_abort_msg("reset: status %d %s", r->status, buf_cstr(&r->body));
	ck_assert(j_bool(resp_json(r), "ok"));
	return resp_json(r);
}

const char *wk_left(const struct testd *d)
{
	static struct resp r;
	return j_str(run(d, "ls -A | grep -v '^.k8e_events$'", &r), "stdout");
}
