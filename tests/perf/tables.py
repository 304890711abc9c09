"""What bench.py measured, as Markdown: tables, matrices, and the page docs/performance/results.md."""
import datetime
import math
import os
import re
import statistics
import subprocess
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "docs", "performance"))
from plot import Plot  # noqa: E402

OURS, FLOOR, STILL = "commstream", "floor", "floor, one buffer"
LEVEL = 1.05  # a round or two cannot show a smaller difference
TOUCHED = "touched"  # isolated, with --touch
CONSISTENCY = "consistency"  # in place of a mode: its columns are other ways to the same, its figures ratios

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


class Figures:
    """The tables that are complete in one state of the machine, of the rounds in it; without a state, all rounds."""

    def __init__(self, bench, state=None):
        self.bench, self.algorithms, self.state = bench, bench.algorithms, state
        complete = {table: state is None or bench.is_complete(table, state) for table in {key[:3] for key in bench.rounds}}
        self.times = {key: [us for us, was in rounds if state in (None, was) and complete[key[:3]]] for key, rounds in bench.rounds.items()}

    def median(self, collective, ranks, mode, column, size):
        times = self.times.get((collective, ranks, mode, column, size))
        return statistics.median(times) if times else None

    def sizes_of(self, collective, ranks, mode):
        return sorted({key[4] for key, times in self.times.items() if key[:4] == (collective, ranks, mode, OURS) and times})

    def column_names(self, collective, ranks, mode):
        """Without those that lack this collective."""
        return [name for name, _ in self.bench.columns(collective, ranks, mode)
                if name == OURS or any(key[:4] == (collective, ranks, mode, name) for key in self.times)]

    def compared(self, collective, ranks, mode, column, size):
        """The median of the rounds' ratios: the two ran one soon after the other, but a machine may be another in the next round."""
        ours, theirs = (self.times.get((collective, ranks, mode, name, size), []) for name in (OURS, column))
        if len(ours) == len(theirs):
            return statistics.median(o / t for o, t in zip(ours, theirs)) if ours else None
        return statistics.median(ours) / statistics.median(theirs) if ours and theirs else None

    def fastest(self, collective, ranks, mode, size, against=""):
        """(our time divided by the fastest peer's, its name): peers' nonblocking calls, blocking ones, or both ("")."""
        found = [(self.compared(collective, ranks, mode, name, size), name) for name in self.column_names(collective, ranks, mode)
                 if name not in (OURS, FLOOR, STILL) and name.endswith(against)]
        return max(((r, name) for r, name in found if r), default=(None, None))

    def ratio(self, collective, ranks, mode, size, against):
        if against == FLOOR:
            return self.compared(collective, ranks, mode, FLOOR, size)
        return self.fastest(collective, ranks, mode, size, against)[0]


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


def table(figures, collective, ranks, mode):
    names = figures.column_names(collective, ranks, mode)
    against = [(FLOOR, "to floor")] if FLOOR in names else []
    against += [("nonblocking", "to nonblocking"), ("blocking", "to blocking")] if any(n.endswith(" blocking") for n in names) else (
        [("nonblocking", "to nonblocking")] if len(names) > 1 else [])
    # " blocking" with its blank: "nonblocking" ends in the same letters
    against = [(" " + key if key in ("blocking", "nonblocking") else key, text) for key, text in against]
    sizes = figures.sizes_of(collective, ranks, mode)
    lines = ["| bytes | " + " | ".join(names) + " | " + " | ".join(text for _, text in against) + " | algorithm |",
             "|---:|" + "---:|" * (len(names) + len(against)) + "---|"]
    for size in sizes:
        cells = [time_text(figures.median(collective, ranks, mode, name, size)) for name in names]
        cells += [ratio_text(figures.ratio(collective, ranks, mode, size, key)) for key, _ in against]
        lines.append(f"| {size_text(size)} | " + " | ".join(cells) + f" | {figures.algorithms[collective, ranks, mode, size]} |")
    means = [mean([figures.ratio(collective, ranks, mode, size, key) for size in sizes]) for key, _ in against]
    lines.append("| geometric mean |" + " |" * len(names) + "".join(f" **{ratio_text(m)}** |" for m in means) + " |")
    return "\n".join(lines)


def letters(names):
    """A short name for each peer's calls: its initial, and its major version where peers share the initial; lower case: nonblocking."""
    peers = list(dict.fromkeys(name.rsplit(" ", 1)[0] for name in names))
    initials = [peer[0].upper() for peer in peers]
    major = {peer: peer.rsplit(" ", 1)[-1].split(".")[0] for peer in peers}
    short = {peer: first + (major[peer] if initials.count(first) > 1 else "") for peer, first in zip(peers, initials)}
    return {name: short[name.rsplit(" ", 1)[0]] if name.endswith(" blocking") else short[name.rsplit(" ", 1)[0]].lower() for name in names}


def peers_of(bench):
    """The calls of every peer on the page, so that a short name means the same in each table."""
    return [name for name in dict.fromkeys(key[3] for key in bench.rounds if key[2] != CONSISTENCY) if name not in (OURS, FLOOR, STILL)]


def legend(bench):
    names = peers_of(bench)
    short = letters(names)
    return ", ".join(dict.fromkeys(f"`{short[name].upper()}` {name.rsplit(' ', 1)[0]}" for name in names))


def brief(figures, collective):
    """As table, but of the peers only the fastest call of each kind, and Gloo."""
    names, short, key = figures.column_names(collective, 2, "request"), letters(peers_of(figures.bench)), (collective, 2, "request")
    kinds = [kind for kind in (" nonblocking", " blocking") if any(name.endswith(kind) for name in names)]
    alone = [name for name in names if name in (OURS, FLOOR) or name.startswith("Gloo")]
    sizes = figures.sizes_of(*key)
    lines = ["| bytes | " + " | ".join([name.rsplit(" ", 1)[0] for name in alone] + [f"fastest{kind}" for kind in kinds] +
                                       ["to floor"] + [f"to{kind}" for kind in kinds]) + " | algorithm |",
             "|---:|" + "---:|" * (len(alone) + 2 * len(kinds) + 1) + "---|"]
    for size in sizes:
        cells = [time_text(figures.median(*key, name, size)) for name in alone]
        for kind in kinds:
            name = figures.fastest(*key, size, kind)[1]
            cells.append(f"{time_text(figures.median(*key, name, size))} {short[name]}" if name else "-")
        cells += [ratio_text(figures.ratio(*key, size, against)) for against in [FLOOR] + kinds]
        lines.append(f"| {size_text(size)} | " + " | ".join(cells) + f" | {figures.algorithms[(*key, size)]} |")
    means = [mean([figures.ratio(*key, size, against) for size in sizes]) for against in [FLOOR] + kinds]
    lines.append("| geometric mean |" + " |" * (len(alone) + len(kinds)) + "".join(f" **{ratio_text(m)}** |" for m in means) + " |")
    return "\n".join(lines)


def matrix(figures, collectives, ranks, mode):
    """A line for each collective, a column for each size; in the cells our time divided by the fastest peer's call, and that peer."""
    sizes = sorted({size for collective in collectives for size in figures.sizes_of(collective, ranks, mode)})
    short = letters(peers_of(figures.bench))
    lines = ["| | " + " | ".join(size_text(s) for s in sizes) + " | mean |", "|---|" + "---:|" * (len(sizes) + 1)]
    for collective in collectives:
        fastest = [figures.fastest(collective, ranks, mode, size) for size in sizes]
        marks = ["**" if r and r > LEVEL else "" for r, _ in fastest]
        cells = [f"{mark}{ratio_text(r)}{mark} {short[name]}" if r else "-" for (r, name), mark in zip(fastest, marks)]
        if any(r for r, _ in fastest):
            lines.append(f"| {collective} | " + " | ".join(cells) + f" | {ratio_text(mean([r for r, _ in fastest]))} |")
    return "\n".join(lines)


def ratios_of(figures, collectives, ranks, mode):
    """{(collective, bytes): our time divided by that of the fastest call of any peer}."""
    ratios = {(c, s): figures.ratio(c, ranks, mode, s, "") for c in collectives for s in figures.sizes_of(c, ranks, mode)}
    return {key: value for key, value in ratios.items() if value}


def slowest(ratios, most):
    """The cells that are more than a tenth slower, the slowest ones first, and how many there are."""
    slower = sorted(((value, key) for key, value in ratios.items() if value > 1.1), reverse=True)
    text = ", ".join(f"{c} of {size_text(s)}: {v:.2f}" for v, (c, s) in slower[:most])
    return text + (", ..." if len(slower) > most else ""), len(slower)


def summary(figures, collectives, ranks, mode):
    ratios = ratios_of(figures, collectives, ranks, mode)
    if not ratios:
        return "No MPI was measured."
    worst, slower = slowest(ratios, 8)
    faster = sum(v < 1 for v in ratios.values())
    return (f"Faster in {faster} of {len(ratios)} cells ({100 * faster / len(ratios):.0f} %), {1 / mean(ratios.values()):.1f} times in the "
            f"geometric mean; more than a tenth slower in {slower}{': ' + worst if worst else ''}{'' if worst.endswith('...') else '.'}")


def verdict_line(figures, collectives, ranks, mode, title):
    """What a page says first of the cells of one kind: how many are faster, how many are slow, and which."""
    ratios = ratios_of(figures, collectives, ranks, mode)
    worst, slower = slowest(ratios, 3)
    return f"| {ranks} | {title} | {sum(v < 1 for v in ratios.values())} of {len(ratios)} | {slower}{': ' + worst if worst else ''} |"


def side_text(right):
    """As comm-perf takes it."""
    return "+".join(name + {"1": "", "x": "*ranks", "/": "/ranks"}[times] for name, times in right)


def consistency(figures, ranks):
    """A line for each rule, a column for each size: the time of a call to that of others which do the same."""
    sizes = sorted({key[4] for key in figures.times if key[1:3] == (ranks, CONSISTENCY)})
    lines = ["| | no slower than | " + " | ".join(size_text(s) for s in sizes) + " |", "|---|---|" + "---:|" * len(sizes)]
    known = []
    for left, right in GUIDELINES:
        ratios = [figures.median(left, ranks, CONSISTENCY, side_text(right), size) for size in sizes]
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
PAGE = """# How fast are collectives within a host?

commstream's time is divided by that of the fastest call, blocking or nonblocking, of all these libraries: {peers}.
Below 1, commstream is faster. A cell is one collective at one length.

{verdict}

Measured on: {where}. `./dev bench --page` measures all of it on your machine, and writes this page. Messages:
[messages.md](messages.md). TCP: [results_tcp.md](results_tcp.md). Other machines, predicted: [scale.md](scale.md).

## How it was measured

Each figure is {rounds}. Type f32, operator sum. Each rank is bound to a CPU if there are enough. `bytes` is what each
rank contributes (for `scatter`: the root). Every commstream call is a request and a wait. MPI has two implementations
of each collective: a blocking one, and a nonblocking one that is usually slower.

- **Short names of the libraries**: {legend}. Lower case means the nonblocking call.
- **Bold**: more than 5 % slower than the fastest. The noise was not measured; take 0.95 to 1.05 as level.
- **The floor** is a loop over shared memory, written by hand for this one operation, with no library around it: the
  fastest of several for each length (`tests/perf/shm_floor.c`). It is no lower limit. Its loops write again at once to
  the memory that they used last. The library has more slots and prefetches them, which is faster on some processors
  ([why](../internals/memory.md#lines-that-are-written-again-later)).
- **algorithm**: what commstream chose. {algorithms} `comm-info explain` says why.
- **MPICH** is left out if there are more ranks than CPUs: it does not give up the CPU, so most of its calls take
  milliseconds.
- **Gloo** is only in the tables of times; the others would show it only where it is the fastest.
- **The state of the CPUs**: those of a virtual machine may move. Each table names the state in which it was measured:
  `one core` (two CPUs exchange a cache line within 35 ns), `shared cache` (within 100 ns), or `no shared cache`. A
  collective is in the table of a state if every library could be measured in it.
- **One call at a time**: the ranks meet before each call, and that is not counted. A barrier lets some rank go first,
  and then that rank's part of the call is hidden from the others; how much depends on the library's barrier. So for
  short calls there is a second table, in which all ranks begin at the same time of the clock (Hunold and Carpen-Amarie,
  IEEE TPDS 2016).
- **Input written, output read**: benchmarks, and all other tables here, call again and again with buffers that nobody
  writes in between. Some libraries have the kernel copy straight from the other rank's buffer (process_vm_readv(2)).
  From the second call on they then read bytes that their own cache still has, which a program that computes its data
  anew never sees. So in one table each rank writes its input before each call and reads its output after it, which is
  not counted.

## Two ranks, in microseconds

Each picture shows every call of every library, and `cells.csv` has the figures.

{floors}

{sections}

## Consistency

A call should not be slower than other calls that together do the same (Traeff, Gropp, Thakur, IEEE TPDS 2010). The
table has {guidelines} such rules. A call misses its rule at a length if it is more than a tenth slower. `+` means one
call after the other; `*ranks` means that the bytes are multiplied by the number of ranks, and `/ranks` that they are
divided by it. Both sides alternate in one process, a millisecond each. A figure is the median of the ratios of
neighbouring measurements.

{consistency}
"""
PAGE_OF_TCP = """# How fast are 2 to 32 ranks over TCP on one machine?

commstream's time is divided by that of the fastest call, blocking or nonblocking, of all libraries in the tables below.
Below 1, commstream is faster. A cell is one collective at one length.

{verdict}

Measured on: {where}. `./dev bench --page --backend tcp` measures all of it on your machine, and writes this page.
Several hosts, limited links and both pollers: [network.md](network.md).

## How it was measured

All ranks are on one machine and speak over loopback. With more ranks than CPUs they share the CPUs. Each figure is
{rounds}. Type f32, operator sum.

- **Libraries**: Open MPI uses its tcp transport, and Intel MPI that of libfabric (`ofi`, provider `tcp`). MPICH is left
  out: it does not give up the CPU.
- **floor**: two processes that do this one operation over plain sockets, with no library around them
  (`tests/perf/tcp_floor.c`). Like all the programs here it rotates its buffers within 64 MiB, so that data is not in
  the cache by chance.
- **floor, one buffer**: the same with one pair of buffers. The difference is what the cache saves.
- **algorithm**: what commstream chose. {algorithms} `comm-info explain` says why.

{tables}
"""
ALGORITHMS = ("`direct`: each rank reads what it needs at once. `read_all`: each rank reads all inputs, in one exchange. `pipeline`: as "
              "direct, in chunks as they come. `slices`: each rank reduces one slice of all inputs and gives it to all. `swap`: two ranks "
              "exchange chunks in the same memory. `doubling`: log2 p exchanges, with one rank each. `tree`: along a binomial tree.")
SECTION = """## {title}

{summary}

{matrix}
"""


def draw(figures, collective, ranks, mode, path):
    plot = Plot(f"{collective}, {ranks} ranks, {mode}: time of a call", "bytes", "B", 4)
    for name in figures.column_names(collective, ranks, mode):
        points = [(s, figures.median(collective, ranks, mode, name, s), True) for s in figures.sizes_of(collective, ranks, mode)]
        plot.add(name, [p for p in points if p[1]])
    plot.write(path)


def draw_ratios(figures, collectives, ranks, mode, path):
    """The first eight collectives that were measured. False: there is none, and no picture."""
    plot = Plot(f"{ranks} ranks, {mode}: time to that of the fastest MPI", "bytes", "B", 4)
    for collective in collectives:
        points = [(s, figures.ratio(collective, ranks, mode, s, ""), True) for s in figures.sizes_of(collective, ranks, mode)]
        if len(plot.series) < 8:
            plot.add(collective, [p for p in points if p[1]])
    if plot.series:
        plot.write(path)
    return bool(plot.series)


TITLES = {"request": "a request and a wait", "isolated": "one call at a time, a barrier before each, as the OSU benchmarks measure",
          TOUCHED: "one call at a time, whose input is written before and whose output is read after it",
          "aligned": "one call at a time, all ranks begin at the same time of the clock",
          "pipelined": "16 calls in flight, compared with nonblocking calls"}


def write_cells(bench, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("collective,ranks,mode,bytes,who,state,median_us,rounds,algorithm\n")
        for (collective, ranks, mode, column, size), rounds in sorted(bench.rounds.items()):
            algorithm = bench.algorithms.get((collective, ranks, mode, size), "") if column == OURS else ""
            for state in sorted({state for _, state in rounds}) if mode != CONSISTENCY else ():
                times = [us for us, was in rounds if was == state]
                file.write(f"{collective},{ranks},{mode},{size},{column},{state},{statistics.median(times):.3f},{len(times)},{algorithm}\n")


def compared_states(bench, tables, collectives):
    """(figures, collectives, ranks, mode, state) of each matrix."""
    for ranks, mode in dict.fromkeys((r, m) for _, r, m in tables):
        for state in bench.states([t for t in tables if t[1:] == (ranks, mode)]):
            figures, shown = Figures(bench, state), [c for c in collectives if (c, ranks, mode) in tables]
            if ratios_of(figures, shown, ranks, mode):
                yield figures, shown, ranks, mode, state


def title_of(ranks, mode, state):
    return f"Every collective, {ranks} ranks: {TITLES[mode]} ({state})"


def anchor(title):
    """What a heading is called in a link, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def verdict(bench, tables, collectives):
    return "\n".join(["| ranks | how | faster in | more than a tenth slower in |", "|---:|---|---:|---|"] + [
        verdict_line(figures, shown, ranks, mode, f"[{TITLES[mode]}](#{anchor(title_of(ranks, mode, state))}), {state}")
        for figures, shown, ranks, mode, state in compared_states(bench, tables, collectives)])


def sections(bench, tables, collectives, folder):
    for figures, shown, ranks, mode, state in compared_states(bench, tables, collectives):
        picture = f"ratios_{ranks}_{mode}_{state.replace(' ', '_')}.svg"
        drawn = draw_ratios(figures, [c for c in shown if c not in ("barrier", "sendrecv", "send")], ranks, mode, os.path.join(folder, picture))
        title = title_of(ranks, mode, state)
        yield SECTION.format(title=title, summary=summary(figures, shown, ranks, mode), matrix=matrix(figures, shown, ranks, mode))
        if drawn:
            yield f"![{title}]({picture})\n"


def floors(bench, tables, folder):
    """A table and a picture for each collective that has a floor."""
    for collective in (c for c, ranks, mode in tables if bench.with_floor(c, ranks, mode)):
        states = bench.states([(collective, 2, "request")])
        draw(Figures(bench, states[0] if states else None), collective, 2, "request", os.path.join(folder, f"{collective}_2.svg"))
        for state in states:
            yield f"**{collective}**; CPUs: {state}.\n\n{brief(Figures(bench, state), collective)}\n"
        yield f"![{collective} of two ranks over the bytes]({collective}_2.svg)\n"


def fill(text, indent=""):
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def write_page(path, content):
    """Paragraphs and lists are filled anew, because names and figures were put into them; headings, tables and pictures stay as they are."""
    blocks = ["\n".join(fill(item, "  ") for item in re.split(r"\n(?=- )", block)) if block.startswith("- ") else
              block if block.lstrip().startswith(("#", "|", "![")) else fill(block) for block in content.strip().split("\n\n")]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(blocks) + "\n")


def rounds_text(bench, tables):
    """What a figure is, by the rounds that the programs of each table have in the states in which the table is complete."""
    counts = [bench.done[(*table, column, state)] for table in tables for state in bench.states([table])
              for column in {key[3] for key in bench.done if key[:3] == table}]
    if max(counts) == 1:
        return "of one round, in which the programs ran in turn"
    rounds = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])
    return f"the median of {rounds} interleaved rounds; a ratio is the median of the ratios of neighbouring rounds"


def page(bench, tables, collectives):
    folder = os.path.join(ROOT, "docs", "performance")
    write_cells(bench, os.path.join(folder, "cells.csv"))
    every = Figures(bench)
    write_page(os.path.join(folder, "results.md"),
               PAGE.format(where=where(), rounds=rounds_text(bench, tables), peers=", ".join(f.name for f in bench.peers) or "no peer",
                           verdict=verdict(bench, tables, collectives), legend=legend(bench), algorithms=ALGORITHMS,
                           floors="\n".join(floors(bench, tables, folder)).rstrip(),
                           sections="\n".join(sections(bench, tables, collectives, folder)), guidelines=len(GUIDELINES),
                           consistency="\n\n".join(consistency(every, r) for r in dict.fromkeys(r for _, r, m in tables if m == "request"))))


def page_of_tcp(bench, tables):
    """A table for each collective, number of ranks and state of the machine."""
    shown = (f"## {collective}, {ranks} ranks\n\n" + "\n\n".join(
        f"CPUs: {state}.\n\n{table(Figures(bench, state), collective, ranks, mode)}" for state in bench.states([(collective, ranks, mode)]))
        for collective, ranks, mode in tables)
    first = "\n".join(["| ranks | | faster in | more than a tenth slower in |", "|---:|---|---:|---|"] + [
        verdict_line(Figures(bench, state), [collective], ranks, mode, f"[{collective}](#{collective}-{ranks}-ranks), {state}")
        for collective, ranks, mode in sorted(tables, key=lambda table: table[0]) for state in bench.states([(collective, ranks, mode)])])
    write_page(os.path.join(ROOT, "docs", "performance", "results_tcp.md"),
               PAGE_OF_TCP.format(verdict=first, where=where(), rounds=rounds_text(bench, tables), algorithms=ALGORITHMS,
                                  tables="\n\n".join(shown)))
