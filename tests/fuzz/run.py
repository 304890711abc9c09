#!/usr/bin/env python3
"""Runs fuzz targets beside each other for a time each, and says what came of it: `./dev fuzz` has built them.

    run.py --bin BUILD/bin --grown FOLDER [--seconds N] [--jobs N] [--keep] [TARGET...]

Each target begins with the corpus of the repository (tests/fuzz/corpus/TARGET) and with what earlier runs found (FOLDER/TARGET), which grows.
FOLDER/log.csv gets a line for each run, so that a campaign can be made of many. --keep, instead of running: the corpus of the repository
becomes the fewest inputs that reach all that is reached. Exit status 1: something was found; its input is in FOLDER/found/TARGET.
"""
import argparse
import csv
import datetime
import os
import pathlib
import re
import resource
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
LENGTH = {"frame": 64, "handshake": 256, "receive": 1024, "notes": 1024}  # longest input; 4,096 of the others
KEEP_FILES, KEEP_BYTES = 200, 500 * 1024
INTERRUPTED = 72  # libFuzzer was, which is no finding
COLUMNS = ["date", "commit", "target", "executions", "cpu_s", "wall_s", "edges", "features", "inputs", "bytes", "found"]


def files(folder):
    return [f for f in folder.iterdir() if f.is_file()] if folder.is_dir() else []


def base_options(target):
    # Both are in the time of the wall, and a busy machine may leave a process alone for long.
    return [f"-max_len={LENGTH.get(target, 4096)}", "-timeout=120", "-report_slow_units=120", "-rss_limit_mb=3072"]


def commit():
    said = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def number(pattern, text):
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


class Run(threading.Thread):
    """One target for its time, in a process of its own; `row` is what came of it."""

    def __init__(self, target, options):
        super().__init__()
        self.target, self.options, self.row = target, options, None

    def run(self):
        grown, found = self.options.grown / self.target, self.options.grown / "found" / self.target
        grown.mkdir(parents=True, exist_ok=True)
        found.mkdir(parents=True, exist_ok=True)
        command = [self.options.bin / f"fuzz_{self.target}", *base_options(self.target), f"-max_total_time={self.options.seconds}",
                   "-print_final_stats=1", f"-artifact_prefix={found}/", grown, CORPUS / self.target]
        before = {f.name for f in files(found)}
        started = datetime.datetime.now()
        log = self.options.grown / f"{self.target}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=out)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        said = log.read_text(errors="replace")
        here = files(grown)
        new = sorted(f for f in files(found) if f.name not in before)
        self.row = {
            "date": started.isoformat(timespec="seconds"), "commit": commit(), "target": self.target,
            "executions": number(r"stat::number_of_executed_units:\s*(\d+)", said) or number(r"^#(\d+)", said),
            "cpu_s": round(usage.ru_utime + usage.ru_stime), "wall_s": round((datetime.datetime.now() - started).total_seconds()),
            "edges": number(r"cov: (\d+)", said), "features": number(r"ft: (\d+)", said), "inputs": len(here),
            "bytes": sum(f.stat().st_size for f in here), "found": len(new) or int(process.returncode not in (0, INTERRUPTED))}
        if self.row["found"]:
            self.tell(said, new)

    def tell(self, said, new):
        lines = [line for line in said.splitlines() if re.search(r"ERROR|SUMMARY|runtime error|panic|^\S+\.[ch]:\d+: ", line)]
        print(f"\nfuzz_{self.target} failed; its output is in {self.options.grown}/{self.target}.log", *lines[:8], sep="\n  ")
        for file in new:
            print(f"  again: {self.options.bin}/fuzz_{self.target} {file}")


def show(rows):
    print(f"{'target':<12}{'executions':>13}{'/s':>9}{'CPU s':>8}{'edges':>8}{'features':>10}{'inputs':>8}{'KiB':>7}{'found':>7}")
    for r in rows:
        rate = r["executions"] // max(r["cpu_s"], 1)
        print(f"{r['target']:<12}{r['executions']:>13,}{rate:>9,}{r['cpu_s']:>8}{r['edges']:>8}{r['features']:>10}{r['inputs']:>8}"
              f"{r['bytes'] // 1024:>7}{r['found']:>7}")


def record(grown, row):
    log = grown / "log.csv"
    new = not log.exists()
    with open(log, "a", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def run_all(options):
    """At most `jobs` at a time, in the order named."""
    waiting, rows, lock = list(options.targets), [], threading.Lock()

    def work():
        while True:
            with lock:
                if not waiting:
                    return
                target = waiting.pop(0)
            one = Run(target, options)
            one.run()
            with lock:
                rows.append(one.row)
                record(options.grown, one.row)

    workers = [threading.Thread(target=work) for _ in range(options.jobs)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    rows.sort(key=lambda r: options.targets.index(r["target"]))
    show(rows)
    return any(r["found"] for r in rows)


def keep(options, target):
    """Inputs with a name of their own were put there by hand, and stay."""
    mine, fewest = CORPUS / target, options.grown / f"{target}.fewest"
    subprocess.run(["rm", "-rf", fewest], check=True)
    fewest.mkdir(parents=True)
    subprocess.run([str(c) for c in [options.bin / f"fuzz_{target}", *base_options(target), "-set_cover_merge=1", fewest, mine,
                                     options.grown / target] if c == mine or not isinstance(c, pathlib.Path) or c.exists()],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    named = [f for f in files(mine) if not re.fullmatch(r"[0-9a-f]{10}", f.name)]
    for f in files(mine):
        if f not in named:
            f.unlink()
    have = {f.read_bytes() for f in named}
    count, size = len(named), sum(len(b) for b in have)
    for f in sorted(files(fewest), key=lambda f: f.stat().st_mtime_ns):  # written in the order in which they reach most
        text = f.read_bytes()
        if text in have or count == KEEP_FILES or size + len(text) > KEEP_BYTES:
            continue
        (mine / f.name[:10]).write_bytes(text)
        count, size = count + 1, size + len(text)
    print(f"{target}: {count} inputs, {size} bytes of {len(files(fewest))} that reach all")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--grown", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    there = sorted(f.name[5:] for f in options.bin.glob("fuzz_*"))
    options.targets = options.targets or there
    strange = [t for t in options.targets if t not in there]
    if strange:
        sys.exit(f"no such target: {' '.join(strange)}; there are: {' '.join(there)}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    options.grown.mkdir(parents=True, exist_ok=True)
    if options.keep:
        for target in options.targets:
            keep(options, target)
        return 0
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
