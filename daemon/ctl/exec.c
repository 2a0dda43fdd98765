// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/ctl_priv.h"
#include "daemon/ctl/relay.h"
#include "daemon/ctl/shell.h"
#include "daemon/io.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What a terminal's programs get to end in once it is hung up, and what that may take in all.
#define HANG_UP_MS 1000
#define HANG_UP_LIMIT_MS 3000

// --- the request ---

// JSON has no place for other bytes, and something else must not be run.
static bool is_text(const struct ctl *ctl, const char *what, const char *s)
{
	if (text_utf8_valid(s, strlen(s)))
		return true;
	(void)ctl_usage(ctl, "%s: bytes that are not UTF-8 cannot be sent", what);
	return false;
}

static bool all_text(const struct ctl *ctl)
{
	for (int i = 0; i < ctl->count; i++)
		if (!is_text(ctl, "word", ctl->words[i]))
			return false;
	for (size_t i = 0; i < ctl->opt.env_count; i++) {
		const char *item = ctl->opt.env[i], *ours = strchr(item, '=') ? NULL : getenv(item);
		if (!is_text(ctl, "--env", item) || (ours && !is_text(ctl, "--env", ours)))
			return false;
	}
	return (!ctl->opt.workdir || is_text(ctl, "--workdir", ctl->opt.workdir)) &&
	       (!ctl->opt.session || is_text(ctl, "--session", ctl->opt.session));
}

static bool named(const char *item, const char *name, size_t n)
{
	return strncmp(item, name, n) == 0 && (item[n] == '=' || item[n] == '\0');
}

// The last one of a name counts: JSON has each key once.
static bool again(const struct ctl *ctl, size_t at)
{
	const char *name = ctl->opt.env[at];
	size_t n = strcspn(name, "=");
	for (size_t i = at + 1; i < ctl->opt.env_count; i++)
		if (named(ctl->opt.env[i], name, n))
			return true;
	return false;
}

static void put_variable(struct jsonw *w, const char *name, size_t n, const char *value)
{
	char *key = strndup(name, n);
	if (!key) {
		w->out->fail = -ENOMEM;
		return;
	}
	jsonw_key(w, key);
	jsonw_cstr(w, value);
	free(key);
}

static void put_env(const struct ctl *ctl, struct jsonw *w)
{
	bool term = false;
	jsonw_key(w, "env");
	jsonw_obj(w);
	for (size_t i = 0; i < ctl->opt.env_count; i++) {
		const char *item = ctl->opt.env[i], *equals = strchr(item, '=');
		const char *value = equals ? equals + 1 : getenv(item);
		term |= named(item, "TERM", 4);
		if (value && !again(ctl, i))
			put_variable(w, item, strcspn(item, "="), value);
	}
	const char *own = getenv("TERM");
	if (ctl->opt.tty && !term && own && *own && text_utf8_valid(own, strlen(own)))
		jsonw_kstr(w, "TERM", own);
	jsonw_obj_end(w);
}

static void put_common(const struct ctl *ctl, struct jsonw *w)
{
	jsonw_kstr(w, "workdir", ctl->opt.workdir ? ctl->opt.workdir : "");
	if (ctl->opt.session)
		jsonw_kstr(w, "session_id", ctl->opt.session);
	put_env(ctl, w);
}

static void put_command(const struct ctl *ctl, double timeout, struct buf *out)
{
	struct jsonw w;
	struct buf line;
	buf_init(&line, 0);
	shell_put_exec(&line, ctl->words);
	jsonw_init(&w, out);
	jsonw_obj(&w);
	jsonw_key(&w, "command");
	jsonw_str(&w, buf_data(&line), buf_len(&line));
	jsonw_key(&w, "timeout");
	jsonw_num(&w, timeout);
	jsonw_kbool(&w, "stdin", ctl->opt.stdin_too);
	put_common(ctl, &w);
	jsonw_obj_end(&w);
	if (buf_failed(&line))
		out->fail = buf_failed(&line);
	buf_release(&line);
}

// --- without a terminal ---

// The status of a relay that has run, and a word if that is not the whole story.
static int finish(const struct relay_end *end)
{
	if (end->write_error && end->write_error != EPIPE) {
		ctl_say("output: %s", strerror(end->write_error));
		return CTL_LOST;
	}
	if (end->truncated)
		ctl_say("output was lost: it came faster than it was taken");
	if (end->timed_out && !end->cut_by)
		ctl_say("the command's time was up");
	return relay_status(end);
}

static int fail(const struct err *e)
{
	(void)ctl_fail(e);
	return CTL_LOST;
}

static int run_plain(struct ctl *ctl, double timeout)
{
	struct buf body;
	struct relay_end end;
	struct err e;
	buf_init(&body, 0);
	put_command(ctl, timeout, &body);
	const struct relay_spec spec = {
		.target = &ctl->target,
		.kind = RELAY_COMMAND,
		.method = "POST",
		.path = "/exec/stream",
		.body = &body,
		.in = ctl->opt.stdin_too ? STDIN_FILENO : -1,
		.out = STDOUT_FILENO,
		.err = STDERR_FILENO,
		.frames = ctl->opt.json,
	};
	int rc = relay_run(&spec, &end, &e);
	buf_release(&body);
	return rc < 0 ? fail(&e) : finish(&end);
}

// --- in one ---

static void put_terminal(const struct ctl *ctl, struct buf *out)
{
	struct jsonw w;
	const struct terminal_size size = terminal_size(STDIN_FILENO);
	jsonw_init(&w, out);
	jsonw_obj(&w);
	jsonw_key(&w, "argv");
	jsonw_arr(&w);
	for (int i = 0; i < ctl->count; i++)
		jsonw_cstr(&w, ctl->words[i]);
	jsonw_arr_end(&w);
	jsonw_kint(&w, "rows", size.rows);
	jsonw_kint(&w, "cols", size.cols);
	put_common(ctl, &w);
	jsonw_obj_end(&w);
}

static int create(const struct ctl *ctl, int64_t *id, struct err *e)
{
	struct buf body;
	buf_init(&body, 0);
	put_terminal(ctl, &body);
	json_t *doc = ctl_call(ctl, "POST", "/pty/create", &body, NULL, e);
	buf_release(&body);
	if (!doc)
		return -1;
	int rc = jsonr_int(doc, "terminal_id", JSONR_REQUIRED, 1, INT64_MAX, id, e);
	jsonr_free(doc);
	return rc < 0 ? -1 : 0;
}

// Its programs end with this one, as they do when a window is closed. Tried once: there may be nobody to tell.
static void hang_up(const struct ctl *ctl, int64_t id)
{
	struct http_client c;
	struct buf body;
	struct err e;
	http_client_init(&c, &ctl->target);
	c.limit_ms = HANG_UP_LIMIT_MS;
	buf_init(&body, 0);
	buf_printf(&body, "{\"terminal_id\":%lld,\"grace_ms\":%d}", (long long)id, HANG_UP_MS);
	jsonr_free(http_client_call(&c, "POST", "/pty/destroy", &body, &e));
	buf_release(&body);
	http_client_release(&c);
}

static int run_terminal(struct ctl *ctl)
{
	struct terminal terminal = {.fd = -1};
	struct relay_end end;
	struct err e;
	int64_t id = 0;
	char path[64];
	if (create(ctl, &id, &e) < 0) {
		int status = fail(&e);
		return e.status == 404 && e.sys == ENOENT ? CTL_NOT_FOUND : e.status == 403 ? CTL_NOT_RUN : status;
	}
	(void)snprintf(path, sizeof path, "/pty/stream?terminal_id=%lld", (long long)id);
	const struct relay_spec spec = {
		.target = &ctl->target,
		.kind = RELAY_TERMINAL,
		.method = "GET",
		.path = path,
		.terminal_id = id,
		.terminal = &terminal,
		.in = STDIN_FILENO,
		.out = STDOUT_FILENO,
		.err = -1,
	};
	int rc = terminal_raw(&terminal, STDIN_FILENO);
	rc = rc < 0 ? err_sys(&e, rc, "terminal") : relay_run(&spec, &end, &e);
	terminal_restore(&terminal);
	if (rc < 0 || end.cut_by)
		hang_up(ctl, id);
	return rc < 0 ? fail(&e) : finish(&end);
}

int ctl_exec(struct ctl *ctl)
{
	double timeout = 0;
	if (ctl->opt.timeout && !ctl_period(ctl->opt.timeout, &timeout))
		return ctl_usage(ctl, "--timeout: \"%.40s\" is no time (5, 1.5s, 500ms, 2m)", ctl->opt.timeout);
	if (!all_text(ctl))
		return CTL_USAGE;
	if (!ctl->opt.tty)
		return run_plain(ctl, timeout);
	if (ctl->opt.timeout || ctl->opt.json)
		return ctl_usage(ctl, "--%s does not go with --tty", ctl->opt.timeout ? "timeout" : "json");
	if (!isatty(STDIN_FILENO))
		return ctl_usage(ctl, "--tty: the input is not a terminal");
	return run_terminal(ctl);
}

// --- attach ---

int ctl_attach(struct ctl *ctl)
{
	long long pid;
	char path[64];
	struct relay_end end;
	struct err e;
	if (text_int(ctl->words[0], strlen(ctl->words[0]), 1, INT32_MAX, &pid) < 0)
		return ctl_usage(ctl, "\"%.40s\" is no process number", ctl->words[0]);
	(void)snprintf(path, sizeof path, "/exec/attach?pid=%lld", pid);
	const struct relay_spec spec = {
		.target = &ctl->target,
		.kind = RELAY_FOLLOWED,
		.method = "GET",
		.path = path,
		.in = -1,
		.out = STDOUT_FILENO,
		.err = STDERR_FILENO,
		.frames = ctl->opt.json,
	};
	return relay_run(&spec, &end, &e) < 0 ? fail(&e) : finish(&end);
}
