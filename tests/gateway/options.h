// SPDX-License-Identifier: Apache-2.0
// options: the gateway's command line, a plain struct. Strings point into argv (which --template cuts into pieces) or into the struct itself.
#ifndef CELLD_GATEWAY_OPTIONS_H
#define CELLD_GATEWAY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#define OPTIONS_TEMPLATES 32

enum isolation { ISOLATION_AUTO, ISOLATION_NAMESPACES, ISOLATION_PLAIN };

// --template NAME[=DIR][,memory=MB][,cpus=N]: DIR's content is copied into the workspace of each sandbox made from it.
struct template_option {
	const char *name, *dir; // dir NULL: an empty workspace
	int memory_mb;          // -1: --sandbox-memory
	double cpus;            // -1: --sandbox-cpus; 0 = unknown
};

struct options {
	const char *
		celld; // absolute path of the daemon's binary, which can be run (--celld; default: beside the gateway's own)
	const char *listen;  // --listen ADDR:PORT, default 127.0.0.1:3000
	const char *dir;     // --dir, for all sandboxes; NULL: a new one under /tmp, removed at the end
	const char *domain;  // --domain; NULL: localhost:PORT
	const char *api_key; // --api-key; NULL: any non-empty key
	enum isolation isolation;
	bool private_net;      // --net host|private: private = a network of its own for each sandbox, loopback only
	size_t pool;           // --pool N: warm ones to keep, default 2
	size_t max;            // --max-sandboxes N: slots at once, default 64
	int memory_mb;         // --memory MB: the node's budget, 0 = without limit (default)
	double cpus;           // --cpus N: the node's budget, 0 = unknown: no CPU check (default)
	int sandbox_memory_mb; // --sandbox-memory, 512
	double sandbox_cpus;   // --sandbox-cpus, 1; 0 = unknown
	double sweep;          // --sweep S, 10
	double grace;          // --grace S: a pending one older is reclaimed, default 30
	double timeout;        // --timeout S: of a sandbox whose create names none, 300
	bool verbose;          // --verbose: the daemons' logs on stderr too
	struct template_option templates[OPTIONS_TEMPLATES]; // "base" is always first
	size_t template_count;
	// `celld-gateway reclaim|list [--url URL]`: a command to a running gateway instead of one
	const char *command, *url;
	char path[4096]; // private: what CELLD points to, so that a copy of the struct is no use
};

// Fills O. True to run; false with *STATUS set after --help, --version or an error (said on stderr).
bool options_load(struct options *o, int argc, char **argv, int *status);

#endif
