# examples/embed.c: built with the tree, and built by a stranger from what `cmake --install` leaves.
# $3 is the example as the build made it, $4 the build folder, $5 the compiler ("" in sanitizer
# builds, whose library a plain program cannot load).
embed=$3 build=$4 cc=${5:-}
root=$PWD src=$PWD/examples/embed.c
. "$(dirname "$0")/lib.sh"

run 0 synth --preset sd15-tiny --output kept.safetensors
run 0 synth --preset flux-tiny --output ejected.safetensors

tour() {
    "$@" > .out 2> .err || fail "embed: exit $?"
    out_has '^keep  kept  .* resident, [1-9][0-9]* read'
    out_has '^eject ejected '
    tail -n 1 .out | grep -q '^keep  kept .* 0 read, 0 moved$' || fail "the kept model was loaded again"
}
tour "$embed" kept.safetensors ejected.safetensors
tour "$embed" kept.safetensors ejected.safetensors cpu=1g,null:0=1g
"$embed" kept.safetensors nothing.safetensors > .out 2> .err && fail "a missing file is fine?"
err_has nothing.safetensors
"$embed" > .out 2> .err
[ $? -eq 2 ] || fail "usage"

[ -n "$cc" ] || exit 0
cmake --install "$build" --prefix "$tmp/prefix" > .out 2> .err || fail "cmake --install"
pc=$(dirname "$(find "$tmp/prefix" -name berth.pc)")
flags=$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs berth) || fail "pkg-config"
# shellcheck disable=SC2086 # flags are words
"$cc" -std=c17 -Wall -Wextra -Werror "$src" $flags -Wl,-rpath,"$(dirname "$pc")" -o embed 2> .err || fail "cc"
tour ./embed kept.safetensors ejected.safetensors
# shellcheck disable=SC2086
"$cc" -std=c17 -Wall -Wextra -Werror "$root/examples/draw.c" $flags \
    -Wl,-rpath,"$(dirname "$pc")" -o draw 2> .err || fail "cc draw.c"
./draw base "$root/examples/workflows/demo.json" "$root/assets/demo" > .out 2> .err ||
    fail "draw: exit $?"
out_has '^file .*/base/output/demo_00001_.png$'
