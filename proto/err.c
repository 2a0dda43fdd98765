// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // strerrorname_np
#include "proto/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// The words and their HTTP statuses are Connect's, but for failed_precondition, which surface A answers with 409.
static const struct code_row {
	const char *word;
	int status;
} codes[ERR_CODES] = {
	[ERR_NONE] = {"ok", 200},
	[ERR_CANCELED] = {"canceled", 499},
	[ERR_UNKNOWN] = {"unknown", 500},
	[ERR_INVALID_ARGUMENT] = {"invalid_argument", 400},
	[ERR_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
	[ERR_NOT_FOUND] = {"not_found", 404},
	[ERR_ALREADY_EXISTS] = {"already_exists", 409},
	[ERR_PERMISSION_DENIED] = {"permission_denied", 403},
	[ERR_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
	[ERR_FAILED_PRECONDITION] = {"failed_precondition", 409},
	[ERR_ABORTED] = {"aborted", 409},
	[ERR_OUT_OF_RANGE] = {"out_of_range", 400},
	[ERR_UNIMPLEMENTED] = {"unimplemented", 501},
	[ERR_INTERNAL] = {"internal", 500},
	[ERR_UNAVAILABLE] = {"unavailable", 503},
	[ERR_DATA_LOSS] = {"data_loss", 500},
	[ERR_UNAUTHENTICATED] = {"unauthenticated", 401},
};

// Contract A section 2. What is not here is internal, 500, not retryable.
static const struct errno_row {
	int sys;
	enum err_code code;
	int status;
	bool retryable;
} errnos[] = {
	{ENOENT, ERR_NOT_FOUND, 404, false},
	{ENOTDIR, ERR_NOT_FOUND, 404, false},
	{ESRCH, ERR_NOT_FOUND, 404, false},
	{EEXIST, ERR_ALREADY_EXISTS, 409, false},
	{ENOTEMPTY, ERR_FAILED_PRECONDITION, 409, false},
	{ETXTBSY, ERR_FAILED_PRECONDITION, 409, false},
	{EACCES, ERR_PERMISSION_DENIED, 403, false},
	{EPERM, ERR_PERMISSION_DENIED, 403, false},
	{EROFS, ERR_PERMISSION_DENIED, 403, false},
	{EINVAL, ERR_INVALID_ARGUMENT, 400, false},
	{ENAMETOOLONG, ERR_INVALID_ARGUMENT, 400, false},
	{EISDIR, ERR_INVALID_ARGUMENT, 400, false},
	{ELOOP, ERR_INVALID_ARGUMENT, 400, false},
	{E2BIG, ERR_INVALID_ARGUMENT, 400, false},
	{ENOEXEC, ERR_INVALID_ARGUMENT, 400, false},
	{ENOSPC, ERR_RESOURCE_EXHAUSTED, 507, false},
	{EDQUOT, ERR_RESOURCE_EXHAUSTED, 507, false},
	{EMFILE, ERR_RESOURCE_EXHAUSTED, 503, true},
	{ENFILE, ERR_RESOURCE_EXHAUSTED, 503, true},
	{EAGAIN, ERR_RESOURCE_EXHAUSTED, 503, true},
	{ENOMEM, ERR_RESOURCE_EXHAUSTED, 503, true},
};

static const struct phrase_row {
	int status;
	const char *text;
} phrases[] = {
	{100, "Continue"},
	{101, "Switching Protocols"},
	{103, "Early Hints"},
	{200, "OK"},
	{201, "Created"},
	{202, "Accepted"},
	{204, "No Content"},
	{206, "Partial Content"},
	{207, "Multi-Status"},
	{301, "Moved Permanently"},
	{302, "Found"},
	{303, "See Other"},
	{304, "Not Modified"},
	{307, "Temporary Redirect"},
	{308, "Permanent Redirect"},
	{400, "Bad Request"},
	{401, "Unauthorized"},
	{402, "Payment Required"},
	{403, "Forbidden"},
	{404, "Not Found"},
	{405, "Method Not Allowed"},
	{406, "Not Acceptable"},
	{408, "Request Timeout"},
	{409, "Conflict"},
	{410, "Gone"},
	{411, "Length Required"},
	{412, "Precondition Failed"},
	{413, "Content Too Large"},
	{414, "URI Too Long"},
	{415, "Unsupported Media Type"},
	{416, "Range Not Satisfiable"},
	{417, "Expectation Failed"},
	{422, "Unprocessable Content"},
	{425, "Too Early"},
	{426, "Upgrade Required"},
	{429, "Too Many Requests"},
	{431, "Request Header Fields Too Large"},
	{499, "Client Closed Request"},
	{500, "Internal Server Error"},
	{501, "Not Implemented"},
	{502, "Bad Gateway"},
	{503, "Service Unavailable"},
	{504, "Gateway Timeout"},
	{505, "HTTP Version Not Supported"},
	{507, "Insufficient Storage"},
};

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

static const struct errno_row *errno_find(int sys)
{
	static const struct errno_row other = {0, ERR_INTERNAL, 500, false};
	for (size_t i = 0; i < ROWS(errnos); i++)
		if (errnos[i].sys == sys)
			return &errnos[i];
	return &other;
}

// Bytes of the UTF-8 character at the NUL-terminated S, 0 if it is none.
static size_t char_len(const unsigned char *s)
{
	if (s[0] < 0x80)
		return 1;
	size_t n = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
	bool outside = (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90);
	return overlong || outside ? 0 : n;
}

// Appends TEXT at AT of E's message, which may then hold at most LIMIT bytes: whole characters only, a byte
// outside UTF-8 as '?'. Returns where it ended.
static size_t put_text(struct err *e, size_t at, size_t limit, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	while (*s) {
		size_t n = char_len(s), step = n > 0 ? n : 1;
		if (step > limit - at)
			break;
		if (n > 0)
			memcpy(e->msg + at, s, n);
		else
			e->msg[at] = '?';
		at += step;
		s += step;
	}
	e->msg[at] = '\0';
	return at;
}

// E's message becomes the formatted text and TAIL; if both are too long the text is cut, as TAIL says what failed.
__attribute__((format(printf, 2, 0))) static void put_message(
	struct err *e, const char *fmt, va_list ap, const char *tail)
{
	// Apart from e->msg, which may be among the arguments, and larger, so that its own cut is never seen.
	char text[2 * sizeof(e->msg)];
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	size_t limit = sizeof(e->msg) - 1;
	size_t at = put_text(e, 0, limit - strlen(tail), text);
	put_text(e, at, limit, tail);
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
	assert(code > ERR_NONE && code < ERR_CODES);
	va_list ap;
	va_start(ap, fmt);
	put_message(e, fmt, ap, "");
	va_end(ap);
	e->code = code;
	e->sys = 0;
	e->status = codes[code].status;
	e->retryable = code == ERR_UNAVAILABLE;
	e->reason = NULL;
	return -1;
}

int err_http(struct err *e, int status, enum err_code code, const char *fmt, ...)
{
	assert(code > ERR_NONE && code < ERR_CODES);
	va_list ap;
	va_start(ap, fmt);
	put_message(e, fmt, ap, "");
	va_end(ap);
	e->code = code;
	e->sys = 0;
	e->status = status;
	e->retryable = code == ERR_UNAVAILABLE;
	e->reason = NULL;
	return -1;
}

int err_sys(struct err *e, int rc, const char *fmt, ...)
{
	assert(rc >= -4095 && rc <= -1);
	const struct errno_row *row = errno_find(-rc);
	const char *desc = strerrordesc_np(-rc);
	char tail[96];
	if (desc)
		snprintf(tail, sizeof(tail), ": %s", desc);
	else
		snprintf(tail, sizeof(tail), ": errno %d", -rc);
	va_list ap;
	va_start(ap, fmt);
	put_message(e, fmt, ap, tail);
	va_end(ap);
	e->code = row->code;
	e->sys = -rc;
	e->status = row->status;
	e->retryable = row->retryable;
	e->reason = NULL;
	return -1;
}

const char *err_word(enum err_code code)
{
	return (unsigned)code < ERR_CODES ? codes[code].word : codes[ERR_UNKNOWN].word;
}

enum err_code err_from_word(const char *word, size_t n)
{
	for (size_t i = ERR_NONE + 1; i < ERR_CODES; i++)
		if (strlen(codes[i].word) == n && memcmp(codes[i].word, word, n) == 0)
			return (enum err_code)i;
	return ERR_NONE;
}

enum err_code err_errno_code(int sys)
{
	return errno_find(sys)->code;
}

int err_errno_status(int sys)
{
	return errno_find(sys)->status;
}

const char *err_errno_name(int sys)
{
	return sys > 0 ? strerrorname_np(sys) : NULL;
}

const char *err_phrase(int status)
{
	for (size_t i = 0; i < ROWS(phrases); i++)
		if (phrases[i].status == status)
			return phrases[i].text;
	return "Unknown";
}
