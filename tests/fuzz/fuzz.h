// SPDX-License-Identifier: Apache-2.0
// fuzz: one target a parser: bytes in, and whatever it says about them must not depend on how they were cut, must survive a round
// trip, must not touch memory that is not its own. A target returns 0; what is wrong ends the process (FUZZ_CHECK). Each runs under libFuzzer
// (driver.c, `make fuzz`) and over the corpora in tests/fuzz/corpus/<target> in the unit tests.
#ifndef CELLD_FUZZ_FUZZ_H
#define CELLD_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int fuzz_target(const uint8_t *p, size_t n);

fuzz_target fuzz_http, fuzz_json, fuzz_json_scan, fuzz_pbjson, fuzz_frame, fuzz_envelope, fuzz_multipart, fuzz_text,
	fuzz_sign, fuzz_gzip;
// Those that drive parts of the daemon (tests/fuzz/daemon); each a program of its own.
fuzz_target fuzz_conn, fuzz_inotify, fuzz_record;

// Not assert: it has to stay whatever the build.
#define FUZZ_CHECK(cond)                                                                   \
	do {                                                                               \
		if (!(cond)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                           \
		}                                                                          \
	} while (0)

// The input's first byte, and what follows it: for choices that are not part of the bytes.
static inline unsigned fuzz_choice(const uint8_t **p, size_t *n)
{
	if (!*n)
		return 0;
	--*n;
	return *(*p)++;
}

#endif
