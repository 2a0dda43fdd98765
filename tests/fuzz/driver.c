// SPDX-License-Identifier: Apache-2.0
// One target as libFuzzer wants it: FUZZ names it (-DFUZZ=http).
#include "tests/fuzz/fuzz.h"

#define PASTE(a, b) a##b
#define TARGET(name) PASTE(fuzz_, name)

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	return TARGET(FUZZ)(p, n);
}
