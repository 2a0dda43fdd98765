// SPDX-License-Identifier: Apache-2.0
#include "proto/multipart.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum state {
	BODY,    // of a part or before the first one: its bytes, or a delimiter as far as `matched` says
	AFTER,   // behind a delimiter: what follows says what it was
	DASH,    // a '-' was read there
	PADDING, // blanks were read there
	RETURN,  // a CR was read there
	HEAD,    // in a part's header
	BEGIN,   // the header is complete, which was not told yet
	CLOSED,  // the last boundary was read, which was not told yet
	EPILOGUE,
};

static const char line_end[] = "\r\n";
enum { LINE_END = sizeof(line_end) - 1 };

static int broken(struct err *e, const char *what)
{
	return err_http(e, 500, ERR_INVALID_ARGUMENT, "error reading form: multipart: %s", what);
}

static int failed(struct err *e, int rc, const char *what)
{
	if (rc == -ENOMEM)
		return err_sys(e, rc, "error reading form");
	return broken(e, what);
}

// The next bytes stand at the beginning of a line, although no line's end was among the bytes of the body.
static void at_line_start(struct multipart *m)
{
	m->state = BODY;
	m->matched = m->skip = LINE_END;
}

int multipart_init(struct multipart *m, const char *type, size_t n, struct err *e)
{
	struct buf boundary;
	*m = (struct multipart){.data_n = 0};
	buf_init(&m->head, MULTIPART_HEAD_MAX);
	buf_init(&boundary, 0);
	int rc = multipart_param(&boundary, type, n, "boundary");
	size_t len = buf_len(&boundary);
	const char *text = (const char *)buf_data(&boundary);
	if (rc == -ENOMEM)
		err_sys(e, rc, "error parsing multipart form");
	else if (rc <= 0 || len == 0)
		err_http(e, 500, ERR_INVALID_ARGUMENT,
			"error parsing multipart form: no multipart boundary param in Content-Type");
	else if (len > MULTIPART_BOUNDARY_MAX || memchr(text, '\r', len) || memchr(text, '\n', len))
		rc = err_http(e, 500, ERR_INVALID_ARGUMENT, "error parsing multipart form: unusable boundary");
	if (rc > 0 && len > 0) {
		static const char front[] = "\r\n--";
		m->delim_n = sizeof(front) - 1 + len;
		memcpy(m->delim, front, sizeof(front) - 1);
		memcpy(m->delim + sizeof(front) - 1, text, len);
		m->delim[m->delim_n] = '-';
		at_line_start(m);
	}
	buf_release(&boundary);
	return m->delim_n > 0 ? 0 : -1;
}

void multipart_release(struct multipart *m)
{
	buf_release(&m->name);
	buf_release(&m->filename);
	buf_release(&m->type);
	buf_release(&m->head);
}

static int give(struct multipart *m, const void *p, size_t n)
{
	m->data = p;
	m->data_n = n;
	return m->part && n > 0 ? MULTIPART_DATA : MULTIPART_MORE;
}

// What was taken for a delimiter is data: its N bytes in m->delim.
static int give_delim(struct multipart *m, size_t n)
{
	size_t skip = m->skip;
	m->state = BODY;
	m->matched = m->skip = 0;
	return give(m, m->delim + skip, n - skip);
}

// A delimiter begins with a CR and has no other, so that after a mismatch nothing of it can be the front of the next one.
static int scan_body(struct multipart *m, const unsigned char *s, size_t n, size_t *used)
{
	size_t i = 0;
	while (i < n && m->matched < m->delim_n) {
		if (m->matched == 0) {
			const unsigned char *cr = memchr(s + i, '\r', n - i);
			i = cr ? (size_t)(cr - s) + 1 : n;
			m->matched = cr != NULL;
		} else if (s[i] == (unsigned char)m->delim[m->matched]) {
			m->matched++;
			i++;
		} else if (m->matched <= i) {
			m->matched = 0;
		} else {
			// It began before these bytes.
			*used = i;
			return give_delim(m, m->matched);
		}
	}
	*used = i;
	if (m->matched == m->delim_n)
		m->state = AFTER;
	return m->matched < i ? give(m, s, i - m->matched) : MULTIPART_MORE;
}

// Behind a delimiter: N > 0 bytes.
static int scan_after(struct multipart *m, unsigned char c, size_t *used)
{
	if (c != '-' && c != ' ' && c != '\t' && c != '\r')
		return give_delim(m, m->delim_n);
	*used = 1;
	m->state = c == '-' ? DASH : c == '\r' ? RETURN : PADDING;
	return MULTIPART_MORE;
}

// The part before the delimiter is over, and the delimiter is one; what follows is NEXT.
static int part_over(struct multipart *m, enum state next)
{
	bool open = m->part;
	m->state = (int)next;
	m->part = false;
	m->matched = m->skip = m->line = 0;
	buf_reset(&m->head);
	return open ? MULTIPART_PART_END : MULTIPART_MORE;
}

static int scan_line_end(struct multipart *m, unsigned char c, size_t *used, struct err *e)
{
	*used = 1;
	if (m->state == RETURN && c == '\n')
		return part_over(m, HEAD);
	if (m->state == RETURN || (c != ' ' && c != '\t' && c != '\r'))
		return broken(e, "a boundary's line does not end");
	if (c == '\r')
		m->state = RETURN;
	return MULTIPART_MORE;
}

static int take_disposition(struct multipart *m, const char *value, struct err *e)
{
	static const char form[] = "form-data";
	size_t n = strlen(value), kind = strcspn(value, "; \t");
	int rc = multipart_param(&m->filename, value, n, "filename");
	m->has_filename = rc > 0;
	if (rc >= 0 && kind == sizeof(form) - 1 && strncasecmp(value, form, kind) == 0)
		rc = multipart_param(&m->name, value, n, "name");
	return rc < 0 ? failed(e, rc, "malformed Content-Disposition") : 0;
}

// One header line, NUL-terminated.
static int take_line(struct multipart *m, const char *line, bool *disposed, struct err *e)
{
	static const char disposition[] = "Content-Disposition", type[] = "Content-Type";
	const char *colon = strchr(line, ':');
	if (!colon || colon == line)
		return broken(e, "malformed MIME header");
	size_t n = (size_t)(colon - line);
	const char *value = colon + 1 + strspn(colon + 1, " \t");
	if (n == sizeof(disposition) - 1 && strncasecmp(line, disposition, n) == 0) {
		if (*disposed)
			return broken(e, "two Content-Disposition headers");
		*disposed = true;
		return take_disposition(m, value, e);
	}
	if (n == sizeof(type) - 1 && strncasecmp(line, type, n) == 0) {
		buf_reset(&m->type);
		buf_str(&m->type, value);
		if (buf_failed(&m->type))
			return failed(e, buf_failed(&m->type), "malformed MIME header");
	}
	return 0;
}

static int take_head(struct multipart *m, struct err *e)
{
	bool disposed = false;
	const char *p = (const char *)buf_data(&m->head), *end = p + buf_len(&m->head);
	buf_reset(&m->name);
	buf_reset(&m->filename);
	buf_reset(&m->type);
	m->has_filename = false;
	for (; p < end; p += strlen(p) + 1)
		if (take_line(m, p, &disposed, e) < 0)
			return -1;
	m->state = BEGIN;
	return MULTIPART_MORE;
}

static int scan_head(struct multipart *m, const unsigned char *s, size_t n, size_t *used, struct err *e)
{
	const unsigned char *lf = memchr(s, '\n', n);
	size_t some = lf ? (size_t)(lf - s) + 1 : n;
	buf_append(&m->head, s, some);
	*used = some;
	m->line += some;
	if (buf_failed(&m->head))
		return failed(e, buf_failed(&m->head), "a part's header is too long");
	if (!lf)
		return MULTIPART_MORE;
	size_t len = buf_len(&m->head), from = len - m->line;
	const unsigned char *line = buf_data(&m->head) + from;
	if (m->line < LINE_END || memcmp(line + m->line - LINE_END, line_end, LINE_END) != 0 ||
		memchr(line, '\0', m->line) || line[0] == ' ' || line[0] == '\t')
		return broken(e, "malformed MIME header");
	buf_truncate(&m->head, len - LINE_END);
	if (m->line == LINE_END)
		return take_head(m, e);
	buf_byte(&m->head, '\0');
	m->line = 0;
	return MULTIPART_MORE;
}

// One step of the machine; it takes at least one of N bytes, or changes the state, or has an event.
static int step(struct multipart *m, const unsigned char *s, size_t n, size_t *used, struct err *e)
{
	switch ((enum state)m->state) {
	case BODY:
		return scan_body(m, s, n, used);
	case AFTER:
		return scan_after(m, s[0], used);
	case DASH:
		if (s[0] != '-')
			return give_delim(m, m->delim_n + 1);
		*used = 1;
		return part_over(m, CLOSED);
	case PADDING:
	case RETURN:
		return scan_line_end(m, s[0], used, e);
	case HEAD:
		return scan_head(m, s, n, used, e);
	case BEGIN:
		at_line_start(m);
		m->part = true;
		return MULTIPART_PART;
	case CLOSED:
		m->state = EPILOGUE;
		return MULTIPART_END;
	case EPILOGUE:
		break;
	}
	*used = n;
	return MULTIPART_MORE;
}

int multipart_feed(struct multipart *m, const void *p, size_t n, size_t *used, struct err *e)
{
	const unsigned char *s = p;
	*used = 0;
	while (*used < n || m->state == BEGIN || m->state == CLOSED) {
		size_t took = 0;
		int rc = step(m, s + *used, n - *used, &took, e);
		*used += took;
		if (rc != MULTIPART_MORE)
			return rc;
	}
	return MULTIPART_MORE;
}

int multipart_end(const struct multipart *m, struct err *e)
{
	if (m->state == CLOSED || m->state == EPILOGUE)
		return 0;
	if (m->part)
		return err_http(e, 500, ERR_INVALID_ARGUMENT, "error writing file: unexpected EOF");
	return broken(e, "NextPart: EOF");
}
