// SPDX-License-Identifier: Apache-2.0
// The suites of the integration tests. check_<name>.c exports <name>_suite and nothing else; a new file adds its line to
// INTEGRATION_SUITES, the longest first. What a test can use is in harness.h.
#ifndef CELLD_INTEGRATION_SUITES_H
#define CELLD_INTEGRATION_SUITES_H

#include <check.h>

// clang-format off
#define INTEGRATION_SUITES(X) \
	X(crash_loop) \
	X(crash_crowd) \
	X(faults_allocation) \
	X(faults_memory) \
	X(faults_kernel) \
	X(faults_descriptors) \
	X(faults_disk) \
	X(faults_sockets) \
	X(faults_interrupts) \
	X(faults_ctl) \
	X(answers) \
	X(files) \
	X(files_disk) \
	X(removals) \
	X(list) \
	X(ends) \
	X(children) \
	X(confine) \
	X(refused) \
	X(apart) \
	X(kills) \
	X(cgroup) \
	X(cgroup_life) \
	X(signals) \
	X(stdin) \
	X(pty) \
	X(pty_end) \
	X(errors) \
	X(errno) \
	X(http) \
	X(http_limits) \
	X(output) \
	X(smuggling) \
	X(start) \
	X(systemd) \
	X(token) \
	X(origin) \
	X(capabilities) \
	X(metrics) \
	X(records) \
	X(request_limits) \
	X(pid1) \
	X(crash) \
	X(crash_state) \
	X(upgrade) \
	X(cost) \
	X(memory) \
	X(readers) \
	X(replay) \
	X(workspace) \
	X(transcript) \
	X(background) \
	X(background_cut) \
	X(events) \
	X(watch) \
	X(watch_limits) \
	X(watch_stream) \
	X(envd_process) \
	X(envd_table) \
	X(envd_streams) \
	X(envd_input) \
	X(envd_pty) \
	X(envd_transport) \
	X(envd_control) \
	X(envd_token) \
	X(envd_files) \
	X(envd_upload) \
	X(envd_upload_big) \
	X(envd_signature) \
	X(envd_filesystem) \
	X(envd_watch) \
	X(ctl) \
	X(ctl_copy) \
	X(ctl_tty) \
	X(ctl_see) \
	X(ctl_words) \
	X(ctl_hostile) \
	X(stop) \
	X(gateway_run) \
	X(gateway_pool) \
	X(gateway_control) \
	X(gateway_life) \
	X(gateway_daemon) \
	X(gateway_proxy) \
	X(gateway_ends) \
	X(gateway_crowd)
// clang-format on

#define INTEGRATION_DECLARE(name) Suite *name##_suite(void);
INTEGRATION_SUITES(INTEGRATION_DECLARE)
#undef INTEGRATION_DECLARE

#endif
