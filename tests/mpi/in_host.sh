#!/bin/sh
# in_host.sh HOST COMMAND...: stands in for the remote shell by which a launcher starts its daemons. HOST is a host that in_hosts made
# (10.77.0.1 and up). HOST_HOLDERS lists the processes that hold the hosts' namespaces. Each daemon has its own folder, as in agent.sh.
while [ "${1#-}" != "$1" ]; do # options of ssh: hydra passes -x, and that of Intel MPI -q too
    shift
done
number=${1##*.}
shift
set -- $HOST_HOLDERS -- "$*"
while [ "$number" -gt 1 ]; do
    shift
    number=$((number - 1))
done
holder=$1
while [ "$1" != -- ]; do
    shift
done
TMPDIR=$(mktemp -d "${AGENT_FOLDER:-/tmp}/daemon.XXXXXX") || exit 1
export TMPDIR
exec nsenter -t "$holder" -n -u -i sh -c "$2"
