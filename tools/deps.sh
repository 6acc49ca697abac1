#!/bin/sh
# Installs missing Debian packages and says what it does. usage: deps.sh build|test|fuzz|format|deb
set -eu
case ${1:-build} in
build) packages="gcc libc6-dev cmake ninja-build pkg-config libjansson-dev
    libwebsockets-dev libsqlite3-dev libpng-dev libjpeg-dev libwebp-dev libtiff-dev zlib1g-dev
    libyaml-dev libcurl4-openssl-dev
    libavformat-dev libavcodec-dev libavutil-dev libswscale-dev libswresample-dev" ;;
test) packages="libcmocka-dev binutils curl python3 python3-pytest python3-requests python3-websocket python3-yaml
    chromium chromium-driver python3-selenium
    zsh fish groff-base mandoc dpkg-dev file" ;; # not systemd: where it runs it is there, elsewhere one test is skipped
fuzz) packages="clang libclang-rt-dev llvm" ;;
format) packages="clang-format clang-tidy" ;;
deb) packages="dpkg-dev file gzip" ;;
*) echo "usage: deps.sh build|test|fuzz|format|deb" >&2; exit 2 ;;
esac

if ! command -v dpkg-query > /dev/null; then
    echo "deps: not a Debian system; make sure these (or their equivalents) are installed: $packages"
    exit 0
fi
missing=
for p in $packages; do
    status=$(dpkg-query -W -f '${Status}' "$p" 2> /dev/null || true)
    [ "$status" = "install ok installed" ] && continue
    # pkg-config is a virtual name on newer releases: any provider will do
    [ "$p" = pkg-config ] && command -v pkg-config > /dev/null && continue
    # any of libcurl's three will do, and they exclude each other
    [ "$p" = libcurl4-openssl-dev ] && pkg-config --exists libcurl 2> /dev/null && continue
    missing="$missing $p"
done
if [ -z "$missing" ]; then
    exit 0
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null || { echo "deps: missing:$missing; run as root: apt-get install$missing" >&2; exit 1; }
    sudo=sudo
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q > /dev/null || echo "deps: apt-get update failed, trying with the lists that are there" >&2
$sudo apt-get install -y -q --no-install-recommends $missing
