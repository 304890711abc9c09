# mpirun.sh open-mpi|hydra EX-HELLO: under a launcher of MPI the ranks find each other by its variables, and jobs that run at once do not meet.
kind=$1
hello=$2
unset COMM_RANK COMM_RANKS COMM_LOCAL_RANK COMM_LOCAL_RANKS COMM_JOB COMM_BACKEND COMM_OPTIONS

skip()
{
    echo "skipped: $1"
    exit 77
}

case $kind in
open-mpi)
    for name in mpirun.openmpi mpirun; do
        if command -v $name > /dev/null && $name --version 2>&1 | grep -q 'Open MPI'; then
            run="$name --oversubscribe --mca rtc_hwloc_vmhole none" # see tests/mpi/run.sh
            break
        fi
    done
    [ -n "$run" ] || skip "no mpirun of Open MPI is installed"
    [ "$(id -u)" != 0 ] || run="$run --allow-run-as-root"
    ;;
hydra)
    command -v mpiexec.hydra > /dev/null || skip "no mpiexec.hydra (MPICH) is installed"
    run=mpiexec.hydra
    ;;
esac

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0

# job NAME RANKS SUM: in the background; says what went wrong.
job()
{
    timeout 60 $run -n "$2" "$hello" > "$folder/$1" 2>&1
    status=$?
    if [ $status != 0 ] || [ "$(grep -c "^hello: ranks=$2 sum=$3\$" "$folder/$1")" != 1 ]; then
        echo "$run -n $2: status $status, expected 0 and: hello: ranks=$2 sum=$3"
        cat "$folder/$1"
        return 1
    fi
}

job alone 3 6 || failed=1
if [ $failed = 0 ] && ! timeout 60 $run -n 3 env COMM_LOG=info "$hello" 2>&1 | grep -q "launcher=$kind"; then
    echo "the ranks do not say that $kind launched them"
    failed=1
fi
for round in 1 2 3; do
    job a$round 3 6 & first=$!
    job b$round 3 6 & second=$!
    job c$round 2 3 & third=$!
    for pid in $first $second $third; do
        wait $pid || failed=1
    done
done
exit $failed
