# berth plan: where blocks would go, on machines that are not here; and what it refuses.
. "$(dirname "$0")/lib.sh"
sparse=$(dirname "$jsonget")/sparse
[ -x "$sparse" ] || fail "no $sparse"

# sum KEY FILE: over every object of one line that has it; blocks have a "name", devices do not.
blocks_sum() { sed -n 's/.*"name": .*"bytes": \([0-9]*\),.*/\1/p' "$1" | awk '{ s += $1 } END { printf "%.0f\n", s }'; }
blocks_count() { grep -c '"name": ' "$1"; }
devices_sum() { sed -n 's/.*{"device": .*"bytes": \([0-9]*\),.*/\1/p' "$1" | awk '{ s += $1 } END { printf "%.0f\n", s }'; }
# on DEVICE FILE: bytes the "blocks" list puts there
on() { grep '"name": ' "$2" | sed -n "s/.*\"bytes\": \([0-9]*\), \"device\": \"$1\".*/\1/p" | awk '{ s += $1 } END { printf "%.0f\n", s }'; }
# The lists of .out agree with each other and with total_bytes.
sound() {
    total=$("$jsonget" .out total_bytes) || fail "no JSON"
    [ "$(blocks_sum .out)" = "$total" ] || fail "blocks add up to $(blocks_sum .out), not $total"
    [ "$(devices_sum .out)" = "$total" ] || fail "devices add up to $(devices_sum .out), not $total"
    n=0 i=0
    while [ $i -lt "$("$jsonget" .out devices/#)" ]; do
        d=$("$jsonget" .out devices/$i/device)
        [ "$(on "$d" .out)" = "$("$jsonget" .out devices/$i/bytes)" ] || fail "$d: lists disagree"
        "$jsonget" .out devices/$i/share | awk -v b="$("$jsonget" .out devices/$i/bytes)" -v t="$total" \
            '{ d = $1 - b / t; exit d > 1e-12 || d < -1e-12 }' || fail "$d: share"
        n=$((n + $("$jsonget" .out devices/$i/blocks)))
        i=$((i + 1))
    done
    [ "$n" = "$(blocks_count .out)" ] && [ "$n" = "$("$jsonget" .out blocks/#)" ] || fail "$n blocks"
}

"$sparse" flux-tiny f32 flux-tiny.safetensors && "$sparse" sd15-tiny f32 sd15-tiny.safetensors &&
    "$sparse" flux-dev bf16 flux-dev.safetensors || fail "no files"
pc="cuda:0=24g,cuda:1=12g,cpu=64g"

# ---- known sums ----
run 0 inspect --json flux-tiny.safetensors
flux_tiny=$("$jsonget" .out 0/data_bytes)
run 0 plan flux-tiny.safetensors --devices "$pc" --json
json total_bytes "$flux_tiny"
json total_bytes 32880896
json compute cuda:0
json layout spread
json 'devices/#' 3
json devices/0/device cuda:0
json devices/0/bytes "$flux_tiny"
json devices/0/share 1.0
json devices/2/bytes 0
json 'blocks/#' 53
json blocks/0/name img_in
json blocks/0/bytes 66560
json blocks/0/device cuda:0
json blocks/52/name final_layer.linear
sound
keys=$(grep -o '^  "[a-z_]*"' .out | tr -d ' "\n')
[ "$keys" = total_bytesconvertedcomputedevicesblocksstringlayoutnotes ] || fail "keys: $keys"

# ---- a preset: the plan that its file would have ----
for how in "f16" "fp8" "q8_0"; do
    for preset in flux-tiny sd15-tiny; do
        case $how in
        q8_0) run 0 synth --preset $preset --dtype $how -o made.gguf --force && file=made.gguf as= ;;
        f16) "$sparse" $preset f16 made.safetensors && file=made.safetensors as= ;;
        fp8) file=made.safetensors as="--dtype fp8" && "$sparse" $preset f16 $file ;;
        esac
        run 0 plan $file $as --devices "$pc" --json && cp .out want
        run 0 plan --preset $preset --dtype $how --devices "$pc" --json
        cmp want .out || fail "the plan of $preset in $how is not that of its file"
        sound
    done
done
rm -f made.gguf made.safetensors want
run 0 plan --preset flux-dev --devices "$pc" --json
json total_bytes 23802816640
run 0 plan --preset flux-dev --devices "$pc" --brief
out_has '^flux-dev$'
run 2 plan --preset flux-tinny --devices "$pc"
err_has "did you mean 'flux-tiny'"
run 2 plan --preset flux-tiny --dtype letters --devices "$pc"
err_has "'letters' is no type of weights"
run 2 plan --preset flux-tiny --dtype nvfp4 --devices "$pc"
err_has "a model in one of its layouts is planned from its file"
run 2 plan flux-tiny.safetensors --preset flux-tiny --devices "$pc"
err_has "not both"
run 2 plan --devices "$pc"
err_has "which file?"

# ---- in another type than the file's ----
run 0 plan flux-tiny.safetensors --devices "$pc" --dtype fp8_e4m3fn --json
json total_bytes $((flux_tiny / 4))
json converted F8_E4M3
json blocks/0/bytes 16640
sound
run 0 plan flux-tiny.safetensors --devices "$pc" --dtype FP8_E5M2
out_has "flux-tiny.safetensors as F8_E5M2"
out_has " --dtype F8_E5M2"
run 2 plan flux-tiny.safetensors --devices "$pc" --dtype q8_0
err_has "--dtype: 'q8_0' is neither fp8_e4m3fn nor fp8_e5m2"
run 2 plan flux-tiny.safetensors --devices "$pc" --weight-dtype fp8
err_has "--dtype fp8_e4m3fn"
run 0 plan flux-tiny.safetensors --devices "$pc" --dtype default --json
json total_bytes "$flux_tiny"
run 0 synth --preset flux-tiny --dtype bf16 --format gguf --output floats.gguf
run 1 plan floats.gguf --devices "$pc" --dtype fp8
err_has "weights of a GGUF file are not"
run 0 synth --preset flux-tiny --dtype q8_0 --output quants.gguf
run 1 plan quants.gguf --devices "$pc" --dtype fp8
err_has "weights of a GGUF file are not converted to F8_E4M3: leave the type (weight_dtype, --dtype) at its default"

run 0 inspect --json sd15-tiny.safetensors
sd15_tiny=$("$jsonget" .out 0/data_bytes)
run 0 plan sd15-tiny.safetensors --devices "$pc" --alloc 'cuda:0,25%;cpu,75%' --json
json total_bytes "$sd15_tiny"
sound
grep -n '"name": ' .out | cut -d: -f1,3- > .names
first() { grep "$1" .names | head -n 1 | cut -d: -f1; }
[ "$(first '"cond_stage')" -lt "$(first '"model.diff')" ] &&
    [ "$(first '"model.diff')" -lt "$(first '"first_stage')" ] || fail "parts out of order"
rm .names

# parts add up to the whole, with or without the dot; their blocks have their own names
sum=0
for part in cond_stage_model model.diffusion_model. first_stage_model; do
    run 0 plan sd15-tiny.safetensors --devices cpu=1g --part $part --json
    sound
    sum=$((sum + total))
done
[ "$sum" = "$sd15_tiny" ] || fail "parts: $sum of $sd15_tiny"
json blocks/0/name encoder.conv_in
run 0 plan sd15-tiny.safetensors --devices cpu=1g --part model.diffusion_model
out_has '^sd15-tiny.safetensors, model.diffusion_model.$'
out_has 'UNet of SD1'

# ---- the ways to say it ----
small="cuda:0=12g,cuda:1=8g,cpu=64g"
run 0 plan flux-dev.safetensors --devices "$small" --json
json total_bytes 23802816640
json 'blocks/#' 466
sound
string=$("$jsonget" .out string)
grep '"device": ' .out > auto.json
for again in "--auto" "--alloc=$string" "--auto --layout=spread" "--auto --reserve 1278423859"; do
    # shellcheck disable=SC2086
    run 0 plan flux-dev.safetensors --devices "$small" $again --json
    json string "$string"
    grep '"device": ' .out | diff auto.json - > .diff || { cat .diff; fail "$again is another plan than auto"; }
done
rm auto.json .diff
run 0 plan flux-dev.safetensors --devices "$pc" --reserve 20g --json
sound
[ "$("$jsonget" .out devices/0/bytes)" -le $((4 << 30)) ] || fail "nothing kept free"

# 10 GiB of virtual VRAM: the same bytes in both spellings and in every layout, to within a block
largest=132163584 # linear1 of a single block
for layout in spread tail; do
    run 0 plan flux-dev.safetensors --devices "$pc" --virtual-vram 10 --layout $layout --json
    sound
    cp .out virtual.json
    json layout $layout
    bytes=$("$jsonget" .out devices/2/bytes)
    off=$((bytes - (10 << 30)))
    [ ${off#-} -le $largest ] || fail "$layout: $bytes bytes on cpu for 10 GiB"
    run 0 plan flux-dev.safetensors --devices "$pc" --alloc '#cuda:0;10;cpu' --layout $layout --json
    cmp -s .out virtual.json || fail "--alloc '#...' is another plan than --virtual-vram"
done
# in tail the first block that runs is on the donor and the last is not
json blocks/6/device cpu
json blocks/465/device cuda:0
rm virtual.json
run 0 plan flux-dev.safetensors --devices "$pc" --virtual-vram 14.5 --donor cuda:1,cpu --compute cuda:0 --json
sound
[ "$("$jsonget" .out devices/1/bytes)" -le $((12 << 30)) ] || fail "cuda:1 holds more than it has"
[ "$("$jsonget" .out devices/2/bytes)" -gt 0 ] || fail "nothing on the second donor"
run 0 plan flux-dev.safetensors --devices "$pc" --compute cuda:1 --json
json compute cuda:1
sound
[ "$("$jsonget" .out devices/1/bytes)" -gt $((10 << 30)) ] || fail "cuda:1 is not full"
run 0 plan flux-dev.safetensors --devices "$pc" --compute ' CUDA:1 ' --alloc 'cpu,*#cuda:1' --json
json compute cuda:1
# all on donors: what is left on the compute device are blocks below a ten thousandth
[ "$("$jsonget" .out devices/1/bytes)" -lt 5000000 ] || fail "more than small blocks on compute"

# embeddings stay with the compute device whatever the string says
run 0 plan sd15-tiny.safetensors --devices "$pc" --alloc 'cpu,*#cuda:0' --json
grep -q 'token_embedding".*"device": "cuda:0"' .out || fail "the token embedding moved"

# notes: what people should hear
run 0 plan flux-dev.safetensors --devices "$pc" --alloc 'cuda:0,1gb' --json
json notes/0/warning false
"$jsonget" .out notes/0/text | grep -q cpu || fail "nothing said about the implicit cpu"
run 0 plan flux-dev.safetensors --devices "$pc" --alloc 'cuda:0,1gb'
out_has '^note: .*cpu'
run 0 plan flux-dev.safetensors --devices "$pc" --alloc 'cuda:0,0.01;cpu,0.1' --json
json notes/0/warning true
run 0 plan flux-dev.safetensors --devices "$pc" --alloc 'cuda:0,0.01;cpu,0.1'
out_has '^warning: '

# ---- for people ----
run 0 plan sd15-tiny.safetensors --devices cuda:0=32m,cuda:1=12g,cpu=64g --alloc 'cuda:0,25%;cpu,75%'
for line in 'Device allocations' 'Layer types' 'Final assignments' '^Linear ' '^Embedding ' \
    '^  cuda:0  memory  #' '^ *order   [0-9.#]*$' '^  cuda:1  memory  .* 0 B, 0 % of 12.0 GiB' \
    '^ *parts   a*b*c*$' 'a cond_stage_model.  clip' '^allocation string$' "^  --alloc 'cuda:0,.*#cuda:0'$"; do
    out_has "$line"
done
run 0 plan sd15-tiny.safetensors --brief --devices cuda:0=32m,cpu=64g --alloc 'cuda:0,25%;cpu,75%'
for line in '^  cuda:0  memory  #' '^ *parts   a*b*c*$' '^allocation string$'; do out_has "$line"; done
! grep -q 'Layer types' .out || fail "--brief has tables"
run 0 plan sd15-tiny.safetensors --brief --devices cuda:0=32m,cpu=64g --alloc 'cuda:0,1m'
out_has '^note: .*go to cpu'
for width in 60 80 120; do
    COLUMNS=$width "$berth" plan sd15-tiny.safetensors --devices "$pc" > .out || fail "on $width columns"
    awk -v w=$width '/^  *(order|parts)   / && length($0) != w { exit 1 } / memory  / && length($0) > w { exit 1 }' \
        .out || fail "the picture does not fill $width columns"
done
LC_ALL=C.UTF-8 "$berth" plan sd15-tiny.safetensors --devices "$pc" > .out
out_has '█'
out_lacks "$(printf '\033')"
"$sparse" --blocks 10000 many.safetensors
run 0 plan many.safetensors --devices cuda:0=1g,cpu=8g --json
json 'blocks/#' 10000
json blocks/9999/name stack.9999
sound
run 0 plan many.safetensors --devices cuda:0=1g,cpu=8g
out_has 'network not known'
run 0 synth --preset flux-tiny --dtype q8_0 --output flux-tiny.gguf
run 0 plan flux-tiny.gguf --devices cuda:0=5m,cpu=1g --reserve 0 --json
sound
[ "$("$jsonget" .out devices/0/bytes)" -gt 4000000 ] || fail "the compute device is not full"
run 0 plan flux-tiny.gguf
out_has 'Flux.1 transformer'
run 0 plan flux-tiny.gguf --json --log-level off
sound

# ---- refused: exit 1, the reason in words and in JSON ----
refused() { # WORD CODE ARGS...
    word=$1 code=$2
    shift 2
    run 1 plan "$@"
    err_has "^berth plan: .*$word"
    [ -s .out ] && fail "printed a plan all the same"
    run 1 plan "$@" --json
    json error/code "$code"
    "$jsonget" .out error/message | grep -q -e "$word" || fail "no '$word' in the JSON"
}
refused 'no-such.safetensors' ENOTFOUND no-such.safetensors --devices "$pc"
refused 'entry 2: "cuda:9,1g"' EINVAL flux-dev.safetensors --devices "$pc" --alloc 'cpu,*;cuda:9,1g'
refused 'entry 1: "cuda:1,13g"' EINVAL flux-dev.safetensors --devices "$pc" --alloc 'cuda:1,13g;cpu,*'
refused 'cuda:7' EINVAL flux-dev.safetensors --devices "$pc" --compute cuda:7
refused 'cuda:7' EINVAL flux-dev.safetensors --devices "$pc" --virtual-vram 4 --donor cuda:7
refused '22.2 GiB' ELIMIT flux-dev.safetensors --devices cuda:0=2g,cpu=4g
refused 'cuda:0' ELIMIT flux-dev.safetensors --devices cuda:0=2g,cpu=64g --alloc '#cuda:0'
refused 'first_stage_model\.' ENOTFOUND sd15-tiny.safetensors --devices "$pc" --part nothing
refused 'no tensor' ENOTFOUND flux-dev.safetensors --devices "$pc" --part nothing
echo text > not-a-model
refused 'not-a-model' EUNSUPPORTED not-a-model --devices "$pc"
printf '\002\000\000\000\000\000\000\000{}' > empty.safetensors
refused 'has no tensors' ENOTFOUND empty.safetensors --devices "$pc"

# ---- not understood: exit 2, nothing on stdout ----
wrong() { # WORD ARGS...
    word=$1
    shift
    run 2 plan "$@" --json
    err_has "^berth plan: .*$word"
    err_has "Try 'berth plan --help'"
    [ -s .out ] && fail "'$*' printed something"
}
# A string is data to a program: exit 2 too, and the error as JSON.
bad_string() { # WORD ARGS...
    word=$1
    shift
    run 2 plan "$@" --json
    err_has "^berth plan: .*$word"
    json error/code EINVAL
}
f=flux-tiny.safetensors
wrong 'which file'
wrong "'other'" $f other
wrong 'exclude each other' $f --auto --alloc 'cpu,*'
wrong 'exclude each other' $f --virtual-vram 4 --alloc 'cpu,*'
wrong 'exclude each other' $f --virtual-vram 4 --auto
wrong '--virtual-vram' $f --donor cpu
wrong '--auto' $f --reserve 1g --alloc 'cpu,*'
wrong '--reserve' $f --reserve lots
wrong '--layout' $f --layout head
wrong 'entry 2' $f --devices cuda:0=4g,cpu
wrong 'budget' $f --devices cuda:0
bad_string 'entry 1: "cuda:0 2gb"' $f --devices "$pc" --alloc 'cuda:0 2gb'
bad_string 'entry 2: "cpu,4x"' $f --devices "$pc" --alloc ';cuda:0,1g;;cpu,4x'
bad_string 'no device entries' $f --alloc ' ; '
bad_string 'no device entries' $f --alloc ''
bad_string ' 2: "lots"' $f --devices "$pc" --virtual-vram lots
bad_string 'range' $f --devices "$pc" --virtual-vram 129
wrong '#cuda:0' $f --devices "$pc" --alloc 'cpu,*#cuda:0' --compute cuda:1
wrong "did you mean '--layout'" $f --layuot tail

# ---- help: its examples are understood ----
run 0 help plan
for word in alloc virtual-vram donor auto compute devices layout part reserve json; do out_has "  --$word"; done
mv flux-dev.safetensors .flux; mv sd15-tiny.safetensors sd15.safetensors; mv .flux flux-dev.safetensors
grep '^  berth plan ' .out > .examples
[ "$(wc -l < .examples)" -ge 3 ] || fail "no examples"
while read -r _ _ line; do
    eval "run 0 plan $line"
done < .examples
echo ok

# This machine, with less memory than the model: refused in numbers.
run 0 synth --preset flux-tiny --output ram.safetensors
run 1 plan ram.safetensors --ram-budget 1m
err_has '1.00 MiB'
run 2 plan ram.safetensors --ram-budget 1m --devices cpu=1g
err_has 'say cpu=1m there'
# The JSON log of the environment is not touched by a command that records nothing.
echo old > mgpu.jsonl
MGPU_JSON_LOG_PATH=$PWD/mgpu.jsonl "$berth" plan ram.safetensors > .out 2> .err || fail "plan"
[ "$(cat mgpu.jsonl)" = old ] || fail "the JSON log was emptied"
