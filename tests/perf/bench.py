#!/usr/bin/env python3
"""commstream beside the machine's floor and beside each MPI that is here, on this machine, now: tables in Markdown.

The programs of a table run in turn, round after round, so that a noisy neighbour meets all of them; each cell is the median over rounds, each ratio
the median of the rounds' ratios. comm-perf and MPI measure MODE; MPI also its blocking calls, which are an implementation of their own there. The
floor is an allreduce of two ranks, and stands only beside that. --page measures every collective, and writes docs/performance/results.md.

Consistency is another table: there one comm-perf has both sides of a rule in turn, a millisecond each, so that both meet the same state of
the machine; what is kept is the ratio. --consistency measures that table alone.
"""
import argparse
import csv
import datetime
import io
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "docs", "performance"))
from plot import Plot  # noqa: E402

COLLECTIVES = ("allreduce reduce broadcast allgather allgather_v reduce_scatter reduce_scatter_v scan exscan gather gather_v scatter "
               "scatter_v alltoall alltoall_v barrier sendrecv").split()
FAMILIES = {
    "openmpi": ("Open MPI", ("mpirun.openmpi", "mpirun", "mpiexec"), ()),
    "mpich": ("MPICH", ("mpiexec.hydra", "mpirun.mpich", "mpirun", "mpiexec"), ("-bind-to", "core")),
}
OURS, FLOOR, STILL = "commstream", "floor", "floor, one buffer"
CONSISTENCY = "consistency"  # in place of a mode: its columns are other ways to the same, its figures ratios


def say(text):
    print(f"bench.py: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(2)


class Family:
    """One MPI: its launcher, its name with the version, and the program that was built with it."""

    def __init__(self, key, launcher, name, program, bind):
        self.key, self.launcher, self.name, self.program, self.bind = key, launcher, name, program, bind


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
        self.peers = families(args.build)
        self.times = {}      # (collective, ranks, mode, column, bytes) -> medians of the rounds
        self.algorithms = {} # (collective, ranks, mode, bytes) -> name
        self.floor = "tcp_floor" if args.backend == "tcp" else "shm_floor"
        for program in ("comm-run", "comm-perf", self.floor):
            if not os.access(os.path.join(self.bin, program), os.X_OK):
                fail(f"{self.bin}/{program} is not there; build first: ./dev build")
        if not self.peers:
            say("no MPI found: its columns are empty")

    def run(self, command, environment):
        """Rows that a program prints as CSV behind one line of names."""
        try:
            done = subprocess.run(self.under + command, capture_output=True, text=True, env={**os.environ, **environment}, check=False,
                                  timeout=self.args.limit)
        except subprocess.TimeoutExpired as late:
            say(f"more than {self.args.limit} s, rows so far count: {' '.join(command)}")
            return list(csv.DictReader(io.StringIO((late.stdout or b"").decode())))
        if done.returncode:
            say(f"failed, its column stays empty: {' '.join(command)}\n{done.stderr}")
            return []
        return list(csv.DictReader(io.StringIO(done.stdout)))

    def keep(self, collective, ranks, mode, column, size, us, algorithm):
        self.times.setdefault((collective, ranks, mode, column, size), []).append(us)
        if column == OURS:
            self.algorithms[collective, ranks, mode, size] = algorithm

    def load(self):
        """What an earlier run wrote into --rows."""
        if self.args.rows and os.path.exists(self.args.rows):
            with open(self.args.rows, encoding="utf-8") as file:
                for collective, ranks, mode, column, size, us, algorithm in csv.reader(file):
                    self.keep(collective, int(ranks), mode, column, int(size), float(us), algorithm)

    def save(self, table, column, rows):
        for row in rows:
            if row.get("median_us"):
                cell = (*table, column, int(row["bytes"]), float(row["median_us"]), row.get("algorithm") or "")
                self.keep(*cell)
                if self.args.rows:
                    with open(self.args.rows, "a", encoding="utf-8") as file:
                        csv.writer(file).writerow(cell)

    def sizes(self, collective):
        if collective == "sendrecv" and not self.args.max:
            return ["--min", "64", "--max", "64"]
        return ["--min", str(self.args.min), "--max", str(self.args.max or 8 << 20)]

    def run_ours(self, collective, ranks, mode):
        return self.run_perf(collective, ranks, mode, self.sizes(collective) + (["--touch"] if self.args.touch else []))

    def run_perf(self, what, ranks, mode, options):
        command = [os.path.join(self.bin, "comm-perf"), what, "--backend", self.args.backend, "--mode", mode, "--format", "csv",
                   "--memory", self.args.memory] + options
        if self.args.backend == "mpi":
            if not self.peers:
                fail("backend mpi needs MPI's launcher")
            return self.run([self.peers[0].launcher, "-n", str(ranks)] + command, MPI_ENVIRONMENT)
        bind = ["--bind", "core"] if ranks <= len(os.sched_getaffinity(0)) else []
        return self.run([os.path.join(self.bin, "comm-run"), "-n", str(ranks), "--quiet-tags"] + bind + command, {})

    def run_mpi(self, family, collective, ranks, mode):
        environment = dict(MPI_ENVIRONMENT)
        if self.args.backend == "tcp":  # beside our tcp its own, over the same loopback
            environment.update(OMPI_MCA_pml="ob1", OMPI_MCA_btl="tcp,self", OMPI_MCA_btl_tcp_if_include="lo")
        bind = list(family.bind) if ranks <= len(os.sched_getaffinity(0)) else []
        return self.run([family.launcher] + bind + ["-n", str(ranks), family.program, collective, "--mode", mode] + self.sizes(collective) +
                        (["--touch"] if self.args.touch else []), environment)

    def with_floor(self, collective, ranks, mode):
        return collective == "allreduce" and ranks == 2 and mode != "pipelined"

    def columns(self, collective, ranks, mode):
        """What is measured for one table: name, and how."""
        yield OURS, lambda: self.run_ours(collective, ranks, mode)
        if self.with_floor(collective, ranks, mode):
            touch = ["--touch"] if self.args.touch else []
            yield FLOOR, lambda: self.run([os.path.join(self.bin, self.floor), "--max", str(self.args.max or 8 << 20)] + touch, {})
            if self.args.backend == "tcp":  # the floor's buffers rotate as ours do; this shows what that costs
                yield STILL, lambda: self.run([os.path.join(self.bin, self.floor), "--still", "--max", str(self.args.max or 8 << 20)], {})
        for family in self.peers:
            if self.args.backend == "tcp" and family.key != "openmpi":
                continue
            theirs = "request" if mode == "plan" else mode
            yield f"{family.name} nonblocking", lambda f=family: self.run_mpi(f, collective, ranks, theirs)
            if mode != "pipelined":
                yield f"{family.name} blocking", lambda f=family: self.run_mpi(f, collective, ranks, "blocking")

    def measure(self, tables):
        for table in tables:
            done = max((len(times) for key, times in self.times.items() if key[:4] == (*table, OURS)), default=0)
            for number in range(done, self.args.rounds):
                say(f"{table[0]}, {table[1]} ranks, {table[2]}: round {number + 1} of {self.args.rounds}")
                for column, how in self.columns(*table):
                    self.save(table, column, how())

    def measure_consistency(self, ranks):
        """Each rule's left side beside all that should not be faster, in one start; what is kept are ratios, one a round. From a length on
        of which each rank has a part: below that a part is an element, and together they are more."""
        least = next(self.args.min * 4**i for i in range(32) if self.args.min * 4**i >= 4 * ranks)
        for left in dict.fromkeys(left for left, _ in GUIDELINES):
            sides = list(dict.fromkeys(side_text(right) for name, right in GUIDELINES if name == left))
            done = max((len(times) for key, times in self.times.items() if key[:3] == (left, ranks, CONSISTENCY)), default=0)
            for number in range(done, self.args.rounds):
                say(f"consistency of {left}, {ranks} ranks: round {number + 1} of {self.args.rounds}")
                for row in self.run_perf(",".join([left] + sides), ranks, "request", ["--min", str(least), "--max", str(self.args.max or 8 << 20)]):
                    if row["side"] != left:
                        self.save((left, ranks, CONSISTENCY), row["side"], [{**row, "median_us": row["ratio"]}])

    # -------------------------------------------------------------------------------------------------------- what came of it
    def median(self, collective, ranks, mode, column, size):
        times = self.times.get((collective, ranks, mode, column, size))
        return statistics.median(times) if times else None

    def sizes_of(self, collective, ranks, mode):
        return sorted({key[4] for key in self.times if key[:4] == (collective, ranks, mode, OURS)})

    def column_names(self, collective, ranks, mode):
        return [name for name, _ in self.columns(collective, ranks, mode)]

    def beside(self, collective, ranks, mode, column, size):
        """The median of the rounds' ratios: the two ran one soon after the other, but a machine may be another in the next round."""
        ours, theirs = (self.times.get((collective, ranks, mode, name, size), []) for name in (OURS, column))
        if len(ours) == len(theirs):
            return statistics.median(o / t for o, t in zip(ours, theirs)) if ours else None
        return statistics.median(ours) / statistics.median(theirs) if ours and theirs else None

    def ratio(self, collective, ranks, mode, size, against):
        """To the floor, or to the faster of the MPIs: nonblocking, blocking, or of both ("")."""
        names = [name for name in self.column_names(collective, ranks, mode)
                 if (name == FLOOR if against == FLOOR else name not in (OURS, FLOOR, STILL) and name.endswith(against))]
        ratios = [self.beside(collective, ranks, mode, name, size) for name in names]
        return max((r for r in ratios if r), default=None)


MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


# J. L. Traeff, W. D. Gropp, R. Thakur: Self-Consistent MPI Performance Guidelines, IEEE TPDS 21 (2010). What is on the left does no more
# than those on the right together, so it should not be slower than they are; (name, times the bytes): x ranks, / ranks.
GUIDELINES = [
    ("allreduce", [("reduce", "1"), ("broadcast", "1")]),
    ("allreduce", [("reduce_scatter", "1"), ("allgather", "/")]),
    ("allgather", [("gather", "1"), ("broadcast", "x")]),
    ("allgather", [("alltoall", "x")]),
    ("allgather", [("allreduce", "x")]),
    ("allgather", [("allgather_v", "1")]),
    ("gather", [("allgather", "1")]),
    ("gather", [("gather_v", "1")]),
    ("scatter", [("broadcast", "1")]),
    ("scatter", [("scatter_v", "1")]),
    ("alltoall", [("alltoall_v", "1")]),
    ("broadcast", [("scatter", "1"), ("allgather", "/")]),
    ("reduce", [("allreduce", "1")]),
    ("reduce", [("reduce_scatter", "1"), ("gather", "/")]),
    ("reduce_scatter", [("allreduce", "1")]),
    ("reduce_scatter", [("reduce", "1"), ("scatter", "1")]),
    ("reduce_scatter", [("reduce_scatter_v", "1")]),
    ("scan", [("exscan", "1"), ("reduce", "1")]),
]


# ------------------------------------------------------------------------------------------------------------ text
def time_text(us):
    return "-" if us is None else f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"


def ratio_text(value):
    return "-" if value is None else f"{value:.2f}" if value >= 0.095 else f"{value:.3f}" if value >= 0.0095 else f"{value:.0e}"


def size_text(size):
    for name, unit in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return str(size)


def mean(ratios):
    known = [r for r in ratios if r]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def table(bench, collective, ranks, mode):
    names = bench.column_names(collective, ranks, mode)
    against = [(FLOOR, "to floor")] if FLOOR in names else []
    against += [("nonblocking", "to nonblocking"), ("blocking", "to blocking")] if any(n.endswith(" blocking") for n in names) else (
        [("nonblocking", "to nonblocking")] if len(names) > 1 else [])
    # " blocking" with its blank: "nonblocking" ends in the same letters
    against = [(" " + key if key in ("blocking", "nonblocking") else key, text) for key, text in against]
    sizes = bench.sizes_of(collective, ranks, mode)
    lines = ["| bytes | " + " | ".join(names) + " | " + " | ".join(text for _, text in against) + " | algorithm |",
             "|---:|" + "---:|" * (len(names) + len(against)) + "---|"]
    for size in sizes:
        cells = [time_text(bench.median(collective, ranks, mode, name, size)) for name in names]
        cells += [ratio_text(bench.ratio(collective, ranks, mode, size, key)) for key, _ in against]
        lines.append(f"| {size_text(size)} | " + " | ".join(cells) + f" | {bench.algorithms[collective, ranks, mode, size]} |")
    means = [mean([bench.ratio(collective, ranks, mode, size, key) for size in sizes]) for key, _ in against]
    lines.append("| geometric mean |" + " |" * len(names) + "".join(f" **{ratio_text(m)}** |" for m in means) + " |")
    return "\n".join(lines)


def matrix(bench, collectives, ranks, mode):
    """A line for each collective, a column for each size; in the cells our time to the fastest of the MPIs', in whatever form of call."""
    sizes = bench.sizes_of("allreduce", ranks, mode)
    lines = ["| | " + " | ".join(size_text(s) for s in sizes) + " | mean |", "|---|" + "---:|" * (len(sizes) + 1)]
    for collective in collectives:
        ratios = [bench.ratio(collective, ranks, mode, size, "") for size in sizes]
        if any(ratios):
            lines.append(f"| {collective} | " + " | ".join(f"**{ratio_text(r)}**" if r and r > 1 else ratio_text(r) for r in ratios) +
                         f" | {ratio_text(mean(ratios))} |")
    return "\n".join(lines)


def summary(bench, collectives, ranks, mode):
    ratios = {(c, s): bench.ratio(c, ranks, mode, s, "") for c in collectives for s in bench.sizes_of(c, ranks, mode)}
    ratios = {key: value for key, value in ratios.items() if value}
    if not ratios:
        return "No MPI was measured."
    slower = sorted(((value, key) for key, value in ratios.items() if value > 1.1), reverse=True)
    worst = ", ".join(f"{c} of {size_text(s)}: {v:.2f}" for v, (c, s) in slower[:8])
    faster = sum(v < 1 for v in ratios.values())
    return (f"Faster in {faster} of {len(ratios)} cells ({100 * faster / len(ratios):.0f} %), {1 / mean(ratios.values()):.1f} times in the geometric "
            f"mean; more than a tenth slower in {len(slower)}{': ' + worst if worst else ''}{', ...' if len(slower) > 8 else ''}.")


def side_text(right):
    """As comm-perf takes it."""
    return "+".join(name + {"1": "", "x": "*ranks", "/": "/ranks"}[times] for name, times in right)


def consistency(bench, ranks):
    """A line for each rule, a column for each size: the time of a call to that of others which do the same."""
    sizes = sorted({key[4] for key in bench.times if key[1:3] == (ranks, CONSISTENCY)})
    lines = ["| | no slower than | " + " | ".join(size_text(s) for s in sizes) + " |", "|---|---|" + "---:|" * len(sizes)]
    known = []
    for left, right in GUIDELINES:
        ratios = [bench.median(left, ranks, CONSISTENCY, side_text(right), size) for size in sizes]
        known += [r for r in ratios if r]
        lines.append(f"| {left} | {side_text(right)} | " +
                     " | ".join(f"**{ratio_text(r)}**" if r and r > 1.1 else ratio_text(r) for r in ratios) + " |")
    if not known:
        return f"{ranks} ranks: not measured."
    misses = sum(r > 1.1 for r in known)
    return f"{ranks} ranks: of {len(known)} comparisons {misses} miss.\n\n" + "\n".join(lines)


def where():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
    revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    return f"{cpu}, {os.cpu_count()} CPUs; commstream at {revision or 'unknown'}; {today}"


# ------------------------------------------------------------------------------------------------------------ the page
PAGE = """# Performance

`./dev bench --page` measures everything on this page and writes the page. This one was measured on:
{where}.

Each figure is the median of {rounds} interleaved rounds of one run; a ratio is the median of the ratios of neighbouring rounds.
Type f32, operator sum; each rank is bound to a CPU if there are enough. Below 1, commstream is faster. `bytes` is what each rank
contributes (for `scatter`: the root). Compared with: {peers}.

Every commstream call is a request and a wait. MPI has two implementations of each collective: a blocking one, and a
nonblocking one that is usually slower. The matrices compare with the *fastest* of all these calls. [scale.md](scale.md)
predicts other machines; [network.md](network.md) has TCP.

## An allreduce of two ranks, in microseconds

The floor is a hand-written loop over shared memory for this one operation (`tests/perf/shm_floor.c`).

{allreduce}

![allreduce of two ranks over the bytes](allreduce_2.svg)

{sections}

## Consistency

A call should not be slower than other calls that together do the same (Traeff, Gropp, Thakur, IEEE TPDS 2010). The
table has {guidelines} such rules. A call misses its rule at a length if it is more than a tenth slower. `+` means one call after
the other; `*ranks` means that the bytes are multiplied by the number of ranks, and `/ranks` that they are divided by
it. Both sides alternate in one process, a millisecond each. A figure is the median of the ratios of neighbouring
measurements.

{consistency}
"""
SECTION = """## {title}

{summary}

{matrix}

![{title}]({picture})
"""


def draw(bench, collective, ranks, mode, path):
    plot = Plot(f"{collective}, {ranks} ranks, {mode}: time of a call", "bytes", "B", 4)
    for name in bench.column_names(collective, ranks, mode):
        points = [(s, bench.median(collective, ranks, mode, name, s), True) for s in bench.sizes_of(collective, ranks, mode)]
        plot.add(name, [p for p in points if p[1]])
    plot.write(path)


def draw_ratios(bench, collectives, ranks, mode, path):
    plot = Plot(f"{ranks} ranks, {mode}: time to that of the fastest MPI", "bytes", "B", 4)
    for collective in collectives[:8]:
        points = [(s, bench.ratio(collective, ranks, mode, s, ""), True) for s in bench.sizes_of(collective, ranks, mode)]
        plot.add(collective, [p for p in points if p[1]])
    plot.write(path)


def page(bench, tables, collectives):
    folder = os.path.join(ROOT, "docs", "performance")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "cells.csv"), "w", encoding="utf-8") as file:
        file.write("collective,ranks,mode,bytes,who,median_us,algorithm\n")
        for (collective, ranks, mode, column, size), times in sorted(bench.times.items()):
            if mode == CONSISTENCY:
                continue
            algorithm = bench.algorithms.get((collective, ranks, mode, size), "") if column == OURS else ""
            file.write(f"{collective},{ranks},{mode},{size},{column},{statistics.median(times):.3f},{algorithm}\n")
    sections = []
    titles = {"request": "a request and a wait", "pipelined": "16 calls in flight, compared with MPI's nonblocking ones"}
    draw(bench, "allreduce", 2, "request", os.path.join(folder, "allreduce_2.svg"))
    for ranks, mode in dict.fromkeys((r, m) for _, r, m in tables):
        picture = f"ratios_{ranks}_{mode}.svg"
        shown = [c for c in collectives if (c, ranks, mode) in tables]
        if any(bench.ratio(c, ranks, mode, s, "") for c in shown for s in bench.sizes_of(c, ranks, mode)):
            draw_ratios(bench, [c for c in shown if c not in ("barrier", "sendrecv")], ranks, mode, os.path.join(folder, picture))
            sections.append(SECTION.format(title=f"Every collective, {ranks} ranks: {titles[mode]}", picture=picture,
                                           summary=summary(bench, shown, ranks, mode), matrix=matrix(bench, shown, ranks, mode)))
    with open(os.path.join(ROOT, "docs", "performance", "results.md"), "w", encoding="utf-8") as file:
        file.write(PAGE.format(where=where(), rounds=bench.args.rounds, peers=", ".join(f.name for f in bench.peers) or "no MPI",
                               allreduce=table(bench, "allreduce", 2, "request"), sections="\n".join(sections), guidelines=len(GUIDELINES),
                               consistency="\n\n".join(consistency(bench, r) for r in dict.fromkeys(r for _, r, m in tables if m == "request"))).rstrip() + "\n")
    say(f"docs/performance/results.md and {folder} are written")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collective", nargs="*", metavar="COLLECTIVE", help=f"{' '.join(COLLECTIVES)} (allreduce; of --page: all)")
    parser.add_argument("--page", action="store_true", help="every collective at 2 and 4 ranks, and docs/performance/results.md of it (half an hour)")
    parser.add_argument("--consistency", action="store_true", help="each collective beside others that do the same (a minute a round)")
    parser.add_argument("--quick", action="store_true", help="3 rounds up to 128 KiB")
    parser.add_argument("--ranks", type=int, default=0, help="2; of --page 2 and then 4")
    parser.add_argument("--mode", choices=("request", "blocking", "pipelined", "plan", "overlap"), default="request")
    parser.add_argument("--min", type=int, default=8, metavar="BYTES")
    parser.add_argument("--max", type=int, default=0, metavar="BYTES", help="8388608; of sendrecv 64")
    parser.add_argument("--rounds", type=int, default=0, help="5; of --quick and --page 3")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--memory", choices=("malloc", "comm"), default="malloc", help="where our buffers come from")
    parser.add_argument("--touch", action="store_true", help="inputs are written and outputs read between calls")
    parser.add_argument("--rows", default="", metavar="FILE", help="rounds that FILE has are not measured again, others are added to it")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), metavar="FOLDER")
    parser.add_argument("--under", default="", metavar="COMMAND", help="put before each program, as 'nice -n -10'")
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS", help="for each program")
    args = parser.parse_args()
    unknown = [c for c in args.collective if c not in COLLECTIVES]
    if unknown:
        parser.error(f"COLLECTIVE is '{unknown[0]}'; expected one of {' '.join(COLLECTIVES)}")
    args.rounds = args.rounds or (3 if args.quick or args.page else 5)
    args.max = args.max or (131072 if args.quick else 0)
    return args


def main():
    args = parse()
    bench = Bench(args)
    if args.page:
        collectives = args.collective or [c for c in COLLECTIVES if c != "sendrecv"]
        tables = [(c, r, "request") for r in ([args.ranks] if args.ranks else [2, 4]) for c in collectives]
        tables += [(c, 2, "pipelined") for c in collectives]
        if ("allreduce", 2, "request") not in tables:
            fail("a page has allreduce")
        bench.load()
        bench.measure(tables)
        for ranks in dict.fromkeys(r for _, r, m in tables if m == "request"):
            bench.measure_consistency(ranks)
        page(bench, tables, collectives)
        return
    if args.consistency:
        bench.load()
        bench.measure_consistency(args.ranks or 2)
        print(f"{consistency(bench, args.ranks or 2)}\n\nmedian of {args.rounds} rounds; {where()}")
        return
    tables = [(c, args.ranks or 2, args.mode) for c in args.collective or ["allreduce"]]
    bench.load()
    bench.measure(tables)
    for collective, ranks, mode in tables:
        print(f"{collective}, f32, {ranks} ranks, {mode}{', touched' if args.touch else ''}{', comm_mem_alloc' if args.memory == 'comm' else ''}; us, "
              f"median of {args.rounds} interleaved rounds; {where()}\n\n{table(bench, collective, ranks, mode)}\n")


if __name__ == "__main__":
    main()
