#!/bin/sh
# Every public header compiles alone as C11, C++11 and C++17, with every compiler that is here, without a warning and with no padding in its
# structs; so do the files given behind the folder (foreign.c in C alone). headers.sh INCLUDE CC CXX FILE...
set -u
include=$1 cc=$2 cxx=$3
shift 3
flags="-fsyntax-only -I$include -Wall -Wextra -Wpedantic -Wpadded -Wshadow -Werror"
for folder in $(echo "${MPI_INCLUDE:-}" | tr ';' ' '); do
    flags="$flags -isystem $folder"
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
wrong=0 done=0 compilers=0

have() { command -v "$1" >/dev/null 2>&1; }

# compile FILE LANGUAGE STANDARD COMPILER
compile() {
    done=$((done + 1))
    # shellcheck disable=SC2086
    $4 -x "$2" -std="$3" $flags "$1" >"$work/log" 2>&1 && return
    echo "$4 -std=$3: $(tail -1 "$1" | cut -c1-80) ($1)"
    head -5 "$work/log"
    wrong=$((wrong + 1))
}

# Those of the names that are here, one name for each program behind them.
distinct() {
    seen=''
    for c in "$@"; do
        [ -n "$c" ] && have "${c%% *}" || continue
        real=$(readlink -f "$(command -v "${c%% *}")")
        case "$seen " in *" $real "*) continue ;; esac
        seen="$seen $real"
        echo "$c"
    done
}
c_compilers=$(distinct "$cc" gcc clang)
cxx_compilers=$(distinct "$cxx" g++ clang++)

# clang lays a struct out only where its size is asked for: frozen.c asks for that of each public one.
cat >"$work/padded.c" <<'END'
struct comm_planted { char a; long b; };
int size[sizeof(struct comm_planted)];
END
for c in $c_compilers; do
    # shellcheck disable=SC2086
    if $c -std=c11 $flags "$work/padded.c" >/dev/null 2>&1; then
        echo "$c does not see planted padding"
        wrong=$((wrong + 1))
    fi
done

for header in "$include"/commstream/*.h; do
    name=$(basename "$header" .h)
    # Twice, so that guards are tried too.
    [ "$name" != mpi ] || [ -n "${MPI_INCLUDE:-}" ] || continue # it includes MPI's own
    printf '#include <commstream/%s.h>\n#include <commstream/%s.h>\n' "$name" "$name" >"$work/$name.c"
    set -- "$@" "$work/$name.c"
done
for c in $c_compilers; do
    compilers=$((compilers + 1))
    for file in "$@"; do
        case $file in *.cpp) ;; *) compile "$file" c c11 "$c" ;; esac
    done
done
for c in $cxx_compilers; do
    # A C++ compiler may be there without its library; ours needs none of it.
    compilers=$((compilers + 1))
    for file in "$@"; do
        case $file in */foreign.c) continue ;; esac
        for standard in c++11 c++17; do
            compile "$file" c++ "$standard" "$c"
        done
    done
done
[ -n "$cxx_compilers" ] || echo "no C++ compiler: C11 alone was tried"
echo "headers: $done compilations by $compilers compilers, $wrong wrong"
[ "$wrong" -eq 0 ] && [ "$done" -gt 0 ]
