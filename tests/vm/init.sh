#!/boot/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The machine's first program: mounts what any system has and brings the network up. Then, by the kernel's command line:
#   vm.run=PATTERN       those suites of the integration tests, and power off
#   vm.celld=OPTION,...  celld takes this one's place, with these options
b=/boot/busybox
export PATH=/usr/bin:/usr/sbin HOME=/root LANG=C.UTF-8

$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
$b mkdir -p /dev/pts /dev/shm /workspace
$b mount -t devpts -o gid=5,mode=620,ptmxmode=666 pts /dev/pts
$b mount -t tmpfs shm /dev/shm
$b mount -t tmpfs tmp /tmp
$b mount -t tmpfs run /run
$b chmod 1777 /tmp /dev/shm
$b mount -t cgroup2 cgroup /sys/fs/cgroup
$b mount -t securityfs security /sys/kernel/security
$b ip link set lo up

run= celld=
for word in $($b cat /proc/cmdline); do
	case $word in
	vm.run=*) run=${word#vm.run=} ;;
	vm.celld=*) celld=${word#vm.celld=} ;;
	vm.scale=*) export T_SCALE=${word#vm.scale=} ;;
	esac
done
echo "vm: $($b uname -r), controllers $($b cat /sys/fs/cgroup/cgroup.controllers), lsm $($b cat /sys/kernel/security/lsm 2>/dev/null)"
if [ -n "$celld" ]; then
	for m in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net; do
		$b insmod /boot/$m.ko
	done
	$b ip link set eth0 up && $b ip addr add 10.0.2.15/24 dev eth0 && $b ip route add default via 10.0.2.2
	IFS=,
	# shellcheck disable=SC2086
	exec /boot/celld --listen 0.0.0.0:2024 --envd-listen 0.0.0.0:49983 --workspace /workspace --venv off $celld
fi
export CELLD=/boot/celld CK_TIMEOUT_MULTIPLIER="$T_SCALE"
for pid1 in 0 1; do
	export CELLD_TEST_PID1=$pid1
	for suite in $(/boot/integration-tests --list | grep -xE "$run"); do
		echo "vm: suite $suite, $([ $pid1 = 1 ] && echo as PID 1 of a namespace || echo a plain process)"
		CK_RUN_SUITE=$suite /boot/integration-tests </dev/null 2>&1
		echo "vm: exit status $?"
	done
done
$b poweroff -f
