# cluster.sh LAUNCHER PROGRAM [ARG...]: runs a program by a launcher, for example "srun --mpi=pmix", in a SLURM that has two nodes, and judges
# it. Started by mpi_in_hosts on the first of two hosts made of namespaces; HOST_HOLDERS names the processes that hold them. Each host has a
# slurmd, and the first the slurmctld too. All files are in one folder, and everything ends with this script. Exits with 77 if something is
# missing.
#
# WANT: the output must match this extended regular expression. BACKEND: the program's COMM_BACKEND. NEEDS: a command that must be there.
# SECRET=no: the ranks are given no secret. FAILS=1: the launcher must exit with an error.
# MPI_OF: the variable that names the folder of an MPI, whose commands and libraries are then taken. NAME_LIBRARY=1: the ranks are told its
# library with the standard ABI. PMI_LIBRARY: SLURM's library of PMI, which Intel MPI is then told to use. PLUGIN: srun --mpi=list must have it.
unset COMM_RANK COMM_RANKS COMM_LOCAL_RANK COMM_LOCAL_RANKS COMM_JOB COMM_BACKEND COMM_OPTIONS COMM_SECRET COMM_SECRET_FILE
[ -z "$BACKEND" ] || export COMM_BACKEND="$BACKEND"
PATH=$PATH:/usr/sbin:/sbin

skip()
{
    echo "skipped: $1"
    exit 77
}

if [ -n "$MPI_OF" ]; then
    eval "mpi=\$$MPI_OF"
    [ -n "$mpi" ] || skip "$MPI_OF names no folder of an MPI"
    export PATH="$mpi/bin:$PATH" LD_LIBRARY_PATH="$mpi/lib" I_MPI_ROOT="$mpi"
    [ -z "$NAME_LIBRARY" ] || export COMM_MPI_LIBRARY="$mpi/lib/libmpi_abi.so.1"
fi

if [ -n "$PMI_LIBRARY" ]; then
    I_MPI_PMI_LIBRARY=$(ldconfig -p | sed -n "s/.*$PMI_LIBRARY .* => //p" | head -n 1)
    [ -n "$I_MPI_PMI_LIBRARY" ] || skip "no $PMI_LIBRARY is installed (Debian: libpmi2-0)"
    export I_MPI_PMI_LIBRARY
fi

for program in munged slurmctld slurmd srun $NEEDS; do
    command -v "$program" > /dev/null || skip "no $program is installed (Debian: slurmctld slurmd slurm-client munge)"
done
[ "$(id -u)" = 0 ] || skip "slurmd is started by root alone"
if [ -z "$OWN_MOUNTS" ]; then # the nodes' names are in an /etc/hosts of their own
    OWN_MOUNTS=1 exec unshare --mount --propagation private sh "$0" "$@"
fi

launcher=$1
shift
place=$(mktemp -d /tmp/commstream-slurm-XXXXXX) && chmod 755 "$place" || exit 1
daemons=''

finish()
{
    [ -z "$(timeout 5 squeue -h 2> /dev/null)" ] || { timeout 5 scancel --signal=KILL --user=root && sleep 1; }
    kill $daemons 2> /dev/null
    wait
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 1' INT TERM

# Some libraries name what ranks share by the host and the job, so jobs of tests that run at the same time have different numbers.
configure()
{
    mkdir "$place/state" "$place/tmp.node0" "$place/tmp.node1"
    (umask 077 && head -c 128 /dev/urandom > "$place/munge.key" && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$place/secret")
    printf '127.0.0.1 localhost\n10.77.0.1 node0\n10.77.0.2 node1\n' > "$place/hosts"
    mount --bind "$place/hosts" /etc/hosts || exit 1
    [ -n "$COMM_ADDRESS" ] || [ "$SECRET" = no ] || export COMM_SECRET_FILE="$place/secret"
    export SLURM_CONF="$place/slurm.conf"
    cat > "$SLURM_CONF" << END
ClusterName=commstream
SlurmctldHost=node0(10.77.0.1)
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
FirstJobId=$$
AuthInfo=socket=$place/munge.socket
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool.%n
TmpFS=$place/tmp.%n
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.%n.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimits=NONE
KillWait=2
NodeName=node0 NodeAddr=10.77.0.1 CPUs=4 RealMemory=1000
NodeName=node1 NodeAddr=10.77.0.2 CPUs=4 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES
END
}

# A daemon that ends with this script, even if the script is killed.
daemon()
{
    setpriv --pdeathsig KILL "$@" > /dev/null 2>&1 &
    daemons="$daemons $!"
}

# until_true SECONDS WHAT COMMAND...
until_true()
{
    tries=$(($1 * 10)) wanted=$2
    shift 2
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "cluster.sh: waited in vain for $wanted:"; grep . "$place"/*.log | tail -n 40; exit 1; }
        sleep 0.1
    done
}

nodes_are_idle()
{
    [ "$(timeout 2 sinfo -h -t idle -o %D 2> /dev/null)" = 2 ]
}

start()
{
    daemon munged --force --foreground --key-file="$place/munge.key" --socket="$place/munge.socket" --pid-file="$place/munge.pid" \
        --log-file="$place/munge.log" --seed-file="$place/munge.seed"
    until_true 30 munged test -S "$place/munge.socket"
    daemon slurmctld -D -i
    node=0
    for holder in $HOST_HOLDERS; do
        [ $node -gt 1 ] || daemon nsenter -t "$holder" -n -u -i setpriv --pdeathsig KILL slurmd -D -N node$node
        node=$((node + 1))
    done
    until_true 60 "two idle nodes" nodes_are_idle
}

configure
start
if [ -n "$PLUGIN" ] && ! srun --mpi=list 2>&1 | grep -qw -- "$PLUGIN"; then
    skip "this SLURM has no --mpi=$PLUGIN"
fi
(cd / && timeout -k 10 100 $launcher "$@") > "$place/out" 2>&1
status=$?
cat "$place/out"
if [ -n "$FAILS" ]; then
    [ $status != 0 ] || { echo "cluster.sh: the launcher did not fail"; exit 1; }
# MPICH 4.0 may hang in MPI_Finalize over two hosts. The process ends, and says so, but its launcher may not survive that.
elif [ $status != 0 ] && ! grep -q '^commstream: mpi: MPI_Finalize of MPICH.* has not returned for ' "$place/out"; then
    echo "cluster.sh: the launcher exited with $status"
    exit 1
fi
# Intel MPI goes on without a library that it cannot open.
[ -z "$PMI_LIBRARY" ] || ! grep "Could not open $I_MPI_PMI_LIBRARY" "$place/out" || exit 1
grep -Eq -- "${WANT:?}" "$place/out" || { echo "cluster.sh: expected to read: $WANT"; exit 1; }
