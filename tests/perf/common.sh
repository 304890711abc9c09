# What hosts.sh, overlap.sh and sealed.sh share: their options, their hosts, which are network namespaces, and what their tables are made by.
# They read it (.) when they have set `me`, their name; `options`, the variables that "--NAME VALUE" sets; and what those are by default.
# Afterwards there is `work`, a folder of the run's own. It and all hosts are gone when the script ends.

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build

fail() { echo "$me: $*" >&2; exit 2; }
skip() { echo "skipped: $*" >&2; exit 77; }

while [ $# -gt 0 ]; do
    option=${1#--}
    case $1 in --*[!a-z]*) option='' ;; --*) ;; *) option='' ;; esac
    case " $options build " in
    *" ${option:-/} "*) ;;
    *) fail "unknown argument '$1'; expected$(for o in $options build; do printf ' --%s' "$o"; done)" ;;
    esac
    [ $# -gt 1 ] || fail "$1 lacks its value"
    eval "$option=\$2"
    shift 2
done
[ -x "$build/bin/comm-perf" ] || fail "$build/bin/comm-perf is not there; build first"

work=$(mktemp -d)
pids=''
trap 'kill $pids 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

# ------------------------------------------------------------------------------------------------ the hosts
new_host() { unshare --net --uts sleep 3600 & pids="$pids $!"; } # its process is the last of pids

await_host() # PID
{
    sleep 0.5
    [ "$(readlink "/proc/$1/ns/net" 2>/dev/null)" != "$(readlink /proc/self/ns/net)" ] || skip "namespaces are refused"
}

on() { at=$1; shift; if [ "$at" = here ]; then "$@"; else nsenter --target "$at" --net --uts "$@"; fi; } # PID|here COMMAND...

address() # PID ADDRESS: of its eth0
{
    on "$1" ip addr add "$2/24" dev eth0
    on "$1" ip link set eth0 up
    on "$1" ip link set lo up
}

limit() { on "$1" tc qdisc add dev "$2" root tbf rate "$3" burst "$4" latency 50ms || skip "tc has no tbf here"; } # PID DEVICE RATE BURST

# Makes hosts one and two, NETWORK.1 and NETWORK.2, on the ends of a cable; RATE none: it has no limit.
pair_of_hosts() # NETWORK RATE BURST
{
    command -v ip >/dev/null && command -v tc >/dev/null || skip "iproute2 (ip, tc) is not installed"
    new_host && one=$!
    new_host && two=$!
    await_host "$two"
    on "$one" ip link add eth0 type veth peer name eth0 netns "$two" || skip "no veth pairs"
    address "$one" "$1.1"
    address "$two" "$1.2"
    [ "$2" = none ] || { limit "$one" eth0 "$2" "$3" && limit "$two" eth0 "$2" "$3"; }
}

# ------------------------------------------------------------------------------------------------ the tables
awk_functions='
function median(list, n, i, j, t, a) {
    n = split(list, a, " ")
    for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    return n ? (n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2) : ""
}
function cell(x) { return x == "" ? "" : sprintf(x < 100 ? "%.1f" : "%.0f", x) }
'
