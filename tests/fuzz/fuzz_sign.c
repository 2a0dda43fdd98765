// SPDX-License-Identifier: Apache-2.0
// Signatures: the right one is taken, one with a changed character is not, another token's is not.
#include "tests/fuzz/fuzz.h"

#include "proto/sign.h"

#include <string.h>

int fuzz_sign(const uint8_t *p, size_t n)
{
	unsigned choice = fuzz_choice(&p, &n), at = fuzz_choice(&p, &n) % SIGN_LEN;
	size_t half = n / 2;
	struct sign_url url = {.path = (const char *)p,
		.path_n = half,
		.operation = choice & 1 ? "read" : "write",
		.user = (const char *)p,
		.user_n = choice & 2 ? n / 4 : 0,
		.expires = choice & 4,
		.expiration = (int64_t)n << (choice % 48)};
	const char *token = (const char *)p + half;
	struct buf good = {0};
	sign_make(&good, &url, token, n - half);
	FUZZ_CHECK(buf_len(&good) == SIGN_LEN);
	char *text = (char *)buf_data(&good);
	FUZZ_CHECK(sign_check(&url, token, n - half, text, SIGN_LEN) == 1);
	FUZZ_CHECK(sign_check(&url, token, n - half, text, SIGN_LEN - 1) == 0);
	if (n - half > 0)
		FUZZ_CHECK(sign_check(&url, token, n - half - 1, text, SIGN_LEN) == 0);
	FUZZ_CHECK(sign_check(&url, token, n - half, (const char *)p, n < SIGN_LEN ? n : SIGN_LEN) == 0 ||
		   (n >= SIGN_LEN && memcmp(p, text, SIGN_LEN) == 0));
	text[at] = (char)(text[at] ^ 1);
	FUZZ_CHECK(sign_check(&url, token, n - half, text, SIGN_LEN) == 0);
	buf_release(&good);
	return 0;
}
