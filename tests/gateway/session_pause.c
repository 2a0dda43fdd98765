// SPDX-License-Identifier: Apache-2.0
// A session's lifetime, and its pauses: frozen in its slot, or only its workspace kept and the slot given back.
#include "daemon/io.h"
#include "proto/text.h"
#include "tests/gateway/session_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// --- lifetime ---

static void expire(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct session *s = w->data;
	struct err e;
	(void)loop;
	(void)revents;
	if (s->deadline_ns > io_mono_ns()) {
		session_timer(s, true); // the loop's clock is behind
		return;
	}
	if (!s->auto_pause || session_pause(s, s->auto_pause_memory, &e) < 0)
		session_end(s, "has reached its timeout", NULL);
}

void session_expiry_init(struct session *s)
{
	ev_timer_init(&s->expiry, expire, 0., 0.);
	s->expiry.data = s;
}

void session_timer(struct session *s, bool on)
{
	ev_timer_stop(s->g->loop, &s->expiry);
	if (!on)
		return;
	int64_t left = s->deadline_ns - io_mono_ns();
	ev_timer_set(&s->expiry, left > 0 ? (double)left / 1e9 : 0., 0.);
	ev_timer_start(s->g->loop, &s->expiry);
}

void session_lifetime(struct session *s, int64_t seconds, bool extend)
{
	int64_t deadline = io_mono_ns() + (seconds > 0 ? seconds : 0) * 1000000000;
	if (extend && deadline <= s->deadline_ns)
		return;
	s->deadline_ns = deadline;
	s->end_ms = io_wall_ms() + (seconds > 0 ? seconds : 0) * 1000;
	if (s->state == SESSION_RUNNING)
		session_timer(s, true);
}

// --- pause ---

int session_paused_path(const struct session *s, bool work, char *path, size_t size)
{
	int n = snprintf(path, size, "%s/paused/%s%s", node_root(s->g), s->id, work ? "/work" : "");
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

// Moves the claim out of the slot and gives that up. Its box is frozen.
static int keep_files(struct session *s)
{
	char to[SESSION_PATH];
	int rc = session_paused_path(s, false, to, sizeof to);
	if (rc < 0)
		return rc;
	char *leaf = strrchr(to, '/');
	*leaf = '\0';
	if (mkdir(to, 0700) < 0 && errno != EEXIST)
		return -errno;
	*leaf = '/';
	rc = node_keep_claim(s->slot, to);
	if (rc < 0)
		return rc;
	s->files_only = true;
	s->slot->session = NULL;
	pool_release(s->slot, false, io_mono_ns());
	s->slot = NULL;
	return 0;
}

static void removed(void *arg, int status)
{
	(void)arg;
	(void)status;
}

void session_drop_files(struct session *s)
{
	char path[SESSION_PATH], away[SESSION_PATH + 32];
	if (session_paused_path(s, false, path, sizeof path) < 0)
		return;
	// Out of the way at once: it may be paused again before the removal is through.
	snprintf(away, sizeof away, "%s.%" PRIu64, path, ++s->g->sessions->serial);
	(void)job_remove(s->g->loop, rename(path, away) < 0 ? path : away, removed, NULL);
}

int session_pause(struct session *s, bool memory, struct err *e)
{
	struct box *b = session_box(s);
	if (!b)
		return session_not_found(e);
	session_timer(s, false);
	s->state = SESSION_MOVING;
	// Frozen first also where only the files are kept: nothing is written to them any more.
	int rc = box_freeze(b);
	if (rc == 0 && !memory)
		rc = keep_files(s);
	if (rc < 0) {
		err_sys(e, rc, "Error pausing sandbox");
		if (box_frozen(b))
			(void)box_thaw(b);
		s->state = SESSION_RUNNING;
		session_timer(s, true);
		return -1;
	}
	s->state = SESSION_PAUSED;
	s->end_ms = io_wall_ms();
	session_tell_watches(s, "was paused");
	return 0;
}

// --- and back ---

// Its daemon is dead, only the pool does not know yet; or it could not be continued.
static int thaw(struct session *s, int64_t lifetime_s, struct err *e)
{
	struct box *b = s->slot ? node_box(s->slot) : NULL;
	int rc = b && box_alive(b) ? box_thaw(b) : -ESRCH;
	if (rc == -ESRCH)
		return session_not_found(e);
	if (rc < 0)
		return err_sys(e, rc, "the sandbox could not be continued");
	s->state = SESSION_RUNNING;
	s->deadline_ns = 0;
	session_lifetime(s, lifetime_s, false);
	s->cpu_ns = 0;
	return 0;
}

int session_resume(struct session *s, int64_t lifetime_s, bool reboot, struct err *e)
{
	if (s->making)
		return err_http(e, 409, ERR_ABORTED, "The sandbox is still transitioning. Try again in a moment.");
	if (reboot && !s->files_only) {
		int rc = keep_files(s);
		if (rc < 0)
			return err_sys(e, rc, "the sandbox could not be rebooted");
	}
	if (!s->files_only)
		return thaw(s, lifetime_s, e);
	if (session_boot(s, lifetime_s, e) < 0)
		return -1;
	s->state = SESSION_MOVING;
	return 1;
}

// Who may wake it: for a secured one's daemon whoever knows its token.
static int wake_allowed(const struct session *s, bool envd, const char *token, struct err *e)
{
	if (!s->auto_resume || s->files_only)
		return session_not_found(e);
	if (envd && s->token && (!token || !text_equal_ct(token, strlen(token), s->token, strlen(s->token))))
		return err_http(e, 403, ERR_PERMISSION_DENIED,
			"This sandbox can't be resumed with the credentials provided. Send its access token.");
	return 0;
}

int session_wake(struct session *s, bool envd, const char *token, void (*done)(void *arg, const struct err *e),
	void *arg, struct err *e)
{
	int64_t lifetime = s->timeout_s > SESSION_WOKEN_S ? s->timeout_s : SESSION_WOKEN_S;
	int rc;
	switch (s->state) {
	case SESSION_RUNNING:
		return 0;
	case SESSION_CREATING:
		return session_not_found(e);
	case SESSION_PAUSED:
		if (wake_allowed(s, envd, token, e) < 0)
			return -1;
		rc = session_resume(s, lifetime, false, e);
		if (rc <= 0)
			return rc;
		break;
	case SESSION_MOVING:
		break;
	}
	if (s->ended)
		return session_not_found(e);
	return session_await(s, done, arg, e) < 0 ? -1 : 1;
}
