# SPDX-License-Identifier: Apache-2.0
# Functions of more than 60 lines and files of more than 600 fail. A function here is what clang-format leaves: its
# heading from column 0, a `{` alone in column 0, up to the next `}` in column 0. Tables and structs open their brace at the
# end of a line, so they are exempt. Lines are counted from the heading's first to the closing brace.
function finish()
{
	if (lines > 600) {
		print file ":" lines ": file of " lines " lines, the cap is 600"
		bad = 1
	}
	if (open) {
		print file ":" open ": function without an end in column 0"
		bad = 1
	}
}
FNR == 1 {
	finish()
	file = FILENAME
	heading = open = 0
}
{ lines = FNR }
open && /^}/ {
	if (FNR - heading + 1 > 60) {
		print FILENAME ":" heading ": function of " FNR - heading + 1 " lines, the cap is 60"
		bad = 1
	}
	heading = open = 0
	next
}
open { next }
/^{[ \t]*$/ {
	open = FNR
	if (!heading)
		heading = FNR
	next
}
# A heading starts at a line with a word in column 0 and goes on over indented lines; anything else ends it.
/^[A-Za-z_]/ && !continued { heading = FNR }
/^[A-Za-z_ \t]/ { continued = !/[;{]$/; if (!continued) heading = 0; next }
{ heading = continued = 0 }
END {
	finish()
	exit bad
}
