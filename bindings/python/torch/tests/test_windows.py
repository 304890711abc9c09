"""Windows, and tensors in memory of the library."""

import datetime
import gc
import unittest
import weakref

import torch
import torch.distributed as dist

from team import backend_of, expect, needs, summed, TeamTest

CPU = torch.device("cpu")


def case_window():
    rank, size = dist.get_rank(), dist.get_world_size()
    backend = backend_of()
    assert backend.supports_window
    room = backend.allocate_tensor(4 * size, dtype=torch.float32, device=CPU)
    window = backend.new_window(room.zero_())
    dist.barrier()
    for peer in range(size):
        window.put(torch.full((4,), float(rank + 1)), peer, 4 * rank, False)
        window.signal(peer, True)
    for peer in range(size):
        window.wait_signal(peer, False)
    expected = torch.arange(1.0, size + 1).repeat_interleave(4)
    assert torch.equal(room, expected), room
    dist.barrier()
    # Memory of the library is mapped by the ranks of a host.
    right = window.map_remote_tensor((rank + 1) % size)
    assert torch.equal(right, expected)
    dist.barrier()
    room[0] = 100.0 + rank
    dist.barrier()
    assert right[0] == 100.0 + (rank + 1) % size
    try:
        window.put(torch.ones(4, dtype=torch.float64), 0, 0, False)
        raise AssertionError("a put of another type was taken")
    except TypeError as e:
        assert "expected Float" in str(e), e
    try:
        window.put(torch.ones(4), 0, 4 * size, False)
        raise AssertionError("a put past the end was taken")
    except RuntimeError as e:
        assert "commstream" in str(e), e
    del right
    window.tensor_deregister()


class Memory(bytearray):
    """Memory to which there can be weak references."""


def case_late_window():
    """A rank comes late: the other gives up its wait, and the window that is made at last uses a tensor that is still there."""
    rank = dist.get_rank()
    backend = backend_of(dist.new_group(backend="commstream", timeout=datetime.timedelta(seconds=60)))
    backend.set_timeout(datetime.timedelta(milliseconds=200))
    memory = Memory(400000)
    room = torch.frombuffer(memory, dtype=torch.float32)
    left = weakref.ref(memory)
    del memory
    if rank:
        dist.barrier()
        window = backend.new_window(room)
    else:
        expect(RuntimeError, "window number 0 is not complete after 200 ms", lambda: backend.new_window(room))
        del room
        gc.collect()
        assert left() is not None, "the tensor is gone, and other ranks may still get a window on it"
        dist.barrier()
    assert summed(backend, 1) == dist.get_world_size()
    if rank:
        window.put(torch.ones(4), 0, 99996, False)
    dist.barrier()


def case_retries():
    """A wait for a signal that was given up is made again for the same signal. Lengths that are too large are refused."""
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    backend = backend_of(dist.new_group(backend="commstream"))
    window = backend.new_window(torch.zeros(4))
    options = torch._C._distributed_c10d.WaitSignalOptions()
    options.timeout = datetime.timedelta(milliseconds=100)
    if rank == 0:
        expect(RuntimeError, "is not complete after 100 ms", lambda: window.wait_signal(other, False, options))
        expect(RuntimeError, "is not complete after 100 ms", lambda: window.wait_signal(other, False, options))
        expect(ValueError, "expected 0 to", lambda: window.put(torch.ones(1), other, 1 << 61, False))
        expect(ValueError, "expected fewer", lambda: backend.allocate_tensor(1 << 62, dtype=torch.float64, device=CPU))
    dist.barrier()
    if rank:
        window.signal(other, False)
    else:
        window.wait_signal(other, False)
    dist.barrier()
    window.tensor_deregister()


def case_memory():
    backend = backend_of(dist.new_group(backend="commstream"))
    assert backend.supports_tensor_alloc(CPU)
    t = backend.allocate_tensor(100000, dtype=torch.int64, device=CPU)
    assert t.dtype == torch.int64 and t.shape == (100000,) and not t.any()
    t.fill_(1)
    backend.allreduce([t]).wait()
    assert (t == dist.get_world_size()).all()
    # The memory outlives the group.
    backend.shutdown()
    t += 1
    assert (t == dist.get_world_size() + 1).all()


class TwoRanks(TeamTest):
    ranks = 2

    @needs("new_window")
    def test_window(self):
        self.team.call(case_window)

    @needs("new_window")
    def test_late_window(self):
        self.team.call(case_late_window)

    @needs("new_window")
    def test_retries(self):
        self.team.call(case_retries)

    @needs("allocate_tensor", "shutdown")
    def test_memory(self):
        self.team.call(case_memory)


if __name__ == "__main__":
    unittest.main(verbosity=2)
