// SPDX-License-Identifier: Apache-2.0
// metrics: what celld counts, in one struct of plain words that is reached by pointer. Whoever sees something happen adds to it in one line:
// no system call, no allocation, no lock (one process writes). It lies in memory shared with the init part, so that a daemon that takes the
// place of one that died counts on; a new binary (upgrade) begins anew. METRICS_FAMILIES is where names and meanings are said, once.
// Must not know who asks for it, nor how a process or a connection works.
#ifndef CELLD_DAEMON_METRICS_H
#define CELLD_DAEMON_METRICS_H

#include <stddef.h>
#include <stdint.h>

// X(WORD, type, name, labels, help), in the order of the page. Times are seconds, sizes bytes.
// clang-format off
#define METRICS_FAMILIES(X) \
	X(BUILD, "gauge", "celld_build_info", "version", "Which celld this is; always 1.") \
	X(START_TIME, "gauge", "celld_start_time_seconds", "", "When the counters began at 0: the start of celld, or its last upgrade.") \
	X(DAEMON_START, "gauge", "celld_daemon_start_time_seconds", "", "When the daemon that answers was started.") \
	X(RESTARTS, "counter", "celld_daemon_restarts_total", "", "Daemons started after one that had died.") \
	X(UPGRADES, "counter", "celld_daemon_upgrades_total", "", "Daemons started by an upgrade.") \
	X(STARTED, "counter", "celld_commands_started_total", "kind", "Commands started.") \
	X(FAILED, "counter", "celld_command_start_failures_total", "step", "Commands that could not be started, by the step that failed.") \
	X(ENDED, "counter", "celld_commands_ended_total", "kind, end", "Commands ended, by how.") \
	X(RUNNING, "gauge", "celld_commands_running", "kind", "Commands that have not ended.") \
	X(KEPT, "gauge", "celld_commands_kept", "", "Ended commands whose output can still be attached to.") \
	X(COMMANDS_MAX, "gauge", "celld_commands_limit", "", "Commands that may run at once (--max-procs).") \
	X(COMMAND_BYTES, "counter", "celld_command_bytes_total", "channel", "Bytes read from commands, or written to them (stdin, typed included).") \
	X(SPAWN, "histogram", "celld_spawn_seconds", "", "From a command's start until its program runs.") \
	X(READERS, "gauge", "celld_output_readers", "", "Readers of commands' output, celld's own included.") \
	X(CUT, "counter", "celld_readers_cut_total", "", "Readers cut because they held others up.") \
	X(REQUESTS, "counter", "celld_requests_total", "surface, code", "Answers begun, by the class of their status.") \
	X(STREAMS, "counter", "celld_streams_total", "surface", "Answers sent while they are made: output, events, large files.") \
	X(STREAMS_OPEN, "gauge", "celld_streams_open", "surface", "Such answers under way.") \
	X(CONNECTIONS, "gauge", "celld_connections", "surface, state", "Open connections.") \
	X(CONNECTIONS_MAX, "gauge", "celld_connections_limit", "", "Connections that may be open at once.") \
	X(ACCEPTED, "counter", "celld_connections_accepted_total", "surface", "Connections accepted.") \
	X(REFUSED, "counter", "celld_connections_refused_total", "surface", "Connections closed at once, for there was no room.") \
	X(RECEIVED, "counter", "celld_received_bytes_total", "surface", "Bytes read from clients.") \
	X(SENT, "counter", "celld_sent_bytes_total", "surface", "Bytes sent to clients.") \
	X(WATCHERS, "gauge", "celld_watchers", "", "Watches of clients.") \
	X(WATCH_DIRS, "gauge", "celld_watched_directories", "", "Directories and files watched for them.") \
	X(WATCH_LOST, "counter", "celld_watch_overflows_total", "", "Times that a watch lost events; its client is told.") \
	X(TURN, "histogram", "celld_loop_stall_seconds", "", "How long each turn of the event loop kept all else waiting.") \
	X(RSS, "gauge", "celld_memory_bytes", "", "Resident memory of the daemon.") \
	X(CPU, "counter", "celld_cpu_seconds_total", "", "Processor time of the daemon that answers.") \
	X(FDS, "gauge", "celld_descriptors", "", "Open descriptors of the daemon.") \
	X(FDS_MAX, "gauge", "celld_descriptors_limit", "", "Descriptors that it may have.") \
	X(LOG_LOST, "counter", "celld_log_lines_lost_total", "", "Lines that a full stderr did not take, of the daemon that answers.")
// clang-format on

#define METRICS_WORD(word, ...) METRICS_##word,
enum metrics_family { METRICS_FAMILIES(METRICS_WORD) METRICS_COUNT };
#undef METRICS_WORD

struct metrics_info {
	const char *type, *name, *help;
	const char *labels; // names, with ", " between; "" = none
};
const struct metrics_info *metrics_info(enum metrics_family f);

// The values of labels. What a command is counted as is for its surface to say (struct proc_spec).
enum metrics_kind {
	METRICS_EXEC, // waited for by its request
	METRICS_STREAM,
	METRICS_BACKGROUND,
	METRICS_PTY,
	METRICS_ENVD, // surface B's, terminals too
	METRICS_OWN,  // celld's own
	METRICS_KINDS
};
enum metrics_end {
	METRICS_SUCCESS, // exit status 0
	METRICS_FAILURE, // another one
	METRICS_SIGNAL,
	METRICS_TIMEOUT,
	METRICS_OOM,
	METRICS_STOPPED, // the sandbox ended first
	METRICS_ENDS
};
enum metrics_channel { METRICS_STDOUT, METRICS_STDERR, METRICS_TERMINAL, METRICS_STDIN, METRICS_CHANNELS };
enum metrics_surface_id { METRICS_A, METRICS_B, METRICS_SURFACES };
#define METRICS_STEPS 6 // enum spawn_step
const char *metrics_kind(enum metrics_kind k);
const char *metrics_end(enum metrics_end e);
const char *metrics_channel(enum metrics_channel c);

#define METRICS_BUCKETS 12
struct metrics_histogram {
	uint64_t bucket[METRICS_BUCKETS + 1]; // each for itself; the last one is for all beyond the bounds
	uint64_t sum_ns;
};
// Upper bound of a bucket in nanoseconds.
int64_t metrics_bound(size_t bucket);
void metrics_observe(struct metrics_histogram *h, int64_t ns);

// What a surface's connections add up to.
struct metrics_surface {
	uint64_t answers[6]; // by status / 100
	uint64_t streams;
	uint64_t accepted, refused;
	uint64_t received, sent; // bytes
};

struct metrics {
	int64_t since_ms; // wall clock
	uint64_t started[METRICS_KINDS], ended[METRICS_KINDS][METRICS_ENDS];
	uint64_t failed[METRICS_STEPS];
	uint64_t bytes[METRICS_CHANNELS];
	uint64_t readers_cut, watch_lost;
	struct metrics_histogram spawn, turn;
	struct metrics_surface surface[METRICS_SURFACES];
};

// All zero, shared with the processes that are forked from here on. NULL when out of memory.
struct metrics *metrics_new(void);
void metrics_free(struct metrics *m); // NULL is allowed

// What the kernel says of the calling process, at the cost of some system calls: for who asks. What cannot be read is 0.
struct metrics_self {
	uint64_t rss, fds, fds_max;
	uint64_t cpu_ns;
};
void metrics_self(struct metrics_self *out);

#endif
