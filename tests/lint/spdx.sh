#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# spdx.sh FILE...: each carries the licence line within its first three.
set -u

bad=0
for file in "$@"; do
	if ! head -n 3 "$file" | grep -qE '^(//|#) SPDX-License-Identifier: Apache-2\.0$'; then
		echo "$file: no SPDX-License-Identifier line"
		bad=1
	fi
done
exit $bad
