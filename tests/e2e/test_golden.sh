# Values through the whole binary: a file made from the golden keys equals the golden file's data.
# The golden file was written with its tensors sorted by name.
golden=${BERTH_GOLDEN_DIR:-$PWD/tests/golden/data}
. "$(dirname "$0")/lib.sh"

run 0 inspect "$golden/synth.safetensors" --json --tensors
n=$("$jsonget" .out 0/tensors)
data=$("$jsonget" .out 0/data_bytes)
i=0
printf '{' > keys.json
while [ $i -lt "$n" ]; do
    [ $i -eq 0 ] || printf ',' >> keys.json
    printf '"%s": %s' "$("$jsonget" .out 0/index/$i/name)" "$("$jsonget" .out 0/index/$i/shape)" >> keys.json
    i=$((i + 1))
done
printf '}' >> keys.json
run 0 synth --keys keys.json -o made.safetensors
tail -c "$data" "$golden/synth.safetensors" > want
tail -c "$data" made.safetensors > got
cmp want got || fail "values differ from the golden file"
echo "ok: $n tensors, $data bytes equal"
