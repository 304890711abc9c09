#!/bin/sh
# commstream beside the machine's floor and beside MPI, on this machine, now: a table in Markdown.
#
#   tests/perf/run.sh [--quick] [--collective NAME] [--ranks N] [--mode MODE] [--touch] [--min BYTES] [--max BYTES] [--rounds N]
#                     [--backend NAME] [--build DIR]
#
# The programs run in turn, round after round, so that a noisy neighbour meets all of them; each cell is the median over rounds, each
# ratio a ratio of such medians. comm-perf and MPI measure MODE (request); MPI also its blocking calls, and its nonblocking ones where
# MODE is plan. The floor is an allreduce of two ranks, and stands only beside that.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
collective=allreduce ranks=2 mode=request rounds=5 min='' max='' touch='' backend=auto quick=no
said="tests/perf/run.sh${*:+ $*}"

fail()
{
    echo "run.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --quick) rounds=3 quick=yes; shift; continue ;;
    --touch) touch=--touch; shift; continue ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --collective | --ranks | --mode | --rounds | --min | --max | --backend | --build) [ $# -gt 1 ] || fail "$1 lacks its value" ;;
    *) fail "unknown argument '$1'; run.sh --help lists them" ;;
    esac
    case $1 in
    --collective) collective=$2 ;;
    --ranks) ranks=$2 ;;
    --mode) mode=$2 ;;
    --rounds) rounds=$2 ;;
    --min) min=$2 ;;
    --max) max=$2 ;;
    --backend) backend=$2 ;;
    --build) build=$2 ;;
    esac
    shift 2
done

case $collective-$quick in
sendrecv-*) min=${min:-64} max=${max:-$min} ;;
*-yes) max=${max:-131072} ;;
esac
min=${min:-8} max=${max:-8388608}
mpi_mode=$mode
[ "$mode" != plan ] || mpi_mode=request

bin=$build/bin
floor=shm_floor
[ "$backend" != tcp ] || floor=tcp_floor
for program in comm-run comm-perf $floor; do
    [ -x "$bin/$program" ] || fail "$bin/$program is not there; build first: cmake -S . -B build && cmake --build build"
done

launcher=
if [ -x "$bin/mpi_bench" ]; then
    for name in mpirun.openmpi mpirun mpiexec; do
        if command -v "$name" >/dev/null 2>&1; then
            launcher=$name
            break
        fi
    done
fi
[ -n "$launcher" ] || echo "run.sh: no MPI found (mpi_bench and mpirun): its columns are empty" >&2

case $collective-$ranks-$mode in
allreduce-2-request | allreduce-2-blocking | allreduce-2-plan) with_floor=yes ;;
*) with_floor=no ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# One program once; its rows get its name in front. What it says when it fails is shown, and ends the comparison.
measure()
{
    column=$1
    shift
    if ! "$@" >"$work/out" 2>"$work/err"; then
        cat "$work/err" >&2
        fail "failed: $*"
    fi
    sed "1d;s/^/$column,/" "$work/out" >>"$work/rows"
}

run_mpi()
{
    # Beside our tcp, its own over the same loopback.
    [ "$backend" != tcp ] || export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        "$launcher" -n "$ranks" "$bin/mpi_bench" "$collective" --min "$min" --max "$max" --mode "$1" $touch
}

# Over mpi, MPI's own launcher starts the ranks.
run_ours()
{
    if [ "$backend" = mpi ]; then
        [ -n "$launcher" ] || fail "backend mpi needs MPI's launcher"
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "$launcher" -n "$ranks" "$@"
    else
        "$bin/comm-run" -n "$ranks" --bind core --quiet-tags "$@"
    fi
}

round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    echo "run.sh: round $round of $rounds" >&2
    measure ours run_ours "$bin/comm-perf" "$collective" --backend "$backend" --min "$min" --max "$max" --mode "$mode" --format csv $touch
    if [ "$with_floor" = yes ]; then
        measure floor "$bin/$floor" --max "$max" $touch
    fi
    if [ -n "$launcher" ]; then
        measure nonblocking run_mpi "$mpi_mode"
        measure blocking run_mpi blocking
    fi
done

peer=MPI
if [ -n "$launcher" ]; then
    version=$("$launcher" --version 2>/dev/null | sed -n '1s/.*(Open[^)]*) *\([0-9.]*\).*/\1/p')
    peer=${version:+Open }MPI${version:+ $version}
fi
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
revision=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)

echo "$collective, f32, $ranks ranks, $mode${touch:+, touched}; us, median of $rounds interleaved rounds;" \
    "${cpu:-unknown CPU}, $(nproc) CPUs; commstream at $revision; $(date -u +%Y-%m-%d); \`$said\`"
echo
awk -F, -v peer="$peer" -f "$root/tests/perf/table.awk" "$work/rows"
