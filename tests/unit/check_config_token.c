// SPDX-License-Identifier: Apache-2.0
// The token: blanked where it came from, or out of a file; if that may be empty, tokens come and go with what it holds.
#include "configkit.h"
#include "daemon/config_value.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config c;
static char path[] = "/tmp/celld-token-XXXXXX";

static void hold(const char *text, size_t n)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, n), (ssize_t)n);
	close(fd);
}

static enum config_action load(const char *empty)
{
	char *argv[] = {(char *)"celld", (char *)"--token-file", path, (char *)"--token-empty", (char *)empty, NULL};
	int status;
	return config_load(&c, 5, argv, &status);
}

static void setup(void)
{
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void teardown(void)
{
	unlink(path);
	free(c.file_token);
}

START_TEST(no_token_until_it_holds_one)
{
	static const char *const empty[] = {"", "\n", "\r\n"};
	hold(empty[_i], strlen(empty[_i]));
	ck_assert_int_eq(load("none"), CONFIG_RUN);
	ck_assert_ptr_null(c.token);
	hold("one", 3);
	ck_assert_int_eq(config_reload_token(&c), 0);
	ck_assert_str_eq(c.token, "one");
	hold(" bad", 4);
	ck_assert_int_eq(config_reload_token(&c), -EINVAL);
	hold("\0", 1);
	ck_assert_int_eq(config_reload_token(&c), -EINVAL);
	ck_assert_str_eq(c.token, "one");
	c.token = "set by another";
	hold(empty[_i], strlen(empty[_i]));
	ck_assert_int_eq(config_reload_token(&c), 0);
	ck_assert_ptr_null(c.token);
}
END_TEST

START_TEST(taken_back_and_given_again)
{
	hold("one\n", 4);
	ck_assert_int_eq(load("none"), CONFIG_RUN);
	ck_assert_str_eq(c.token, "one");
	for (int i = 0; i < 2; i++) {
		hold("", 0);
		ck_assert_int_eq(config_reload_token(&c), 0);
		ck_assert_ptr_null(c.token);
		hold("two", 3);
		ck_assert_int_eq(config_reload_token(&c), 0);
		ck_assert_str_eq(c.token, "two");
	}
	// One that is not there is not one without a token.
	unlink(path);
	ck_assert_int_eq(config_reload_token(&c), -ENOENT);
	ck_assert_str_eq(c.token, "two");
}
END_TEST

START_TEST(it_has_to_be_asked_for)
{
	ck_assert_int_eq(load("refuse"), CONFIG_EXIT);
	hold("one", 3);
	ck_assert_int_eq(load("refuse"), CONFIG_RUN);
	hold("", 0);
	ck_assert_int_eq(config_reload_token(&c), -EINVAL);
	ck_assert_str_eq(c.token, "one");
}
END_TEST

static struct configkit k;

static void start(void)
{
	setup();
	configkit_init(&k);
}

// No trace of the token is left where ps and /proc show it.
START_TEST(the_token_is_blanked)
{
	configkit_must_load(&k, _i ? "--token=s3cret --grace 7" : "--token s3cret --grace 7");
	ck_assert_str_eq(k.c->token, "s3cret");
	ck_assert_int_eq(k.c->grace_ms, 7);
	ck_assert_ptr_null(memmem(k.words, sizeof(k.words), "s3cret", 6));
	configkit_must_load(&k, "--token first1 --token second");
	ck_assert_str_eq(k.c->token, "second");
	ck_assert_ptr_null(memmem(k.words, sizeof(k.words), "first1", 6));
	ck_assert_ptr_null(memmem(k.words, sizeof(k.words), "second", 6));

	static char env[2][32] = {"CELLD_TOKEN=fr0menv", "CELLD_TOKEN=fr0menv"};
	putenv(env[_i]);
	configkit_must_load(&k, _i ? "" : "--token s3cret"); // one that the option beats goes too
	ck_assert_str_eq(k.c->token, _i ? "fr0menv" : "s3cret");
	ck_assert_ptr_null(getenv("CELLD_TOKEN"));
	ck_assert_ptr_null(memmem(env[_i], sizeof(env[_i]), "fr0menv", 7));
}
END_TEST

#define NO_TOKEN "a token is 1 to 4096 bytes without control characters or blanks at the ends\n"

START_TEST(a_bad_token_is_refused_and_not_shown)
{
	configkit_must_refuse(&k, "--token ''", 2, "celld: --token: " NO_TOKEN);
	configkit_must_refuse(&k, "--token=", 2, "celld: --token: " NO_TOKEN);
	static const char *const tokens[] = {"", " x", "x ", "a\nb", "a\x7f", "\t"};
	for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
		setenv("CELLD_TOKEN", tokens[i], 1);
		configkit_must_refuse(&k, "", 2, "celld: CELLD_TOKEN: " NO_TOKEN);
		ck_assert_ptr_null(getenv("CELLD_TOKEN"));
	}
	setenv("CELLD_TOKEN", "in between \xc3\xbc", 1);
	configkit_must_load(&k, "");
	ck_assert_str_eq(k.c->token, "in between \xc3\xbc");
}
END_TEST

static void write_token(const char *text, size_t n)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, n), (ssize_t)n);
	close(fd);
}

START_TEST(token_file)
{
	char line[64], want[256], big[VALUE_TOKEN_MAX + 4];
	static const char *const good_files[] = {"s3cret", "s3cret\n", "s3cret\r\n"};
	for (size_t i = 0; i < 3; i++) {
		write_token(good_files[i], strlen(good_files[i]));
		snprintf(line, sizeof(line), "--token-file %s", path);
		configkit_must_load(&k, line);
		ck_assert_str_eq(k.c->token, "s3cret");
		ck_assert_str_eq(k.c->token_file, path);
	}
	setenv("CELLD_TOKEN_FILE", path, 1);
	configkit_must_load(&k, "");
	ck_assert_str_eq(k.c->token, "s3cret");
	unsetenv("CELLD_TOKEN_FILE");

	memset(big, 'b', sizeof(big));
	memcpy(big + VALUE_TOKEN_MAX, "\r\n", 2);
	write_token(big, VALUE_TOKEN_MAX + 2);
	configkit_must_load(&k, line);
	ck_assert_uint_eq(strlen(k.c->token), VALUE_TOKEN_MAX);

	static const struct {
		const char *text;
		size_t n;
	} bad_files[] = {{"", 0}, {"\n", 1}, {"\r\n", 2}, {"a\n\n", 3}, {"a\0b", 3}, {" a", 2}};
	snprintf(want, sizeof(want),
		"celld: --token-file: \"%s\" holds no token (1 to 4096 bytes without control characters or blanks at "
		"the ends)\n",
		path);
	for (size_t i = 0; i < sizeof(bad_files) / sizeof(bad_files[0]); i++) {
		write_token(bad_files[i].text, bad_files[i].n);
		configkit_must_refuse(&k, line, 1, want);
	}
	memset(big, 'b', sizeof(big));
	for (size_t n = VALUE_TOKEN_MAX + 1; n <= sizeof(big); n++) {
		write_token(big, n);
		configkit_must_refuse(&k, line, 1, want);
	}
	unlink(path);
	snprintf(want, sizeof(want), "celld: --token-file: \"%s\": No such file or directory\n", path);
	configkit_must_refuse(&k, line, 1, want);
}
END_TEST

START_TEST(token_and_token_file_exclude_each_other)
{
	configkit_must_refuse(&k, "--token a --token-file /f", 2, "celld: --token: not together with --token-file\n");
	setenv("CELLD_TOKEN_FILE", "/f", 1);
	configkit_must_refuse(&k, "--token a", 2, "celld: --token: not together with CELLD_TOKEN_FILE\n");
	setenv("CELLD_TOKEN", "a", 1);
	configkit_must_refuse(&k, "", 2, "celld: CELLD_TOKEN: not together with CELLD_TOKEN_FILE\n");
}
END_TEST

START_TEST(token_file_again)
{
	char line[64];
	configkit_must_load(&k, "--token a");
	ck_assert_int_eq(config_reload_token(k.c), -EINVAL);
	write_token("old", 3);
	snprintf(line, sizeof(line), "--token-file %s", path);
	configkit_must_load(&k, line);
	write_token("much longer than the old\n", 25);
	ck_assert_str_eq(k.c->token, "old");
	ck_assert_int_eq(config_reload_token(k.c), 0);
	ck_assert_str_eq(k.c->token, "much longer than the old");
	write_token("\n", 1);
	ck_assert_int_eq(config_reload_token(k.c), -EINVAL);
	unlink(path);
	ck_assert_int_eq(config_reload_token(k.c), -ENOENT);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(config_reload_token(k.c), -ESPIPE); // and does not block
	ck_assert_str_eq(k.c->token, "much longer than the old");
	unlink(path);
}
END_TEST

Suite *config_token_suite(void)
{
	Suite *s = suite_create("config_token");
	TCase *t = tcase_create("file");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, no_token_until_it_holds_one, 0, 3);
	tcase_add_test(t, taken_back_and_given_again);
	tcase_add_test(t, it_has_to_be_asked_for);
	suite_add_tcase(s, t);
	t = tcase_create("token");
	tcase_add_checked_fixture(t, start, teardown);
	tcase_add_loop_test(t, the_token_is_blanked, 0, 2);
	tcase_add_test(t, a_bad_token_is_refused_and_not_shown);
	tcase_add_test(t, token_file);
	tcase_add_test(t, token_and_token_file_exclude_each_other);
	tcase_add_test(t, token_file_again);
	suite_add_tcase(s, t);
	return s;
}
