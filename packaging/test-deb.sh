#!/bin/bash
# Do the Debian packages install on a bare Debian 12, run there, and leave nothing behind?
# usage: test-deb.sh [--root DIR] FOLDER     as root; in a bookworm made by debootstrap (minbase) in
#                                            DIR, which may be there already; else in a temporary one
#        test-deb.sh --here FOLDER           this system is the bare one (a fresh container)
# FOLDER has berth_*.deb, libberth0_*.deb, libberth-dev_*.deb. Only Debian's packages are fetched.
set -euo pipefail

say() { printf '%s\n' "test-deb: $*"; }
fail() { say "FAILED: $*" >&2; exit 1; }

# ---- inside the bare system: no curl, no Python, no systemd; bash is always there ----

health() # $1: port. One request over bash's own sockets
{
    exec 3<> "/dev/tcp/127.0.0.1/$1"
    printf 'GET /berth/health HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n' "$1" >&3
    cat <&3
    exec 3<&-
}

a_server_answers()
{
    local log=/tmp/test-deb.log home port=
    home=$(mktemp -d)
    berth serve --demo --base-directory "$home" --port 0 > "$log" 2>&1 &
    server=$!
    trap 'kill "$server" 2> /dev/null' EXIT # also where a check below fails
    for _ in $(seq 100); do
        port=$(sed -n 's|.*http://127.0.0.1:\([0-9]*\).*|\1|p' "$log" | head -n 1)
        [ -n "$port" ] && break
        kill -0 "$server" || { cat "$log"; fail "berth serve ended"; }
        sleep 0.1
    done
    [ -n "$port" ] || { cat "$log"; fail "berth serve names no port"; }
    health "$port" | tr -d '\r' > /tmp/test-deb.health
    head -n 1 /tmp/test-deb.health | grep -q ' 200 ' || { cat /tmp/test-deb.health; fail "/berth/health"; }
    berth ps --server "http://127.0.0.1:$port" > /dev/null || fail "berth ps"
    berth run --quiet --server "http://127.0.0.1:$port" /usr/share/berth/workflows/demo.json > /dev/null || fail "berth run --server"
    kill "$server"
    wait "$server" || fail "berth serve: exit $? after SIGTERM"
    trap - EXIT
    rm -rf "$home" "$log" /tmp/test-deb.health
    say "berth serve --demo answers on /berth/health, runs a prompt, ends with 0"
}

a_picture_is_drawn() # by a user who owns nothing
{
    local home picture
    home=$(mktemp -d)
    chown nobody "$home"
    picture=$(setpriv --reuid nobody --regid nogroup --clear-groups \
        berth run --demo --quiet --base-directory "$home" /usr/share/berth/workflows/demo.json | tail -n 1) ||
        fail "berth run --demo as nobody"
    [ "$(head -c 8 "$picture" | od -An -c | tr -d ' \n')" = '211PNG\r\n032\n' ] || fail "'$picture' is no PNG"
    [ "$(stat -c %s "$picture")" -gt 1000 ] || fail "'$picture' is hardly a picture"
    rm -rf "$home"
    say "berth run --demo draws a picture as nobody"
}

files_are_there()
{
    local f
    for f in /usr/share/man/man1/berth.1.gz /usr/share/bash-completion/completions/berth \
        /usr/share/zsh/vendor-completions/_berth /usr/share/fish/vendor_completions.d/berth.fish \
        /usr/lib/systemd/system/berth.service /etc/default/berth /usr/share/doc/berth/copyright \
        /usr/share/doc/berth/README.md /usr/share/berth/demo/LICENSE; do
        [ -s "$f" ] || fail "$f is not there"
    done
    gzip -dc /usr/share/man/man1/berth.1.gz | grep -q '^\.SS berth serve' || fail "the man page knows no serve"
    grep -q '^ExecStart=/usr/bin/berth serve ' /usr/lib/systemd/system/berth.service || fail "berth.service"
    [ ! -e /etc/systemd/system/multi-user.target.wants/berth.service ] || fail "the service is enabled"
    # shellcheck disable=SC1091
    (. /usr/share/bash-completion/completions/berth
     COMP_LINE='berth ser' COMP_POINT=9; _berth; [ "${COMPREPLY[*]}" = serve ]) || fail "bash completion"
    ldconfig -p | grep -q 'libberth\.so\.0 ' || fail "ldconfig does not know libberth.so.0"
    say "man page, completions, unit, library: in place, the service not enabled"
}

nothing_is_left()
{
    # what a service would have made
    mkdir -p /var/lib/private/berth/{user/__berth,temp,models/checkpoints,output}
    touch /var/lib/private/berth/user/__berth/state.db
    ln -sfn private/berth /var/lib/berth
    apt-get remove -y -q -o Dpkg::Use-Pty=0 berth libberth0 libberth-dev > /dev/null
    [ ! -e /usr/bin/berth ] || fail "/usr/bin/berth is left after remove"
    [ -e /etc/default/berth ] || fail "remove took the configuration, which is purge's to do"
    dpkg --purge berth libberth0 libberth-dev > /dev/null 2>&1
    apt-get autoremove -y -q -o Dpkg::Use-Pty=0 --purge > /dev/null
    local left
    left=$(find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /work -o -path /__w -o -path /var/log \
        -o -path "$PWD" \) -prune -o -iname '*berth*' -print)
    [ -z "$left" ] || fail "left after purge: $left"
    say "remove and purge leave nothing"
}

inside() # $1: folder of the packages
{
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    # shellcheck disable=SC1091
    . /etc/os-release
    [ "$ID$VERSION_ID" = debian12 ] || fail "this is $PRETTY_NAME"
    ! command -v python3 > /dev/null || say "note: python3 is here; a bare system has none"
    apt-get update -q > /dev/null
    apt-get install -y -q -o Dpkg::Use-Pty=0 --no-install-recommends "$1"/berth_*.deb "$1"/libberth0_*.deb "$1"/libberth-dev_*.deb > /dev/null
    berth version
    files_are_there
    a_server_answers
    a_picture_is_drawn
    dpkg -i "$1"/berth_*.deb > /dev/null # over itself, as an upgrade is
    nothing_is_left
    say "passed"
}

# ---- outside ----

in_a_root() # $1: folder of the packages; $2: root, or ''
{
    [ "$(id -u)" = 0 ] || fail "a root is made and entered as root"
    root=${2:-$(mktemp -d)}
    mine=
    [ -n "$2" ] || mine=$root
    chmod 755 "$root" # a root that only root may enter is none for nobody
    [ -e "$root/etc/debian_version" ] || debootstrap --variant=minbase bookworm "$root" > "$root.log" 2>&1 || {
        cat "$root.log"; fail "debootstrap"; }
    rm -f "$root.log"
    # proc is asked for memory and processors; a container that may not mount does without
    mounted=
    mount -t proc proc "$root/proc" 2> /dev/null && mounted=1
    trap '[ -z "$mounted" ] || umount "$root/proc"; rm -rf "$root/packages" "$root/test-deb.sh" ${mine:+"$mine"}' EXIT
    mkdir -p "$root/packages"
    cp "$1"/*.deb "$root/packages"
    cp "$0" "$root/test-deb.sh"
    say "a bare Debian: $(cat "$root/etc/debian_version"), $(chroot "$root" dpkg -l | grep -c ^ii) packages"
    chroot "$root" /bin/bash /test-deb.sh --here /packages
}

case ${1:-} in
--here) inside "$(realpath "${2:?folder of the packages}")" ;;
--root) in_a_root "${3:?folder of the packages}" "${2:?a root}" ;;
'' | -*) sed -n '2,6s/^# //p' "$0"; exit 2 ;;
*) in_a_root "$1" '' ;;
esac
