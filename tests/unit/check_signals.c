// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/proc.h"
#include "suites.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int parse(const char *s)
{
	return proc_signal_parse(s, strlen(s));
}

// The C library's own table is the witness.
START_TEST(every_signal_has_its_name)
{
	for (int sig = -1; sig <= NSIG; sig++) {
		const char *abbrev = sig > 0 && sig < NSIG ? sigabbrev_np(sig) : NULL, *name = proc_signal_name(sig);
		ck_assert_msg(!name == !abbrev, "signal %d", sig);
		if (!name)
			continue;
		ck_assert(strncmp(name, "SIG", 3) == 0);
		// POLL is IO by another name.
		ck_assert_msg(strcmp(name + 3, abbrev) == 0 || sig == SIGIO, "%s: %s", name, abbrev);
	}
	ck_assert_ptr_null(proc_signal_name(1 << 30));
	ck_assert_str_eq(proc_signal_name(SIGKILL), "SIGKILL");
}
END_TEST

START_TEST(names_in_every_spelling)
{
	for (int sig = 1; sig < NSIG; sig++) {
		char number[16], text[40];
		snprintf(number, sizeof number, "%d", sig);
		ck_assert_int_eq(parse(number), sig);
		const char *name = proc_signal_name(sig);
		if (!name)
			continue;
		ck_assert_int_eq(parse(name), sig);
		ck_assert_int_eq(parse(name + 3), sig);
		snprintf(text, sizeof text, "SIGNAL_%s", name);
		ck_assert_int_eq(parse(text), sig);
		snprintf(text, sizeof text, "SIGNAL_%s", name + 3);
		for (char *p = text; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		ck_assert_int_eq(parse(text), sig);
	}
	ck_assert_int_eq(parse("SIGIOT"), SIGABRT);
	ck_assert_int_eq(parse("CLD"), SIGCHLD);
	ck_assert_int_eq(parse("POLL"), SIGPOLL);
	ck_assert_int_eq(proc_signal_parse("SIGTERMINATE", 7), SIGTERM);
	ck_assert_int_eq(proc_signal_parse("99", 1), 9);
}
END_TEST

START_TEST(what_is_no_signal)
{
	static const char *const bad[] = {"", "SIG", "SIGNAL_", "SIGNAL_SIG", "SIGSIGTERM", "NOPE", "SIGNOPE", "0",
		"-9", "+9", "65", "9x", "0x9", "4294967305", "99999999999999999999", " TERM", "TERM ", "SIGNAL_15",
		"SIGNAL_SIGNAL_TERM", "SIGTERMSIGTERMSIGTERMSIGTERMSIGTERMSIGTERM"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_assert_msg(parse(bad[i]) == -EINVAL, "'%s' is %d", bad[i], parse(bad[i]));
	ck_assert_int_eq(proc_signal_parse("TERM\0", 5), -EINVAL);
	ck_assert_int_eq(proc_signal_parse("9\0", 2), -EINVAL);
}
END_TEST

Suite *signals_suite(void)
{
	Suite *s = suite_create("signals");
	TCase *t = tcase_create("names");
	suite_add_tcase(s, t);
	tcase_add_test(t, every_signal_has_its_name);
	tcase_add_test(t, names_in_every_spelling);
	tcase_add_test(t, what_is_no_signal);
	return s;
}
