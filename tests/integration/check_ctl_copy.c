// SPDX-License-Identifier: Apache-2.0
// celld ctl cp: any bytes, any size, old or new.
#include "tests/integration/ctlkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// --- files here ---

static void put(const char *path, const void *p, size_t n, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	ck_assert_msg(fd >= 0, "%s", path);
	const char *s = p;
	while (n > 0) {
		ssize_t done = write(fd, s, n);
		ck_assert_int_gt(done, 0);
		s += done;
		n -= (size_t)done;
	}
	ck_assert_int_eq(fchmod(fd, mode), 0);
	(void)close(fd);
}

static void assert_file(const char *path, const void *want, size_t n)
{
	struct buf b = {0};
	unsigned char part[65536];
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_msg(fd >= 0, "%s is missing", path);
	while ((got = read(fd, part, sizeof part)) > 0)
		buf_append(&b, part, (size_t)got);
	(void)close(fd);
	assert_bytes(&b, want, n);
	buf_release(&b);
}

static unsigned mode_of(const char *path)
{
	struct stat st;
	ck_assert_int_eq(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

// No half-made copy.
static void assert_clean(const char *dir)
{
	DIR *dp = opendir(dir);
	const struct dirent *e;
	ck_assert_ptr_nonnull(dp);
	while ((e = readdir(dp)))
		ck_assert_msg(!strstr(e->d_name, ".celld-cp-"), "%s/%s", dir, e->d_name);
	(void)closedir(dp);
}

static void in_workspace(const struct testd *d, const char *name, char path[512])
{
	(void)snprintf(path, 512, "%s/%s", d->workspace, name);
}

static void shell(const char *dir, const char *line)
{
	char command[1024];
	(void)snprintf(command, sizeof command, "cd %s && { %s; }", dir, line);
	ck_assert_msg(system(command) == 0, "%s", line);
}

// --- tests ---

static const struct {
	size_t n;
	mode_t mode;
	const char *option, *value;
} sizes[] = {
	{0, 0644, NULL, NULL},
	{1, 0600, NULL, NULL},
	{5000001, 0755, NULL, NULL},
	{((size_t)64 << 20) + 3, 0640, NULL, NULL}, // more than one body holds
	{300001, 0444, "--max-body", "16K"},
	{3001, 0644, "--max-body", "1K"},
};

START_TEST(file_is_the_same_both_ways)
{
	struct testd *d =
		d_start_args(sizes[_i].option ? ctl_words(sizes[_i].option, sizes[_i].value) : ctl_words(NULL));
	struct ctlrun c;
	char here[512], there[512], back[512];
	size_t n = sizes[_i].n;
	unsigned char *p = ctl_noise(n + 1);
	ctl_file(d, "here", here);
	ctl_file(d, "back", back);
	in_workspace(d, "sub/there", there);
	put(here, p, n, sizes[_i].mode);
	ctl_ok(d, &c, "cp", here, ":sub/there");
	ctl_release(&c);
	assert_file(there, p, n);
	ck_assert_uint_eq(mode_of(there), sizes[_i].mode);
	ctl_ok(d, &c, "cp", "sandbox:sub/there", back);
	ck_assert_uint_eq(buf_len(&c.said[0]) + buf_len(&c.said[1]), 0);
	ctl_release(&c);
	assert_file(back, p, n);
	ck_assert_uint_eq(mode_of(back), sizes[_i].mode);
	assert_clean(d->base);
	free(p);
	d_finish(d);
}
END_TEST

START_TEST(names_are_taken_as_they_are)
{
	static const char *const names[] = {
		"-n", "a b", "it's", "$x", "new\nline", ":colon", "\xff\xc3\xa9\xc3'\x81\n", "\xed\xa0\x80", "*"};
	struct testd *d = d_start();
	struct ctlrun c;
	char here[512], there[512], back[512], arg[64];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		(void)snprintf(arg, sizeof arg, ":%s", names[i]);
		ctl_file(d, "here", here);
		ctl_file(d, names[i], back);
		in_workspace(d, names[i], there);
		put(here, names[i], strlen(names[i]), 0755);
		ctl_ok(d, &c, "cp", here, arg);
		ctl_release(&c);
		assert_file(there, names[i], strlen(names[i]));
		ctl_ok(d, &c, "cp", arg, d->base);
		ctl_release(&c);
		assert_file(back, names[i], strlen(names[i]));
	}
	// Directories, too, whose names no text can hold.
	in_workspace(d, "\xff\xfe", there);
	ck_assert_int_eq(mkdir(there, 0755), 0);
	put(here, "x", 1, 0700);
	ctl_ok(d, &c, "cp", here, ":\xff\xfe/");
	ctl_release(&c);
	in_workspace(d, "\xff\xfe/here", there);
	assert_file(there, "x", 1);
	ck_assert_uint_eq(mode_of(there), 0700);
	ctl_ok(d, &c, "cp", "-r", ":\xff\xfe", d->base);
	ctl_release(&c);
	ctl_file(d, "\xff\xfe", back);
	ctl_ok(d, &c, "cp", "-r", back, ":\xfd");
	ctl_release(&c);
	in_workspace(d, "\xfd/here", there);
	assert_file(there, "x", 1);
	d_finish(d);
}
END_TEST

START_TEST(directories_and_links_as_targets)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char path[512], here[512];
	ctl_file(d, "here", here);
	put(here, "new", 3, 0644);
	shell(d->workspace, "mkdir dir; echo old >real; ln -s real link; ln -s dir dirlink; ln -s gone dangling");
	shell(d->base, "mkdir dir; echo old >real; ln -s real link; mkfifo pipe");
	ctl_ok(d, &c, "cp", here, ":dir");
	ctl_release(&c);
	ctl_ok(d, &c, "cp", here, ":dirlink/");
	ctl_release(&c);
	in_workspace(d, "dir/here", path);
	assert_file(path, "new", 3);
	ctl_ok(d, &c, "cp", here, ":link");
	ctl_release(&c);
	shell(d->workspace, "test -L link && test \"$(cat real)\" = new");
	ctl_ok(d, &c, "cp", here, ":dangling");
	ctl_release(&c);
	shell(d->workspace, "test -L dangling && test \"$(cat gone)\" = new");
	ctl_ok(d, &c, "cp", ":link", d->base);
	ctl_release(&c);
	shell(d->base, "test -L link && test \"$(cat real)\" = new");
	// What is no file is written to.
	char pipe[512];
	ctl_file(d, "pipe", pipe);
	ctl_start(&c, d, NULL, ctl_words("cp", ":real", pipe));
	int fd = open(pipe, O_RDONLY | O_CLOEXEC);
	char part[8];
	ssize_t n, all = 0;
	while ((n = read(fd, part, sizeof part)) > 0)
		all += n;
	ck_assert_int_eq(all, 3);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	(void)close(fd);
	ctl_release(&c);
	shell(d->base, "test -p pipe");
	ctl_exits(d, 1, &c, "cp", here, ":/dev/null");
	ctl_assert_has(ctl_err(&c), "/dev/null: is there and no file");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(failure_leaves_the_old)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char path[512], here[512];
	ctl_file(d, "here", here);
	ctl_file(d, "old", path);
	put(path, "old", 3, 0644);
	put(here, "new", 3, 0644);
	ctl_exits(d, 1, &c, "cp", ":missing", path);
	ck_assert_str_eq(ctl_err(&c), "celld ctl: missing: No such file or directory\n");
	ctl_release(&c);
	assert_file(path, "old", 3);
	ctl_exits(d, 1, &c, "cp", "/nowhere/file", ":x");
	ck_assert_str_eq(ctl_err(&c), "celld ctl: /nowhere/file: No such file or directory\n");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "cp", ":/etc/passwd", "/nowhere/file");
	ctl_assert_has(ctl_err(&c), "/nowhere/file: No such file or directory");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "cp", here, ":/proc/here");
	ctl_release(&c);
	ctl_exits(d, 2, &c, "cp", "a", "b");
	ctl_assert_has(ctl_err(&c), "one of the two is in the sandbox (:PATH), the other one here");
	ctl_release(&c);
	ctl_exits(d, 2, &c, "cp", ":a", ":b");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "cp", ":/etc", d->base);
	ctl_assert_has(ctl_err(&c), "/etc: is a directory (-r takes it)");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "cp", d->base, ":x");
	ctl_assert_has(ctl_err(&c), "is a directory (-r takes it)");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "cp", ":/proc/self/mem", d->workspace);
	ctl_assert_has(ctl_err(&c), "/proc/self/mem: Input/output error");
	ctl_release(&c);
	assert_clean(d->base);
	assert_clean(d->workspace);
	d_finish(d);
}
END_TEST

static bool has_temp(void *arg)
{
	const struct testd *d = arg;
	DIR *dp = opendir(d->workspace);
	const struct dirent *e;
	bool found = false;
	while (dp && (e = readdir(dp)))
		found |= strstr(e->d_name, ".celld-cp-") != NULL;
	if (dp)
		(void)closedir(dp);
	return found;
}

static void assert_private(const char *dir)
{
	DIR *dp = opendir(dir);
	const struct dirent *e;
	struct stat st;
	ck_assert_ptr_nonnull(dp);
	while ((e = readdir(dp)))
		if (strstr(e->d_name, ".celld-cp-") && fstatat(dirfd(dp), e->d_name, &st, 0) == 0 && st.st_size > 0)
			ck_assert_uint_eq(st.st_mode & 0077, 0);
	(void)closedir(dp);
}

static bool is_there(void *path)
{
	return access(path, F_OK) == 0;
}

// Nobody else reads it while it is on its way.
START_TEST(secret_is_open_on_its_way)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char here[512], there[512];
	unsigned char *p = ctl_noise(40000000);
	ctl_file(d, "secret", here);
	in_workspace(d, "secret", there);
	put(here, p, 40000000, 0400);
	ctl_start(&c, d, NULL, ctl_words("cp", here, ":"));
	int64_t end = h_now_ms() + h_scaled(CTL_DEADLINE);
	while (!is_there(there)) {
		ck_assert_int_lt(h_now_ms(), end);
		assert_private(d->workspace);
	}
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	ctl_release(&c);
	ck_assert_uint_eq(mode_of(there), 0400);
	assert_file(there, p, 40000000);
	assert_clean(d->workspace);
	free(p);
	d_finish(d);
}
END_TEST

// Ctrl-C in the middle, both ways.
START_TEST(interrupted_copy_leaves_nothing)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char there[512], back[512];
	in_workspace(d, "there", there);
	ctl_file(d, "back", back);
	put(there, "old", 3, 0644);
	put(back, "old", 3, 0644);
	unsigned char *p = ctl_noise(5000000);
	ctl_start(&c, d, NULL, ctl_words("cp", "/dev/stdin", ":there"));
	ctl_type(&c, p, 5000000);
	ck_assert(wait_until(has_temp, d, 10000));
	ck_assert_int_eq(kill(c.pid, SIGINT), 0);
	ck_assert(ctl_finish(&c, "", 0) == 128 + SIGINT);
	ctl_release(&c);
	assert_file(there, "old", 3);
	assert_clean(d->workspace);
	shell(d->workspace, "mkfifo endless; sleep 60 >endless & echo $! >keeper");
	ctl_start(&c, d, NULL, ctl_words("cp", ":endless", back));
	int64_t until = h_now_ms() + 300;
	while (h_now_ms() < until)
		h_tick();
	ck_assert_int_eq(kill(c.pid, SIGINT), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 128 + SIGINT);
	ctl_release(&c);
	shell(d->workspace, "kill $(cat keeper)");
	assert_file(back, "old", 3);
	assert_clean(d->base);
	free(p);
	d_finish(d);
}
END_TEST

// nohup: what the caller ignores does not end a copy.
START_TEST(ignored_signal_ends_a_copy)
{
	struct testd *d = d_start();
	char line[900];
	(void)snprintf(line, sizeof line,
		"trap '' HUP; mkfifo in; CELLD_URL=http://127.0.0.1:%d %s ctl cp in :kept & p=$!; exec 3>in; echo a "
		">&3; "
		"sleep 0.2; kill -HUP $p; sleep 0.2; echo b >&3; exec 3>&-; wait $p; test \"$(cat workspace/kept)\" = "
		"\"$(printf 'a\\nb')\"",
		d->port, ctl_binary());
	shell(d->base, line);
	d_finish(d);
}
END_TEST

START_TEST(trees_go_both_ways)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char tree[512], back[512];
	ctl_file(d, "tree", tree);
	ctl_file(d, "back", back);
	shell(d->base,
		"mkdir -p tree/a/b tree/empty; head -c 3000000 /dev/urandom >tree/a/big; echo x >'tree/a/b/it'\\''s'; "
		"ln -s big tree/a/link; chmod 750 tree/a/b; chmod 755 tree/a/big");
	ctl_ok(d, &c, "cp", "-r", tree, ":");
	ck_assert_str_eq(ctl_err(&c), "");
	ctl_release(&c);
	shell(d->base, "diff -r tree workspace/tree; test -d workspace/tree/empty; test -L workspace/tree/a/link; "
		       "test $(stat -c %a workspace/tree/a/b) = 750");
	ctl_ok(d, &c, "cp", "-r", tree, ":other");
	ctl_release(&c);
	shell(d->base, "diff -r tree workspace/other");
	ctl_ok(d, &c, "cp", "-r", ":tree", back);
	ctl_release(&c);
	shell(d->base, "diff -r tree back && test $(stat -c %a back/a/b) = 750");
	// The name is there already: into it.
	ctl_ok(d, &c, "cp", "-r", ":tree/a", back);
	ctl_release(&c);
	shell(d->base, "diff -r tree back");
	ctl_ok(d, &c, "cp", "-r", ":tree/a/.", back);
	ctl_release(&c);
	shell(d->base, "cmp tree/a/big back/big");
	d_finish(d);
}
END_TEST

START_TEST(trees_fail_with_words)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char tree[512], path[600], file[512];
	ctl_file(d, "tree", tree);
	ctl_file(d, "file", file);
	shell(d->base, "mkdir tree bin; echo x >tree/x; echo old >file; mkdir workspace/tree; chmod u+s tree/x");
	(void)snprintf(path, sizeof path, "PATH=%s/bin", d->base);
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words(path), ctl_words("cp", "-r", tree, ":x")), 1);
	ctl_assert_has(ctl_err(&c), "tar is needed for directories, and is not here");
	ctl_release(&c);
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words(path), ctl_words("cp", "-r", ":tree", tree)), 1);
	ctl_assert_has(ctl_err(&c), "tar is needed for directories, and is not here");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "cp", "-r", ":tree", file);
	ctl_assert_has(ctl_err(&c), "Not a directory");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "cp", "-r", tree, ":/etc/passwd");
	ctl_assert_has(ctl_err(&c), "is there and no directory");
	ctl_release(&c);
	ctl_exits(d, 1, &c, "cp", "-r", "..", ":");
	ctl_assert_has(ctl_err(&c), "has no name for the copy");
	ctl_release(&c);
	// A sandbox does not get a set-user-ID program made here.
	shell(d->workspace, "echo x >tree/suid; chmod 4755 tree/suid");
	ctl_ok(d, &c, "cp", "-r", ":tree", tree);
	ctl_release(&c);
	shell(d->base, "test -f tree/tree/suid && test ! -u tree/tree/suid");
	d_finish(d);
}
END_TEST

static bool has_landlock(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, 1) >= 2;
}

// A link that an earlier copy has brought leads the next one nowhere else, and devices stay where they are.
START_TEST(sandbox_reaches_what_is_beside_the_copy)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char copy[512];
	ctl_file(d, "copy", copy);
	shell(d->base, "mkdir outside; mkdir -p workspace/.venv/bin workspace/out workspace/made/link; echo x "
		       ">workspace/made/link/planted; "
		       "echo y >workspace/made/link/good; ln workspace/made/link/good workspace/made/other; ln -s "
		       "\"$PWD/outside\" workspace/out/link");
	ctl_ok(d, &c, "cp", "-r", ":out", copy);
	ctl_release(&c);
	shell(d->base, "test -L copy/link");
	shell(d->workspace, "printf '#!/bin/sh\\nexec /bin/tar -C made -cf - ./link/planted ./other\\n' "
			    ">.venv/bin/tar; chmod +x .venv/bin/tar");
	if (has_landlock()) {
		ctl_exits(d, 1, &c, "cp", "-r", ":out/.", copy);
		ctl_assert_has(ctl_err(&c), "tar here has failed\n");
		ctl_release(&c);
		shell(d->base, "test ! -e outside/planted; test \"$(cat copy/other)\" = y");
	}
	// Hard links between directories are made all the same.
	shell(d->workspace, "rm .venv/bin/tar");
	ctl_ok(d, &c, "cp", "-r", ":made", copy);
	ctl_release(&c);
	shell(d->base, "test copy/made/other -ef copy/made/link/good");
	if (geteuid() == 0) {
		shell(d->workspace, "mkdir dev; mknod dev/null c 1 3; echo z >dev/file");
		ctl_exits(d, 1, &c, "cp", "-r", ":dev", copy);
		ctl_release(&c);
		shell(d->base, "test ! -e copy/dev/null; test \"$(cat copy/dev/file)\" = z");
	}
	d_finish(d);
}
END_TEST

Suite *ctl_copy_suite(void)
{
	Suite *s = suite_create("ctl_copy");
	TCase *tc = h_tcase(s, "files", 90);
	tcase_add_loop_test(tc, file_is_the_same_both_ways, 0, (int)(sizeof sizes / sizeof *sizes));
	tcase_add_test(tc, names_are_taken_as_they_are);
	tcase_add_test(tc, directories_and_links_as_targets);
	tcase_add_test(tc, failure_leaves_the_old);
	tcase_add_test(tc, interrupted_copy_leaves_nothing);
	tcase_add_test(tc, ignored_signal_ends_a_copy);
	tcase_add_test(tc, secret_is_open_on_its_way);
	tc = h_tcase(s, "trees", 60);
	tcase_add_test(tc, trees_go_both_ways);
	tcase_add_test(tc, trees_fail_with_words);
	tcase_add_test(tc, sandbox_reaches_what_is_beside_the_copy);
	return s;
}
