// SPDX-License-Identifier: Apache-2.0
// faultpaths: what clients do, for check_faults.c: in groups, each for a daemon of its own and ended by a nameless one.
#ifndef CELLD_TESTS_INTEGRATION_FAULTPATHS_H
#define CELLD_TESTS_INTEGRATION_FAULTPATHS_H

#include "tests/integration/faulty.h"

extern const struct path fault_paths_exec[], fault_paths_live[], fault_paths_files[], fault_paths_work[],
	fault_paths_start[], fault_paths_tree[], fault_paths_upload[];

#define FAULT_GROUPS 7
static const struct path *const fault_paths[FAULT_GROUPS] = {fault_paths_exec, fault_paths_live, fault_paths_files,
	fault_paths_work, fault_paths_start, fault_paths_tree, fault_paths_upload};

#endif
