#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# units.sh: `make install` with DESTDIR and PREFIX puts everything where it belongs and nothing elsewhere; each option and variable in the units is
# one of the binary's; systemd has nothing against them. What cannot be tried here is said.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
	echo "systemd: $*" >&2
	exit 1
}

install_to() { # install_to NAME PREFIX: below $dir/NAME
	$MAKE --no-print-directory -s install DESTDIR="$dir/$1" PREFIX="$2" >"$dir/log" 2>&1 || {
		cat "$dir/log"
		fail "make install PREFIX=$2 failed"
	}
}

# --- install ---
for prefix in /usr/local /usr /opt/celld; do
	root=x$(echo "$prefix" | tr / -)
	install_to "$root" "$prefix"
	got=$(cd "$dir/$root" && find . -type f -printf '%m %P\n' | LC_ALL=C sort -k 2)
	p=${prefix#/}
	want="755 $p/bin/celld
644 $p/lib/systemd/system/celld-envd.socket
644 $p/lib/systemd/system/celld.service
644 $p/lib/systemd/system/celld.socket
644 $p/share/bash-completion/completions/celld
644 $p/share/man/man8/celld.8
644 $p/share/zsh/site-functions/_celld"
	[ "$got" = "$want" ] || fail "PREFIX=$prefix installs
$got"
	grep -qx "ExecStart=$prefix/bin/celld --init" "$dir/$root/$p/lib/systemd/system/celld.service" ||
		fail "PREFIX=$prefix: the unit starts another binary"
done
"$dir/x-usr/usr/bin/celld" --version | grep -q '^celld [0-9]' || fail "the installed binary does not run"
"$dir/x-usr/usr/bin/celld" --help >"$dir/help"
bash -c '. "$1" && complete -p celld' - "$dir/x-usr/usr/share/bash-completion/completions/celld" >/dev/null ||
	fail "bash does not take the completion"
head -n 1 "$dir/x-usr/usr/share/zsh/site-functions/_celld" | grep -qx '#compdef celld' ||
	fail "zsh would not find the completion"
echo "systemd: make install puts 7 files below PREFIX, and nothing else"

# --- what the units say of celld ---
words=$(sed -n 's/^ExecStart=[^ ]*//p; s/^Environment=\([A-Z_]*\)=.*/\1/p' systemd/celld.service; grep -ho 'CELLD_[A-Z_]*[A-Z]' systemd/*)
for word in $words; do
	case $word in
	--* | CELLD_[A-Z]*) grep -q -e "$word" "$dir/help" || fail "$word is not known to celld --help" ;;
	esac
done
for name in sandboxd envd; do
	grep -qx "FileDescriptorName=$name" systemd/*.socket || fail "no socket is named $name"
done

# --- what systemd says ---
if ! command -v systemd-analyze >/dev/null; then
	echo "systemd: LEFT OUT: no systemd-analyze here, so the units were not verified"
	exit 0
fi
# Looked at where they would be used, below a root of their own, so that nothing of this machine counts.
root=$dir/root
mkdir -p "$root/etc" "$root/bin" "$root/usr/lib/systemd/system"
cp -a "$dir/x-usr/usr" "$root/"
cp /bin/true "$root/bin/kill"
for unit in network.target multi-user.target sockets.target sysinit.target basic.target shutdown.target system.slice -.slice; do
	[ ! -e "/usr/lib/systemd/system/$unit" ] || cp "/usr/lib/systemd/system/$unit" "$root/usr/lib/systemd/system/"
done
verify() { # verify UNIT...: all that it has against them
	(cd "$root/usr/lib/systemd/system" && SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no --root="$root" "$@") 2>&1
}
said=$(verify celld.service celld.socket celld-envd.socket) || fail "systemd-analyze verify: $said"
[ -z "$said" ] || fail "systemd-analyze verify: $said"
# It would have found something.
sed 's/^KillMode=.*/KillMode=nope/; s/^Type=notify$/Typo=notify/' systemd/celld.service >"$root/usr/lib/systemd/system/wrong.service"
said=$(verify wrong.service || true)
for word in "kill mode" Typo /usr/local/bin/celld; do
	echo "$said" | grep -q "$word" || fail "systemd-analyze verify does not notice a wrong $word: $said"
done
rm "$root/usr/lib/systemd/system/wrong.service"
echo "systemd: systemd-analyze verify has nothing against the three units"

# A sandbox's commands are to be free: the exposure is high by design. What is wanted is that the tool reads the unit, and that it is not worse than it was.
said=$(systemd-analyze security --offline=yes --root="$root" --no-pager celld.service 2>&1) || fail "systemd-analyze security: $said"
level=$(echo "$said" | sed -n 's/.*Overall exposure level for celld.service: \([0-9.]*\).*/\1/p')
[ -n "$level" ] || fail "systemd-analyze security: $said"
echo "$said" | grep -q "KeyringMode=.*" || fail "systemd-analyze security does not speak of KeyringMode: $said"
awk -v level="$level" 'BEGIN { exit !(level <= 9.8) }' || fail "exposure is $level now, it was 9.8 at most"
echo "systemd: systemd-analyze security: exposure $level of 10, which is what leaves commands free; see the unit and --confine"
