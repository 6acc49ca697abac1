#!/bin/sh
# Nobody searches an error's text or cuts it apart: what one must know of an error is in its fields (base/err.h).
# base/err.c composes the texts, so it alone may look into them.
# usage: messages.sh SOURCE_DIR
set -eu
cd "$1"
search='strstr|strchr|strrchr|strncmp|strcmp|strcasestr|memmem|strtok|strspn|strcspn|sscanf|str_starts|str_ends|str_eq'
found=$(grep -rnE "\b($search)\(([^;]*(->|\.|\())?msg\b" src --include='*.c' --include='*.h' | grep -v '^src/base/err\.c:' || true)
if [ -n "$found" ]; then
    echo "an error's text is searched; say it with err_about(), err_on_device() or a quoted name instead:"
    echo "$found"
    exit 1
fi
grep -rq 'err_on_device(' src || { echo "no errors found: wrong folder?"; exit 1; }
echo "no message is searched"
