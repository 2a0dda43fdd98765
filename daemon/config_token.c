// SPDX-License-Identifier: Apache-2.0
#include "daemon/config_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// The token file into OUT, empty if it is and may be; NOW: without a wait for anybody. Its final newline is not part of the token. 0 or negative errno.
static int read_token(const struct config *c, bool now, char out[VALUE_TOKEN_MAX + 3])
{
	const size_t room = VALUE_TOKEN_MAX + 3; // CR, LF and the NUL
	ssize_t n = now ? io_read_file_now(c->token_file, out, room) : io_read_file(c->token_file, out, room);
	if (n < 0)
		return (int)n;
	if (n > 0 && out[n - 1] == '\n')
		n--;
	if (n > 0 && out[n - 1] == '\r')
		n--;
	bool nul = memchr(out, '\0', (size_t)n) != NULL;
	out[n] = '\0';
	return (n == 0 && c->token_optional) || (!nul && value_is_token(out)) ? 0 : -EINVAL;
}

static void put_file_token(struct config *c, const char *token)
{
	memcpy(c->file_token, token, strlen(token) + 1);
	c->token = *token ? c->file_token : NULL;
}

static enum config_action take_handed(struct config_load *l)
{
	struct config *c = l->c;
	char *copy = malloc(VALUE_TOKEN_MAX + 1);
	if (!copy || strlen(l->handed) > VALUE_TOKEN_MAX) {
		free(copy);
		log_plain("celld: token: %s", strerror(copy ? EINVAL : ENOMEM));
		l->status = 1;
		return CONFIG_EXIT;
	}
	memcpy(copy, l->handed, strlen(l->handed) + 1);
	c->token = *copy ? copy : NULL;
	if (c->token_file)
		c->file_token = copy;
	else if (!*copy)
		free(copy);
	return CONFIG_RUN;
}

enum config_action config_load_token(struct config_load *l)
{
	struct config *c = l->c;
	char text[96], token[VALUE_TOKEN_MAX + 3];
	if (l->handed)
		return take_handed(l);
	if (!c->token_file)
		return CONFIG_RUN;
	if (c->token) {
		log_plain("celld: %s: not together with %s", l->token_from, l->file_from);
		l->status = 2;
		return CONFIG_EXIT;
	}
	int rc = read_token(c, false, token);
	c->file_token = rc == 0 ? malloc(VALUE_TOKEN_MAX + 1) : NULL;
	if (c->file_token) {
		put_file_token(c, token);
		explicit_bzero(token, sizeof(token));
		return CONFIG_RUN;
	}
	l->status = 1;
	config_shown(c->token_file, text, sizeof(text));
	if (rc == -EINVAL || rc == -EFBIG)
		log_plain("celld: %s: \"%s\" holds no token (" CONFIG_TOKEN_WANTS ")", l->file_from, text);
	else
		log_plain("celld: %s: \"%s\": %s", l->file_from, text, strerror(rc < 0 ? -rc : ENOMEM));
	return CONFIG_EXIT;
}

int config_reload_token(struct config *c)
{
	char token[VALUE_TOKEN_MAX + 3];
	struct stat st;
	if (!c->token_file || !c->file_token)
		return -EINVAL;
	// A pipe (`--token-file <(...)`) gave what it had at the start; opening it again could block for ever.
	if (stat(c->token_file, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESPIPE;
	int rc = read_token(c, true, token);
	if (rc == 0)
		put_file_token(c, token);
	explicit_bzero(token, sizeof(token));
	return rc;
}
