# A signal in the middle of synth: gone soon, exit 128 + n, no file and no temporary left.
# SIGKILL too leaves nothing, where the file system has files without a name.
. "$(dirname "$0")/lib.sh"
[ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -gt 6000000 ] || {
    echo "skipped: less than 6 GB free in $tmp"
    exit 77
}

# interrupt SIGNAL ARGS...: runs berth in the foreground (a background job of sh ignores SIGINT) while
# a helper waits for its temporary file and then sends the signal. Leaves the exit code in $rc.
interrupt() {
    sig=$1
    shift
    rm -f pid
    (
        tries=0
        # the temporary file has no name, or one that starts with .berth-: its descriptor shows both
        until [ -s pid ] && ls -l "/proc/$(cat pid)/fd" 2> /dev/null | grep -q -e "$PWD/#" -e "$PWD/\.berth-"; do
            tries=$((tries + 1))
            [ $tries -lt 600 ] || exit 1
            sleep 0.05
        done
        kill -s "$sig" "$(cat pid)"
    ) &
    helper=$!
    sh -c 'echo $$ > pid; exec "$@"' sh "$berth" "$@" > .out 2> .err
    rc=$?
    wait $helper || fail "the temporary file never came"
    rm -f pid
}

# Whoever started us may have it ignored (a background job, nohup); berth then leaves it so.
is_ignored() { # is_ignored NUMBER
    mask=$(awk '/^SigIgn/ { print $2 }' /proc/self/status 2> /dev/null)
    [ $((0x${mask:-0} >> ($1 - 1) & 1)) -eq 1 ]
}

# 4 GB on two threads: it cannot be done before the signal comes, and is stopped long before the end
for how in "INT 130" "TERM 143" "HUP 129"; do
    set -- $how
    is_ignored $(($2 - 128)) && continue
    interrupt "$1" synth --preset sd15 --threads 2 -o x.safetensors
    [ $rc -eq "$2" ] || fail "SIG$1: exit $rc, wanted $2"
    err_has 'berth synth: x.safetensors: stopped by a signal'
    [ -s .out ] && fail "SIG$1: says it is done"
    only_files
done

# the file that was there stays as it was
echo old > x.safetensors
interrupt TERM synth --preset sd15 --threads 2 --force -o x.safetensors
[ $rc -eq 143 ] || fail "exit $rc"
[ "$(cat x.safetensors)" = old ] || fail "the old file is gone"
only_files x.safetensors

interrupt KILL synth --preset sd15 --threads 2 --force -o x.safetensors
[ $rc -eq 137 ] || fail "exit $rc"
[ "$(cat x.safetensors)" = old ] || fail "the old file is gone after SIGKILL"
if ls -A | grep -q '^\.berth-'; then
    echo "this file system has no unnamed files: a killed synth leaves its temporary one"
    rm -f .berth-*
fi
only_files x.safetensors
echo ok
