#!/bin/sh
# both.sh PROGRAM: over shared memory and over tcp at the same time, for a test that must be alone on the machine and mostly waits.
said=$(mktemp)
COMM_BACKEND=tcp COMM_TEST_QUICK=1 "$1" >"$said" 2>&1 &
"$1"
shm=$?
wait $!
tcp=$?
echo "--- over tcp"
cat "$said"
rm -f "$said"
for status in $shm $tcp; do
    case $status in 0 | 77) ;; *) exit "$status" ;; esac
done
[ $shm -eq 0 ] && exit $tcp
exit $shm
