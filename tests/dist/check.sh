#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh DIR ARCH...: is what `make dist` put into DIR whole and true? The same is built once more: from a copy of the sources elsewhere, in
# another language, time zone and umask, by one job at a time; every byte of it must be the same.
set -eu

dir=$1
shift
here=$(dirname "$0")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
fail() {
	echo "dist: WRONG: $*"
	exit 1
}

# Backwards, so that the directories have another order, too.
other=$tmp/quite/another-place
mkdir -p "$other"
find . \( -name .git -o -path './build*' \) -prune -o -type f -print | sort -r | tar -cf - -T - | tar -xf - -C "$other"
(
	umask 077
	cd "$other"
	export LANG=C.UTF-8 LC_ALL=C.UTF-8 TZ=Asia/Kathmandu HOME="$tmp"
	CHECK=no JOBS=1 sh tests/dist/dist.sh "$tmp/out" "$@" >"$tmp/log" 2>&1 </dev/null
) || {
	tail -n 30 "$tmp/log"
	fail "the second build failed"
}
(cd "$dir" && sha256sum --quiet -c SHA256SUMS) || fail "checksums"
named=$(sed 's/^[0-9a-f]*  //' "$dir/SHA256SUMS" | sort)
[ "$named" = "$(cd "$dir" && find . -maxdepth 1 -type f ! -name SHA256SUMS | sed 's,^\./,,' | sort)" ] || fail "SHA256SUMS is not of all files"
for name in $named SHA256SUMS; do
	cmp "$dir/$name" "$tmp/out/$name" || fail "$name is another in the second build"
done
echo "dist: the second build is the same, byte for byte"

version=$(sed -n 's/^#define CONFIG_VERSION "\(.*\)"$/\1/p' daemon/config.h)
for arch in "$@"; do
	python3 "$here/sbom.py" check "$dir/celld-$version-linux-$arch" || exit 1
	# The check itself: it has to see that the bill is another binary's.
	cp "$dir/celld-$version-linux-$arch" "$tmp/x"
	cp "$dir/celld-$version-linux-$arch.spdx.json" "$tmp/x.spdx.json"
	echo >>"$tmp/x"
	! python3 "$here/sbom.py" check "$tmp/x" >/dev/null || fail "a changed binary was not noticed"
done

# And by the reference tools, where they can be had.
venv=$dir/work/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import spdx_tools' 2>/dev/null || "$venv/bin/pip" -q install 'spdx-tools==0.8.5' || {
	echo "dist: LEFT OUT, the SPDX tools could not be downloaded"
	exit 0
}
for arch in "$@"; do
	"$venv/bin/pyspdxtools" -i "$dir/celld-$version-linux-$arch.spdx.json" || fail "no valid SPDX document"
done
echo "dist: valid SPDX by the reference tools"
