#!/bin/sh
# The first program in README.md compiles as it stands there, and has no more lines than it promises. readme.sh ROOT CC
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
awk '/^```c$/ { on = 1; next } on && /^```$/ { exit } on' "$1/README.md" >"$work/hello.c"
lines=$(wc -l <"$work/hello.c")
echo "readme: a program of $lines lines"
[ "$lines" -gt 0 ] && [ "$lines" -le 24 ] || exit 1
# shellcheck disable=SC2086
$2 -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$1/include" -fsyntax-only "$work/hello.c"
