"""Blocks of calls that start together: torch's coalescing manager, batches of messages, and what an exception leaves of them."""

import os
import time
import unittest
import unittest.mock

import torch
import torch.distributed as dist

from team import group, needs, raw, refused, Team, TeamTest


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


def case_callbacks_at_the_end():
    """In a group of one rank all is complete at the end of the block. What is called then uses the group."""
    alone = [dist.new_group([r], backend="commstream") for r in range(dist.get_world_size())][dist.get_rank()]
    cpu, called = torch.device("cpu"), []
    backend = alone._get_backend(cpu)
    alone._start_coalescing(cpu)
    future = backend.allreduce([torch.ones(1)]).get_future()
    future.add_done_callback(lambda _: called.append(backend.allreduce([torch.ones(1)])))
    alone._end_coalescing(cpu)
    future.wait()
    called[0].wait()


def sums_in_a_block(tensors):
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as block:
        for t in tensors:
            dist.all_reduce(t)
    block.wait()
    assert all(torch.equal(t, torch.full_like(t, 2.0)) for t in tensors)


def case_full_queue():
    """Rank 1 comes late, so the queue of rank 0 is full at the end of its block. It waits for room."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.get("the queue is full")
        time.sleep(0.5)
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(16)]
    if dist.get_rank() == 0:
        store.set("the queue is full", "")
    sums_in_a_block([torch.ones(n) for n in (1, 2000)])
    for work in works:
        work.wait()


def case_block_longer_than_the_queue():
    """It is refused, since it never finds room, and the group goes on."""
    assert "COMM_ERR_FULL" in refused(lambda: sums_in_a_block([torch.ones(2000) for _ in range(40)]))
    sums_in_a_block([torch.ones(1)])


class Coalescing(TeamTest):
    ranks = 2
    backend = "gloo"

    def test_blocks(self):
        self.team.call(case_coalesced)

    def test_a_refused_call_ends_its_block(self):
        self.team.call(case_coalesced_refused)

    def test_an_exception_ends_its_block(self):
        self.team.call(case_block_left_by_an_exception)

    @needs("shutdown")
    def test_a_shutdown_ends_its_block(self):
        self.team.call(case_block_of_a_group_that_is_shut_down)


    def test_callbacks_use_the_group(self):
        self.team.call(case_callbacks_at_the_end)


class CoalescingOfThree(Coalescing):
    ranks = 3


class FullQueue(unittest.TestCase):
    def test_the_end_of_a_block_waits_for_room(self):
        with unittest.mock.patch.dict(os.environ, COMM_QUEUE="16"):
            team = Team(2)
        team.call(case_full_queue)
        team.call(case_block_longer_than_the_queue)
        team.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
