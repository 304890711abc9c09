#!/usr/bin/env python3
"""The tables and the picture of docs/performance/torch.md, from what bindings/python/torch/bench.py --csv printed.

    torch_tables.py RANKS=FILE...      prints a table for each file; allreduce of all of them goes into docs/performance/torch_allreduce.svg
"""
import csv
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "docs", "performance"))
from plot import Plot  # noqa: E402

BACKENDS = ("commstream", "gloo")


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us):
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def read(path):
    """{(collective, bytes): (commstream's us, Gloo's us)}. bench.py prints a line of names before each collective."""
    with open(path, encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if len(row) > 3 and row[1].isdigit()]
    return {(name, int(size)): (float(ours), float(theirs)) for name, size, ours, theirs, *_ in rows}


def table(cells):
    sizes = sorted({size for _, size in cells})
    lines = ["| | " + " | ".join(map(size_text, sizes)) + " |", "|---|" + "---:|" * len(sizes)]
    for name in dict.fromkeys(name for name, _ in cells):
        row = [cells.get((name, size)) for size in sizes]
        texts = (f"{time_text(cell[0])} / {time_text(cell[1])} = {cell[1] / cell[0]:.1f}" if cell else "" for cell in row)
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def main():
    plot = Plot("torch.distributed.all_reduce on one host: time of a call", "bytes", "B", 4)
    for word in sys.argv[1:]:
        ranks, _, path = word.partition("=")
        cells = read(path)
        print(f"{ranks} ranks:\n\n{table(cells)}\n")
        for k, backend in enumerate(BACKENDS):
            plot.add(f"{backend}, {ranks} ranks", [(size, cell[k], True) for (name, size), cell in cells.items() if name == "allreduce"])
    if not plot.series:
        sys.exit(__doc__)
    plot.write(os.path.join(ROOT, "docs", "performance", "torch_allreduce.svg"))


if __name__ == "__main__":
    main()
