#!/bin/sh
# Files of a library call each other in one direction only: no file is reached again from those it
# calls. Read from the symbols of the objects. check.c looks at everything and everything calls it.
# usage: cycles.sh LIBRARY.a
set -eu
nm "$1" | awk '
    /\.o:$/ { file = $0; sub(/\.c\.o:$/, ".c", file); next }
    NF == 3 && $2 ~ /^[TDBR]$/ { home[$3] = file }
    NF == 2 && $1 == "U" { calls[file] = calls[file] " " $2; files[file] }
    function visit(f, path,    n, i, name, to) {
        if (f in done) return
        if (f in open) { print "call cycle:" path " " f; bad = 1; return }
        open[f]
        n = split(calls[f], name, " ")
        for (i = 1; i <= n; i++) {
            to = home[name[i]]
            if (to != "" && to != f && to != "check.c" && f != "check.c") visit(to, path " " f)
        }
        delete open[f]
        done[f]
    }
    END {
        for (f in files) { visit(f, ""); seen++ }
        if (!seen) { print "no objects found"; exit 1 }
        printf "%d files checked\n", seen
        exit bad
    }'
