#!/bin/sh
# The shared library exports only berth_* names, and at least one. usage: exports.sh LIBBERTH.so
set -eu
names=$(nm -D --defined-only "$1" | awk '$2 ~ /[A-Z]/ { print $3 }' | grep -v '^__\(asan\|ubsan\|tsan\|odr\)' || true)
echo "$names" | grep -q '^berth_' || { echo "no berth_* symbol in $1"; exit 1; }
if echo "$names" | grep -v '^berth_'; then
    echo "the names above are exported by $1 but do not start with berth_"
    exit 1
fi
echo "$(echo "$names" | wc -l) exported names, all berth_*"
