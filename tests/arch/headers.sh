#!/bin/sh
# Every header compiles alone; the public one as C++ too. usage: headers.sh SOURCE_DIR CC [CUDA_INCLUDE...]
# Without CUDA's folders what needs them is left out.
set -eu
cd "$1"
cc=$2
flags="-std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -Isrc -fsyntax-only -x c $(pkg-config --cflags jansson)"
shift 2
skip='*/cuda/*'
for dir in "$@"; do
    flags="$flags -isystem $dir"
    skip=''
done
n=0 bad=0
for h in $(find include src -name '*.h' ! -path "$skip" | sort); do
    n=$((n + 1))
    # twice: the second inclusion must be harmless
    printf '#include "%s"\n#include "%s"\n' "${h#*/}" "${h#*/}" | $cc $flags - || { echo "$h does not compile alone"; bad=1; }
done
[ "$n" -gt 0 ] || { echo "no headers found"; exit 1; }
if command -v c++ > /dev/null; then
    for h in include/berth/*.h; do
        printf '#include "%s"\n' "${h#include/}" | c++ -Iinclude -Wall -Wextra -Werror -fsyntax-only -x c++ - || { echo "$h is not C++"; bad=1; }
    done
fi
echo "$n headers checked"
exit $bad
