// SPDX-License-Identifier: Apache-2.0
// A file from the sandbox: the stream of a `cat` to a hidden file beside its place, then renamed.
#include "daemon/ctl/copy.h"
#include "daemon/ctl/progress.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void moved(void *arg, uint64_t in, uint64_t out)
{
	(void)in;
	progress_at(arg, (int64_t)out);
}

static int receive(struct ctl *ctl, const struct remote_entry *src, int fd, const char *to)
{
	struct buf line, body;
	struct relay_end end;
	struct progress progress;
	struct err e;
	buf_init(&line, 0);
	buf_init(&body, 0);
	buf_str(&line, "exec cat -- ");
	copy_put_path(&line, src->path);
	const char *command = buf_cstr(&line);
	if (command)
		copy_put_command(&body, command, false);
	else
		body.fail = -ENOMEM;
	const struct relay_spec spec = {
		.target = &ctl->target,
		.kind = RELAY_COMMAND,
		.method = "POST",
		.path = "/exec/stream",
		.body = &body,
		.in = -1,
		.out = fd,
		.err = STDERR_FILENO,
		.safe_err = true,
		.moved = moved,
		.arg = &progress,
	};
	progress_begin(&progress, src->path, src->type == REMOTE_FILE ? src->size : -1, ctl->opt.quiet);
	int rc = relay_run(&spec, &end, &e);
	progress_end(&progress);
	buf_release(&line);
	buf_release(&body);
	return copy_judge(rc, &end, to, &e);
}

// What is no file (a device, a pipe) is written to, not replaced.
static int receive_into(struct ctl *ctl, const struct remote_entry *src, const char *to)
{
	int fd = IO_AGAIN(open(to, O_WRONLY | O_CLOEXEC | O_NOCTTY));
	if (fd < 0)
		return copy_fails(to, errno);
	int status = receive(ctl, src, fd, to);
	if (close(fd) < 0 && errno != EINTR && status == CTL_OK)
		status = copy_fails(to, errno);
	return status;
}

static int receive_beside(struct ctl *ctl, const struct remote_entry *src, const char *to)
{
	char *temp;
	const char *slash = strrchr(to, '/');
	if (asprintf(&temp, "%.*s" COPY_TEMP "XXXXXX", slash ? (int)(slash - to) + 1 : 0, to) < 0)
		return copy_fails(to, ENOMEM);
	int fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0) {
		int sys = errno;
		free(temp);
		return copy_fails(to, sys);
	}
	int status = receive(ctl, src, fd, to);
	unsigned mode = src->type == REMOTE_FILE ? src->mode & 0777 : 0644;
	if (status == CTL_OK && fchmod(fd, mode) < 0)
		status = copy_fails(to, errno);
	if (close(fd) < 0 && errno != EINTR && status == CTL_OK)
		status = copy_fails(to, errno);
	if (status == CTL_OK && rename(temp, to) < 0)
		status = copy_fails(to, errno);
	if (status != CTL_OK)
		(void)unlink(temp);
	free(temp);
	return status;
}

int copy_down(struct ctl *ctl, const struct remote_entry *src, const char *to)
{
	struct stat st;
	char real[PATH_MAX];
	if (stat(to, &st) < 0)
		return receive_beside(ctl, src, to);
	if (S_ISDIR(st.st_mode))
		return copy_fails(to, EISDIR);
	if (!S_ISREG(st.st_mode))
		return receive_into(ctl, src, to);
	if (!realpath(to, real)) // a link stays one
		return copy_fails(to, errno);
	return receive_beside(ctl, src, real);
}
