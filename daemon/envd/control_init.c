// SPDX-License-Identifier: Apache-2.0
#include "daemon/config_value.h"
#include "daemon/envd/control.h"
#include "daemon/log.h"
#include "proto/json.h"
#include "proto/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_LINE "X-Envd-Version: 0.6.13\r\n"
// How far the clock may be off the host's before it is set (contract B 5.4).
#define BEHIND_NS INT64_C(50000000)
#define AHEAD_NS INT64_C(5000000000)

// N digits at *S, which moves behind them; -1 if there are others.
static int digits(const char **s, int n)
{
	int v = 0;
	for (; n > 0; n--, (*s)++) {
		if (**s < '0' || **s > '9')
			return -1;
		v = v * 10 + (**s - '0');
	}
	return v;
}

static bool literal(const char **s, char c)
{
	if (**s != c)
		return false;
	(*s)++;
	return true;
}

static int fraction(const char **s, long *ns)
{
	long scale = 100000000;
	if (!literal(s, '.'))
		return 0;
	if (**s < '0' || **s > '9')
		return -EINVAL;
	for (; **s >= '0' && **s <= '9'; (*s)++, scale /= 10)
		*ns += (**s - '0') * scale;
	return 0;
}

static int zone(const char *s, long *seconds)
{
	if (strcmp(s, "Z") == 0)
		return 0;
	int sign = *s == '-' ? -1 : 1;
	if (*s != '+' && *s != '-')
		return -EINVAL;
	s++;
	int h = digits(&s, 2), m = h >= 0 && literal(&s, ':') ? digits(&s, 2) : -1;
	if (h < 0 || h > 23 || m < 0 || m > 59 || *s)
		return -EINVAL;
	*seconds = sign * (h * 3600L + m * 60L);
	return 0;
}

// Of a month from 1 on.
static int days_of(int year, int month)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	return days[month - 1] + (month == 2 && leap);
}

int control_time(const char *s, struct timespec *out)
{
	struct tm tm = {0};
	long ns = 0, offset = 0;
	int year = digits(&s, 4);
	if (year < 0 || !literal(&s, '-') || (tm.tm_mon = digits(&s, 2)) < 1 || tm.tm_mon > 12 || !literal(&s, '-') ||
		(tm.tm_mday = digits(&s, 2)) < 1 || tm.tm_mday > days_of(year, tm.tm_mon) || !literal(&s, 'T') ||
		(tm.tm_hour = digits(&s, 2)) < 0 || tm.tm_hour > 23 || !literal(&s, ':') ||
		(tm.tm_min = digits(&s, 2)) < 0 || tm.tm_min > 59 || !literal(&s, ':') ||
		(tm.tm_sec = digits(&s, 2)) < 0 || tm.tm_sec > 59 || fraction(&s, &ns) < 0 || zone(s, &offset) < 0)
		return -EINVAL;
	tm.tm_year = year - 1900;
	tm.tm_mon--;
	out->tv_sec = timegm(&tm) - offset;
	out->tv_nsec = ns;
	return 0;
}

static bool older(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

static void set_clock(const struct timespec *stamp)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	double ahead = (double)(now.tv_sec - stamp->tv_sec) * 1e9 + (double)(now.tv_nsec - stamp->tv_nsec);
	if (ahead >= -(double)BEHIND_NS && ahead <= (double)AHEAD_NS)
		return;
	if (clock_settime(CLOCK_REALTIME, stamp) == 0)
		log_info("clock_set", "by %.3f s", -ahead / 1e9);
}

// The first token is anyone's to set; from then on only who knows it may come (contract B 5.4). 0, or -1 with E filled.
static int authorise(const struct control *c, const json_t *doc, struct err *e)
{
	const json_t *given = json_object_get(doc, "accessToken");
	const char *token = c->config->token, *text = json_string_value(given);
	if (given && !json_is_null(given) && !text)
		return err_http(e, 400, ERR_INVALID_ARGUMENT, "accessToken must be a string");
	if (text && (strlen(text) != json_string_length(given) || strchr(text, '\\') || !value_is_token(text)))
		return err_http(e, 400, ERR_INVALID_ARGUMENT, "accessToken cannot be a token");
	if (token && !text)
		return err_http(e, 401, ERR_UNAUTHENTICATED, "access token reset not authorized");
	if (token && !text_equal_ct(text, strlen(text), token, strlen(token)))
		return err_http(e, 401, ERR_UNAUTHENTICATED, "access token validation failed");
	return 0;
}

// The address is new: it is only taken if the name leads there.
static void take_events(const struct control *c, struct control_state *next)
{
	const char *old = c->now.events;
	if (!next->events || (old && strcmp(old, next->events) == 0))
		return;
	int rc = control_hosts(next->events);
	if (rc == 0)
		return;
	log_warn("events_host", "/etc/hosts: %s", strerror(-rc));
	free(next->events);
	next->events = old ? strdup(old) : NULL;
}

static int apply(struct control *c, const json_t *doc, struct err *e)
{
	struct control_state next;
	bool had_token = c->config->token;
	if (authorise(c, doc, e) < 0 || control_next(c, doc, &next, e) < 0)
		return -1;
	if (older(&next.newest, &c->now.newest)) {
		control_state_release(&next);
		return 1; // overtaken by a later one: all of it is ignored
	}
	struct timespec stamp = next.newest;
	take_events(c, &next);
	if (control_commit(c, &next, e) < 0)
		return -1;
	if (json_is_string(json_object_get(doc, "timestamp")))
		set_clock(&stamp);
	if (!had_token && c->config->token)
		log_info("token_set", "both ports are locked from here on");
	return 0;
}

// What may fail when the rest of the request has been done (contract B 5.4).
static int apply_host(const json_t *doc, struct err *e)
{
	const char *pem = NULL;
	size_t n;
	if (jsonr_str(doc, "caBundle", 0, &pem, &n, e) < 0 || (pem && n > 0 && control_trust(pem, n, e) < 0))
		return -1;
	if (json_array_size(json_object_get(doc, "volumeMounts")) > 0)
		return err_http(e, 400, ERR_UNIMPLEMENTED, "volume mounts are not available here");
	return 0;
}

void control_init(void *ctx, struct conn *c)
{
	const struct envd *envd = ctx;
	const struct buf *body = conn_body(c);
	struct err e;
	bool empty = buf_len(body) == 0;
	json_t *doc = jsonr_parse(empty ? "{}" : (const char *)buf_data(body), empty ? 2 : buf_len(body), &e);
	int rc = doc ? apply(envd->control, doc, &e) : -1;
	if (rc == 0)
		rc = apply_host(doc, &e);
	jsonr_free(doc);
	if (rc >= 0)
		envd_reply(c, 204, "Cache-Control: no-store\r\n" VERSION_LINE, NULL);
	else
		envd_error(c, &e, VERSION_LINE);
}
