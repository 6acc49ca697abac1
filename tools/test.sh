#!/bin/sh
# Runs the tests of a built preset and closes with "N passed, N failed, N skipped".
# usage: test.sh PRESET [JOBS]
# A cmocka program or a pytest file counts each of its cases; every other ctest entry counts as one.
set -eu
log=build/$1/Testing/Temporary/LastTest.log
rm -f "$log"
rc=0
ctest --preset "$1" -j "${2:-2}" --no-tests=error || rc=$?
[ -f "$log" ] || { echo "0 passed, 0 failed, 0 skipped"; exit 1; }
awk '
    function close_entry() {
        if (!entry) return
        if (cases) { passed += p; failed += f; skipped += s }
        if (!cases || (result == "fail" && !f)) { # no cmocka summary, or it died without counting
            if (result == "skip") skipped++; else if (result == "fail") failed++; else passed++
        }
    }
    /^[0-9]+\/[0-9]+ Test(ing)?: / && !/Test #/ { close_entry(); entry = 1; cases = p = f = s = 0; result = "pass" }
    /^\[ *PASSED *\] [0-9]+ test/ { cases = 1; p += $4 }
    /^\[ *FAILED *\] [0-9]+ test/ { cases = 1; f += $4 }
    /^\[ *SKIPPED *\] [0-9]+ test/ { cases = 1; s += $4 }
    /^[0-9]+ (passed|failed|skipped|error).* in [0-9.]+s/ { # pytest -q
        cases = 1
        for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) p += $i; if ($(i + 1) ~ /^(failed|error)/) f += $i; if ($(i + 1) ~ /^skipped/) s += $i }
    }
    /^Test Failed\.$/ { result = "fail" }
    /^Test Skipped\.$/ { result = "skip" }
    END { close_entry(); printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
exit $rc
