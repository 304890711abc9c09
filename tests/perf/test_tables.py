#!/usr/bin/env python3
"""tables.py on made-up times, and that the fixed texts of the committed pages are those that it would write: whoever mends a page mends the
text here, and the other way round."""
import os
import re
import types
import unittest

import bench
import tables

PEERS = ("Open MPI 4.1.4", "Open MPI 5.0.11", "Gloo in torch 2.15.0")
KINDS = ("nonblocking", "blocking")
CALLS = [f"{peer} {kind}" for peer in PEERS for kind in KINDS if peer != PEERS[2] or kind == "nonblocking"]


def bench_of(times):
    """A Bench in which each program was measured once: {(collective, bytes): {column: us}}."""
    rounds = {(collective, 2, "request", column, size): [(us, "shared cache")]
              for (collective, size), row in times.items() for column, us in row.items()}
    return types.SimpleNamespace(rounds=rounds, algorithms={(c, 2, "request", s): "direct" for c, s in times}, is_complete=lambda *_: True,
                                 columns=lambda *_: [(name, None) for name in [tables.OURS, tables.FLOOR] + CALLS],
                                 states=lambda _: ["shared cache"])


def row(ours, *others):
    return dict(zip([tables.OURS, tables.FLOOR] + CALLS, [ours, 1.0, *others]))


BENCH = bench_of({("scatter", 8): row(1.0, 4.0, 2.0, 5.0, 3.0, 150.0), ("scatter", 2048): row(3.0, 2.0, 2.5, 6.0, 4.0, 160.0),
                  ("gather", 8): row(1.02, 1.0, 2.0, 3.0, 4.0, 170.0), ("gather", 2048): row(2.3, 4.0, 2.0, 5.0, 3.0, 150.0)})
FIGURES = tables.Figures(BENCH, "shared cache")


class Moved(bench.Bench):
    """A Bench of two tables with two programs each, on a machine whose CPUs move as told: one state for each time that it is asked."""

    def __init__(self, each_state, states):
        self.args = types.SimpleNamespace(each_state=each_state, rounds=1, rows="")
        self.rounds, self.done, self.algorithms, self.asked, self.ran = {}, {}, {}, list(states), []

    def state(self):
        return self.asked.pop(0)

    def columns(self, *table):
        return [(name, lambda name=name: self.run_once(table[0], name)) for name in (tables.OURS, "a peer")]

    def run_once(self, collective, name):
        self.ran.append((collective, name))
        return [{"bytes": "8", "median_us": "1.0"}]


MOVED = [("scatter", 2, "request"), ("gather", 2, "request")]


class Tables(unittest.TestCase):
    def test_a_table_is_of_one_state(self):
        near, far = "shared cache", "no shared cache"
        moved = Moved(False, [near, near, far, far, near, far, near, near] + 5 * [near])
        moved.measure(MOVED)
        self.assertEqual(moved.states(MOVED), [near])
        # in the third turn the CPUs moved during a program, so that one ran again
        self.assertEqual([collective for collective, _ in moved.ran], 4 * ["scatter"] + 2 * ["gather"])

    def test_each_state_has_its_tables(self):
        near, far = "shared cache", "no shared cache"
        moved = Moved(True, 4 * [near] + 8 * [far] + 5 * [near])
        moved.measure(MOVED)
        self.assertEqual(moved.states(MOVED), [near, far])
        self.assertEqual([collective for collective, _ in moved.ran], ["scatter", "scatter"] * 2 + ["gather"] * 4)
        self.assertTrue(all(len(rounds) == 2 for rounds in moved.rounds.values()))


    def test_verdict(self):
        tabled = [(collective, 2, "request") for collective in ("scatter", "gather")]
        last = tables.verdict(BENCH, tabled, ["scatter", "gather"]).split("\n")[-1]
        self.assertTrue(last.endswith("| 1 of 4 | 2: scatter of 2 K: 1.50, gather of 2 K: 1.15 |"), last)
        title = tables.title_of(2, "request", "shared cache")
        self.assertIn(f"(#{tables.anchor(title)})", last)

    def test_short_names_differ(self):
        self.assertEqual(list(tables.letters(CALLS).values()), ["o4", "O4", "o5", "O5", "g"])

    def test_bold_is_what_one_round_can_show(self):
        cells = tables.matrix(FIGURES, ["scatter", "gather"], 2, "request")
        self.assertIn("| scatter | 0.50 O4 | **1.50** o4 |", cells)
        self.assertIn("| gather | 1.02 o4 | **1.15** O4 |", cells)

    def test_a_table_of_the_page_is_narrow(self):
        lines = tables.brief(FIGURES, "scatter").split("\n")
        self.assertEqual({line.count("|") for line in lines}, {11})
        self.assertEqual(lines[3], "| 2 K | 3.00 | 1.00 | 160 | 2.00 o4 | 2.50 O4 | 3.00 | 1.50 | 1.20 | direct |")

    def test_pages_have_the_fixed_texts(self):
        for name, template in (("results.md", tables.PAGE), ("results_tcp.md", tables.PAGE_OF_TCP)):
            with open(os.path.join(tables.ROOT, "docs", "performance", name), encoding="utf-8") as file:
                page = " ".join(file.read().split())
            filled = template.replace("{algorithms}", tables.ALGORITHMS).replace("{guidelines}", str(len(tables.GUIDELINES)))
            for text in re.split(r"\n\n|\n(?=- )|\{\w+\}", filled):
                self.assertIn(" ".join(text.split()), page, f"docs/performance/{name} lacks a text of tables.py")


if __name__ == "__main__":
    unittest.main()
