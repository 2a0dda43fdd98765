// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define PERIOD ((size_t)65521)

// --- contents ---

bool bulk_init(struct bulk *k)
{
	uint64_t x = 88172645463325252;
	*k = (struct bulk){.noise = malloc(PERIOD + BULK_PIECE), .piece = malloc(BULK_PIECE)};
	if (!k->noise || !k->piece) {
		bulk_release(k);
		return false;
	}
	for (size_t i = 0; i < PERIOD; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		k->noise[i] = (unsigned char)x;
	}
	for (size_t i = PERIOD; i < PERIOD + BULK_PIECE; i++)
		k->noise[i] = k->noise[i - PERIOD];
	return true;
}

void bulk_release(struct bulk *k)
{
	free(k->noise);
	free(k->piece);
	*k = (struct bulk){0};
}

const unsigned char *bulk_at(const struct bulk *k, uint64_t offset)
{
	return k->noise + offset % PERIOD;
}

bool bulk_right(const struct bulk *k, const void *p, size_t n, uint64_t offset)
{
	const unsigned char *at = p;
	while (n > 0) {
		size_t part = n < BULK_PIECE ? n : BULK_PIECE;
		if (memcmp(at, bulk_at(k, offset), part) != 0)
			return false;
		at += part;
		offset += part;
		n -= part;
	}
	return true;
}

int bulk_file_make(const struct bulk *k, const char *path, uint64_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	ssize_t n = fd < 0 ? -1 : 0;
	for (uint64_t at = 0; at < bytes && n >= 0; at += (uint64_t)n)
		n = write(fd, bulk_at(k, at), bytes - at < BULK_PIECE ? (size_t)(bytes - at) : BULK_PIECE);
	int error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return n < 0 ? -1 : 0;
}

bool bulk_file_right(struct bulk *k, const char *path, uint64_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t at = 0;
	ssize_t n = fd < 0 ? -1 : 0;
	while (fd >= 0 && (n = read(fd, k->piece, BULK_PIECE)) > 0 && bulk_right(k, k->piece, (size_t)n, at))
		at += (uint64_t)n;
	if (fd >= 0)
		close(fd);
	return n == 0 && at == bytes;
}

// --- connections ---

static void be_patient(struct client *c, int seconds)
{
	const struct timeval silence = {.tv_sec = seconds * client_scale()};
	c->limit_us = (int64_t)silence.tv_sec * 1000000;
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
}

int bulk_open(struct wire *w, const struct target *t, int port)
{
	const struct target floor = {.name = "the floor", .surface = SURFACE_B, .port = port};
	int rc = wire_open(w, t ? t : &floor);
	if (rc == 0)
		be_patient(&w->c, 60);
	return rc;
}

// --- trees ---

static int touch(const char *dir, unsigned i)
{
	char path[512];
	snprintf(path, sizeof path, "%s/f%06u.txt", dir, i);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	return fd < 0 ? -1 : close(fd);
}

int bulk_tree_make(const char *dir, unsigned files, bool flat)
{
	char sub[256];
	int rc = mkdir(dir, 0755);
	snprintf(sub, sizeof sub, "%s", dir);
	for (unsigned i = 0; i < files && rc == 0; i++) {
		if (!flat && i % 100 == 0) {
			snprintf(sub, sizeof sub, "%s/d%04u", dir, i / 100);
			rc = mkdir(sub, 0755);
		}
		rc = rc == 0 ? touch(sub, i) : rc;
	}
	return rc;
}

// --- memory ---

static double number_in(pid_t pid, const char *key)
{
	char path[64], line[256];
	double v = 0;
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, key, strlen(key)) == 0)
			v = strtod(line + strlen(key), NULL);
	if (f)
		fclose(f);
	return v;
}

static double peak_of(pid_t pid)
{
	return number_in(pid, "VmHWM:");
}

// From here on the kernel's peak is that of what follows: 1 if it cannot be told so.
static double forget_peak(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)pid);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, "5", 1) == 1;
	if (fd >= 0)
		close(fd);
	return ok ? 0 : 1;
}

double bulk_peak_begin(const struct target *t)
{
	double now = bench_sum(t, forget_peak) > 0 ? 0 : bench_sum(t, peak_of);
	return now > 0 ? now : -1;
}

double bulk_peak(const struct target *t, double before)
{
	return bench_sum(t, peak_of) - before;
}
