# Standard output that is full, closed or gone: said on stderr, exit 1, and never a broken model.
. "$(dirname "$0")/lib.sh"

"$berth" synth --preset t5-tiny -o x.safetensors > /dev/null || fail "synth"
sum=$(cksum < x.safetensors)

if [ -c /dev/full ]; then
    for cmd in "version" "version --json" "devices" "inspect x.safetensors" "inspect x.safetensors --json --tensors" \
        "synth --list" "--help" "synth --help"; do
        "$berth" $cmd > /dev/full 2> .err
        rc=$?
        [ $rc -eq 1 ] || fail "$cmd > /dev/full: exit $rc"
        err_has 'cannot write to standard output'
    done
fi

"$berth" version >&- 2> .err
[ $? -eq 1 ] || fail "a closed stdout went unnoticed"
err_has 'cannot write to standard output'

# a closed stdout must not lend its number to the model file
"$berth" synth --preset t5-tiny -o y.safetensors >&- 2> .err
[ $? -eq 1 ] || fail "synth with stdout closed"
[ "$sum" = "$(cksum < y.safetensors)" ] || fail "messages went into the model"
"$berth" synth --preset t5-tiny -o z.safetensors >&- 2>&-
[ "$sum" = "$(cksum < z.safetensors)" ] || fail "messages went into the model"
"$berth" inspect x.safetensors <&- > .out 2> .err || fail "stdin closed"

# a reader that leaves early
{ "$berth" inspect x.safetensors --json --tensors 2> .err; echo $? > rc; } | head -c 10 > /dev/null
rc=$(cat rc)
[ "$rc" -eq 0 ] || [ "$rc" -eq 1 ] || fail "a closed pipe: exit $rc"
echo ok
