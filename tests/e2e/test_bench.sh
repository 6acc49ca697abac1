# berth bench stream: what cannot be is refused before weights are written; rows, JSON, signals.
. "$(dirname "$0")/lib.sh"
tiny="--preset flux-tiny --dir . --width 64 --height 64 --tokens 16 --steps 1 --warmup 1"
card="--devices cuda:0@cpu=1g,cpu"

# refused CODE MESSAGE ARGS...: nothing was written, nothing is on stdout
refused() {
    code=$1 message=$2
    shift 2
    run "$code" bench stream "$@"
    err_has "$message"
    [ -s .out ] && fail "refused, but it had begun"
    only_files
}
refused 2 'there is no card: cpu would be its own donor; .* --devices cuda:0@cpu=8g,cpu' $tiny
refused 2 'cuda:0 computes and cannot be its own donor' $tiny $card --donor cuda:0
refused 2 '--device: no device cuda:7' $tiny $card --device cuda:7
refused 2 '--donor: no device cuda:7' $tiny $card --donor cpu,cuda:7
refused 2 '--donor: .* empty place' $tiny $card --donor cpu,,cuda:0
refused 2 '--donor: .* empty place' $tiny $card --donor cpu,
refused 2 '--donor: cpu twice' $tiny $card --donor cpu,CPU
refused 2 '--devices: ' $tiny --devices 'cuda:0=='
refused 2 '--devices: .*no device xpu:0 here' $tiny --devices xpu:0=1g
refused 2 '--ram-budget beside --devices' $tiny $card --ram-budget 1g
refused 2 'is no number of a card' $tiny --cuda-device x
refused 2 '--preset: .*holds no diffusion model' --preset t5-tiny --dir . $card
refused 2 '--dtype goes with --preset' --file x --dtype bf16 $card
refused 2 "--dtype: 'i8' is none of" $tiny $card --dtype i8

run 0 bench stream $tiny $card --offload 0,50
out_has ' GB/s  [0-9a-f]\{8\}$'
only_files

# of a whole checkpoint only the network that runs; one row has nothing to be equal to
run 0 synth --preset sd15-tiny -o all.safetensors
run 0 synth --preset sd15-unet-tiny -o unet.safetensors
small="$card --width 64 --height 64 --tokens 16 --steps 1 --warmup 0 --json"
run 0 bench stream --file unet.safetensors --offload 0,100 $small
json same_output true
json rows/1/alloc 'cpu,100.0000%#cuda:0'
bytes=$("$jsonget" .out rows/0/bytes)
run 0 bench stream --file all.safetensors --offload 0 $small
json rows/0/bytes "$bytes"
"$jsonget" .out same_output > /dev/null 2>&1 && fail "one row, yet it is the same as others"
run 0 bench stream $tiny $card --offload 0 --dtype f8_e4m3 --json
run 1 bench stream --file all.safetensors --offload 0 --devices cuda:0@cpu=8m,cpu --width 64 --height 64 --json
json error/code EINVAL
err_has 'berth bench: .*offloaded'
rm all.safetensors unet.safetensors

# a link without room for a large copy: measured with a smaller one, and the row stands
run 0 bench stream $tiny --devices cuda:0@cpu=96m,cpu --offload 100 --json
"$jsonget" .out rows/0/link_gbps | grep -q '[1-9]' || fail "no link"

# a signal: 128 + n, and the weights are gone; its first row may take long, it is waited for while it lives
(
    until grep -q '^ *0 %' .out 2> /dev/null; do
        [ ! -s .pid ] || kill -s 0 "$(cat .pid)" 2> /dev/null || exit 1
        sleep 0.05
    done
    kill -s TERM "$(cat .pid)"
) &
helper=$!
: > .out
sh -c 'echo $$ > .pid; exec "$@"' sh "$berth" bench stream $tiny $card --steps 40 --offload 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 > .out 2> .err
rc=$?
wait $helper || fail "no row came"
rm -f .pid
[ $rc -eq 143 ] || fail "exit $rc, wanted 143"
err_has '^berth bench: stopped$'
only_files
echo ok
