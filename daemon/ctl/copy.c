// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/copy.h"
#include "daemon/ctl/shell.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// --- shared ---

int copy_fails(const char *path, int sys)
{
	ctl_say("%s: %s", path, strerror(sys));
	return CTL_FAILED;
}

void copy_put_command(struct buf *out, const char *command, bool with_stdin)
{
	struct jsonw w;
	jsonw_init(&w, out);
	jsonw_obj(&w);
	jsonw_kstr(&w, "command", command);
	jsonw_kint(&w, "timeout", 0);
	jsonw_kbool(&w, "stdin", with_stdin);
	jsonw_obj_end(&w);
}

void copy_put_path(struct buf *line, const char *path)
{
	struct buf full;
	buf_init(&full, 0);
	buf_str(&full, *path == '/' ? "" : "./");
	buf_str(&full, path);
	const char *s = buf_cstr(&full);
	if (s)
		shell_put_word(line, s);
	else
		line->fail = -ENOMEM;
	buf_release(&full);
}

int copy_judge(int rc, const struct relay_end *end, const char *who, const struct err *e)
{
	if (rc < 0)
		return ctl_fail(e);
	if (end->write_error && end->write_error != EPIPE)
		return copy_fails(who, end->write_error);
	if (end->cut_by || end->sig)
		return relay_status(end);
	if (end->truncated)
		ctl_say("%s: output was lost on the way", who);
	return end->code == 0 && !end->truncated ? CTL_OK : CTL_FAILED;
}

// --- which way ---

// The path in the sandbox, or NULL for one that is here.
static const char *remote_path(const char *word)
{
	static const char prefix[] = "sandbox:";
	const char *path = NULL;
	if (*word == ':')
		path = word + 1;
	else if (strncmp(word, prefix, sizeof prefix - 1) == 0)
		path = word + sizeof prefix - 1;
	return path && !*path ? "." : path;
}

// A path of the caller's own, or NULL after a message: as all that follows.
static char *dup_path(const char *path)
{
	char *s = strdup(path);
	if (!s)
		(void)copy_fails(path, ENOMEM);
	return s;
}

// DIR/NAME
static char *join(const char *dir, const char *name)
{
	char *s = NULL;
	size_t n = strlen(dir);
	if (asprintf(&s, "%s%s%s", dir, n > 0 && dir[n - 1] == '/' ? "" : "/", name) >= 0)
		return s;
	(void)copy_fails(dir, ENOMEM);
	return NULL;
}

// The name of SRC for a copy below a directory; "." stands for what is in it.
static char *name_of(const char *src)
{
	size_t n = strlen(src), from;
	while (n > 0 && src[n - 1] == '/')
		n--;
	for (from = n; from > 0 && src[from - 1] != '/'; from--)
		;
	char *name = strndup(src + from, n - from);
	if (!name)
		(void)copy_fails(src, ENOMEM);
	else if (*name && strcmp(name, "..") != 0)
		return name;
	else
		ctl_say("%s: has no name for the copy", src);
	free(name);
	return NULL;
}

static bool ends_with_slash(const char *s)
{
	size_t n = strlen(s);
	return n > 0 && s[n - 1] == '/';
}

// Where the copy of SRC has to be if DST was asked for: the caller's, or NULL after a message. *STATUS is the exit status then.
static char *remote_target(const struct ctl *ctl, const char *src, const char *dst, bool tree, int *status)
{
	struct remote_entry entry, inner = {0};
	struct err e;
	char *to = NULL, *name = NULL, *below = NULL;
	*status = CTL_FAILED;
	if (remote_look(ctl, dst, &entry, &e) < 0) {
		*status = ctl_fail(&e);
	} else if (entry.type == REMOTE_DIR || (entry.type == REMOTE_MISSING && ends_with_slash(dst) && !tree)) {
		name = name_of(src);
		below = name ? join(entry.path, name) : NULL;
		if (below && remote_look(ctl, below, &inner, &e) < 0)
			*status = ctl_fail(&e);
		else if (below && inner.type != REMOTE_MISSING && inner.type != (tree ? REMOTE_DIR : REMOTE_FILE))
			ctl_say("%s: is there and no %s", below, tree ? "directory" : "file");
		else if (below)
			to = dup_path(inner.path);
	} else if (entry.type == REMOTE_MISSING || (entry.type == REMOTE_FILE && !tree)) {
		to = dup_path(entry.path);
	} else {
		ctl_say("%s: is there and no %s", dst, tree ? "directory" : "file");
	}
	free(entry.path);
	free(inner.path);
	free(name);
	free(below);
	return to;
}

// The same here.
static char *local_target(const char *src, const char *dst, bool tree)
{
	struct stat st;
	char *to = NULL, *name;
	if (stat(dst, &st) < 0 && errno != ENOENT) {
		(void)copy_fails(dst, errno);
	} else if (stat(dst, &st) < 0) {
		if (ends_with_slash(dst) && !tree)
			(void)copy_fails(dst, ENOENT);
		else
			to = dup_path(dst);
	} else if (S_ISDIR(st.st_mode)) {
		name = name_of(src);
		to = name ? join(dst, name) : NULL;
		free(name);
	} else if (tree) {
		(void)copy_fails(dst, ENOTDIR);
	} else {
		to = dup_path(dst);
	}
	return to;
}

static int up(struct ctl *ctl, const char *src, const char *dst)
{
	struct stat st;
	int status = CTL_FAILED, fd = IO_AGAIN(open(src, O_RDONLY | O_CLOEXEC));
	if (fd < 0 || fstat(fd, &st) < 0) {
		int sys = errno;
		io_close(&fd);
		return copy_fails(src, sys);
	}
	bool tree = S_ISDIR(st.st_mode);
	char *to = NULL;
	if (tree && !ctl->opt.recursive)
		ctl_say("%s: is a directory (-r takes it)", src);
	else
		to = remote_target(ctl, src, dst, tree, &status);
	if (to)
		status = tree ? copy_tree_up(ctl, src, to) : copy_up(ctl, fd, src, to);
	free(to);
	io_close(&fd);
	return status;
}

static int down(struct ctl *ctl, const char *src, const char *dst)
{
	struct remote_entry entry;
	struct err e;
	char *to = NULL;
	int status = CTL_FAILED;
	if (remote_look(ctl, src, &entry, &e) < 0) {
		free(entry.path);
		return ctl_fail(&e);
	}
	bool tree = entry.type == REMOTE_DIR;
	if (entry.type == REMOTE_MISSING)
		(void)copy_fails(src, ENOENT);
	else if (tree && !ctl->opt.recursive)
		ctl_say("%s: is a directory (-r takes it)", src);
	else
		to = local_target(src, dst, tree);
	if (to)
		status = tree ? copy_tree_down(ctl, src, to) : copy_down(ctl, &entry, to);
	free(to);
	free(entry.path);
	return status;
}

int ctl_cp(struct ctl *ctl)
{
	const char *src = remote_path(ctl->words[0]), *dst = remote_path(ctl->words[1]);
	if (!src == !dst)
		return ctl_usage(ctl, "one of the two is in the sandbox (:PATH), the other one here");
	return src ? down(ctl, src, ctl->words[1]) : up(ctl, ctl->words[0], dst);
}
