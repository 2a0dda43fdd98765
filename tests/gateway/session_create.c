// SPDX-License-Identifier: Apache-2.0
// A session from a create's body: what is checked, what is kept of it.
#include "daemon/io.h"
#include "proto/json.h"
#include "tests/gateway/session_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

// Copies the object of strings KEY into *OUT. ENV: its keys have to be names of variables.
static int take_strings(const json_t *doc, const char *key, bool env, json_t **out, struct err *e)
{
	const json_t *from = NULL;
	const char *name, *text;
	json_t *value;
	if (jsonr_obj(doc, key, 0, &from, e) < 0)
		return -1;
	if (!from)
		return 0;
	json_t *copy = json_deep_copy(from);
	if (!copy)
		return err_sys(e, -ENOMEM, "%s", key);
	*out = copy;
	json_object_foreach(copy, name, value)
	{
		text = json_string_value(value);
		if (!text)
			return err_set(e, ERR_INVALID_ARGUMENT, "%s.%s must be a string", key, name);
		if (strlen(text) != json_string_length(value))
			return err_set(e, ERR_INVALID_ARGUMENT, "%s.%s must not contain NUL", key, name);
		if (env && (!*name || strchr(name, '=')))
			return err_set(e, ERR_INVALID_ARGUMENT, "%s: '%s' is not a variable's name", key, name);
	}
	return 0;
}

static int take_lifecycle(struct session *s, const json_t *doc, struct err *e)
{
	const json_t *resume = NULL;
	s->auto_pause_memory = true;
	if (jsonr_bool(doc, "autoPause", 0, &s->auto_pause, e) < 0 ||
		jsonr_bool(doc, "autoPauseMemory", 0, &s->auto_pause_memory, e) < 0 ||
		jsonr_obj(doc, "autoResume", 0, &resume, e) < 0)
		return -1;
	if (resume && jsonr_bool(resume, "enabled", 0, &s->auto_resume, e) < 0)
		return -1;
	if (!s->auto_pause_memory && !s->auto_pause)
		return err_set(e, ERR_INVALID_ARGUMENT, "autoPauseMemory false needs autoPause");
	if (!s->auto_pause_memory && s->auto_resume)
		return err_set(e, ERR_INVALID_ARGUMENT, "autoResume needs the memory kept");
	return 0;
}

static int take_timeout(struct session *s, const json_t *doc, struct err *e)
{
	s->timeout_s = (int64_t)s->g->options->timeout;
	if (jsonr_int(doc, "timeout", 0, INT32_MIN, INT32_MAX, &s->timeout_s, e) < 0)
		return -1;
	if (s->timeout_s <= 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "Timeout must be greater than 0");
	return 0;
}

// --- network ---

// What a PUT replaces; null counts as absent everywhere, and is never shown.
static const struct egress {
	const char *key;
	json_type type;
} egress[] = {
	{"allowOut", JSON_ARRAY},
	{"denyOut", JSON_ARRAY},
	{"rules", JSON_OBJECT},
	{"egressProxy", JSON_OBJECT},
	{"dnsServers", JSON_ARRAY},
};

static int take_egress(json_t *to, const json_t *doc, const struct egress *row, struct err *e)
{
	json_t *value = json_object_get(doc, row->key);
	(void)json_object_del(to, row->key);
	if (!value || json_is_null(value))
		return 0;
	if (json_typeof(value) != row->type)
		return err_set(e, ERR_INVALID_ARGUMENT, "network: %s must be an %s", row->key,
			row->type == JSON_ARRAY ? "array" : "object");
	json_t *copy = json_deep_copy(value);
	if (copy && row->type == JSON_OBJECT)
		(void)json_object_del(copy, "password"); // egressProxy's
	return json_object_set_new(to, row->key, copy) < 0 ? err_sys(e, -ENOMEM, "network") : 0;
}

int session_set_network(struct session *s, const json_t *doc, struct err *e)
{
	json_t *to = s->network ? json_copy(s->network) : json_object();
	int rc = to ? 0 : err_sys(e, -ENOMEM, "network");
	for (size_t i = 0; rc == 0 && i < sizeof egress / sizeof *egress; i++)
		rc = take_egress(to, doc, &egress[i], e);
	if (rc < 0) {
		json_decref(to);
		return -1;
	}
	json_decref(s->network);
	s->network = to;
	return 0;
}

static int take_network(struct session *s, const json_t *doc, struct err *e)
{
	static const char *const kept[] = {"allowPublicTraffic", "maskRequestHost", "httpsPorts"};
	const json_t *from = NULL;
	bool allowed = true;
	int rc = jsonr_bool(doc, "allow_internet_access", 0, &allowed, e);
	if (rc < 0 || jsonr_obj(doc, "network", 0, &from, e) < 0)
		return -1;
	s->internet = rc > 0 ? allowed : -1;
	if (!from)
		return 0;
	if (session_set_network(s, from, e) < 0)
		return -1;
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
		json_t *value = json_object_get(from, kept[i]);
		if (value && !json_is_null(value) &&
			json_object_set_new(s->network, kept[i], json_deep_copy(value)) < 0)
			return err_sys(e, -ENOMEM, "network");
	}
	return 0;
}

static int take_volumes(struct session *s, const json_t *doc, struct err *e)
{
	const json_t *from = json_object_get(doc, "volumeMounts");
	if (!from || json_is_null(from))
		return 0;
	if (!json_is_array(from))
		return err_set(e, ERR_INVALID_ARGUMENT, "volumeMounts must be an array");
	s->volumes = json_deep_copy(from);
	return s->volumes ? 0 : err_sys(e, -ENOMEM, "volumeMounts");
}

// --- template ---

static bool names(const struct template_option *t, const char *name)
{
	size_t n = strlen(t->name);
	if (strncmp(name, t->name, n) != 0)
		return false;
	// There is one version of each.
	return name[n] == '\0' || strcmp(name + n, ":default") == 0 || strcmp(name + n, ":latest") == 0;
}

static int take_template(struct session *s, const json_t *doc, struct err *e)
{
	const struct options *o = s->g->options;
	const char *name = NULL;
	s->size = (struct slot_size){o->sandbox_memory_mb, o->sandbox_cpus};
	if (jsonr_str(doc, "templateID", JSONR_REQUIRED, &name, NULL, e) < 0)
		return -1;
	s->template = strdup(name);
	if (!s->template)
		return err_sys(e, -ENOMEM, "templateID");
	for (size_t i = 0; i < o->template_count; i++) {
		const struct template_option *t = &o->templates[i];
		if (!names(t, name))
			continue;
		s->template_dir = t->dir;
		if (t->memory_mb >= 0)
			s->size.memory_mb = t->memory_mb;
		if (t->cpus >= 0)
			s->size.cpus = t->cpus;
		return 0;
	}
	struct snapshot *p = snapshots_find(s->g->sessions->snapshots, name);
	if (!p)
		return err_set(e, ERR_NOT_FOUND, "template '%s' not found", name);
	s->template_snapshot = p;
	s->size = p->size;
	snapshot_hold(p);
	return 0;
}

// --- token ---

static int take_token(struct session *s, const json_t *doc, struct err *e)
{
	unsigned char bytes[SESSION_TOKEN / 2];
	bool secure = true;
	if (jsonr_bool(doc, "secure", 0, &secure, e) < 0)
		return -1;
	if (!secure)
		return 0;
	if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
		return err_sys(e, -errno, "token");
	s->token = malloc(SESSION_TOKEN + 1);
	if (!s->token)
		return err_sys(e, -ENOMEM, "token");
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(s->token + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

struct session *session_create(struct gateway *g, const json_t *doc, struct err *e)
{
	struct session *s = session_new(g, e);
	if (!s)
		return NULL;
	if (take_timeout(s, doc, e) < 0 || take_strings(doc, "metadata", false, &s->metadata, e) < 0 ||
		take_strings(doc, "envVars", true, &s->env, e) < 0 || take_lifecycle(s, doc, e) < 0 ||
		take_network(s, doc, e) < 0 || take_volumes(s, doc, e) < 0 || take_template(s, doc, e) < 0 ||
		take_token(s, doc, e) < 0 || session_boot(s, s->timeout_s, e) < 0) {
		session_end(s, "could not be created", e);
		return NULL;
	}
	return s;
}
