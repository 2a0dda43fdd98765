// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // getopt_long, strchrnul
#include "daemon/config.h"

#include "daemon/config_priv.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BASE 256 // getopt's answer for row 0: apart from every character

static void *field(struct config *c, size_t offset)
{
	return (char *)c + offset;
}

static int set_number(const struct config_row *r, struct config *c, const char *s)
{
	long long v = 0;
	double d = 0;
	int rc;
	if (r->kind == KIND_SECONDS || r->kind == KIND_SEC_MS)
		rc = value_seconds(s, r->min, r->max, &d);
	else if (r->kind == KIND_SIZE)
		rc = value_size(s, (long long)r->min, (long long)r->max, &v);
	else
		rc = value_count(s, (long long)r->min, (long long)r->max, &v);
	if (rc < 0)
		return rc;
	if (r->kind == KIND_SECONDS)
		*(double *)field(c, r->field) = d;
	else if (r->kind == KIND_SEC_MS)
		*(int64_t *)field(c, r->field) = (int64_t)(d * 1000 + 0.5);
	else if (r->kind == KIND_MS)
		*(int64_t *)field(c, r->field) = v;
	else
		*(size_t *)field(c, r->field) = (size_t)v;
	return 0;
}

static int set_word(const struct config_row *r, struct config *c, const char *s)
{
	const struct config_word *w = r->words;
	while (w->name && strcmp(w->name, s) != 0)
		w++;
	if (!w->name)
		return -EINVAL;
	if (r->width == sizeof(bool))
		*(bool *)field(c, r->field) = w->value;
	else
		memcpy(field(c, r->field), &w->value, sizeof(w->value)); // an enum
	return 0;
}

// Adds one item to a row's list; "off" takes away the addresses before it.
static int add_item(const struct config_row *r, struct config *c, const char *s)
{
	if (r->kind == KIND_LIMITS)
		return limits_parse(field(c, r->field), s);
	const char **list = field(c, r->field);
	size_t *count = field(c, r->count);
	if (r->kind == KIND_LISTEN && strcmp(s, "off") == 0) {
		*count = 0;
		return 0;
	}
	if (!r->fits(s))
		return -EINVAL;
	if (*count == r->width / sizeof(*list))
		return -E2BIG;
	list[(*count)++] = s;
	return 0;
}

static char *copy_text(const char *s, size_t n)
{
	char *copy = malloc(n + 1);
	if (copy) {
		memcpy(copy, s, n);
		copy[n] = '\0';
	}
	return copy;
}

// One item of a variable, a copy: it stays for the process's life, apart from the environment, which stays whole.
static int take_item(const struct config_row *r, struct config *c, char *item)
{
	const char **list = field(c, r->field);
	size_t none = 0, *count = r->count ? field(c, r->count) : &none, before = *count;
	int rc = add_item(r, c, item);
	for (size_t i = *count; rc == 0 && i < before; i++)
		free((char *)list[i]); // "off" took them away, copies all of them
	if (rc < 0 || *count <= before)
		free(item);
	return rc;
}

// A variable's items, separated by commas.
static int set_list(const struct config_row *r, struct config *c, const char *s)
{
	if (r->kind != KIND_LISTEN && !*s)
		return 0;
	int rc = 0;
	for (const char *end; rc == 0 && s; s = *end ? end + 1 : NULL) {
		end = strchrnul(s, ',');
		char *item = copy_text(s, (size_t)(end - s));
		rc = item ? take_item(r, c, item) : -ENOMEM;
	}
	return rc;
}

static int set_token(struct config *c, char *s)
{
	bool fits = value_is_token(s);
	char *copy = fits ? copy_text(s, strlen(s)) : NULL;
	// /proc/PID/cmdline and /proc/PID/environ show this very memory.
	explicit_bzero(s, strlen(s));
	if (copy) {
		free((char *)c->token); // an earlier --token's copy
		c->token = copy;
	}
	return copy ? 0 : fits ? -ENOMEM : -EINVAL;
}

// Gives a row's field the VALUE of an option (VAR false), of a variable, or the default.
static int set_value(const struct config_row *r, struct config *c, char *value, bool var)
{
	switch (r->kind) {
	case KIND_LISTEN:
	case KIND_LIST:
	case KIND_LIMITS:
		return var ? set_list(r, c, value) : add_item(r, c, value);
	case KIND_TEXT:
		if (!r->fits(value))
			return -EINVAL;
		*(const char **)field(c, r->field) = value;
		return 0;
	case KIND_TOKEN:
		return set_token(c, value);
	case KIND_YES:
		return set_word(r, c, var ? value : "yes");
	case KIND_NO:
		return set_word(r, c, "no");
	case KIND_WORD:
		return set_word(r, c, value);
	default:
		return set_number(r, c, value);
	}
}

// The first value of an option or variable takes the place of the default.
static int apply(struct config_load *l, const struct config_row *r, char *value, bool var, const char *label)
{
	size_t count, i = (size_t)(r - config_rows(&count));
	if (!l->set[i] && r->count)
		*(size_t *)field(l->c, r->count) = 0;
	if (!l->set[i] && r->is_default)
		*(bool *)field(l->c, r->is_default) = false;
	l->set[i] = true;
	if (r->kind == KIND_TOKEN)
		snprintf(l->token_from, sizeof(l->token_from), "%s", label);
	else if (r->field == offsetof(struct config, token_file))
		snprintf(l->file_from, sizeof(l->file_from), "%s", label);
	int rc = r->kind == KIND_TOKEN && l->handed ? 0 : set_value(r, l->c, value, var);
	if (rc < 0)
		config_complain(l, r, label, value, rc);
	return rc;
}

static void set_defaults(struct config *c)
{
	size_t count;
	const struct config_row *rows = config_rows(&count);
	memset(c, 0, sizeof(*c));
	for (const struct config_row *r = rows; r < rows + count; r++) {
		if (!r->init)
			continue;
		int rc = set_value(r, c, (char *)r->init, false);
		assert(rc == 0);
		(void)rc;
		if (r->is_default)
			*(bool *)field(c, r->is_default) = true;
	}
}

static int next_option(int argc, char **argv, const struct config_row *rows, size_t count)
{
	struct option options[CONFIG_ROWS_MAX + 1];
	memset(options, 0, sizeof(options));
	for (size_t i = 0; i < count; i++)
		options[i] = (struct option){.name = rows[i].name,
			.has_arg = rows[i].arg ? required_argument : no_argument,
			.val = VALUE_BASE + (int)i};
	return getopt_long(argc, argv, "+:", options, NULL);
}

static enum config_action load_options(struct config_load *l, int argc, char **argv)
{
	char label[40], text[96];
	size_t count;
	const struct config_row *rows = config_rows(&count);
	int ch;
	opterr = 0;
	optind = 0; // getopt starts anew
	while ((ch = next_option(argc, argv, rows, count)) != -1) {
		if (ch < VALUE_BASE) {
			bool ours = optopt >= VALUE_BASE && optopt < VALUE_BASE + (int)count;
			config_complain_option(
				l, ours ? &rows[optopt - VALUE_BASE] : NULL, ch == ':', argv[optind - 1]);
			return CONFIG_EXIT;
		}
		const struct config_row *r = &rows[ch - VALUE_BASE];
		if (r->kind == KIND_HELP || r->kind == KIND_VERSION) {
			l->status = r->kind == KIND_HELP ? config_print_help() : config_print_version();
			return CONFIG_EXIT;
		}
		snprintf(label, sizeof(label), "--%s", r->name);
		if (apply(l, r, optarg, false, label) < 0)
			return CONFIG_EXIT;
	}
	if (optind >= argc)
		return CONFIG_RUN;
	log_plain("celld: \"%s\": unexpected argument (see celld --help)",
		config_shown(argv[optind], text, sizeof(text)));
	l->status = 2;
	return CONFIG_EXIT;
}

// A row that an option of the same field has set is out of its variable's reach.
static bool is_set(const struct config_load *l, const struct config_row *r)
{
	size_t count;
	const struct config_row *rows = config_rows(&count);
	for (size_t i = 0; i < count; i++)
		if (l->set[i] && rows[i].width > 0 && rows[i].field == r->field)
			return true;
	return false;
}

static enum config_action load_variables(struct config_load *l)
{
	char var[40];
	size_t count;
	const struct config_row *rows = config_rows(&count);
	for (const struct config_row *r = rows; r < rows + count; r++) {
		char *value = config_variable(r, var, sizeof(var)) ? getenv(var) : NULL;
		if (!value)
			continue;
		int rc = is_set(l, r) ? 0 : apply(l, r, value, true, var);
		if (r->kind == KIND_TOKEN) {
			explicit_bzero(value, strlen(value)); // one that an option beats is a secret still
			unsetenv(var);
		}
		if (rc < 0)
			return CONFIG_EXIT;
	}
	return CONFIG_RUN;
}

enum config_action config_resume(struct config *c, int argc, char **argv, const char *token, int *status)
{
	struct config_load l = {.c = c, .handed = token};
	set_defaults(c);
	enum config_action action = load_options(&l, argc, argv);
	if (action == CONFIG_RUN)
		action = load_variables(&l);
	if (action == CONFIG_RUN)
		action = config_load_token(&l);
	*status = l.status;
	return action;
}

enum config_action config_load(struct config *c, int argc, char **argv, int *status)
{
	return config_resume(c, argc, argv, NULL, status);
}
