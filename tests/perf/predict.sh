#!/bin/sh
# How well the cost model predicts this machine, and what it chooses: measures every algorithm at many lengths over 2, 3, 4 and 8 ranks,
# fits the figures to half of the lengths, and compares at the other half. Worth reading on a quiet machine alone.
#
#   predict.sh [BUILD_DIR] [SECONDS per world and session] [SESSIONS]
#
# Prints each session's summary and what was not chosen well; cells.csv and machine of the session with the least error stay in
# BUILD_DIR/predict. Exit 1: the median error of that session is above 25 %, or fewer than 90 % of the choices are within a tenth of the best.
set -u
build=${1:-build} seconds=${2:-30} sessions=${3:-3}
perf=$build/bin/comm-perf
[ -x "$perf" ] || {
    echo "predict.sh: $perf is not there; build first" >&2
    exit 2
}
out=$build/predict
mkdir -p "$out" || exit 2
best=
for session in $(seq "$sessions"); do
    "$perf" --fit-try "$out/machine.$session" --seconds "$seconds" --ranks 2,3,4,8,1 >"$out/cells.$session" || exit 2
    echo "session $session ($(uptime | sed 's/.*load/load/'))"
    grep '^#\|^fit' "$out/cells.$session"
    error=$(sed -n 's/^fit: .*median_error=\([0-9.]*\)%.*/\1/p' "$out/cells.$session")
    if [ -z "$best" ] || awk "BEGIN { exit !($error < $best) }"; then
        best=$error
        cp "$out/machine.$session" "$out/machine"
        grep -v '^#\|^fit' "$out/cells.$session" >"$out/cells.csv"
        good=$(sed -n 's/^fit: .*within_a_tenth=[0-9]* (\([0-9.]*\)%).*/\1/p' "$out/cells.$session")
    fi
done
echo "predict: median_error=$best% choices_within_a_tenth=$good% (asked: 25 %, 90 %)"
awk "BEGIN { exit !($best <= 25 && $good >= 90) }"
