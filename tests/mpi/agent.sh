#!/bin/sh
# agent.sh HOST COMMAND...: plays the remote shell that mpirun starts its daemons by: all hosts are this one. Each daemon has a folder of
# its own for its files, as on a host of its own: two that begin at once fail where both make the same one ("File exists").
shift
TMPDIR=$(mktemp -d "${AGENT_FOLDER:-/tmp}/daemon.XXXXXX") || exit 1
export TMPDIR
exec sh -c "$*"
