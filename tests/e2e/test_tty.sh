# On a terminal: colour and the picture by themselves; letters when NO_COLOR or TERM=dumb says no.
command -v script > /dev/null || {
    echo "skipped: no script(1)"
    exit 77
}
. "$(dirname "$0")/lib.sh"
script -qec true /dev/null < /dev/null > /dev/null 2>&1 || {
    echo "skipped: no pseudo-terminal here"
    exit 77
}
"$berth" synth --preset t5-tiny -o x.safetensors > /dev/null || fail "synth"
esc=$(printf '\033')

on_tty() { # on_tty COMMAND: runs it on a terminal of 90 columns, keeps what it shows in .out
    script -qec "stty cols 90; $1" /dev/null < /dev/null > .out 2> .err || fail "$1"
}
export TERM=xterm LC_ALL=C.UTF-8
on_tty "'$berth' inspect x.safetensors"
out_has layout
out_has "$esc\["
out_has '█'
# a colour means one thing: those of the parts are not those of the types
parts=$(grep '█' .out | sed -n '/shared/p' | grep -o "$esc\[[1-9][0-9]*m█" | grep -o '[0-9]*m' | sort -u)
types=$(grep '▀ \|▀.*F32 ' .out | grep -o "$esc\[[1-9][0-9]*m▀" | grep -o '[0-9]*m' | sort -u)
[ -n "$parts" ] && [ -n "$types" ] || fail "no colours in the legend"
for c in $parts; do
    case " $types " in *" $c "*) fail "colour $c stands for a part and for a type" ;; esac
done
widest=$(sed "s/$esc\[[0-9]*[mK]//g" .out | sed -n '/layout/,$p' | tr -d '\r' | sed 's/█/#/g; s/▀/#/g; s/·/./g' |
    awk '{ if (length($0) > m) m = length($0) } END { print m }')
[ "$widest" -gt 80 ] && [ "$widest" -le 90 ] || fail "the picture is $widest columns wide on 90"

for plain in NO_COLOR=1 TERM=dumb; do
    on_tty "$plain '$berth' inspect x.safetensors"
    out_lacks "$esc\["
    out_has layout
    out_has '^    b*aaaa*' # letters instead
    out_has '^    AAAA*'
done
# an error waits until the JSON is whole
script -qec "'$berth' inspect --json nope x.safetensors" /dev/null < /dev/null > both 2> .err
grep -q "^berth inspect: .*'nope'" both || fail "the message is not on a line of its own"
grep -v '^berth inspect: ' both > .out
json 0/error/code ENOTFOUND
json 1/tensors 30
tail -n 1 both | grep -q '^berth inspect: ' || fail "the message is inside the JSON"
on_tty "LC_ALL=C '$berth' inspect x.safetensors"
out_lacks '█'
on_tty "'$berth' inspect x.safetensors --json"
out_lacks "$esc\["
out_lacks layout
for cmd in devices version "synth --list" --help; do
    on_tty "'$berth' $cmd"
    on_tty "NO_COLOR=1 '$berth' $cmd"
    out_lacks "$esc\["
done

# the progress line fits, whatever the width, and is gone at the end
for cols in 40 20; do
    rm -f pid
    : > .out
    ( # stopped after some lines of progress, however long they take
        until [ "$(tr '\r' '\n' < .out | grep -c '%')" -ge 5 ]; do
            [ ! -s pid ] || kill -s 0 "$(cat pid)" 2> /dev/null || exit 0
            sleep 0.1
        done
        kill -s TERM "$(cat pid)" 2> /dev/null
    ) &
    script -qec "stty cols $cols; echo \$\$ > pid; exec '$berth' synth -p sd15 -d q4_k -j 1 -o p.gguf" /dev/null \
        < /dev/null > .out 2> .err
    wait
    rm -f p.gguf
    sed "s/$esc\[[0-9]*[mK]//g" .out | tr '\r' '\n' | grep '%' > lines || fail "no progress on $cols columns"
    awk -v cols=$cols 'length($0) >= cols { exit 1 }' lines || fail "a progress line wraps on $cols columns"
    grep -q "$(printf '\r')$esc\[Kberth synth: " .out || grep -q "$(printf '\r')$esc\[Kp.gguf: " .out ||
        fail "the progress line is still there"
done

# text of a workflow is shown, not obeyed; a pipe gets it as it is
mkdir -p w/input && echo junk > w/input/bad.png
printf '%s\n' '{"a": {"class_type": "PrimitiveStringMultiline", "inputs": {"value": "one\u001b[31m\ntwo"}},
 "b": {"class_type": "PreviewAny", "inputs": {"source": ["a", 0]}}}' > text.json
printf '%s\n' '{"n\u001b[31m": {"class_type": "LoadImage", "inputs": {"image": "bad.png"}},
 "c": {"class_type": "PreviewImage", "inputs": {"images": ["n\u001b[31m", 0]}}}' > broken.json
on_tty "'$berth' run --quiet --base-directory w text.json"
out_lacks "$esc\[31m"
out_has '^one\\x1b\[31m'
out_has '^two'
run 0 run --quiet --base-directory w text.json
out_has "^one$esc\[31m"
on_tty "'$berth' run --quiet --base-directory w broken.json || true"
out_lacks "$esc\[31m"
out_has 'node n\\x1b\[31m (LoadImage): '
echo ok
