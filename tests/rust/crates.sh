#!/usr/bin/env bash
# crates.sh ROOT INSTALLED WORK [MOCK]: the Rust crates against an installed C library: bindings.rs is what the headers say, the text is formatted,
# no compiler or clippy warns, all tests and examples run; those of devices with the mock CUDA driver in the folder MOCK. Exit 77 is a skip;
# with CI=true a missing tool is none.
set -eu
root=$1 installed=$2 work=$3 mock=${4:-}

missing() {
    echo "skipped: $1 is not here"
    [ "${CI:-}" = true ] && exit 1
    exit 77
}

command -v cargo >/dev/null || missing cargo
command -v bindgen >/dev/null || missing bindgen
lib=$(dirname "$(find "$installed" -name libcommstream.so | head -1)")
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
export CARGO_TARGET_DIR=$work CARGO_NET_OFFLINE=true RUSTFLAGS=-Dwarnings RUSTDOCFLAGS=-Dwarnings
export COMMSTREAM_RUN=$installed/bin/comm-run
cd "$root/bindings/rust"
./generate.sh --check
for name in $(sed -n 's/.*pub fn \(comm_[a-z_]*\)(.*/\1/p' commstream-sys/src/bindings.rs); do
    grep -q "^| \`$name\` | " commstream/FUNCTIONS.md || { echo "crates.sh: $name has no row in commstream/FUNCTIONS.md" >&2; exit 1; }
done
# Debian has these as packages of their own; whoever works on the crates has them.
if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; fi
if cargo clippy --version >/dev/null 2>&1; then cargo clippy -q --all-targets; fi
cargo test --locked 2>&1
if [ -n "$mock" ]; then
    LD_LIBRARY_PATH=$lib:$mock MOCK_RUN=7 cargo test --locked --test devices -- --ignored --test-threads 1 2>&1
fi
cargo doc -q --no-deps
cargo build -q --examples
alone=$(timeout 60 "$work/debug/examples/cuts")
for ranks in 2 3; do
    said=$(timeout 60 "$COMMSTREAM_RUN" -n $ranks --quiet-tags "$work/debug/examples/cuts")
    [ "$said" = "$alone" ] || { echo "crates.sh: cuts on $ranks ranks: $said; on one: $alone" >&2; exit 1; }
done
# What is missing is said by name.
if said=$(env -u PKG_CONFIG_PATH PKG_CONFIG_LIBDIR=/nowhere CARGO_TARGET_DIR="$work/without" cargo build 2>&1); then
    echo "crates.sh: the crates were built without the C library" >&2
    exit 1
fi
case $said in *"install it, or set COMMSTREAM_LIB_DIR"*) ;; *) echo "crates.sh: $said" >&2; exit 1 ;; esac
