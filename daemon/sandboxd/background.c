// SPDX-License-Identifier: Apache-2.0
// Background runs. A run's files are made under hidden names first, so that a start that fails changes nothing of an older run; and what
// says how it ended is reserved then, so that a disk that the run itself has filled still takes it.
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/sandboxd/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

enum { RUN_ID_SIZE = 129, DIR_SIZE = sizeof BACKGROUND_DIR + RUN_ID_SIZE };

struct bg_run {
	struct output_reader reader; // first: the callbacks get it
	struct workspace *ws;
	struct proc *proc;
	char run_id[RUN_ID_SIZE];
	char dir[DIR_SIZE];
	int out[2];                     // stdout, stderr; -1 when it cannot be written
	bool lost;                      // some output could not be written
	uint64_t skip[OUTPUT_CHANNELS]; // bytes that an earlier daemon has written
	struct bg_run *prev, *next;
};

static const char *const out_names[2] = {"stdout", "stderr"};
// What is written at the end, in that order; kept from the start under a hidden name, this long.
static const char *const end_names[2] = {"end", "exit_code"};
static const char reserve[] = "                                                               \n";

static struct bg_run *find(const struct workspace *ws, const char *run_id)
{
	struct bg_run *run;
	DL_FOREACH(ws->runs, run)
	{
		if (strcmp(run->run_id, run_id) == 0)
			return run;
	}
	return NULL;
}

bool background_running(const struct workspace *ws, const char *run_id)
{
	return find(ws, run_id) != NULL;
}

static void hidden(char name[32], const char *plain)
{
	snprintf(name, 32, ".%s", plain);
}

// --- the files ---

static int check_places(int dirfd)
{
	struct stat st;
	for (int i = 0; i < 2; i++) {
		if ((fstatat(dirfd, out_names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) ||
			(fstatat(dirfd, end_names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)))
			return -EISDIR;
	}
	return 0;
}

static int make_files(struct bg_run *run, int dirfd)
{
	char name[32];
	const struct journals *set = run->ws->journals;
	int rc = check_places(dirfd);
	for (int i = 0; rc == 0 && i < 2; i++) {
		hidden(name, out_names[i]);
		run->out[i] = journals_create(set, dirfd, name);
		rc = run->out[i] < 0 ? run->out[i] : 0;
		hidden(name, end_names[i]);
		if (rc == 0)
			rc = journals_put(set, dirfd, name, reserve);
	}
	return rc;
}

static void remove_files(const struct bg_run *run, int dirfd)
{
	char name[32];
	for (int i = 0; i < 2; i++) {
		hidden(name, out_names[i]);
		unlinkat(dirfd, name, 0);
		hidden(name, end_names[i]);
		unlinkat(dirfd, name, 0);
	}
	// The directory too, unless an older run is in it.
	int parent = journals_dir(run->ws->journals, BACKGROUND_DIR, false);
	if (parent >= 0)
		unlinkat(parent, run->run_id, AT_REMOVEDIR);
	io_close(&parent);
}

// The run has begun: its files take the places of an older one's.
static void show_files(const struct bg_run *run, int dirfd)
{
	char name[32], text[32];
	const struct journals *set = run->ws->journals;
	for (int i = 0; i < 2; i++) {
		unlinkat(dirfd, end_names[i], 0);
		hidden(name, out_names[i]);
		renameat(dirfd, name, dirfd, out_names[i]);
	}
	snprintf(text, sizeof text, "%d\n", (int)proc_pid(run->proc));
	journals_put(set, dirfd, "pid", text);
	snprintf(text, sizeof text, "%lld\n", (long long)(proc_started_ms(run->proc) / 1000));
	journals_put(set, dirfd, "started_at", text);
}

// Writes into the reserved file and shows it; or makes a new one, if somebody took it away.
static int settle_file(const struct bg_run *run, int dirfd, const char *plain, const char *text)
{
	char name[32];
	struct stat st;
	size_t n = strlen(text);
	hidden(name, plain);
	int fd = IO_AGAIN(openat(dirfd, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
	bool ok = fd >= 0 && fstat(fd, &st) == 0 && journals_made(run->ws->journals, &st);
	ok = ok && io_pwrite(fd, text, n, 0) == 0 && IO_AGAIN(ftruncate(fd, (off_t)n)) == 0;
	io_close(&fd);
	if (ok && renameat(dirfd, name, dirfd, plain) == 0)
		return 0;
	return journals_put(run->ws->journals, dirfd, plain, text);
}

static void settle(const struct bg_run *run, const struct proc_end *end)
{
	char words[64], code[16];
	const char *sig = end->sig ? proc_signal_name(end->sig) : NULL;
	char number[16] = "";
	if (end->sig && !sig)
		snprintf(number, sizeof number, "SIG%d", end->sig);
	snprintf(words, sizeof words, "%s%s%s%s%s\n", end->timed_out ? "timed_out" : "completed", end->sig ? " " : "",
		sig ? sig : number, run->lost ? " truncated" : "", end->oom ? " oom" : "");
	snprintf(code, sizeof code, "%d\n", end->code);
	int dirfd = journals_dir(run->ws->journals, run->dir, true);
	int rc = dirfd < 0 ? dirfd : settle_file(run, dirfd, end_names[0], words);
	if (rc == 0)
		rc = settle_file(run, dirfd, end_names[1], code);
	if (rc < 0)
		log_warn("background", "run %s: end not written: %s", run->run_id, strerror(-rc));
	io_close(&dirfd);
}

// --- its reader ---

static void run_free(struct bg_run *run)
{
	output_detach(&run->reader);
	io_close(&run->out[0]);
	io_close(&run->out[1]);
	free(run);
}

static void write_out(struct bg_run *run, int ch, const unsigned char *p, size_t n)
{
	while (n && run->out[ch] >= 0) {
		ssize_t rc = io_write(run->out[ch], p, n);
		if (rc <= 0) {
			log_warn("background", "run %s: %s: %s", run->run_id, out_names[ch], strerror((int)-rc));
			run->lost = true;
			// What comes later would follow a gap.
			io_close(&run->out[ch]);
			return;
		}
		p += rc;
		n -= (size_t)rc;
	}
}

static void on_wake(struct output_reader *r)
{
	struct bg_run *run = (struct bg_run *)r;
	struct output_span s;
	while (output_next(r, SIZE_MAX, &s)) {
		size_t skip = run->skip[s.channel] < s.n ? (size_t)run->skip[s.channel] : s.n;
		run->skip[s.channel] -= skip;
		write_out(run, s.channel == OUTPUT_STDERR, s.p + skip, s.n - skip);
		output_taken(r, s.n);
	}
	const struct proc_end *end = proc_end(run->proc);
	if (!end)
		return;
	struct workspace *ws = run->ws;
	run->lost |= r->lost;
	// A run that the end of the sandbox has cut off has no end of its own.
	if (!end->stopped && !(ws->terminating && end->sig))
		settle(run, end);
	events_background(ws, "bg_end", proc_session_id(run->proc), run->run_id, run->proc);
	DL_DELETE(ws->runs, run);
	run_free(run);
}

static void on_cut(struct output_reader *r)
{
	(void)r; // it takes all at every wake
}

void background_drop(struct workspace *ws)
{
	while (ws->runs) {
		struct bg_run *run = ws->runs;
		struct proc *p = run->proc;
		DL_DELETE(ws->runs, run);
		run_free(run);
		proc_resume(p);
	}
}

// --- their beginnings ---

static struct bg_run *run_new(struct workspace *ws, const char *run_id, struct err *e)
{
	struct bg_run *run = calloc(1, sizeof *run);
	if (!run) {
		err_sys(e, -ENOMEM, "run");
		return NULL;
	}
	run->ws = ws;
	run->out[0] = run->out[1] = -1;
	snprintf(run->run_id, sizeof run->run_id, "%s", run_id);
	snprintf(run->dir, sizeof run->dir, "%s/%s", BACKGROUND_DIR, run->run_id);
	return run;
}

static void attach(struct bg_run *run)
{
	run->reader.wake = on_wake;
	run->reader.cut = on_cut;
	DL_APPEND(run->ws->runs, run);
}

// --- those of an earlier daemon ---

// Its output file, to be gone on with from *SIZE. Negative errno if it is not what was made.
static int reopen(const struct journals *set, int dirfd, const char *name, uint64_t *size)
{
	struct stat st;
	int fd = IO_AGAIN(openat(dirfd, name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && journals_made(set, &st)) {
		*size = (uint64_t)st.st_size;
		return fd;
	}
	close(fd);
	return -ELOOP;
}

static void reopen_files(struct bg_run *run, uint64_t size[OUTPUT_CHANNELS])
{
	int dirfd = journals_dir(run->ws->journals, run->dir, false);
	if (dirfd >= 0)
		show_files(run, dirfd); // again, if the daemon died before it was through with that
	for (int i = 0; i < 2; i++) {
		uint64_t *at = &size[i ? OUTPUT_STDERR : OUTPUT_STDOUT];
		int fd = dirfd < 0 ? dirfd : reopen(run->ws->journals, dirfd, out_names[i], at);
		run->out[i] = fd < 0 ? -1 : fd;
		run->lost |= fd < 0;
		if (fd < 0)
			log_warn("background", "run %s: %s: %s", run->run_id, out_names[i], strerror(-fd));
	}
	io_close(&dirfd);
}

void background_take_back(struct workspace *ws, struct proc *p, const char *run_id)
{
	struct err e;
	uint64_t size[OUTPUT_CHANNELS] = {0};
	struct bg_run *run = workspace_id_ok(run_id, strlen(run_id)) ? run_new(ws, run_id, &e) : NULL;
	if (!run) {
		log_warn("background", "run %s: no memory", run_id);
		return;
	}
	run->proc = p;
	reopen_files(run, size);
	attach(run);
	output_attach_from(proc_output(p), &run->reader, size, run->skip);
	run->lost |= run->reader.lost;
	on_wake(&run->reader);
}

// --- POST /exec/background ---

static int files_error(struct err *e, int rc)
{
	return err_sys(e, rc, "%s", BACKGROUND_DIR);
}

static int start(struct bg_run *run, struct launch *l, struct err *e)
{
	struct workspace *ws = run->ws;
	int dirfd = journals_dir(ws->journals, run->dir, true);
	if (dirfd < 0)
		return files_error(e, dirfd);
	int rc = make_files(run, dirfd);
	if (rc < 0)
		files_error(e, rc);
	else
		rc = launch_start(l, ws->sandboxd, &run->proc, e);
	if (rc < 0) {
		remove_files(run, dirfd);
		io_close(&dirfd);
		return -1;
	}
	show_files(run, dirfd);
	io_close(&dirfd);
	attach(run);
	output_attach(proc_output(run->proc), &run->reader);
	events_background(ws, "bg_submit", proc_session_id(run->proc), run->run_id, NULL);
	return 0;
}

static void started(struct conn *c, const char *run_id)
{
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kstr(&w, "status", "started");
	jsonw_kstr(&w, "run_id", run_id);
	jsonw_obj_end(&w);
	sandboxd_reply(c, &out);
}

static const char both_required[] = "command and run_id required";

static int parse_run_id(const struct launch *l, const struct workspace *ws, const char **run_id, struct err *e)
{
	size_t n = 0;
	*run_id = "";
	if (jsonr_str(l->doc, "run_id", JSONR_NUL_OK, run_id, &n, e) < 0)
		return -1;
	if (!n)
		return err_set(e, ERR_INVALID_ARGUMENT, both_required);
	if (!workspace_id_ok(*run_id, n))
		return err_set(e, ERR_INVALID_ARGUMENT, "invalid run_id");
	if (find(ws, *run_id))
		return err_set(e, ERR_ALREADY_EXISTS, "run %s is still running", *run_id);
	return 0;
}

void sandboxd_background(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct launch l;
	struct err e;
	const char *run_id;
	if (launch_parse(&l, s, c, &e) < 0) {
		if (strcmp(e.msg, "command required") == 0)
			err_set(&e, ERR_INVALID_ARGUMENT, both_required);
		conn_error(c, &e);
		return;
	}
	const json_t *timeout = json_object_get(l.doc, "timeout");
	if (!timeout || json_is_null(timeout))
		l.spec.timeout = 0;
	l.spec.kind = PROC_BACKGROUND;
	l.spec.counted = METRICS_BACKGROUND;
	struct bg_run *run = NULL;
	if (workspace_admit(s->workspace, &e) == 0 && parse_run_id(&l, s->workspace, &run_id, &e) == 0)
		run = run_new(s->workspace, run_id, &e);
	l.spec.note = run ? run->run_id : NULL;
	if (run && start(run, &l, &e) == 0) {
		started(c, run->run_id);
	} else {
		if (run)
			run_free(run);
		conn_error(c, &e);
	}
	launch_release(&l);
}
