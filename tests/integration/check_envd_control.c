// SPDX-License-Identifier: Apache-2.0
// Surface B beside its calls: /health, /metrics, /envs, /init, CORS, what is not there (contract B 1.1, 1.2, 5).
#include "tests/integration/envdkit.h"
#include "tests/integration/suites.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *envs(const struct testd *d, struct resp *r)
{
	envd_req(d, "GET", "/envs", NULL, NULL, 0, r);
	ck_assert_int_eq(r->status, 200);
	ck_assert_str_eq(resp_header(r, "Content-Type"), "application/json");
	ck_assert_str_eq(resp_header(r, "Cache-Control"), "no-store");
	return buf_cstr(&r->body);
}

START_TEST(answers_are_those_of_the_golden_exchanges)
{
	static const char *const names[] = {"health", "cors", "not-found", "metrics-envs"};
	static const char *const skip[] = {"GET /files", NULL};
	struct testd *d = d_start(ENVD_ON);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		envd_play_golden(d, names[i], skip);
	d_finish(d);
}
END_TEST

START_TEST(init_does_what_the_golden_exchanges_show)
{
	static const char *const skip[] = {
		"a process sees them", "timestamp", "22. envs", "same, stream", "same, /files", NULL};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	envd_play_golden(d, "init", skip);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_SANDBOX\":\"false\"}\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(metrics_are_the_machine_s)
{
	static const char *const keys[] = {"ts", "cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib",
		"mem_total", "mem_used", "mem_cache", "disk_used", "disk_total"};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	for (int round = 0; round < 3; round++) {
		envd_req(d, "GET", "/metrics", NULL, NULL, 0, &r);
		ck_assert_int_eq(r.status, 200);
		json_t *o = resp_json(&r);
		ck_assert_uint_eq(json_object_size(o), sizeof keys / sizeof *keys);
		const char *at = buf_cstr(&r.body);
		for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
			ck_assert_msg(json_is_number(j_get(o, keys[i])), "%s", keys[i]);
			at = strstr(at, keys[i]);
			ck_assert_msg(at, "%s is not in its place", keys[i]);
		}
		ck_assert_int_le(llabs(j_int(o, "ts") - time(NULL)), 5);
		ck_assert_int_eq(j_int(o, "cpu_count"), sysconf(_SC_NPROCESSORS_ONLN));
		double used = json_number_value(j_get(o, "cpu_used_pct"));
		ck_assert(used >= 0 && used <= 100);
		ck_assert_int_gt(j_int(o, "mem_used"), 0);
		ck_assert_int_lt(j_int(o, "mem_used"), j_int(o, "mem_total"));
		ck_assert_int_eq(j_int(o, "mem_total_mib"), j_int(o, "mem_total") / 1048576);
		ck_assert_int_le(j_int(o, "disk_used"), j_int(o, "disk_total"));
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(variables_are_replaced_as_a_whole_or_not_at_all)
{
	static const char *const refused[] = {"{\"envVars\":{\"N\":1}}", "{\"envVars\":[]}", "{\"envVars\":\"A=b\"}",
		"{\"envVars\":{\"\":\"x\"}}", "{\"envVars\":{\"A=B\":\"x\"}}", "{\"envVars\":{\"A\":\"x\\u0000y\"}}",
		"{\"envVars\":{\"NEW\":\"1\"},\"defaultUser\":7}", "{\"envVars\":{\"NEW\":\"1\"},\"timestamp\":3}",
		"{\"envVars\":{\"NEW\":\"1\"},\"accessToken\":\"a\\\\b\"}", "null", "7", "\"x\"", "[]", "{} {}", "{",
		"{\"envVars\":{\"NEW\":\"1\"},\"accessToken\":\"line\\nbreak\"}"};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	ck_assert_int_eq(
		envd_init(d, "{\"envVars\":{\"Z\":\"<&>\",\"A\":\"\",\"E2B_SANDBOX\":\"true\",\"N\":null}}"), 204);
	const char want[] = "{\"A\":\"\",\"E2B_SANDBOX\":\"false\",\"N\":\"\",\"Z\":\"\\u003c\\u0026\\u003e\"}\n";
	ck_assert_str_eq(envs(d, &r), want);
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		ck_assert_msg(envd_init(d, refused[i]) == 400, "%s", refused[i]);
	ck_assert_str_eq(envs(d, &r), want);
	ck_assert_int_eq(envd_init(d, ""), 204);
	ck_assert_str_eq(envs(d, &r), want);
	ck_assert_int_eq(
		envd_init(d, "{\"volumeMounts\":[{\"nfs_target\":\"h:/p\",\"path\":\"/m\"}],\"envVars\":{}}"), 400);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_SANDBOX\":\"false\"}\n");
	// Not without limit.
	struct buf b = {0};
	BUF_LIT(&b, "{\"envVars\":{\"BIG\":\"");
	h_repeat(&b, "0123456789abcdef", 65536);
	BUF_LIT(&b, "\"}}");
	envd_req(d, "POST", "/init", NULL, buf_data(&b), buf_len(&b), &r);
	envd_want_rest(&r, 413);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_SANDBOX\":\"false\"}\n");
	buf_release(&b);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Starts `sh -c SCRIPT` with the variable X=request: true if it ended with 0. Any other end frame than a good one fails.
static bool sh_is_true(const struct testd *d, const char *script)
{
	struct buf text = {0}, body = {0};
	struct resp r = {0};
	buf_printf(
		&text, "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"%s\"],\"envs\":{\"X\":\"request\"}}}", script);
	envd_envelope(&body, 0, buf_cstr(&text));
	envd_req(d, "POST", "/process.Process/Start", "Content-Type: application/connect+json\r\n", buf_data(&body),
		buf_len(&body), &r);
	json_t *last = envd_want_stream(&r, NULL);
	ck_assert_uint_eq(json_object_size(last), 0);
	static const char good[] = "exit status 0";
	bool ok = memmem(buf_data(&r.body), buf_len(&r.body), good, sizeof good - 1);
	json_decref(last);
	resp_release(&r);
	buf_release(&text);
	buf_release(&body);
	return ok;
}

// B41
START_TEST(commands_have_the_variables_of_init)
{
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	ck_assert_int_eq(
		envd_init(d, "{\"envVars\":{\"A\":\"a=b=\",\"B\":\"x\\ny\",\"C\":\"\\u00e9\",\"D\":\"\",\"X\":\"init\","
			     "\"HOME\":\"/h\",\"E2B_SANDBOX\":\"true\"}}"),
		204);
	ck_assert(sh_is_true(d, "test $A = a=b="));
	ck_assert(sh_is_true(d, "test \\\"$B\\\" = \\\"$(printf 'x\\\\ny')\\\""));
	ck_assert(sh_is_true(d, "test $C = $(printf '\\\\303\\\\251')"));
	ck_assert(sh_is_true(d, "test ${D-unset} = '' || test -z \\\"${D-unset}\\\""));
	ck_assert(sh_is_true(d, "test $X = request"));
	ck_assert(sh_is_true(d, "test $HOME = /h"));
	ck_assert(sh_is_true(d, "test $E2B_SANDBOX = false"));
	ck_assert(!sh_is_true(d, "test -n \\\"$NONE\\\""));
	// More than the kernel takes for one string: an error at once, and the daemon goes on.
	struct buf b = {0}, call = {0};
	BUF_LIT(&b, "{\"envVars\":{\"BIG\":\"");
	h_repeat(&b, "0123456789abcdef", 12800);
	BUF_LIT(&b, "\"}}");
	ck_assert_int_eq(envd_init(d, buf_cstr(&b)), 204);
	envd_envelope(&call, 0, "{\"process\":{\"cmd\":\"true\"}}");
	envd_req(d, "POST", "/process.Process/Start", "Content-Type: application/connect+json\r\n", buf_data(&call),
		buf_len(&call), &r);
	envd_want_stream_error(&r, "invalid_argument", NULL);
	ck_assert_int_eq(envd_init(d, "{\"envVars\":{}}"), 204);
	ck_assert(sh_is_true(d, "test -z \\\"$BIG\\\""));
	buf_release(&b);
	buf_release(&call);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static int init_at(const struct testd *d, time_t t, const char *rest, const char *value)
{
	char stamp[64], body[200];
	struct tm tm;
	ck_assert_ptr_nonnull(gmtime_r(&t, &tm));
	ck_assert_uint_gt(strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm), 0);
	(void)snprintf(body, sizeof body, "{\"timestamp\":\"%s%s\",\"envVars\":{\"T\":\"%s\"}}", stamp, rest, value);
	return envd_init(d, body);
}

START_TEST(an_init_that_was_overtaken_changes_nothing)
{
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	time_t now = time(NULL); // never ahead of the clock, which it would set
	ck_assert_int_eq(init_at(d, now, "Z", "new"), 204);
	ck_assert_int_eq(init_at(d, now - 2, "Z", "old"), 204);
	ck_assert_int_eq(init_at(d, now - 1, ".999999999Z", "old"), 204);
	ck_assert_int_eq(init_at(d, now + 7200, "+02:00:01", "no time"), 400);
	ck_assert_int_eq(init_at(d, now + 7199, "+02:00", "old"), 204);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_SANDBOX\":\"false\",\"T\":\"new\"}\n");
	ck_assert_int_eq(init_at(d, now, ".000Z", "same"), 204);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_SANDBOX\":\"false\",\"T\":\"same\"}\n");
	ck_assert_int_eq(init_at(d, now + 7200, "+02:00", "zone"), 204);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_SANDBOX\":\"false\",\"T\":\"zone\"}\n");
	ck_assert_int_eq(envd_init(d, "{\"envVars\":{\"T\":\"none\"}}"), 204);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_SANDBOX\":\"false\",\"T\":\"none\"}\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B36
START_TEST(every_wrong_request_gets_an_object)
{
	static const struct {
		const char *method, *target;
		int status;
		const char *allow;
	} cases[] = {
		{"GET", "/", 404, NULL},
		{"GET", "/nope", 404, NULL},
		{"POST", "/nope", 404, NULL},
		{"GET", "/health/", 404, NULL},
		{"GET", "//health", 404, NULL},
		{"GET", "/HEALTH", 404, NULL},
		{"GET", "/process.Process", 404, NULL},
		{"GET", "/process.Process/", 404, NULL},
		{"GET", "/exec/processes", 404, NULL},
		{"POST", "/health", 405, "GET"},
		{"OPTIONS", "/health", 405, "GET"},
		{"PUT", "/files", 405, "GET, POST"},
		{"GET", "/init", 405, "POST"},
		{"DELETE", "/envs", 405, "GET"},
		{"GET", "/freeze", 405, "POST"},
		{"POST", "/freeze", 501, NULL},
		{"POST", "/unfreeze", 501, NULL},
		{"POST", "/collapse", 501, NULL},
		{"POST", "/fsfreeze", 501, NULL},
		{"POST", "/fsthaw", 501, NULL},
	};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	envd_req(d, "POST", "/upgrade", NULL, NULL, 0, &r);
	ck_assert_int_eq(r.status, d->has_init ? 409 : 501); // no /init yet; no init part
	envd_want_rest(&r, r.status);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		envd_req(d, cases[i].method, cases[i].target, NULL, NULL, 0, &r);
		ck_assert_msg(r.status == cases[i].status, "%s %s: %d", cases[i].method, cases[i].target, r.status);
		envd_want_rest(&r, cases[i].status);
		ck_assert_str_eq(resp_header(&r, "Vary"), "Origin");
		ck_assert_ptr_nonnull(resp_header(&r, "Date"));
		const char *allow = resp_header(&r, "Allow");
		ck_assert_msg(
			cases[i].allow ? allow && strcmp(allow, cases[i].allow) == 0 : !allow, "%s", cases[i].target);
	}
	envd_req(d, "HEAD", "/health", NULL, NULL, 0, &r);
	ck_assert_int_eq(r.status, 405);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(health_answers_while_connections_are_reused)
{
	struct testd *d = d_start(ENVD_ON);
	struct client *c = envd_connect(d);
	struct resp r = {0};
	for (int i = 0; i < 20; i++) {
		envd_send(c, "GET", i % 2 ? "/health" : "/envs", NULL, NULL, 0);
		client_response(c, &r);
		ck_assert_int_eq(r.status, i % 2 ? 204 : 200);
		ck_assert(r.keep_alive);
	}
	resp_release(&r);
	client_close(c);
	d_finish(d);
}
END_TEST

// What /init said must not be forgotten with the daemon's memory.
START_TEST(settings_outlive_a_crash)
{
	struct testd *d = d_start(ENVD_ON, "--init");
	struct resp r = {0};
	ck_assert_int_eq(
		envd_init(d, "{\"envVars\":{\"KEPT\":\"1\"},\"accessToken\":\"tok\",\"defaultUser\":\"no-such\"}"),
		204);
	d_expect_crash(d);
	pid_t before = d->daemon;
	ck_assert_int_eq(kill(before, SIGKILL), 0);
	for (int64_t end = h_now_ms() + h_scaled(5000); d_refresh(d) == 0 || d->daemon == before; h_tick())
		ck_assert_int_lt(h_now_ms(), end);
	envd_req(d, "GET", "/envs", NULL, NULL, 0, &r);
	envd_want_rest(&r, 401);
	req(d, "GET", "/processes", NULL, &r);
	ck_assert_int_eq(r.status, 401);
	envd_req(d, "GET", "/envs", "X-Access-Token: tok\r\n", NULL, 0, &r);
	ck_assert_str_eq(buf_cstr(&r.body), "{\"E2B_SANDBOX\":\"false\",\"KEPT\":\"1\"}\n");
	envd_req(d, "POST", "/filesystem.Filesystem/Stat", "Content-Type: application/json\r\nX-Access-Token: tok\r\n",
		"{\"path\":\"/\"}", 12, &r);
	ck_assert_str_eq(envd_want_connect(&r, 401, "unauthenticated"), "invalid default user: 'no-such'");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- what /init changes in the machine's files ---

static void put_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");
	ck_assert_msg(f, "%s: %m", path);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

static void want_text(const char *path, const char *want)
{
	char got[512];
	FILE *f = fopen(path, "re");
	ck_assert_msg(f, "%s: %m", path);
	size_t n = fread(got, 1, sizeof got - 1, f);
	(void)fclose(f);
	got[n] = '\0';
	ck_assert_str_eq(got, want);
}

// Files of this test's own in the places of the machine's. False where that is not possible (needs root).
static bool own_machine(void)
{
	char hosts[] = "/tmp/celld-hosts.XXXXXX";
	if (geteuid() != 0 || access("/etc/ssl", F_OK) < 0 || unshare(CLONE_NEWNS) < 0)
		return false;
	int fd = mkstemp(hosts);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("tmpfs", "/etc/ssl", "tmpfs", 0, "size=1m"), 0);
	ck_assert_int_eq(mount("tmpfs", "/usr/local/share", "tmpfs", 0, "size=1m"), 0);
	ck_assert_int_eq(mount("tmpfs", "/run", "tmpfs", 0, "size=1m"), 0);
	ck_assert_int_eq(mkdir("/etc/ssl/certs", 0755), 0);
	put_text("/etc/ssl/certs/ca-certificates.crt", "system\n");
	put_text(hosts, "127.0.0.1 localhost\n10.0.0.9\tevents.e2b.local # old\n::1 x # events.e2b.local\n10.0.0.8 z");
	ck_assert_int_eq(mount(hosts, "/etc/hosts", NULL, MS_BIND, NULL), 0);
	ck_assert_int_eq(unlink(hosts), 0);
	return true;
}

START_TEST(certificates_and_the_events_host_are_put_in_place)
{
	static const char hosts[] =
		"127.0.0.1 localhost\n::1 x # events.e2b.local\n10.0.0.8 z\n10.0.0.%c events.e2b.local\n";
	char want[200];
	if (!own_machine())
		return;
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	want_text("/run/e2b/.E2B_SANDBOX", "false");
	ck_assert_int_eq(envd_init(d, "{\"caBundle\":\"one\\ntwo\",\"hyperloopIP\":\"10.0.0.1\"}"), 204);
	want_text("/etc/ssl/certs/ca-certificates.crt", "system\none\ntwo\n");
	want_text("/usr/local/share/ca-certificates/e2b-ca.crt", "one\ntwo\n");
	(void)snprintf(want, sizeof want, hosts, '1');
	want_text("/etc/hosts", want);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_EVENTS_ADDRESS\":\"http://10.0.0.1\",\"E2B_SANDBOX\":\"false\"}\n");
	put_text("/etc/ssl/certs/ca-certificates.crt", "system\none\ntwo\nlater\n");
	ck_assert_int_eq(envd_init(d, "{\"caBundle\":\"three\\n\",\"hyperloopIP\":\"10.0.0.2\"}"), 204);
	ck_assert_int_eq(envd_init(d, "{\"caBundle\":\"three\\n\",\"hyperloopIP\":\"10.0.0.2\"}"), 204);
	want_text("/etc/ssl/certs/ca-certificates.crt", "system\nlater\nthree\n");
	(void)snprintf(want, sizeof want, hosts, '2');
	want_text("/etc/hosts", want);
	ck_assert_int_eq(envd_init(d, "{\"hyperloopIP\":\"nowhere\"}"), 400);
	ck_assert_int_eq(envd_init(d, "{\"caBundle\":5,\"envVars\":{\"A\":\"1\"}}"), 400);
	ck_assert_int_eq(envd_init(d, "{\"envVars\":{\"E2B_EVENTS_ADDRESS\":\"x\"}}"), 204);
	ck_assert_str_eq(envs(d, &r), "{\"E2B_EVENTS_ADDRESS\":\"http://10.0.0.2\",\"E2B_SANDBOX\":\"false\"}\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *envd_control_suite(void)
{
	Suite *s = suite_create("envd_control");
	TCase *tc = h_tcase(s, "control", 20);
	tcase_add_test(tc, answers_are_those_of_the_golden_exchanges);
	tcase_add_test(tc, init_does_what_the_golden_exchanges_show);
	tcase_add_test(tc, metrics_are_the_machine_s);
	tcase_add_test(tc, variables_are_replaced_as_a_whole_or_not_at_all);
	tcase_add_test(tc, commands_have_the_variables_of_init);
	tcase_add_test(tc, an_init_that_was_overtaken_changes_nothing);
	tcase_add_test(tc, every_wrong_request_gets_an_object);
	tcase_add_test(tc, health_answers_while_connections_are_reused);
	tcase_add_test(tc, settings_outlive_a_crash);
	tcase_add_test(tc, certificates_and_the_events_host_are_put_in_place);
	return s;
}
