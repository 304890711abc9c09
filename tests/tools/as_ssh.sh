#!/bin/sh
# as_ssh.sh HOST COMMAND: runs the command here, as ssh runs it on HOST: in another folder, by a shell, with few variables. COMM_HOST makes
# the library take its ranks for those of another host. The host "gone" cannot be reached.
host=$1
shift
[ "$host" != gone ] || { echo "as_ssh: gone: no route" >&2; exit 255; }
cd / && exec env -i PATH="$PATH" HOME="${HOME:-/}" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" ${ASAN_OPTIONS+ASAN_OPTIONS="$ASAN_OPTIONS"} \
    ${TSAN_OPTIONS+TSAN_OPTIONS="$TSAN_OPTIONS"} COMM_HOST="$host" sh -c "$*"
