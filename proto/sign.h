// SPDX-License-Identifier: Apache-2.0
// sign: the signatures of surface B's /files URLs (contract B 2.5): "v1_" and the unpadded base64 of the SHA-256 of
// path:operation:username:token, and :expiration if the URL has one.
#ifndef CELLD_PROTO_SIGN_H
#define CELLD_PROTO_SIGN_H

#include "proto/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIGN_LEN = 3 + 43 }; // characters of a signature

struct sign_url {
	const char *path; // as the request has it, decoded; its length in bytes is path_n
	size_t path_n;
	const char *operation; // "read" or "write"
	const char *user;      // "" if the URL has none
	size_t user_n;
	bool expires;
	int64_t expiration; // if it expires: seconds since 1970
};

// Appends the signature that TOKEN gives the URL. OUT's failure says out of memory.
void sign_make(struct buf *out, const struct sign_url *url, const char *token, size_t token_n);
// 1 if the N characters at GIVEN are that signature, 0 if not, -ENOMEM. Takes the same time wherever they differ. Does not look
// whether the URL has expired.
int sign_check(const struct sign_url *url, const char *token, size_t token_n, const char *given, size_t n);

#endif
