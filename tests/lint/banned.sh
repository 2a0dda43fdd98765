#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# banned.sh SOURCE...: words that have no place in the sources.
set -u

bad=0
no() { # no WHY PATTERN SOURCE...
	why=$1 pattern=$2
	shift 2
	found=$(grep -HnE "$pattern" "$@") || return 0
	printf '%s\n' "$found" | sed "s/\$/    <- $why/"
	bad=1
}

word='(^|[^A-Za-z0-9_])'
no "no typedef of a struct" "${word}typedef[[:space:]]+(struct|union)([^A-Za-z0-9_]|\$)" "$@"
no "finish it or leave it out" "//.*${word}(TODO|FIXME|XXX)([^A-Za-z0-9_]|\$)" "$@"
no "unbounded copy" "${word}(strcpy|stpcpy|strcat|sprintf|vsprintf|gets)[[:space:]]*\\(" "$@"
for file in "$@"; do
	case ${file##*/} in
	util.[ch] | utils.[ch])
		echo "$file: a module is one noun, and util is none"
		bad=1
		;;
	esac
done
exit $bad
