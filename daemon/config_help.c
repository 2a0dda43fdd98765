// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // strchrnul
#include "daemon/config_priv.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

const char *config_shown(const char *value, char *out, size_t n)
{
	size_t i = 0;
	for (; value[i] && i < n - 1; i++)
		out[i] = (unsigned char)value[i] < 0x20 || value[i] == 0x7f ? '?' : value[i];
	out[i] = '\0';
	return out;
}

// What a row's value should have been.
static void wanted(const struct config_row *r, char *out, size_t n)
{
	switch (r->kind) {
	case KIND_SECONDS:
	case KIND_SEC_MS:
		snprintf(out, n, "a number of seconds (%.15g to %.15g)", r->min, r->max);
		break;
	case KIND_MS:
		snprintf(out, n, "a number of milliseconds (%.15g to %.15g)", r->min, r->max);
		break;
	case KIND_COUNT:
		snprintf(out, n, "a number (%.15g to %.15g)", r->min, r->max);
		break;
	case KIND_SIZE:
		snprintf(out, n, "a size in bytes (%.15g to %.15g; K, M and G may follow the number)", r->min, r->max);
		break;
	case KIND_WORD:
	case KIND_YES:
		for (size_t i = 0, at = 0; r->words[i].name && at < n; i++)
			at += (size_t)snprintf(out + at, n - at, "%s%s", i == 0 ? "one of " : ", ", r->words[i].name);
		break;
	default:
		snprintf(out, n, "%s", r->wants ? r->wants : "a value");
	}
}

void config_complain(struct config_load *l, const struct config_row *r, const char *label, const char *value, int rc)
{
	char text[96], want[128];
	l->status = rc == -ENOMEM ? 1 : 2;
	if (rc == -ENOMEM)
		log_plain("celld: %s: out of memory", label);
	else if (rc == -E2BIG)
		log_plain("celld: %s: more than %zu values", label, r->width / sizeof(char *));
	else if (r->kind == KIND_TOKEN)
		log_plain("celld: %s: a token is " CONFIG_TOKEN_WANTS, label); // the value is a secret
	else {
		wanted(r, want, sizeof(want));
		log_plain("celld: %s: \"%s\" is not %s", label, config_shown(value, text, sizeof(text)), want);
	}
}

int config_print_help(void)
{
	size_t count;
	const struct config_row *rows = config_rows(&count);
	printf("celld " CONFIG_VERSION ": runs commands, files, terminals and watches of a sandbox over HTTP\n"
	       "usage: celld [OPTION]...\n\n"
	       "Each option has a variable, --envd-listen for one CELLD_ENVD_LISTEN (lists: separated by commas);\n"
	       "the option wins. Sizes take K, M and G; seconds may have a fraction.\n");
	for (const struct config_row *r = rows; r < rows + count; r++) {
		char head[48], var[40];
		if (r->section)
			printf("\n%s:\n", r->section);
		snprintf(head, sizeof(head), "--%s%s%s", r->name, r->arg ? " " : "", r->arg ? r->arg : "");
		printf("  %-26s %s", head, r->help);
		if (r->init)
			printf(" [%s]", r->init);
		printf(config_variable(r, var, sizeof(var)) ? " (%s)\n" : "\n", var);
	}
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}

int config_print_version(void)
{
	printf("celld " CONFIG_VERSION "\n");
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}

void config_complain_option(struct config_load *l, const struct config_row *r, bool missing, const char *arg)
{
	char text[64];
	l->status = 2;
	if (r && missing)
		log_plain("celld: --%s: a value is missing", r->name);
	else if (r)
		log_plain("celld: --%s: takes no value", r->name);
	else if (optopt)
		log_plain("celld: -%c: unknown option (see celld --help)", isprint(optopt) ? optopt : '?');
	else {
		config_shown(arg, text, sizeof(text));
		*strchrnul(text, '=') = '\0'; // what follows may be a secret
		log_plain("celld: %s: unknown option (see celld --help)", text);
	}
}
