// SPDX-License-Identifier: Apache-2.0
// corpus: what the fuzzers have found, run once more. Started from the top of the tree.
#ifndef CELLD_FUZZ_CORPUS_H
#define CELLD_FUZZ_CORPUS_H

#include "tests/fuzz/fuzz.h"

// Runs every input of tests/fuzz/corpus/NAME, within a Check test, which fails if there are hardly any.
void corpus_replay(fuzz_target *run, const char *name);

#endif
