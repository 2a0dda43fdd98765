// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/options.h"

#include "tests/gateway/gateway.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

struct load {
	struct options *o;
	const char *from; // the option at work, for messages
	const char *text; // and its value
	int status;
};

// Each takes L's text into the member at AT. False with the reason said.
typedef bool take_value(struct load *l, void *at);

struct option {
	const char *name, *arg; // ARG NULL: a switch
	take_value *take;
	size_t at;
	const char *help;
};

static bool refuse(struct load *l, const char *wanted)
{
	fprintf(stderr, "celld-gateway: %s: \"%s\" is not %s\n", l->from, l->text, wanted);
	l->status = 1;
	return false;
}

// --- kinds of values ---

// Decimal digits up to MAX; -1: something else.
static long whole(const char *s, long max)
{
	long v = 0;
	if (!*s)
		return -1;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -1;
		v = v * 10 + (*s - '0');
		if (v > max)
			return -1;
	}
	return v;
}

// A decimal number from 0 to MAX without sign, exponent or blank; -1: something else.
static double number(const char *s, double max)
{
	char *end;
	if (!*s || strspn(s, "0123456789.") != strlen(s) || strcmp(s, ".") == 0)
		return -1;
	double v = strtod(s, &end);
	return *end || v > max ? -1 : v;
}

static bool take_count(struct load *l, void *at)
{
	long v = whole(l->text, 10000);
	if (v < 0)
		return refuse(l, "a number from 0 to 10000");
	*(size_t *)at = (size_t)v;
	return true;
}

static bool take_max(struct load *l, void *at)
{
	return take_count(l, at) && (*(size_t *)at > 0 || refuse(l, "a number from 1 to 10000"));
}

static bool take_memory(struct load *l, void *at)
{
	long v = whole(l->text, INT_MAX);
	if (v < 0)
		return refuse(l, "a number of MiB");
	*(int *)at = (int)v;
	return true;
}

// What no sandbox can be without.
static bool take_size(struct load *l, void *at)
{
	return take_memory(l, at) && (*(int *)at > 0 || refuse(l, "a number of MiB from 1 on"));
}

static bool take_cpus(struct load *l, void *at)
{
	double v = number(l->text, 65536);
	if (v < 0)
		return refuse(l, "a number of CPUs");
	*(double *)at = v;
	return true;
}

static bool take_seconds(struct load *l, void *at)
{
	double v = number(l->text, 30 * 86400.);
	if (v < 0.01)
		return refuse(l, "a number of seconds from 0.01 to 2592000");
	*(double *)at = v;
	return true;
}

static bool take_text(struct load *l, void *at)
{
	if (!*l->text)
		return refuse(l, "anything");
	*(const char **)at = l->text;
	return true;
}

// What may stand in a header and, in single quotes, in a shell.
static bool take_key(struct load *l, void *at)
{
	for (const char *s = l->text; *s; s++) {
		if (*s <= ' ' || *s > '~' || *s == '\'')
			return refuse(l, "printable text without blanks and quotes");
	}
	return take_text(l, at);
}

static bool take_domain(struct load *l, void *at)
{
	size_t n = strlen(l->text);
	if (n == 0 || n >= sizeof((struct gateway *)NULL)->domain ||
		strspn(l->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:") != n)
		return refuse(l, "a host name with or without a port");
	return take_text(l, at);
}

static bool take_isolation(struct load *l, void *at)
{
	static const char *const words[] = {
		[ISOLATION_AUTO] = "auto", [ISOLATION_NAMESPACES] = "namespaces", [ISOLATION_PLAIN] = "plain"};
	for (size_t i = 0; i < COUNT(words); i++) {
		if (strcmp(l->text, words[i]) == 0) {
			*(enum isolation *)at = (enum isolation)i;
			return true;
		}
	}
	return refuse(l, "auto, namespaces or plain");
}

static bool take_net(struct load *l, void *at)
{
	*(bool *)at = strcmp(l->text, "private") == 0;
	return *(bool *)at || strcmp(l->text, "host") == 0 || refuse(l, "host or private");
}

static bool take_switch(struct load *l, void *at)
{
	(void)l;
	*(bool *)at = true;
	return true;
}

// --- templates ---

static bool take_part(struct load *l, struct template_option *t, const char *part)
{
	if (strncmp(part, "memory=", 7) == 0) {
		long v = whole(part + 7, INT_MAX);
		t->memory_mb = (int)v;
		return v > 0 || refuse(l, "a template whose memory is a number of MiB from 1 on");
	}
	if (strncmp(part, "cpus=", 5) == 0) {
		t->cpus = number(part + 5, 65536);
		return t->cpus >= 0 || refuse(l, "a template whose cpus is a number");
	}
	return refuse(l, "NAME[=DIR][,memory=MB][,cpus=N]");
}

// One of the same name takes the place of the former: "base" can be given too.
static bool put_template(struct load *l, const struct template_option *t)
{
	struct options *o = l->o;
	size_t i = 0;
	while (i < o->template_count && strcmp(o->templates[i].name, t->name) != 0)
		i++;
	if (i == OPTIONS_TEMPLATES)
		return refuse(l, "one of the first 31 templates");
	o->templates[i] = *t;
	if (i == o->template_count)
		o->template_count++;
	return true;
}

static bool take_template(struct load *l, void *at)
{
	(void)at;
	char *s = (char *)(uintptr_t)l->text;
	struct template_option t = {.name = s, .memory_mb = -1, .cpus = -1};
	size_t name = strcspn(s, "=,"), n = strlen(s);
	if (name == 0)
		return refuse(l, "NAME[=DIR][,memory=MB][,cpus=N]");
	// The parts are looked at before the text is cut, so that a refusal shows it whole.
	for (char *comma = strchr(s, ','), *next; comma; comma = next) {
		char part[64];
		next = strchr(comma + 1, ',');
		size_t len = next ? (size_t)(next - comma - 1) : strlen(comma + 1);
		snprintf(part, sizeof part, "%.*s", (int)(len < sizeof part ? len : sizeof part - 1), comma + 1);
		if (!take_part(l, &t, part))
			return false;
	}
	size_t end = strcspn(s, ",");
	if (name < end) {
		t.dir = s + name + 1;
		if (end == name + 1)
			return refuse(l, "NAME[=DIR][,memory=MB][,cpus=N]");
	}
	s[name] = '\0';
	if (end < n)
		s[end] = '\0';
	return put_template(l, &t);
}

// --- the table ---

static const struct option options[] = {
#define AT(member) offsetof(struct options, member)
	{"listen", "ADDR:PORT", take_text, AT(listen), "where the SDKs reach it (127.0.0.1:3000)"},
	{"celld", "FILE", take_text, AT(celld), "the daemon's binary (celld beside this program)"},
	{"dir", "DIR", take_text, AT(dir), "for the sandboxes (a new one under /tmp, removed at the end)"},
	{"domain", "NAME[:PORT]", take_domain, AT(domain), "of sandboxes' host names (localhost:PORT)"},
	{"api-key", "KEY", take_key, AT(api_key), "the one that is accepted (any that is not empty)"},
	{"isolation", "HOW", take_isolation, AT(isolation), "auto, namespaces or plain (auto)"},
	{"net", "WHICH", take_net, AT(private_net), "host, or private: a loopback for each sandbox (host)"},
	{"pool", "N", take_count, AT(pool), "warm sandboxes to keep (2)"},
	{"max-sandboxes", "N", take_max, AT(max), "at once (64)"},
	{"memory", "MB", take_memory, AT(memory_mb), "that all sandboxes may declare, 0 = any (0)"},
	{"cpus", "N", take_cpus, AT(cpus), "that all sandboxes may declare, 0 = unknown, not checked (0)"},
	{"sandbox-memory", "MB", take_size, AT(sandbox_memory_mb), "that a sandbox declares (512)"},
	{"sandbox-cpus", "N", take_cpus, AT(sandbox_cpus), "that a sandbox declares, 0 = unknown (1)"},
	{"sweep", "S", take_seconds, AT(sweep), "seconds between two looks for dead sandboxes (10)"},
	{"grace", "S", take_seconds, AT(grace), "seconds a sandbox may take to start (30)"},
	{"timeout", "S", take_seconds, AT(timeout), "seconds a sandbox lives whose create names none (300)"},
	{"template", "NAME[=DIR][,memory=MB][,cpus=N]", take_template, 0, "one more template; may be repeated"},
	{"verbose", NULL, take_switch, AT(verbose), "the daemons' logs on stderr too"},
	{"url", "URL", take_text, AT(url), "of the gateway that a command is for (E2B_API_URL)"},
#undef AT
};

static void help(void)
{
	puts("celld-gateway: a local E2B control plane over celld, with a pool of warm sandboxes.\n"
	     "Usage: celld-gateway [OPTIONS]\n"
	     "       celld-gateway reclaim|list [--url URL] [--api-key KEY]   to a running one\n");
	for (size_t i = 0; i < COUNT(options); i++) {
		const struct option *x = &options[i];
		char left[64];
		snprintf(left, sizeof left, "--%s%s%s", x->name, x->arg ? " " : "", x->arg ? x->arg : "");
		if (strlen(left) > 28)
			printf("  %s\n  %-28s %s\n", left, "", x->help);
		else
			printf("  %-28s %s\n", left, x->help);
	}
	printf("  %-28s %s\n", "--version, --help", "and nothing else");
}

// --- loading ---

static void set_defaults(struct options *o)
{
	*o = (struct options){
		.listen = "127.0.0.1:3000",
		.pool = 2,
		.max = 64,
		.sandbox_memory_mb = 512,
		.sandbox_cpus = 1,
		.sweep = 10,
		.grace = 30,
		.timeout = 300,
		.templates = {{.name = "base", .memory_mb = -1, .cpus = -1}},
		.template_count = 1,
	};
}

static const struct option *find(const char *name, size_t n)
{
	for (size_t i = 0; i < COUNT(options); i++) {
		if (strlen(options[i].name) == n && memcmp(options[i].name, name, n) == 0)
			return &options[i];
	}
	return NULL;
}

static bool complain(struct load *l, const char *word, const char *what)
{
	fprintf(stderr, "celld-gateway: %s: %s (--help lists all options)\n", word, what);
	l->status = 2;
	return false;
}

// "--name VALUE" or "--name=VALUE". *I moves behind it.
static bool take_option(struct load *l, int argc, char **argv, int *i)
{
	char *word = argv[(*i)++], *equals = strchr(word, '=');
	size_t n = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
	const struct option *x = find(word + 2, n);
	if (!x)
		return complain(l, word, "no such option");
	if (!x->arg && equals)
		return complain(l, word, "takes no value");
	if (x->arg && !equals && *i >= argc)
		return complain(l, word, "needs a value");
	l->from = word;
	l->text = !x->arg ? "" : equals ? equals + 1 : argv[(*i)++];
	if (equals)
		*equals = '\0';
	return x->take(l, (char *)l->o + x->at);
}

static bool take_command(struct load *l, const char *word)
{
	if (strcmp(word, "reclaim") != 0 && strcmp(word, "list") != 0)
		return complain(l, word, "is neither an option nor a command");
	if (l->o->command)
		return complain(l, word, "one command at a time");
	l->o->command = word;
	return true;
}

// True to go on; else the status is set.
static bool take_words(struct load *l, int argc, char **argv)
{
	for (int i = 1; i < argc;) {
		if (strcmp(argv[i], "--help") == 0) {
			help();
			return false;
		}
		if (strcmp(argv[i], "--version") == 0) {
			puts("celld-gateway " GATEWAY_VERSION);
			return false;
		}
		bool ok = strncmp(argv[i], "--", 2) == 0 ? take_option(l, argc, argv, &i) : take_command(l, argv[i++]);
		if (!ok)
			return false;
	}
	return true;
}

// The binary beside our own, or the absolute path of the one that was named.
static bool find_celld(struct load *l)
{
	struct options *o = l->o;
	char own[PATH_MAX];
	const char *wanted = o->celld;
	if (!wanted) {
		ssize_t n = readlink("/proc/self/exe", own, sizeof own - sizeof "celld");
		char *slash = n > 0 ? memrchr(own, '/', (size_t)n) : NULL;
		if (!slash)
			return complain(l, "--celld", "needed: where this program is cannot be found");
		memcpy(slash + 1, "celld", sizeof "celld");
		wanted = own;
	}
	static_assert(sizeof o->path >= PATH_MAX, "realpath writes that much");
	if (!realpath(wanted, o->path) || access(o->path, X_OK) < 0) {
		fprintf(stderr, "celld-gateway: --celld: \"%s\": %s\n", wanted, strerror(errno));
		l->status = 1;
		return false;
	}
	o->celld = o->path;
	return true;
}

bool options_load(struct options *o, int argc, char **argv, int *status)
{
	struct load l = {.o = o};
	set_defaults(o);
	bool run = take_words(&l, argc, argv);
	if (run && o->url && !o->command)
		run = complain(&l, "--url", "is for the commands reclaim and list");
	if (run && !o->command)
		run = find_celld(&l);
	*status = l.status;
	return run;
}
