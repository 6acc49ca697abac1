#!/bin/sh
# A release leaves nothing behind that a second one would free again: every `*_release(struct x *p)` that
# frees a member of p ends with p zeroed, or with that member reset. Callee and caller may then both clean
# up after an error.
# usage: releases.sh SOURCE_DIR
set -eu
cd "$1"
find src -name '*.c' -exec cat {} + | awk '
    # The last parameter that points to a struct is the one that is released.
    /^(static )?void [a-z0-9_]+_release\(.*struct [a-z0-9_]+ \*[a-z]+/ {
        text = name = $0; body = ""; inside = 1; seen++
        while (match(text, /struct [a-z0-9_]+ \*[a-z]+/)) {
            p = substr(text, RSTART, RLENGTH); sub(/.*\*/, "", p)
            text = substr(text, RSTART + RLENGTH)
        }
    }
    inside { body = body "\n" $0 }
    inside && /^}/ {
        inside = 0
        if (body ~ "\\*" p " = |memset\\(" p "," || body ~ "_init\\(" p "\\)" || body ~ "[^a-z_]free\\(" p "\\)") next
        rest = body
        while (match(rest, "(free|unref|decref)\\((\\([^()]*\\))?" p "->[a-z_]+")) {
            member = substr(rest, RSTART, RLENGTH); sub(/.*->/, "", member)
            rest = substr(rest, RSTART + RLENGTH)
            if (body !~ p "->" member "( = " p "->[a-z_]+)* = (NULL|0|" p "->)") {
                print p "->" member " is freed and still there: " name; bad = 1
            }
        }
    }
    END { if (!seen) { print "no releases found: wrong folder?"; exit 1 } printf "%d releases checked\n", seen; exit bad }'
