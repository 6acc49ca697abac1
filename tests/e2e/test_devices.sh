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

# what cannot be driven is refused, and what there is is listed
run 1 devices --devices xpu:0=1g
err_has 'berth devices: '
err_has 'xpu:0'
err_has 'cpu'
[ -s .out ] && fail "printed a list all the same"
for bad in 'cpu=' 'cpu=x' 'cpu,,' '=1g' 'cpu=1g,cpu=1g' 'cpu=99999999999999g' 'nonsense'; do
    run 1 devices --devices "$bad"
    err_has 'berth devices: '
done
echo ok
