#!/bin/sh
# torch.distributed over two hosts of one rank each, made of namespaces with a cable between them that tc limits: commstream compared with Gloo.
#
#   tests/perf/torch_hosts.sh [--rate RATE] [--python PYTHON] [--run PROGRAM] [--with "ARGUMENTS"] [--build DIR]
#
# As root; no limit and `bench.py all` unless said. PROGRAM is one of bindings/python/torch (bench.py, step.py), which prints the table;
# PYTHON is one that has torch and can import commstream.torch (COMM_TORCH_PYTHON, or python3). Skipped (77) where something is missing.
set -eu

me=torch_hosts.sh options='rate python run with'
rate=none python=${COMM_TORCH_PYTHON:-python3} run=bench.py with=''
. "$(dirname "$0")/common.sh"
program=$root/bindings/python/torch/$run
[ -f "$program" ] || fail "--run $run; expected bench.py or step.py"
"$python" -c 'import commstream.torch' 2>"$work/err" || { tail -1 "$work/err" >&2; skip "$python cannot import commstream.torch"; }

pair_of_hosts 10.80.0 "$rate" 512kb
on "$one" hostname node1
on "$two" hostname node2

rank() # PID RANK
{
    on "$1" env RANK="$2" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.80.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 \
        OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" COMM_CPUS=1 COMM_BACKEND=tcp "$python" "$program" $with # several words
}
echo "2 hosts of 1 rank, link $rate; $(nproc --all) CPUs, load $(cut -d' ' -f1 /proc/loadavg), $(date -u +%Y-%m-%d)"
rank "$two" 1 >/dev/null 2>"$work/err" &
other=$!
pids="$pids $other"
rank "$one" 0 || { cat "$work/err" >&2; fail "$run failed"; }
wait "$other" || { cat "$work/err" >&2; fail "$run of rank 1 failed"; }
