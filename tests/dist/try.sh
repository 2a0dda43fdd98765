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
xargs -P "$(nproc)" -I{} sh -c 'CK_RUN_SUITE={} timeout -k 5 300 "$qemu" -L "$sysroot" "$unit" </dev/null >"$tmp/{}.log" 2>&1 ||
	echo "{} $?" >>"$tmp/failed"' <"$tmp/run"
wrong=0
while read -r suite; do
	# file:line:F or E:case:test:iteration: what
	sed -n 's/^\([^ ]*:[0-9]*:[FE]:[^:]*:\([^:]*\):.*\)$/\2\t\1/p' "$tmp/$suite.log" >"$tmp/found"
	awk -F '\t' -v suite="$suite" 'NR == FNR { if ($1 == suite) why[$2] = $3; next }
		$1 in why { if (!said[$1]++) print "dist:    " suite ": " $1 ": LEFT OUT under qemu, " why[$1]; next }
		{ print "dist:    " suite ": WRONG: " $2; bad = 1 }
		END { exit bad }' "$tmp/known" "$tmp/found" || wrong=$((wrong + 1))
	# One that died or hung has not told of a test.
	! grep -q "^$suite " "$tmp/failed" 2>/dev/null || [ -s "$tmp/found" ] || {
		echo "dist:    $suite: WRONG: exit status $(sed -n "s/^$suite //p" "$tmp/failed")"
		tail -n 5 "$tmp/$suite.log"
		wrong=$((wrong + 1))
	}
done <"$tmp/run"
cat "$tmp"/*.log | awk -v suites="$(wc -l <"$tmp/run")" -v all="$(wc -l <"$tmp/list")" -v wrong="$wrong" -v arch="$arch" '
	/^[0-9]+%: Checks: / { gsub(",", ""); checks += $3; bad += $5 + $7 }
	END {
		print "dist: " arch ": " checks " unit tests of " suites " suites (" all " there are), " bad " not passed, " wrong " suites wrong"
		exit wrong || !checks
	}'
