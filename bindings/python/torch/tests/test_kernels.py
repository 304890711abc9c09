"""Tensors of a device on backend cuda, on the devices of test_devices.py: their kernels do what is short or long, and all else is staged."""

import unittest

import torch
import torch.distributed as dist

import device
from on_device import filled, put, same, triangle
from test_devices import OnDevices, case_coalesced, case_ddp, case_lists, case_results, case_strided


def case_long():
    rank, size, n = dist.get_rank(), dist.get_world_size(), 150_000
    short, long = filled(100, rank + 1), filled(7 * n, rank + 1)
    works = [dist.all_reduce(short, async_op=True), dist.all_reduce(long, async_op=True)]
    for work in works:
        work.wait()
    same(short, triangle())
    same(long, triangle())
    whole = filled(n * size, -1)
    dist.all_gather_into_tensor(whole, filled(n, rank))
    same(whole, torch.arange(float(size)).repeat_interleave(n))
    part = filled(n, 0)
    dist.reduce_scatter_tensor(part, put(torch.arange(float(size)).repeat_interleave(n) + rank))
    same(part, size * rank + sum(range(size)))


@device.needed
class ByKernels(OnDevices):
    variables = {"COMM_BACKEND": "cuda"}

    def test_results(self):
        self.call(case_results, case_lists, case_strided, case_coalesced, case_long)

    def test_ddp(self):
        self.call(case_ddp)


if __name__ == "__main__":
    unittest.main(verbosity=2)
