#!/bin/sh
# How much of an allreduce is hidden behind a caller that computes and calls nothing, over a link of a given rate: two hosts made of
# namespaces, a cable between them that tc limits, one rank on each; Open MPI in the same place beside it.
#
#   tests/perf/overlap.sh [--rate RATE] [--bytes BYTES] [--build DIR]         as root; 1gbit and 8 MiB unless said
#
# comm-perf and mpi_bench_openmpi measure the call alone, then compute for as long between call and wait; what the two together take longer than the
# call alone was not hidden. Skipped (77) where namespaces or tc's tbf are missing.
set -eu

me=overlap.sh options='rate bytes'
rate=1gbit bytes=8388608
. "$(dirname "$0")/common.sh"

pair_of_hosts 10.78.0 "$rate" 512kb
on "$one" hostname node1
on "$two" hostname node2

ours()
{
    on "$1" env COMM_BACKEND=tcp COMM_PROGRESS=thread COMM_RANKS=2 COMM_RANK="$2" COMM_LOCAL_RANKS=1 COMM_LOCAL_RANK=0 COMM_JOB=overlap \
        COMM_ADDRESS=10.78.0.1:4712 COMM_TCP_INSECURE=1 \
        "$build/bin/comm-perf" allreduce --min "$bytes" --max "$bytes" --mode overlap --format csv
}
ours "$two" 1 >/dev/null 2>"$work/err" &
other=$!
ours "$one" 0 >"$work/ours" || { cat "$work/err" >&2; fail "comm-perf failed"; }
wait "$other"
echo "allreduce of $bytes bytes over $rate, a caller that computes; $(nproc) CPUs, $(date -u +%Y-%m-%d)"
echo "commstream (progress=thread): $(awk -F, 'NR == 2 {print $10 " % hidden, " $8 / 1000 " ms with the computation"}' "$work/ours")"

mpirun=$(command -v mpirun.openmpi || command -v mpirun || true)
if [ -z "$mpirun" ] || [ ! -x "$build/bin/mpi_bench_openmpi" ]; then
    echo "Open MPI: not here"
    exit 0
fi
# Its launcher reaches the other host through this instead of ssh.
cat >"$work/agent" <<END
#!/bin/sh
shift
exec nsenter --target $two --net --uts sh -c "\$*"
END
chmod +x "$work/agent"
if on "$one" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self \
    OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0 OMPI_MCA_plm_rsh_agent="$work/agent" \
    timeout 120 "$mpirun" -n 2 --host 10.78.0.1:1,10.78.0.2:1 "$build/bin/mpi_bench_openmpi" allreduce --min "$bytes" --max "$bytes" --mode overlap \
    >"$work/mpi" 2>"$work/err"; then
    echo "Open MPI (nonblocking): $(awk -F, 'NR == 2 {print $10 " % hidden, " $8 / 1000 " ms with the computation"}' "$work/mpi")"
else
    tail -5 "$work/err" >&2
    echo "Open MPI: its launcher does not reach the other namespace"
fi
