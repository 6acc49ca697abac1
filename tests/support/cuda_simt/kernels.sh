#!/bin/sh
# The kernels of a .cu file as a table for module.cpp.in, from what the preprocessor makes of it:
# KERNEL(name, launch bounds). usage: kernels.sh OUT COMPILER FLAG...
set -eu
out=$1
shift
"$@" -E -P -DSIMT_LIST -MD -MT "$out" -MF "$out.d" -o "$out.i"
tr '\n' ' ' < "$out.i" | grep -o 'SIMT_KERNEL void SIMT_BOUNDS([^()]*) *[a-zA-Z0-9_]* *(' |
    sed 's/.*SIMT_BOUNDS(\([^()]*\)) *\([a-zA-Z0-9_]*\) *($/KERNEL(\2, \1)/' > "$out.new"
found=$(wc -l < "$out.new")
all=$(grep -o 'SIMT_KERNEL' "$out.i" | wc -l)
rm "$out.i"
[ "$found" -gt 0 ] && [ "$found" -eq "$all" ] || { echo "$out: $found of $all kernels understood"; exit 1; }
mv "$out.new" "$out"
