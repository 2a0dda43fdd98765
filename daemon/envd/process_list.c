// SPDX-License-Identifier: Apache-2.0
// List: what the clients of both surfaces have asked for, word for word.
#include "daemon/envd/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// One entry with all it points to, but for the strings of the process itself.
struct listed {
	Process__ProcessInfo info;
	Process__ProcessConfig config;
	Process__ProcessConfig__EnvsEntry **envs;
	Process__ProcessConfig__EnvsEntry *entries;
};

static size_t count(const char *const *list)
{
	size_t n = 0;
	while (list[n])
		n++;
	return n;
}

static void listed_free(struct listed *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->config.n_envs; i++)
		free(l->entries[i].key);
	free(l->entries);
	free(l->envs);
	free(l);
}

static int put_envs(struct listed *l, const char *const *env)
{
	size_t n = count(env);
	if (!n)
		return 0;
	l->envs = calloc(n, sizeof(*l->envs));
	l->entries = calloc(n, sizeof(*l->entries));
	if (!l->envs || !l->entries)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		Process__ProcessConfig__EnvsEntry *entry = &l->entries[i];
		process__process_config__envs_entry__init(entry);
		entry->key = strdup(env[i]); // the value is behind the name, in the same piece
		if (!entry->key)
			return -ENOMEM;
		l->config.n_envs++;
		l->envs[i] = entry;
		size_t name = strcspn(entry->key, "=");
		entry->value = entry->key + name + (entry->key[name] == '=');
		entry->key[name] = '\0';
	}
	l->config.envs = l->envs;
	return 0;
}

static struct listed *listed_new(const struct proc *p)
{
	struct listed *l = calloc(1, sizeof *l);
	const struct asked *a = proc_asked(p);
	if (!l)
		return NULL;
	process__process_info__init(&l->info);
	process__process_config__init(&l->config);
	l->info.pid = (uint32_t)proc_pid(p);
	l->info.config = &l->config;
	l->config.cmd = (char *)(a ? a->argv[0] : proc_command(p));
	if (!a)
		return l;
	l->config.n_args = count(a->argv) - 1;
	l->config.args = (char **)(a->argv + 1);
	if (a->cwd) {
		l->config._cwd_case = PROCESS__PROCESS_CONFIG___CWD_CWD;
		l->config.cwd = (char *)a->cwd;
	}
	if (a->tag) {
		l->info._tag_case = PROCESS__PROCESS_INFO___TAG_TAG;
		l->info.tag = (char *)a->tag;
	}
	if (put_envs(l, a->env) == 0)
		return l;
	listed_free(l);
	return NULL;
}

static bool is_listed(const struct proc *p)
{
	return proc_waitable(p) && proc_kind(p) != PROC_INTERNAL;
}

void process_list(struct rpc *r, const ProtobufCMessage *m)
{
	(void)m;
	struct procs *t = rpc_envd(r)->procs;
	Process__ListResponse answer = PROCESS__LIST_RESPONSE__INIT;
	struct listed **all = calloc(procs_living(t) + 1, sizeof(*all));
	answer.processes = calloc(procs_living(t) + 1, sizeof(*answer.processes));
	bool ok = all && answer.processes;
	for (const struct proc *p = procs_first(t); ok && p; p = proc_next(p)) {
		if (!is_listed(p))
			continue;
		struct listed *l = listed_new(p);
		ok = l != NULL;
		if (!ok)
			break;
		answer.processes[answer.n_processes] = &l->info;
		all[answer.n_processes++] = l;
	}
	if (ok)
		rpc_reply(r, &answer.base);
	else
		rpc_errorf(r, ERR_RESOURCE_EXHAUSTED, "out of memory");
	for (size_t i = 0; i < answer.n_processes; i++)
		listed_free(all[i]);
	free(answer.processes);
	free(all);
}
