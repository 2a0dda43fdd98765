#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh DIR SECONDS: every fuzzer of DIR for so long, as many at once as there are processors, from the corpora of the tree; new inputs go
# to DIR/corpus. A line a target: executions and what they cover. Fails with the report of the first that finds something.
set -u

dir=$1 seconds=$2
here=$(dirname "$0")
export here dir seconds
one='
target=$1 log=$dir/fuzz-$1.log
mkdir -p "$dir/corpus/$target" "$dir/found"
dict=
[ -f "$here/dict/$target.dict" ] && dict=-dict=$here/dict/$target.dict
# What the target itself keeps, where libFuzzer cannot write a report (conn).
FUZZ_LAST=$dir/found/$target-last
export FUZZ_LAST
if "$dir/fuzz-$target" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
	$dict -artifact_prefix="$dir/found/$target-" "$dir/corpus/$target" "$here/corpus/$target" >"$log" 2>&1; then
	rm -f "$FUZZ_LAST"
	awk -v t="$target" "/^stat::number_of_executed_units/ { n = \$2 } / cov: / { for (i = 1; i < NF; i++) if (\$i == \"cov:\") c = \$(i + 1) }
		END { printf \"%-10s %12d executions, %d edges\n\", t, n, c }" "$log"
else
	grep -v "^#" "$log" | tail -n 40
	echo "$target: FAILED, input in $dir/found"
	exit 255
fi
'
ls "$here/corpus" | xargs -P "$(nproc)" -I{} sh -c "$one" fuzz {}
