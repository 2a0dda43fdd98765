// SPDX-License-Identifier: Apache-2.0
// Content types by extension and by content (the WHATWG's "MIME Sniffing", sections 6 and 7, for what is met in sandboxes), and names in
// headers (RFC 6266, RFC 8187).
#include "daemon/envd/files.h"

#include <string.h>
#include <strings.h>

#define UTF8 "; charset=utf-8"

static const struct extension {
	const char *ext, *type;
} extensions[] = {
	{"7z", "application/x-7z-compressed"},
	{"aac", "audio/aac"},
	{"avif", "image/avif"},
	{"bmp", "image/bmp"},
	{"bz2", "application/x-bzip2"},
	{"css", "text/css" UTF8},
	{"csv", "text/csv" UTF8},
	{"doc", "application/msword"},
	{"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
	{"epub", "application/epub+zip"},
	{"flac", "audio/flac"},
	{"gif", "image/gif"},
	{"gz", "application/gzip"},
	{"htm", "text/html" UTF8},
	{"html", "text/html" UTF8},
	{"ico", "image/vnd.microsoft.icon"},
	{"ics", "text/calendar" UTF8},
	{"jpeg", "image/jpeg"},
	{"jpg", "image/jpeg"},
	{"js", "text/javascript" UTF8},
	{"json", "application/json"},
	{"m4a", "audio/mp4"},
	{"md", "text/markdown" UTF8},
	{"mjs", "text/javascript" UTF8},
	{"mov", "video/quicktime"},
	{"mp3", "audio/mpeg"},
	{"mp4", "video/mp4"},
	{"mpeg", "video/mpeg"},
	{"odt", "application/vnd.oasis.opendocument.text"},
	{"ogg", "audio/ogg"},
	{"otf", "font/otf"},
	{"parquet", "application/vnd.apache.parquet"},
	{"pdf", "application/pdf"},
	{"png", "image/png"},
	{"ppt", "application/vnd.ms-powerpoint"},
	{"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
	{"rtf", "application/rtf"},
	{"svg", "image/svg+xml"},
	{"tar", "application/x-tar"},
	{"tif", "image/tiff"},
	{"tiff", "image/tiff"},
	{"ttf", "font/ttf"},
	{"txt", "text/plain" UTF8},
	{"wasm", "application/wasm"},
	{"wav", "audio/wav"},
	{"webm", "video/webm"},
	{"webp", "image/webp"},
	{"woff", "font/woff"},
	{"woff2", "font/woff2"},
	{"xhtml", "application/xhtml+xml"},
	{"xls", "application/vnd.ms-excel"},
	{"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
	{"xml", "text/xml" UTF8},
	{"xz", "application/x-xz"},
	{"zip", "application/zip"},
	{"zst", "application/zstd"},
};

const char *files_type_of_name(const char *name)
{
	const char *dot = strrchr(files_base(name), '.');
	for (size_t i = 0; dot && i < sizeof extensions / sizeof *extensions; i++)
		if (strcasecmp(dot + 1, extensions[i].ext) == 0)
			return extensions[i].type;
	return NULL;
}

// --- by content ---

// What a file begins with; in AT bytes from the start.
#define MAGIC(at, bytes, type)                     \
	{                                          \
		at, sizeof(bytes) - 1, bytes, type \
	}
static const struct magic {
	size_t at, n;
	const char *bytes, *type;
} magics[] = {
	MAGIC(0, "%PDF-", "application/pdf"),
	MAGIC(0, "%!PS-Adobe-", "application/postscript"),
	MAGIC(0, "\xFE\xFF", "text/plain; charset=utf-16be"),
	MAGIC(0, "\xFF\xFE", "text/plain; charset=utf-16le"),
	MAGIC(0, "\xEF\xBB\xBF", "text/plain" UTF8),
	MAGIC(0, "\0\0\1\0", "image/x-icon"),
	MAGIC(0, "BM", "image/bmp"),
	MAGIC(0, "GIF87a", "image/gif"),
	MAGIC(0, "GIF89a", "image/gif"),
	MAGIC(8, "WEBPVP", "image/webp"),
	MAGIC(0, "\x89PNG\r\n\x1a\n", "image/png"),
	MAGIC(0, "\xFF\xD8\xFF", "image/jpeg"),
	MAGIC(8, "AIFF", "audio/aiff"),
	MAGIC(0, "ID3", "audio/mpeg"),
	MAGIC(0, "OggS\0", "application/ogg"),
	MAGIC(0, "MThd\0\0\0\6", "audio/midi"),
	MAGIC(8, "AVI ", "video/avi"),
	MAGIC(8, "WAVE", "audio/wave"),
	MAGIC(4, "ftypisom", "video/mp4"),
	MAGIC(4, "ftypmp4", "video/mp4"),
	MAGIC(0, "\x1A\x45\xDF\xA3", "video/webm"),
	MAGIC(0, "\0\1\0\0", "font/ttf"),
	MAGIC(0, "OTTO", "font/otf"),
	MAGIC(0, "wOFF", "font/woff"),
	MAGIC(0, "wOF2", "font/woff2"),
	MAGIC(0, "\x1F\x8B\x08", "application/x-gzip"),
	MAGIC(0, "PK\3\4", "application/zip"),
	MAGIC(0, "Rar!\x1A\7", "application/x-rar-compressed"),
	MAGIC(0, "\0asm", "application/wasm"),
};

static const char *const html_tags[] = {"<!DOCTYPE HTML", "<HTML", "<HEAD", "<SCRIPT", "<IFRAME", "<H1", "<DIV",
	"<FONT", "<TABLE", "<A", "<STYLE", "<TITLE", "<B", "<BODY", "<BR", "<P"};

static const char *markup(const unsigned char *p, size_t n)
{
	size_t at = 0;
	while (at < n && strchr("\t\n\f\r ", p[at]) && p[at])
		at++;
	p += at;
	n -= at;
	if (n >= 5 && memcmp(p, "<?xml", 5) == 0)
		return "text/xml" UTF8;
	if (n >= 4 && memcmp(p, "<!--", 4) == 0)
		return "text/html" UTF8;
	for (size_t i = 0; i < sizeof html_tags / sizeof *html_tags; i++) {
		size_t len = strlen(html_tags[i]);
		// A tag ends in a blank or '>'.
		if (n > len && strncasecmp((const char *)p, html_tags[i], len) == 0 && (p[len] == ' ' || p[len] == '>'))
			return "text/html" UTF8;
	}
	return NULL;
}

static bool is_text(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] <= 0x08 || p[i] == 0x0b || (p[i] >= 0x0e && p[i] <= 0x1a) || (p[i] >= 0x1c && p[i] <= 0x1f))
			return false;
	return true;
}

const char *files_type_of_bytes(const unsigned char *p, size_t n)
{
	const char *type = markup(p, n);
	for (size_t i = 0; !type && i < sizeof magics / sizeof *magics; i++) {
		const struct magic *m = &magics[i];
		if (n >= m->at + m->n && memcmp(p + m->at, m->bytes, m->n) == 0)
			type = m->type;
	}
	if (type)
		return type;
	return is_text(p, n) ? "text/plain" UTF8 : "application/octet-stream";
}

// --- names in headers ---

static bool is_alnum(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_token(unsigned char c)
{
	return is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static void put_encoded(struct buf *out, const char *name)
{
	BUF_LIT(out, "filename*=utf-8''");
	for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
		if (is_alnum(*p) || strchr("!#$&+-.^_`|~", *p))
			buf_byte(out, *p);
		else
			buf_printf(out, "%%%02X", *p);
	}
}

void files_disposition(struct buf *out, const char *path)
{
	const char *name = files_base(path);
	bool token = *name, printable = true;
	for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
		token = token && is_token(*p);
		printable = printable && *p >= ' ' && *p < 0x7f;
	}
	BUF_LIT(out, "Content-Disposition: inline; ");
	if (!printable) {
		put_encoded(out, name);
	} else if (token) {
		BUF_LIT(out, "filename=");
		buf_str(out, name);
	} else {
		BUF_LIT(out, "filename=\"");
		for (const char *p = name; *p; p++) {
			if (*p == '"' || *p == '\\')
				buf_byte(out, '\\');
			buf_byte(out, (unsigned char)*p);
		}
		BUF_LIT(out, "\"");
	}
	BUF_LIT(out, "\r\n");
}
