// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/store.h"
#include "daemon/core/tree.h"
#include "daemon/sandboxd/sandboxd.h"

void sandboxd_ready(void *ctx, struct conn *c)
{
	const struct sandboxd *s = ctx;
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kstr(&w, "status", "ready");
	jsonw_kbool(&w, "venv", workspace_venv(s));
	jsonw_obj_end(&w);
	sandboxd_reply(c, &out);
}

void sandboxd_health(void *ctx, struct conn *c)
{
	(void)ctx;
	conn_reply(c, 204, NULL, NULL, NULL);
}

static int put_stat(void *arg, const struct tree_stat *s)
{
	struct jsonw *w = arg;
	jsonw_obj(w);
	jsonw_kint(w, "pid", s->pid);
	jsonw_kint(w, "ppid", s->ppid);
	jsonw_kstr(w, "comm", s->comm);
	jsonw_key(w, "state");
	jsonw_str(w, &s->state, 1);
	jsonw_obj_end(w);
	return 0;
}

// What celld itself has been through. Clients read "processes" alone.
static void put_daemon(struct jsonw *w, const struct store *store)
{
	struct store_deaths d;
	store_deaths(store, &d);
	jsonw_key(w, "daemon");
	jsonw_obj(w);
	jsonw_kint(w, "restarts", d.restarts);
	jsonw_kint(w, "upgrades", d.upgrades);
	if (d.last_ms > 0) {
		jsonw_kint(w, "last_death_ms", d.last_ms);
		jsonw_kstr(w, "last_death", d.reason);
	}
	jsonw_obj_end(w);
}

void sandboxd_processes(void *ctx, struct conn *c)
{
	const struct sandboxd *s = ctx;
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_key(&w, "processes");
	jsonw_arr(&w);
	int rc = tree_each(put_stat, &w);
	jsonw_arr_end(&w);
	put_daemon(&w, s->store);
	jsonw_obj_end(&w);
	if (rc < 0) {
		struct err e;
		err_sys(&e, rc, "/proc");
		conn_error(c, &e);
		buf_release(&out);
		return;
	}
	sandboxd_reply(c, &out);
}
