#!/bin/sh
# The layer check must object to an include that points up, sideways, or at a private header.
set -eu
check=$1/tests/arch/layers.sh
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/src/base" "$tmp/src/device" "$tmp/src/format" "$tmp/src/tensor"
cp "$1/src/layers.txt" "$tmp/src/"
expect() { # expect WANT FILE TEXT
    echo "$3" > "$tmp/src/$2"
    if sh "$check" "$tmp" > "$tmp/out" 2>&1; then got=pass; else got=fail; fi
    [ "$got" = "$1" ] || { echo "'$3' in $2: wanted $1, got $got"; cat "$tmp/out"; exit 1; }
    rm "$tmp/src/$2"
}
expect pass device/a.c '#include "base/err.h"'
expect pass device/a.c '#include "device/pool_impl.h"'
expect fail base/a.c '#include "tensor/dtype.h"'
expect fail device/a.c '#include "format/weights.h"'
expect fail device/a.c '#include "tensor/quant_impl.h"'
expect fail device/a.c '#include "weights.h"'
expect fail device/a.c '#include "nowhere/x.h"'
echo "all seven cases as expected"
