#!/bin/sh
# agent.sh HOST COMMAND...: plays the remote shell that mpirun starts its daemons by: all hosts are this one.
shift
exec sh -c "$*"
