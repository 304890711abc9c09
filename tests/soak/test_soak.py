#!/usr/bin/env python3
"""The command itself, on programs of the test's own: it deals each seed once, goes on after a signal, adds up, keeps what failed."""
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
# They write which seeds they were given, take a moment, and print the line that the real ones print.
PROGRAM = r'''#!/usr/bin/env python3
import os, sys, time
name, a = os.path.basename(sys.argv[0]), sys.argv[1:]
if "--help" in a:
    print("usage: sim\n  alpha      one\n  beta       two")
    sys.exit(2)
value = lambda key: int(a[a.index(key) + 1])
if name == "sim":
    what, first, count = a[a.index("--workload") + 1], value("--seed"), value("--seeds")
elif name == "sim_sweep":
    what, first, count = "sweep", int(a[3]), 1
else:
    what, first, count = ("hostile" if "--hostile" in a else "kill"), value("--seed"), value("--runs")
with open(os.environ["MOCK_LOG"], "a") as log:
    log.write(f"{what} {first} {count}\n")
time.sleep(float(os.environ.get("MOCK_S", "0.02")))
bad = int(what == os.environ.get("MOCK_FAILS"))
if name == "sim":
    if bad: print(f"{what}: wrong\nrun it again: ./dev sim --workload {what} --seed {first} --seeds 1 --faults on")
    print(f"sim: seeds={count} failures={bad} events_per_s=1")
elif name == "sim_sweep":
    print(f"sweep faults: cases=10 failures={bad} events=5")
else:
    if bad: print(f"FAILED seed {first}: hang\nrun it again: ./dev soak --kill {first}")
    print(f"soak: kind={what} runs={count} failed={bad} killed={count} exited=0 aborted=0 paused=0 stopped=0 comm_aborted=0 turned=0 clean=0 "
          f"told=1 recovered=1 opening=0 starved=0 hang={bad} late=0 wrong_cause=0 leftover=0 wrong_result=0 crash=0 slowest_ms=1 seconds=0.5")
sys.exit(bad)
'''


class Soak(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.bin = os.path.join(self.folder.name, "bin")
        self.log = os.path.join(self.folder.name, "log")
        self.totals = os.path.join(self.folder.name, "totals.csv")
        self.state = os.path.join(self.folder.name, "state")
        os.mkdir(self.bin)
        for name in ("sim", "sim_sweep", "soak_run"):
            path = os.path.join(self.bin, name)
            with open(path, "w") as file:
                file.write(PROGRAM)
            os.chmod(path, 0o755)

    def tearDown(self):
        self.folder.cleanup()

    def start(self, seconds, *more, **environment):
        return subprocess.Popen(
            [sys.executable, os.path.join(HERE, "soak.py"), str(seconds / 3600), "--jobs", "2", "--state", self.state, "--bin", self.bin,
             "--totals", self.totals, "--normal-priority", *more],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "MOCK_LOG": self.log, **environment})

    def run_for(self, seconds, *more, **environment):
        process = self.start(seconds, *more, **environment)
        output = process.communicate()[0]
        return process.returncode, output

    def run_batches(self, count, *more, **environment):
        """As long as they take: what comes of a second depends on the machine."""
        return self.run_for(600, "--batches", str(count), *more, **environment)

    def ran(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log) as file:
            return [(what, int(first), int(count)) for what, first, count in (line.split() for line in file)]

    def read_state(self):
        with open(os.path.join(self.state, "state.json")) as file:
            return json.load(file)

    def no_seed_twice(self):
        seen = set()
        for what, first, count in self.ran():
            for seed in range(first, first + count):
                self.assertNotIn((what, seed), seen)
                seen.add((what, seed))
        return seen

    def test_all_kinds_take_part_and_no_seed_comes_twice(self):
        everything = {"alpha", "beta", "kill", "hostile", "sweep"}
        for _ in range(2):
            self.assertEqual(self.run_batches(12)[0], 0)
        seen = self.no_seed_twice()
        self.assertEqual({what for what, _ in seen}, everything)
        core = next(iter(self.read_state()["totals"]))
        row = self.read_state()["totals"][core]
        self.assertEqual(row["sim_alpha"], len([1 for what, _ in seen if what == "alpha"]))
        self.assertEqual(row["kills"], len([1 for what, _ in seen if what == "kill"]))
        if not core.endswith("+changes"):
            with open(self.totals) as file:
                rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
            self.assertEqual(len(rows), 1)
            self.assertEqual(int(rows[0]["sim_alpha"]), row["sim_alpha"])
            self.assertEqual(rows[0]["core"], core)

    def test_goes_on_where_it_was_stopped(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = self.start(60, MOCK_S="10")
            before, end = len(self.ran()), time.monotonic() + 60
            while len(self.ran()) < before + 2 and time.monotonic() < end:
                time.sleep(0.01)
            process.send_signal(number)
            process.communicate()
            left, ran = self.read_state()["pending"], self.ran()
            self.assertTrue(left)  # a batch that has begun takes longer than the signal
            self.run_batches(2)
            for batch in left:  # they were run again, from their first seed on
                seeds = (batch.get("workload", batch["kind"]), batch.get("first", batch.get("part")), batch["count"])
                self.assertGreater(self.ran().count(seeds), ran.count(seeds))
            self.assertEqual(self.read_state()["pending"], [])

    def test_only_one_kind_leaves_what_was_stopped_of_others(self):
        process = self.start(60, "--only", "sim", MOCK_S="10")
        end = time.monotonic() + 60
        while not self.ran() and time.monotonic() < end:
            time.sleep(0.01)
        process.terminate()
        process.communicate()
        left = self.read_state()["pending"]
        self.assertTrue(left)
        os.remove(self.log)
        self.assertEqual(self.run_batches(2, "--only", "sweep")[0], 0)
        self.assertEqual({what for what, _, _ in self.ran()}, {"sweep"})
        self.assertEqual(self.read_state()["pending"], left)

    def test_keeps_what_failed(self):
        code, output = self.run_batches(2, "--only", "kill", MOCK_FAILS="kill")
        self.assertEqual(code, 1)
        self.assertIn("run it again: ./dev soak --kill", output)
        kept = self.read_state()["failures"]
        self.assertTrue(kept)
        with open(os.path.join(self.state, "failures", kept[0]["file"])) as file:
            self.assertIn("FAILED seed", file.read())
        self.assertIn(kept[0]["line"], self.run_for(0, "--report")[1])

    def sweep_behind(self, counted):
        """A new state, where others counted so many parts of this revision."""
        self.run_batches(1, "--only", "sweep")
        core = next(iter(self.read_state()["sweep"]))
        with open(self.totals, "w") as file:
            file.write("core,state,day,sweep_parts,sweep_of\n")
            for of, state, parts in ((core, "other1", counted - 2), (core, "other2", 2), ("c0ffee", "other1", 50)):
                file.write(f"{of},{state},2026-01-01,{parts},128\n")
        os.remove(self.log)
        self.state = os.path.join(self.folder.name, "fresh")

    def test_a_new_state_goes_on_with_the_sweep_behind_what_others_counted(self):
        self.sweep_behind(7)
        self.run_batches(4, "--only", "sweep")
        self.assertEqual(sorted(first for _, first, _ in self.ran()), [7, 8, 9, 10])

    def test_the_sweep_ends(self):
        self.sweep_behind(120)
        for count, last in ((3, 122), (100, 127)):
            self.run_batches(count, "--only", "sweep")
            self.assertEqual(sorted(first for _, first, _ in self.ran()), list(range(120, last + 1)))

    def test_one_at_a_time(self):
        process = self.start(20, MOCK_S="0.3")
        end = time.monotonic() + 30
        while not self.ran() and time.monotonic() < end:
            time.sleep(0.01)
        self.assertIn("another one is running", self.run_for(1)[1])
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    unittest.main()
