#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh DIR: builds both images of the Dockerfile and starts them as a pod, a careful pod and a pod without root would; celld is PID 1 and
# does the main job in each. DIR keeps the Debian, the layers and the logs for the next time. Ends with a sum; fails if anything did. Where
# containers cannot be had it says why, and does nothing.
set -u

left_out() {
	echo "image: LEFT OUT: $*"
	exit 0
}
# Mounts that podman makes are seen by nobody else, and end with this.
if [ -z "${APART:-}" ]; then
	[ "$(id -u)" = 0 ] || left_out "wants root"
	sh .ci/deps $DEPS || left_out "podman and what goes with it cannot be installed"
	unshare -m true 2>/dev/null || left_out "no mount namespace of its own to be had"
	APART=1 exec unshare -m --propagation private bash "$0" "$@"
fi

mkdir -p "$1"
dir=$(cd "$1" && pwd)
exec 9>"$dir/lock"
flock -w 900 9 || left_out "another run does not end"
rm -rf "$dir/run" "$dir/tmp" # what a run knew that was killed, or is of before the machine's last start
debian=localhost/celld-test-debian:12
name=celld-test-$$
wrong=0 checks=0
# crun knows version 1 or 2 of control groups, not both at once.
umount /sys/fs/cgroup/unified 2>/dev/null || :

pod() { # pod SECONDS WORDS...: podman, bounded, with nothing of the machine's own podman
	timeout -k 5 "$1" podman --root "$dir/storage" --runroot "$dir/run" --tmpdir "$dir/tmp" --storage-driver "$driver" \
		--cgroup-manager cgroupfs "${@:2}" </dev/null 9>&-
}
gone() { # the container, however far it has come
	pod 60 rm -f --time 0 -v "$name" >/dev/null 2>&1
}
driver=overlay
pod 60 info >"$dir/info.log" 2>&1 || rm -rf "$dir/storage" # of another podman, or made elsewhere
pod 60 info >"$dir/info.log" 2>&1 || { # where the file system cannot be a layer of an overlay: copies, slow and large
	driver=vfs
	pod 60 info >"$dir/info.log" 2>&1 || left_out "podman: $(tail -n 1 "$dir/info.log")"
}
trap 'gone; pod 60 volume rm -f "$name" >/dev/null 2>&1' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

check() { # check WHAT COMMAND...: its output is shown only if it fails
	local said
	checks=$((checks + 1))
	if said=$("${@:2}" 2>&1); then
		echo "image: ok: $1"
	else
		echo "image: WRONG: $1: $said"
		wrong=$((wrong + 1))
	fi
}

# --- a Debian of our own, and the images on it ---

if ! pod 30 image exists "$debian"; then
	timeout -k 5 600 mmdebstrap --quiet --variant=minbase bookworm "$dir/debian.tar" >"$dir/debian.log" 2>&1 </dev/null ||
		left_out "no Debian can be made: $(tail -n 1 "$dir/debian.log")"
	pod 120 import -q "$dir/debian.tar" "$debian" >"$dir/debian.log" 2>&1 || left_out "no image of it: $(tail -n 1 "$dir/debian.log")"
	rm -f "$dir/debian.tar"
fi
# What podman asks for by itself is more than a root without CAP_SYS_RESOURCE may have.
limits=(--ulimit nofile=1024:4096 --ulimit nproc=1024:1024)
apart=(--name "$name" --network none --cgroups disabled --pull never --log-driver k8s-file "${limits[@]}")
pod 60 run --rm "${apart[@]}" "$debian" true >"$dir/run.log" 2>&1 ||
	left_out "no container can be started: $(tail -n 1 "$dir/run.log")"

build() { # build TARGET FILE CONTEXT: chroot asks least of the machine; the host's network, since packages are fetched
	pod 900 build --isolation chroot --network host --pull=never --build-arg "DEBIAN=$debian" ${1:+--target "$1"} \
		-t "localhost/celld-test-${1:-own}" -f "$2" "$3" >"$dir/build.log" 2>&1 || {
		tail -n 20 "$dir/build.log"
		return 1
	}
}
for target in build binary base; do
	check "$target is built" build "$target" Dockerfile .
done
# How an image of one's own takes the binary.
mkdir -p "$dir/own"
printf '%s\n' "FROM $debian" 'COPY --from=localhost/celld-test-binary /celld /usr/local/bin/celld' \
	'ENTRYPOINT ["/usr/local/bin/celld"]' >"$dir/own/Dockerfile"
check "another image takes the binary" build "" "$dir/own/Dockerfile" "$dir/own"
pod 60 image prune -f >/dev/null 2>&1 # what older builds left: the layers of the tagged ones stay
[ "$wrong" = 0 ] || {
	echo "image: $wrong wrong"
	exit 1
}

# --- what is in them ---

one_file() {
	local all
	pod 30 create "${apart[@]}" localhost/celld-test-binary >/dev/null && all=$(pod 60 export "$name" | tar -t)
	gone
	echo "$all" && [ "$all" = celld ]
}
version() { # version IMAGE: what follows the image's name are options
	local said
	said=$(pod 20 run "${apart[@]}" "$1" --version)
	gone
	echo "$said" && [[ $said == "celld "* ]]
}
same() { # both images have the same file, and its licences are in the one that has room for them
	pod 60 run "${apart[@]}" --volume "$dir/own:/x" --entrypoint sh localhost/celld-test-base -c \
		'cmp /usr/local/bin/celld /x/celld && grep -q "^== libev-dev" /usr/share/doc/celld/copyright && test -s /usr/share/doc/celld/LICENSE'
	local status=$?
	gone
	return $status
}
take() {
	pod 30 create "${apart[@]}" localhost/celld-test-binary >/dev/null && pod 30 cp "$name:/celld" "$dir/own/celld"
	local status=$?
	gone
	return $status
}
check "binary holds one file" one_file
check "binary runs by itself" version localhost/celld-test-binary
check "base runs with options" version localhost/celld-test-base
check "the binary can be copied out of it" take
check "base has the same, and its licences" same

# --- PID 1 of a container ---

start() { # start IMAGE OPTION... [-- ARGUMENT...]: sets PID, this machine's number of the container's PID 1
	local image=$1 options=()
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	[ $# = 0 ] || shift
	pod 60 run -d "${apart[@]}" "${options[@]}" "$image" "$@" >/dev/null &&
		pid=$(pod 30 inspect -f '{{.State.Pid}}' "$name") && [ "$pid" -gt 0 ]
}
job() { # job USER IMAGE OPTION...: the main job, which ends with TERM; then PID 1 has ended with 0
	local user=$1 status=1 code
	if start "${@:2}"; then
		timeout -k 5 240 nsenter -t "$pid" -n python3 tests/image/job.py "$pid" "$user"
		status=$?
		code=$(pod 20 wait "$name") || code="none, it runs"
		[ "$code" = 0 ] || {
			echo "exit status: $code"
			status=1
		}
	fi
	[ $status = 0 ] || pod 30 logs "$name" 2>&1 | tail -n 20
	gone
	return $status
}
careful=(--read-only --security-opt no-new-privileges --cap-drop all)
check "as it is: the main job" job user localhost/celld-test-base
check "confined, few capabilities, read-only root, a new volume: the main job" job user localhost/celld-test-base "${careful[@]}" \
	--cap-add chown,dac_override,fowner,kill,setgid,setuid --volume "$name:/workspace" -- --confine on
check "never root, no capability, read-only root: the main job" job user localhost/celld-test-base "${careful[@]}" --user 1000:1000 \
	--tmpfs /workspace:rw,mode=1777
check "an image of one's own, as root: the main job" job root localhost/celld-test-own

# What probes and people do with `podman exec` or `kubectl exec`, and how the machinery ends it.
probe() {
	pod 30 exec "$name" celld ctl ready --wait 10s
}
passed_on() {
	pod 30 exec "$name" celld ctl exec -- sh -c 'exit 3'
	[ $? = 3 ]
}
stopped() { # without being killed for want of an end
	local began=$SECONDS code
	pod 60 stop -t 20 "$name" >/dev/null && code=$(pod 30 wait "$name")
	echo "exit status $code after $((SECONDS - began)) s"
	[ "$code" = 0 ] && [ $((SECONDS - began)) -lt 15 ]
}
check "it starts" start localhost/celld-test-base
check "a probe inside: celld ctl ready" probe
check "celld ctl exec inside passes the exit code on" passed_on
check "the runtime stops it by TERM, exit status 0" stopped

size=$(pod 30 image inspect -f '{{.Size}}' localhost/celld-test-binary)
echo "image: $((checks - wrong)) of $checks right, $wrong wrong ($driver; binary: $size bytes)"
[ "$wrong" = 0 ]
