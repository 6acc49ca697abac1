# berth devices: this machine, and machines people ask for.
. "$(dirname "$0")/lib.sh"

run 0 devices
out_has '^device '
out_has '^cpu '
run 0 devices --json
json 0/name cpu
json 0/kind cpu
json 0/physical cpu
total=$("$jsonget" .out 0/total)
[ "$total" -gt 0 ] || fail "no memory"
[ "$("$jsonget" .out 0/free)" -le "$total" ] || fail "more free than there is"
json 0/in_use 0
# cards: why there are none; not where somebody said what to open
json 1/kind cuda
"$jsonget" .out 1/absent | grep -q -e '^none: cannot open shared object file: no NVIDIA driver' \
    -e '^not in this build (' || fail "no reason for the lack of cards"
run 0 devices
out_has '^cuda: '
run 0 devices --devices cpu=1g
out_lacks '^cuda: '
run 1 devices --cuda-device 0
run 1 devices --default-device 0
run 2 devices --cuda-device x
err_has "'x' is no number of a card"
run 2 devices --default-device 0,1
fake=$(dirname "$jsonget")/libfake_cuda.so # a driver that shows one card of 256 MiB
if [ -f "$fake" ]; then
    export BERTH_CUDA_LIBRARY=$fake
    run 0 devices --json
    json '#' 2
    json 0/name cuda:0
    json 0/model 'Fake 0'
    json 1/name cpu
    run 0 devices
    out_lacks '^cuda: .*driver'
    mkdir lib # libraries of cards, which are no libraries
    for x in libcublasLt.so.13 libcublasLt.so.12 libcublasLt.so libcudnn.so.9; do : > lib/$x; done
    export LD_LIBRARY_PATH=$PWD/lib
    run 0 devices
    out_has '^cuda: products fail: no cuBLASLt:'
    out_has '^cuda: convolutions fail, attention is slow: no cuDNN 9:'
    run 0 devices --json
    json 0/missing/# 2
    json 1/missing/# 0
    unset LD_LIBRARY_PATH
    rm -r lib
    run 0 devices --default-device 0 --json
    json 0/model 'Fake 0'
    run 0 devices --devices cuda:0=100m,cuda:1@cuda:0=*,cpu --json
    json 1/budget 163577856
    run 1 devices --cuda-device 1
    err_has 'no card 1: the NVIDIA driver shows 1'
    export BERTH_CUDA_LIBRARY=none
fi

spec="cpu=64m,null:0=2g,cuda:0@cpu=32m"
run 0 devices --devices "$spec" --json
json '#' 3
json 0/name cpu
json 0/budget 67108864
json 1/name null:0
json 1/kind null
json 1/budget 2147483648
json 2/name cuda:0
json 2/physical cpu
json 2/budget 33554432
run 0 devices --devices="$spec"
out_has '^cuda:0 .* cpu '

out_has '^physical .* total .* free'
[ "$(grep -c '^cpu ' .out)" -eq 2 ] || fail "host memory is not listed once"
for width in 40 80; do
    COLUMNS=$width "$berth" devices --devices "$spec" > .out || fail "on $width columns"
    awk -v w=$width 'length($0) > w { exit 1 }' .out || fail "wider than $width columns"
done

# what is not there is refused, and what there is is listed
run 1 devices --devices xpu:0=1g
err_has "berth devices: --devices: entry 1 'xpu:0=1g': "
err_has 'cpu'
[ -s .out ] && fail "printed a list all the same"
run 1 devices --devices xpu:0=1g --json
json error/code EUNSUPPORTED
"$jsonget" .out error/message | grep -q 'xpu:0' || fail "no message in the JSON"
err_has 'berth devices: .*xpu:0'
run 1 devices --devices cpu=1000000g
err_has 'entry 1'
# what cannot be understood is wrong usage
for bad in 'cpu=' 'cpu=x' 'cpu,,' '=1g' 'cpu=1g,cpu=1g' 'cpu=99999999999999g' 'cuda=1g' 'cpu:0'; do
    run 2 devices --devices "$bad" --json
    err_has 'berth devices: --devices: entry [12]'
    err_has "Try 'berth devices --help'"
    [ -s .out ] && fail "'$bad' printed something"
done

# a machine that is not here: nothing is opened
spec="cuda:0=24g,cuda:1=12g,cpu=64000g,a:0@cuda:0=1.5g"
run 0 devices --hypothetical --devices "$spec" --json
json '#' 4
json 0/name cuda:0
json 0/kind cuda
json 0/hypothetical true
json 0/budget 25769803776
json 0/total 27380416512
json 2/total 68719476736000
json 3/physical cuda:0
json 3/budget 1610612736
run 0 devices --hypothetical --devices "$spec"
out_has '^cuda:1 *cuda:1 *12.0 GiB$'
out_lacks 'free'
run 2 devices --hypothetical --devices cuda:0
err_has 'budget'
run 2 devices --hypothetical
err_has 'needs --devices'
run 0 devices --json
json 0/hypothetical false

# the help text names only what is understood, and every word of "can"
run 0 help devices
names=$(sed -n '/^  NAME/,/^  PHYSICAL/p' .out | grep -o -w -e 'cpu' -e 'mps' -e '[a-z]*:0')
[ "$(echo "$names" | wc -l)" -ge 8 ] || fail "no names in the help text"
for name in $names; do run 0 devices --hypothetical --devices "$name=1g"; done
run 0 devices --devices null:0=1m --json
cp .out null.json
run 0 help devices
i=0
while [ $i -lt "$("$jsonget" null.json 0/can/#)" ]; do
    out_has "^  $("$jsonget" null.json 0/can/$i)  "
    i=$((i + 1))
done
echo ok

run 0 devices --ram-budget 512m --json
json 0/name cpu
json 0/budget 536870912
run 2 devices --ram-budget much
err_has "'much' is no size"
run 2 devices --ram-budget 1g --devices cpu=2g
err_has 'say cpu=1g there'
