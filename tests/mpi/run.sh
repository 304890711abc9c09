# run.sh open-mpi|hydra RANKS PROGRAM [ARG...]: under that MPI's launcher; its status is the launcher's, 77 where it is not installed.
# With WANT set, the output must hold that text (an extended regular expression) and FAILS says whether the job must fail.
kind=$1 ranks=$2
shift 2
unset COMM_RANK COMM_RANKS COMM_LOCAL_RANK COMM_LOCAL_RANKS COMM_JOB COMM_BACKEND COMM_OPTIONS

[ -z "$BACKEND" ] || export COMM_BACKEND="$BACKEND"

skip()
{
    echo "skipped: $1"
    exit 77
}

case $kind in
open-mpi)
    for name in mpirun.openmpi mpirun; do
        if command -v $name > /dev/null && $name --version 2>&1 | grep -q 'Open MPI'; then
            launcher="$name --oversubscribe $LAUNCHER_ARGS"
            break
        fi
    done
    [ -n "$launcher" ] || skip "no mpirun of Open MPI is installed (Debian: openmpi-bin)"
    [ "$(id -u)" != 0 ] || launcher="$launcher --allow-run-as-root"
    ;;
hydra)
    command -v mpiexec.hydra > /dev/null || skip "no mpiexec.hydra is installed (Debian: mpich)"
    launcher="mpiexec.hydra $LAUNCHER_ARGS"
    ;;
esac

if [ -z "$WANT$FAILS" ]; then
    timeout 110 $launcher -n "$ranks" "$@"
    exit $?
fi
# hydra's proxy may itself end when a rank dies while it still answers it, and takes the job along before a rank can say a word. That run
# shows nothing of ours, so there is another.
for turn in 1 2 3 4 5; do
    said=$(timeout 110 $launcher -n "$ranks" "$@" 2>&1)
    status=$?
    printf '%s\n' "$said" | grep -q 'demux engine error waiting for event' || break
    echo "run.sh: the launcher broke (turn $turn)"
done
printf '%s\n' "$said"
if ! printf '%s\n' "$said" | grep -Eq "$WANT"; then
    echo "run.sh: expected to read: $WANT"
    exit 1
fi
if [ "$FAILS" = yes ] && [ $status = 0 ]; then
    echo "run.sh: expected the job to fail"
    exit 1
fi
[ -n "$FAILS" ] || exit $status
