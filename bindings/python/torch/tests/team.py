"""Ranks for tests: processes that are started once and called many times.

``Team(n).call(f, ...)`` runs ``f(...)`` on every rank and returns the results. Each rank has the default group of the
backend that the team was started with, GLOO and OURS. What a rank raises fails the test, with that rank's traceback.

To import torch takes seconds of a CPU. So ranks are forked from a process that has done it, and has one thread and no commstream; the ranks
load that themselves. Where the loader's variables are others, each rank is a new interpreter.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import tempfile
import time
import traceback
import unittest

SECONDS = 120
START_SECONDS = 600  # to import torch, which takes long where others use the machine
PRELOADED = ["torch.distributed", "torch._dynamo"]  # optimizers and DistributedDataParallel import the second one
LOADER = {name: text for name, text in os.environ.items() if name.startswith("LD_")}


def needs(*methods):
    """A test of methods of c10d::Backend or ProcessGroup, which is skipped where this torch shows Python none of that name."""
    import torch
    import torch.distributed as dist

    shown = {*dir(torch._C._distributed_c10d.Backend), *dir(dist.ProcessGroup)}
    missing = [name for name in methods if name not in shown]
    return unittest.skipIf(missing, f"torch {torch.__version__.partition('+')[0]} has no {', '.join(missing)} of process groups")


def expect(error, text, call):
    """The call raises the error, whose text has this."""
    try:
        call()
    except error as e:
        assert text in str(e), e
    else:
        raise AssertionError(f"expected {error.__name__}: {text}")


def eventually(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "that did not come"
        time.sleep(0.005)


def refused(call):
    """The words with which a call is refused, or None."""
    try:
        call()
        return None
    except (RuntimeError, TypeError, ValueError) as e:
        return str(e)


def monitored_barrier(group=None, **options):
    """Older torch offers it by name to Gloo alone; the group's method is the backend's."""
    import torch.distributed as dist

    try:
        dist.monitored_barrier(group, **options)
    except ValueError as e:
        if "only implemented for GLOO" not in str(e):
            raise
        timeout = options.get("timeout", datetime.timedelta(seconds=SECONDS))
        (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks=options.get("wait_all_ranks", False))


def _context():
    if LOADER != {name: text for name, text in os.environ.items() if name.startswith("LD_")}:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _serve(pipe, variables, rank, size, backend, store, device):
    os.environ.clear()  # the process that was forked has those of the first team
    os.environ.update(variables)
    import torch
    import torch.distributed as dist

    import commstream.torch  # noqa: F401

    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=60)
    pipe.send((True, None))
    try:
        dist.init_process_group(backend, store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timeout, device_id=device)
    except BaseException:
        pipe.send((False, f"rank {rank}:\n{traceback.format_exc()}"))
        return
    pipe.send((True, None))
    while True:
        task = pipe.recv()
        if task is None:
            break
        function, args = task
        try:
            pipe.send((True, function(*args)))
        except BaseException:
            pipe.send((False, f"rank {rank}:\n{traceback.format_exc()}"))
    dist.destroy_process_group()
    pipe.send((True, None))


class Team:
    def __init__(self, size: int, backend: str = "commstream", devices=None):
        """`devices` has one for each rank, to which its default group is bound. Raises what a rank raised that could not make the group."""
        context = _context()
        self.folder = tempfile.TemporaryDirectory()
        store = os.path.join(self.folder.name, "store")
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, dict(os.environ), rank, size, backend, store, devices and devices[rank]),
                                      daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        self._results(START_SECONDS)
        self._results()

    def _results(self, seconds=SECONDS):
        results = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(seconds):
                raise AssertionError(f"rank {rank} did not answer within {seconds} s")
            results.append(pipe.recv())
        wrong = [text for good, text in results if not good]
        if wrong:
            raise AssertionError("\n".join(wrong))
        return [value for _, value in results]

    def call(self, function, *args, seconds=SECONDS):
        for pipe in self.pipes:
            pipe.send((function, args))
        return self._results(seconds)

    def close(self):
        for pipe in self.pipes:
            pipe.send(None)
        self._results()
        for process in self.processes:
            process.join(SECONDS)
        codes = [p.exitcode for p in self.processes]
        self.folder.cleanup()
        if any(codes):
            raise AssertionError(f"exit codes {codes}; expected zeros")


class TeamTest(unittest.TestCase):
    """Tests of one team, which starts before the first of them."""

    ranks = 2
    backend = "commstream"

    @classmethod
    def setUpClass(cls):
        cls.team = Team(cls.ranks, cls.backend)

    @classmethod
    def tearDownClass(cls):
        cls.team.close()


_groups = {}


def group(backend: str):
    """Returns this rank's group of all ranks with a backend."""
    import torch.distributed as dist

    if backend not in _groups:
        _groups[backend] = dist.new_group(backend=backend)
    return _groups[backend]


def backend_of(group=None):
    """Returns the backend of a group for tensors on the CPU."""
    import torch
    import torch.distributed as dist

    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def summed(backend, value):
    import torch

    t = torch.tensor([float(value)])
    backend.allreduce([t]).wait()
    return t.item()


def raw(backend):
    """Returns the backend itself: what torch checks in Python before any backend is asked is called as backends are."""
    return backend_of(group(backend))
