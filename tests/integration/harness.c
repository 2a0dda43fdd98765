// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK_NS (3L * 1000 * 1000)

int64_t h_now_ms(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

double h_scale(void)
{
	const char *s = getenv("T_SCALE");
	double f = s ? strtod(s, NULL) : 1;
	return f > 0 ? f : 1;
}

int64_t h_scaled(int64_t ms)
{
	return (int64_t)((double)ms * h_scale());
}

void h_tick(void)
{
	struct timespec t = {0, TICK_NS};
	(void)nanosleep(&t, NULL);
}

bool wait_until(bool (*fn)(void *arg), void *arg, int64_t deadline_ms)
{
	int64_t end = h_now_ms() + h_scaled(deadline_ms);
	while (!fn(arg)) {
		if (h_now_ms() > end)
			return false;
		h_tick();
	}
	return true;
}

TCase *h_tcase(Suite *s, const char *name, double timeout_s)
{
	TCase *tc = tcase_create(name);
	// Check multiplies by this variable itself.
	tcase_set_timeout(tc, getenv("CK_TIMEOUT_MULTIPLIER") ? timeout_s : timeout_s * h_scale());
	suite_add_tcase(s, tc);
	return tc;
}

char *j_text(const json_t *j)
{
	const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
	size_t n = j ? json_dumpb(j, NULL, 0, flags) : 0;
	char *text = calloc(1, n + 1);
	ck_assert_ptr_nonnull(text);
	if (n > 0)
		ck_assert_uint_eq(json_dumpb(j, text, n, flags), n);
	return text;
}

json_t *j_get(const json_t *obj, const char *key)
{
	json_t *v = json_object_get(obj, key);
	if (!v)
		ck_abort_msg("no key \"%s\" in %.400s", key, j_text(obj));
	return v;
}

static _Noreturn void wrong_type(const char *key, const char *want, const json_t *v)
{
	ck_abort_msg("\"%s\" is no %s: %.200s", key, want, j_text(v));
	abort();
}

const char *j_str(const json_t *obj, const char *key)
{
	const json_t *v = j_get(obj, key);
	if (!json_is_string(v))
		wrong_type(key, "string", v);
	return json_string_value(v);
}

int64_t j_int(const json_t *obj, const char *key)
{
	const json_t *v = j_get(obj, key);
	if (!json_is_integer(v))
		wrong_type(key, "integer", v);
	return json_integer_value(v);
}

bool j_bool(const json_t *obj, const char *key)
{
	const json_t *v = j_get(obj, key);
	if (!json_is_boolean(v))
		wrong_type(key, "boolean", v);
	return json_is_true(v);
}

bool j_has(const json_t *obj, const char *key)
{
	return json_object_get(obj, key) != NULL;
}

// Up to 24 bytes from OFF as hex.
static void hex(char *out, size_t n, const unsigned char *p, size_t len, size_t off)
{
	size_t used = 0;
	out[0] = '\0';
	for (size_t i = off; i < len && i < off + 24 && used + 4 < n; i++)
		used += (size_t)snprintf(out + used, n - used, "%02x ", p[i]);
}

void h_assert_bytes(const char *file, int line, const struct buf *got, const void *want, size_t n)
{
	const unsigned char *a = buf_data(got);
	const unsigned char *b = want;
	size_t len = buf_len(got);
	size_t i = 0;
	while (i < len && i < n && a[i] == b[i])
		i++;
	if (i == len && i == n)
		return;
	char ha[80];
	char hb[80];
	hex(ha, sizeof ha, a, len, i);
	hex(hb, sizeof hb, b, n, i);
	ck_abort_msg("%s:%d: %zu bytes, want %zu; they differ at %zu: got %s want %s", file, line, len, n, i, ha, hb);
}

void h_repeat(struct buf *b, const char *s, size_t count)
{
	for (size_t i = 0; i < count; i++)
		buf_str(b, s);
	ck_assert_int_eq(buf_failed(b), 0);
}
