#!/bin/sh
# valgrind.sh PROGRAM...: under memcheck, what is read before it is written, or past its end, or lost. A small part of the long selection:
# the sanitizers have the whole short one.
[ -z "$COMM_TEST_QUICK" ] || { echo "skipped: the long selection alone"; exit 77; }
command -v valgrind >/dev/null || { echo "skipped: valgrind is not here"; exit 77; }
exec valgrind -q --error-exitcode=9 --leak-check=full "$@"
