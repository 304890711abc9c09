"""Functional collectives in what torch.compile makes, and the gradients through them."""

import os
import shutil
import tempfile
import unittest
import unittest.mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._inductor import config as inductor

from team import group, START_SECONDS, TeamTest

COMPILER = os.environ.get("CXX", "g++").split()[0]  # as torch chooses it


def of_rank(rank):
    """Small integers, so that sums and products are exact; they differ between ranks, rows and columns."""
    return torch.arange(6.0 * dist.get_world_size()).view(-1, 3) + rank + 1


def case_results(compiler):
    g, rank, size = group("commstream"), dist.get_rank(), dist.get_world_size()
    inductor.compile_threads = 1

    @torch.compile(backend=compiler, fullgraph=True)
    def step(x):
        gathered = functional.all_gather_tensor(x * 2, 0, g) + 1
        part = functional.reduce_scatter_tensor(x * 3, "sum", 0, g) + 1
        moved = functional.all_to_all_single(x * 4, None, None, g) + 1
        return functional.all_reduce(x * 5, "sum", g) + 1, gathered, part, moved

    inputs = [of_rank(r) for r in range(size)]
    total, gathered, part, moved = step(inputs[rank])
    assert torch.equal(total, sum(inputs) * 5 + 1), total
    assert torch.equal(gathered, torch.cat(inputs) * 2 + 1), gathered
    assert torch.equal(part, sum(inputs).chunk(size)[rank] * 3 + 1), part
    assert torch.equal(moved, torch.cat([x.chunk(size)[rank] for x in inputs]) * 4 + 1), moved


def case_gradients(compiler):
    """The gradient of a gather is a scattered sum, that of a scattered sum a gather, and blocks go back to where they came from."""
    g, rank, size = group("commstream"), dist.get_rank(), dist.get_world_size()
    inductor.compile_threads = 1

    @torch.compile(backend=compiler, fullgraph=True)
    def step(x):
        moved = functional.all_to_all_single_autograd(x * 2, None, None, g)
        part = functional.reduce_scatter_tensor_autograd(moved * moved, "sum", 0, g)
        return functional.all_gather_tensor_autograd(part + 1, 0, g)

    inputs = [of_rank(r) for r in range(size)]
    weights = torch.arange(6.0 * size).view(-1, 3)
    mine = inputs[rank].clone().requires_grad_()
    out = step(mine)
    (out * weights * (rank + 1)).sum().backward()
    moved = [torch.cat([x.chunk(size)[r] for x in inputs]) for r in range(size)]
    assert torch.equal(out, 4 * sum(x * x for x in moved) + 1), out
    expected = sum(range(1, size + 1)) * weights.chunk(size)[rank].repeat(size, 1) * 8 * inputs[rank]
    assert torch.equal(mine.grad, expected), (mine.grad, expected)


class Compiled(TeamTest):
    """Each test compiles anew, in this process alone: torch would start processes that compile, and keep what they made for other programs."""

    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cache.cleanup)
        with unittest.mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cls.cache.name):
            super().setUpClass()

    def both(self, compiler):
        for case in (case_results, case_gradients):
            with self.subTest(case.__name__):
                self.team.call(case, compiler, seconds=START_SECONDS)

    def test_aot_eager(self):
        self.both("aot_eager")

    @unittest.skipUnless(shutil.which(COMPILER), f"torch.compile finds no C++ compiler of the name {COMPILER}")
    def test_inductor(self):
        self.both("inductor")


if __name__ == "__main__":
    unittest.main(verbosity=2)
