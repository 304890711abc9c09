"""Groups that give their memory and connections back for a while, and go on afterwards."""

import collections
import datetime
import os
import time
import unittest
import unittest.mock

import torch
import torch.distributed as dist

import commstream.torch
import device
from on_device import filled, same
from team import Team, expect, needs, refused

CPU = torch.device("cpu")


def new_group(seconds=60, ranks=None):
    """The group and its backend, which a rank of others does not have."""
    g = dist.new_group(ranks, backend="commstream", timeout=datetime.timedelta(seconds=seconds))
    member = ranks is None or dist.get_rank() in ranks
    return g, g._get_backend(CPU) if member else None


def use(g):
    """Calls of several kinds: copies of lists take scratch memory, messages connect ranks."""
    rank, size = dist.get_rank(g), dist.get_world_size(g)
    t = torch.full((100000,), float(rank))
    dist.all_reduce(t, group=g)
    assert t[-1] == size * (size - 1) // 2, t
    parts = [torch.zeros(50000) for _ in range(size)]
    dist.all_gather(parts, torch.full((50000,), float(rank)), group=g)
    assert [int(p[-1]) for p in parts] == list(range(size))
    got = torch.zeros(30000)
    peers = [dist.get_global_rank(g, (rank + step) % size) for step in (1, size - 1)]
    mine = torch.full((30000,), float(rank))
    calls = [dist.P2POp(dist.isend, mine, peers[0], group=g, tag=7), dist.P2POp(dist.irecv, got, peers[1], group=g, tag=7)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert got[-1] == (rank - 1) % size, got


def footprint():
    """What a world has of the system: memory that is shared with others, and descriptors by what they are of."""
    with open("/proc/self/maps") as file:
        shared = sum(line.split()[1] == "rw-s" for line in file)
    kinds = collections.Counter()
    for fd in os.listdir("/proc/self/fd"):
        try:
            kinds[os.readlink(f"/proc/self/fd/{fd}").split("[")[0]] += 1
        except FileNotFoundError:
            pass  # of the list itself
    return shared, kinds


def count(found):
    return found[0] + sum(found[1].values())


def case_gives_back():
    before = footprint()
    g, backend = new_group()
    use(g)
    used = footprint()
    assert count(used) > count(before), (before, used)
    for _ in range(10):
        backend.suspend()
        assert backend.memory_stats()["memory_bytes"] == 0 and footprint() == before, (before, footprint())
        backend.resume()
        use(g)
        assert footprint() == used, (used, footprint())
    dist.destroy_process_group(g)


def case_the_only_group():
    """Nothing is left of the library: the world was the last one of its engine."""
    use(dist.group.WORLD)
    backend, used = dist.group.WORLD._get_backend(CPU), footprint()
    backend.suspend()
    left = footprint()
    assert left[0] == 0 and left[1]["anon_inode:"] == 1 < used[1]["anon_inode:"], (used, left)  # that of the backend's own thread
    assert not any("commstream" in kind for kind in left[1]) and left[1]["socket:"] <= 1, left  # which is the test's
    backend.resume()
    use(dist.group.WORLD)
    assert footprint() == used, (used, footprint())


def case_calls_are_refused():
    """Every call names the group and what is to be done. Other groups go on."""
    g, backend = new_group()
    other, _ = new_group()
    backend.suspend()
    t = torch.ones(1)
    calls = [
        lambda: dist.all_reduce(t, group=g),
        lambda: dist.broadcast(t, 0, group=g),
        lambda: dist.all_gather([t, t], t, group=g),
        lambda: dist.barrier(group=g),
        lambda: dist.isend(t, 1 - dist.get_rank(), group=g),
        lambda: dist.irecv(t, 1 - dist.get_rank(), group=g),
        lambda: g._start_coalescing(CPU),
        lambda: backend.new_window(t),
        lambda: backend.allocate_tensor(1, dtype=torch.float32, device=CPU),
        lambda: commstream.torch.empty(1, group=g),
        backend.suspend,
    ]
    for call in calls:
        text = refused(call) or ""
        assert f"process group {g.group_name} is suspended; expected resume()" in text, text
    assert "commstream: allreduce: " in refused(calls[0])
    use(other)
    use(dist.group.WORLD)
    assert "SUCCESS" in str(backend.get_error())
    backend.resume()
    use(g)
    expect(RuntimeError, f"process group {g.group_name} is not suspended; expected suspend() first", backend.resume)


def case_goes_on_as_before():
    """The numbers, the timeout and the hooks are those of before, and works of before keep their results."""
    g, backend = new_group()
    called = []
    backend.register_abort_hook(1, lambda: called.append(1))
    backend.set_timeout(datetime.timedelta(seconds=30))
    earlier, apart = dist.all_reduce(t := torch.ones(1000), group=g, async_op=True), torch.ones(1000, 2)[:, 0]
    unused = backend.allreduce([apart])
    number = g._get_sequence_number_for_group()
    backend.suspend()
    assert earlier.is_completed() and (apart == dist.get_world_size()).all()
    backend.set_timeout(datetime.timedelta(seconds=25))
    backend.resume()
    earlier.wait()
    unused.get_future().wait()
    assert (t == dist.get_world_size()).all()
    assert g._get_sequence_number_for_group() == number
    work = dist.all_reduce(torch.ones(1), group=g, async_op=True)
    work.wait()
    assert work.timeout == datetime.timedelta(seconds=25) and work._get_sequence_number() == number + 1
    expect(ValueError, "expected 1 to 60000", lambda: backend.set_timeout(datetime.timedelta(seconds=61)))
    assert not called
    expect(dist.DistBackendError, "COMM_ERR_MISMATCH", lambda: dist.all_reduce(torch.ones(3 + dist.get_rank()), group=g))
    assert called


def case_work_in_flight():
    """No rank is suspended, the work goes on, and the error has the same words everywhere."""
    rank = dist.get_rank()
    g, backend = new_group()
    backend.set_timeout(datetime.timedelta(seconds=1))
    got = torch.zeros(1)
    work = dist.irecv(got, 1, group=g) if rank == 0 else None
    expect(RuntimeError, "rank 0: work is not complete after 1000 ms", backend.suspend)
    if rank == 1:
        dist.send(torch.ones(1), 0, group=g)
    else:
        work.wait()
        assert got == 1
    backend.suspend()
    backend.resume()
    use(g)


def case_message_that_nobody_received():
    rank = dist.get_rank()
    g, backend = new_group()
    for _ in range(3):
        if rank == 0:
            dist.send(torch.full((1,), 5.0), 1, group=g)
        expect(RuntimeError, "messages: 1 were sent, 0 received", backend.suspend)
        if rank == 1:
            dist.recv(got := torch.zeros(1), 0, group=g)
            assert got == 5
        backend.suspend()
        backend.resume()


def case_memory_in_use():
    """On one rank only, all hear of it."""
    rank = dist.get_rank()
    g, backend = new_group()
    t = commstream.torch.empty(10, group=g) if rank == 1 else None
    expect(RuntimeError, "rank 1: 1 windows, shared tensors or tensors in its memory are in use", backend.suspend)
    use(g)
    del t
    window = backend.new_window(torch.zeros(4))
    expect(RuntimeError, "rank 0: 1 windows", backend.suspend)
    window.signal(1 - rank, False)
    window.wait_signal(1 - rank, False)
    window.tensor_deregister()
    del window
    shared = commstream.torch.shared_tensor(torch.arange(1000.0), group=g)
    expect(RuntimeError, "rank 1: 1 windows, shared tensors", backend.suspend)
    assert shared[999] == 999
    del shared
    backend.suspend()
    backend.resume()
    assert torch.equal(commstream.torch.shared_tensor(torch.arange(1000.0), group=g), torch.arange(1000.0))


def case_block():
    g, backend = new_group()
    g._start_coalescing(CPU)
    backend.allreduce([t := torch.ones(1)])
    expect(RuntimeError, "a coalescing block has begun", backend.suspend)
    g._end_coalescing(CPU).wait()
    assert t == dist.get_world_size()
    backend.suspend()
    backend.resume()


def case_missing_rank():
    """A rank that does not call is named, and the group goes on. Ranks that try again meet those that call for the first time."""
    rank = dist.get_rank()
    g, backend = new_group()
    backend.set_timeout(datetime.timedelta(seconds=1))
    if rank == 0:
        expect(RuntimeError, "rank 0 waited", backend.suspend)
        assert "missing: 1" in refused(backend.suspend)
    dist.barrier()
    use(g)
    backend.suspend()
    backend.resume()
    use(g)


def case_missing_at_resume():
    rank = dist.get_rank()
    g, backend = new_group(seconds=2)
    backend.suspend()
    if rank == 0:
        expect(dist.DistBackendError, "missing: 1", backend.resume)
        assert "is suspended" in refused(lambda: dist.barrier(group=g))
    dist.barrier()
    backend.resume()
    use(g)


def case_ends_while_suspended():
    g, backend = new_group()
    backend.suspend()
    dist.destroy_process_group(g)
    g, backend = new_group()
    backend.suspend()
    backend.abort()
    assert "shut down" in refused(lambda: backend.allreduce([torch.ones(1)]))
    assert "not suspended" in refused(backend.resume)


def case_failed_group():
    g, backend = new_group(seconds=1)
    if dist.get_rank() == 0:
        assert "COMM_ERR_TIMEOUT" in refused(lambda: dist.all_reduce(torch.ones(1), group=g))
    dist.barrier()
    expect(RuntimeError, "the group has failed: COMM_ERR_", backend.suspend)


def case_allocator_of_before():
    """Memory comes from the world of now."""
    g, backend = new_group()
    backend.suspend()
    backend.resume()
    t = backend.allocate_tensor(1000, dtype=torch.float32, device=CPU).fill_(1)
    dist.all_reduce(t, group=g)
    assert (t == dist.get_world_size()).all()


def case_subset():
    """A group of some ranks, in another order, and one of one rank. Stores keep nothing of it."""
    rank = dist.get_rank()
    g, backend = new_group(ranks=[2, 0])
    if rank in (0, 2):
        keys = g.get_group_store().num_keys()
        for _ in range(3):
            backend.suspend()
            backend.resume()
            use(g)
        dist.barrier(group=g)
        assert g.get_group_store().num_keys() <= keys, (keys, g.get_group_store().num_keys())
    alone, backend = new_group(ranks=[3])
    if rank == 3:
        backend.suspend()
        assert "is suspended" in refused(lambda: dist.barrier(group=alone))
        backend.resume()
        dist.barrier(group=alone)
    dist.barrier()


def case_tcp_store():
    """The store of torchrun's programs. It keeps nothing of ranks that met again, nor of attempts that were refused."""
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = [store.port if rank == 0 else None]
    dist.broadcast_object_list(port, 0)
    store = store or dist.TCPStore("127.0.0.1", port[0], is_master=False)
    backend = commstream.torch._extension.create(store, rank, size, datetime.timedelta(seconds=60))
    dist.barrier()
    keys = store.num_keys()
    for _ in range(3):
        t = backend.allocate_tensor(1, dtype=torch.float32, device=CPU)
        expect(RuntimeError, "in use", backend.suspend)
        del t
        backend.suspend()
        assert "the process group is suspended" in refused(lambda: backend.allreduce([torch.ones(1)]))
        backend.resume()
        backend.allreduce([t := torch.ones(1)]).wait()
        assert t == size
    del t
    dist.barrier()
    assert store.num_keys() <= keys, (keys, store.num_keys())
    dist.barrier()


def case_shrunk():
    """The group that shrink() makes uses the memory of the old one, which therefore cannot go before it. It comes back on its own."""
    rank = dist.get_rank()
    g, backend = new_group()
    child = backend.shrink([3]) if rank < 3 else None
    dist.barrier()
    expect(RuntimeError, "rank 0: 1 process groups that shrink() made of it are open", backend.suspend)
    if child:
        child.suspend()
        assert "is suspended" in refused(lambda: child.allreduce([torch.ones(1)]))
    dist.barrier()
    backend.suspend()
    if child:
        child.resume()
        child.allreduce([t := torch.ones(1)]).wait()
        assert t == 3
    backend.resume()
    use(g)
    if child:
        child.suspend()
        child.resume()
        child.shutdown()


def case_late_rank():
    """Ranks come when they come, within the timeout."""
    g, backend = new_group()
    if dist.get_rank() == 1:
        time.sleep(1)
    backend.suspend()
    if dist.get_rank() == 0:
        time.sleep(1)
    backend.resume()
    use(g)


def case_on_a_device():
    """The work on streams is waited for; afterwards streams are followed as before."""
    g, backend = new_group()
    for _ in range(3):
        t = filled(5000, dist.get_rank() + 1)
        work = dist.all_reduce(t, group=g, async_op=True)
        backend.suspend()
        work.wait()
        same(t, 3)
        assert "is suspended" in refused(lambda: dist.all_reduce(t, group=g))
        backend.resume()
        dist.all_reduce(t, group=g)
        same(t, 6)


def team_of(size, **variables):
    """Without torch's flight recorder, which takes seconds to write down what failed."""
    with unittest.mock.patch.dict(os.environ, {"TORCH_FR_BUFFER_SIZE": "0", **variables}):
        return Team(size)


@needs("suspend", "resume")
class TwoRanks(unittest.TestCase):
    ranks = 2

    @classmethod
    def setUpClass(cls):
        cls.team = team_of(cls.ranks)

    @classmethod
    def tearDownClass(cls):
        cls.team.close()

    def test_gives_back(self):
        self.team.call(case_gives_back)

    def test_calls_are_refused(self):
        self.team.call(case_calls_are_refused)

    def test_goes_on_as_before(self):
        self.team.call(case_goes_on_as_before)

    def test_work_in_flight(self):
        self.team.call(case_work_in_flight)

    def test_message_that_nobody_received(self):
        self.team.call(case_message_that_nobody_received)

    def test_memory_in_use(self):
        self.team.call(case_memory_in_use)

    def test_block(self):
        self.team.call(case_block)

    def test_missing_rank(self):
        self.team.call(case_missing_rank)

    def test_missing_at_resume(self):
        self.team.call(case_missing_at_resume)

    def test_ends_while_suspended(self):
        self.team.call(case_ends_while_suspended)

    def test_failed_group(self):
        self.team.call(case_failed_group)

    def test_allocator_of_before(self):
        self.team.call(case_allocator_of_before)

    def test_tcp_store(self):
        self.team.call(case_tcp_store)

    def test_late_rank(self):
        self.team.call(case_late_rank)


@needs("suspend", "resume")
class FourRanks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.team = team_of(4)

    @classmethod
    def tearDownClass(cls):
        cls.team.close()

    def test_gives_back(self):
        self.team.call(case_gives_back)

    def test_subset(self):
        self.team.call(case_subset)

    def test_shrunk(self):
        self.team.call(case_shrunk)


@needs("suspend", "resume")
class Alone(unittest.TestCase):
    """Teams with nothing but the default group."""

    def test_the_only_group(self):
        team = team_of(2)
        team.call(case_the_only_group)
        team.close()

    def test_tcp(self):
        team = team_of(2, COMM_BACKEND="tcp")
        team.call(case_the_only_group)
        team.call(case_gives_back)
        team.close()


@needs("suspend", "resume")
@device.needed
class Devices(unittest.TestCase):
    def test_on_a_device(self):
        device.prepare()
        team = team_of(2, **device.variables())
        team.call(case_on_a_device)
        team.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
