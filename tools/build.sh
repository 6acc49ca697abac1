#!/bin/sh
# Configures (once) and builds a preset. usage: build.sh PRESET [JOBS]
set -eu
[ -f "build/$1/build.ninja" ] || cmake --preset "$1" > "/dev/null" || exit 1
cmake --build --preset "$1" -j "${2:-2}"
