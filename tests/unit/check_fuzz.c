// SPDX-License-Identifier: Apache-2.0
// Every input of the fuzzers' corpora, with every compiler and in every build: what once broke a parser stays harmless.
#include "tests/fuzz/corpus.h"
#include "tests/unit/suites.h"

static const struct {
	const char *name;
	fuzz_target *run;
} targets[] = {
	{"http", fuzz_http},
	{"json", fuzz_json},
	{"json_scan", fuzz_json_scan},
	{"pbjson", fuzz_pbjson},
	{"frame", fuzz_frame},
	{"envelope", fuzz_envelope},
	{"multipart", fuzz_multipart},
	{"text", fuzz_text},
	{"sign", fuzz_sign},
	{"gzip", fuzz_gzip},
};

START_TEST(corpus)
{
	corpus_replay(targets[_i].run, targets[_i].name);
}
END_TEST

Suite *fuzz_suite(void)
{
	Suite *s = suite_create("fuzz");
	TCase *t = tcase_create("corpora");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, corpus, 0, (int)(sizeof targets / sizeof *targets));
	suite_add_tcase(s, t);
	return s;
}
