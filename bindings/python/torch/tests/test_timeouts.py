"""Extensions of the timeout for a while."""

import datetime
import time
import unittest

import torch
import torch.distributed as dist

from team import expect, needs, TeamTest

CPU = torch.device("cpu")


def seconds(n):
    return datetime.timedelta(seconds=n)


def new_group(usual):
    g = dist.new_group(backend="commstream", timeout=seconds(60))
    backend = g._get_backend(CPU)
    backend.set_timeout(seconds(usual))
    return g, backend


def case_works_have_it():
    """Those that begin after it, until the first that has it is complete; each addition by itself. Rank 1 comes late, so that works of rank 0
    are not complete before."""
    rank = dist.get_rank()
    _, backend = new_group(3)
    works = []
    if rank == 1:
        dist.barrier()
    for more in (0, 10, 0, 5, 0):
        backend._add_ephemeral_timeout(seconds(more))
        works.append(backend.allreduce([torch.ones(1)]))
    if rank == 0:
        timeouts = [work.timeout // seconds(1) for work in works]
        assert timeouts == [3, 13, 13, 18, 18], timeouts
        dist.barrier()
    for work in works:
        work.wait()
    assert (last := backend.allreduce([torch.ones(1)])).timeout == seconds(3), last.timeout
    last.wait()


def case_waits_are_longer():
    """Rank 1 comes after the usual timeout: the wait with the extension ends well, the next one does not."""
    rank = dist.get_rank()
    g, backend = new_group(1)
    if rank == 0:
        dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(seconds(20))
    for late in (False, True):
        dist.barrier()
        if rank:
            time.sleep(3)
            dist.all_reduce(t := torch.ones(1), group=g)
        elif late:
            work = dist.all_reduce(t := torch.ones(1), group=g, async_op=True)
            expect(dist.DistBackendError, "not complete after 1000 ms", work.wait)
            work.wait(seconds(30))
        else:
            dist.all_reduce(t := torch.ones(1), group=g)
        assert t == dist.get_world_size()


def case_no_longer_than_the_deadline():
    """The library's deadline is fixed, so more has no effect; and a call that is refused uses nothing up."""
    _, backend = new_group(50)
    backend._add_ephemeral_timeout(seconds(3600))
    expect(ValueError, "", lambda: backend.allreduce([torch.eye(2).to_sparse_csr()]))
    for expected in (60, 50):
        work = backend.allreduce([torch.ones(1)])
        assert work.timeout == seconds(expected), work.timeout
        work.wait()
    expect(ValueError, "ephemeral timeout of -1000 ms", lambda: backend._add_ephemeral_timeout(seconds(-1)))


@needs("_add_ephemeral_timeout")
class Ephemeral(TeamTest):
    ranks = 2

    def test_works_have_it(self):
        self.team.call(case_works_have_it)

    def test_waits_are_longer(self):
        self.team.call(case_waits_are_longer)

    def test_no_longer_than_the_deadline(self):
        self.team.call(case_no_longer_than_the_deadline)


if __name__ == "__main__":
    unittest.main(verbosity=2)
