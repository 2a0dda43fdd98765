# SPDX-License-Identifier: Apache-2.0
# The include order of the house: strictly down, or within one directory's group.
#   proto < {log, io, limits, config, metrics, trim, notify} < {core, net} < stream < {sandboxd, envd} < main (and init, handoff);   core, net: strangers
#   ctl, a client in the same binary, is above {log, io, config} and proto alone; of the others only main knows it
#   inside proto: buf < err < text < {json, what protoc-c makes} < the rest, each of the rest on its own, but
#   pbwire < pbjson and {frame, gzip} < envelope
# Quotes are for our own headers, by their path from the root (a test may name its neighbour bare); libraries come in <>.
function fail(what)
{
	print FILENAME ":" FNR ": " what
	bad = 1
}
# Sets `level` and `group` for a path; level 0 means that the path has no place in the house.
function place(path,    parts, n, noun)
{
	n = split(path, parts, "/")
	noun = parts[n]
	sub(/\.[a-z]+$/, "", noun)
	sub(/_.*/, "", noun) # a module may be split: http.c, http_out.c
	group = parts[1] "/" (n > 2 ? parts[2] : noun)
	level = 0
	if (parts[1] == "tests") {
		level = 99
		group = "tests"
	} else if (parts[1] == "proto") {
		level = noun in proto ? proto[noun] : 5
	} else if (parts[1] == "daemon" && n == 3) {
		level = parts[2] in dir ? dir[parts[2]] : 0
	} else if (parts[1] == "daemon" && n == 2) {
		level = noun in top ? top[noun] : 0
		if (level == 10)
			group = "base"
		if (level == 60)
			group = "main"
	}
	return level
}
BEGIN {
	proto["buf"] = 1; proto["err"] = 2; proto["text"] = 3; proto["json"] = 4
	proto["process.pb-c"] = proto["filesystem.pb-c"] = 4 # what protoc-c makes
	proto["pbjson"] = proto["envelope"] = 6
	top["metrics"] = top["log"] = top["io"] = top["limits"] = top["config"] = top["trim"] = top["notify"] = 10
	dir["core"] = dir["net"] = 20
	top["stream"] = 30
	top["dump"] = 54; top["daemon"] = 55
	dir["ctl"] = 58
	dir["sandboxd"] = dir["envd"] = 50
	top["main"] = top["init"] = top["handoff"] = 60
}
FNR == 1 {
	path = FILENAME
	sub(/^\.\//, "", path)
	if (!place(path))
		fail("no place in the include order: give it one in tests/lint/includes.awk and in the README's picture")
	mine = level
	my_group = group
}
/^[ \t]*#[ \t]*include[ \t]*</ && path ~ /^proto\// {
	if ($0 ~ /<(ev|unistd|fcntl|poll|signal|pthread|sys\/(socket|stat|wait|epoll|mman|uio))\.h>/)
		fail("proto is pure: no system call, no loop")
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
	target = $0
	sub(/^[^"]*"/, "", target)
	sub(/".*/, "", target)
	if (my_group == "tests" && target !~ /\//)
		next
	if (!place(target))
		fail("\"" target "\": not a header of the house (its own go by their path from the root, others in <>)")
	else if (mine && level >= mine && group != my_group)
		fail("\"" target "\" is not below " path)
	else if (my_group == "daemon/ctl" && level > 10 && group != my_group)
		fail("\"" target "\": ctl is a stranger to it")
}
END { exit bad }
