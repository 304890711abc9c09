#!/bin/sh
# comm-perf and comm-info as a user meets them: what they refuse and how they say it, and what they print when all is well.
#
#   test_perf.sh COMM_PERF COMM_INFO COMM_RUN
set -u
perf=$1 info=$2 run=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

wrong()
{
    echo "test_perf: $*" >&2
    cat "$work/out" "$work/err" >&2
    failed=1
}

# expect STATUS TEXT COMMAND...: TEXT stands in what it prints.
expect()
{
    status=$1 text=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" -eq "$status" ] || wrong "status $got, expected $status: $*"
    cat "$work/out" "$work/err" | grep -qF -e "$text" || wrong "does not say '$text': $*"
}

expect 2 'usage: comm-perf COLLECTIVE' "$perf"
expect 0 'usage: comm-perf COLLECTIVE' "$perf" --help
expect 2 "COLLECTIVE is 'alreduce'; expected allreduce" "$perf" alreduce
expect 2 "a second collective 'barrier' behind 'allreduce'" "$perf" allreduce barrier
expect 2 "'reduce,alreduce' is no comparison; expected allreduce" "$perf" reduce,alreduce
expect 2 "'reduce+barrier' is no comparison; expected two sides" "$perf" reduce+barrier
expect 2 "'reduce,allgather/2' is no comparison; expected *ranks or /ranks" "$perf" reduce,allgather/2
expect 2 "'allreduce,sendrecv' is no comparison" "$perf" allreduce,sendrecv
expect 2 "expected --mode request and no --touch" "$perf" reduce,allreduce --mode plan
expect 2 "--type is 'f31'; expected f32" "$perf" allreduce --type f31
expect 2 "--op is 'avg' with --type i32" "$perf" allreduce --op avg --type i32
expect 2 "--op is 'bxor' with --type f32" "$perf" allreduce --op bxor
expect 2 "--min is '8x'; expected a number" "$perf" allreduce --min 8x
expect 2 "--min is '0'; expected a number" "$perf" allreduce --min 0
expect 2 "--max is '99999999999G'" "$perf" allreduce --max 99999999999G
expect 2 "--max is 8; expected at least --min, which is 64" "$perf" allreduce --min 64 --max 8
expect 2 "--factor is '1'; expected 2 or more" "$perf" allreduce --factor 1
expect 2 "--mode is 'fast'; expected blocking" "$perf" allreduce --mode fast
expect 2 "expected --memory malloc or comm" "$perf" allreduce --memory device --touch
expect 2 "--memory is 'shared'; expected malloc, comm or device" "$perf" allreduce --memory shared
expect 2 "--format is 'xml'; expected table, csv or json" "$perf" allreduce --format xml
expect 2 "unknown option '--x'" "$perf" allreduce --x 1
expect 2 "option '--max' is unknown or lacks its value" "$perf" allreduce --max
expect 1 'cannot open the world' "$perf" allreduce --backend telegraph

expect 0 'comm-perf (commstream) ' "$perf" --version
expect 0 'commstream ' "$info" version
expect 0 'comm-info (commstream) ' "$info" --version
expect 2 "'--fast'; expected --options-markdown, --new-secret, --version or --help" "$info" --fast
expect 2 "'--new-secret'; expected --options-markdown" "$info" --new-secret file
# What could not be written was not told.
for line in "$info version" "$info --help" "$info --options-markdown" "$info explain allreduce" "$info --new-secret" "$perf --help" \
    "$perf allreduce --min 8 --max 8"; do
    expect 1 'cannot write the output: No space left' sh -c "$line >/dev/full"
done
expect 0 'COMM_BACKEND' "$info" options
expect 2 "no part is called 'weather'" "$info" weather
expect 0 'local' "$info"
expect 1 'cannot open a world' env COMM_BACKEND=telegraph "$info"
grep -qF 'COMM_BACKEND' "$work/out" || wrong 'comm-info without a world does not tell the options'

expect 0 'predicted: slices ' "$info" explain allreduce -n 8 --bytes 1M
expect 0 'ranks=8' "$info" explain allreduce -n 8 --bytes 1M
expect 0 'device buffers: staged' "$info" explain allreduce
expect 0 'the others: ' "$info" explain allreduce --bytes 100
expect 1 'call.collective=alreduce; expected allreduce' "$info" explain alreduce
expect 2 'explain what?' "$info" explain
expect 2 "-n is '0'; expected ranks" "$info" explain allreduce -n 0
expect 2 "--bytes is '1x'; expected bytes" "$info" explain allreduce --bytes 1x
expect 2 "explain does not know '--fast'" "$info" explain allreduce --fast
expect 1 '"ring" does not exist for allreduce' env COMM_ALGO=allreduce:ring "$info" explain allreduce
expect 1 'line 1: figures' env COMM_MACHINE="$work/figures" sh -c 'echo figures >"$COMM_MACHINE"; exec "$0" explain allreduce' "$info"
expect 1 'cannot be read by rank 0' env COMM_MACHINE="$work/none" "$info" explain allreduce
expect 2 'usage: comm-perf --fit' "$perf" --fit
expect 2 'usage: comm-perf --fit' "$perf" --fitted "$work/machine"
expect 2 "--ranks is '2,x'; expected at most 8 numbers from 1 to 64" "$perf" --fit "$work/machine" --ranks 2,x
expect 2 "--seconds is '5x'; expected seconds, above 0" "$perf" --fit "$work/machine" --seconds 5x
expect 2 "an option is '--second'; expected --ranks, --seconds, --cells or --backend" "$perf" --fit "$work/machine" --second 5
# A file that cannot be used is told before the measuring, and none is left behind by the question.
expect 1 'No such file' timeout 20 "$perf" --fit "$work/none/machine"
expect 1 'No such file' timeout 20 "$perf" --fit-check "$work/none"
expect 1 'has no cells' "$perf" --fit "$work/machine" --cells /dev/null
[ ! -e "$work/machine" ] || wrong 'a fit that failed left a file'

header='collective,backend,ranks,type,bytes,mode,min_us,median_us,max_us,overlap_pct,algorithm'
for collective in allreduce reduce broadcast allgather allgather_v reduce_scatter barrier sendrecv send; do
    expect 0 "$header" "$perf" "$collective" --check --format csv --min 64 --max 64
    grep -q "^$collective,local,1,f32,64,request,[0-9.]*,[0-9.]*,[0-9.]*,0.0,[a-z_]*$" "$work/out" || wrong "no row of $collective"
done
expect 0 'allreduce,local,1,f32,32,pipelined' "$perf" allreduce --check --format csv --min 8 --max 32 --mode pipelined --touch
[ "$(wc -l <"$work/out")" -eq 3 ] || wrong 'not one header and two rows from 8 to 32 bytes'
expect 0 'hidden %' "$perf" allreduce --min 8 --max 8 --mode overlap

# Over more ranks every result is checked, in types whose sums round. Large, as comm-perf repeats small ones often.
if "$info" backends | grep -q '^  shm *here'; then
    for collective in allreduce reduce broadcast allgather allgather_v reduce_scatter sendrecv send; do
        expect 0 ",2,f32,524288," "$run" -n 2 "$perf" "$collective" --check --format csv --min 512K --max 512K
    done
    for collective in allreduce broadcast allgather; do
        expect 0 ",2,f32,524288," "$run" -n 2 "$perf" "$collective" --check --format csv --min 512K --max 512K --memory comm
    done
    expect 0 '"memory":"comm","touch":true,' "$run" -n 2 "$perf" allreduce --format json --touch --memory comm --min 8 --max 8
    for type in f64 bf16 f16 i8 i64 u16; do
        expect 0 ",3,$type,524288," "$run" -n 3 "$perf" allreduce --check --format csv --min 512K --max 512K --type "$type"
    done
    # Two ways to the same: both are checked, and both have a row, the first beside itself.
    expect 0 'reduce,reduce,shm,2,f32,524288,' "$run" -n 2 "$perf" reduce,allreduce,reduce_scatter+gather/ranks --check --format csv --min 512K --max 512K
    grep -q 'reduce,reduce,[^ ]*,1.000,1.000,1.000,' "$work/out" || wrong 'the first side is not as long as itself'
    grep -q 'reduce,reduce_scatter+gather/ranks,shm,2,f32,524288,[0-9.]*,[0-9.]*,[0-9.]*,[0-9.]*,[0-9]*,[a-z_]*+[a-z_]*$' "$work/out" ||
        wrong 'no row of two calls'
    # Figures made in a moment are poor ones, but a file that a world takes; and every cell has a prediction.
    expect 0 'fit: cells=' "$perf" --fit-try "$work/machine" --ranks 1 --seconds 0.01
    expect 0 'figures of option machine' env COMM_MACHINE="$work/machine" "$info" explain allreduce
    expect 0 'fit: cells=' "$perf" --fit-check "$work/machine" --ranks 2 --seconds 0.05
    grep -q '^2,allreduce,slices,8388608,2097152,[0-9.]*,[0-9.]*,[-0-9.]*,[01]$' "$work/out" || wrong 'no cell of a large allreduce'
    grep -q 'fit: cells=.* median_error=.* choices=.* within_a_tenth=' "$work/out" || wrong 'no summary'
    cp "$work/out" "$work/cells"
    expect 0 'fit: cells=' "$perf" --fit-check "$work/machine" --ranks 2 --cells "$work/cells"
    for cells in cells out; do
        grep '^2,' "$work/$cells" | cut -d, -f1-7,9 >"$work/$cells.predicted"
    done
    cmp -s "$work/cells.predicted" "$work/out.predicted" || wrong 'other predictions for the same cells'
    expect 1 'has no cells that --fit-try printed' "$perf" --fit-check "$work/machine" --ranks 2 --cells "$work/machine"
    for collective in reduce_scatter_v scan exscan gather gather_v scatter scatter_v alltoall alltoall_v; do
        expect 0 "$collective,shm,3,f32,1024,request" "$run" -n 3 "$perf" "$collective" --check --format csv --min 1024 --max 1024
    done
    expect 0 'COMM_BACKEN is not a variable of this library; expected COMM_BACKEND' env COMM_BACKEN=tcp "$run" -n 2 "$perf" barrier --format csv
    expect 0 ',2,f32,64,pipelined' "$run" -n 2 "$perf" allreduce --check --format csv --min 64 --max 64 --mode pipelined
else
    echo 'test_perf: no shm in this build: nothing was run over several processes'
fi
exit $failed
