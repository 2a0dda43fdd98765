#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# image.sh DIR CELLD INTEGRATION-TESTS: DIR/kernel and DIR/image (an initramfs): this machine's own programs with their libraries, as far as the
# tests need them, and busybox and the network's modules for the boot. Exit status 2: packages are not to be had.
set -eu

dir=$1 celld=$2 tests=$3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir/deb"
cd "$dir"

package() { # package NAME INTO: unpack it, not install it
	(cd deb && apt-get -q download "$1" >/dev/null 2>&1) || {
		echo "vm: the package $1 cannot be downloaded" >&2
		exit 2
	}
	dpkg-deb -x "deb/$(cd deb && ls -t | grep "^$1_" | head -n 1)" "$2"
}

if [ ! -e kernel ]; then
	kernel_package() {
		apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1
	}
	name=$(kernel_package)
	if [ -z "$name" ]; then # a bare image knows no packages at all
		apt-get -q update >/dev/null 2>&1 || :
		name=$(kernel_package)
	fi
	[ -n "$name" ] || {
		echo "vm: no package with a kernel is known" >&2
		exit 2
	}
	package busybox-static boot
	package "$name" boot
	mv boot/boot/vmlinuz-* kernel
fi

rm -rf root
mkdir -p root/usr/bin root/usr/sbin root/usr/lib root/usr/lib64 root/etc root/boot root/dev root/proc root/sys root/run root/tmp root/root root/home root/var/tmp
chmod 1777 root/tmp root/var/tmp
for d in bin sbin lib lib64; do
	ln -s "usr/$d" "root/$d"
done
cp boot/bin/busybox "$celld" "$tests" root/boot
install -m 755 "$here/init.sh" root/init
for m in virtio/virtio virtio/virtio_ring virtio/virtio_pci_modern_dev virtio/virtio_pci_legacy_dev virtio/virtio_pci net/net_failover net/virtio_net; do
	cp boot/lib/modules/*/kernel/drivers/$m.ko root/boot
done
cp boot/lib/modules/*/kernel/net/core/failover.ko root/boot
for f in passwd group nsswitch.conf ld.so.cache; do
	cp "/etc/$f" root/etc
done

programs=$(dpkg -L coreutils bash dash util-linux bsdutils mount grep sed mawk gawk findutils procps perl-base 2>/dev/null |
	sed -n 's|^\(/usr\)*\(/s*bin/[^/]*\)$|/usr\2|p' | sort -u)
for p in $programs; do
	[ ! -f "$p" ] || cp -a "$p" "root$p"
done
ln -sf "$(basename "$(readlink -f /usr/bin/awk)")" root/usr/bin/awk
ln -sf dash root/usr/bin/sh
# shellcheck disable=SC2046
ldd "$celld" "$tests" $(find root/usr/bin root/usr/sbin -type f) 2>/dev/null |
	sed -n 's|^.*[[:space:]]\(/[^ ]*\) (0x.*$|\1|p' | sort -u | while read -r lib; do
	mkdir -p "root$(dirname "$lib")"
	[ -e "root$lib" ] || cp -L "$lib" "root$lib"
done
(cd root && find . -print0 | cpio --quiet -0 -o -H newc -R 0:0) >image.new
mv image.new image
