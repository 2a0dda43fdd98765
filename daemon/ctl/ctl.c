// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/ctl.h"
#include "daemon/config_value.h"
#include "daemon/ctl/ctl_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- messages ---

int ctl_write(int fd, const struct buf *b)
{
	int rc = buf_failed(b);
	size_t at = 0;
	while (rc == 0 && at < buf_len(b)) {
		ssize_t n = io_write(fd, buf_data(b) + at, buf_len(b) - at);
		rc = n < 0 ? (int)n : 0;
		at += n > 0 ? (size_t)n : 0;
	}
	return rc;
}

__attribute__((format(printf, 2, 0))) static void say(const char *who, const char *fmt, va_list ap)
{
	struct buf line, shown;
	buf_init(&line, 0);
	buf_init(&shown, 0);
	buf_str(&line, who);
	buf_vprintf(&line, fmt, ap);
	ctl_put_shown(&shown, (const char *)buf_data(&line), buf_len(&line));
	buf_byte(&shown, '\n');
	(void)ctl_write(STDERR_FILENO, &shown);
	buf_release(&line);
	buf_release(&shown);
}

void ctl_say(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say("celld ctl: ", fmt, ap);
	va_end(ap);
}

int ctl_fail(const struct err *e)
{
	ctl_say("%s (%s)", e->msg, err_word(e->code));
	return http_client_lost(e) ? CTL_LOST : CTL_FAILED;
}

int ctl_usage(const struct ctl *ctl, const char *fmt, ...)
{
	char who[64];
	va_list ap;
	const char *name = ctl->command ? ctl->command->name : "";
	(void)snprintf(who, sizeof who, "celld ctl%s%s: ", *name ? " " : "", name);
	va_start(ap, fmt);
	say(who, fmt, ap);
	va_end(ap);
	dprintf(STDERR_FILENO, "try: celld ctl%s%s --help\n", *name ? " " : "", name);
	return CTL_USAGE;
}

int ctl_print(struct buf *out)
{
	int rc = ctl_write(STDOUT_FILENO, out);
	buf_release(out);
	if (rc < 0)
		ctl_say("stdout: %s", strerror(-rc));
	return rc < 0 ? CTL_FAILED : CTL_OK;
}

void ctl_put_shown(struct buf *out, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		// C1 controls come as two bytes in UTF-8.
		bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)s[i + 1] < 0xa0;
		buf_byte(out, c < 0x20 || c == 0x7f || c1 ? '?' : c);
		i += c1;
	}
}

void ctl_add_signal(sigset_t *set, int sig)
{
	struct sigaction now;
	if (sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
		sigaddset(set, sig);
}

bool ctl_period(const char *s, double *seconds)
{
	static const struct {
		const char *unit;
		double factor;
	} units[] = {{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"", 1}};
	char digits[32];
	size_t n = strspn(s, "0123456789."), i = 0;
	if (n >= sizeof digits)
		return false;
	memcpy(digits, s, n);
	digits[n] = '\0';
	while (units[i].unit[0] && strcmp(units[i].unit, s + n) != 0)
		i++;
	if (strcmp(units[i].unit, s + n) != 0 || value_seconds(digits, 0, 1e9, seconds) < 0)
		return false;
	*seconds *= units[i].factor;
	return *seconds <= 1e9;
}

json_t *ctl_call(const struct ctl *ctl, const char *method, const char *path, const struct buf *body, struct buf *text,
	struct err *e)
{
	struct http_client c;
	http_client_init(&c, &ctl->target);
	json_t *doc = http_client_call(&c, method, path, body, e);
	if (doc && text)
		buf_append(text, buf_data(&c.body), buf_len(&c.body));
	http_client_release(&c);
	return doc;
}

// --- what is asked for ---

static int complain(const struct ctl *ctl, const struct option_fault *f)
{
	switch (f->kind) {
	case OPTION_NO_VALUE:
		return ctl_usage(ctl, "%s: a value is missing", f->name);
	case OPTION_TAKES_NONE:
		return ctl_usage(ctl, "%s: takes no value", f->name);
	default:
		return ctl_usage(ctl, "%s: unknown option", f->name);
	}
}

static int run(struct ctl *ctl)
{
	const struct command *c = ctl->command;
	if (ctl->opt.help)
		return ctl_help_command(c);
	if (ctl->count < c->min)
		return ctl_usage(ctl, "%s is missing", c->words);
	if (c->max >= 0 && ctl->count > c->max)
		return ctl_usage(ctl, "\"%.80s\" is too much", ctl->words[c->max]);
	if (c->run == ctl_completion)
		return c->run(ctl);
	if (target_find(&ctl->target, ctl->opt.url) < 0)
		return CTL_USAGE;
	// Probes may not be allowed to read it, and need none.
	if (c->run != ctl_ready && target_find_token(&ctl->target, ctl->opt.token_file) < 0)
		return CTL_USAGE;
	return c->run(ctl);
}

// Options that hold for every command may also stand before its name.
static int choose(struct ctl *ctl, int argc, char **argv)
{
	struct option_fault fault;
	const struct option_input first = {argc - 1, argv + 1, 1u << COMMANDS, true};
	if (options_parse(&ctl->opt, &first, ctl->words, &ctl->count, &fault) < 0)
		return complain(ctl, &fault);
	bool asks = ctl->count > 0 && strcmp(ctl->words[0], "help") == 0;
	if (ctl->opt.help || (asks && ctl->count == 1))
		return ctl_help();
	if (ctl->count == 0)
		return ctl_usage(ctl, "a command is missing");
	const char *name = ctl->words[asks];
	enum command_id id = options_find_command(name);
	if (id == COMMANDS)
		return ctl_usage(ctl, "\"%.80s\" is no command", name);
	ctl->command = options_command(id);
	if (asks)
		return ctl_help_command(ctl->command);
	const struct option_input second = {ctl->count - 1, argv + argc - ctl->count + 1, 1u << id, ctl->command->rest};
	if (options_parse(&ctl->opt, &second, ctl->words, &ctl->count, &fault) < 0)
		return complain(ctl, &fault);
	return run(ctl);
}

int ctl_main(int argc, char **argv)
{
	struct ctl ctl = {0};
	int status = CTL_FAILED;
	ctl.words = calloc((size_t)argc + 1, sizeof *ctl.words);
	ctl.opt.env = calloc((size_t)argc + 1, sizeof *ctl.opt.env);
	if (ctl.words && ctl.opt.env)
		status = choose(&ctl, argc, argv);
	else
		ctl_say("%s", strerror(ENOMEM));
	explicit_bzero(ctl.target.token, sizeof ctl.target.token);
	free(ctl.words);
	free(ctl.opt.env);
	return status;
}
