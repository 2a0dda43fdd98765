// SPDX-License-Identifier: Apache-2.0
// gatewaykit: starts and stops the fake gateway for one test, and speaks to it: the control plane's calls, and those to a sandbox, for which
// the headers of struct sbx go with the clients of calls.h and sse.h. Everything fails the running test by itself; the caller frees.
//
//	struct gw *g = gw_start("--pool", "1");
//	struct sbx s;
//	gw_create(g, &s, "{\"templateID\":\"base\"}");
//	struct played o = {0};
//	sh_play(g->d, CODEC_JSON, s.headers, "echo hi", &o);
//	...
//	gw_finish(g);                  // always last: nothing is left behind
#ifndef CELLD_TESTS_INTEGRATION_GATEWAYKIT_H
#define CELLD_TESTS_INTEGRATION_GATEWAYKIT_H

#include "tests/integration/calls.h"
#include "tests/integration/harness.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define GW_KEY "X-API-Key: e2b_00\r\n"
#define GW_BASE "{\"templateID\":\"base\"}"

struct gw {
	struct testd *d; // its address is that of both surfaces here, so that their clients reach sandboxes through it
	char dir[300];   // --dir
	bool isolated;   // sandboxes have namespaces
	bool sanitized;
};

struct sbx {
	char id[80];
	char token[160]; // "" = none
	char domain[128];
	char headers[512];   // to port 49983
	char a_headers[512]; // to port 2024
};

// The gateway with --listen 127.0.0.1:0 and --dir in the test's own directory, then the given options; waits for the ready line. The GATEWAY of the
// environment, or the one beside CELLD.
#define gw_start(...) gw_start_args((const char *const[]){"", ##__VA_ARGS__, NULL} + 1)
struct gw *gw_start_args(const char *const *args);
// Asserts that it lives, stops it and wants exit status 0, no process, mount, control group or
// directory left, and nothing of a sanitizer in its log.
void gw_finish(struct gw *g);

// --- control plane ---

// One request with the API key; BODY is JSON text or NULL. R is released first.
void gw_api(const struct gw *g, const char *method, const char *target, const char *body, struct resp *r);
// The same, wants STATUS.
void gw_want(const struct gw *g, const char *method, const char *target, const char *body, int status, struct resp *r);
// The same, with the target by a format that has one %s for ID.
void gw_on(const struct gw *g, const char *method, const char *format, const char *id, const char *body, int status,
	struct resp *r);
// Fails unless R is {"code":STATUS,"message":MESSAGE} and JSON. MESSAGE NULL: any that is not empty.
void gw_error(struct resp *r, int status, const char *message);
// The array that R is; borrowed.
json_t *gw_array(struct resp *r);
// 201 to POST /v2/sandboxes.
void gw_create(const struct gw *g, struct sbx *s, const char *body);
void gw_take_sandbox(struct resp *r, struct sbx *s); // from an answer that is a Sandbox
void gw_kill(const struct gw *g, const struct sbx *s);

// --- to a sandbox ---

// GET /health through the proxy: its status.
int gw_health(const struct gw *g, const struct sbx *s);
// Fails unless a request to it is answered with the contract's 502 object.
void gw_gone(const struct gw *g, const struct sbx *s);
void gw_want_gone(struct resp *r, const char *id);
// SCRIPT run by sh over surface B; its standard output, the caller's (free). Wants exit status 0.
char *gw_sh(const struct gw *g, const struct sbx *s, const char *script);
// A file through /files.
void gw_put(const struct gw *g, const struct sbx *s, const char *path, const void *p, size_t n);
void gw_get(const struct gw *g, const struct sbx *s, const char *path, struct buf *out);

// --- operators ---

// GET /gateway/sandboxes: the caller's (json_decref).
json_t *gw_slots(const struct gw *g);
// How many of them are in STATE.
size_t gw_in(const struct gw *g, const char *state);
// Waits until exactly that many are.
void gw_await(const struct gw *g, const char *state, size_t count);
// The pid of the PID 1 of the one that runs S, and its slot's number (may be NULL).
pid_t gw_pid(const struct gw *g, const struct sbx *s, int64_t *number);
// KILL to it, and waits until the process is gone.
void gw_crash(const struct gw *g, const struct sbx *s);
int64_t gw_reclaim(const struct gw *g); // POST /gateway/reclaim: "reclaimed"

// --- a server within a sandbox: this program itself ---

// Uploads and starts it in S: the port that it listens on. The stream that holds it goes to *RUN (stream_close).
int gw_serve(const struct gw *g, const struct sbx *s, struct stream **run);
// What it is there: main's mode "--serve".
int gateway_serve(void);

#endif
