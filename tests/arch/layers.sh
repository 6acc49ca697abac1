#!/bin/sh
# Includes point downwards: checks every `#include "x/..."` under src/ against src/layers.txt.
# usage: layers.sh SOURCE_DIR
set -eu
cd "$1"
[ -f src/layers.txt ] || { echo "no src/layers.txt in $1"; exit 1; }
for dir in src/*/; do
    dir=${dir#src/}; dir=${dir%/}
    grep -v '^#' src/layers.txt | tr ' ' '\n' | grep -qx "$dir" || { echo "src/$dir is not in src/layers.txt"; exit 1; }
done
find src \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.def' \) -exec grep -Hn '^ *# *include *"' {} + |
awk -F: '
    BEGIN {
        while ((getline line < "src/layers.txt") > 0) {
            if (line ~ /^#/ || line == "") continue
            n = split(line, name, " "); row++
            for (i = 1; i <= n; i++) rank[name[i]] = row
        }
    }
    {
        split($1, part, "/"); from = part[2]
        match($0, /"[^"]*"/); path = substr($0, RSTART + 1, RLENGTH - 2)
        seen++
        if (split(path, to, "/") < 2) { print $1 ":" $2 ": include \"" path "\" must name its folder"; bad = 1; next }
        if (to[1] == "berth" && path == "berth/berth.h") next       # the public header is for everybody
        if (!(to[1] in rank)) { print $1 ":" $2 ": unknown folder in \"" path "\""; bad = 1; next }
        if (to[1] != from && rank[to[1]] <= rank[from]) { print $1 ":" $2 ": " from " may not include " path; bad = 1 }
        if (to[1] != from && path ~ /_impl\.h$/) { print $1 ":" $2 ": " path " is private to " to[1]; bad = 1 }
    }
    END { if (!seen) { print "no includes found: wrong folder?"; exit 1 } printf "%d includes checked\n", seen; exit bad }'
