// SPDX-License-Identifier: Apache-2.0
// Scripts for shells, from the tables that options are read by.
#include "daemon/config_priv.h"
#include "daemon/ctl/ctl_priv.h"

#include <string.h>

#define SIGNALS "HUP INT QUIT KILL USR1 USR2 TERM CONT STOP TSTP WINCH"

// --- words ---

static void put_commands(struct buf *out)
{
	for (int id = 0; id < COMMANDS; id++) {
		buf_str(out, options_command((enum command_id)id)->name);
		buf_byte(out, ' ');
	}
	buf_str(out, "help");
}

static void put_options(struct buf *out, unsigned mask)
{
	size_t count;
	const struct option_row *rows = options_rows(&count);
	const char *blank = "";
	for (const struct option_row *r = rows; r < rows + count; r++) {
		if (!(r->commands & mask))
			continue;
		buf_printf(out, "%s--%s", blank, r->name);
		blank = " ";
		if (r->letter)
			buf_printf(out, " -%c", r->letter);
	}
}

// Those of the daemon.
static void put_daemon(struct buf *out)
{
	size_t count;
	const struct config_row *rows = config_rows(&count);
	buf_str(out, "ctl");
	for (const struct config_row *r = rows; r < rows + count; r++)
		buf_printf(out, " --%s", r->name);
}

// As a pattern of `case`: those of every command whose value is a word of its own.
static void put_valued(struct buf *out)
{
	size_t count;
	const struct option_row *rows = options_rows(&count);
	const char *bar = "";
	for (const struct option_row *r = rows; r < rows + count; r++) {
		if (!r->arg || !(r->commands >> COMMANDS & 1))
			continue;
		buf_printf(out, "%s--%s", bar, r->name);
		bar = " | ";
	}
}

// --- bash ---

static void put_bash(struct buf *out)
{
	buf_str(out,
		"# bash completion of celld; from `celld ctl completion bash`\n"
		"_celld() {\n"
		"\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= options= words= i\n"
		"\tCOMPREPLY=()\n"
		"\tif [ \"$COMP_CWORD\" -eq 1 ] || [ \"${COMP_WORDS[1]}\" != ctl ]; then\n"
		"\t\tCOMPREPLY=($(compgen -W '");
	put_daemon(out);
	buf_str(out, "' -- \"$cur\"))\n"
		     "\t\treturn\n"
		     "\tfi\n"
		     "\tfor ((i = 2; i < COMP_CWORD; i++)); do\n"
		     "\t\tcase ${COMP_WORDS[i]} in\n\t\t");
	put_valued(out);
	buf_str(out, ") ((i++)) ;;\n"
		     "\t\t-*) ;;\n"
		     "\t\t*) command=${COMP_WORDS[i]}; break ;;\n"
		     "\t\tesac\n"
		     "\tdone\n"
		     "\tcase $command:$prev in\n"
		     "\tkill:-s | kill:--signal) COMPREPLY=($(compgen -W '" SIGNALS "' -- \"$cur\")); return ;;\n"
		     "\t*:--token-file) return ;;\n"
		     "\tesac\n"
		     "\tcase $command in\n"
		     "\t'') words='");
	put_commands(out);
	buf_str(out, "' options='");
	put_options(out, 1u << COMMANDS);
	buf_str(out, "' ;;\n");
	for (int id = 0; id < COMMANDS; id++) {
		buf_printf(out, "\t%s) options='", options_command((enum command_id)id)->name);
		put_options(out, 1u << id);
		buf_str(out, "' ;;\n");
	}
	buf_str(out, "\thelp) words='");
	put_commands(out);
	buf_str(out, "' ;;\n"
		     "\tesac\n"
		     "\tcase $command:$cur in\n"
		     "\t*:-*) words=$options ;;\n"
		     "\tattach:* | kill:*) words=$(\"${COMP_WORDS[0]}\" ctl ps -q 2>/dev/null) ;;\n"
		     "\tcompletion:*) words='bash zsh' ;;\n"
		     "\tesac\n"
		     "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
		     "}\n"
		     "complete -o default -F _celld celld\n");
}

// --- zsh ---

// Inside single quotes, for _describe: "name:help".
static void put_described(struct buf *out, const char *dashes, const char *name, const char *help)
{
	buf_printf(out, "\t\t'%s%s:", dashes, name);
	for (; *help; help++) {
		if (*help == '\'')
			buf_str(out, "'\\''");
		else if (*help == ':')
			buf_str(out, "\\:");
		else
			buf_byte(out, (unsigned char)*help);
	}
	buf_str(out, "'\n");
}

static void put_zsh_options(struct buf *out, unsigned mask)
{
	size_t count;
	const struct option_row *rows = options_rows(&count);
	for (const struct option_row *r = rows; r < rows + count; r++) {
		const char letter[2] = {r->letter, '\0'};
		if (!(r->commands & mask))
			continue;
		put_described(out, "--", r->name, r->help);
		if (r->letter)
			put_described(out, "-", letter, r->help);
	}
}

static void put_zsh(struct buf *out)
{
	buf_str(out, "#compdef celld\n"
		     "# zsh completion of celld; from `celld ctl completion zsh`\n"
		     "_celld() {\n"
		     "\tlocal -a commands options\n"
		     "\tlocal command= i\n"
		     "\tif (( CURRENT == 2 )) || [[ $words[2] != ctl ]]; then\n"
		     "\t\tcompadd -- ");
	put_daemon(out);
	buf_str(out, "\n"
		     "\t\treturn\n"
		     "\tfi\n"
		     "\tfor (( i = 3; i < CURRENT; i++ )); do\n"
		     "\t\tcase $words[i] in\n\t\t(");
	put_valued(out);
	buf_str(out, ") (( i++ )) ;;\n"
		     "\t\t(-*) ;;\n"
		     "\t\t(*) command=$words[i]; break ;;\n"
		     "\t\tesac\n"
		     "\tdone\n"
		     "\tcommands=(\n");
	for (int id = 0; id < COMMANDS; id++)
		put_described(out, "", options_command((enum command_id)id)->name,
			options_command((enum command_id)id)->help);
	buf_str(out, "\t)\n"
		     "\tcase $command in\n"
		     "\t('') options=(\n");
	put_zsh_options(out, 1u << COMMANDS);
	buf_str(out, "\t) ;;\n");
	for (int id = 0; id < COMMANDS; id++) {
		buf_printf(out, "\t(%s) options=(\n", options_command((enum command_id)id)->name);
		put_zsh_options(out, 1u << id);
		buf_str(out, "\t) ;;\n");
	}
	buf_str(out, "\tesac\n"
		     "\tcase $command:$words[CURRENT] in\n"
		     "\t(*:-*) _describe -o option options ;;\n"
		     "\t(:* | help:*) _describe command commands ;;\n"
		     "\t(attach:* | kill:*) compadd -- ${(f)\"$($words[1] ctl ps -q 2>/dev/null)\"} ;;\n"
		     "\t(completion:*) compadd bash zsh ;;\n"
		     "\t(*) _files ;;\n"
		     "\tesac\n"
		     "}\n"
		     "if [[ $funcstack[1] == _celld ]]; then\n"
		     "\t_celld \"$@\"\n"
		     "else\n"
		     "\tcompdef _celld celld\n"
		     "fi\n");
}

int ctl_completion(struct ctl *ctl)
{
	struct buf out;
	buf_init(&out, 0);
	if (strcmp(ctl->words[0], "bash") == 0)
		put_bash(&out);
	else if (strcmp(ctl->words[0], "zsh") == 0)
		put_zsh(&out);
	else
		return ctl_usage(ctl, "\"%.40s\" is neither bash nor zsh", ctl->words[0]);
	return ctl_print(&out);
}
