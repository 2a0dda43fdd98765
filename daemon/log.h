// SPDX-License-Identifier: Apache-2.0
// log: one line an event on stderr, text or JSON. Never blocks: a line that a full stderr does not take at once is dropped and
// counted, and the count is said in the next line that goes through. The only module with state of its own.
// Safe in every process of celld (init and daemon); not in a signal handler or in a child that has not run its program yet.
#ifndef CELLD_DAEMON_LOG_H
#define CELLD_DAEMON_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

// Lines above LEVEL are not written. JSON: one object a line. Allocates nothing, neither here nor later.
void log_setup(enum log_level level, bool json);
// EVENT is a short stable word ("daemon_restart"); the message is free text. Control characters in it are escaped.
void log_line(enum log_level level, const char *event, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
// A line with fields, for what was asked for in so many words (requests, commands, dumps): its level is info, and it is written whatever the
// level. Text has them behind the message as key=value, quoted like JSON where that is needed; JSON as members of their own. What others
// chose belongs into fields, never into MSG. A text of more than LOG_TEXT_MAX bytes is cut, a field that has no room left out.
#define LOG_TEXT_MAX ((size_t)200)
struct log_field {
	const char *key;
	const char *text; // NULL: it is the number
	int64_t number;
};
void log_record(const char *event, const char *msg, const struct log_field *fields, size_t count);
// Lines that stderr did not take, since the start of this process.
uint64_t log_lost(void);
// A line exactly as it is (plus newline), whatever the level: the ready line, start errors.
void log_plain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
