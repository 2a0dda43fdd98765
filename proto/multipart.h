// SPDX-License-Identifier: Apache-2.0
// multipart: reads multipart/form-data bodies (RFC 2046, 7578) cut anywhere, and never holds more of them than the header of one part.
// The text before the first boundary and after the last is skipped. Owns its buffers; what it gives out stays valid until the
// next call. Errors are contract B 5.6's: 500, whatever the client did wrong.
#ifndef CELLD_PROTO_MULTIPART_H
#define CELLD_PROTO_MULTIPART_H

#include "proto/buf.h"
#include "proto/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	MULTIPART_BOUNDARY_MAX = 200,
	MULTIPART_HEAD_MAX = 16 * 1024, // of one part
};

enum multipart_event {
	MULTIPART_MORE,     // all was taken
	MULTIPART_PART,     // a part begins: name, filename, type are set
	MULTIPART_DATA,     // data, data_n: the part's next bytes
	MULTIPART_PART_END, // the part is whole
	MULTIPART_END,      // the last boundary was read; the rest is skipped
};

struct multipart {
	struct buf name;           // of the part; empty if it has none or is no form-data
	struct buf filename;       // as it was sent, with its directories
	bool has_filename;         // empty and absent are two things
	struct buf type;           // of the part's Content-Type; empty if it has none
	const unsigned char *data; // points into the fed bytes or into M
	size_t data_n;
	int state;       // private from here
	bool part;       // one is open
	size_t matched;  // bytes of the delimiter that the last bytes are
	size_t skip;     // of those, how many at the front were never there (a body begins as after a line's end)
	size_t line;     // bytes in the header's current line
	struct buf head; // header lines, each ended by a NUL
	size_t delim_n;  // "\r\n--" and the boundary; behind it in `delim` is a '-'
	char delim[MULTIPART_BOUNDARY_MAX + 8];
};

// From the request's Content-Type of N bytes. 0, or -1 with E filled: no usable boundary, or no memory. Release M in any case.
int multipart_init(struct multipart *m, const char *type, size_t n, struct err *e);
void multipart_release(struct multipart *m);
// Takes from the N bytes at P up to the next event, which it returns; *USED says how many were taken (none is possible). Call
// again with what is left until it says MULTIPART_MORE. -1 with E filled: the body is broken, feed no more.
int multipart_feed(struct multipart *m, const void *p, size_t n, size_t *used, struct err *e);
// The body is over: 0 if the last boundary was read, else -1 with E filled.
int multipart_end(const struct multipart *m, struct err *e);

// The value of a parameter in a header like `form-data; name="file"; filename="x"` of N bytes (RFC 2045 and, for the forms
// KEY*, KEY*0 and KEY*0*, RFC 2231 in UTF-8): appended to OUT. A backslash in quotes escapes only what needs it, so that a
// Windows path survives. 1, 0 if there is none, -EINVAL if the header is malformed, or OUT's failure.
int multipart_param(struct buf *out, const char *header, size_t n, const char *key);

#endif
