#!/bin/sh
# cycles.sh passes two files of which one calls the other, and refuses two that call each other.
# usage: cycles_can_fail.sh CYCLES.sh CC
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
make_library() {
    rm -f lib.a
    for f in one two; do "$2" -c "$f.c" -o "$f.c.o"; done
    ar rcs lib.a one.c.o two.c.o
    sh "$1" lib.a
}
echo 'void two(void); void one(void); void one(void) { two(); }' > one.c
echo 'void two(void); void two(void) { }' > two.c
make_library "$1" "$2"
echo 'void one(void); void two(void); void two(void) { one(); }' > two.c
if make_library "$1" "$2"; then
    echo "a cycle was not found"
    exit 1
fi
