#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh: every rule of the house that a script can check, over the tree it is started in. One line a finding
# (file:line: what), all findings before it fails. `make lint` adds the gcc and clang builds with -Werror.
set -u

here=$(dirname "$0")
failed=0
rule() { # rule NAME COMMAND...: run it, remember a failure
	name=$1
	shift
	"$@" || {
		echo "lint: $name failed" >&2
		failed=1
	}
}

files() { # files FIND-TEST...: our own files, built and hidden trees left out
	find . \( -name .git -o -path './build*' \) -prune -o -type f \( "$@" \) -print | sed 's,^\./,,' | sort
}
sources=$(files -name '*.c' -o -name '*.h')
scripts=$(files -perm -100 -o -name '*.sh' -o -name '*.awk' -o -name 'Makefile*' -o -name '*.mk' -o -name 'Dockerfile*' \
	-o -name '*.service' -o -name '*.proto')
if [ -z "$sources" ]; then
	echo "lint: no sources here" >&2
	exit 1
fi

# File names here never hold blanks: let the shell split the lists.
# shellcheck disable=SC2086
{
	rule format clang-format --dry-run -Werror $sources
	rule caps awk -f "$here/caps.awk" $sources
	rule includes awk -f "$here/includes.awk" $sources
	rule banned sh "$here/banned.sh" $sources
	rule spdx sh "$here/spdx.sh" $sources $scripts
	rule makefile awk 'END { if (NR >= 200) { print FILENAME ": " NR " lines, the cap is 199"; exit 1 } }' Makefile
}
exit $failed
