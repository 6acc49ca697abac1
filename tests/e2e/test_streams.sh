# Standard output that is full or closed: said on stderr, exit 1, and never a broken model. A pipe
# whose reader has left: 141 without a word, as if SIGPIPE had ended us.
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

# a reader that leaves early; far more than a pipe holds, so that somebody notices
many=
for i in 1 2 3 4 5 6 7 8; do many="$many x.safetensors x.safetensors x.safetensors x.safetensors"; done
{ "$berth" inspect $many --json --tensors 2> .err; echo $? > rc; } | head -c 10 > /dev/null
[ "$(cat rc)" -eq 141 ] || fail "a closed pipe: exit $(cat rc)"
[ -s .err ] && fail "a closed pipe is worth a message?"
# the reader is gone before the first byte: only the last flush notices
mkfifo pipe
{ sleep 0.3; "$berth" version 2> .err; echo $? > rc; } > pipe &
: < pipe
wait $!
[ "$(cat rc)" -eq 141 ] || fail "a pipe closed from the start: exit $(cat rc)"
[ -s .err ] && fail "a closed pipe is worth a message?"
# a file that failed stays a failure
{ sleep 0.3; "$berth" inspect nope x.safetensors 2> .err; echo $? > rc; } > pipe &
: < pipe
wait $!
[ "$(cat rc)" -eq 1 ] || fail "a failure and a closed pipe: exit $(cat rc)"
err_has 'nope'
echo ok
