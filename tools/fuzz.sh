#!/bin/sh
# Runs every libFuzzer target for a while, JOBS at a time; new inputs and logs go to BUILD_DIR.
# usage: fuzz.sh BUILD_DIR SECONDS [JOBS]
set -eu
build=$1 seconds=$2 jobs=${3:-1}

one() { # one TARGET: runs it, keeps its log and whether it failed
    x=$(basename "$1"); x=${x#fuzz_}
    work=$build/fuzz-work/$x
    mkdir -p "$work/new" "$work/crash"
    rm -f "$work/failed"
    "$1" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
        -artifact_prefix="$work/crash/" "$work/new" "tests/fuzz/corpus/$x" > "$work/log" 2>&1 || touch "$work/failed"
}

targets=$(find "$build/tests" -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x | sort)
[ -n "$targets" ] || { echo "no fuzz targets in $build/tests" >&2; exit 1; }
echo "fuzzing for $seconds s each, $jobs at a time:" $(for t in $targets; do basename "$t"; done)
running=0
for t in $targets; do
    one "$t" &
    running=$((running + 1))
    if [ $running -ge "$jobs" ]; then
        wait
        running=0
    fi
done
wait

bad=0
for t in $targets; do
    x=$(basename "$t"); x=${x#fuzz_}
    work=$build/fuzz-work/$x
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
    if [ -e "$work/failed" ]; then
        bad=1
        tail -40 "$work/log"
        echo "FAILED $x: the input is under $work/crash; add it to tests/fuzz/corpus/$x with the fix"
    else
        printf '%-14s %12s executions, no crash\n' "$x" "$runs"
    fi
done
exit $bad
