#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# boot.sh: a real systemd boots as PID 1 of namespaces of its own (mounts, processes, network, groups), on this machine's /usr, read-only, and on an
# /etc and /var of its own, and runs what `make install` has installed (inside.sh). Nothing outside is touched: no module, no setting (/proc/sys is
# read-only), no group but one of its own. Where it cannot be tried it says so.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
left_out() {
	echo "systemd: LEFT OUT: $*, so the units did not run under a real systemd"
	exit 0
}
what=${1-}
if [ -z "$what" ]; then
	[ -x /lib/systemd/systemd ] || left_out "no systemd here"
	[ "$(id -u)" = 0 ] || left_out "not root"
	unshare -mpfnCui true 2>/dev/null || left_out "no namespaces to be had"
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	trap 'exit 1' INT TERM
	${MAKE:-make} --no-print-directory -s install DESTDIR="$dir/installed" PREFIX=/usr/local >"$dir/log" 2>&1 || {
		cat "$dir/log"
		exit 1
	}
	: >"$dir/result"
	unshare -m sh "$0" group "$dir" "$here" >"$dir/console" 2>&1 </dev/null || true
	grep -v '^end ' "$dir/result" || true
	case $(grep '^end ' "$dir/result" || echo none) in
	"end ok") exit 0 ;;
	"end no-groups") left_out "no version 2 control groups to be had" ;;
	esac
	echo "systemd: FAILED; the console said:" >&2
	tail -n 60 "$dir/console" >&2
	exit 1
fi

dir=$2
here=$3
if [ "$what" = group ]; then
	# A control group for all of it: the root of what is seen inside, and removed with all below it at the end.
	mount --make-rprivate /
	mkdir "$dir/groups"
	own=$dir/groups$(sed -n 's/^0:://p' /proc/self/cgroup)
	if ! mount -t cgroup2 none "$dir/groups" || ! mkdir "$own/celld-test-$$"; then
		echo "end no-groups" >"$dir/result"
		exit 0
	fi
	echo $$ >"$own/celld-test-$$/cgroup.procs"
	unshare -mpfnCui --kill-child sh "$0" inside "$dir" "$here" &
	boot=$!
	echo $$ >"$own/cgroup.procs"
	i=0
	trap 'i=99999' INT TERM
	while ! grep -q '^end ' "$dir/result" && kill -0 "$boot" 2>/dev/null && [ $i -lt "$((120 * ${T_SCALE:-1}))" ]; do
		sleep 1
		i=$((i + 1))
	done
	kill -KILL "$boot" 2>/dev/null || true # and with it PID 1 of the namespace, and all in that
	wait "$boot" || true
	i=0
	until find "$own/celld-test-$$" -depth -type d -exec rmdir {} + || [ $i -ge 50 ]; do
		sleep 0.1
		i=$((i + 1))
	done
	exit 0
fi

# --- in the namespaces ---
mount --make-rprivate /
root=$dir/root
mkdir "$root"
mount -t tmpfs -o mode=755 celld-test "$root"
cd "$root"
mkdir -p usr etc/celld etc/systemd/system var/lib run tmp root proc sys dev test
for link in bin sbin lib lib64; do
	[ ! -e "/usr/$link" ] || ln -s "usr/$link" "$link"
done
mount --rbind /usr usr
mount -o remount,bind,ro usr
mkdir local
cp -a "$dir/installed/usr/local/." local/
mount --bind local usr/local
# None of the machine's units but the log and the targets: no kernel modules, no settings, no clock.
mkdir units
for unit in systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket sysinit.target basic.target sockets.target local-fs.target \
	multi-user.target network.target shutdown.target umount.target final.target; do
	cp "/usr/lib/systemd/system/$unit" units/
done
mkdir units/sockets.target.wants
ln -s ../systemd-journald.socket ../systemd-journald-dev-log.socket units/sockets.target.wants/
mount --bind units usr/lib/systemd/system
mount --bind "$dir" test
mount -t proc proc proc
mount --bind proc/sys proc/sys # settings of the machine, most of them
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=755 none dev
for node in null zero full random urandom tty; do
	: >"dev/$node"
	mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 none dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
: >dev/console
mount --bind "$dir/console" dev/console
for file in passwd group nsswitch.conf; do
	[ ! -e "/etc/$file" ] || cp "/etc/$file" etc/
done
echo celld-test >etc/hostname
tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
cp "$here/inside.sh" etc/inside.sh
cat >etc/systemd/system/inside.service <<'UNIT'
[Unit]
DefaultDependencies=no
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/sh /etc/inside.sh
StandardOutput=file:/test/log-inside
StandardError=inherit
TimeoutStartSec=infinity
UNIT
cat >etc/systemd/system/inside.target <<'UNIT'
[Unit]
Requires=basic.target
Wants=inside.service
UNIT
ip link set lo up
mkdir old
pivot_root . old
cd /
umount -l /old
exec env -i container=celld-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=inside.target \
	--log-target=console --log-level=notice --show-status=no </dev/null
