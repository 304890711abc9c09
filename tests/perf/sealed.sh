#!/bin/sh
# What sealing costs: an allreduce of two ranks with all that they send encrypted and authenticated, beside the same in plain, over loopback and
# between two hosts, which are network namespaces with a cable that tc limits to 10 and to 1 Gbit/s.
#
#   tests/perf/sealed.sh [--places "loopback 10gbit 1gbit"] [--ciphers "aes chacha"] [--min BYTES] [--max BYTES] [--rounds N] [--build DIR]
#
# As root where a place is a rate. Plain and sealed run in turn, round after round; each cell is the median over rounds of the medians that
# comm-perf gives, in microseconds; a ratio is the median of the rounds' ratios. The machine's load is printed: beside other work the figures
# say little. Skipped (77) where namespaces are missing.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build places='loopback 10gbit 1gbit' ciphers='aes chacha' min=8 max=8M rounds=5

fail() { echo "sealed.sh: $*" >&2; exit 2; }
skip() { echo "skipped: $*" >&2; exit 77; }

while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || fail "$1 lacks its value, or is unknown: --places, --ciphers, --min, --max, --rounds, --build"
    case $1 in
    --places) places=$2 ;;
    --ciphers) ciphers=$2 ;;
    --min) min=$2 ;;
    --max) max=$2 ;;
    --rounds) rounds=$2 ;;
    --build) build=$2 ;;
    *) fail "unknown argument '$1'" ;;
    esac
    shift 2
done
[ -x "$build/bin/comm-perf" ] || fail "$build/bin/comm-perf is not there; build first"
work=$(mktemp -d)
pids=''
trap 'kill $pids 2>/dev/null || true; rm -rf "$work"' EXIT INT TERM
"$build/bin/comm-info" --new-secret >"$work/secret" && chmod 600 "$work/secret"

# ------------------------------------------------------------------------------------------------ the places
on() { at=$1; shift; if [ "$at" = here ]; then "$@"; else nsenter --target "$at" --net "$@"; fi; }

# Sets one, two (where the ranks run) and address.
make_place()
{
    one=here two=here address=127.0.0.1:4714
    [ "$1" != loopback ] || return 0
    command -v ip >/dev/null && command -v tc >/dev/null || skip "iproute2 (ip, tc) is not installed"
    unshare --net sleep 3600 & one=$!
    unshare --net sleep 3600 & two=$!
    pids="$pids $one $two" address=10.80.0.1:4714
    sleep 0.5
    [ "$(readlink "/proc/$two/ns/net" 2>/dev/null)" != "$(readlink /proc/self/ns/net)" ] || skip "namespaces are refused"
    on "$one" ip link add eth0 type veth peer name eth0 netns "$two" || skip "no veth pairs"
    case $1 in 10gbit) burst=2mb ;; *) burst=512kb ;; esac
    i=0
    for pid in "$one" "$two"; do
        i=$((i + 1))
        on "$pid" ip addr add "10.80.0.$i/24" dev eth0
        on "$pid" ip link set eth0 up
        on "$pid" ip link set lo up
        on "$pid" tc qdisc add dev eth0 root tbf rate "$1" burst "$burst" latency 50ms || skip "tc has no tbf here"
    done
}

# ------------------------------------------------------------------------------------------------ the runs
rank() # NUMBER WHERE KIND
{
    seal=yes
    [ "$3" != plain ] || seal=no
    cipher=$3
    [ "$3" != plain ] || cipher=auto
    on "$2" env COMM_BACKEND=tcp COMM_RANKS=2 COMM_RANK="$1" COMM_LOCAL_RANKS=1 COMM_LOCAL_RANK=0 COMM_JOB=sealed COMM_LOG=error \
        COMM_ADDRESS="$address" COMM_SECRET_FILE="$work/secret" COMM_TCP_SEAL="$seal" COMM_TCP_CIPHER="$cipher" COMM_CPUS="$share" \
        "$build/bin/comm-perf" allreduce --min "$min" --max "$max" --format csv
}

run() # KIND
{
    rank 1 "$two" "$1" >/dev/null 2>"$work/err" &
    other=$!
    rank 0 "$one" "$1" >"$work/out" || { cat "$work/err" >&2; fail "comm-perf failed"; }
    wait "$other" || { cat "$work/err" >&2; fail "comm-perf failed"; }
    sed "1d;s/^/$round,$1,/" "$work/out" >>"$work/rows"
}

table()
{
    echo "| $place | plain us |$(for c in $ciphers; do printf ' %s us | %s / plain |' "$c" "$c"; done)"
    echo "|---|---:|$(for c in $ciphers; do printf -- '---:|---:|'; done)"
    awk -F, -v ciphers="$ciphers" '
    function median(list, n, i, j, t, a) {
        n = split(list, a, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return n ? (n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2) : ""
    }
    function cell(x) { return sprintf(x < 100 ? "%.1f" : "%.0f", x) }
    function size(b) { return b >= 1048576 ? b / 1048576 " MiB" : b >= 1024 ? b / 1024 " KiB" : b " B" }
    { time[$2, $7] = time[$2, $7] " " $10; of[$1, $2, $7] = $10
      if (!($7 in seen)) { seen[$7] = 1; order[++sizes] = $7 }
      if ($1 > rounds) rounds = $1 }
    END {
        n = split(ciphers, c, " ")
        for (i = 1; i <= sizes; i++) {
            b = order[i]
            line = "| " size(b) " | " cell(median(time["plain", b]))
            for (k = 1; k <= n; k++) {
                ratios = ""
                for (r = 1; r <= rounds; r++) ratios = ratios " " of[r, c[k], b] / of[r, "plain", b]
                line = line " | " cell(median(time[c[k], b])) " | " sprintf("%.2f", median(ratios))
            }
            print line " |"
        }
    }' "$work/rows"
}

share=$(($(nproc) / 2))
[ "$share" -ge 1 ] || share=1
echo "allreduce, f32, 2 ranks, medians of $rounds interleaved rounds; $(nproc) CPUs, load before $(cut -d' ' -f1 /proc/loadavg), $(date -u +%Y-%m-%d)"
for place in $places; do
    make_place "$place"
    : >"$work/rows"
    round=0
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        echo "sealed.sh: $place, round $round of $rounds" >&2
        run plain
        for cipher in $ciphers; do run "$cipher"; done
    done
    echo
    table
done
echo
echo "load behind: $(cut -d' ' -f1 /proc/loadavg)"
