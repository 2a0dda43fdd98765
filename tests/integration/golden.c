// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/golden.h"

#include "tests/integration/harness.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void golden_open(struct golden *g, const char *name)
{
	char path[256];
	struct buf text = {0};
	size_t n;
	(void)snprintf(path, sizeof path, "tests/golden/envd/%s.http", name);
	FILE *f = fopen(path, "re");
	ck_assert_msg(f, "no %s: tests run in the root of the tree", path);
	do {
		unsigned char *room = buf_reserve(&text, 65536);
		ck_assert_ptr_nonnull(room);
		n = fread(room, 1, 65536, f);
		buf_commit(&text, n);
	} while (n > 0);
	(void)fclose(f);
	*g = (struct golden){.text = buf_take(&text, NULL)};
	ck_assert_ptr_nonnull(g->text);
	g->at = g->text;
}

void golden_close(struct golden *g)
{
	free(g->text);
	*g = (struct golden){0};
}

// Cuts the text at the first MARK and returns what is behind it, or NULL.
static char *cut(char *text, const char *mark)
{
	char *p = text ? strstr(text, mark) : NULL;
	if (!p)
		return NULL;
	*p = '\0';
	return p + strlen(mark);
}

// Header lines and body of a message; what stands behind the last line of either is a '\n' at most.
static char *split(char *head)
{
	if (*head == '\n')
		return head + 1;
	char *body = strstr(head, "\n\n");
	if (!body)
		return NULL;
	body[1] = '\0';
	return body + 2;
}

// Without the lines that stand for chunks, remarks, and the end of the last line.
static void plain(char *body)
{
	char *to = body;
	for (char *line = body; line && *line;) {
		char *end = strchr(line, '\n');
		size_t n = end ? (size_t)(end - line) + 1 : strlen(line);
		bool skip = strncmp(line, "<chunked body", 13) == 0 || strncmp(line, "<last chunk>", 12) == 0 ||
			    strncmp(line, "# ", 2) == 0 || *line == '\n';
		if (!skip) {
			memmove(to, line, n);
			to += n;
		}
		line = end ? line + n : NULL;
	}
	while (to > body && to[-1] == '\n')
		to--;
	*to = '\0';
}

bool golden_next(struct golden *g)
{
	char *start = g->at ? strstr(g->at, "======== ") : NULL;
	if (!start)
		return false;
	char *next = strstr(start + 1, "\n======== ");
	if (next)
		*next++ = '\0';
	g->at = next;
	g->label = start;
	char *request = cut(start, "\n");
	char *answer = cut(request, "-------- response\n");
	ck_assert_msg(answer, "%s: no answer", g->label);
	char *version = cut(request, " HTTP/1.1\n");
	ck_assert_msg(version, "%s: no request line", g->label);
	g->method = request;
	g->target = cut(request, " ");
	g->head = version;
	g->body = split(version);
	if (g->body)
		plain(g->body);
	ck_assert_int_eq(sscanf(answer, "HTTP/1.1 %d", &g->status), 1);
	g->answer_head = cut(answer, "\n");
	g->answer = split(g->answer_head);
	if (g->answer)
		plain(g->answer);
	return true;
}

bool golden_header(const char *head, const char *name, struct buf *out)
{
	size_t n = strlen(name);
	for (const char *p = head; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : p) {
		if (strncasecmp(p, name, n) != 0 || p[n] != ':')
			continue;
		buf_append(out, p + n + 2, strcspn(p + n + 2, "\n"));
		return true;
	}
	return false;
}

static bool varies(const char *name)
{
	return strncmp(name, "content-length", 14) == 0 || strncmp(name, "transfer-encoding", 17) == 0;
}

static void put_line(struct buf *out, const char *name, const char *value)
{
	if (!varies(name))
		buf_printf(out, "%s: %s\n", name, strcmp(name, "date") == 0 ? "<DATE>" : value);
}

void golden_assert_head(const struct golden *g, const struct resp *r)
{
	struct buf want = {0}, got = {0};
	const char *name;
	json_t *value;
	char *head = strdup(g->answer_head), *save = NULL;
	ck_assert_ptr_nonnull(head);
	for (char *line = strtok_r(head, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *colon = strstr(line, ": ");
		ck_assert_ptr_nonnull(colon);
		*colon = '\0';
		for (char *p = line; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		put_line(&want, line, colon + 2);
	}
	json_object_foreach(r->headers, name, value)
	{
		put_line(&got, name, json_string_value(value));
	}
	ck_assert_msg(strcmp(buf_cstr(&got), buf_cstr(&want)) == 0, "%s: got\n%s\nwant\n%s", g->label, buf_cstr(&got),
		buf_cstr(&want));
	buf_release(&want);
	buf_release(&got);
	free(head);
}
