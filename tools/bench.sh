#!/bin/sh
# Runs every benchmark in a folder. usage: bench.sh BUILD_DIR/bench
set -eu
for b in "$1"/*; do
    [ -f "$b" ] && [ -x "$b" ] || continue
    echo "== bench/$(basename "$b")"
    "$b"
    echo
done
