#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hot.sh [DIR]: writes daemon/hot.ld anew, out of what runs from a start to the first answers and to the end of a command, under qemu's user
# mode (which logs each instruction that it translates), with and without the init part and a workspace. Needs qemu-user, curl and an x86_64; builds in DIR.
# Worth it after larger changes only: a name that is gone, or missing, does no harm.
set -eu
dir=$(realpath "${1:-$(mktemp -d)}")
a=127.0.0.1:$((20000 + $$ % 5000)) b=127.0.0.1:$((25000 + $$ % 5000))
make --no-print-directory BUILD="$dir" LDFLAGS="-Wl,--gc-sections -Wl,-Map=$dir/map" "$dir/celld"
mkdir -p "$dir/workspace/.venv/bin"
ln -sf /bin/true "$dir/workspace/.venv/bin/python3"

run() { # run OPTION...: once, with them
	timeout 60 qemu-x86_64 -cpu max -d in_asm -D "$dir/ran$1" "$dir/celld.debug" "$@" --retention 1 --listen "$a" --envd-listen "$b" \
		2>"$dir/log" &
	until grep -q ready: "$dir/log"; do sleep 1; done
	curl -fsS -m 20 "http://$a/health" "http://$a/health" "http://$b/health" "http://$b/health"
	curl -fsS -m 20 -H 'Connection: close' "http://$a/health" "http://$b/health"
	curl -fsS -m 20 -H 'Content-Type: application/json' -d '{"command":"echo"}' "http://$a/exec" >"$dir/answer"
	{
		printf '\000\000\000\000\064' # an envelope of 52 bytes
		printf '{"process":{"cmd":"/bin/sh","args":["-c","echo"]}  }'
	} | curl -fsS -m 20 -u root: -H 'Content-Type: application/connect+json' --data-binary @- "http://$b/process.Process/Start" >"$dir/answer"
	sleep 3 # until ended commands are forgotten, and unused memory was looked at
	top=$(pgrep -P $!) # timeout's child
	# shellcheck disable=SC2046
	kill -KILL $(pgrep -P "$top" || :) "$top" # how it ends is of no interest
	wait $! || :
}
run --no-init --workspace "$dir/workspace"
rm -rf "$dir/made"
run --init --workspace "$dir/made" --venv off # which is made

# Sections that were linked, and instructions that ran, each as "ADDRESS ..." with 16 digits: sorted together, what runs follows its section.
awk '/^Linker script and memory map/ { on = 1 }
	!on { next }
	NF == 1 && $1 ~ /^\.(text|fini)/ { name = $1; next }
	$1 ~ /^\.(text|fini)/ && NF >= 4 { name = $1; sub(/^ *[^ ]+/, "") }
	$1 ~ /^0x/ && $2 ~ /^0x/ && $2 != "0x0" && NF == 3 && name { print substr($1, 3), "-", $3, name }
	{ name = "" }' "$dir/map" >"$dir/all"
sed -n 's/^0x\([0-9a-f]*\):.*/00000000\1/p' "$dir"/ran--* | grep -o '.\{16\}$' | sort -u >"$dir/ran"
sort -s -k1,1 "$dir/all" "$dir/ran" | awk '$2 == "-" { at = $3 " " $4; next } at { if (at !~ /\.fini$/) print at; at = "" }' >"$dir/hot"

# Ours by function, whose clones have names of their own; the libraries' by object, and for each variant of a string function that this
# processor takes those that others would.
{
	awk '$1 !~ /\.a\(/ && $1 ~ /\/obj/ { n = split($2, part, "."); print "*(.text." part[3] (n > 3 ? " .text." part[3] ".*" : "") ")" }' \
		"$dir/hot" | sort -u
	# What qemu's processor and kernel have no use for: here for the page of time calls.
	printf '*libc.a:%s.o(.text .text.*)\n' dl-lookup dl-misc dl-object dl-setup_hash pthread_mutex_lock pthread_mutex_unlock \
		strstr-avx512 strstr-sse2-unaligned
	awk -F '[/ ()]' '/\.a\(/ { print $(NF - 3) ":" $(NF - 2) }' "$dir/hot" | sed -E '
		/-(avx|evex|sse)/ { p; s/-(avx|evex|sse).*/-[ae]v*[2xes].o/p; s/-.*/-evex-rtm.o/ }; s/libm-[0-9.]*a/libm*.a/' | sort -u |
		sed 's/.*/*&(.text .text.*)/'
} >"$dir/lines"
{
	echo '/* SPDX-License-Identifier: Apache-2.0'
	echo ' * Made by tests/bench/hot.sh: what runs from a start to the end of a command, side by side. The kernel maps the neighbours of a page'
	echo ' * that is touched, up to 512 KiB at once: spread over all of the text it would all be resident (1.3 MiB), in one place it takes 0.5. */'
	echo 'SECTIONS'
	echo '{'
	printf '\t.text.hot :\n\t{\n'
	tr '\n' ' ' <"$dir/lines" | fold -s -w 116 | sed 's/^/\t\t/; s/ *$//'
	echo
	printf '\t}\n}\nINSERT BEFORE .text;\n'
} >daemon/hot.ld
readelf -SW "$dir/celld.debug" | grep '\.text\.hot'
