// SPDX-License-Identifier: Apache-2.0
#include "configkit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void configkit_init(struct configkit *k)
{
	k->c = k->pool;
	k->out_fd = memfd_create("out", MFD_CLOEXEC);
	k->err_fd = memfd_create("err", MFD_CLOEXEC);
	ck_assert_int_eq(dup2(k->out_fd, STDOUT_FILENO), STDOUT_FILENO);
	ck_assert_int_eq(dup2(k->err_fd, STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(clearenv(), 0);
}

const char *configkit_printed(int fd)
{
	static char text[16384];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	ck_assert_int_eq(ftruncate(fd, 0) | (int)lseek(fd, 0, SEEK_SET), 0);
	return text;
}

void configkit_args(struct configkit *k, const char *line)
{
	k->argc = 0;
	snprintf(k->words, sizeof(k->words), "celld %s", line);
	for (char *save, *w = strtok_r(k->words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		ck_assert_int_lt(k->argc, CONFIGKIT_ARGS);
		k->args[k->argc++] = strcmp(w, "''") == 0 ? w + 2 : w;
	}
	k->args[k->argc] = NULL;
}

enum config_action configkit_load(struct configkit *k, const char *line)
{
	configkit_args(k, line);
	k->status = -1;
	ck_assert_ptr_ne(++k->c, k->pool + CONFIGKIT_LOADS);
	return config_load(k->c, k->argc, k->args, &k->status);
}

void configkit_must_load(struct configkit *k, const char *line)
{
	enum config_action action = configkit_load(k, line);
	ck_assert_str_eq(configkit_printed(k->err_fd), "");
	ck_assert_int_eq(action, CONFIG_RUN);
	ck_assert_str_eq(configkit_printed(k->out_fd), "");
}

void configkit_must_refuse(struct configkit *k, const char *line, int status, const char *message)
{
	ck_assert_int_eq(configkit_load(k, line), CONFIG_EXIT);
	ck_assert_str_eq(configkit_printed(k->err_fd), message);
	ck_assert_int_eq(k->status, status);
	ck_assert_str_eq(configkit_printed(k->out_fd), "");
}

const char *configkit_variable(const char *name)
{
	static char var[64];
	snprintf(var, sizeof(var), "CELLD_%s", name);
	for (char *p = var; *p; p++)
		*p = *p == '-' ? '_' : *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
	return var;
}
