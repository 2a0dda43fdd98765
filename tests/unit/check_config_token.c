// SPDX-License-Identifier: Apache-2.0
// A token file that may be empty: tokens come and go with what it holds; what is no token changes nothing.
#include "daemon/config.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
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

Suite *config_token_suite(void)
{
	Suite *s = suite_create("config_token");
	TCase *t = tcase_create("file");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, no_token_until_it_holds_one, 0, 3);
	tcase_add_test(t, taken_back_and_given_again);
	tcase_add_test(t, it_has_to_be_asked_for);
	suite_add_tcase(s, t);
	return s;
}
