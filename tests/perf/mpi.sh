#!/bin/sh
# The figures of docs/performance/mpi.md: what a call of backend mpi costs over MPI alone; the wire over MPI against MPI's own collectives, on
# one host, with Open MPI and MPICH, and on two hosts made of namespaces, of one and of two ranks; what a message costs within shared
# memory; how long opening takes beside MPI_Init_thread. Both sides of each figure alternate in one process.
#
#   tests/perf/mpi.sh [--rounds N] [--max BYTES] [--ranks N] [--build DIR]
#
# 40 rounds, 4 MiB and 256 ranks unless said. For Open MPI of Debian, and its MPICH if there is one; as root, for the namespaces. The first
# line is the load of the machine, and each section begins with its state.
set -eu
rounds=40 max=4194304 ranks=256 build=build
while [ $# -gt 1 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --max) max=$2 ;;
    --ranks) ranks=$2 ;;
    --build) build=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# = 0 ] || { echo "mpi.sh: $1: expected --rounds, --max, --ranks or --build" >&2; exit 2; }
build=$(cd "$build" && pwd)
here=$(cd "$(dirname "$0")/../mpi" && pwd)
mpirun=$(command -v mpirun.openmpi || true)
[ -n "$mpirun" ] && [ -x "$build/bin/mpi_over_openmpi" ] || { echo "skipped: no Open MPI, or mpi_over_openmpi is not built"; exit 77; }
over="$build/bin/mpi_over_openmpi"
launch="$mpirun --oversubscribe --mca rtc_hwloc_vmhole none"
export COMM_MODULE_PATH="$build/lib" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
AGENT_FOLDER=$(mktemp -d)
export AGENT_FOLDER
trap 'rm -rf "$AGENT_FOLDER"' EXIT

# A section, and in which state of the machine it is measured: the time in which two CPUs exchange a line.
section() {
    echo
    echo "## $1"
    [ ! -x "$build/bin/cache_line" ] || echo "two CPUs exchange a line in $("$build/bin/cache_line") ns"
}

echo "$(date -u +%Y-%m-%d), $(nproc) CPUs, load $(cut -d' ' -f1-3 /proc/loadavg), nice $(nice)"
section "backend mpi, 2 ranks of one host"
for collective in allreduce broadcast allgather_v barrier; do
    $launch -n 2 "$over" $collective --level multiple --max "$max" --rounds "$rounds"
done
section "backend shm+mpi, 2 ranks of one machine that are two hosts for the library"
for collective in allreduce broadcast allgather_v alltoall sendrecv; do
    COMM_HOST=a,b $launch -n 2 "$over" $collective --backend shm+mpi --level multiple --max "$max" --rounds "$rounds"
done
section "the same, and each rank writes what it sends before each call"
for collective in allreduce broadcast alltoall; do
    COMM_HOST=a,b $launch -n 2 "$over" $collective --written --backend shm+mpi --level multiple --max "$max" --rounds "$rounds"
done
if command -v mpiexec.hydra > /dev/null && [ -x "$build/bin/mpi_over_mpich" ]; then
    section "the same with MPICH"
    for collective in allreduce broadcast allgather_v alltoall sendrecv; do
        COMM_HOST=a,b mpiexec.hydra -n 2 "$build/bin/mpi_over_mpich" $collective --backend shm+mpi --level multiple --max "$max" \
            --rounds "$rounds"
    done
fi
section "backend shm, a message of this library beside one of MPI"
$launch -n 2 "$over" sendrecv --backend shm --level multiple --max 8192 --rounds "$rounds"
# Each host's daemon would bind its first rank to the first CPU, which both hosts share. Then every round trip takes time slices.
pinned='exec taskset -c $((OMPI_COMM_WORLD_RANK % CPUS)) "$0" "$@"'
for each in 1 2; do
    section "backend shm+mpi, 2 hosts, ranks on each: $each"
    for collective in allreduce broadcast allgather_v alltoall; do
        CPUS=$(nproc) "$build/bin/mpi_in_hosts" $launch --bind-to none --host "10.77.0.1:$each,10.77.0.2:$each" \
            --mca plm_rsh_agent "$here/in_host.sh" -x CPUS -n $((2 * each)) sh -c "$pinned" \
            "$over" $collective --backend shm+mpi --level multiple --max "$max" --rounds "$rounds"
    done
done
section "opening, $ranks ranks of one host"
for backend in shm tcp; do
    timeout 300 $launch -n "$ranks" "$over" open --backend $backend --rounds 3 || echo "$backend: not done"
done
