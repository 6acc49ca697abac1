# What the e2e scripts share. Usage: . "$(dirname "$0")/lib.sh"
# $1 is the binary, $2 the jsonget helper. Leaves $berth, $jsonget and a temporary folder, $tmp, in
# which the script then works and which goes away at its end.
set -u
berth=$1
jsonget=$2
case $berth in /*) ;; *) berth=$PWD/$berth ;; esac
case $jsonget in /*) ;; *) jsonget=$PWD/$jsonget ;; esac
tmp=$(mktemp -d "${TMPDIR:-/tmp}/berth-e2e-XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
cd "$tmp" || exit 1
unset NO_COLOR COLUMNS
export LC_ALL=C
export BERTH_CUDA_LIBRARY=none # the same machine everywhere; scripts about cards say otherwise

fail() {
    echo "FAIL: $*"
    [ -f .out ] && { echo "--- stdout"; head -c 3000 .out; }
    [ -f .err ] && { echo "--- stderr"; head -c 3000 .err; }
    exit 1
}

# run CODE ARGS...: runs berth, keeps its output in .out and .err, fails unless it exits with CODE.
run() {
    want=$1
    shift
    "$berth" "$@" > .out 2> .err
    rc=$?
    [ $rc -eq "$want" ] || fail "berth $*: exit $rc, wanted $want"
    [ "$want" -ne 0 ] || [ ! -s .err ] || fail "berth $*: fine, yet it says something on stderr"
    [ "$want" -eq 0 ] || [ -s .err ] || fail "berth $*: exit $rc without a word"
}

out_has() { grep -q -e "$1" .out || fail "stdout lacks '$1'"; }
err_has() { grep -q -e "$1" .err || fail "stderr lacks '$1'"; }
out_lacks() { ! grep -q -e "$1" .out || fail "stdout has '$1'"; }

# json PATH VALUE: what .out says at PATH, as jsonget prints it.
json() {
    got=$("$jsonget" .out "$1") || fail "no JSON, or nothing at '$1'"
    [ "$got" = "$2" ] || fail "JSON at '$1' is '$got', wanted '$2'"
}

# Nothing but the named files may be left in the folder (names that start with a dot: .out, .err).
only_files() {
    left=$(ls -A | grep -v -x -e .out -e .err | sort | tr '\n' ' ')
    want=$([ $# -eq 0 ] || printf '%s\n' "$@" | sort | tr '\n' ' ')
    [ "$left" = "$want" ] || fail "left behind: '$left', wanted '$want'"
}
