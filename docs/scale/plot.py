#!/usr/bin/env python3
"""The pictures of docs/scale.md, as SVG, from scale.csv (build/bin/sim_scale --csv) and cells.csv (comm-perf --fit-try). Needs nothing but
Python: `docs/scale/plot.py` writes them beside itself."""
import csv
import math
import os

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 70, 190, 36, 48
COLOURS = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#16a2b8", "#555555", "#b03a8b"]


def rows(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def short(value, unit):
    if unit == "us":
        return f"{value:g} us" if value < 1000 else f"{value / 1000:g} ms" if value < 1e6 else f"{value / 1e6:g} s"
    for name, size in (("M", 1 << 20), ("K", 1 << 10)):
        if unit == "B" and value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"


class Plot:
    """Both axes logarithmic; series of (x, y, exact)."""

    def __init__(self, title, x_name, x_unit, base):
        self.title, self.x_name, self.x_unit, self.base, self.series = title, x_name, x_unit, base, []

    def add(self, name, points):
        if points:
            self.series.append((name, sorted(points)))

    def place(self, value, low, high, begin, end):
        return begin + (end - begin) * (math.log(value) - math.log(low)) / (math.log(high) - math.log(low) or 1)

    def write(self, name, points_alone=False):
        xs = [p[0] for _, s in self.series for p in s]
        ys = [p[1] for _, s in self.series for p in s]
        x0, x1 = min(xs), max(xs)
        y0, y1 = 10 ** math.floor(math.log10(min(ys))), 10 ** math.ceil(math.log10(max(ys)))
        at_x = lambda v: self.place(v, x0, x1, LEFT, WIDTH - RIGHT)
        at_y = lambda v: self.place(v, y0, y1, HEIGHT - BOTTOM, TOP)
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
               f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', f'<text x="{LEFT}" y="20" font-size="14">{self.title}</text>']
        y = y0
        while y <= y1 * 1.01:
            out.append(f'<path d="M{LEFT} {at_y(y):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                       f'<text x="{LEFT - 6}" y="{at_y(y) + 4:.1f}" text-anchor="end">{short(y, "us")}</text>')
            y *= 10
        x = self.base ** math.ceil(math.log(x0, self.base) - 1e-9)
        while x <= x1 * 1.01:
            out.append(f'<path d="M{at_x(x):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>'
                       f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(x, self.x_unit)}</text>')
            x *= self.base
        out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{self.x_name}</text>')
        if points_alone:
            low, high = max(x0, y0), min(x1, y1)
            out.append(f'<path d="M{at_x(low):.1f} {at_y(low):.1f}L{at_x(high):.1f} {at_y(high):.1f}" stroke="#000"/>')
        for number, (label, points) in enumerate(self.series):
            colour, line = COLOURS[number % len(COLOURS)], TOP + 14 + 18 * number
            if not points_alone:
                path = "L".join(f"{at_x(p[0]):.1f} {at_y(p[1]):.1f}" for p in points)
                out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            for p in points:
                fill = colour if p[2] else "white"
                out.append(f'<circle cx="{at_x(p[0]):.1f}" cy="{at_y(p[1]):.1f}" r="{1.8 if points_alone else 3}" fill="{fill}" stroke="{colour}"/>')
            out.append(f'<circle cx="{WIDTH - RIGHT + 14}" cy="{line - 4}" r="4" fill="{colour}"/>'
                       f'<text x="{WIDTH - RIGHT + 24}" y="{line}">{label}</text>')
        with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
            file.write("\n".join(out) + "\n</svg>\n")


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
        plot.write(f"allreduce_one_host_{ranks}.svg")
    plot = Plot("8 bytes, one host, a CPU for each rank: predicted", "ranks", "", 2)
    for collective, algorithm in (("allreduce", "read_all"), ("allreduce", "doubling"), ("allreduce", "slices"), ("broadcast", "direct"),
                                  ("broadcast", "tree"), ("allgather", "direct")):
        plot.add(f"{collective}/{algorithm}", over(data, "ranks", collective, algorithm, layout="one host", bytes=8))
    plot.write("one_host_8.svg")
    for size, name in ((8, "8 bytes"), (65536, "64 KiB"), (1 << 20, "1 MiB")):
        plot = Plot(f"{name}, 16 ranks a host: predicted (open circles: by the quick form)", "ranks", "", 4)
        for collective, algorithm in (("allreduce", "doubling"), ("allreduce", "tree"), ("allreduce", "slices"), ("broadcast", "direct"),
                                      ("broadcast", "pipeline"), ("broadcast", "tree"), ("allgather", "direct"),
                                      ("allgather", "pipeline")):
            plot.add(f"{collective}/{algorithm}", over(data, "ranks", collective, algorithm, layout="16 a host", bytes=size))
        plot.write(f"many_hosts_{size}.svg")
    plot = Plot("predicted (across) and measured (up): each algorithm at lengths that nothing was fitted to", "predicted us", "us", 10)
    others = {16, 32, 128, 1024, 8192, 32768, 128 << 10, 512 << 10, 2 << 20, 8 << 20}
    for ranks in (2, 3, 4, 8):
        plot.add(f"{ranks} ranks", [(float(r["predicted_us"]), float(r["measured_us"]), True) for r in measured
                                    if int(r["ranks"]) == ranks and int(r["bytes"]) in others])
    plot.write("predicted_measured.svg", points_alone=True)


if __name__ == "__main__":
    main()
