# berth synth: same bytes every time, whatever the threads; clear refusals; nothing half-written.
. "$(dirname "$0")/lib.sh"

# twice, with different thread counts, in every kind of file
for how in 'sd15-tiny f32 safetensors' 'flux-tiny bf16 safetensors' 'flux-tiny f8_e4m3 safetensors' \
    'flux-tiny q8_0 gguf' 'sd15-tiny q4_0 gguf' 't5-tiny q4_k gguf' 'clip-g-tiny f16 gguf'; do
    set -- $how
    run 0 synth --preset $1 --dtype $2 --output "a.$3" --threads 1
    out_has "^a.$3: "
    run 0 synth --preset=$1 --dtype=$2 -o "b.$3" --threads 2
    cmp "a.$3" "b.$3" || fail "$how: 1 and 2 threads differ"
    run 0 synth -p $1 -d $2 -o "b.$3" -j 5 --force
    cmp "a.$3" "b.$3" || fail "$how: 1 and 5 threads differ"
    run 0 inspect "a.$3" --json
    json 0/format $3
    rm "a.$3" "b.$3"
done
only_files

# what synth says it wrote is what inspect finds
run 0 synth --preset flux-tiny --dtype q8_0 --json
json preset flux-tiny
json format gguf
json dtype Q8_0
json file flux-tiny.gguf
tensors=$("$jsonget" .out tensors) params=$("$jsonget" .out parameters)
bytes=$("$jsonget" .out bytes) data=$("$jsonget" .out data_bytes)
[ "$bytes" -eq "$(wc -c < flux-tiny.gguf)" ] || fail "size of the file"
run 0 inspect flux-tiny.gguf --json
json 0/tensors "$tensors"
json 0/parameters "$params"
json 0/bytes "$bytes"
json 0/data_bytes "$data"
json 0/metadata/general.architecture flux
rm flux-tiny.gguf

# the type and the ending choose the format; the default name follows
run 0 synth --preset t5-tiny
[ -f t5-tiny.safetensors ] || fail "default name"
run 0 synth --preset t5-tiny --dtype q4_0
[ -f t5-tiny.gguf ] || fail "a quant type makes a gguf file"
run 0 synth --preset t5-tiny --output x.bin --format gguf
run 0 inspect x.bin --json
json 0/format gguf
rm x.bin t5-tiny.gguf

# an existing file stays until told otherwise
sum=$(cksum < t5-tiny.safetensors)
run 1 synth --preset t5-tiny --dtype f16
err_has 'berth synth: t5-tiny.safetensors: exists already'
[ "$sum" = "$(cksum < t5-tiny.safetensors)" ] || fail "the old file changed"
run 0 synth --preset t5-tiny --dtype f16 --force
[ "$sum" != "$(cksum < t5-tiny.safetensors)" ] || fail "--force did not replace it"
rm t5-tiny.safetensors

# what the report says when the type found no tensor, and of one tensor
echo '{"a.bias": [64], "b.bias": [32]}' > vec.json
run 0 synth --keys vec.json --dtype q8_0
out_has '^vec.gguf: 2 tensors, .* F32 (no tensor is fit for Q8_0), gguf'
run 0 synth --keys vec.json --dtype q8_0 --json --force
json dtype Q8_0
json dtypes/F32 2
json dtypes/# 1
echo '{"a.bias": [64]}' > vec.json
run 0 synth --keys vec.json --force -o vec.gguf
out_has ': 1 tensor, '
"$berth" --log-level info --log-json synth --keys vec.json --force -o vec.gguf > .out 2> .err || fail "with a log"
err_has '"event":"synth.start".*"tensors":"1"'
err_has '"event":"synth.done"'
rm vec.json vec.gguf

# keys from a file
cat > my.json << 'EOF'
{"a.weight": [64, 64], "a.bias": [64], "b.weight": [3, 3, 8, 8, 2], "s": [], "none": [0, 4]}
EOF
run 0 synth --keys my.json
[ -f my.safetensors ] || fail "default name of a keys file"
run 0 inspect my.safetensors --json --tensors
json 0/tensors 5
json 0/index/0/name a.weight
json 0/index/2/shape '[3,3,8,8,2]'
run 0 synth --keys my.json --dtype q8_0
run 0 inspect my.gguf --json --tensors
json 0/index/2/shape '[3,3,8,8,2]'
rm my.safetensors my.gguf

echo '{"a": [1, -2]}' > bad.json
run 1 synth --keys bad.json
err_has 'berth synth: bad.json: '
run 1 synth --keys no-such.json
err_has 'no-such.json'
echo '{"a": [1], "a": [1]}' > bad.json
run 1 synth --keys bad.json
err_has 'bad.json'
# far more than any disk: refused before a byte is written
echo '{"a": [1099511627776, 65536]}' > bad.json
run 1 synth --keys bad.json -o big.safetensors
err_has 'big.safetensors'
rm bad.json my.json
only_files

# mistakes
run 2 synth
err_has '--preset NAME or --keys FILE'
run 2 synth --preset a --keys b
err_has 'not both'
run 2 synth --preset sd15-tyni
err_has "unknown preset 'sd15-tyni', did you mean 'sd15-tiny'?"
run 2 synth --preset flux
err_has "did you mean 'flux-tiny', 'flux-dev', .*' or [0-9]* others?"
for how in 'q4k Q4_K' 'fp16 F16' 'q4_k_m Q4_K' 'Q8-0 Q8_0'; do
    run 2 synth --preset t5-tiny --dtype ${how% *}
    err_has "unknown dtype '${how% *}', did you mean '${how#* }'?"
done
run 2 synth --preset whatever
err_has 'berth synth --list. shows all'
run 2 synth --preset t5-tiny --dtype q9
err_has "unknown dtype 'q9'"
err_has 'Q8_0'
run 2 synth --preset t5-tiny --dtype q6_k
err_has 'cannot make Q6_K'
err_has 'Q4_K'
run 2 synth --preset t5-tiny --dtype q8_0 --format safetensors
err_has 'gguf instead'
run 2 synth --preset t5-tiny --dtype q8_0 -o x.safetensors
err_has 'gguf instead'
run 2 synth --preset t5-tiny --dtype f8_e5m2 -o x.gguf
err_has 'safetensors instead'
run 2 synth --preset t5-tiny --format pickle
err_has "unknown format 'pickle'"
run 2 synth --preset t5-tiny -o x.bin
err_has 'say which format with --format'
run 2 synth --preset t5-tiny -f gguf -o c.safetensors
err_has "'c.safetensors' ends like a safetensors file, but --format says gguf"
run 2 synth --preset t5-tiny -f gguf -o -
err_has 'standard output is not supported'
run 2 synth --list --dtype q6_k
err_has 'cannot make Q6_K'
run 2 synth --preset t5-tiny --threads 0
err_has 'threads'
run 2 synth --preset t5-tiny --output
err_has "'--output' needs a value"
only_files

# places that cannot be written
run 1 synth --preset t5-tiny -o no/such/folder/x.gguf
err_has 'no/such/folder/x.gguf'
mkdir folder.gguf
for force in '' --force; do
    run 1 synth --preset t5-tiny -o folder.gguf $force
    err_has 'folder.gguf: is a directory'
done
rmdir folder.gguf
run 1 synth --preset t5-tiny -f gguf -o /dev/null
err_has '/dev/null: is no regular file'
run 1 synth --preset t5-tiny -o no/such/folder/x.gguf --json
[ "$("$jsonget" .out error/code)" != "" ] || fail "no error in the JSON"
err_has 'no/such/folder/x.gguf'
if [ -c /dev/full ]; then
    run 1 synth --preset t5-tiny --format gguf -o /dev/full --force
    err_has '/dev/full'
    [ -c /dev/full ] || fail "replaced a device node"
fi
# the disk is full half way through: said, cleaned up, exit 1
(
    ulimit -f 2000
    "$berth" synth --preset sd15-tiny -o x.safetensors > .out 2> .err
    [ $? -eq 1 ]
) || fail "over the file size limit"
err_has 'berth synth: .*x.safetensors'
only_files

# --list, also as JSON; the full-size ones have their real sizes
run 0 synth --list
for p in sd15-tiny sd15 sdxl-tiny flux-tiny flux-dev; do out_has "^$p "; done
out_has '^preset .* F16 .* Q4_K'
for width in 40 80; do
    COLUMNS=$width "$berth" synth --list > .out || fail "--list on $width columns"
    awk -v w=$width 'length($0) > w { exit 1 }' .out || fail "--list is wider than $width columns"
done
run 0 synth --list --dtype q4_0
out_has '^preset .* Q4_0$'
# the help text names the types that can be written, and no others
run 0 help synth
cp .out help
for t in $(sed -n 's/^  safetensors //p' help); do
    run 0 synth --preset t5-tiny --dtype $t -o x.safetensors --force
done
for t in $(sed -n 's/^  gguf //p' help); do run 0 synth --preset t5-tiny --dtype $t -o x.gguf --force; done
for t in $(sed -n '/^  read-only/,$p' help | sed 's/read-only//'); do
    run 2 synth --preset t5-tiny --dtype $t --force
    err_has "cannot make $t"
done
rm x.gguf x.safetensors help
run 0 synth --list --json
i=0
while [ $i -lt "$("$jsonget" .out '#')" ]; do
    case $("$jsonget" .out $i/preset) in
    flux-dev)
        json $i/tensors 780
        json $i/data_bytes/BF16 23802816640
        ;;
    sd15) json $i/tensors 1130 ;;
    esac
    i=$((i + 1))
done
[ $i -ge 5 ] || fail "$i presets"
echo ok
