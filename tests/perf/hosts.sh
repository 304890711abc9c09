#!/bin/sh
# A collective over several hosts: the program made of hosts beside the one of a single host ("flat") and beside Open MPI. The hosts are
# namespaces with a cable each to a bridge, which tc limits where a rate is given.
#
#   tests/perf/hosts.sh [--hosts N] [--each N] [--collective NAME] [--rate RATE] [--min BYTES] [--max BYTES] [--rounds N] [--build DIR]
#
# As root; two hosts of 2 ranks, allreduce, no limit, 64K to 4M, 3 rounds unless said. The programs run in turn, round after round; each
# cell is the median over rounds of medians, in microseconds, each ratio one of such cells. Skipped (77) where namespaces are missing.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build hosts=2 each=2 collective=allreduce rate=none min=64K max=4M rounds=3

fail() { echo "hosts.sh: $*" >&2; exit 2; }
skip() { echo "skipped: $*" >&2; exit 77; }

while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || fail "$1 lacks its value, or is unknown: --hosts, --each, --collective, --rate, --min, --max, --rounds, --build"
    case $1 in
    --hosts) hosts=$2 ;;
    --each) each=$2 ;;
    --collective) collective=$2 ;;
    --rate) rate=$2 ;;
    --min) min=$2 ;;
    --max) max=$2 ;;
    --rounds) rounds=$2 ;;
    --build) build=$2 ;;
    *) fail "unknown argument '$1'" ;;
    esac
    shift 2
done
case $collective in
allreduce | reduce) flat=slices ;;
broadcast | allgather) flat=pipeline ;;
reduce_scatter) flat=direct ;;
*) fail "--collective $collective; expected allreduce, reduce, broadcast, allgather or reduce_scatter" ;;
esac
[ -x "$build/bin/comm-perf" ] || fail "$build/bin/comm-perf is not there; build first"
command -v ip >/dev/null || skip "iproute2 (ip) is not installed"

# ------------------------------------------------------------------------------------------------ the hosts
work=$(mktemp -d)
pids=''
trap 'kill $pids 2>/dev/null; rm -rf "$work"' EXIT INT TERM
new_host() { unshare --net --uts sleep 900 & pids="$pids $!"; }
on() { at=$1; shift; nsenter --target "$at" --net --uts "$@"; }
pid_of() { echo "$pids" | awk -v n="$1" '{print $(n + 1)}'; }

h=0
while [ "$h" -le "$hosts" ]; do new_host; h=$((h + 1)); done # one more: the switch, which is the first
sleep 0.5
switch=$(pid_of 0)
[ "$(readlink "/proc/$switch/ns/net" 2>/dev/null)" != "$(readlink /proc/self/ns/net)" ] || skip "namespaces are refused"
on "$switch" ip link add name br0 type bridge || skip "no bridges"
on "$switch" ip link set br0 up
h=1
while [ "$h" -le "$hosts" ]; do
    pid=$(pid_of "$h")
    on "$pid" hostname "node$h"
    on "$switch" ip link add "port$h" type veth peer name eth0 netns "$pid" || skip "no veth pairs"
    on "$switch" ip link set "port$h" master br0 up
    on "$pid" ip addr add "10.79.0.$h/24" dev eth0
    on "$pid" ip link set eth0 up
    on "$pid" ip link set lo up
    if [ "$rate" != none ]; then
        on "$pid" tc qdisc add dev eth0 root tbf rate "$rate" burst 512kb latency 50ms || skip "tc has no tbf here"
        on "$switch" tc qdisc add dev "port$h" root tbf rate "$rate" burst 512kb latency 50ms
    fi
    h=$((h + 1))
done

# ------------------------------------------------------------------------------------------------ the programs
ranks=$((hosts * each))
# Each host takes all CPUs for its own, which it shares with the others: ours is told how many there are for each, Open MPI to yield.
share=$(($(nproc) / hosts))
[ "$share" -ge 1 ] || share=1
ours() # NAME ALGORITHM
{
    others='' rank=$((ranks - 1))
    while [ "$rank" -ge 0 ]; do
        set -- "$1" "$2" "$(pid_of $((rank / each + 1)))"
        on "$3" env COMM_RANKS="$ranks" COMM_RANK="$rank" COMM_LOCAL_RANKS="$each" COMM_LOCAL_RANK=$((rank % each)) COMM_JOB=hosts \
            COMM_ADDRESS=10.79.0.1:4713 COMM_TCP_INSECURE=1 COMM_BACKEND=shm+tcp COMM_ALGORITHM="$2" COMM_CPUS="$share" \
            "$build/bin/comm-perf" "$collective" --min "$min" --max "$max" --format csv >"$work/out.$rank" 2>"$work/err.$rank" &
        others="$others $!" rank=$((rank - 1))
    done
    for one in $others; do wait "$one" || { cat "$work"/err.* >&2; fail "comm-perf failed"; }; done
    sed "1d;s/^/$1,/" "$work/out.0" >>"$work/rows"
}

mpirun=$(command -v mpirun.openmpi || command -v mpirun || true)
[ -n "$mpirun" ] && [ -x "$build/bin/mpi_bench_openmpi" ] || mpirun=''
# Its launcher reaches the other hosts through this instead of ssh.
{
    echo '#!/bin/sh'
    echo 'case $1 in'
    h=1
    while [ "$h" -le "$hosts" ]; do echo "10.79.0.$h | node$h) at=$(pid_of $h) ;;"; h=$((h + 1)); done
    echo 'esac'
    echo 'shift'
    echo 'exec nsenter --target "$at" --net --uts sh -c "$*"'
} >"$work/agent"
chmod +x "$work/agent"
bytes_of() { echo "$1" | sed 's/K$/ 1024/;s/M$/ 1048576/' | awk '{print $1 * ($2 ? $2 : 1)}'; }
mpi() # NAME MODE
{
    list='' h=1
    while [ "$h" -le "$hosts" ]; do list="$list,10.79.0.$h:$each"; h=$((h + 1)); done
    if ! on "$(pid_of 1)" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,vader,self \
        OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0 OMPI_MCA_plm_rsh_agent="$work/agent" \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 timeout 300 "$mpirun" -n "$ranks" --host "${list#,}" \
        "$build/bin/mpi_bench_openmpi" "$collective" --min "$(bytes_of "$min")" --max "$(bytes_of "$max")" --mode "$2" >"$work/out" 2>"$work/err"; then
        tail -5 "$work/err" >&2
        echo "hosts.sh: Open MPI did not run; its columns are empty" >&2
        mpirun=''
        return
    fi
    sed "1d;s/^/$1,/" "$work/out" >>"$work/rows"
}

round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    echo "hosts.sh: round $round of $rounds" >&2
    ours hosts ""
    ours flat "$collective:$flat"
    [ -z "$mpirun" ] || mpi nonblocking request
    [ -z "$mpirun" ] || mpi blocking blocking
done

# ------------------------------------------------------------------------------------------------ the table
echo "$collective, f32, $hosts hosts of $each ranks, link $rate; us, medians of $rounds interleaved rounds; $(nproc) CPUs, $(date -u +%Y-%m-%d)"
echo
awk -F, '
function median(list, n, i, j, t, a) {
    n = split(list, a, " ")
    for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    return n ? (n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2) : ""
}
function cell(x) { return x == "" ? "" : sprintf(x < 100 ? "%.1f" : "%.0f", x) }
function ratio(a, b) { return a == "" || b == "" ? "" : sprintf("%.2f", a / b) }
{ if (!($6 in seen)) { seen[$6] = 1; order[++rows] = $6 } value[$1, $6] = value[$1, $6] " " $9; if ($1 == "hosts") name[$6] = $12 }
END {
    print "| bytes | commstream | flat | Open MPI nonblocking | blocking | to flat | to nonblocking | to blocking | algorithm |"
    print "|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    for (r = 1; r <= rows; r++) {
        b = order[r]
        o = median(value["hosts", b]); f = median(value["flat", b]); n = median(value["nonblocking", b]); k = median(value["blocking", b])
        print "| " b " | " cell(o) " | " cell(f) " | " cell(n) " | " cell(k) " | " ratio(o, f) " | " ratio(o, n) " | " ratio(o, k) " | " name[b] " |"
    }
}' "$work/rows"
