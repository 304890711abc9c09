#!/usr/bin/env bash
# What `./dev gpu` runs on a machine with an NVIDIA GPU: run.sh BIN. One GPU is enough: processes share it, and with more GPUs each has one.
# 0: every step passed; 77: there is no GPU here, and the reason is printed. Where nvidia-smi works, a missing piece is a failure, in the
# first step and in every later one (missing.sh).
# The tests run the same script on the mock devices: GPU_PROGRAMS is the prefix of their programs, and GPU_DEVICES the number of devices.
# GPU_MPIRUN has the names of the launchers of MPI to look for.
bin=$1
programs=$bin/${GPU_PROGRAMS:-comm-gpu-}
most=8 longest=32M # ranks, and bytes of a figure
if [ -n "$GPU_PROGRAMS" ]; then
    # The usual selection has fewer ranks, which compute in turns on two CPUs (tests/selection.h). Programs draw few shapes in each.
    longest=4K
    [ "${COMM_TEST_LONG:-0}" != 0 ] || most=4 longest=64
    export COMM_TEST_LONG=0 COMM_TEST_QUICK=1 COMM_TEST_THIN=8
fi
failed=''
passed=0

title() { printf -- '--- %s\n' "$*"; }

# step NAME SECONDS COMMAND...: what processes on the mock devices have in common is in a file, which is new for each step.
step() {
    local name=$1 seconds=$2
    shift 2
    title "$name"
    [ -z "$MOCK_SHARED" ] || rm -f "$MOCK_SHARED"
    timeout --kill-after=10 "$seconds" "$@"
    local status=$?
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
    elif [ "$status" -eq 77 ]; then
        lacks "$name" "it ended with 77, for the reason above"
    else
        printf '%s: failed with status %d%s\n' "$name" "$status" "$([ "$status" -eq 124 ] && printf ': no end within %d s' "$seconds")"
        failed="$failed
  $name"
    fi
    return "$status"
}

# lacks NAME REASON: a missing piece.
lacks() {
    printf '%s: missing: %s\n' "$1" "$2"
    [ "$nvidia" -ne 0 ] || failed="$failed
  $1: nvidia-smi finds a GPU, so nothing may be missing"
}

# ranks BACKEND N [VARIABLE=VALUE...]: the conformance suite on device buffers.
ranks() {
    local backend=$1 n=$2
    shift 2
    step "conformance over $backend, $n ranks${*:+, $*}" 120 env COMM_BACKEND="$backend" "$@" "$bin/comm-run" -n "$n" "${programs}ranks"
}

# NCCL takes ranks of one GPU if it thinks that they are on several hosts. That is for tests alone.
made_up=(env COMM_BACKEND=nccl COMM_SOCKET_IFNAME=lo NCCL_NET=Socket)
# shellcheck disable=SC2016 # the rank's shell expands it
as_host='NCCL_HOSTID=made-up-$COMM_RANK exec "$0"'

# lost NAME COMMAND...: a rank of three is killed, so the launcher returns an error. The line of those that are left is what counts.
lost() {
    local name=$1
    shift
    # shellcheck disable=SC2016 # the step's shell expands it
    step "$name" 120 sh -c '"$@" 2>&1 | tee -a /dev/stderr | grep -qE "(lost|train_cuda): ok ranks=2"' sh "$@"
}

# The launchers of MPI that are here, each once, whatever names it has.
launchers() {
    local name path seen=''
    for name in ${GPU_MPIRUN:-mpirun.openmpi mpirun.mpich mpirun}; do
        path=$(command -v "$name") || continue
        path=$(readlink -f "$path")
        case " $seen " in *" $path "*) continue ;; esac
        seen="$seen $path"
        printf '%s\n' "$name"
    done
}

# mpi_ranks LAUNCHER BACKEND N [VARIABLE=VALUE...]: as ranks, started by mpirun.
mpi_ranks() {
    local launcher=$1 backend=$2 n=$3
    shift 3
    step "conformance over $backend, $n ranks, by $launcher${*:+, $*}" 120 env COMM_BACKEND="$backend" "$@" \
        "$launcher" -n "$n" "${programs}ranks"
}

# Device buffers over MPI, by each launcher. Without one, or where this build has no module for its MPI, the steps are left out: MPI is no
# piece that a GPU needs. Open MPI refuses root and more ranks than cores if nothing allows them, and its daemons may crash when they map
# the topology for their ranks.
over_mpi() {
    local launcher here=''
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_rtc_hwloc_vmhole=none
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    for launcher in $(launchers); do
        here=yes
        if ! timeout 60 "$launcher" -n 1 "$bin/comm-info" 2>/dev/null | grep -Eq '^  mpi +here '; then
            title "conformance over mpi, by $launcher: left out: $bin/comm-info finds no backend mpi there"
            continue
        fi
        mpi_ranks "$launcher" mpi 2
        mpi_ranks "$launcher" shm+mpi 4 COMM_HOST=a,a,b,b
    done
    [ -n "$here" ] || title "conformance over mpi: left out: there is no mpirun here (Debian: openmpi-bin or mpich)"
}

nvidia-smi -L 2>/dev/null
nvidia=$?
step "one rank: NCCL, streams, events, graphs, and what calls cost" 200 "${programs}suite"
if [ $? -eq 77 ]; then
    [ "$nvidia" -eq 0 ] || exit 77
    printf 'failed:%s\n' "$failed"
    exit 1
fi
devices=${GPU_DEVICES:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')}
[ "$devices" -gt 0 ] || devices=1

# A share of the shapes, since a process starts CUDA in about a second.
export COMM_TEST_THIN=${COMM_TEST_THIN:-2}
for n in 2 4 8; do
    [ "$n" -gt "$most" ] || ranks shm "$n"
done
ranks tcp 2
ranks tcp 4
ranks shm+tcp 4 COMM_HOST=a,a,b,b
ranks nccl 1
ranks nccl 1 COMM_ORDER=fixed
ranks cuda 1
ranks cuda 2 # on one GPU, long sums go through the pipeline, and all else is staged
if [ "$devices" -gt 1 ]; then
    n=$((devices < most ? devices : most))
    ranks nccl "$n"
    ranks nccl "$n" COMM_ORDER=fixed
    ranks cuda "$n"
fi
step "NCCL between two made-up hosts, by its sockets" 120 "${made_up[@]}" COMM_HOST=a,b "$bin/comm-run" -n 2 sh -c "$as_host" \
    "${programs}ranks"
over_mpi
for backend in shm tcp cuda; do
    lost "a rank of 3 is killed, over $backend" env COMM_BACKEND="$backend" "$bin/comm-run" -n 3 "${programs}lost"
done
lost "a rank of 3 is killed: NCCL between made-up hosts" "${made_up[@]}" COMM_HOST=a,b,c "$bin/comm-run" -n 3 sh -c "$as_host" \
    "${programs}lost"

if [ -x "$bin/train_cuda" ]; then
    step "training, staged, 2 ranks" 120 "$bin/comm-run" -n 2 "$bin/train_cuda" --backend shm --epochs 10
    step "training over NCCL, 1 rank" 120 "$bin/comm-run" -n 1 "$bin/train_cuda" --backend nccl --epochs 10
    step "training over cuda, 2 ranks" 120 "$bin/comm-run" -n 2 "$bin/train_cuda" --backend cuda --epochs 10
    for backend in shm cuda; do
        lost "training over $backend goes on when a rank is killed" "$bin/comm-run" -n 3 "$bin/train_cuda" --backend "$backend" \
            --epochs 10 --lose 20
    done
else
    lacks training "there is no $bin/train_cuda"
fi

# overlap BACKEND N
overlap() {
    step "figures: sums over $1 beside the device's copies, beside work, and beside a kernel that spins, $2 ranks" 120 \
        env COMM_BACKEND="$1" "$bin/comm-run" -n "$2" "${programs}overlap"
}
for n in 1 2 4; do
    overlap shm "$n"
    overlap cuda "$n"
done
overlap nccl 1
[ "$devices" -eq 1 ] || overlap nccl $((devices < most ? devices : most))
shared='shm tcp cuda'
own='nccl' # it takes one rank for each GPU
[ "$devices" -gt 1 ] || own=''
for backend in $shared $own; do
    step "figures: comm-perf over $backend, 2 ranks" 120 env COMM_BACKEND="$backend" "$bin/comm-run" -n 2 "$bin/comm-perf" allreduce \
        --memory device --type bf16 --check --min 8 --max "$longest" --factor 8
done

title "$passed steps passed"
[ -z "$failed" ] || printf 'failed:%s\n' "$failed"
[ -z "$failed" ]
