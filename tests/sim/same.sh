#!/bin/sh
# same.sh SIM: the same seeds, twice in one process and in two processes with other addresses and another environment: the same hashes.
set -u
sim=$1
seeds=12
case ${COMM_TEST_LONG:-0} in 0) ;; *) seeds=30 ;; esac
COMM_SIM_SHRINK=0
export COMM_SIM_SHRINK
# A run that fails would give the same answer twice as well.
one=$("$sim" --seeds "$seeds" --seed 77000 --twice --verbose) || { printf '%s\n' "$one"; exit 1; }
two=$(LONG_NAME_THAT_MOVES_THE_STACK=$(head -c 5000 /dev/zero | tr '\0' x) "$sim" --seeds "$seeds" --seed 77000 --verbose) ||
    { printf '%s\n' "$two"; exit 1; }
one=$(printf '%s\n' "$one" | grep -v '^sim:') two=$(printf '%s\n' "$two" | grep -v '^sim:')
if [ -z "$one" ] || [ "$one" != "$two" ]; then
    echo "the same seeds gave two answers"
    printf '%s\n' "$one" >same.one
    printf '%s\n' "$two" >same.two
    diff same.one same.two | head -10
    exit 1
fi
echo "$seeds seeds of every workload: the same twice"
