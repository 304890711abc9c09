"""Sums of sparse tensors, and training with sparse gradients."""

import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from samples import sample
from team import backend_of, expect, group, needs, TeamTest


def sparse_of(rank, dtype=torch.float32, rows=50, width=3):
    """Some rows of a matrix. Each rank has other ones, some of them twice, and rank 1 has none."""
    count = 0 if rank == 1 else 7 + rank
    indices = torch.tensor([[(rank * 5 + i * i) % rows for i in range(count)]], dtype=torch.int64).reshape(1, count)
    return torch.sparse_coo_tensor(indices, sample(dtype, count * width, rank).reshape(count, width), (rows, width))


def total(make):
    return sum(make(rank).to_dense() for rank in range(dist.get_world_size()))


def case_types():
    rank = dist.get_rank()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.complex64):
        t = sparse_of(rank, dtype)
        backend_of().allreduce([t]).wait()  # dist.all_reduce has it reduce a copy of a complex one
        assert t.is_sparse and t.is_coalesced() and t.dtype == dtype
        assert torch.equal(t.to_dense(), total(lambda r: sparse_of(r, dtype))), dtype


def case_shapes():
    """Without dense dimensions, with several sparse ones, of one element, with nothing on any rank."""
    rank = dist.get_rank()

    def scattered(r):
        return torch.sparse_coo_tensor([[0, 2, 2], [r % 4, 1, 1], [3, 0, 0]], torch.tensor([1.0, 2.0, 4.0]) + r, (3, 4, 5))

    def single(r):
        return torch.sparse_coo_tensor(torch.empty(0, 1, dtype=torch.int64), torch.tensor([[1.0 + r, 2.0]]), (2,))

    def nothing(r):
        return torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 4), (10, 4))

    for make in (scattered, single, nothing):
        t = make(rank)
        dist.all_reduce(t)
        assert torch.equal(t.to_dense(), total(make)), make.__name__


def case_works():
    """The result is in the work and in its future, and other calls may come between."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t, dense = sparse_of(rank), torch.ones(10)
    work = dist.all_reduce(t, async_op=True)
    dist.all_reduce(dense)
    (got,) = work.get_future().wait()
    assert torch.equal(got.to_dense(), total(sparse_of)) and torch.equal(t.to_dense(), got.to_dense())
    assert torch.equal(dense, torch.full((10,), float(size)))


def case_by_name():
    """The backend's own call for sparse tensors, which takes no others."""
    t = sparse_of(dist.get_rank())
    backend_of().allreduce_sparse([t]).wait()
    assert torch.equal(t.to_dense(), total(sparse_of))
    expect(ValueError, "expected torch.sparse_coo", lambda: backend_of().allreduce_sparse([torch.eye(3).to_sparse_csr()]))


def case_same_bits():
    """The ranks' elements are added in the order of the ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t = torch.sparse_coo_tensor([[0]], torch.tensor([0.1 + rank * 1e-3]), (1,))
    dist.all_reduce(t)
    expected = torch.tensor(0.0)
    for r in range(size):
        expected = expected + torch.tensor(0.1 + r * 1e-3)
    assert t.to_dense()[0] == expected


def case_refused():
    """With an error on all ranks; the group goes on."""
    rank = dist.get_rank()
    t = sparse_of(rank)
    expect(ValueError, "expected the operator SUM", lambda: dist.all_reduce(t, op=dist.ReduceOp.MAX))
    other = sparse_of(rank, rows=50 + rank)
    expect(ValueError, "expected the same on all ranks", lambda: dist.all_reduce(other))
    wrong = sparse_of(rank, torch.float64 if rank else torch.float32)
    expect(ValueError, "expected the same on all ranks", lambda: dist.all_reduce(wrong))
    backend = backend_of()
    backend._start_coalescing()
    expect(RuntimeError, "inside of a coalescing block", lambda: backend.allreduce([sparse_of(rank)]))
    expect(ValueError, "a call in the block was refused", backend._end_coalescing)
    dist.all_reduce(t)
    assert torch.equal(t.to_dense(), total(sparse_of))


def train(backend, sparse):
    torch.manual_seed(0)
    table = nn.Embedding(100, 8, sparse=sparse)
    model = DistributedDataParallel(nn.Sequential(table, nn.Linear(8, 2)), process_group=group(backend))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randint(100, (16,))).square().mean().backward()
        assert table.weight.grad.is_sparse == sparse
        optimizer.step()
    return table.weight.detach().clone()


def case_ddp():
    """Sparse gradients of an embedding give the weights that dense ones give, and those that Gloo gives."""
    sparse = train("commstream", True)
    torch.testing.assert_close(sparse, train("commstream", False))
    torch.testing.assert_close(sparse, train("gloo", True))


class Ranks:
    def test_types(self):
        self.team.call(case_types)

    def test_shapes(self):
        self.team.call(case_shapes)

    def test_works(self):
        self.team.call(case_works)

    @needs("allreduce_sparse")
    def test_by_name(self):
        self.team.call(case_by_name)

    def test_same_bits(self):
        self.team.call(case_same_bits)

    def test_refused(self):
        self.team.call(case_refused)

    def test_ddp(self):
        self.team.call(case_ddp)


class TwoRanks(Ranks, TeamTest):
    ranks = 2


class FourRanks(Ranks, TeamTest):
    ranks = 4


if __name__ == "__main__":
    unittest.main(verbosity=2)
