"""Line plots with two logarithmic axes, as SVG, for docs/performance/scale/plot.py and tests/perf/bench.py. Needs nothing but Python."""
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 70, 190, 36, 48
COLOURS = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#16a2b8", "#555555", "#b03a8b"]


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

    def write(self, path, points_alone=False):
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
                line_text = "L".join(f"{at_x(p[0]):.1f} {at_y(p[1]):.1f}" for p in points)
                out.append(f'<path d="M{line_text}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            for p in points:
                fill = colour if p[2] else "white"
                out.append(f'<circle cx="{at_x(p[0]):.1f}" cy="{at_y(p[1]):.1f}" r="{1.8 if points_alone else 3}" fill="{fill}" stroke="{colour}"/>')
            out.append(f'<circle cx="{WIDTH - RIGHT + 14}" cy="{line - 4}" r="4" fill="{colour}"/>'
                       f'<text x="{WIDTH - RIGHT + 24}" y="{line}">{label}</text>')
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(out) + "\n</svg>\n")
