// SPDX-License-Identifier: Apache-2.0
#include "proto/sign.h"

#include "proto/text.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <sha2.h>

static void hash_text(SHA2_CTX *hash, const char *p, size_t n)
{
	if (n > 0)
		SHA256Update(hash, (const uint8_t *)p, n);
}

static void hash_next(SHA2_CTX *hash, const char *p, size_t n)
{
	hash_text(hash, ":", 1);
	hash_text(hash, p, n);
}

void sign_make(struct buf *out, const struct sign_url *url, const char *token, size_t token_n)
{
	static const char prefix[] = "v1_";
	uint8_t digest[SHA256_DIGEST_LENGTH];
	SHA2_CTX hash;
	SHA256Init(&hash);
	hash_text(&hash, url->path, url->path_n);
	hash_next(&hash, url->operation, strlen(url->operation));
	hash_next(&hash, url->user, url->user_n);
	hash_next(&hash, token, token_n);
	if (url->expires) {
		char text[24];
		int n = snprintf(text, sizeof(text), "%" PRId64, url->expiration);
		hash_next(&hash, text, (size_t)n);
	}
	SHA256Final(digest, &hash);
	size_t mark = buf_len(out);
	buf_append(out, prefix, sizeof(prefix) - 1);
	text_b64_encode(out, digest, sizeof(digest));
	// Without its one '=', or nothing if it could not be written whole.
	if (buf_failed(out))
		buf_truncate(out, mark);
	else
		buf_truncate(out, mark + SIGN_LEN);
}

int sign_check(const struct sign_url *url, const char *token, size_t token_n, const char *given, size_t n)
{
	struct buf right;
	buf_init(&right, 0);
	sign_make(&right, url, token, token_n);
	int rc = buf_failed(&right);
	if (rc == 0)
		rc = text_equal_ct((const char *)buf_data(&right), buf_len(&right), given, n);
	buf_release(&right);
	return rc;
}
