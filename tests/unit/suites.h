// SPDX-License-Identifier: Apache-2.0
// The suites of the unit tests. check_<module>.c exports <module>_suite and nothing else; a new module adds its
// line to UNIT_SUITES.
#ifndef CELLD_UNIT_SUITES_H
#define CELLD_UNIT_SUITES_H

#include <check.h>

// clang-format off
#define UNIT_SUITES(X) \
	X(buf) \
	X(cells) \
	X(daemon_loop) \
	X(err) \
	X(http) \
	X(http_out) \
	X(text) \
	X(text_bulk) \
	X(utf8) \
	X(json) \
	X(jsonw) \
	X(frame) \
	X(gzip) \
	X(envelope) \
	X(pbwire) \
	X(pbjson) \
	X(pbjson_out) \
	X(sign) \
	X(multipart) \
	X(io) \
	X(log) \
	X(metrics) \
	X(trace) \
	X(limits) \
	X(listener) \
	X(users) \
	X(config) \
	X(config_token) \
	X(output) \
	X(output_back) \
	X(env) \
	X(tree) \
	X(spawn) \
	X(spawn_wait) \
	X(confine) \
	X(proc) \
	X(pty) \
	X(journal) \
	X(journal_open) \
	X(hooks) \
	X(proc_io) \
	X(proc_record) \
	X(cgroup) \
	X(cgroup_parent) \
	X(proc_group) \
	X(proc_store) \
	X(proc_back) \
	X(proc_crash) \
	X(proc_stdin) \
	X(launch) \
	X(slice) \
	X(store) \
	X(store_hands) \
	X(init) \
	X(init_daemons) \
	X(handoff) \
	X(json_scan) \
	X(walk) \
	X(walk_aside) \
	X(walk_large) \
	X(files) \
	X(files_trust) \
	X(planted) \
	X(files_writer) \
	X(files_odd) \
	X(files_routes) \
	X(signals) \
	X(watch) \
	X(watch_limits) \
	X(conn) \
	X(conn_body) \
	X(conn_duplex) \
	X(envd_files) \
	X(envd_entry) \
	X(net) \
	X(notify) \
	X(route) \
	X(control) \
	X(rpc) \
	X(fuzz) \
	X(gateway_options) \
	X(gateway_call) \
	X(gateway_box) \
	X(gateway_apart) \
	X(gateway_root) \
	X(gateway_job) \
	X(gateway_pool) \
	X(gateway_claims) \
	X(gateway_ends) \
	X(gateway_tunnel)
// clang-format on

#define UNIT_DECLARE(module) Suite *module##_suite(void);
UNIT_SUITES(UNIT_DECLARE)
#undef UNIT_DECLARE

#endif
