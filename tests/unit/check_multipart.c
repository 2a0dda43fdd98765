// SPDX-License-Identifier: Apache-2.0
#include "feed.h"
#include "oom.h"
#include "proto/multipart.h"
#include "suites.h"

#include <stdlib.h>

#define TYPE "multipart/form-data; boundary=b0undary"
#define HEAD(name) "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"

// What the events say, as text: "<name|filename or -|type>" data ";" ... "." at the end.
struct reading {
	struct multipart m;
	struct buf seen;
	size_t spans;
	bool open; // a part
	struct err e;
};

static void note_part(struct reading *r)
{
	buf_byte(&r->seen, '<');
	buf_append(&r->seen, buf_data(&r->m.name), buf_len(&r->m.name));
	buf_byte(&r->seen, '|');
	if (!r->m.has_filename)
		buf_byte(&r->seen, '-');
	buf_append(&r->seen, buf_data(&r->m.filename), buf_len(&r->m.filename));
	buf_byte(&r->seen, '|');
	buf_append(&r->seen, buf_data(&r->m.type), buf_len(&r->m.type));
	buf_byte(&r->seen, '>');
}

// 0, or 1 for an event out of order.
static int note(struct reading *r, int event)
{
	bool was_open = r->open;
	switch ((enum multipart_event)event) {
	case MULTIPART_PART:
		r->open = true;
		note_part(r);
		return was_open;
	case MULTIPART_DATA:
		r->spans++;
		buf_append(&r->seen, r->m.data, r->m.data_n);
		return !was_open || r->m.data_n == 0;
	case MULTIPART_PART_END:
		r->open = false;
		buf_byte(&r->seen, ';');
		return !was_open;
	case MULTIPART_END:
		buf_byte(&r->seen, '.');
		return was_open;
	default:
		return 1;
	}
}

static int take(void *arg, const unsigned char *p, size_t n)
{
	struct reading *r = arg;
	for (size_t at = 0;;) {
		size_t used;
		int rc = multipart_feed(&r->m, p + at, n - at, &used, &r->e);
		at += used;
		if (rc < 0)
			return -1;
		if (rc == MULTIPART_MORE)
			return at == n ? 0 : 2;
		if (note(r, rc))
			return 3;
	}
}

// 0 or -1 with r->e, positive for what must not be. The caller calls done().
static int read_body(struct reading *r, const char *type, const char *body, size_t n, size_t chunk)
{
	*r = (struct reading){.e = {.code = ERR_NONE}};
	buf_init(&r->seen, 0);
	int rc = multipart_init(&r->m, type, strlen(type), &r->e);
	if (rc == 0)
		rc = feed(body, n, chunk, take, r);
	if (rc == 0)
		rc = multipart_end(&r->m, &r->e);
	if (rc == 0 && buf_failed(&r->seen))
		rc = buf_failed(&r->seen);
	return rc;
}

static void done(struct reading *r)
{
	multipart_release(&r->m);
	buf_release(&r->seen);
}

static const struct body {
	const char *body;
	const char *seen;
} bodies[] = {
	{"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; "
	 "filename=\"ignored.txt\"\r\n\r\none\r\n--b0undary--\r\n",
		"<file|ignored.txt|>one;."},
	{"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"g/m1.txt\"\r\nContent-Type: "
	 "text/plain\r\n\r\n1\r\n"
	 "--b0undary\r\nContent-Disposition: form-data; name=\"file\"; "
	 "filename=\"/home/user/m2.txt\"\r\n\r\n2\r\n--b0undary--\r\n",
		"<file|g/m1.txt|text/plain>1;<file|/home/user/m2.txt|>2;."},
	{"--b0undary\r\n" HEAD("a") "x\r\n--b0undary--", "<a|-|>x;."},
	// nothing in it
	{"--b0undary--", "."},
	{"--b0undary\r\n" HEAD("a") "\r\n--b0undary--", "<a|-|>;."},
	{"--b0undary\r\n" HEAD("a") "--b0undary--", "<a|-|>;."},
	{"--b0undary\r\n" HEAD("a") "--b0undary\r\n" HEAD("b") "--b0undary--", "<a|-|>;<b|-|>;."},
	{"--b0undary\r\n\r\nno header\r\n--b0undary--", "<|-|>no header;."},
	// around it
	{"before\r\n--b0undary\r\n" HEAD("a") "x\r\n--b0undary--after\r\n--b0undary\r\nmore", "<a|-|>x;."},
	{"\r\n--b0undary \t\r\n" HEAD("a") "x\r\n--b0undary  \r\n" HEAD("b") "y\r\n--b0undary--  \r\n",
		"<a|-|>x;<b|-|>y;."},
	{"--b0undar\r\n--b0undaryx\r\n\r\n--b0undary\r\n" HEAD("a") "x\r\n--b0undary--", "<a|-|>x;."},
	// what only looks like a boundary
	{"--b0undary\r\n" HEAD("a") "--b0undarx\r\n--b0undary--", "<a|-|>--b0undarx;."},
	{"--b0undary\r\n" HEAD("a") "\r\r\n\r\n--b0undar\r\n--b0undaryy\r\n--b0undary-x\r\n-\r\n--\r\n\r\n--b0undary--",
		"<a|-|>\r\r\n\r\n--b0undar\r\n--b0undaryy\r\n--b0undary-x\r\n-\r\n--\r\n;."},
	{"--b0undary\r\n" HEAD("a") "x--b0undary--\n--b0undary--\r--b0undary\r\r\n--b0undary--",
		"<a|-|>x--b0undary--\n--b0undary--\r--b0undary\r;."},
	{"--b0undary\r\n" HEAD("a") "--b0undary-\r\n--b0undary\r--b\r\n--b0undary--", NULL},
	{"--b0undary\r\n" HEAD("a") "\n--b0undary\r\n\r\n--b0undary--", "<a|-|>\n--b0undary\r\n;."},
	{"--b0undary\r\n" HEAD("a") "\r\n--b0undary-\r\n--b0undary--", "<a|-|>\r\n--b0undary-;."},
	{"--b0undary\r\n" HEAD("a") "--b0undary-\r\n--b0undary--", "<a|-|>--b0undary-;."},
	// headers
	{"--b0undary\r\nX: y\r\ncontent-DISPOSITION:form-data;name=a;filename=b\r\ncontent-type:\t x/y "
	 "\r\n\r\nx\r\n--b0undary--",
		"<a|b|x/y >x;."},
	{"--b0undary\r\nContent-Disposition: attachment; name=\"a\"; filename=\"b\"\r\n\r\nx\r\n--b0undary--",
		"<|b|>x;."},
	{"--b0undary\r\nContent-Disposition: FORM-DATA ; name=\"a\"; filename=\"\" ;\r\n\r\nx\r\n--b0undary--",
		"<a||>x;."},
	{"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; "
	 "filename=\"g/pc%22.txt\"\r\n\r\n7\r\n--b0undary--",
		"<file|g/pc%22.txt|>7;."},
	{"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; "
	 "filename*=utf-8''g%2F%C3%BC.txt\r\n\r\n8\r\n--b0undary--",
		"<file|g/\xC3\xBC.txt|>8;."},
	{"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; "
	 "filename=\"g/\xC3\xA9.txt\"\r\n\r\n9\r\n--b0undary--",
		"<file|g/\xC3\xA9.txt|>9;."},
	// broken
	{"--b0undary\r\n" HEAD("a") "x\r\n--b0undary \t x\r\n", NULL},
	{"--b0undary\r\n" HEAD("a") "x\r\n--b0undary\rx", NULL},
	{"--b0undary\r\nno colon\r\n\r\nx\r\n--b0undary--", NULL},
	{"--b0undary\r\n: none\r\n\r\nx\r\n--b0undary--", NULL},
	{"--b0undary\r\nA: b\n\r\nx\r\n--b0undary--", NULL},
	{"--b0undary\r\nA: b\r\n folded\r\n\r\nx\r\n--b0undary--", NULL},
	{"--b0undary\r\n\n", NULL},
	{"--b0undary\r\n"
	 "Content-Disposition: form-data; name=\"a\"\r\n" HEAD("b") "x\r\n--b0undary--",
		NULL},
	{"--b0undary\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx\r\n--b0undary--", NULL},
	{"--b0undary\r\nContent-Disposition: form-data; name=\"a\"; filename*=latin1''x\r\n\r\nx\r\n--b0undary--",
		NULL},
};

START_TEST(parts)
{
	const struct body *b = &bodies[_i / FEED_SIZES];
	struct reading r;
	int rc = read_body(&r, TYPE, b->body, strlen(b->body), (size_t)(_i % FEED_SIZES));
	ck_assert_msg(rc == (b->seen ? 0 : -1), "%d: %s (%s)", rc, b->body, r.e.msg);
	if (b->seen)
		ck_assert_str_eq(buf_cstr(&r.seen), b->seen);
	else
		ck_assert_int_eq(r.e.status, 500);
	done(&r);
}
END_TEST

// Cut anywhere, a body is an error, never a shorter file.
START_TEST(every_cut_is_told)
{
	const char *body = bodies[1].body;
	size_t whole = strlen(body) - 2; // the last line's end is nobody's
	for (size_t n = 0; n <= whole; n++) {
		struct reading r;
		int rc = read_body(&r, TYPE, body, n, (size_t)_i);
		ck_assert_int_eq(rc, n == whole ? 0 : -1);
		if (n < whole)
			ck_assert_str_eq(r.e.msg, r.open ? "error writing file: unexpected EOF"
							 : "error reading form: multipart: NextPart: EOF");
		done(&r);
	}
}
END_TEST

START_TEST(no_boundary)
{
	static const struct {
		const char *type, *msg;
	} types[] = {
		{"multipart/form-data", "error parsing multipart form: no multipart boundary param in Content-Type"},
		{"multipart/form-data; boundary=",
			"error parsing multipart form: no multipart boundary param in Content-Type"},
		{"multipart/form-data; boundary=\"\"",
			"error parsing multipart form: no multipart boundary param in Content-Type"},
		{"multipart/form-data; x=boundary",
			"error parsing multipart form: no multipart boundary param in Content-Type"},
		{"multipart/form-data; boundary=\"a\r\nb\"", "error parsing multipart form: unusable boundary"},
	};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct reading r;
		ck_assert_int_eq(read_body(&r, types[i].type, "hello", 5, 0), -1);
		ck_assert_str_eq(r.e.msg, types[i].msg);
		ck_assert_int_eq(r.e.status, 500);
		done(&r);
	}
}
END_TEST

START_TEST(boundary_lengths)
{
	for (size_t n = 1; n <= MULTIPART_BOUNDARY_MAX + 1; n++) {
		struct buf type, body;
		struct reading r;
		buf_init(&type, 0);
		buf_init(&body, 0);
		buf_str(&type, "multipart/mixed; charset=x; Boundary=\"");
		buf_str(&body, "--");
		for (size_t i = 0; i < n; i++) {
			buf_byte(&type, i % 2 ? '-' : ' ');
			buf_byte(&body, i % 2 ? '-' : ' ');
		}
		buf_str(&type, "\"");
		buf_str(&body, "--");
		int rc = read_body(&r, buf_cstr(&type), (const char *)buf_data(&body), buf_len(&body), (size_t)_i);
		ck_assert_int_eq(rc, n <= MULTIPART_BOUNDARY_MAX ? 0 : -1);
		done(&r);
		buf_release(&type);
		buf_release(&body);
	}
}
END_TEST

START_TEST(header_size_is_bounded)
{
	for (size_t extra = 0; extra < 2; extra++) {
		struct buf body;
		struct reading r;
		buf_init(&body, 0);
		BUF_LIT(&body, "--b0undary\r\nX: ");
		while (buf_len(&body) < sizeof("--b0undary\r\n") - 1 + MULTIPART_HEAD_MAX - 3 + extra)
			buf_byte(&body, 'x');
		BUF_LIT(&body, "\r\n\r\nx\r\n--b0undary--");
		int rc = read_body(&r, TYPE, (const char *)buf_data(&body), buf_len(&body), _i ? (size_t)_i * 997 : 0);
		ck_assert_int_eq(rc, extra ? -1 : 0);
		if (extra)
			ck_assert_str_eq(r.e.msg, "error reading form: multipart: a part's header is too long");
		done(&r);
		buf_release(&body);
	}
}
END_TEST

// Bytes of every kind come through, in few pieces.
START_TEST(binary_data)
{
	enum { SIZE = 64 * 1024 };
	struct buf body, want;
	struct reading r;
	buf_init(&body, 0);
	buf_init(&want, 0);
	BUF_LIT(&body, "--b0undary\r\n" HEAD("a"));
	BUF_LIT(&want, "<a|-|>");
	srand(5);
	for (size_t i = 0; i < SIZE; i++) {
		unsigned char c = (unsigned char)(i < SIZE / 2 ? rand() : "\r\n-b0u"[rand() % 6]);
		buf_byte(&body, c);
		buf_byte(&want, c);
	}
	BUF_LIT(&body, "\r\n--b0undary--");
	BUF_LIT(&want, ";.");
	ck_assert_int_eq(read_body(&r, TYPE, (const char *)buf_data(&body), buf_len(&body), (size_t)_i), 0);
	ck_assert_uint_eq(buf_len(&r.seen), buf_len(&want));
	ck_assert_mem_eq(buf_data(&r.seen), buf_data(&want), buf_len(&want));
	if (_i == 0)
		ck_assert_uint_eq(r.spans, 1);
	done(&r);
	buf_release(&body);
	buf_release(&want);
}
END_TEST

static const struct param {
	const char *header, *key;
	const char *value; // NULL = none, "!" = malformed
} params[] = {
	{"form-data", "name", NULL},
	{"form-data; name=a", "name", "a"},
	{"form-data; NAME=a", "name", "a"},
	{"form-data;name=a;x=y", "x", "y"},
	{"form-data; name=\"\"", "name", ""},
	{"form-data; name = a", "name", "a"},
	{"form-data; name=a;", "name", "a"},
	{"form-data; name=a; name=b", "name", "!"},
	{"form-data; name=", "name", "!"},
	{"form-data; name", "name", "!"},
	{"form-data; =a", "name", "!"},
	{"form-data; name=a b=c", "name", "!"},
	{"form-data; name=\"a\"b", "name", "!"},
	{"form-data; name=\"a", "name", "!"},
	{"form-data; name=\"a\\", "name", "!"},
	{"form-data; name=\"a\\\"", "name", "!"},
	{"form-data; name=\xC3\xA9", "name", "!"},
	{"form-data; filename=\"a;name=b\"; name=c", "name", "c"},
	// escapes, and what is none
	{"x; f=\"a\\\"b\\\\c\"", "f", "a\"b\\c"},
	{"x; f=\"C:\\dir\\file\"", "f", "C:\\dir\\file"},
	{"x; f=\"a%20b\"", "f", "a%20b"},
	{"x; f=\"\xC3\xA9\"", "f", "\xC3\xA9"},
	// RFC 2231
	{"x; f*=utf-8''%C3%A9", "f", "\xC3\xA9"},
	{"x; f*=UTF-8'en'a%2Fb", "f", "a/b"},
	{"x; f*=us-ascii''a", "f", "a"},
	{"x; f*=\"utf-8''a%20b\"", "f", "a b"},
	{"x; f=plain; f*=utf-8''ext", "f", "ext"},
	{"x; f*=utf-8''ext; f=plain", "f", "ext"},
	{"x; f*=iso-8859-1''a", "f", "!"},
	{"x; f*=a", "f", "!"},
	{"x; f*=utf-8'a", "f", "!"},
	{"x; f*=utf-8''%zz", "f", "!"},
	{"x; f*=utf-8''%00", "f", "!"},
	{"x; f*0=a; f*1=b; f*2=\" c\"", "f", "ab c"},
	{"x; f*1=b; f*0=a", "f", "ab"},
	{"x; f*0=a; f*2=c", "f", "a"},
	{"x; f*1=b", "f", NULL},
	{"x; f*0*=utf-8''%C3%A9; f*1=%41; f*2*=%42", "f", "\xC3\xA9%41B"},
	{"x; f*0=a; f=plain", "f", "a"},
};

START_TEST(parameters)
{
	const struct param *p = &params[_i];
	struct buf out;
	size_t n = strlen(p->header);
	char *copy = malloc(n);
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, p->header, n);
	buf_init(&out, 0);
	BUF_LIT(&out, "=");
	int rc = multipart_param(&out, copy, n, p->key);
	int want = !p->value ? 0 : strcmp(p->value, "!") == 0 ? -EINVAL : 1;
	ck_assert_msg(rc == want, "%d: %s", rc, p->header);
	ck_assert_str_eq(buf_cstr(&out) + 1, want > 0 ? p->value : "");
	free(copy);
	buf_release(&out);
}
END_TEST

START_TEST(pieces_are_bounded)
{
	struct buf header, out;
	buf_init(&header, 0);
	buf_init(&out, 0);
	BUF_LIT(&header, "x");
	for (unsigned i = 0; i < 63; i++)
		buf_printf(&header, "; f*%u=a", i);
	ck_assert_int_eq(multipart_param(&out, (const char *)buf_data(&header), buf_len(&header), "f"), 1);
	ck_assert_uint_eq(buf_len(&out), 63);
	BUF_LIT(&header, "; f*63=a; f*64=a");
	ck_assert_int_eq(multipart_param(&out, (const char *)buf_data(&header), buf_len(&header), "f"), -EINVAL);
	ck_assert_uint_eq(buf_len(&out), 63);
	buf_release(&header);
	buf_release(&out);
}
END_TEST

static int run(void *arg)
{
	(void)arg;
	static const char body[] =
		"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename*0*=utf-8''a%20; filename*1=b\r\n"
		"Content-Type: x/y\r\n\r\n1\r\n--b0undary\r\n" HEAD("b") "2\r\n--b0undary--\r\n";
	static const char want[] = "<file|a b|x/y>1;<b|-|>2;.";
	struct reading r;
	int rc = read_body(&r, TYPE, body, sizeof(body) - 1, 0);
	if (rc == -1)
		rc = r.e.sys == ENOMEM ? -ENOMEM : 1;
	if (rc == 0 && (buf_len(&r.seen) != sizeof(want) - 1 || memcmp(buf_data(&r.seen), want, sizeof(want) - 1) != 0))
		rc = 2;
	done(&r);
	return rc;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(run, NULL);
}
END_TEST

Suite *multipart_suite(void)
{
	Suite *s = suite_create("multipart");
	TCase *tc = tcase_create("body");
	tcase_add_loop_test(tc, parts, 0, FEED_SIZES * (int)(sizeof(bodies) / sizeof(bodies[0])));
	tcase_add_loop_test(tc, every_cut_is_told, 0, FEED_SIZES);
	tcase_add_test(tc, no_boundary);
	tcase_add_loop_test(tc, boundary_lengths, 0, FEED_SIZES);
	tcase_add_loop_test(tc, header_size_is_bounded, 0, FEED_SIZES);
	tcase_add_loop_test(tc, binary_data, 0, FEED_SIZES);
	tcase_add_test(tc, out_of_memory);
	tcase_set_timeout(tc, 30);
	suite_add_tcase(s, tc);
	tc = tcase_create("parameters");
	tcase_add_loop_test(tc, parameters, 0, (int)(sizeof(params) / sizeof(params[0])));
	tcase_add_test(tc, pieces_are_bounded);
	suite_add_tcase(s, tc);
	return s;
}
