# A signal in the middle of synth: gone soon, exit 128 + n, no file and no temporary left.
command -v timeout > /dev/null || {
    echo "skipped: no timeout(1)"
    exit 77
}
. "$(dirname "$0")/lib.sh"
[ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -gt 6000000 ] || {
    echo "skipped: less than 6 GB free in $tmp"
    exit 77
}

# Large enough that it cannot be done in a quarter of a second; stopped long before the end.
for how in "INT 130" "TERM 143" "HUP 129"; do
    set -- $how
    timeout --preserve-status -s "$1" 0.25 \
        "$berth" synth --preset sd15 --threads 2 -o x.safetensors > .out 2> .err
    rc=$?
    [ $rc -eq "$2" ] || fail "SIG$1: exit $rc, wanted $2"
    err_has 'berth synth: .*x.safetensors'
    only_files
done

# the file that was there stays as it was
echo old > x.safetensors
timeout --preserve-status -s INT 0.25 "$berth" synth --preset sd15 --force -o x.safetensors > .out 2> .err
[ $? -eq 130 ] || fail "exit $?"
[ "$(cat x.safetensors)" = old ] || fail "the old file is gone"
only_files x.safetensors
echo ok
