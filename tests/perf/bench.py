#!/usr/bin/env python3
"""Measures commstream, the machine's floor, and every peer that is here (MPI libraries of the system, those of PyPI and Gloo: peers.py).
Prints tables in Markdown.

The programs of a table run in turn, round after round, so that disturbances meet all of them. A cell is the median over the rounds, a ratio
the median of the rounds' ratios. comm-perf and the peers measure MODE; an MPI library also its blocking calls, which it implements apart.
The floor is of two ranks. --page measures every collective, and writes docs/performance/results.md; with --backend tcp it measures teams of 2
to 32 ranks over loopback, and writes docs/performance/results_tcp.md.

The CPUs of a virtual machine may move. Before and after each program cache_line measures how far apart two of them are. A program during
which that changed is not used, and a table has only what was measured in one state, which it names. With --each-state a table is measured
in every state that the machine comes into while others are measured.

--consistency is another table: one comm-perf runs both sides of a rule in turn, a millisecond each, and reports their ratio.
"""
import argparse
import csv
import io
import os
import shlex
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers  # noqa: E402
import tables as text  # noqa: E402
from tables import CONSISTENCY, FLOOR, OURS, STILL, TOUCHED, GUIDELINES, side_text  # noqa: E402

COLLECTIVES = ("allreduce reduce broadcast allgather allgather_v reduce_scatter reduce_scatter_v scan exscan gather gather_v scatter "
               "scatter_v alltoall alltoall_v barrier sendrecv send").split()
MESSAGES = ("sendrecv", "send")
FAMILIES = {
    "openmpi": ("Open MPI", ("mpirun.openmpi", "mpirun", "mpiexec"), ()),
    "mpich": ("MPICH", ("mpiexec.hydra", "mpirun.mpich", "mpirun", "mpiexec"), ("-bind-to", "core")),
}
PATIENCE = 3  # times the turns that a table needs if the machine does not change
LACKS = 3  # the status of a peer's program that has no such collective or mode
# With more ranks than CPUs their calls wait for the scheduler: 4 to 8 ms for 8 bytes, and up to 9 s for 8 MiB. Only the nonblocking calls of
# MPICH 5 are faster: an allreduce of 8 bytes takes 50 us, Open MPI's 12.
NEVER_YIELDS = ("mpich", "mpich5")
# Of these, which run over tcp on request, and which collectives have a floor.
OVER_TCP = ("openmpi", "openmpi5", "intel", "gloo")
FLOORS = {"shm_floor": ("allreduce", "broadcast", "allgather"), "tcp_floor": ("allreduce",)}
# Up to this many bytes it matters which rank begins a call first.
SHORT = 8192
# Nanoseconds in which two CPUs exchange a cache line.
STATES = [(35, "one core"), (100, "shared cache"), (float("inf"), "no shared cache")]


def say(text):
    print(f"bench.py: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(2)


class Family:
    """An MPI of the system: its launcher, its name with the version, and the program that was built with it."""

    def __init__(self, key, launcher, name, program, bind):
        self.key, self.launcher, self.name, self.program, self.bind = key, launcher, name, program, bind

    def command(self, ranks, arguments, build):
        """What starts the measurement, and the environment that it needs besides this one's."""
        del build
        bind = list(self.bind) if ranks <= len(os.sched_getaffinity(0)) else []
        return [self.launcher] + bind + ["-n", str(ranks), self.program] + arguments, {}


def version_of(key, launcher):
    """The launcher's version where it is this family's, else None."""
    try:
        text = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    if key == "openmpi" and "Open" in text.split("\n")[0]:
        return text.split("\n")[0].split()[-1]
    if key == "mpich" and "HYDRA" in text:
        for line in text.split("\n"):
            if "Version:" in line:
                return line.split()[-1]
    return None


def families(build):
    found = []
    for key, (name, launchers, bind) in FAMILIES.items():
        program = os.path.join(build, "bin", f"mpi_bench_{key}")
        for launcher in launchers if os.access(program, os.X_OK) else ():
            version = shutil.which(launcher) and version_of(key, launcher)
            if version:
                found.append(Family(key, launcher, f"{name} {version}", program, bind))
                break
    return found


class Bench:
    def __init__(self, args):
        self.args = args
        self.bin = os.path.join(args.build, "bin")
        self.under = shlex.split(args.under)
        self.peers = families(args.build) + peers.there()
        self.rounds = {}     # (collective, ranks, mode, column, bytes) -> (median, state of the machine) of each round
        self.done = {}       # (collective, ranks, mode, column, state) -> in how many turns it was measured from beginning to end
        self.algorithms = {} # (collective, ranks, mode, bytes) -> name
        self.floor = "tcp_floor" if args.backend == "tcp" else "shm_floor"
        for program in ("comm-run", "comm-perf", "cache_line", self.floor):
            if not os.access(os.path.join(self.bin, program), os.X_OK):
                fail(f"{self.bin}/{program} is not there; build first: ./dev build")
        if not self.peers:
            say("no MPI found: its columns are empty")
        if len(self.peers) < len(FAMILIES) + len(peers.PEERS):
            say("some peers are missing; tests/perf/peers.py fetches those of PyPI: " +
                ", ".join(peer.name for peer in map(peers.Peer, peers.PEERS) if not peer.is_there()))

    def run(self, command, environment):
        """Rows that a program prints as CSV behind one line of names."""
        try:
            done = subprocess.run(self.under + command, capture_output=True, text=True, env={**os.environ, **environment}, check=False,
                                  timeout=self.args.limit)
        except subprocess.TimeoutExpired as late:
            say(f"more than {self.args.limit} s, rows so far count: {' '.join(command)}")
            return list(csv.DictReader(io.StringIO((late.stdout or b"").decode())))
        if done.returncode == LACKS:
            return []
        if done.returncode:
            say(f"failed, its column stays empty: {' '.join(command)}\n{done.stderr}")
            return []
        return list(csv.DictReader(io.StringIO(done.stdout)))

    def state(self):
        """How far apart the first two CPUs are now: a virtual machine may move them."""
        text = subprocess.run([os.path.join(self.bin, "cache_line")], capture_output=True, text=True, check=False).stdout
        ns = float(text or "nan")
        return next((name for most, name in STATES if ns < most), "unknown")

    def keep(self, collective, ranks, mode, column, size, us, state, algorithm):
        rounds = self.rounds.setdefault((collective, ranks, mode, column, size), [])
        rounds.append((us, state))
        done = (collective, ranks, mode, column, state)
        self.done[done] = max(self.done.get(done, 0), sum(was == state for _, was in rounds))
        if column == OURS:
            self.algorithms[collective, ranks, mode, size] = algorithm

    def load(self):
        """What an earlier run wrote into --rows."""
        if self.args.rows and os.path.exists(self.args.rows):
            with open(self.args.rows, encoding="utf-8") as file:
                for collective, ranks, mode, column, size, us, state, algorithm in csv.reader(file):
                    self.keep(collective, int(ranks), mode, column, int(size), float(us), state, algorithm)

    def save(self, table, column, state, rows):
        for row in rows:
            if row.get("median_us"):
                cell = (*table, column, int(row["bytes"]), float(row["median_us"]), state, row.get("algorithm") or "")
                self.keep(*cell)
                if self.args.rows:
                    with open(self.args.rows, "a", encoding="utf-8") as file:
                        csv.writer(file).writerow(cell)

    def sizes(self, collective, mode):
        if collective in MESSAGES and not self.args.max:
            return ["--min", "64", "--max", "64"]
        longest = SHORT if mode == "aligned" else 8 << 20
        return ["--min", str(self.args.min), "--max", str(self.args.max or longest)]

    def arguments(self, collective, mode):
        """What both comm-perf and the peers' programs take."""
        touch = ["--touch"] if self.args.touch or mode == TOUCHED else []
        return ["--mode", "isolated" if mode == TOUCHED else mode] + self.sizes(collective, mode) + touch

    def run_ours(self, collective, ranks, mode):
        return self.run_perf(collective, ranks, self.arguments(collective, mode))

    def run_perf(self, what, ranks, options):
        command = [os.path.join(self.bin, "comm-perf"), what, "--backend", self.args.backend, "--format", "csv",
                   "--memory", self.args.memory] + options
        if self.args.backend == "mpi":
            launched = next((f for f in self.peers if isinstance(f, Family)), None) or fail("backend mpi needs an MPI of the system")
            return self.run([launched.launcher, "-n", str(ranks)] + command, MPI_ENVIRONMENT)
        bind = ["--bind", "core"] if ranks <= len(os.sched_getaffinity(0)) else []
        return self.run([os.path.join(self.bin, "comm-run"), "-n", str(ranks), "--quiet-tags"] + bind + command, {})

    def run_mpi(self, family, collective, ranks, mode, blocking):
        environment = dict(MPI_ENVIRONMENT)
        if self.args.backend == "tcp":  # beside our tcp its own, over the same loopback
            environment.update(OMPI_MCA_pml="ob1", OMPI_MCA_btl="tcp,self", OMPI_MCA_btl_tcp_if_include="lo")
        arguments = [collective] + self.arguments(collective, mode) + (["--blocking"] if blocking else [])
        command, own = family.command(ranks, arguments, self.args.build)
        if self.args.backend == "tcp" and family.key == "intel":
            own.update(I_MPI_FABRICS="ofi", I_MPI_OFI_PROVIDER="tcp", FI_TCP_IFACE="lo", I_MPI_COLL_INTRANODE="pt2pt")
        return self.run(command, {**environment, **own})

    def with_floor(self, collective, ranks, mode):
        return collective in FLOORS[self.floor] and ranks == 2 and mode not in ("isolated", TOUCHED, "aligned", "pipelined")

    def run_floor(self, collective, more):
        named = [] if self.floor == "tcp_floor" else [collective]
        return self.run([os.path.join(self.bin, self.floor), *named, "--max", str(self.args.max or 8 << 20), *more], {})

    def with_gloo(self, collective, ranks, mode):
        """A page of shared memory has Gloo only in the tables that show every column. Of others it shows the fastest, which Gloo never is."""
        shown = self.with_floor(collective, ranks, mode) or not self.args.page or self.args.backend == "tcp"
        return shown and mode != "aligned" and not self.args.touch

    def columns(self, collective, ranks, mode):
        """What is measured for one table: name, and how."""
        yield OURS, lambda: self.run_ours(collective, ranks, mode)
        if self.with_floor(collective, ranks, mode):
            yield FLOOR, lambda: self.run_floor(collective, ["--touch"] if self.args.touch else [])
            if self.args.backend == "tcp":  # the floor's buffers rotate as ours do; this shows what that costs
                yield STILL, lambda: self.run_floor(collective, ["--still"])
        theirs = "request" if mode in ("plan", "blocking") else mode
        # what a blocking call of MPI is compared with; a plan, because blocking calls are usually MPI's fastest
        blocking = {"plan": "request", "overlap": "request", "pipelined": None}.get(theirs, theirs)
        for family in self.peers:
            if self.args.backend == "tcp" and family.key not in OVER_TCP:
                continue
            if family.key == "gloo" and not self.with_gloo(collective, ranks, mode):
                continue
            if family.key in NEVER_YIELDS and ranks > len(os.sched_getaffinity(0)):
                continue
            yield f"{family.name} nonblocking", lambda f=family: self.run_mpi(f, collective, ranks, theirs, False)
            if blocking and family.key != "gloo":  # its blocking calls are the others and a wait
                yield f"{family.name} blocking", lambda f=family: self.run_mpi(f, collective, ranks, blocking, True)

    def measure(self, tables):
        """Each program in turn, until all of a table's were measured often enough in one state of the machine. If the state changes, the
        turns of the other state go on where they were. With --each-state the next table is one that lacks figures in the state of now, until
        the machine is in a state in which all tables have theirs."""
        columns = {table: dict(self.columns(*table)) for table in tables}
        turns = {table: PATIENCE * self.args.rounds * len(columns[table]) * (len(STATES) if self.args.each_state else 1) for table in tables}
        while True:
            state = self.state()
            wanted = [state] if self.args.each_state else [name for _, name in STATES]
            table = next((t for t in tables if turns[t] and columns[t] and not any(self.is_complete(t, s, columns[t]) for s in wanted)), None)
            if table is None:
                return
            turns[table] -= 1
            column = min(columns[table], key=lambda name: self.done.get((*table, name, state), 0))
            say(f"{table[0]}, {table[1]} ranks, {table[2]}: {column}, CPUs: {state}")
            rows = columns[table][column]()
            self.save(table, column, state if self.state() == state else "changing", rows)
            if not rows:
                del columns[table][column]

    def is_complete(self, table, state, columns=None):
        """Whether every column was measured often enough in this state. Columns that no program has do not count."""
        columns = columns or {key[3] for key in self.done if key[:3] == table}
        return all(self.done.get((*table, column, state), 0) >= self.args.rounds for column in columns)

    def states(self, tables):
        """Those in which some of the tables are complete."""
        return [state for _, state in STATES
                if any((*table, OURS, state) in self.done and self.is_complete(table, state) for table in tables)]

    def measure_consistency(self, ranks):
        """Each rule's left side beside all that should not be faster, in one start; what is kept are ratios, one a round. From a length on
        of which each rank has a part: below that a part is an element, and together they are more."""
        least = next(self.args.min * 4**i for i in range(32) if self.args.min * 4**i >= 4 * ranks)
        for left in dict.fromkeys(left for left, _ in GUIDELINES):
            sides = list(dict.fromkeys(side_text(right) for name, right in GUIDELINES if name == left))
            done = max((len(rounds) for key, rounds in self.rounds.items() if key[:3] == (left, ranks, CONSISTENCY)), default=0)
            for number in range(done, self.args.rounds):
                say(f"consistency of {left}, {ranks} ranks: round {number + 1} of {self.args.rounds}")
                for row in self.run_perf(",".join([left] + sides), ranks, ["--min", str(least), "--max", str(self.args.max or 8 << 20)]):
                    if row["side"] != left:
                        self.save((left, ranks, CONSISTENCY), row["side"], "", [{**row, "median_us": row["ratio"]}])


MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collective", nargs="*", metavar="COLLECTIVE", help=f"{' '.join(COLLECTIVES)} (allreduce; of --page: all)")
    parser.add_argument("--page", action="store_true", help="every collective at 2 and 4 ranks, and docs/performance/results.md of it (an hour with all peers); "
                             "with --backend tcp allreduce and broadcast at 2 to 32 ranks, and results_tcp.md")
    parser.add_argument("--consistency", action="store_true", help="each collective beside others that do the same (a minute a round)")
    parser.add_argument("--quick", action="store_true", help="3 rounds up to 128 KiB")
    parser.add_argument("--ranks", type=int, default=0, help="2; of --page 2 and then 4")
    parser.add_argument("--mode", choices=("request", "blocking", "isolated", "aligned", "pipelined", "plan", "overlap"), default="request")
    parser.add_argument("--min", type=int, default=8, metavar="BYTES")
    parser.add_argument("--max", type=int, default=0, metavar="BYTES", help="8388608; of messages 64")
    parser.add_argument("--rounds", type=int, default=0, help="5; of --quick and --page 3")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--memory", choices=("malloc", "comm"), default="malloc", help="where our buffers come from")
    parser.add_argument("--touch", action="store_true", help="inputs are written and outputs read between calls")
    parser.add_argument("--each-state", action="store_true", help="tables in each state that the machine comes into, not only in the first")
    parser.add_argument("--rows", default="", metavar="FILE", help="rounds that FILE has are not measured again, others are added to it")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), metavar="FOLDER")
    parser.add_argument("--under", default="", metavar="COMMAND", help="put before each program, as 'nice -n -10'")
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS", help="for each program")
    args = parser.parse_args()
    unknown = [c for c in args.collective if c not in COLLECTIVES]
    if unknown:
        parser.error(f"COLLECTIVE is '{unknown[0]}'; expected one of {' '.join(COLLECTIVES)}")
    args.rounds = args.rounds or (3 if args.quick or args.page else 5)
    args.max = args.max or (131072 if args.quick or args.page and args.backend == "tcp" else 0)
    return args


def page(bench, args):
    collectives = args.collective or [c for c in COLLECTIVES if c not in MESSAGES]
    tables = [(c, r, "request") for r in ([args.ranks] if args.ranks else [2, 4]) for c in collectives]
    tables += [(c, 2, mode) for mode in ("isolated", TOUCHED, "aligned", "pipelined") for c in collectives]
    if ("allreduce", 2, "request") not in tables:
        fail("a page has allreduce")
    bench.load()
    bench.measure(tables)
    for ranks in dict.fromkeys(r for _, r, m in tables if m == "request"):
        bench.measure_consistency(ranks)
    text.page(bench, tables, collectives)
    say("docs/performance/results.md and its pictures are written")


def page_of_tcp(bench, args):
    collectives = args.collective or ["allreduce", "broadcast"]
    tables = [(c, r, "request") for r in ([args.ranks] if args.ranks else [2, 4, 8, 16, 32]) for c in collectives]
    bench.load()
    bench.measure(tables)
    text.page_of_tcp(bench, tables)
    say("docs/performance/results_tcp.md is written")


def main():
    args = parse()
    bench = Bench(args)
    if args.page:
        (page_of_tcp if args.backend == "tcp" else page)(bench, args)
        return
    if args.consistency:
        bench.load()
        bench.measure_consistency(args.ranks or 2)
        print(f"{text.consistency(text.Figures(bench), args.ranks or 2)}\n\nmedian of {args.rounds} rounds; {text.where()}")
        return
    tables = [(c, args.ranks or 2, args.mode) for c in args.collective or ["allreduce"]]
    bench.load()
    bench.measure(tables)
    for collective, ranks, mode in tables:
        states = bench.states([(collective, ranks, mode)])
        if not states:
            say(f"{collective}: no figures: the distance of the CPUs changed in every round; is the machine busy?")
        for state in states:
            print(f"{collective}, f32, {ranks} ranks, {mode}{', touched' if args.touch else ''}"
                  f"{', comm_mem_alloc' if args.memory == 'comm' else ''}; us, median of interleaved rounds; CPUs: {state}; {text.where()}\n\n"
                  f"{text.table(text.Figures(bench, state), collective, ranks, mode)}\n")


if __name__ == "__main__":
    main()
