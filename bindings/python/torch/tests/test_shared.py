"""Tensors of which each host has one copy."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock

import torch
import torch.distributed as dist

import commstream.torch
from team import expect, group, needs, Team, TeamTest


def source_of(g):
    return dist.get_world_size(g) - 1


def shared(tensor, g=None):
    """Shares the tensor of the last rank."""
    given = tensor if dist.get_rank(g) == source_of(g) else None
    return commstream.torch.shared_tensor(given, group=g, group_src=source_of(g))


def case_kinds():
    """Type, shape and elements are those of the source's tensor."""
    torch.manual_seed(0)
    for tensor in (
        torch.randn(1000, 300),
        torch.randn(7, 5, 3).to(torch.bfloat16),
        torch.arange(10, dtype=torch.int64),
        torch.tensor([True, False]),
        torch.tensor(2.5, dtype=torch.float64),
        torch.randn(4, 6).t(),
        torch.randn(3, dtype=torch.complex64),
        torch.empty(0, 3),
    ):
        got = shared(tensor)
        assert got.dtype == tensor.dtype and got.shape == tensor.shape, (got.dtype, got.shape)
        assert torch.equal(got, tensor), tensor.dtype
        assert got.is_contiguous() and not got.requires_grad


def case_parameter():
    got = shared(torch.nn.Parameter(torch.ones(5)))
    assert torch.equal(got, torch.ones(5)) and not got.requires_grad


def case_one_copy():
    """What one rank stores is there for all: the memory is the same, and it is not that of the tensor that was given."""
    given = torch.zeros(100000)
    got = shared(given)
    dist.barrier()
    if dist.get_rank() == 0:
        got[99999] = 5
    dist.barrier()
    assert got[99999] == 5 and given[99999] == 0


def case_used():
    """A layer whose weights are shared computes what it computed before."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 32)
    x = torch.randn(8, 64)
    expected = layer(x)
    layer.weight = torch.nn.Parameter(shared(layer.weight), requires_grad=False)
    assert torch.equal(layer(x), expected)


def case_lifetime():
    """A tensor outlives its group, and views of it outlive the tensor, until the rank that has the copy drops its own."""
    g = dist.new_group(backend="commstream")
    got = shared(torch.arange(100000.0), g)
    part = got[99990:]
    del got
    dist.destroy_process_group(g)
    assert torch.equal(part, torch.arange(99990.0, 100000.0))
    dist.barrier()
    del part


def case_subset():
    g = dist.new_group([1, 0], backend="commstream")
    if dist.get_rank() < 2:
        assert torch.equal(shared(torch.full((10,), 3.0), g), torch.full((10,), 3.0))
    dist.barrier()


def case_empty():
    """Tensors in memory of the library, on one rank or on all; windows map them. They outlive their group."""
    rank, g = dist.get_rank(), dist.new_group(backend="commstream")
    t = commstream.torch.empty(3, 5, dtype=torch.int64, group=g).fill_(rank)
    assert t.shape == (3, 5) and t.dtype == torch.int64 and t.is_contiguous() and t.data_ptr() % 4096 == 0
    dist.all_reduce(t, group=g)
    total = sum(range(dist.get_world_size()))
    assert (t == total).all(), t
    for made in (commstream.torch.empty(2, 3), commstream.torch.empty((2, 3)), commstream.torch.empty(torch.Size([2, 3]))):
        assert made.shape == (2, 3) and made.dtype == torch.get_default_dtype()
    assert commstream.torch.empty().shape == () and commstream.torch.empty(0, 3).numel() == 0
    assert commstream.torch.empty(7, dtype=torch.complex64).dtype == torch.complex64
    for _ in range(300):  # more than a segment has at a time
        commstream.torch.empty(1 << 20, dtype=torch.uint8, group=g).fill_(1)
    expect(ValueError, "sizes (2, -1); expected 0 or more", lambda: commstream.torch.empty(2, -1))
    expect(TypeError, "empty: the group's backend for CPU tensors is gloo", lambda: commstream.torch.empty(1, group=group("gloo")))
    dist.destroy_process_group(g)
    assert (t == total).all()


def case_empty_is_mapped():
    """A peer reads it where it is."""
    rank, size = dist.get_rank(), dist.get_world_size()
    g = dist.new_group(backend="commstream")
    t = commstream.torch.empty(10, group=g).fill_(rank)
    window = g._get_backend(torch.device("cpu")).new_window(t)
    dist.barrier()
    right = window.map_remote_tensor((rank + 1) % size)
    assert (right == (rank + 1) % size).all(), right
    dist.barrier()
    t.fill_(rank + 10)
    dist.barrier()
    assert (right == (rank + 1) % size + 10).all(), right
    dist.barrier()
    del right
    window.tensor_deregister()


def case_refused():
    """All ranks hear of it, and the group goes on."""
    expect(ValueError, f"rank {source_of(None)} passed NoneType", lambda: shared(None))
    expect(ValueError, "passed a tensor of torch.sparse_coo", lambda: shared(torch.eye(2).to_sparse()))
    expect(ValueError, "expected 0 to", lambda: commstream.torch.shared_tensor(torch.ones(1), group_src=99))
    expect(TypeError, "is gloo; expected commstream", lambda: shared(torch.ones(1), group("gloo")))
    assert torch.equal(shared(torch.ones(3)), torch.ones(3))


def case_no_memory_in_common():
    """The rank that has the copy gets its tensor; the others hear why they do not, and the group goes on."""
    if dist.get_rank() == source_of(None):
        assert torch.equal(shared(torch.ones(3)), torch.ones(3))
    else:
        expect(RuntimeError, "COMM_ERR_UNSUPPORTED", lambda: shared(None))
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t == dist.get_world_size()


class OverTcp(unittest.TestCase):
    def test_no_memory_in_common(self):
        with unittest.mock.patch.dict(os.environ, COMM_BACKEND="tcp"):
            team = Team(2)
            team.call(case_no_memory_in_common)
            team.close()


class NoGroup(unittest.TestCase):
    def test_no_group(self):
        """There is no default group, and none is passed."""
        expect(ValueError, "has not been initialized", lambda: commstream.torch.empty(3))
        expect(ValueError, "has not been initialized", lambda: commstream.torch.shared_tensor(torch.ones(3)))


class OfTwo(TeamTest):
    ranks = 2

    def test_kinds(self):
        self.team.call(case_kinds)

    def test_parameter(self):
        self.team.call(case_parameter)

    def test_one_copy(self):
        self.team.call(case_one_copy)

    def test_used(self):
        self.team.call(case_used)

    def test_lifetime(self):
        self.team.call(case_lifetime)

    def test_subset(self):
        self.team.call(case_subset)

    def test_empty(self):
        self.team.call(case_empty)

    @needs("new_window")
    def test_empty_is_mapped(self):
        self.team.call(case_empty_is_mapped)

    def test_refused(self):
        self.team.call(case_refused)


class OfFour(OfTwo):
    ranks = 4


DIES = """
    import datetime, os, signal, sys, torch, torch.distributed as dist
    import commstream.torch
    rank = int(sys.argv[1])
    dist.init_process_group("commstream", init_method="file://" + sys.argv[2], rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=60))
    shared = commstream.torch.shared_tensor(torch.arange(100000) if rank == 0 else None)
    dist.barrier()
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(1))
        sys.exit("the sum of a dead rank came")
    except dist.DistBackendError:
        assert torch.equal(shared, torch.arange(100000))
        print("still there", flush=True)
        os._exit(0)
"""


class Death(unittest.TestCase):
    def test_the_source_dies(self):
        """Its memory stays valid for the other ranks."""
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w") as file:
                file.write(textwrap.dedent(DIES))
            words = [[sys.executable, script, str(rank), os.path.join(folder, "store")] for rank in range(2)]
            ranks = [subprocess.Popen(w, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for w in words]
            said, _ = ranks[1].communicate(timeout=300)
            ranks[0].communicate(timeout=300)
            self.assertEqual(ranks[1].returncode, 0, said)
            self.assertIn("still there", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
