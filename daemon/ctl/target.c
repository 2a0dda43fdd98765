// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/target.h"
#include "daemon/ctl/ctl_priv.h"
#include "daemon/io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT "127.0.0.1:2024"

// --- where ---

static int set_unix(struct target *t, const char *path, const char *from)
{
	size_t n = strlen(path);
	if (n == 0 || n >= sizeof t->addr.un.sun_path) {
		ctl_say("%s: a socket's path has 1 to %zu bytes", from, sizeof t->addr.un.sun_path - 1);
		return -1;
	}
	t->addr.un.sun_family = AF_UNIX;
	memcpy(t->addr.un.sun_path, path, n + 1);
	t->len = (socklen_t)sizeof t->addr.un;
	(void)snprintf(t->name, sizeof t->name, "unix:%s", path);
	(void)snprintf(t->host, sizeof t->host, "localhost");
	return 0;
}

// HOST is an address or localhost; a wildcard, which a listener may have, means this machine.
static bool set_address(struct target *t, const char *host, in_port_t port)
{
	if (strcmp(host, "localhost") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "*") == 0)
		host = "127.0.0.1";
	if (inet_pton(AF_INET, host, &t->addr.in4.sin_addr) == 1) {
		t->addr.in4.sin_family = AF_INET;
		t->addr.in4.sin_port = port;
		t->len = (socklen_t)sizeof t->addr.in4;
		return true;
	}
	memset(&t->addr, 0, sizeof t->addr);
	if (inet_pton(AF_INET6, host, &t->addr.in6.sin6_addr) != 1)
		return false;
	if (IN6_IS_ADDR_UNSPECIFIED(
		    &t->addr.in6.sin6_addr)) // dual stack, or IPv4 alone if there is no IPv6: that always answers
		return set_address(t, "127.0.0.1", port);
	t->addr.in6.sin6_family = AF_INET6;
	t->addr.in6.sin6_port = port;
	t->len = (socklen_t)sizeof t->addr.in6;
	return true;
}

// HOST:PORT or [HOST]:PORT; FROM is what it comes from.
static int set_tcp(struct target *t, const char *text, const char *from)
{
	char host[80];
	long long port;
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	if (n == 0 || n >= sizeof host || value_count(colon + 1, 1, 65535, &port) < 0) {
		ctl_say("%s: \"%.80s\" is not ADDRESS:PORT", from, text);
		return -1;
	}
	bool brackets = n > 2 && text[0] == '[' && text[n - 1] == ']';
	(void)snprintf(host, sizeof host, "%.*s", (int)(brackets ? n - 2 : n), text + brackets);
	if (!set_address(t, host, htons((in_port_t)port))) {
		ctl_say("%s: \"%s\" is no address (names other than localhost are not looked up)", from, host);
		return -1;
	}
	(void)snprintf(t->name, sizeof t->name, "http://%.100s", text);
	(void)snprintf(t->host, sizeof t->host, "%.90s", text);
	return 0;
}

static int set_url(struct target *t, const char *url, const char *from)
{
	static const char http[] = "http://", https[] = "https://", local[] = "unix:";
	char text[128];
	if (strncmp(url, local, sizeof local - 1) == 0)
		return set_unix(t, url + sizeof local - 1, from);
	if (strncmp(url, https, sizeof https - 1) == 0) {
		ctl_say("%s: https is not spoken here: put http:// in front of a tunnel or a proxy", from);
		return -1;
	}
	if (strncmp(url, http, sizeof http - 1) != 0) {
		ctl_say("%s: \"%.80s\" is neither http://ADDRESS:PORT nor unix:/PATH", from, url);
		return -1;
	}
	(void)snprintf(text, sizeof text, "%s", url + sizeof http - 1);
	size_t n = strlen(text);
	if (n > 0 && text[n - 1] == '/')
		text[n - 1] = '\0';
	return set_tcp(t, text, from);
}

// The first of LIST that a client can use.
static int set_listen(struct target *t, const char *list)
{
	static const char from[] = "CELLD_LISTEN";
	char item[160];
	while (*list) {
		size_t n = strcspn(list, ",");
		(void)snprintf(item, sizeof item, "%.*s", (int)(n < sizeof item ? n : sizeof item - 1), list);
		list += list[n] ? n + 1 : n;
		if (strncmp(item, "unix:", 5) == 0)
			return set_unix(t, item + 5, from);
		if (item[0] && strcmp(item, "off") != 0 && strncmp(item, "fd:", 3) != 0)
			return set_tcp(t, item, from);
	}
	return set_tcp(t, DEFAULT, "default");
}

int target_find(struct target *t, const char *url)
{
	const char *listen = getenv("CELLD_LISTEN");
	if (url)
		return set_url(t, url, "--url");
	url = getenv("CELLD_URL");
	if (url && *url)
		return set_url(t, url, "CELLD_URL");
	return set_listen(t, listen ? listen : "");
}

// --- the token ---

// What the file holds, without its final newline, as the daemon reads it.
static int read_token(struct target *t, const char *file, const char *from)
{
	const char *empty = getenv("CELLD_TOKEN_EMPTY");
	ssize_t n = io_read_file(file, t->token, sizeof t->token);
	if (n < 0) {
		t->token[0] = '\0';
		ctl_say("%s: %.200s: %s", from, file, strerror((int)-n));
		return -1;
	}
	if (n > 0 && t->token[n - 1] == '\n')
		n--;
	if (n > 0 && t->token[n - 1] == '\r')
		n--;
	t->token[n] = '\0';
	if ((n == 0 && empty && strcmp(empty, "none") == 0) ||
		(strlen(t->token) == (size_t)n && value_is_token(t->token)))
		return 0;
	ctl_say("%s: %.200s holds no token", from, file);
	return -1;
}

int target_find_token(struct target *t, const char *file)
{
	const char *token = getenv("CELLD_TOKEN"), *other = getenv("CELLD_TOKEN_FILE");
	if (file)
		return read_token(t, file, "--token-file");
	if (token && *token && other && *other) {
		ctl_say("CELLD_TOKEN: not together with CELLD_TOKEN_FILE");
		return -1;
	}
	if (other && *other)
		return read_token(t, other, "CELLD_TOKEN_FILE");
	if (token && *token && !value_is_token(token)) {
		ctl_say("CELLD_TOKEN: that is no token");
		return -1;
	}
	if (token)
		memcpy(t->token, token, strlen(token) + 1);
	return 0;
}
