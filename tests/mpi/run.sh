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
            # Its daemons die now and then of the picture of the machine that they map for their ranks (hwloc 2.9 writes it below the stack).
            launcher="$name --oversubscribe --mca rtc_hwloc_vmhole none $LAUNCHER_ARGS"
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

# Living children of process $1, in a number.
living_children()
{
    cat /proc/[0-9]*/stat 2> /dev/null | sed 's/^.*) //' | awk -v parent="$1" '$1 != "Z" && $2 == parent { n++ } END { print n + 0 }'
}

# mpirun may stand still for ever after its ranks have ended otherwise than through MPI_Finalize: PMIx_server_finalize waits for a thread of its
# own that waits for a lock (seen with Open MPI 4.1.4 and PMIx 4.2.2, once in twenty). Ten seconds without a rank end it.
launch()
{
    : > "$out"
    SAY_TO="$out" $launcher -n "$ranks" "$@" >> "$out" 2>&1 &
    job=$! alone=0 passed=0
    while kill -0 $job 2> /dev/null; do
        sleep 0.1
        passed=$((passed + 1)) alone=$((alone + 1))
        [ "$(living_children $job)" = 0 ] || alone=0
        if [ $alone = 100 ]; then
            kill -9 $job && echo "run.sh: the launcher stands still, and its ranks have ended" >> "$out"
        elif [ $passed = 1100 ]; then
            kill $job
        fi
    done
    wait $job
    status=$?
    said=$(cat "$out")
}

# When a rank dies hydra's proxy kills the others within a millisecond in half of the runs, told not to or not, or ends itself while one of them
# asks it something. A run in which no rank had time for a word shows nothing of ours, so there is another. Ranks write to the file themselves:
# what the proxy had not yet passed on would be lost with it.
out=$(mktemp) && trap 'rm -f "$out"' EXIT
turn=0
while [ $turn -lt 25 ]; do
    turn=$((turn + 1))
    launch "$@"
    [ $kind = hydra ] && [ -n "$FAILS" ] && ! printf '%s\n' "$said" | grep -Eq '^rank [0-9]+: ' || break
    printf '%s\n' "$said" | grep -Eq 'EXIT STRING: Killed|demux engine error' || break
    echo "run.sh: the launcher ended the ranks (turn $turn)"
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
