#!/bin/sh
# What a build without the server (BERTH_SERVER=OFF) has of src/app compiles without the rest of it.
# usage: alone.sh SOURCE_DIR CC FILE...
set -eu
cd "$1"
cc=$2
shift 2
[ "$#" -gt 10 ] || { echo "only $# files: is the list empty?"; exit 1; }
bad=0
for f in "$@"; do
    $cc -std=c17 -D_GNU_SOURCE -DBERTH_BUILD_TYPE='"test"' -Wall -Wextra -Werror -Iinclude -Isrc \
        -fsyntax-only $(pkg-config --cflags jansson) "$f" || { echo "$f needs the server"; bad=1; }
done
echo "$# files checked"
exit $bad
