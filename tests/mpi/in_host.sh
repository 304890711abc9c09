#!/bin/sh
# in_host.sh HOST COMMAND...: plays the remote shell that a launcher starts its daemons by. HOST is one of in_hosts' (10.77.0.1 and up), and
# HOST_HOLDERS has the processes that hold their namespaces. Each daemon has a folder of its own for its files, as agent.sh says.
[ "$1" != -x ] || shift # hydra asks ssh so for no X11
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
