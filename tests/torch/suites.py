#!/usr/bin/env python3
"""Runs torch's own tests of its backend Gloo for this backend: `suites.py [--ranks N] [--list FILE] [PATTERN...]`.

torch installs them with itself (torch.testing._internal.distributed). They are written for the backends that torch has, and leave out most
for a name that they do not know. So this program puts the backend in Gloo's place: where torch would make a ProcessGroupGloo, it makes
ours, and the tests run as they do for Gloo. What is left out is listed in FILE (suites.txt), each line with its reason.

The last line says how many passed, were skipped by torch itself (most of them want a GPU), were left out, and failed.
"""
import argparse
import fnmatch
import os
import sys
import unittest
from pathlib import Path


def read_list(path):
    """[(pattern, reason)]; raises ValueError naming the line that is none."""
    rules = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, bar, reason = (field.strip() for field in line.partition(" | "))
        if not pattern or not bar or not reason:
            raise ValueError(f"{path}:{number}: expected TEST | REASON")
        rules.append((pattern, reason))
    return rules


def take_place_of_gloo():
    import torch.distributed.distributed_c10d as c10d

    import commstream.torch

    class ProcessGroupGloo(c10d.ProcessGroupGloo):
        made = 0

        def __new__(cls, store, rank, size, timeout=c10d.default_pg_timeout, **_):
            ProcessGroupGloo.made += 1
            return commstream.torch._extension.create(store, rank, size, timeout)

    c10d.ProcessGroupGloo = ProcessGroupGloo
    leave_out_logging()
    return ProcessGroupGloo


def leave_out_logging():
    """torch's logger of DistributedDataParallel reads a group that is named gloo as a ProcessGroupGloo (logger.cpp), whatever it is."""
    import torch.distributed

    class Logger(torch.distributed.Logger):
        def set_construction_data_and_log(self, *_):
            pass

    torch.distributed.Logger = Logger


def make_case(gloo):
    """The class of all tests. Each test forks its ranks, which end with an error where the backend was Gloo after all."""
    import torch.multiprocessing
    from torch.testing._internal.distributed import distributed_test as suite

    plain = suite.get_profiling_event

    def get_profiling_event(name, *args, **options):
        """Events have the name of the backend that recorded them; tests expect that of Gloo."""
        events = plain(name.replace("gloo:", "commstream:"), *args, **options)
        for event in events:
            event.name = event.name.replace("commstream:", "gloo:")
        return events

    suite.get_profiling_event = get_profiling_event

    class Gloo(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def run_test(self, name, pipe):
            if not gloo.made:
                raise AssertionError("the process group of this rank is not commstream's")
            super().run_test(name, pipe)

    return Gloo


def select(names, patterns, rules):
    """(to run, left out by pattern)."""
    wanted = [name for name in names if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)]
    left = [name for name in wanted if any(fnmatch.fnmatch(name, p) for p, _ in rules)]
    return [name for name in wanted if name not in left], left


def unused(names, rules):
    return [pattern for pattern, _ in rules if not fnmatch.filter(names, pattern)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--list", type=Path, default=Path(__file__).with_name("suites.txt"))
    parser.add_argument("patterns", nargs="*")
    args = parser.parse_args()
    rules = read_list(args.list)
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(args.ranks), GLOO_SOCKET_IFNAME="lo")
    case = make_case(take_place_of_gloo())
    names = unittest.TestLoader().getTestCaseNames(case)
    run, left = select(names, args.patterns, rules)
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(case(name) for name in run))
    wrong = len(result.failures) + len(result.errors)
    passed = result.testsRun - wrong - len(result.skipped)
    print(f"suites: {passed} passed, {len(result.skipped)} skipped by torch, {len(left)} left out, {wrong} failed")
    return 1 if wrong or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
