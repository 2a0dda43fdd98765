#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# try.sh ARCH BINARY [UNIT-TESTS SYSROOT]: BINARY is static, stripped and of ARCH, and does its main job; with UNIT-TESTS under qemu's user mode,
# where they run too.
set -eu

arch=$1 binary=$2 unit=${3:-} sysroot=${4:-}
here=$(dirname "$0")
case $arch in
x86_64) machine="Advanced Micro Devices X86-64" ;;
aarch64) machine=AArch64 ;;
riscv64) machine=RISC-V ;;
esac
elf=$(readelf -hlSW "$binary")
case $elf in
*INTERP* | *DYNAMIC* | *.symtab* | *.debug_info*)
	echo "dist: $binary is not static, or not stripped"
	exit 1
	;;
*"$machine"*) ;;
*)
	echo "dist: $binary is not for $arch"
	exit 1
	;;
esac
if [ -z "$unit" ]; then
	exec python3 "$here/job.py" "$binary"
fi

# --- under qemu ---

qemu="qemu-$arch"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
version=$("$qemu" "$binary" --version) || version="exit status $?"
[ "$version" = "celld $(sed -n 's/^#define CONFIG_VERSION "\(.*\)"$/\1/p' daemon/config.h)" ] || {
	echo "dist: $arch: --version: $version"
	exit 1
}
python3 "$here/job.py" --emulated "$qemu" "$binary"

# Each suite by itself, for one that hangs must not take the rest with it. Emulation is slow, and so are the time limits.
export CK_TIMEOUT_MULTIPLIER=20 qemu unit sysroot tmp
grep -v '^#' "$here/emulated.tsv" >"$tmp/known"
"$qemu" -L "$sysroot" "$unit" --list >"$tmp/list"
awk -F '\t' 'NR == FNR { if ($2 == "*") out[$1] = $3; next } !($1 in out)' "$tmp/known" "$tmp/list" >"$tmp/run"
grep '	\*	' "$tmp/known" | grep -Ff "$tmp/list" | awk -F '\t' '{ suites[$3] = suites[$3] " " $1 }
	END { for (why in suites) print "dist:    unit tests LEFT OUT under qemu, " why ":" suites[why] }' | sort
# shellcheck disable=SC2016
run='CK_RUN_SUITE=$1 timeout -k 5 300 "$qemu" -L "$sysroot" "$unit" </dev/null >"$tmp/$1.log" 2>&1; echo $? >"$tmp/$1.status"'
xargs -P "$(nproc)" -n 1 sh -c "$run" sh <"$tmp/run"

judge() { # judge SUITE: what is left out of it, and wrong; false if something is
	# file:line:F or E or S:case:test:iteration: what
	sed -n 's/^\([^ ]*:[0-9]*:[FES]:\([^:]*\):\([^:]*\):.*\)$/\3\t\2\t\1/p' "$tmp/$1.log" >"$tmp/found"
	awk -F '\t' -v suite="$1" 'NR == FNR { if ($1 == suite) why[$2] = $3; next }
		{ of = $1 in why ? $1 : $2 }
		of in why { if (!said[of]++) print "dist:    " suite ": " of ": LEFT OUT under qemu, " why[of]; next }
		{ print "dist:    " suite ": WRONG: " $3; bad = 1 }
		END { exit bad }' "$tmp/known" "$tmp/found" || return 1
	# One that died or hung has not told of a test.
	[ -s "$tmp/found" ] || [ "$(cat "$tmp/$1.status")" = 0 ] || {
		echo "dist:    $1: WRONG: exit status $(cat "$tmp/$1.status")"
		return 1
	}
}

wrong=0
while read -r suite; do
	judge "$suite" >"$tmp/said" || {
		# Beside others emulation is so slow at times that clocks are missed.
		echo "dist:    $suite: again, alone: $(grep -m 1 WRONG "$tmp/said")"
		sh -c "$run" sh "$suite"
		judge "$suite" >"$tmp/said" || {
			tail -n 20 "$tmp/$suite.log" | cut -c 1-300
			wrong=$((wrong + 1))
		}
	}
	cat "$tmp/said"
done <"$tmp/run"
cat "$tmp"/*.log | awk -v suites="$(wc -l <"$tmp/run")" -v all="$(wc -l <"$tmp/list")" -v wrong="$wrong" -v arch="$arch" '
	/^[0-9]+%: Checks: / { gsub(",", ""); checks += $3; bad += $5 + $7 }
	END {
		print "dist: " arch ": " checks " unit tests of " suites " suites (" all " there are), " bad " not passed, " wrong " suites wrong"
		exit wrong || !checks
	}'
