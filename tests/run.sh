#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh UNIT-TESTS INTEGRATION-TESTS: run both (integration also with celld as a real PID 1, when root), sum what
# Check reports and print the sum last, in Check's words. Fails if anything failed, or if a program checked nothing.
set -u

unit=$1 integration=$2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-${T_SCALE:-1}}"
checks=0 failures=0 errors=0

run() { # run TITLE PROGRAM
	echo "== $1"
	{
		"$2" </dev/null
		echo $? >"$tmp/status"
	} 2>&1 | tee "$tmp/output"
	# A program that died, or ended badly without a failed check to show for it, is one error more.
	set -- $(awk -v status="$(cat "$tmp/status")" '
		/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/ { checks += $3; failures += $5; errors += $7 }
		END {
			if (!checks || (status != 0 && !failures && !errors)) { checks++; errors++ }
			print checks + 0, failures + 0, errors + 0
		}' "$tmp/output")
	checks=$((checks + $1)) failures=$((failures + $2)) errors=$((errors + $3))
}

export CELLD_TEST_PID1=0
run "unit tests" "$unit"
run "integration tests, celld as a plain process" "$integration"
if [ "$(id -u)" != 0 ]; then
	echo "== integration tests as PID 1: left out, needs root"
elif ! unshare --pid --fork --mount-proc true 2>"$tmp/unshare"; then
	echo "== integration tests as PID 1: left out, $(cat "$tmp/unshare")"
else
	CELLD_TEST_PID1=1
	run "integration tests, celld as PID 1" "$integration"
fi

passed=$((checks - failures - errors))
echo "$((100 * passed / checks))%: Checks: $checks, Failures: $failures, Errors: $errors"
[ "$passed" -eq "$checks" ]
