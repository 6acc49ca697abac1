# The command line itself: help, version, mistakes, exit codes.
. "$(dirname "$0")/lib.sh"

run 0 --help
for cmd in inspect synth devices version help; do out_has "^  $cmd "; done
cp .out overview
run 0 help
cmp -s .out overview || fail "'berth help' differs from 'berth --help'"
run 0 -h
cmp -s .out overview || fail "'berth -h' differs from 'berth --help'"
rm overview

run 0 --help
commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' .out)
for cmd in $commands; do
    run 0 $cmd --help
    awk 'length($0) > 80 { exit 1 }' .out || fail "the help of $cmd is too wide"
done
for cmd in inspect synth devices version; do
    run 0 $cmd --help
    out_has "^Usage: berth $cmd "
    out_has "--json"
    out_has "-h, --help"
    cp .out text
    run 0 help $cmd
    cmp -s .out text || fail "'berth help $cmd' differs from 'berth $cmd --help'"
done
rm text

run 0 help help
out_has '^Usage: berth help '
run 0 help --help
out_has '^Usage: berth help '
run 0 -h synth
cp .out text
run 0 synth -h
cmp -s .out text || fail "'berth -h synth' differs from 'berth synth -h'"
rm text
run 0 --help
out_has '128 + n'
out_has '{"error": {"code", "message"}}'

run 0 --version
out_has '^berth [0-9]*\.[0-9]*\.[0-9]*$'
version=$(sed 's/berth //' .out)
run 0 version
out_has "^berth $version\$"
out_has compiler
run 0 version --json
json version "$version"
"$jsonget" .out features/# > /dev/null || fail "no features"
[ -n "$("$jsonget" .out compiler)" ] || fail "no compiler"
[ -n "$("$jsonget" .out build)" ] || fail "no build type"

# mistakes: exit 2, the offender named, the nearest name suggested, nothing on stdout
run 2
err_has 'berth: which command?'
run 2 inspct
err_has "unknown command 'inspct', did you mean 'inspect'?"
run 2 frobnicate
err_has "unknown command 'frobnicate'"
run 2 help frobnicate
err_has frobnicate
run 2 help --json
err_has "berth help: unknown option '--json'"
run 2 help synth devices
err_has "'devices'"
run 2 -h frobnicate
err_has "unknown command 'frobnicate'"
run 2 --verison
err_has "unknown option '--verison', did you mean '--version'?"
for cmd in inspect synth devices version; do
    run 2 $cmd --jsno
    err_has "berth $cmd: unknown option '--jsno', did you mean '--json'?"
    err_has "Try 'berth $cmd --help'"
    [ -s .out ] && fail "$cmd: a mistake printed something on stdout"
    run 2 $cmd --json=yes
    err_has "takes no value"
    run 2 $cmd --log-level loud
    err_has "'loud' is none of debug"
done
run 2 --log-level
err_has "'--log-level' needs a value: LEVEL"
run 2 version extra
err_has "unexpected argument 'extra'"
run 2 devices extra
err_has "unexpected argument 'extra'"
run 2 synth extra
err_has "unexpected argument 'extra'"
run 2 inspect
err_has 'which file?'

# outside text cannot drive the terminal
run 2 "$(printf 'in\033[31mspect')"
grep -q "$(printf '\033')" .err && fail "an escape sequence reached stderr"

# global options are welcome on both sides of the command
run 0 --log-level debug version
run 0 version --log-level=off --log-json
echo ok
