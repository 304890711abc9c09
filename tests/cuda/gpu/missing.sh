#!/usr/bin/env bash
# missing.sh RUN.SH: a piece that is missing is a failure where nvidia-smi works, in the first step and in every later one, and nowhere else.
# A missing MPI is no failure. All programs of the steps are one script here. It ends with 77 if the case says so, as a program does that finds no CUDA.
run=$1
[ -x "$run" ] || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/path"

cat > "$work/bin/all" <<'EOF'
#!/bin/sh
name=${0##*/}
case $name in
comm-run)
    shift 2 # -n RANKS
    exec "$@" ;;
train_cuda) echo 'train_cuda: ok ranks=2' ;;
comm-gpu-lost) echo "lost: ok ranks=${LEFT:-2}" ;;
mpirun)
    shift 2
    exec "$@" ;;
comm-info) echo "  mpi    ${MPI:-here}" 'of the test' ;;
nvidia-smi) echo 'GPU 0: none' ;;
esac
case $ENDS_77 in *" $name "*) exit 77 ;; esac
EOF
chmod +x "$work/bin/all"
for program in comm-run comm-perf comm-info comm-gpu-suite comm-gpu-ranks comm-gpu-overlap comm-gpu-lost train_cuda; do
    ln -s all "$work/bin/$program"
done
ln -s ../bin/all "$work/path/nvidia-smi"
ln -s ../bin/all "$work/path/mpirun"
export GPU_MPIRUN=mpirun

wrong=0
# expect STATUS PATTERN NAME...: if the programs of these names end with 77.
expect() {
    local want=$1 pattern=$2
    shift 2
    text=$(PATH=$work/path:$PATH ENDS_77=" $* " "$run" "$work/bin" 2>&1)
    local status=$?
    if [ "$status" -ne "$want" ] || ! grep -qE -- "$pattern" <<< "$text"; then
        printf 'with 77 of "%s": status %d, expected %d and "%s":\n%s\n' "$*" "$status" "$want" "$pattern" "$text"
        wrong=1
    fi
}
refused='^  .*: nvidia-smi finds a GPU, so nothing may be missing$'
expect 0 '^--- [0-9]+ steps passed$'
expect 1 "$refused" comm-gpu-suite
expect 1 "$refused" comm-gpu-ranks
expect 1 "$refused" comm-gpu-overlap
expect 1 "$refused" comm-perf
expect 1 "$refused" train_cuda
expect 1 '^  conformance over mpi, 2 ranks, by mpirun: nvidia-smi finds a GPU' comm-gpu-ranks
LEFT=3 expect 1 '^  a rank of 3 is killed, over cuda$' none
MPI=- expect 0 '^--- conformance over mpi, by mpirun: left out: ' none
GPU_MPIRUN=not-there expect 0 '^--- conformance over mpi: left out: there is no mpirun' none
expect 77 '^--- one rank' nvidia-smi comm-gpu-suite
expect 0 'missing: it ended with 77' nvidia-smi comm-gpu-ranks
rm "$work/bin/train_cuda"
expect 1 '^  training: nvidia-smi finds a GPU, so nothing may be missing$'
expect 0 '^training: missing: there is no ' nvidia-smi
exit "$wrong"
