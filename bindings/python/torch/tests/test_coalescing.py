"""Blocks of calls that start together: torch's coalescing manager, batches of messages, and what an exception leaves of them."""

import unittest

import torch
import torch.distributed as dist

from team import Team, group, needs, raw, refused


def case_coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    ours = group("commstream")
    total = float(sum(range(size)))
    tensors = [torch.full((n,), float(rank)) for n in (3, 50, 40000)]
    with dist._coalescing_manager(group=ours, device=torch.device("cpu"), async_ops=True) as block:
        for t in tensors:
            dist.all_reduce(t, group=ours)
    block.wait()
    assert all(torch.equal(t, torch.full_like(t, total)) for t in tensors)
    outs = [torch.empty(4 * size), torch.empty(6 * size)]
    with dist._coalescing_manager(group=ours, device=torch.device("cpu")):
        dist.all_gather_into_tensor(outs[0], torch.full((4,), float(rank)), group=ours)
        dist.all_gather_into_tensor(outs[1], torch.full((6,), float(rank)), group=ours)
    assert torch.equal(outs[0], torch.arange(float(size)).repeat_interleave(4))
    assert torch.equal(outs[1], torch.arange(float(size)).repeat_interleave(6))
    tensors = [torch.full((n,), float(rank)) for n in (3, 50)]
    dist.all_reduce_coalesced(tensors, group=ours)
    assert all(torch.equal(t, torch.full_like(t, total)) for t in tensors)
    lists = [[torch.empty(3), torch.empty(50)] for _ in range(size)]  # of each rank, one for each input
    dist.all_gather_coalesced(lists, [torch.full((3,), float(rank)), torch.full((50,), rank + 0.5)], group=ours)
    for r, (short, longer) in enumerate(lists):
        assert torch.equal(short, torch.full((3,), float(r))) and torch.equal(longer, torch.full((50,), r + 0.5))
    assert "lists of outputs" in refused(lambda: dist.all_gather_coalesced(lists[:-1], [torch.ones(3), torch.ones(50)], group=ours))


def case_coalesced_refused():
    """A refused call ends its block, of which nothing runs; what follows is a call of its own."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ours = group("commstream")
    t, total = torch.full((3,), float(rank)), float(sum(range(size)))

    cpu = torch.device("cpu")
    for stay, text in ((False, f"root {size}"), (True, "nothing of the block is started")):
        ours._start_coalescing(cpu)
        raw("commstream").allreduce([t])
        said = refused(lambda: raw("commstream").broadcast(t, size))
        if stay:
            said = refused(lambda: ours._end_coalescing(cpu))
        assert text in said, said
        assert torch.equal(t, torch.full((3,), float(rank)))
        dist.all_reduce(other := t.clone(), group=ours)
        assert torch.equal(other, torch.full((3,), total))
    case_coalesced()


def case_block_left_by_an_exception():
    """An exception inside of torch's coalescing manager ends the block: nothing of it runs, and what follows are calls of their own."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ours, cpu, works, told = group("commstream"), torch.device("cpu"), [], []
    right, left = (rank + 1) % size, (rank - 1) % size

    def give_up():
        raise KeyError("of the program")

    def sum_and_give_up():
        dist.all_reduce(torch.ones(1), group=ours)
        give_up()

    def send_and_give_up():
        works.append(dist.isend(torch.ones(1), right, group=ours))
        told.append(works[-1].get_future().then(lambda future: future.value()))
        give_up()

    for device, inside in ((None, sum_and_give_up), (cpu, give_up), (cpu, sum_and_give_up), (cpu, send_and_give_up)):
        with unittest.TestCase().assertRaisesRegex(KeyError, "of the program"):
            with dist._coalescing_manager(group=ours, device=device, async_ops=True):
                inside()
        dist.all_reduce(t := torch.ones(1), group=ours)
        assert t == size, (device, inside.__name__, t)
    for wait in (works[0].wait, works[0].get_future().wait, told[0].wait):
        assert "nothing of it is started" in (refused(wait) or ""), refused(wait)
    assert works[0].is_completed() and not works[0].is_success()

    mine, theirs = torch.full((1,), float(rank)), torch.zeros(1)
    assert "tag -4" in refused(lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right, group=ours, tag=-4)]))
    dist.all_reduce(t := torch.ones(1), group=ours)
    assert t == size, "after a batch that was refused"
    calls = [dist.P2POp(dist.isend, mine, right, group=ours), dist.P2POp(dist.irecv, theirs, left, group=ours)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert theirs == left

    # Below torch's manager nobody tells of the exception: the next block ends the one that was left.
    ours._start_coalescing(cpu)
    left_work = raw("commstream").allreduce([torch.ones(1)])
    ours._start_coalescing(cpu)
    raw("commstream").allreduce([t := torch.ones(1)])
    ours._end_coalescing(cpu).wait()
    assert t == size and "nothing of it is started" in refused(left_work.wait)


def case_block_of_a_group_that_is_shut_down():
    """The shutdown ends the block; nothing of it runs."""
    g, cpu = dist.new_group(backend="commstream"), torch.device("cpu")
    backend = g._get_backend(cpu)
    g._start_coalescing(cpu)
    work = backend.allreduce([torch.ones(1)])
    backend.shutdown()
    assert "was shut down" in refused(lambda: g._end_coalescing(cpu))
    assert "nothing of it is started" in refused(work.wait)


class Coalescing(unittest.TestCase):
    ranks = 2

    @classmethod
    def setUpClass(cls):
        cls.team = Team(cls.ranks, "gloo")

    @classmethod
    def tearDownClass(cls):
        cls.team.close()

    def test_blocks(self):
        self.team.call(case_coalesced)

    def test_a_refused_call_ends_its_block(self):
        self.team.call(case_coalesced_refused)

    def test_an_exception_ends_its_block(self):
        self.team.call(case_block_left_by_an_exception)

    @needs("shutdown")
    def test_a_shutdown_ends_its_block(self):
        self.team.call(case_block_of_a_group_that_is_shut_down)


class CoalescingOfThree(Coalescing):
    ranks = 3


if __name__ == "__main__":
    unittest.main(verbosity=2)
