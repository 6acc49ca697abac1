#!/bin/sh
# A tour: make two models, look inside, list devices, plan, load, keep, free. usage: demo.sh BERTH
set -eu
berth=$1
case $berth in /*) ;; *) berth=$PWD/$berth ;; esac
embed=$(dirname "$(readlink -f "$berth")")/examples/embed
tmp=$(mktemp -d "${TMPDIR:-/tmp}/berth-demo-XXXXXX")
workflows=$(cd "$(dirname "$0")/../examples/workflows" && pwd)
server=
trap 'test -z "$server" || kill "$server" 2> /dev/null; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
cd "$tmp"

bold='' cyan='' off=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$(printf '\033[1m') cyan=$(printf '\033[36m') off=$(printf '\033[0m')
fi
say() { printf '\n%s# %s%s\n' "$cyan" "$*" "$off"; }
show() { # prints the command as one would type it, then runs it
    shown="berth"
    for word; do
        case $word in *[,\ \;]*) shown="$shown \"$word\"" ;; *) shown="$shown $word" ;; esac
    done
    printf '%s$ %s%s\n' "$bold" "$shown" "$off"
    "$berth" "$@"
}

say "Weights that follow from their names: a small SD1.5 checkpoint, the same bytes on every machine."
show synth --preset sd15-tiny --output sd15-tiny.safetensors
say "The same for a Flux transformer, quantised to GGUF's Q8_0."
show synth --preset flux-tiny --dtype q8_0 --output flux-tiny.gguf

say "What is in them, read from the headers alone."
show inspect --picture sd15-tiny.safetensors
show inspect --picture flux-tiny.gguf

say "What this machine has to put models on."
show devices
say "The same machine split into logical devices: one with fake memory, one called cuda:0 in RAM."
show devices --devices "cpu=8g,null:0=2g,cuda:0@cpu=4g" ||
    show devices --devices "cpu=256m,null:0=2g,cuda:0@cpu=128m" # a machine with less memory

say "A machine that is not here, to plan for: nothing is opened."
show devices --hypothetical --devices "cuda:0=24g,cuda:1=12g,cpu=64g"

say "Where its blocks would go on a machine with two small cards: the first computes, nothing is loaded."
show plan sd15-tiny.safetensors --devices "cuda:0=32m,cuda:1=24m,cpu=8g" --alloc "cuda:0,28m;cuda:1,16m;cpu,*"
say "The same for the Flux model, by itself: the card is filled, the rest goes to RAM."
show plan flux-tiny.gguf --devices "cuda:0=6m,cpu=8g" --reserve 512k

say "The library at work (examples/embed.c): two models on a simulated card and RAM, one kept. A free ejects
# exactly the other; the kept one is found again where it was: 0 bytes read, 0 moved."
printf '%s$ embed sd15-tiny.safetensors flux-tiny.gguf "cpu=1g,null:0=48m"%s\n' "$bold" "$off"
"$embed" sd15-tiny.safetensors flux-tiny.gguf "cpu=1g,null:0=48m"

say "A workflow as ComfyUI exports it, run here and now: boxes, masks, Lanczos, a PNG that carries its workflow."
show run "$workflows/card.json" --base-directory "$tmp/base" --set save.filename_prefix=demo

say "Text to picture, all of it: tokens, CLIP, UNet, VAE. The weights are made up, so it shows nothing; a real checkpoint
# in the same place makes ComfyUI's picture. First on one device, then with its blocks on three: the same bits."
mkdir -p base/models/checkpoints base/tokenizers && cp sd15-tiny.safetensors base/models/checkpoints/
show synth --tokenizer base/tokenizers/clip
size="--set EmptyLatentImage.width=256 --set EmptyLatentImage.height=256"
# shellcheck disable=SC2086 # words on purpose
show run "$workflows/txt2img.json" --quiet --base-directory "$tmp/base" --set CheckpointLoaderSimple.ckpt_name=sd15-tiny.safetensors \
    --set SaveImage.filename_prefix=one --disable-metadata $size
# shellcheck disable=SC2086
show run "$workflows/distorch2.json" --quiet --base-directory "$tmp/base" --devices "cuda:0@cpu=256m,cuda:1@cpu=256m,cpu" \
    --set 1.ckpt_name=sd15-tiny.safetensors --set "1.expert_mode_allocations=cuda:0,12m;cuda:1,8m;cpu,*" \
    --set SaveImage.filename_prefix=three --disable-metadata $size
cmp base/output/one_00001_.png base/output/three_00001_.png && echo "the same picture, to the bit"

say "The server: ComfyUI's API, a queue on disk. A loader with keep_loaded brings a checkpoint to a simulated card."
: > serve.txt
"$berth" serve --base-directory "$tmp/base" --port 0 --log-level warn --devices "cpu=2g,cuda:0@cpu=256m" > serve.txt &
server=$!
for try in 1 2 3 4 5 6 7 8 9 10; do
    BERTH_URL=$(sed -n 's/.*\(http:[^ ]*\)$/\1/p' serve.txt)
    [ -n "$BERTH_URL" ] && break
    sleep 0.2
done
export BERTH_URL
sed 's/^/  /' serve.txt
show ps
say "A loader's workflow through HTTP; then: what is where, what would a free do, and one that takes all."
show run "$workflows/load.json" --server "$BERTH_URL"
show ps
show free --dry-run
show free --force
kill "$server" && wait "$server" && server= || true

say "A device that is not there is refused, never replaced in silence."
show devices --devices "xpu:0=8g" || printf '(exit code %d)\n' $?
say "Done. The models were in $tmp and are gone."
