#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dist.sh DIR ARCH...: builds celld for each ARCH into DIR as celld-VERSION-linux-ARCH, with its bill of materials (.spdx.json) and notices
# (.notices.txt), tries each, and writes SHA256SUMS. What it works with stays in DIR/work. CHECK=no: only builds, by JOBS at a time. The same sources, packages
# and SOURCE_DATE_EPOCH give the same bytes, in whatever directory, locale and time zone, by however many jobs.
set -eu

dir=$1
shift
here=$(dirname "$0")
root=$(pwd -P)
jobs=${JOBS:-$(nproc)}
version=$(sed -n 's/^#define CONFIG_VERSION "\(.*\)"$/\1/p' daemon/config.h)
export LC_ALL=C TZ=UTC
umask 022
: "${SOURCE_DATE_EPOCH:?}"
unset CPPFLAGS CFLAGS LDFLAGS SAN DEV MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES

[ "$(uname -m)" = x86_64 ] || {
	echo "dist: is made on x86_64 only, from Debian's cross compilers" >&2
	exit 1
}
mkdir -p "$dir/work"
dir=$(cd "$dir" && pwd -P)
work=$dir/work
rm -f "$dir"/celld-* "$dir/SHA256SUMS"

compile() { # compile ARCH SYSROOT PROGRAM...: by the Makefile, its paths as if all lay in one directory
	arch=$1 sysroot=$2
	shift 2
	prefix=$arch-linux-gnu- where=
	case $arch in
	x86_64) prefix= ;;
	aarch64) where="-ffile-prefix-map=$sysroot= --sysroot=$sysroot" ;;
	riscv64) where="-ffile-prefix-map=$sysroot= -isystem $sysroot/usr/include -L$sysroot/usr/lib" ;;
	esac
	# The map tells which members of which archives are in; make expands the target's name.
	CFLAGS="-ffile-prefix-map=$root=. -ffile-prefix-map=$work=work $where" LDFLAGS='-Wl,--build-id=sha1 -Wl,-Map=$@.map' \
		make "-j$jobs" --no-print-directory BUILD="$work/$arch" CC="${prefix}gcc" STRIP="${prefix}strip" "$@"
}

for arch in "$@"; do
	sysroot=
	[ "$arch" = x86_64 ] || {
		sysroot=$work/sysroot-$arch
		# shellcheck disable=SC2086
		sh "$here/sysroot.sh" "$arch" "$sysroot" $PACKAGES
	}
	compile "$arch" "$sysroot" "$work/$arch/celld"
	name=celld-$version-linux-$arch
	install -m 755 "$work/$arch/celld" "$dir/$name"
	python3 "$here/sbom.py" write "$dir/$name" "$work/$arch/celld.map" "$arch" "$sysroot"
	[ "${CHECK:-yes}" = yes ] || continue
	if [ "$arch" = x86_64 ]; then
		sh "$here/try.sh" "$arch" "$dir/$name"
	else
		compile "$arch" "$sysroot" "$work/$arch/unit-tests"
		# The dynamic linker and the C library of the tests: riscv64's are the cross compiler's.
		[ "$arch" = aarch64 ] && root_of_qemu=$sysroot || root_of_qemu=/usr/$arch-linux-gnu
		sh "$here/try.sh" "$arch" "$dir/$name" "$work/$arch/unit-tests" "$root_of_qemu"
	fi
done

cd "$dir"
sha256sum celld-* >SHA256SUMS
for arch in "$@"; do
	size=$(stat -c %s "celld-$version-linux-$arch")
	echo "dist: celld-$version-linux-$arch: $(((size + 1023) / 1024)) KiB ($size bytes)"
done
