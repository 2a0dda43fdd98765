#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh UNIT-TESTS FUZZ-TESTS INTEGRATION-TESTS: run all ("-": not those; integration also with celld as a real PID 1, when root), sum what
# Check reports and print the sum last, in Check's words. Fails if anything failed, or if a suite checked nothing.
# PID1_SUITES: a pattern, of integration suites that run a second time with celld as PID 1 (all). SKIP_SUITES: of those that do not run (none).
# Suites run JOBS at a time, for most of them wait more than they work; CK_RUN_SUITE=name runs that one alone. What failed is printed once more at
# the end. AGAIN=1: a suite that failed runs a second time with nothing beside it, and that run counts; the first is still shown, as unsteady.
set -u

unit=$1 fuzz=$2 integration=$3
jobs=${JOBS:-$((2 * $(nproc)))}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-${T_SCALE:-1}}"
checks=0 failures=0 errors=0

# One suite of PROGRAM: what it printed, in one piece, then a line with its counts. A program that died, or ended badly
# without a failed check to show for it, is one error more.
cat >"$tmp/suite" <<'SUITE'
program=$1 suite=$2 out=$3/$2 start=$(date +%s)
CK_RUN_SUITE=$suite "$program" </dev/null >"$out" 2>&1
status=$?
counts=$(awk -v status="$status" '
	/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/ { checks += $3; failures += $5; errors += $7 }
	END {
		if (!checks || (status != 0 && !failures && !errors)) { checks++; errors++ }
		print checks + 0, failures + 0, errors + 0
	}' "$out")
{
	grep -v '^Running suite(s):' "$out" | sed "s/^\([0-9]*%: Checks\)/$suite: \1/"
	[ "$status" -eq 0 ] || echo "$suite: exit status $status"
	took=$(($(date +%s) - start))
	[ "$took" -lt 30 ] || echo "$suite: took $took s"
	echo "counts $counts"
} >"$out.done"
cat "$out.done"
SUITE

# What the suite printed of its failures goes into the list of failures under the given words.
record() { # record SUITE WORDS
	{
		echo "$1, $title: $2"
		grep -v '^counts \|: took ' "$tmp/out/$1.done" | tail -n 60
	} >>"$tmp/failed"
}

failed_suites() {
	awk '$1 == "counts" && $3 + $4 > 0 { sub(".*/", "", FILENAME); sub("[.]done$", "", FILENAME); print FILENAME }' "$tmp"/out/*.done
}

run() { # run TITLE PROGRAM [SUITES [NOT-THOSE]]
	title=$1
	echo "== $1"
	names=$("$2" --list | grep -x "${CK_RUN_SUITE:-.*}" | grep -Ex "${3:-.*}" | grep -Evx "${4:-}") || return 0
	mkdir -p "$tmp/out"
	echo "$names" | xargs -P "$jobs" -I{} sh "$tmp/suite" "$2" {} "$tmp/out" | grep --line-buffered -v '^counts '
	for suite in $(failed_suites); do
		[ -z "${AGAIN:-}" ] || {
			record "$suite" "UNSTEADY, it failed among others and was run again alone"
			sh "$tmp/suite" "$2" "$suite" "$tmp/out" | grep -v '^counts '
			grep -q '^counts [0-9]* 0 0$' "$tmp/out/$suite.done" && continue
		}
		record "$suite" "FAILED"
	done
	set -- $(cat "$tmp"/out/*.done | awk '
		$1 == "counts" { checks += $2; failures += $3; errors += $4 }
		END { print checks + 0, failures + 0, errors + 0 }')
	rm -rf "$tmp/out"
	checks=$((checks + $1)) failures=$((failures + $2)) errors=$((errors + $3))
}

export CELLD_TEST_PID1=0
[ "$unit" = - ] || run "unit tests" "$unit"
[ "$fuzz" = - ] || run "what the fuzzers found, over a whole daemon" "$fuzz"
run "integration tests, celld as a plain process" "$integration" '.*' "${SKIP_SUITES:-}"
if [ "$(id -u)" != 0 ]; then
	echo "== integration tests as PID 1: left out, needs root"
elif ! unshare --pid --fork --mount-proc true 2>"$tmp/unshare"; then
	echo "== integration tests as PID 1: left out, $(cat "$tmp/unshare")"
else
	CELLD_TEST_PID1=1
	run "integration tests, celld as PID 1" "$integration" "${PID1_SUITES:-.*}" "${SKIP_SUITES:-}"
fi

passed=$((checks - failures - errors))
if [ "$checks" -eq 0 ]; then
	echo "no test was run"
	exit 1
fi
[ ! -e "$tmp/failed" ] || {
	echo "== what failed"
	cat "$tmp/failed"
}
echo "$((100 * passed / checks))%: Checks: $checks, Failures: $failures, Errors: $errors"
[ "$passed" -eq "$checks" ]
