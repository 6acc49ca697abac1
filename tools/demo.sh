#!/bin/sh
# What Berth is, in a minute: a plan, pictures, who holds which memory, a free and its receipt.
# usage: demo.sh BERTH [OPTION...]     options are added to the run that draws the sheet
# Leaves <folder of BERTH>/demo.png, and what the server wrote beside it in demo/, which the next tour clears.
set -eu
berth=$1
shift
case $berth in /*) ;; *) berth=$PWD/$berth ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
export BERTH_DATA_DIR="${BERTH_DATA_DIR:-$root/assets}" # where berth looks first: the model is the one named here
model=$BERTH_DATA_DIR/demo/berth-demo.safetensors
[ -r "$model" ] || { printf 'demo: the demo model is not there: %s\n' "$model" >&2; exit 1; }
folder=$(dirname "$berth")
base=$folder/demo
mine=$base/.made-by-the-tour
if [ -e "$base" ] && [ ! -e "$mine" ]; then
    printf 'demo: %s is there and no earlier tour made it: move it away\n' "$base" >&2
    exit 1
fi
rm -rf "$base" && mkdir -p "$base" && touch "$mine"
export BERTH_HOME="$base" # what --base-directory would say: models, input, output of this tour

bold='' cyan='' dim='' off=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$(printf '\033[1m') cyan=$(printf '\033[36m') dim=$(printf '\033[2m') off=$(printf '\033[0m')
fi
say() { printf '\n%s%s%s\n' "$cyan" "$*" "$off"; }
# Prints a command as one would type it here; a long one goes on with an option on the next line.
type_out() {
    shown=berth columns=7
    for word; do
        case $word in
        "$root"/*) word=${word#"$root"/} ;;
        *[\ \;*@]*) word="\"$word\"" ;;
        esac
        case $word in --*) [ $columns -lt 60 ] || shown="$shown \\
   " columns=5 ;; esac
        shown="$shown $word" columns=$((columns + ${#word} + 1))
    done
    printf '%s$ %s%s\n' "$bold" "$shown" "$off"
}
show() { type_out "$@" && "$berth" "$@"; }

server=
# The server writes until it has ended, so it is waited for.
leave() {
    [ -z "$server" ] || { kill "$server" 2> /dev/null && wait "$server"; } || true
}
trap leave EXIT
trap 'exit 1' HUP INT TERM
cd "$root"
start=$(date +%s)

# Two cards that are not there: RAM stands in for both, so that this runs anywhere.
two="cuda:0@cpu=256m,cuda:1@cpu=256m,cpu=1g"
shares="cuda:0,60%;cuda:1,40%"

say "A plan: which block of the model would live on which of two cards. Nothing is loaded for it."
show plan "$model" --brief --devices "cuda:0=64m,cuda:1=64m" --alloc "$shares"

say "A picture on one device, and with the blocks on two: the same bits."
show run --demo examples/workflows/demo.json --disable-metadata
show run --demo examples/workflows/demo-two.json --disable-metadata --devices "$two"
cmp "$base/output/demo_00001_.png" "$base/output/demo-two_00001_.png"
echo "the same picture, bit for bit"

say "A server, with ComfyUI's API and a dashboard. One prompt draws twelve pictures; the model is to be kept (keep_loaded)."
printf '%s$ berth serve --demo --port 0 --devices "%s" &%s\n' "$bold" "$two" "$off"
"$berth" serve --demo --port 0 --log-level error --devices "$two" > "$base/serve.txt" 2>&1 &
server=$!
tries=0
until url=$(sed -n 's/^ *listening on *\(http:[^ ]*\)$/\1/p' "$base/serve.txt") && [ -n "$url" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ] || ! kill -0 "$server" 2> /dev/null; then
        cat "$base/serve.txt" >&2
        exit 1
    fi
    sleep 0.1
done
show run examples/workflows/demo-sheet.json --server "$url" --show \
    --set model.compute_device=cuda:0 --set "model.expert_mode_allocations=$shares" "$@"
cp "$base"/output/demo-sheet_*.png "$folder/demo.png"

say "A second model comes in, marked to go again. Who holds what:"
"$berth" synth --preset sd15-tiny --output "$base/models/checkpoints/guest.safetensors" > "$base/synth.txt"
set -- run examples/workflows/load.json --server "$url" --quiet --set 1.ckpt_name=guest.safetensors \
    --set 1.compute_device=cuda:1 --set 1.expert_mode_allocations= --set 1.keep_loaded=false
type_out "$@"
"$berth" "$@" > "$base/load.txt" # names the model it loaded, as berth ps does below
show ps --server "$url"

say "Free model and node cache: exactly the guest leaves, and the receipt says so."
show free --server "$url"

say "The sheet, drawn by the model in assets/demo ($(($(date +%s) - start)) s since the start of this tour):"
printf '  %s%s%s\n' "$bold" "$folder/demo.png" "$off"
printf '%sThe server of this tour ends with it. Next: make serve, then http://127.0.0.1:8188/berth in a browser.%s\n' "$dim" "$off"
