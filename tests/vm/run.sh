#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh DIR PATTERN: DIR has celld and integration-tests. Boots the machine of image.sh three times: for the suites; with celld as its PID 1;
# and with celld confined as its PID 1. Ends with a sum; fails if anything did. Where packages or qemu are missing it says so, and does nothing.
set -u

bin=$1 suites=$2
here=$(cd "$(dirname "$0")" && pwd)
dir=$bin/vm
wrong=0 checks=0 failures=0 errors=0
vm=
trap '[ -z "$vm" ] || kill "$vm" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

left_out() {
	echo "vm: LEFT OUT: $*"
	exit 0
}
[ "$(uname -m)" = x86_64 ] || left_out "only for x86_64"
command -v apt-get >/dev/null || left_out "no apt-get to get a kernel with"
sh "$here/../../.ci/deps" qemu-system-x86 cpio curl || left_out "qemu-system-x86, cpio or curl cannot be installed"
sh "$here/image.sh" "$dir" "$bin/celld" "$bin/integration-tests"
case $? in
0) ;;
2) left_out "packages cannot be had" ;;
*) exit 1 ;;
esac

boot() { # boot NAME SECONDS APPEND QEMU-OPTIONS...: in the background, bounded; its console goes to DIR/NAME.log
	name=$1 limit=$2 append=$3
	shift 3
	: >"$dir/$name.log"
	timeout -k 5 "$limit" qemu-system-x86_64 -M q35 "${accel[@]}" -m 1536 -smp 2 -display none -monitor none -no-reboot \
		-serial "file:$dir/$name.log" -kernel "$dir/kernel" -initrd "$dir/image" \
		-append "console=ttyS0 quiet loglevel=1 panic=-1 edd=off vm.scale=$scale $append" "$@" </dev/null >"$dir/$name.qemu" 2>&1 &
	vm=$!
}
await() { # await NAME SECONDS PATTERN: until the console shows it, or the machine is gone
	for _ in $(seq $(($2 * 5))); do
		grep -q "$3" "$dir/$1.log" && return 0
		kill -0 "$vm" 2>/dev/null || break
		sleep 0.2
	done
	grep -q "$3" "$dir/$1.log"
}
over() { # wait for the machine's end: its exit status, 124 if it was cut off
	wait "$vm"
	local status=$?
	vm=
	return $status
}
bad() {
	echo "vm: WRONG: $*"
	wrong=$((wrong + 1))
}

# The processor's own virtualization is several times faster, where it works: some machines have the device and then hang.
accel=(-accel kvm -cpu host) scale=2
[ -w /dev/kvm ] && {
	boot probe 12 "vm.run="
	over
	grep -q "^vm: " "$dir/probe.log"
} || accel=(-accel "tcg,thread=multi" -cpu max) scale=5
echo "vm: ${accel[1]}"

# --- the suites ---

boot suites 1500 "vm.run=$suites" -nic none
over || bad "the machine ended with $?"
tr -d '\r' <"$dir/suites.log" | sed -n '/^vm: /,$p' | grep -v '^Running suite'
read -r checks failures errors dead < <(tr -d '\r' <"$dir/suites.log" | awk '
	/^[0-9]+%: Checks: / { gsub(",", ""); c += $3; f += $5; e += $7 }
	/^vm: suite / { open++ }
	/^vm: exit status / { open--; if ($4 != 0) d++ }
	END { print c + 0, f + 0, e + 0, d + open + 0 }')
[ "$dead" = 0 ] || bad "$dead runs of suites that failed"
[ "$checks" -gt 0 ] || bad "no test was run"

# --- celld is PID 1 of the machine ---

ask() { # ask METHOD PATH [BODY]: status and body, of surface A
	curl -sS -m 60 -X "$1" -H 'Content-Type: application/json' ${3:+--data "$3"} -w '\n%{http_code}' "http://127.0.0.1:$port$2" 2>&1
}
want() { # want WHAT PATTERN ANSWER
	if grep -q -- "$2" <<<"$3"; then
		echo "vm: ok: $1"
	else
		bad "$1: $3"
	fi
}
serve() { # serve NAME OPTIONS: boots, waits until it serves; sets PORT
	for _ in 1 2 3; do
		port=$((20000 + RANDOM % 12000))
		boot "$1" 240 "vm.celld=$2" -nic "user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:$port-:2024"
		await "$1" 90 " ready: " && return 0
		grep -q hostfwd "$dir/$1.qemu" || break
	done
	bad "celld did not start"
	tail -n 20 "$dir/$1.log"
	return 1
}
main_job() {
	want "it lives" '204' "$(ask GET /health)"
	want "it is PID 1's daemon, which runs commands" '"stdout":"1 celld\\n"' \
		"$(ask POST /exec '{"command":"echo 1 $(cat /proc/1/comm)"}')"
	want "a stream has its end" '"exit":3' \
		"$(ask POST /exec/stream '{"command":"echo a; echo b >&2; exit 3"}')"
	want "a timeout ends a command and all of it" '"timed_out":true' \
		"$(ask POST /exec '{"command":"setsid sleep 1000 & sleep 1000","timeout":1}')"
	want "files are written" '200' "$(ask POST /files/write '{"path":"/workspace/f","content":"text"}')"
	want "files are read" 'text' "$(ask POST /exec '{"command":"cat /workspace/f"}')"
	want "orphans are reaped" '"stdout":"0\\n"' \
		"$(ask POST /exec '{"command":"for i in 1 2 3 4 5; do (sleep 0.1 &) ; done; sleep 1; ps -eo stat= | grep -c ^Z; true"}')"
	want "it says what is in force" '200' "$(ask GET /capabilities)"
}

if serve pid1 "--cgroup,auto"; then
	main_job
	ask POST /exec '{"command":"pkill -KILL -P 1 -x celld","timeout":5}' >/dev/null
	sleep 1
	want "a daemon that was killed is replaced" '"stdout":"again\\n"' "$(ask POST /exec '{"command":"echo again"}')"
	ask POST /exec '{"command":"/boot/busybox poweroff -f","timeout":20}' >/dev/null
	over || bad "the machine did not power off: $?"
	grep -q "Power down" "$dir/pid1.log" || bad "no power-off on the console"
fi

if serve confined "--confine,on,--cgroup,on"; then
	main_job
	want "a confined command cannot power the machine off" '"exit_code":[1-9]' \
		"$(ask POST /exec '{"command":"/boot/busybox poweroff -f","timeout":20}')"
	want "memory beyond a command's limit is its end" '"oom":true' \
		"$(ask POST /exec '{"command":"head -c 200000000 /dev/zero | tail","limits":{"memory":33554432},"timeout":60}')"
	want "processes beyond a command's limit are not made" 'fork\|retry\|unavailable\|"exit_code":[1-9]' \
		"$(ask POST /exec '{"command":"for i in 1 2 3 4 5 6 7 8 9; do sleep 2 & done; wait","limits":{"pids":4},"timeout":60}')"
	want "half a processor is half of the time" '"exit_code":0' \
		"$(ask POST /exec '{"command":"timeout 4 sh -c \"while :; do :; done\"; set -- $(cat /proc/self/cgroup); grep -q \"^nr_throttled [1-9]\" /sys/fs/cgroup${1#0::}/cpu.stat","limits":{"cpus":0.5},"timeout":60}')"
	# The end of PID 1 is the machine's: the kernel says so, with its exit status.
	ask POST /exec '{"command":"kill -TERM 1","timeout":20}' >/dev/null
	over || bad "the machine did not end: $?"
	grep -q "exitcode=0x00000000" "$dir/confined.log" || bad "PID 1 did not end with 0"
fi

[ "$wrong" = 0 ] || tail -n 15 "$dir/pid1.log" "$dir/confined.log"
passed=$((checks - failures - errors))
echo "vm: $([ "$checks" -gt 0 ] && echo $((100 * passed / checks)) || echo 0)%: Checks: $checks, Failures: $failures, Errors: $errors; $wrong wrong besides"
[ "$wrong" = 0 ] && [ "$passed" = "$checks" ]
