#!/bin/sh
# A collective over several hosts: the program made of hosts beside the one of a single host ("flat") and beside Open MPI. The hosts are
# namespaces with a cable each to a bridge, which tc limits where a rate is given.
#
#   tests/perf/hosts.sh [--hosts N] [--each N] [--collective NAME] [--rate RATE] [--min BYTES] [--max BYTES] [--rounds N] [--build DIR]
#
# As root; two hosts of 2 ranks, allreduce, no limit, 64K to 4M, 3 rounds unless said. The programs run in turn, round after round; each
# cell is the median over rounds of medians, in microseconds, each ratio one of such cells. Skipped (77) where namespaces are missing.
set -eu

me=hosts.sh options='hosts each collective rate min max rounds'
hosts=2 each=2 collective=allreduce rate=none min=64K max=4M rounds=3
. "$(dirname "$0")/common.sh"
case $collective in
allreduce | reduce) flat=slices ;;
broadcast | allgather) flat=pipeline ;;
reduce_scatter) flat=direct ;;
*) fail "--collective $collective; expected allreduce, reduce, broadcast, allgather or reduce_scatter" ;;
esac
command -v ip >/dev/null || skip "iproute2 (ip) is not installed"

# ------------------------------------------------------------------------------------------------ the hosts
pid_of() { echo "$pids" | awk -v n="$1" '{print $(n + 1)}'; }

h=0
while [ "$h" -le "$hosts" ]; do new_host; h=$((h + 1)); done # one more: the switch, which is the first
switch=$(pid_of 0)
await_host "$switch"
on "$switch" ip link add name br0 type bridge || skip "no bridges"
on "$switch" ip link set br0 up
h=1
while [ "$h" -le "$hosts" ]; do
    pid=$(pid_of "$h")
    on "$pid" hostname "node$h"
    on "$switch" ip link add "port$h" type veth peer name eth0 netns "$pid" || skip "no veth pairs"
    on "$switch" ip link set "port$h" master br0 up
    address "$pid" "10.79.0.$h"
    [ "$rate" = none ] || limit "$pid" eth0 "$rate" 512kb
    [ "$rate" = none ] || limit "$switch" "port$h" "$rate" 512kb
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
mpi() # NAME [--blocking]
{
    list='' h=1
    while [ "$h" -le "$hosts" ]; do list="$list,10.79.0.$h:$each"; h=$((h + 1)); done
    if ! on "$(pid_of 1)" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,vader,self \
        OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0 OMPI_MCA_plm_rsh_agent="$work/agent" \
        OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 timeout 300 "$mpirun" -n "$ranks" --host "${list#,}" \
        "$build/bin/mpi_bench_openmpi" "$collective" --min "$(bytes_of "$min")" --max "$(bytes_of "$max")" ${2:-} >"$work/out" 2>"$work/err"; then
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
    [ -z "$mpirun" ] || mpi nonblocking
    [ -z "$mpirun" ] || mpi blocking --blocking
done

# ------------------------------------------------------------------------------------------------ the table
echo "$collective, f32, $hosts hosts of $each ranks, link $rate; us, medians of $rounds interleaved rounds; $(nproc) CPUs, $(date -u +%Y-%m-%d)"
echo
awk -F, "$awk_functions"'
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
