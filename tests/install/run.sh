#!/bin/sh
# Installs the built tree into a folder of its own, moves that folder, and builds program.c against it as a stranger would.
# run.sh reference BUILD SYMBOLS DOXYGEN2MAN | tree BUILD WORK | pkgconfig WORK SOURCE CC VERSION | package WORK SOURCE CC CMAKE VERSION |
#        inside WORK SOURCE ROOT CC CMAKE OPTIONS...
set -eu
what=$1
shift

# The program says the version that was installed.
says() {
    got=$("$1")
    echo "$1: $got"
    [ "$got" = "commstream $2, COMM_ERR_PEER" ]
}

case $what in
reference)
    build=$1 list=$2 tool=$3
    command -v doxygen >/dev/null && [ -x "$tool" ] || { echo "skipped: doxygen and doxygen2man are not both here"; exit 77; }
    "${CMAKE:-cmake}" --build "$build" --target docs >"$build/docs.log" 2>&1 || { cat "$build/docs.log"; exit 1; }
    man=$build/docs/reference/man/man3
    while read -r name; do
        grep -q "^\.SH SYNOPSIS" "$man/$name.3" || { echo "$name has no man page"; exit 1; }
    done <"$list"
    ! grep -l COPYRIGHT "$man"/*.3 || { echo "these claim a copyright that is not ours"; exit 1; }
    # Where a comment names another function or a struct, the page goes on.
    grep -q 'comm_sync() waits for' "$man/comm_allreduce.3" && grep -q 'const struct comm_id ' "$man/comm_open.3" ||
        { echo "pages end their texts at a link"; exit 1; }
    grep -q 'receives the log; NULL: standard error' "$man/comm_open.3" || { echo "members of structs are not described"; exit 1; }
    grep -q 'Every rank gets the same bits' "$man/comm_allreduce.3" && [ -s "$build/docs/reference/html/index.html" ]
    ;;
tree)
    build=$1 work=$2
    rm -rf "$work"
    mkdir -p "$work"
    "${CMAKE:-cmake}" --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
    # Nothing installed may know where it was installed, or where it was built.
    mv "$work/first" "$work/moved"
    ! grep -rlI -e "$work/first" -e "$build" "$work/moved" || { echo "these name a folder of the build"; exit 1; }
    for file in comm.h libcommstream.so libcommstream.a commstream.pc commstreamConfig.cmake commstreamConfigVersion.cmake; do
        [ -n "$(find "$work/moved" -name "$file")" ] || { echo "$file is not there"; exit 1; }
    done
    # Nor may a tool have named it before: its bytes would be others in another folder.
    ! grep -lF "$build" "$build"/bin/comm-run "$build"/bin/comm-info "$build"/bin/comm-perf || { echo "these name the folder of the build"; exit 1; }
    # The modules are found where they were moved to: the CUDA module answers about the driver, and is not itself missing.
    backends=$("$work/moved/bin/comm-info" backends)
    case $backends in *'cannot be loaded;'*libcommstream_cuda* | *'module "cuda"'*) echo "$backends"; exit 1 ;; esac
    [ ! -d "$build/docs/reference/man" ] || [ -s "$work/moved/share/man/man3/comm_allreduce.3" ] || { echo "the man pages are not there"; exit 1; }
    ;;
pkgconfig)
    work=$1 source=$2 cc=$3 version=$4
    command -v pkg-config >/dev/null || { echo "skipped: pkg-config is not here"; exit 77; }
    pc=$(find "$work/moved" -name commstream.pc)
    PKG_CONFIG_PATH=$(dirname "$pc")
    export PKG_CONFIG_PATH
    libdir=$(pkg-config --variable=libdir commstream)
    cd "$work"
    $cc -std=c11 -Wall -Wextra -Werror $(pkg-config --cflags commstream) "$source/program.c" -o shared $(pkg-config --libs commstream)
    LD_LIBRARY_PATH=$libdir
    export LD_LIBRARY_PATH
    says ./shared "$version"
    # Without the shared library at hand the same line takes the static one.
    rm -rf static.lib && mkdir static.lib && cp "$libdir/libcommstream.a" static.lib/
    $cc -std=c11 $(pkg-config --cflags commstream) "$source/program.c" -o static -Lstatic.lib $(pkg-config --static --libs-only-l --libs-only-other commstream)
    LD_LIBRARY_PATH=
    says ./static "$version"
    [ "$(pkg-config --modversion commstream)" = "$version" ]
    ;;
package)
    work=$1 source=$2 cc=$3 cmake=$4 version=$5
    rm -rf "$work/foreign"
    mkdir -p "$work/foreign"
    cp "$source/program.c" "$work/foreign/"
    cp "$source/foreign.cmake.in" "$work/foreign/CMakeLists.txt"
    "$cmake" -S "$work/foreign" -B "$work/foreign/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/foreign.log" 2>&1 &&
        "$cmake" --build "$work/foreign/build" >>"$work/foreign.log" 2>&1 || { cat "$work/foreign.log"; exit 1; }
    says "$work/foreign/build/foreign_shared" "$version"
    says "$work/foreign/build/foreign_static" "$version"
    ;;
inside)
    # As a part of another project, which has no build type, gives absolute folders, and has liburing where no linker looks.
    work=$1 source=$2 root=$3 cc=$4 cmake=$5
    shift 5
    rm -rf "$work"
    mkdir -p "$work/elsewhere"
    cp "$source/program.c" "$work/"
    sed "s,@ROOT@,$root," "$source/around.cmake.in" >"$work/CMakeLists.txt"
    for option in "$@"; do
        case $option in *_LIBRARY=*)
            ln -s "${option#*=}" "$work/elsewhere/"
            moved=$work/elsewhere/$(basename "${option#*=}")
            set -- "$@" "${option%%=*}=$moved"
            ;;
        esac
    done
    for part in PMIX BLAS MPI UV EVENT; do set -- "$@" "-DCOMM_WITH_$part=OFF"; done
    "$cmake" -S "$work" -B "$work/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_INSTALL_PREFIX=/opt/p -DCMAKE_INSTALL_LIBDIR=/opt/l \
        -DCMAKE_INSTALL_INCLUDEDIR=/opt/i "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    grep -q "the type of the project around it: ''" "$work/log" || { grep around "$work/log"; exit 1; }
    grep 'algo/select\|posix/host.c' "$work/build/compile_commands.json" | grep -q -e '-O3' || { echo "the library is not optimized"; exit 1; }
    if [ -n "${moved:-}" ]; then
        grep -rqF "$moved" "$work/build" --include=link.txt --include=build.ninja || { echo "another library than $moved is linked"; exit 1; }
    fi
    pc=$work/build/commstream.pc
    for line in prefix=/opt/p includedir=/opt/i libdir=/opt/l; do
        grep -qx "$line" "$pc" || { echo "no line $line"; cat "$pc"; exit 1; }
    done
    find "$work/build" -name cmake_install.cmake -exec grep -h RPATH {} + | grep -q '"/opt/l"' || { echo "tools look elsewhere"; exit 1; }
    ;;
*)
    echo "run.sh: tree, pkgconfig, package or inside" >&2
    exit 2
    ;;
esac
