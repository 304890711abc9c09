#!/bin/sh
# group.sh GROUP_CASES REFUSE: how a test program ends, and what it says of cases that did not run (tests/group.h).
cases=$1 refuse=$2
unset COMM_TCP_POLLER COMM_BACKEND
failed=0

# ends STATUS TEXT COMMAND...: its status, and an extended regular expression that it must print ("" for none).
ends()
{
    want=$1 text=$2
    shift 2
    said=$("$@" 2>&1)
    status=$?
    if [ $status -ne "$want" ] || ! printf '%s\n' "$said" | grep -Eq -- "$text"; then
        echo "group.sh: $*: status $status, expected $want and: $text"
        printf '%s\n' "$said"
        failed=1
    fi
}

ends 0 '' "$cases" 'ok_*'
ends 77 '^skipped: skip_plain: plain reason 1$' "$cases" skip_plain
ends 77 '^skipped: skip_isolated: isolated reason$' "$cases" skip_isolated
ends 77 '^skipped: skip_bare: no reason given at ' "$cases" 'skip_*'
ends 0 '^skipped: part_plain: half a reason$' "$cases" part_plain
ends 0 '^skipped: skip_plain: plain reason 1$' "$cases" '[os]*_plain' # one ran
ends 1 '' "$cases" 'bad_plain'
ends 1 '' "$cases" 'bad_isolated'
ends 1 'ended with 77' "$cases" 'bad_77'
ends 1 '' "$cases" '[bs]*_isolated' # one failed, one was skipped
ends 1 '' "$cases" 'broken_setup'
ends 1 'no case is called nobody' "$cases" nobody

# A test that was told to use rings is no test of something else where there are none.
"$refuse" EPERM "$cases" ok_plain >/dev/null 2>&1 || { echo "skipped: this kernel takes no seccomp filter"; exit $((failed ? 1 : 77)); }
COMM_TCP_POLLER=io_uring
export COMM_TCP_POLLER
ends 77 '^skipped: all cases: .*Operation not permitted' "$refuse" EPERM "$cases" 'ok_*'
ends 77 '^skipped: all cases: .*Function not implemented' "$refuse" ENOSYS "$cases" 'ok_*'
exit $failed
