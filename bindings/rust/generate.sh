#!/bin/sh
# Writes commstream-sys/src/bindings.rs from the C headers, with bindgen; or, with --check, says whether the file is current.
set -eu
cd "$(dirname "$0")"
made=$(mktemp)
trap 'rm -f "$made"' EXIT
bindgen --rust-target 1.47 --default-enum-style consts --no-prepend-enum-name --no-doc-comments --no-layout-tests --size_t-is-usize --with-derive-default --blocklist-item COMM_ROOT_FAILED \
    --allowlist-function 'comm_.*' --allowlist-type 'comm_.*' --allowlist-var 'COMM_.*' \
    --raw-line '/* Made by generate.sh from the C headers; do not edit. */' \
    commstream-sys/wrapper.h -- -I../../include >"$made"
# rustfmt, where it is, changes white space and commas only.
words() { tr -d ' \n,' <"$1"; }
if [ "${1:-}" != --check ]; then
    cp "$made" commstream-sys/src/bindings.rs
elif [ "$(words "$made")" != "$(words commstream-sys/src/bindings.rs)" ]; then
    echo "generate.sh: bindings.rs is not what the headers say; run generate.sh" >&2
    exit 1
fi
