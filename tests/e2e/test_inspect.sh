# berth inspect: good files, every kind of bad one, and several at once.
. "$(dirname "$0")/lib.sh"

"$berth" synth --preset flux-tiny --dtype f16 -o good.safetensors > .out 2> .err || fail "synth"
"$berth" synth --preset flux-tiny --dtype q4_0 -o good.gguf > .out 2> .err || fail "synth"

run 0 inspect good.safetensors
out_has '^good.safetensors$'
out_has 'format      safetensors'
out_has 'tensors     92'
out_has 'parameters  8,220,224'
out_has '^  F16 .*100.0 %'
out_has 'largest tensors'
out_lacks layout
grep -q "$(printf '\033')" .out && fail "colour without a terminal"
out_has 'family      a Flux diffusion model$'
run 0 inspect --json good.safetensors
json 0/family/name Flux
json 0/family/runs true
# names alone: a family that cannot be computed, and none at all
printf '{"%s": [1], "%s": [1], "%s": [1]}' video_patch_proj.weight audio_patch_proj.weight \
    condition_proj.weight > h3.json
"$berth" synth --keys h3.json -o h3.safetensors > /dev/null || fail "synth"
run 0 inspect h3.safetensors
out_has 'family      a MiniMax H3 audio and video model; Berth cannot compute it yet$'
run 0 inspect --json h3.safetensors
json 0/family/name 'MiniMax H3'
json 0/family/is 'a MiniMax H3 audio and video model'
json 0/family/runs false
echo '{"some.weight": [1]}' > some.json
"$berth" synth --keys some.json -o some.safetensors > /dev/null || fail "synth"
run 0 inspect some.safetensors
out_has 'family      not known$'
# what prompts refer to runs, too
echo '{"emb_params": [2, 768]}' > emb.json
"$berth" synth --keys emb.json -o emb.safetensors > /dev/null || fail "synth"
run 0 inspect emb.safetensors
out_has 'family      an embedding of CLIP-L, 2 vectors of 768$'
run 0 inspect --picture good.gguf
out_has layout
out_has 'a double_blocks'
out_has 'general.architecture  *flux'
COLUMNS=200 "$berth" inspect --picture good.gguf > .out || fail "wide picture"
[ "$(awk '{ n = length($0); if (n > m) m = n } END { print m }' .out)" -gt 150 ] || fail "width ignored"

run 0 inspect --tensors good.safetensors
[ "$(grep -c ' F16  .*weight: 16-bit floats$' .out)" -eq 39 ] || fail "--tensors lists too few"
run 0 inspect --tensors --json good.safetensors
json 0/index/# 92
json 0/index/0/name img_in.weight
json 0/index/0/dtype F16
json 0/index/0/shape '[256,64]'
json 0/index/0/bytes 32768
json 0/largest/# 10
json 0/dtypes/0/bytes 16440448
end=$(($("$jsonget" .out 0/index/91/offset) + $("$jsonget" .out 0/index/91/bytes)))
[ "$end" -eq "$(wc -c < good.safetensors)" ] || fail "the last tensor does not end the file"

# two shards
echo '{"a.weight": [64, 64], "a.bias": [64]}' > one.json
echo '{"b.weight": [64, 64]}' > two.json
"$berth" synth --keys one.json -o m-1.safetensors > /dev/null || fail "synth"
"$berth" synth --keys two.json -o m-2.safetensors > /dev/null || fail "synth"
cat > m.safetensors.index.json << 'EOF'
{"metadata": {"total_size": 33024}, "weight_map": {"a.weight": "m-1.safetensors",
 "a.bias": "m-1.safetensors", "b.weight": "m-2.safetensors"}}
EOF
run 0 inspect m.safetensors.index.json --tensors --picture
out_has '2 files'
out_has '^ *0 .*  m-1.safetensors$'
out_has '^ *1 .*  m-2.safetensors$'
out_has '^    file 1$'
run 0 inspect m.safetensors.index.json --json
json 0/shards/# 2
json 0/tensors 3
json 0/parameters 8256

# metadata: cut for people, whole in JSON
long=$(awk 'BEGIN { for (i = 0; i < 3000; i++) printf "x" }')
head='{"__metadata__":{"notes":"'$long'end"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
printf "\\$(printf %03o $((${#head} % 256)))\\$(printf %03o $((${#head} / 256)))\\0\\0\\0\\0\\0\\0" > meta.safetensors
printf '%s!' "$head" >> meta.safetensors
run 0 inspect meta.safetensors
out_has 'notes  xxx.*x\.\.\.$'
[ "$(awk '{ n = length($0); if (n > m) m = n } END { print m }' .out)" -le 100 ] || fail "a long line"
run 0 inspect meta.safetensors --json
json 0/metadata/notes "${long}end"
echo '{"c.weight": [256, 4, 3, 3]}' > one.json
run 0 synth --keys one.json --dtype q8_0 -o flat.gguf
run 0 inspect flat.gguf --json --tensors
json 0/index/0/shape '[256,4,3,3]'
json 0/metadata/comfy.gguf.orig_shape.c.weight '[256,4,3,3]'
run 0 inspect flat.gguf
out_has 'orig_shape\.\*  1 shape,'
out_lacks 'orig_shape.c.weight'
many=$(awk 'BEGIN { for (i = 0; i < 100; i++) printf "\"k%02d\":\"v\",", i }')
head='{"__metadata__":{'$many'"last":"v"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
printf "\\$(printf %03o $((${#head} % 256)))\\$(printf %03o $((${#head} / 256)))\\0\\0\\0\\0\\0\\0" > many.safetensors
printf '%s!' "$head" >> many.safetensors
run 0 inspect many.safetensors
out_has '\.\.\. and 61 more; --json'
out_lacks ' last '
run 0 inspect many.safetensors --json
json 0/metadata/last v

# hostile, broken, or no model at all: named on stderr, exit 1
: > empty.safetensors
mkdir folder.safetensors
head -c 100 good.safetensors > cut-header.safetensors
head -c 100000 good.safetensors > cut-data.safetensors
head -c 40 good.gguf > cut-header.gguf
head -c 100000 good.gguf > cut-data.gguf
printf '\377\377\377\377\377\377\377\177{}' > huge-header.safetensors
printf '\002\000\000\000\000\000\000\000[]' > list.safetensors
printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\377\000\000\000\000\000\000\000\000' > many.gguf
printf '\200\002}q\001.' > old.ckpt
printf 'PK\003\004archive/data.pkl' > new.pt
printf 'PK\003\004archive/data.pkl' > disguised.safetensors
head -c 4096 /dev/urandom > noise.safetensors
echo 'just text' > text.txt
for f in empty.safetensors folder.safetensors cut-header.safetensors cut-data.safetensors \
    cut-header.gguf cut-data.gguf huge-header.safetensors list.safetensors many.gguf old.ckpt \
    new.pt disguised.safetensors noise.safetensors text.txt no-such-file.gguf; do
    run 1 inspect $f
    err_has 'berth inspect: '
    err_has "$f"
    run 1 inspect $f --json
    json 0/file $f
    [ -n "$("$jsonget" .out 0/error/code)" ] || fail "$f: no error code"
    [ -n "$("$jsonget" .out 0/error/message)" ] || fail "$f: no message"
done
run 1 inspect old.ckpt
err_has 'not one that torch.save() wrote'
printf '\200\002cos\nsystem\nX\002\000\000\000id\205R.' > evil.pt
run 1 inspect evil.pt
err_has 'evil.pt.*wants os.system, which Berth does not run'
if [ "$(id -u)" -ne 0 ]; then
    cp good.gguf secret.gguf && chmod 000 secret.gguf
    run 1 inspect secret.gguf
    err_has 'secret.gguf'
fi

# cut short while it is printed: far more than a pipe holds, so berth waits for us in the middle.
# A picture is drawn while the file is read, so it must fail; JSON was read whole before the first
# byte appeared, so it must be what the whole file gives
"$berth" synth --preset sd15-tiny --dtype q8_0 -o cut.gguf > /dev/null || fail "synth"
for how in --json --picture; do
    cp cut.gguf half.gguf
    "$berth" inspect --tensors $how half.gguf > whole || fail "inspect $how"
    { "$berth" inspect --tensors $how half.gguf 2> .err; echo $? > rc; } | {
        dd bs=1 count=1 of=.out 2> /dev/null
        head -c 200000 cut.gguf > half.gguf # truncates the mapped file
        cat >> .out
    }
    if [ $how = --json ]; then
        [ "$(cat rc)" -eq 0 ] || fail "a file that shrank after it was read: exit $(cat rc)"
        cmp -s .out whole || fail "a file that shrank after it was read: other JSON"
    else
        [ "$(cat rc)" -eq 1 ] || fail "a file that shrank under $how: exit $(cat rc)"
        err_has 'berth inspect: .*half.gguf'
    fi
done
rm whole
rm cut.gguf half.gguf rc

# what the log tells
"$berth" --log-level debug --log-json inspect good.gguf > .out 2> .err || fail "inspect with a log"
err_has '"event":"inspect.open".*"tensors":"92"'
err_has '"event":"inspect.done"'

# one bad file does not hide the others
run 1 inspect good.gguf no-such-file.gguf good.safetensors
out_has '^good.gguf$'
out_has '^good.safetensors$'
err_has 'no-such-file.gguf'
run 1 inspect --json good.gguf old.ckpt good.safetensors
json '#' 3
json 0/tensors 92
json 1/file old.ckpt
json 2/tensors 92

# names of files and tensors cannot drive the terminal
esc=$(printf 'x\033[31m.gguf')
cp good.gguf "$esc"
run 0 inspect "$esc"
grep -q "$(printf '\033')" .out && fail "an escape sequence reached stdout"
run 1 inspect "$(printf 'no\033[31m.gguf')"
grep -q "$(printf '\033')" .err && fail "an escape sequence reached stderr"
printf '{"a\342\200\256b": [4]}' > one.json
run 0 synth --keys one.json -o bidi.safetensors
run 0 inspect --tensors bidi.safetensors
out_has 'a\\u{202e}b'
echo ok
