#!/bin/sh
# What sealing costs: an allreduce of two ranks with all that they send encrypted and authenticated, beside the same in plain, over loopback and
# between two hosts, which are network namespaces with a cable that tc limits to 10 and to 1 Gbit/s.
#
#   tests/perf/sealed.sh [--places "loopback 10gbit 1gbit"] [--ciphers "aes chacha"] [--min BYTES] [--max BYTES] [--rounds N] [--build DIR]
#
# As root where a place is a rate. Plain and sealed run in turn, round after round; each cell is the median over rounds of the medians that
# comm-perf gives, in microseconds; a ratio is the median of the rounds' ratios. "bound" is the ratio if the cipher's own time, measured in
# each round with all CPUs busy (cipher_cost), were the whole cost and nothing hid it; a link that limits hides it. The machine's load is printed: beside other work the figures
# say little. Skipped (77) where namespaces are missing.
set -eu

me=sealed.sh options='places ciphers min max rounds'
places='loopback 10gbit 1gbit' ciphers='aes chacha' min=8 max=8M rounds=5
. "$(dirname "$0")/common.sh"
"$build/bin/comm-info" --new-secret >"$work/secret" && chmod 600 "$work/secret"

# ------------------------------------------------------------------------------------------------ the places
# Sets one, two (where the ranks run) and address_of_0.
make_place()
{
    one=here two=here address_of_0=127.0.0.1:4714
    [ "$1" != loopback ] || return 0
    case $1 in 10gbit) burst=2mb ;; *) burst=512kb ;; esac
    pair_of_hosts 10.80.0 "$1" "$burst"
    address_of_0=10.80.0.1:4714
}

# ------------------------------------------------------------------------------------------------ the runs
rank() # NUMBER WHERE KIND
{
    seal=yes
    [ "$3" != plain ] || seal=no
    cipher=$3
    [ "$3" != plain ] || cipher=auto
    on "$2" env COMM_BACKEND=tcp COMM_RANKS=2 COMM_RANK="$1" COMM_LOCAL_RANKS=1 COMM_LOCAL_RANK=0 COMM_JOB=sealed COMM_LOG=error \
        COMM_ADDRESS="$address_of_0" COMM_SECRET_FILE="$work/secret" COMM_TCP_SEAL="$seal" COMM_TCP_CIPHER="$cipher" COMM_CPUS="$share" \
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

bytes_of() { echo "$1" | sed 's/K$/ 1024/;s/M$/ 1048576/' | awk '{print $1 * ($2 ? $2 : 1)}'; }
cipher_alone() # KIND
{
    "$build/bin/cipher_cost" "$1" "$(bytes_of "$min")" "$(bytes_of "$max")" | sed "s/^/$round,$1-alone,,,,,/;s/ /,,,/" >>"$work/rows"
}

table()
{
    echo "| $place | plain us |$(for c in $ciphers; do printf ' %s us | %s / plain | bound |' "$c" "$c"; done)"
    echo "|---|---:|$(for c in $ciphers; do printf -- '---:|---:|---:|'; done)"
    awk -F, -v ciphers="$ciphers" "$awk_functions"'
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
                ratios = bounds = ""
                for (r = 1; r <= rounds; r++) {
                    ratios = ratios " " of[r, c[k], b] / of[r, "plain", b]
                    bounds = bounds " " 1 + of[r, c[k] "-alone", b] / of[r, "plain", b]
                }
                line = line " | " cell(median(time[c[k], b])) " | " sprintf("%.2f | %.2f", median(ratios), median(bounds))
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
        echo "$me: $place, round $round of $rounds" >&2
        run plain
        for cipher in $ciphers; do run "$cipher" && cipher_alone "$cipher"; done
    done
    echo
    table
done
echo
echo "load behind: $(cut -d' ' -f1 /proc/loadavg)"
