#!/usr/bin/env python3
"""What a call through Python costs: allreduce of 8 bytes as a request and a wait, beside the same calls in C (comm-perf) and mpi4py.

    python bindings/python/bench.py [RANKS...]        2 by default; each line says microseconds per call, the median of 9 batches

mpi4py is measured if it is installed and an mpirun is there.
"""
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

CALLS, BATCHES = 5000, 9


def measure(call):
    """Microseconds per call: the median of the batches, after one that does not count."""
    def batch():
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        return (time.perf_counter() - start) / CALLS * 1e6
    batch()
    return statistics.median(batch() for _ in range(BATCHES))


def rank_of_commstream():
    import numpy as np
    import commstream
    with commstream.open() as world:
        x, y = np.ones(1), np.zeros(1)
        array, into = bytearray(8), bytearray(8)
        allreduce = world.allreduce
        lines = {"numpy arrays": measure(lambda: allreduce(x, y).wait()),
                 "bytearrays": measure(lambda: allreduce(array, into, type=commstream.F64).wait())}
        with world.plan() as calls:
            calls.allreduce(x, y)
        start = calls.plan.start
        lines["a plan of one"] = measure(lambda: start().wait())
        if world.rank == 0:
            print(json.dumps(lines))


def rank_of_mpi4py():
    import numpy as np
    from mpi4py import MPI
    x, y = np.ones(1), np.zeros(1)
    world = MPI.COMM_WORLD
    lines = {"Allreduce": measure(lambda: world.Allreduce(x, y)), "Iallreduce": measure(lambda: world.Iallreduce(x, y).Wait())}
    if world.rank == 0:
        print(json.dumps(lines))


def last_line(command, **env):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def in_c(ranks):
    """The median of comm-perf, in microseconds."""
    from commstream.run import BIN
    command = [BIN / "comm-run", "-n", str(ranks), "--quiet-tags", BIN / "comm-perf", "allreduce", "--min", "8", "--max", "8", "--type", "f64",
               "--format", "json"]
    return last_line([str(word) for word in command])


def mpi4py(ranks):
    mpirun = shutil.which("mpirun")
    if not mpirun or not importlib.util.find_spec("mpi4py"):
        return {}
    allow = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return last_line([mpirun, "-n", str(ranks), sys.executable, __file__, "--rank", "mpi4py"], **allow)


def compare(ranks):
    start = [sys.executable, "-m", "commstream.run", "-n", str(ranks), "--quiet-tags", __file__, "--rank", "commstream"]
    print(f"allreduce of 8 bytes, {ranks} ranks, us per call")
    c = in_c(ranks)["median_us"]
    print(f"  {'C, request and wait':32} {c:8.2f}")
    for name, us in last_line(start).items():
        print(f"  {'Python, ' + name:32} {us:8.2f}   {us - c:+.2f}")
    for name, us in mpi4py(ranks).items():
        print(f"  {'mpi4py, ' + name:32} {us:8.2f}   {us - c:+.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        {"commstream": rank_of_commstream, "mpi4py": rank_of_mpi4py}[sys.argv[2]]()
    else:
        for count in [int(word) for word in sys.argv[1:]] or [2]:
            compare(count)
