// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/ctl_priv.h"

#include <stdio.h>

static void put_option(struct buf *out, const struct option_row *r)
{
	char head[48], letter[8] = "    ";
	if (r->letter)
		(void)snprintf(letter, sizeof letter, "-%c, ", r->letter);
	(void)snprintf(head, sizeof head, "%s--%s%s%s", letter, r->name, r->arg ? " " : "", r->arg ? r->arg : "");
	buf_printf(out, "  %-26s %s\n", head, r->help);
}

static void put_options(struct buf *out, unsigned mask, bool common)
{
	size_t count;
	const struct option_row *rows = options_rows(&count);
	for (const struct option_row *r = rows; r < rows + count; r++)
		if ((r->commands & mask) && (r->commands >> COMMANDS & 1) == common)
			put_option(out, r);
}

static void put_common(struct buf *out)
{
	buf_str(out, "\nof every command:\n");
	put_options(out, 1u << COMMANDS, true);
}

int ctl_help(void)
{
	struct buf out;
	buf_init(&out, 0);
	buf_str(&out, "celld ctl: commands, terminals and files of a sandbox that celld serves\n"
		      "usage: celld ctl [OPTION]... COMMAND [OPTION]... [WORD]...\n\ncommands:\n");
	for (int id = 0; id < COMMANDS; id++) {
		const struct command *c = options_command((enum command_id)id);
		char head[48];
		(void)snprintf(head, sizeof head, "%s %s", c->name, c->words);
		buf_printf(&out, "  %-30s %s\n", head, c->help);
	}
	put_common(&out);
	buf_str(&out, "\nWithout --url the daemon is at CELLD_URL, else where CELLD_LISTEN says, else at "
		      "http://127.0.0.1:2024.\n"
		      "The token comes from --token-file, CELLD_TOKEN or CELLD_TOKEN_FILE.\n"
		      "More about one: celld ctl COMMAND --help\n");
	return ctl_print(&out);
}

int ctl_help_command(const struct command *c)
{
	struct buf out;
	buf_init(&out, 0);
	enum command_id id = options_find_command(c->name);
	buf_printf(&out, "celld ctl %s: %s\nusage: celld ctl %s [OPTION]...%s%s\n\n", c->name, c->help, c->name,
		*c->words ? " " : "", c->words);
	put_options(&out, 1u << id, false);
	put_common(&out);
	if (c->more)
		buf_printf(&out, "\n%s", c->more);
	return ctl_print(&out);
}
