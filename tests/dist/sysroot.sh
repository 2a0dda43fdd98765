#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sysroot.sh ARCH DIR PACKAGE...: into DIR goes what celld and its unit tests are linked with on ARCH, and files.tsv, which tells of each file its
# package, version, architecture, source package and that one's version. Nothing is installed and no architecture is added to the system: apt
# works on lists of its own below DIR. For aarch64 the PACKAGEs of Debian's arm64; riscv64 is in no Debian of this age but for the cross
# compiler and its C library, so the libraries are built from the source packages.
set -eu

arch=$1 dir=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd -P)
stamp="$(cksum <"$here/sysroot.sh") $*"
if [ -e "$dir/stamp" ] && [ "$(cat "$dir/stamp")" = "$stamp" ]; then
	exit 0
fi
rm -rf "$dir"
mkdir -p "$dir/usr/include" "$dir/usr/lib" "$dir/apt/state/lists/partial" "$dir/apt/cache/archives/partial" "$dir/apt/sources" "$dir/apt/got"
dir=$(cd "$dir" && pwd -P)
: >"$dir/apt/status"
export APT_CONFIG="$dir/apt/conf"
cat >"$APT_CONFIG" <<CONF
Dir::State "$dir/apt/state";
Dir::Cache "$dir/apt/cache";
Dir::State::status "$dir/apt/status";
APT::Sandbox::User "$(id -un)";
CONF

quietly() { # quietly COMMAND...: its words are only for when it fails
	"$@" >"$dir/apt/log" 2>&1 || {
		tail -n 25 "$dir/apt/log"
		echo "dist: for $arch failed: $*"
		exit 1
	} >&2
}

# --- packages of the architecture ---

unpack() { # unpack DEB: into the sysroot, and into the table
	dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink --no-same-owner -C "$dir" -f -
	of=$(dpkg-deb -W --showformat='${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}' "$1")
	dpkg-deb --fsys-tarfile "$1" | tar -tf - | grep -v '/$' | sed -e 's,^\./,,' -e 's,^lib/,usr/lib/,' -e "s|\$|	$of|" >>"$dir/files.tsv"
}

packages() { # packages ARCHITECTURE PACKAGE...
	printf 'APT::Architecture "%s";\nAPT::Architectures { "%s"; };\n' "$1" "$1" >>"$APT_CONFIG"
	shift
	ln -s usr/lib "$dir/lib"
	# One of several sources may lack the architecture: what matters is whether the packages come.
	apt-get -q update >"$dir/apt/log" 2>&1 || :
	cd "$dir/apt/got"
	quietly apt-get -q download "$@"
	for deb in *.deb; do
		unpack "$deb"
	done
	# What points to an absolute path means one in here.
	find "$dir/usr" -lname '/*' | while read -r link; do
		ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$dir$(readlink "$link")")" "$link"
	done
}

# --- source packages ---

fetch() { # fetch SOURCE: unpacked and patched, into FOLDER and VERSION
	version=$(apt-cache showsrc --only-source "$1" 2>/dev/null | sed -n 's/^Version: //p' | sort -V | tail -n 1)
	[ -n "$version" ] || {
		echo "dist: no source package $1 is known" >&2
		exit 1
	}
	quietly apt-get -q source --only-source "$1=$version"
	folder=$(find . -maxdepth 1 -type d -name "$1-*")
}

has() { # has SOURCE ARCHIVE HEADER...: the library that was built, and the headers that belong to it
	source=$1 archive=$2
	shift 2
	cp "$archive" "$dir/usr/lib/"
	cp "$@" "$dir/usr/include/"
	mkdir -p "$dir/usr/share/doc/$source"
	cp debian/copyright "$dir/usr/share/doc/$source/"
	for file in "lib/${archive##*/}" $(for header in "$@"; do echo "include/${header##*/}"; done); do
		printf 'usr/%s\t%s\t%s\t%s\t%s\t%s\n' "$file" "$source" "$version" source "$source" "$version" >>"$dir/files.tsv"
	done
}

build() { # build SOURCE MAKE-DIRECTORY MAKE-GOAL CONFIGURE-OPTION...: leaves us in its folder
	cd "$dir/apt/got"
	fetch "$1"
	sub=$2 goal=$3
	shift 3
	cd "$folder"
	[ -e configure ] || quietly autoreconf -i
	quietly ./configure --host="$arch-linux-gnu" --disable-shared --enable-static --disable-dependency-tracking "$@"
	# shellcheck disable=SC2086
	quietly make -C "$sub" $goal
}

# Two files, without a build system to speak of; their `char` has a sign. Some mirrors lack Debian's patches to it: upstream's own files do as
# well, for what celld gives them was looked at before, but it is said, here and in the bill of materials.
libb64() {
	cd "$dir/apt/got"
	if (fetch libb64) 2>"$dir/apt/missing"; then
		fetch libb64
	else
		apt-get -q source --only-source --download-only libb64 >/dev/null 2>&1 || :
		[ -e libb64_*.orig.tar.gz ] || {
			cat "$dir/apt/missing" >&2
			exit 1
		}
		version=$(echo libb64_*.orig.tar.gz | sed 's/^libb64_\(.*\)\.orig.*/\1/')
		echo "dist: libb64 $version for $arch is WITHOUT Debian's patches, which could not be downloaded"
		rm -rf ./libb64-*/
		tar -xf "libb64_$version.orig.tar.gz"
		folder=./libb64-$version.orig
		mkdir "$folder/debian"
		cp "$folder/LICENSE" "$folder/debian/copyright"
	fi
	cd "$folder"
	for part in cencode cdecode; do
		# shellcheck disable=SC2086
		quietly "$CC" $CFLAGS -fsigned-char -Iinclude -c "src/$part.c" -o "$part.o"
	done
	quietly "$AR" rcsD libb64.a cencode.o cdecode.o
	mkdir -p "$dir/usr/include/b64"
	has libb64 libb64.a include/b64/cencode.h include/b64/cdecode.h
	mv "$dir/usr/include/cencode.h" "$dir/usr/include/cdecode.h" "$dir/usr/include/b64/"
}

zlib() { # its configure script is of another kind
	cd "$dir/apt/got"
	fetch zlib
	cd "$folder"
	quietly env CHOST="$arch-linux-gnu" ./configure --static
	quietly make libz.a
	has zlib libz.a zlib.h zconf.h
}

sources() { # builds all there is to build
	# The system's sources, as sources of sources.
	for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
		[ ! -f "$list" ] || sed -e 's/^deb\([[:space:]]\)/deb-src\1/' -e 's/^Types:.*/Types: deb-src/' "$list" >"$dir/apt/sources/${list##*/}"
	done
	printf 'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "%s";\n' "$dir/apt/sources" >>"$APT_CONFIG"
	apt-get -q update >"$dir/apt/log" 2>&1 || :

	unset MAKEFLAGS MAKELEVEL MFLAGS
	export CC="$arch-linux-gnu-gcc" AR="$arch-linux-gnu-ar" RANLIB="$arch-linux-gnu-ranlib" DEB_BUILD_OPTIONS=nocheck
	export CFLAGS="-O2 -g -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$dir/apt/got=."
	build libev . libev.la
	has libev .libs/libev.a ev.h
	build jansson src libjansson.la
	has jansson src/.libs/libjansson.a src/jansson.h src/jansson_config.h
	build protobuf-c . protobuf-c/libprotobuf-c.la --disable-protoc
	mkdir -p "$dir/usr/include/protobuf-c"
	has protobuf-c protobuf-c/.libs/libprotobuf-c.a protobuf-c/protobuf-c.h
	mv "$dir/usr/include/protobuf-c.h" "$dir/usr/include/protobuf-c/"
	build libmd src libmd.la
	has libmd src/.libs/libmd.a include/*.h
	build libseccomp src libseccomp.la
	has libseccomp src/.libs/libseccomp.a include/*.h
	libb64
	zlib
	# Without its other library, which only writes logs of another format.
	build check lib all --disable-subunit ac_cv_func_malloc_0_nonnull=yes ac_cv_func_realloc_0_nonnull=yes
	quietly make -C src libcheck.la
	has check src/.libs/libcheck.a src/check.h check_stdint.h
	"$AR" rcsD "$dir/usr/lib/libsubunit.a"
	cp /usr/include/ut*.h "$dir/usr/include/"
	for header in /usr/include/ut*.h; do
		printf '%s\t%s\n' "${header#/}" \
			"$(dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}' uthash-dev)" >>"$dir/files.tsv"
	done
}

case $arch in
aarch64) packages arm64 libc6 linux-libc-dev "$@" ;;
riscv64) sources ;;
*)
	echo "dist: $arch is not among the architectures" >&2
	exit 1
	;;
esac
rm -rf "$dir/apt"
echo "$stamp" >"$dir/stamp"
