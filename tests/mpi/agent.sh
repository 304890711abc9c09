#!/bin/sh
# agent.sh HOST COMMAND...: stands in for the remote shell by which mpirun starts its daemons. All hosts are this one. Each daemon has its
# own folder for its files, as on separate hosts. In a shared folder, two daemons that start at the same time fail ("File exists").
shift
TMPDIR=$(mktemp -d "${AGENT_FOLDER:-/tmp}/daemon.XXXXXX") || exit 1
export TMPDIR
exec sh -c "$*"
