#!/bin/sh
# Runs every libFuzzer target for a while; new inputs go to build/, crashes stop it.
# usage: fuzz.sh BUILD_DIR SECONDS
set -eu
bad=0 found=0
for target in "$1"/tests/fuzz_*; do
    [ -x "$target" ] || continue
    found=1
    x=$(basename "$target"); x=${x#fuzz_}
    work=$1/fuzz-work/$x
    mkdir -p "$work/new" "$work/crash"
    echo "== $x: $2 s"
    if "$target" -max_total_time="$2" -max_len=65536 -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
        -artifact_prefix="$work/crash/" "$work/new" "tests/fuzz/corpus/$x" > "$work/log" 2>&1; then
        grep -E 'stat::(number_of_executed_units|peak_rss_mb|new_units_added)' "$work/log"
    else
        bad=1
        tail -40 "$work/log"
        echo "FAILED: $x; the input is under $work/crash: add it to tests/fuzz/corpus/$x after the fix"
    fi
done
[ $found = 1 ] || { echo "no fuzz targets in $1/tests" >&2; exit 1; }
exit $bad
