// SPDX-License-Identifier: Apache-2.0
// Uploads of surface B: as the recordings have them, cut, too large, over old files, compressed, in forms cut anywhere.
#include "tests/integration/suites.h"
#include "tests/integration/uploadkit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define G FS_HOME "/g"
enum { USER = 54321 };

// --- the recordings ---

START_TEST(recorded_uploads)
{
	static const struct deviation others[] = {
		{"37. path twice", 0,
			MESSAGE(400,
				"Invalid format for parameter path: multiple values for single value parameter 'path'"),
			true},
		{"41. ~other", 0,
			MESSAGE(400, "error resolving path: failed to expand path '~nobody/x' for user 'user': cannot "
				     "expand "
				     "user-specific home dir"),
			false},
		{"24. Expect: 100-continue", 200,
			"[{\"name\":\"exp.bin\",\"path\":\"/home/user/g/exp.bin\",\"type\":\"file\"}]", true},
		{"27. bad gzip", 0,
			MESSAGE(400,
				"error decompressing request body: failed to create gzip reader: gzip: invalid header"),
			false},
		{"42. name too long", 0, NULL, false}, // a message has less room
	};
	struct stat st;
	if (!fs_home())
		return;
	fs_tree(G);
	struct testd *d = up_start();
	exchange_all(d, "files-post", others, COUNT(others));
	ck_assert_int_eq(stat(G "/up1.txt", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0644);
	ck_assert_uint_eq(st.st_uid, USER);
	ck_assert_uint_eq(st.st_gid, USER);
	ck_assert_int_eq(stat(G "/newdir", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	ck_assert_uint_eq(st.st_uid, USER);
	ck_assert_int_eq(stat(G "/suid", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	ck_assert_int_eq(stat(G "/byroot", &st), 0);
	ck_assert_uint_eq(st.st_uid, 0);
	up_content(G "/a.txt", "via link", 8);
	// What was cut or made no sense left nothing.
	ck_assert_int_ne(access(G "/cut.txt", F_OK), 0);
	ck_assert_int_ne(access(G "/nm.txt", F_OK), 0);
	d_finish(d);
}
END_TEST

static bool has_attributes(void)
{
	fs_put(FS_HOME "/probe", "", 0644);
	bool ok = setxattr(FS_HOME "/probe", "user.e2b.x", "y", 1, 0) == 0;
	(void)unlink(FS_HOME "/probe");
	return ok;
}

START_TEST(recorded_metadata)
{
	static const struct deviation others[] = {
		{"12. key of 247 bytes", 0, NULL, false}, // a message has less room
	};
	if (!fs_home() || !has_attributes())
		return;
	fs_tree(G);
	struct testd *d = up_start();
	exchange_all(d, "files-metadata", others, COUNT(others));
	ck_assert_int_ne(access(G "/m5", F_OK), 0);
	ck_assert_int_ne(access(G "/m7", F_OK), 0);
	d_finish(d);
}
END_TEST

START_TEST(recorded_compositions)
{
	static const struct deviation others[] = {
		{"4. bad JSON", 0, MESSAGE(400, "invalid request body: invalid json"), false},
		{"11. GET", 0, NULL, true},
	};
	if (!fs_home())
		return;
	fs_tree(G);
	fs_put(G "/p1", "one", 0644);
	fs_put(G "/p2", "two", 0644);
	struct testd *d = up_start();
	exchange_all(d, "files-compose", others, COUNT(others));
	up_content(G "/out/c.txt", "onetwo", 6);
	up_content(G "/B", "b", 1);
	ck_assert_int_ne(access(G "/p1", F_OK), 0);
	ck_assert_int_ne(access(G "/p2", F_OK), 0);
	struct stat st;
	ck_assert_int_eq(stat(G "/out/c.txt", &st), 0);
	ck_assert_uint_eq(st.st_uid, USER);
	d_finish(d);
}
END_TEST

// The destination by another name must not be a source: it would be gone in the end.
START_TEST(composition_removes_its_result)
{
	static const char *const names[] = {"a/../dst", FS_HOME "//dst", "hard", "soft"};
	if (!fs_home())
		return;
	struct testd *d = up_start();
	struct resp r = {0};
	fs_put(FS_HOME "/dst", "old", 0644);
	fs_put(FS_HOME "/src", "new", 0644);
	ck_assert_int_eq(link(FS_HOME "/dst", FS_HOME "/hard"), 0);
	ck_assert_int_eq(symlink("dst", FS_HOME "/soft"), 0);
	for (size_t i = 0; i < COUNT(names); i++) {
		char body[256];
		(void)snprintf(
			body, sizeof body, "{\"source_paths\":[\"src\",\"%s\"],\"destination\":\"dst\"}", names[i]);
		ck_assert_msg(up_post(d, "/compose", "", body, strlen(body), &r) == 400, "%s: %d", names[i], r.status);
		up_content(FS_HOME "/dst", "old", 3);
		up_content(FS_HOME "/src", "new", 3);
	}
	char *big = up_filled('x', 3 * MIB);
	ck_assert_int_eq(up_post(d, "?path=big", RAW, big, 3 * MIB, &r), 200);
	static const char twice[] = "{\"source_paths\":[\"big\",\"src\",\"big\"],\"destination\":\"dst\"}";
	ck_assert_int_eq(up_post(d, "/compose", "", twice, strlen(twice), &r), 200);
	struct stat st;
	ck_assert_int_eq(stat(FS_HOME "/dst", &st), 0);
	ck_assert_int_eq(st.st_size, (off_t)(6 * MIB + 3));
	ck_assert_int_ne(access(FS_HOME "/big", F_OK), 0);
	ck_assert_int_eq(up_entries(FS_HOME), 3);
	free(big);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- cut uploads ---

static void send_cut(struct client *c, int how, const char *name, const char *body, size_t n)
{
	struct buf head = {0};
	buf_printf(&head, "POST /files?path=%s HTTP/1.1\r\nHost: x\r\n%s%s", name, how & 1 ? FORM : RAW,
		how & 2 ? "Transfer-Encoding: chunked\r\n\r\n1312d00\r\n" : "Content-Length: 20000000\r\n\r\n");
	if (how & 1)
		buf_str(&head, "--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n");
	client_send_raw(c, buf_data(&head), buf_len(&head));
	client_send_raw(c, body, n);
	buf_release(&head);
}

static bool only_old(void *arg)
{
	(void)arg;
	return up_entries(FS_HOME) == 2;
}

// B44: as it is or as a form, with a length and in chunks, cut by FIN, by RST, or half closed; new, old, and through a link.
START_TEST(cut_upload_is_written)
{
	static const char *const names[] = {"new", "old", "link"};
	if (!fs_home())
		return;
	struct testd *d = up_start();
	struct resp r = {0};
	struct stat st;
	char *old = up_filled('o', 3 * MIB), *body = up_filled('n', 8 * MIB);
	ck_assert_int_eq(up_post(d, "?path=old", RAW, old, 3 * MIB, &r), 200);
	ck_assert_int_eq(chmod(FS_HOME "/old", 0751), 0);
	ck_assert_int_eq(symlink("old", FS_HOME "/link"), 0);
	for (int i = 0; i < 36; i++) {
		struct client *c = up_connect(d);
		send_cut(c, i % 4, names[i / 4 % 3], body, 8 * MIB);
		if (i / 12 == 0) {
			client_shutdown_write(c);
			if (client_try_response(c, &r))
				ck_assert_int_ne(r.status, 200);
		}
		if (i / 12 == 1)
			client_abort(c);
		else
			client_close(c);
		ck_assert_msg(wait_until(only_old, NULL, 5000), "way %d: %d files", i, up_entries(FS_HOME));
		up_content(FS_HOME "/old", old, 3 * MIB);
	}
	ck_assert_int_eq(stat(FS_HOME "/old", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0751);
	free(old);
	free(body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B44: 20 MB into 10 MB, and recovery.
START_TEST(full_disk_keeps_a_part)
{
	if (!fs_home())
		return;
	fs_dir(FS_HOME "/small", 0755);
	ck_assert_int_eq(mount("tmpfs", FS_HOME "/small", "tmpfs", 0, "size=10m,nr_inodes=16"), 0);
	struct testd *d = up_start();
	struct resp r = {0};
	char *body = up_filled('n', 20 * MIB);
	fs_put(FS_HOME "/small/old", "old", 0640);
	for (int i = 0; i < 4; i++) {
		const char *name = i % 2 ? "?path=small/old" : "?path=small/new";
		ck_assert_int_eq(up_post(d, name, RAW, body, 20 * MIB, &r), 507);
		assert_text(
			&r.body, MESSAGE(507, "attempted to write 20971520 bytes: not enough disk space available"));
		up_content(FS_HOME "/small/old", "old", 3);
		ck_assert_int_eq(up_entries(FS_HOME "/small"), 1);
		ck_assert_int_eq(up_post(d, name, RAW, body, 2 * MIB, &r), 200);
		up_content(i % 2 ? FS_HOME "/small/old" : FS_HOME "/small/new", body, 2 * MIB);
		if (i % 2)
			exchange_file(FS_HOME "/small/old", "old", 3);
		(void)unlink(FS_HOME "/small/new");
	}
	free(body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(recorded_lack_of_space)
{
	if (!fs_home())
		return;
	fs_tree(G);
	fs_dir(G "/small", 0755);
	ck_assert_int_eq(mount("tmpfs", G "/small", "tmpfs", 0, "size=16k,nr_inodes=4"), 0);
	struct testd *d = up_start();
	struct golden g;
	struct resp r = {0};
	char *zeros = calloc(1, 40000), name[64];
	struct buf form = {0};
	BUF_LIT(&form, "--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n");
	buf_append(&form, zeros, 40000);
	BUF_LIT(&form, "\r\n--b0undary--\r\n");
	golden_open(&g, "files-nospace");
	ck_assert(golden_next(&g));
	up_post(d, "?path=g/small/a", RAW, zeros, 40000, &r);
	exchange_check(&g, &r, NULL, 0);
	ck_assert(golden_next(&g));
	struct client *c = up_connect(d);
	client_send_str(c,
		"POST /files?path=g/small/a HTTP/1.1\r\nHost: x\r\n" RAW "Transfer-Encoding: chunked\r\n\r\n9c40\r\n");
	client_send_raw(c, zeros, 40000);
	client_send_str(c, "\r\n0\r\n\r\n");
	resp_release(&r);
	client_response(c, &r);
	client_close(c);
	exchange_check(&g, &r, NULL, 0);
	ck_assert(golden_next(&g));
	up_post(d, "?path=g/small/a", FORM, buf_data(&form), buf_len(&form), &r);
	exchange_check(&g, &r, NULL, 0);
	ck_assert_int_eq(up_entries(G "/small"), 0);
	for (int i = 0; i < 8; i++) {
		(void)snprintf(name, sizeof name, G "/small/i%d", i);
		int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
		if (fd < 0)
			break;
		close(fd);
	}
	while (golden_next(&g)) {
		if (!strstr(g.label, "6. no inodes") && !strstr(g.label, "8. no inodes"))
			continue;
		exchange_send(d, &g, NULL, &r);
		exchange_check(&g, &r, NULL, 0);
	}
	golden_close(&g);
	buf_release(&form);
	free(zeros);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- old files ---

// Mode, links and other attributes stay, the owner is the user's unless a link led there; at sizes that are written in place and that are not.
START_TEST(overwrite_changes_more_than_it_should)
{
	static const size_t sizes[] = {0, 10, 100000, 5 * MIB, 20};
	if (!fs_home())
		return;
	bool attributes = has_attributes();
	struct testd *d = up_start();
	struct resp r = {0};
	struct stat st;
	char value[16];
	fs_put(FS_HOME "/f", "old", 0600);
	ck_assert_int_eq(symlink("f", FS_HOME "/link"), 0);
	if (attributes)
		ck_assert_int_eq(setxattr(FS_HOME "/f", "user.other", "kept", 4, 0), 0);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		char *body = up_filled((char)('a' + i), sizes[i]);
		ck_assert_int_eq(chown(FS_HOME "/f", 0, 0), 0);
		ck_assert_int_eq(up_post(d, "?path=link", RAW "X-Metadata-K: v\r\n", body, sizes[i], &r), 200);
		up_content(FS_HOME "/f", body, sizes[i]);
		ck_assert_int_eq(lstat(FS_HOME "/f", &st), 0);
		ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
		ck_assert_uint_eq(st.st_uid, 0);
		ck_assert_int_eq(lstat(FS_HOME "/link", &st), 0);
		ck_assert(S_ISLNK(st.st_mode));
		if (attributes) {
			ck_assert_int_eq(getxattr(FS_HOME "/f", "user.other", value, sizeof value), 4);
			ck_assert_int_eq(getxattr(FS_HOME "/f", "user.e2b.k", value, sizeof value), 1);
			ck_assert_ptr_nonnull(
				strstr(buf_cstr(&r.body), "{\"metadata\":{\"k\":\"v\"},\"name\":\"link\""));
		}
		ck_assert_int_eq(up_post(d, "?path=f", RAW, body, sizes[i], &r), 200);
		ck_assert_int_eq(lstat(FS_HOME "/f", &st), 0);
		ck_assert_uint_eq(st.st_uid, USER);
		if (attributes)
			ck_assert_int_lt(getxattr(FS_HOME "/f", "user.e2b.k", value, sizeof value), 0);
		free(body);
	}
	ck_assert_int_eq(up_entries(FS_HOME), 2);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static void put_victims(void)
{
	static const char *const names[] = {FS_HOME "/theirs/small", FS_HOME "/theirs/big"};
	for (size_t i = 0; i < COUNT(names); i++) {
		(void)unlink(names[i]);
		fs_put(names[i], "old", 0600);
		ck_assert_int_eq(chown(names[i], 0, 0), 0);
	}
}

static void assert_owner(const char *path, uid_t owner)
{
	struct stat st;
	ck_assert_msg(lstat(path, &st) == 0 && S_ISREG(st.st_mode), "%s", path);
	ck_assert_msg(st.st_uid == owner && st.st_gid == owner, "%s: %u", path, (unsigned)st.st_uid);
}

// A command puts a link where a file will be uploaded, or in place of a directory: what is there already is written, as anywhere, but
// does not become the user's. What the upload makes does.
START_TEST(planted_link_gives_files_away)
{
	static const char *const ways[] = {"link", "up/link", "dir/", "up/dir/"};
	if (!fs_home())
		return;
	struct testd *d = up_start();
	struct resp r = {0};
	char *body = up_filled('n', 5 * MIB), name[64], text[256];
	fs_dir(FS_HOME "/theirs", 0755);
	ck_assert_int_eq(symlink("theirs", FS_HOME "/dir"), 0);
	ck_assert_int_eq(symlink(".", FS_HOME "/up"), 0);
	ck_assert_int_eq(symlink("theirs/small", FS_HOME "/linksmall"), 0);
	ck_assert_int_eq(symlink(FS_HOME "/dir/big", FS_HOME "/linkbig"), 0);
	ck_assert_int_eq(symlink("theirs/new", FS_HOME "/linknew"), 0);
	for (size_t i = 0; i < COUNT(ways) * 3; i++) {
		const char *way = ways[i / 3];
		put_victims();
		// As it is; as a form; composed.
		for (int big = 0; big < 2; big++) {
			const char *last = big ? "big" : "small";
			size_t n = big ? 5 * MIB : 7;
			struct buf form = {0};
			(void)snprintf(
				name, sizeof name, "?path=%s%s", i % 3 == 2 ? "source" : way, i % 3 == 2 ? "" : last);
			buf_str(&form, "--b0undary\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n");
			buf_append(&form, body, n);
			buf_str(&form, "\r\n--b0undary--\r\n");
			if (i % 3 == 1)
				ck_assert_int_eq(up_post(d, name, FORM, buf_data(&form), buf_len(&form), &r), 200);
			else
				ck_assert_int_eq(up_post(d, name, RAW, body, n, &r), 200);
			(void)snprintf(text, sizeof text, "{\"source_paths\":[\"source\"],\"destination\":\"%s%s\"}",
				way, last);
			if (i % 3 == 2)
				ck_assert_int_eq(up_post(d, "/compose", "", text, strlen(text), &r), 200);
			(void)snprintf(text, sizeof text, FS_HOME "/theirs/%s", last);
			up_content(text, body, n);
			assert_owner(text, 0);
			buf_release(&form);
		}
		(void)snprintf(name, sizeof name, "?path=%snew", way);
		ck_assert_int_eq(up_post(d, name, RAW, body, 7, &r), 200);
		assert_owner(FS_HOME "/theirs/new", USER);
		ck_assert_int_eq(unlink(FS_HOME "/theirs/new"), 0);
	}
	ck_assert_int_eq(up_post(d, "?path=theirs/small", RAW, body, 7, &r), 200);
	assert_owner(FS_HOME "/theirs/small", USER);
	free(body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// What clients count: a fresh file is made, given away, written, in that order; equal events that follow each other may be one.
START_TEST(upload_makes_other_events)
{
	static const char form[] =
		"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f2\"\r\n\r\n2"
		"\r\n--b0undary--\r\n";
	static const struct step {
		const char *query, *headers, *body, *events;
		bool attributes;
	} steps[] = {
		{"?path=f", RAW, "x", "f CREATE f CHMOD f WRITE ", false},
		{"", FORM, form, "f2 CREATE f2 CHMOD f2 WRITE ", false},
		{"?path=empty", RAW, "", "empty CREATE empty CHMOD ", false},
		{"?path=f", RAW, "longer", "f CHMOD f WRITE ", false},
		{"?path=f", RAW, "", "f CHMOD f WRITE ", false},
		{"?path=m", RAW "X-Metadata-A: b\r\n", "x", "m CREATE m CHMOD m WRITE m CHMOD ", true},
		{"?path=m", RAW "X-Metadata-A: b\r\n", "y", "m CHMOD m WRITE ", true},
		{"?path=m", RAW, "z", "m CHMOD m WRITE m CHMOD ", true},
	};
	if (!fs_home())
		return;
	bool attributes = has_attributes();
	struct fskit k;
	struct resp r = {0}, up = {0};
	struct buf got = {0}, last = {0};
	fs_start(&k, false, "--user", "user");
	json_t *made = fs_pack(&k, "CreateWatcher", 200, &r, "{s:s}", "path", FS_HOME);
	char *id = strdup(j_str(made, "watcherId"));
	for (size_t i = 0; i < COUNT(steps) && (attributes || !steps[i].attributes); i++) {
		const struct step *s = &steps[i];
		ck_assert_int_eq(up_post(k.d, s->query, s->headers, s->body, strlen(s->body), &up), 200);
		const json_t *events =
			j_get(fs_pack(&k, "GetWatcherEvents", 200, &r, "{s:s}", "watcherId", id), "events");
		buf_reset(&got);
		buf_reset(&last);
		for (size_t e = 0; e < json_array_size(events); e++) {
			char text[64];
			const json_t *ev = json_array_get(events, e);
			(void)snprintf(text, sizeof text, "%s %s ", j_str(ev, "name"),
				j_str(ev, "type") + strlen("EVENT_TYPE_"));
			if (strcmp(text, buf_cstr(&last)) != 0)
				buf_str(&got, text);
			buf_reset(&last);
			buf_str(&last, text);
		}
		ck_assert_msg(strcmp(buf_cstr(&got), s->events) == 0, "step %zu: %s", i, buf_cstr(&got));
		if (strstr(s->events, "CREATE") && !s->attributes)
			ck_assert_uint_eq(json_array_size(events), *s->body ? 3 : 2);
	}
	free(id);
	buf_release(&got);
	buf_release(&last);
	resp_release(&r);
	resp_release(&up);
	fs_finish(&k);
}
END_TEST

Suite *envd_upload_suite(void)
{
	Suite *s = suite_create("envd_upload");
	TCase *tc = h_tcase(s, "upload", 90);
	tcase_add_test(tc, recorded_uploads);
	tcase_add_test(tc, recorded_metadata);
	tcase_add_test(tc, recorded_compositions);
	tcase_add_test(tc, composition_removes_its_result);
	tcase_add_test(tc, cut_upload_is_written);
	tcase_add_test(tc, full_disk_keeps_a_part);
	tcase_add_test(tc, recorded_lack_of_space);
	tcase_add_test(tc, overwrite_changes_more_than_it_should);
	tcase_add_test(tc, planted_link_gives_files_away);
	tcase_add_test(tc, upload_makes_other_events);
	return s;
}
