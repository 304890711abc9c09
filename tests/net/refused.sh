#!/bin/sh
# refused.sh REFUSE COMM_RUN HELLO: ranks that ask for io_uring and are refused it do not open, and each says why; the default needs no ring.
refuse=$1 run=$2 hello=$3
export COMM_LOG=info COMM_COLOR=no

wrong()
{
    echo "refused.sh: $*"
    echo "$said"
    exit 1
}

for error in EPERM ENOSYS; do
    case $error in
    EPERM) text='Operation not permitted' ;;
    ENOSYS) text='Function not implemented' ;;
    esac
    said=$(COMM_TCP_POLLER=io_uring "$refuse" "$error" "$run" -n 2 --backend tcp "$hello" 2>&1)
    status=$?
    [ "$status" -ne 77 ] || { echo "$said"; exit 77; }
    [ "$status" -ne 0 ] || wrong "$error: the job ended well without a ring"
    lines=$(echo "$said" | grep -c "COMM_TCP_POLLER=io_uring: .* ($text; kernel.io_uring_disabled is .*)")
    [ "$lines" -ge 2 ] || wrong "$error: $lines lines say why, expected one of each rank"
    ! echo "$said" | grep -q 'poller=' || wrong "$error: a wire opened"

    said=$(COMM_TCP_POLLER=auto "$refuse" "$error" "$run" -n 2 --backend tcp "$hello" 2>&1)
    status=$?
    [ "$status" -eq 0 ] || wrong "$error, auto: status $status"
    echo "$said" | grep -q 'hello: ranks=2 sum=3' || wrong "$error, auto: no sum"
    [ "$(echo "$said" | grep -c 'tcp: .* poller=epoll')" -eq 2 ] || wrong "$error, auto: epoll does not serve both ranks"
done
