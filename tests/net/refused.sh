#!/bin/sh
# refused.sh REFUSE COMM_RUN HELLO: ranks that ask for io_uring and are refused it say so in one line each, with a cause, and go on.
refuse=$1 run=$2 hello=$3
export COMM_LOG=info COMM_TCP_POLLER=io_uring
for error in EPERM ENOSYS; do
    said=$("$refuse" "$error" "$run" -n 2 --backend tcp "$hello" 2>&1)
    status=$?
    [ "$status" -ne 77 ] || { echo "$said"; exit 77; }
    lines=$(echo "$said" | grep -c 'io_uring: .* (.*); epoll serves instead')
    if [ "$status" -ne 0 ] || [ "$lines" -ne 2 ] || ! echo "$said" | grep -q 'hello: ranks=2 sum=3'; then
        echo "refused.sh: $error: status $status, $lines lines"
        echo "$said"
        exit 1
    fi
done
