// SPDX-License-Identifier: Apache-2.0
// Commands whose answer comes in one piece.
#include "tests/demo/demo.h"

#include "proto/text.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const struct client *c, const char *key)
{
	const char *s = json_string_value(json_object_get(c->doc, key));
	return s ? s : "-";
}

static long long number_of(const struct client *c, const char *key)
{
	const json_t *v = json_object_get(c->doc, key);
	return json_is_integer(v) ? json_integer_value(v) : -999;
}

// S with each newline shown as a blank.
static const char *one_line(const char *s, char *to, size_t n)
{
	snprintf(to, n, "%s", s);
	for (char *p = to; *p; p++)
		*p = *p == '\n' ? ' ' : *p;
	return to;
}

static void pipeline(struct demo *d, struct client *c)
{
	char line[128];
	client_post(c, "/exec", "{s:s}", "command", "printf '%s\\n' pear fig apple | sort | head -n 2 | tee copy");
	demo_line(d, "a shell pipeline", "exit 0, apple fig ", "exit %lld, %s", number_of(c, "exit_code"),
		one_line(text_of(c, "stdout"), line, sizeof line));
	client_post(c, "/exec", "{s:s}", "command", "cat copy; rm copy; ls copy");
	demo_line(d, "the file it left, read and removed", "exit 2, apple fig ", "exit %lld, %s",
		number_of(c, "exit_code"), one_line(text_of(c, "stdout"), line, sizeof line));
}

static void ends(struct demo *d, struct client *c)
{
	client_post(c, "/exec", "{s:s}", "command", "echo to stderr >&2; exit 7");
	demo_line(d, "an exit code", "exit 7, stderr \"to stderr\"", "exit %lld, stderr \"%.*s\"",
		number_of(c, "exit_code"), (int)strcspn(text_of(c, "stderr"), "\n"), text_of(c, "stderr"));
	client_post(c, "/exec", "{s:s}", "command", "kill -SEGV $$");
	demo_line(d, "a death by signal", "exit -1, SIGSEGV", "exit %lld, %s", number_of(c, "exit_code"),
		text_of(c, "signal"));
	int status = client_post(c, "/exec", "{s:s,s:s}", "command", "true", "workdir", "/no/such/place");
	demo_line(d, "a workdir that is not there", "400 ENOENT", "%d %s", status, text_of(c, "errno"));
}

static void environment(struct demo *d, struct client *c)
{
	static const char show[] = "printf '%s/%s' \"${COLOUR-unset}\" \"${CELLD_DEMO-unset}\"";
	client_post(c, "/exec", "{s:s,s:{s:s}}", "command", show, "env", "COLOUR", "green");
	demo_line(d, "environment of one call", "green/unset", "%s", text_of(c, "stdout"));
	client_post(c, "/exec", "{s:s}", "command", show);
	demo_line(d, "nothing of it or of celld's later", "unset/unset", "%s", text_of(c, "stdout"));
}

// Every byte value, from printf's octal escapes.
static void binary(struct demo *d, struct client *c)
{
	char command[16 + 256 * 4] = "printf '";
	size_t n = strlen(command);
	unsigned char all[256];
	struct buf got = {0};
	for (int i = 0; i < 256; i++) {
		all[i] = (unsigned char)i;
		n += (size_t)snprintf(command + n, sizeof command - n, "\\%03o", (unsigned)i);
	}
	snprintf(command + n, sizeof command - n, "'");
	client_post(c, "/exec", "{s:s,s:s}", "command", command, "encoding", "base64");
	const char *b64 = text_of(c, "stdout");
	int rc = text_b64_decode(&got, b64, strlen(b64));
	bool same = rc == 0 && buf_len(&got) == sizeof all && memcmp(buf_data(&got), all, sizeof all) == 0;
	demo_line(d, "all 256 byte values", "256 bytes, the same", "%zu bytes, %s", buf_len(&got),
		same ? "the same" : "different");
	buf_release(&got);
}

void demo_commands(struct demo *d)
{
	struct client c;
	if (demo_open(d, &c) == 0) { // one connection for all of them
		pipeline(d, &c);
		ends(d, &c);
		environment(d, &c);
		binary(d, &c);
	} else {
		demo_line(d, "connect", "0", "failed");
	}
	client_close(&c);
}
