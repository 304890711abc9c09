#!/usr/bin/env python3
"""The pictures of docs/performance/scale.md, as SVG, from scale.csv (build/bin/sim_scale --csv) and cells.csv (comm-perf --fit-try). Needs nothing but
Python: `docs/performance/scale/plot.py` writes them beside itself."""
import csv
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from plot import Plot  # noqa: E402


def rows(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def cells(data, collective, algorithm, **fixed):
    for row in data:
        if row["collective"] == collective and row["algorithm"] == algorithm and all(row[k] == str(v) for k, v in fixed.items()):
            yield row


def over(data, axis, collective, algorithm, **fixed):
    return [(float(r[axis]), float(r["us"]), r["form"] == "exact") for r in cells(data, collective, algorithm, **fixed)]


def main():
    data, measured = rows("scale.csv"), rows("cells.csv")
    for ranks in (16, 128):
        plot = Plot(f"allreduce, one host, {ranks} ranks with a CPU each: predicted", "bytes", "B", 4)
        for algorithm in ("read_all", "doubling", "slices"):
            plot.add(algorithm, over(data, "bytes", "allreduce", algorithm, layout="one host", ranks=ranks))
        plot.write(os.path.join(HERE, f"allreduce_one_host_{ranks}.svg"))
    plot = Plot("8 bytes, one host, a CPU for each rank: predicted", "ranks", "", 2)
    for collective, algorithm in (("allreduce", "read_all"), ("allreduce", "doubling"), ("allreduce", "slices"), ("broadcast", "direct"),
                                  ("broadcast", "tree"), ("allgather", "direct")):
        plot.add(f"{collective}/{algorithm}", over(data, "ranks", collective, algorithm, layout="one host", bytes=8))
    plot.write(os.path.join(HERE, "one_host_8.svg"))
    for size, name in ((8, "8 bytes"), (65536, "64 KiB"), (1 << 20, "1 MiB")):
        plot = Plot(f"{name}, 16 ranks a host: predicted (open circles: by the quick form)", "ranks", "", 4)
        for collective, algorithm in (("allreduce", "doubling"), ("allreduce", "tree"), ("allreduce", "slices"), ("broadcast", "direct"),
                                      ("broadcast", "pipeline"), ("broadcast", "tree"), ("allgather", "direct"),
                                      ("allgather", "pipeline")):
            plot.add(f"{collective}/{algorithm}", over(data, "ranks", collective, algorithm, layout="16 a host", bytes=size))
        plot.write(os.path.join(HERE, f"many_hosts_{size}.svg"))
    plot = Plot("predicted (across) and measured (up): each algorithm at lengths that nothing was fitted to", "predicted us", "us", 10)
    others = {16, 32, 128, 1024, 8192, 32768, 128 << 10, 512 << 10, 2 << 20, 8 << 20}
    for ranks in (2, 3, 4, 8):
        plot.add(f"{ranks} ranks", [(float(r["predicted_us"]), float(r["measured_us"]), True) for r in measured
                                    if int(r["ranks"]) == ranks and int(r["bytes"]) in others])
    plot.write(os.path.join(HERE, "predicted_measured.svg"), points_alone=True)


if __name__ == "__main__":
    main()
