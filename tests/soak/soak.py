#!/usr/bin/env python3
"""./dev soak: runs what finds faults by chance, for hours, at the lowest priority, and goes on another time where it was.

Four kinds of work take turns by the time they have had: fresh seeds of each of the simulator's workloads, random programs of processes of
which one is killed, the same with one that misbehaves, and the simulator's sweep of single faults, part by part. Each batch is a program
that prints one line of numbers. The state folder has what must not be lost: which seeds are next, which batches were begun and not ended,
and what failed, with its output. How much ran on which revision of src/core is in totals.csv, beside this file.
"""
import argparse
import csv
import fcntl
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SWEEP_PARTS = 128
BATCH_S = 20  # how long a batch aims to take: so much is lost when it is stopped
SHARES = {"sim": 4, "kill": 4, "hostile": 1, "sweep": 2}
KILL_FAULTS = ("hang", "late", "wrong_cause", "leftover", "wrong_result", "crash")
COLUMNS = ["core", "state", "day", "sim_failed", "kills", "stops", "kill_runs", "recovered", *KILL_FAULTS,
           "hostile_runs", "hostile_failed", "sweep_parts", "sweep_of", "sweep_cases", "sweep_failed", "cpu_s"]


def say(text):
    print(text, flush=True)


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True).stdout.strip()


def revision():
    """The tree of src/core; with a mark where the folder has changes that no commit has: those do not count in the totals."""
    core = git("rev-parse", "--short=10", "HEAD:src/core") or "unknown"
    return core + ("+changes" if git("status", "--porcelain", "--", "src/core") else "")


# ---------------------------------------------------------------------------------------------------------------------- the state
class State:
    """One JSON file, replaced whole, so that a cut at any moment leaves the old one or the new one."""

    def __init__(self, folder):
        self.folder, self.path = folder, os.path.join(folder, "state.json")
        os.makedirs(os.path.join(folder, "failures"), exist_ok=True)
        ignore = os.path.join(folder, ".gitignore")
        if not os.path.exists(ignore):
            with open(ignore, "w") as file:
                file.write("*\n")
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.data = json.load(file)
        else:  # the first seeds are nobody else's
            self.data = {"id": secrets.token_hex(3), "first": int(time.time()) * 1000000, "next": {}, "pending": [], "totals": {},
                         "sweep": {}, "failures": []}
        self.dealt = []  # of this process

    def save(self):
        with open(self.path + ".new", "w") as file:
            json.dump(self.data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".new", self.path)

    def take_seeds(self, what, count):
        first = self.data["next"].get(what, self.data["first"])
        self.data["next"][what] = first + count
        return first

    def totals(self, core):
        return self.data["totals"].setdefault(core, {})

    def add(self, core, name, amount):
        row = self.totals(core)
        row[name] = row.get(name, 0) + amount

    def sweep_done(self, core):
        return self.data["sweep"].setdefault(core, [])

    def sweep_first(self, core, rows):
        """Parts are dealt in order. Those that other states counted for this revision are done; a new state begins behind them."""
        others = sum(int(row["sweep_parts"]) for row in rows if row["core"] == core and row["state"] != self.data["id"])
        return self.data.setdefault("sweep_first", {}).setdefault(core, others)


# ---------------------------------------------------------------------------------------------------------------------- kinds of work
class Work:
    """What batches there are, how to run one, and what its line says. A batch is a dict, so that the state can keep it."""

    def __init__(self, state, programs, core, only, rows, most):
        self.state, self.programs, self.core = state, programs, core
        self.left = most  # batches that may be dealt
        self.first_part = state.sweep_first(core, rows)
        self.shares = {kind: share for kind, share in SHARES.items() if not only or kind in only}
        self.spent = {kind: 0.0 for kind in self.shares}
        self.rate = {}
        self.workloads = self.list_workloads() if "sim" in self.shares else []

    def list_workloads(self):
        shown = subprocess.run([self.programs["sim"], "--help"], capture_output=True, text=True).stdout
        return re.findall(r"^  (\w+) ", shown, re.M)

    def count_for(self, what, least, most, guess):
        return max(least, min(most, int(self.rate.get(what, guess) * BATCH_S)))

    def deal(self):
        """The next batch of the kind that has had least of its share; None: nothing is left."""
        if self.left <= 0:
            return None
        self.left -= 1
        for kind in sorted(self.shares, key=lambda k: self.spent[k] / self.shares[k]):
            batch = getattr(self, "deal_" + kind)()
            if batch:
                return batch
        return None

    def deal_sim(self):
        row = self.state.totals(self.core)
        begun = {w: 0 for w in self.workloads}
        for batch in self.state.data["pending"]:
            if batch["kind"] == "sim" and batch["workload"] in begun:
                begun[batch["workload"]] += batch["count"]
        workload = min(self.workloads, key=lambda w: row.get("sim_" + w, 0) + begun[w])
        count = self.count_for("sim_" + workload, 10, 2000, 5)
        return {"kind": "sim", "workload": workload, "first": self.state.take_seeds("sim_" + workload, count), "count": count}

    def deal_runs(self, kind):
        count = self.count_for(kind, 10, 400, 3)
        return {"kind": kind, "first": self.state.take_seeds(kind, count), "count": count}

    def deal_kill(self):
        return self.deal_runs("kill")

    def deal_hostile(self):
        return self.deal_runs("hostile")

    def deal_sweep(self):
        taken = set(self.state.sweep_done(self.core)) | {b["part"] for b in self.state.data["pending"] if b["kind"] == "sweep"}
        left = [part for part in range(self.first_part, SWEEP_PARTS) if part not in taken]
        return {"kind": "sweep", "part": left[0], "count": 1} if left else None

    def command(self, batch):
        if batch["kind"] == "sim":
            return [self.programs["sim"], "--workload", batch["workload"], "--seed", str(batch["first"]), "--seeds", str(batch["count"])]
        if batch["kind"] == "sweep":
            return [self.programs["sim_sweep"], "faults", str(SWEEP_PARTS), "9", str(batch["part"])]
        beside = ["--hostile"] if batch["kind"] == "hostile" else []
        return [self.programs["soak_run"], *beside, "--seed", str(batch["first"]), "--runs", str(batch["count"])]

    def count_up(self, batch, output, seconds, cpu):
        """Adds a batch that came to its end; False: its line is missing, so that it did not."""
        kind, core, add = batch["kind"], self.core, self.state.add
        heads = {"sim": r"^sim: seeds=", "sweep": r"^sweep faults: ", "kill": r"^soak: kind=kill ", "hostile": r"^soak: kind=hostile "}
        line = next((l for l in reversed(output.split("\n")) if re.match(heads[kind], l)), None)
        if line is None:
            return False
        number = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)\b(?!\.)", line)}
        what = "sim_" + batch["workload"] if kind == "sim" else kind
        if kind == "sim":
            add(core, what, number["seeds"])
            add(core, "sim_failed", number["failures"])
        elif kind == "sweep":
            self.state.sweep_done(core).append(batch["part"])
            add(core, "sweep_cases", number["cases"])
            add(core, "sweep_failed", number["failures"])
        elif kind == "kill":
            add(core, "kill_runs", number["runs"])
            add(core, "kills", number["killed"] + number["exited"] + number["aborted"])
            add(core, "stops", number["paused"] + number["stopped"])
            for name in ("recovered",) + KILL_FAULTS:
                add(core, name, number[name])
        else:
            add(core, "hostile_runs", number["runs"])
            add(core, "hostile_failed", number["failed"])
        add(core, "cpu_s", cpu)
        self.rate[what] = batch["count"] / max(seconds, 0.1)
        self.spent[kind] += seconds
        return True


# ---------------------------------------------------------------------------------------------------------------------- failures
REPEATS = re.compile(r"^(?:run it again: .*|\w+: seed \d+ too|faults: .*|\w+: seed \d+ is not the same twice.*)$", re.M)


def keep_failure(state, core, batch, output, code):
    lines = REPEATS.findall(output) or [f"exit code {code} of: {json.dumps(batch)}"]
    name = f"{batch['kind']}-{batch.get('workload', '')}{batch.get('first', batch.get('part'))}-{core}.txt"
    with open(os.path.join(state.folder, "failures", name), "w") as file:
        file.write(output)
    for line in lines:
        seen = {"core": core, "kind": batch["kind"], "day": time.strftime("%Y-%m-%d"), "file": name, "line": line}
        if seen not in state.data["failures"]:
            state.data["failures"].append(seen)
            say(f"soak: FAILED: {line}")


# ---------------------------------------------------------------------------------------------------------------------- totals
def read_totals(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def write_totals(path, state, core):
    """This state's row of this revision, whole; rows of others stay. What was run with uncommitted changes is in the state alone."""
    if core.endswith("+changes"):
        return
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)  # two states may write to one file
    fcntl.flock(folder, fcntl.LOCK_EX)
    mine = {"core": core, "state": state.data["id"], "day": time.strftime("%Y-%m-%d"), "sweep_parts": len(state.sweep_done(core)),
            "sweep_of": SWEEP_PARTS, **state.totals(core)}
    mine["cpu_s"] = int(mine.get("cpu_s", 0))
    rows = [row for row in read_totals(path) if (row["core"], row["state"]) != (core, mine["state"])] + [mine]
    others = sorted({name for row in rows for name in row if name not in COLUMNS})
    with open(path + ".new", "w", newline="") as file:
        file.write("# What ./dev soak ran, a row for each revision of src/core (its tree) and state folder; docs/internals/soak.md says more.\n")
        writer = csv.DictWriter(file, COLUMNS + others, restval=0, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(path + ".new", path)
    os.close(folder)


def report(state, path):
    rows, cores = read_totals(path), []
    for row in rows:
        if row["core"] not in cores:
            cores.append(row["core"])
    for core in cores:
        of = [row for row in rows if row["core"] == core]
        total = {name: sum(int(row[name] or 0) for row in of) for name in of[0] if name not in ("core", "state", "day", "sweep_of")}
        seeds = sum(value for name, value in total.items() if name.startswith("sim_") and name != "sim_failed")
        wrong = ", ".join(f"{total[name]} {name}" for name in KILL_FAULTS)
        say(f"src/core {core}, until {max(row['day'] for row in of)}, {total['cpu_s'] / 3600:.1f} CPU hours")
        say(f"  simulator  {seeds} seeds, {total['sim_failed']} failed: " + ", ".join(
            f"{name[4:]} {value}" for name, value in sorted(total.items()) if name.startswith("sim_") and name != "sim_failed"))
        say(f"  processes  {total['kills']} killed, {total['stops']} stopped, in {total['kill_runs']} runs: {wrong}")
        say(f"  hostile    {total['hostile_runs']} runs, {total['hostile_failed']} failed")
        say(f"  sweep      {total['sweep_parts']} of {SWEEP_PARTS} parts, {total['sweep_cases']} cases, "
            f"{total['sweep_failed']} failed")
    failures = state.data["failures"]
    say(f"failures that {os.path.relpath(state.folder)} keeps: {len(failures)}")
    for failure in failures:
        say(f"  {failure['core']} {failure['day']} {failure['line']}\n    {os.path.join(state.folder, 'failures', failure['file'])}")


# ---------------------------------------------------------------------------------------------------------------------- the machine
def lowest_priority():
    os.nice(19)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (OSError, AttributeError):
        pass  # nice is what it has then
    try:
        subprocess.run(["ionice", "-c3", "-p", str(os.getpid())], capture_output=True)
    except OSError:
        pass


class Running:
    """A batch under way: its output in a file of the state folder, its process the leader of a group that is ended together."""

    def __init__(self, folder, number, batch, command):
        self.batch, self.begin = batch, time.monotonic()
        self.path = os.path.join(folder, f"running-{number}.txt")
        self.output = open(self.path, "w+")
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        start_new_session=True)

    def poll(self):
        """None while it runs; else its exit code, output, seconds and CPU seconds."""
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            return None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.output.seek(0)
        text = self.output.read()
        self.output.close()
        os.unlink(self.path)
        return self.process.returncode, text, time.monotonic() - self.begin, used.ru_utime + used.ru_stime

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.wait4(self.process.pid, 0)
        self.output.close()


def soak(state, work, jobs, seconds, totals):
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.append(1))
    waiting = [batch for batch in state.data["pending"] if batch["kind"] in work.shares]  # of an earlier run, which was stopped in them
    end, running, saved = time.monotonic() + seconds, {}, time.monotonic()
    while not stopped and (running or time.monotonic() < end):
        for place in range(jobs):
            if place in running or time.monotonic() >= end:
                continue
            batch = waiting.pop(0) if waiting else work.deal()
            if batch is None:
                continue
            if batch not in state.data["pending"]:
                state.data["pending"].append(batch)
                state.save()
            running[place] = Running(state.folder, place, batch, work.command(batch))
        if not running:
            break
        for place in list(running):
            done = running[place].poll()
            if done is None:
                continue
            code, output, took, cpu = done
            batch = running.pop(place).batch
            state.data["pending"].remove(batch)
            whole = work.count_up(batch, output, took, cpu)
            if code or not whole:
                keep_failure(state, work.core, batch, output, code)
            state.save()
        if time.monotonic() - saved > 60:
            write_totals(totals, state, work.core)
            saved = time.monotonic()
        time.sleep(0.05)
    for batch in running.values():
        batch.stop()
    state.save()
    write_totals(totals, state, work.core)


def main():
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__.split("\n")[0])
    parser.add_argument("hours", nargs="?", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="batches at once")
    parser.add_argument("--batches", type=int, default=sys.maxsize, help="new batches at most, however many hours are left")
    parser.add_argument("--only", help="of sim, kill, hostile, sweep, with commas")
    parser.add_argument("--state", default=os.path.join(ROOT, "build-soak"), help="the folder of what must not be lost")
    parser.add_argument("--totals", default=os.path.join(HERE, "totals.csv"))
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), help="where the programs are")
    parser.add_argument("--normal-priority", action="store_true", help="as the shell's; for tests of the command itself")
    parser.add_argument("--report", action="store_true", help="what was run until now, and what failed")
    arguments = parser.parse_args()
    only = set((arguments.only or "").split(",")) - {""}
    if only - set(SHARES):
        parser.error(f"--only knows {', '.join(SHARES)}")
    if arguments.hours < 0 or arguments.jobs < 1 or arguments.batches < 0:
        parser.error("hours and batches are a number from 0, jobs from 1")
    state = State(os.path.abspath(arguments.state))
    if arguments.report:
        report(state, arguments.totals)
        return 0
    lock = open(os.path.join(state.folder, "lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"soak: another one is running with {state.folder}")
    if not arguments.normal_priority:
        lowest_priority()
    programs = {name: os.path.join(os.path.abspath(arguments.bin), name) for name in ("sim", "sim_sweep", "soak_run")}
    before = len(state.data["failures"])
    work = Work(state, programs, revision(), only, read_totals(arguments.totals), arguments.batches)
    say(f"soak: src/core {work.core}, {arguments.hours:g} h, {arguments.jobs} jobs, state in {state.folder}")
    soak(state, work, arguments.jobs, arguments.hours * 3600, arguments.totals)
    failed = len(state.data["failures"]) - before
    report(state, arguments.totals)
    say(f"soak: {failed} new failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
