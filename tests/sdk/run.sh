#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh CELLD GATEWAY BUILDDIR: E2B's own clients, unchanged, against celld itself (debug mode, port 49983) and against
# the gateway in the ordinary way: JavaScript, Python, Python async. One line a failed check (V=1: one for each), the
# counts of each part, and last the sum. Fails if anything failed, or a part did not run to its end. ONLY="NAME..." runs
# the checks whose names begin so; PARTS="python-async/gateway ..." those parts.
set -u

[ $# -eq 3 ] || { echo "usage: run.sh CELLD GATEWAY BUILDDIR" >&2; exit 2; }
celld=$(realpath "$1") gateway=$(realpath "$2") sdk=$3/sdk
here=$(cd "$(dirname "$0")" && pwd) || exit 1
sh "$here/install.sh" "$sdk" || exit 1
sdk=$(cd "$sdk" && pwd) || exit 1

clients='python-sync python-async javascript'
parts=${PARTS:-$(for client in $clients; do echo "$client/debug $client/gateway"; done)}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/celld-sdk.XXXXXX") || exit 1
chmod 755 "$tmp"
limit=$((240 * ${T_SCALE:-1}))
api_key=the-key-of-this-run
pids='' passed=0 failed=0

stop() { # what we started, by its pid: a word first, then by force
	for pid in $pids; do kill "$pid" 2>/dev/null; done
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		alive=
		for pid in $pids; do kill -0 "$pid" 2>/dev/null && alive="$alive $pid"; done
		[ -n "$alive" ] || break
		sleep 0.1
	done
	for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
	rm -rf "$tmp"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME COMMAND...: in the background, up to its line "... ready: REST"; sets $ready to REST. False if none comes.
start() {
	name=$1
	shift
	"$@" >"$tmp/$name.log" 2>&1 </dev/null &
	pid=$!
	pids="$pids $pid"
	for _ in $(seq $((150 * ${T_SCALE:-1}))); do
		ready=$(sed -n 's/^.* ready: //p' "$tmp/$name.log" | head -n 1)
		[ -z "$ready" ] || return 0
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	failed=$((failed + 1))
	echo "FAIL $name: expected it to be ready, saw: $(tail -n 3 "$tmp/$name.log" | tr '\n' ' ')"
	return 1
}
start_gateway() { # start_gateway NAME OPTION...: sets $url
	name=$1
	shift
	mkdir -p "$tmp/$name"
	start "$name" "$gateway" --celld "$celld" --listen 127.0.0.1:0 --dir "$tmp/$name" --api-key "$api_key" "$@" || return 1
	url=${ready%% *}
}

# In namespaces of its own, where they may be had, celld is PID 1 and takes all that it ran along. Its user's home is an
# empty one there: the login shell of each command would read that user's profile, which may do anything and take long.
mkdir "$tmp/workspace" "$tmp/scratch" "$tmp/home"
cp "$celld" "$tmp/celld" || exit 1 # the home that is hidden may hold the original
home=$(getent passwd "$(id -u)" | cut -d: -f6)
isolated=
if unshare --mount --pid --fork --mount-proc mount --bind "$tmp/home" "$home" 2>/dev/null; then
	isolated="unshare --mount --pid --fork --mount-proc --kill-child sh $tmp/enter"
	echo "mount --bind '$tmp/home' '$home' && cd / && exec \"\$@\"" >"$tmp/enter"
fi

# The clients' environment is ours: nothing of the caller's settings for E2B, and no proxy.
for variable in $(env | sed -n 's/^\(E2B_[A-Z0-9_]*\)=.*/\1/p'); do unset "$variable"; done
export NO_PROXY='127.0.0.1,localhost' no_proxy='127.0.0.1,localhost' PYTHONDONTWRITEBYTECODE=1 E2B_API_KEY="$api_key"
cp "$here"/js/*.mjs "$sdk/js/" || exit 1

run_part() { # run_part CLIENT/TARGET: in the background, into $tmp/part-CLIENT-TARGET
	out=$tmp/part-$(echo "$1" | tr / -)
	export SDK_TARGET="${1#*/}" SDK_SCRATCH="$tmp/scratch"
	case $1 in
	python-*) set -- "$sdk/python/bin/python" "$here/python/main.py" "$(expr "$1" : 'python-\([a-z]*\)/')" ;;
	*) set -- "$sdk/node-to-use" "$sdk/js/main.mjs" ;;
	esac
	# shellcheck disable=SC2086
	timeout -k 5 "$limit" "$@" ${ONLY:-} >"$out" 2>"$out.err" </dev/null
	echo $? >"$out.status"
}

waits=
case $parts in
*/debug*)
	# shellcheck disable=SC2086
	if start celld $isolated "$tmp/celld" --listen off --envd-listen 127.0.0.1:49983 --venv off \
		--workspace "$tmp/workspace"; then
		celld_pid=$pid
		for part in $parts; do
			case $part in */debug) E2B_DEBUG=true run_part "$part" & waits="$waits $!" ;; esac
		done
	fi
	;;
esac
case $parts in
*/gateway*)
	if start_gateway gateway --pool 4; then
		gateway_pid=$pid gateway_url=$url
		for part in $parts; do
			case $part in */gateway) ;; *) continue ;; esac
			start_gateway "full-$(echo "$part" | tr / -)" --pool 0 --max-sandboxes 1 || continue
			E2B_API_URL=$gateway_url E2B_SANDBOX_URL=$gateway_url SDK_FULL_URL=$url run_part "$part" &
			waits="$waits $!"
		done
	fi
	;;
esac
# shellcheck disable=SC2086
[ -z "$waits" ] || wait $waits

for part in $parts; do
	out=$tmp/part-$(echo "$part" | tr / -)
	[ ! -e "$out" ] || grep -v " passed, " "$out" | cut -c 1-600
	counts=$(sed -n "s,^$part: \([0-9]*\) passed\, \([0-9]*\) failed\$,\1 \2,p" "$out" 2>/dev/null)
	case $counts in
	'' | '0 0')
		failed=$((failed + 1))
		echo "FAIL $part: expected it to run to its end, saw exit status $(cat "$out.status" 2>/dev/null || echo none):" \
			"$(tail -n 3 "$out.err" 2>/dev/null | tr '\n' ' ')"
		;;
	*) passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* })) ;;
	esac
done

# A daemon that died and was started again, or a gateway that is gone, has passed nothing.
survived() { # survived NAME PID
	if kill -0 "$2" 2>/dev/null && ! grep -Eiq 'died|sanitizer|runtime error' "$tmp/$1.log"; then return; fi
	failed=$((failed + 1))
	echo "FAIL $1: expected it to live through the run, saw:" \
		"$(grep -Ei 'died|sanitizer|runtime error' "$tmp/$1.log" | head -n 3)"
}
[ -z "${celld_pid:-}" ] || survived celld "$celld_pid"
[ -z "${gateway_pid:-}" ] || survived gateway "$gateway_pid"

for part in $parts; do
	grep "^$part: " "$tmp/part-$(echo "$part" | tr / -)" 2>/dev/null
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
