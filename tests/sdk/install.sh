#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh DIR: E2B's clients at their pinned versions into DIR/python (a virtual environment) and DIR/js, and a node
# to run them into DIR/node where the machine's own is too old. What was made from the same lists is left alone.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
mkdir -p "$1" && dir=$(cd "$1" && pwd) || exit 1
python=${PYTHON:-python3}

give_up() { # give_up WHAT LOG
	[ -z "${2:-}" ] || tail -n 15 "$2" >&2
	echo "conformance: $1" >&2
	exit 1
}
newer() { # newer NAME FILE...: true if NAME was not made from exactly these files, by this machine's programs
	name=$1
	shift
	list=$(cksum "$@" | sed 's, [^ ]*/, ,' && "$python" --version && node --version 2>&1)
	[ "$(cat "$dir/$name.made-from" 2>/dev/null)" != "$list" ]
}
made() { printf '%s\n' "$list" >"$dir/$1.made-from"; }
fresh() { # fresh NAME: an empty directory DIR/NAME
	rm -rf "${dir:?}/$1" "$dir/$1.made-from"
	mkdir "$dir/$1" || exit 1
	echo "conformance: installing $1"
}

for program in npm "$python"; do
	command -v "$program" >/dev/null || give_up "$program is missing (Debian: npm, python3-venv)"
done
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || give_up "$python is too old: 3.11 or newer is needed"

if newer python "$here/python/requirements.txt"; then
	fresh python
	log=$dir/python.log
	"$python" -m venv "$dir/python" >"$log" 2>&1 || give_up "no virtual environment (Debian: python3-venv)" "$log"
	"$dir/python/bin/python" -m pip install --no-deps --only-binary :all: -r "$here/python/requirements.txt" \
		>>"$log" 2>&1 || give_up "E2B's Python client could not be downloaded" "$log"
	"$dir/python/bin/python" -m pip check >>"$log" 2>&1 || give_up "requirements.txt is not complete" "$log"
	made python
fi

packages() { # packages NAME: npm ci of what tests/sdk/NAME pins into DIR/NAME
	newer "$1" "$here/$1/package.json" "$here/$1/package-lock.json" || return 0
	fresh "$1"
	cp "$here/$1/package.json" "$here/$1/package-lock.json" "$dir/$1/" || exit 1
	(cd "$dir/$1" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >"$dir/$1.log" 2>&1 ||
		give_up "npm could not install what tests/sdk/$1 pins" "$dir/$1.log"
	made "$1"
}
packages js

# The client wants node 20.18.1 or newer (engines in its package.json).
if node -e 'const [a, b, c] = process.versions.node.split(".").map(Number)
	process.exit(a > 21 || (a === 20 && (b > 18 || (b === 18 && c >= 1))) ? 0 : 1)' 2>/dev/null; then
	node=$(command -v node)
else
	packages node
	node=$(find "$dir/node/node_modules" -path '*/bin/node' -type f 2>/dev/null | head -n 1)
	[ -n "$node" ] || give_up "no node 20.18.1 or newer, and none is pinned for $(uname -m)"
fi
ln -sfn "$node" "$dir/node-to-use"
