"""What training uses: DistributedDataParallel, FSDP2, device meshes, functional collectives."""

import copy
import os
import re
import time
import unittest
import unittest.mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from team import group, Team, TeamTest


class Net(nn.Module):
    """With `branches`, a forward pass uses one of two layers."""

    def __init__(self, branches=False):
        super().__init__()
        self.first, self.second = nn.Linear(20, 50), nn.Linear(50, 10)
        self.other = nn.Linear(50, 10) if branches else None
        self.norm = nn.BatchNorm1d(50)

    def forward(self, x, other=False):
        x = self.norm(torch.relu(self.first(x)))
        return self.other(x) if other else self.second(x)


def train(backend, steps=3, hook=None, unused=False, accumulate=False, **options):
    """Returns the parameters after a few steps. The data differs between ranks."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(unused), process_group=group(backend), find_unused_parameters=unused, **options)
    if hook:
        model.register_comm_hook(group(backend), hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + dist.get_rank())
    for step in range(steps):
        optimizer.zero_grad()
        if accumulate:
            with model.no_sync():
                model(torch.randn(8, 20)).square().sum().backward()
        # On ranks other than 0 the other branch is unused.
        other = unused and dist.get_rank() > 0 and step % 2 == 1
        model(torch.randn(8, 20), other).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def case_ddp(options):
    if options.get("hook") is True:
        options = {**options, "hook": default_hooks.bf16_compress_hook}
    ours, gloo = train("commstream", **options), train("gloo", **options)
    for a, b in zip(ours, gloo):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, ours)
    for other in everyone:
        assert all(torch.equal(a, b) for a, b in zip(ours, other)), "ranks have different weights"


def case_chained_hook():
    """A hook that calls another collective when the first is done."""

    def hook(g, bucket):
        size = g.size()
        first = dist.all_reduce(bucket.buffer().div_(size), group=g, async_op=True).get_future()
        return first.then(lambda f: dist.all_reduce(f.value()[0].div_(size), group=g, async_op=True).get_future().wait()[0])

    ours, plain = train("commstream", hook=hook), train("commstream")
    for a, b in zip(ours, plain):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def case_call_that_waits():
    """What is called when a future completes waits for a collective that another rank makes later."""

    def again(f):
        if dist.get_rank() == 1:
            time.sleep(0.2)
        return dist.all_reduce(f.value()[0], async_op=True).get_future().wait()[0]

    size = dist.get_world_size()
    if dist.get_rank() == 1:
        time.sleep(0.2)
    several = [dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in range(3)]
    for total in [future.then(again) for future in several]:
        assert total.wait() == size * size, total.wait()


def case_weights():
    return [weights.numpy().tobytes() for weights in train("commstream", bucket_cap_mb=0.001)]


def case_buffers():
    """Buffers are broadcast from rank 0 before each forward pass."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(), process_group=group("commstream"))
    model.module.norm.running_mean.fill_(float(dist.get_rank()))
    model(torch.ones(8, 20))
    means = [torch.empty(50) for _ in range(dist.get_world_size())]
    dist.all_gather(means, model.module.norm.running_mean, group=group("commstream"))
    assert all(torch.equal(m, means[0]) for m in means), means


def case_fsdp():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))
    sharded = copy.deepcopy(plain)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (sharded[0], sharded[2], sharded):
        fully_shard(layer, mesh=mesh)
    a, b = torch.optim.SGD(plain.parameters(), lr=0.1), torch.optim.SGD(sharded.parameters(), lr=0.1)
    for step in range(3):
        x = torch.full((4, 20), 0.1 * (step + 1))
        for model, optimizer in ((plain, a), (sharded, b)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    for p, q in zip(plain.parameters(), sharded.parameters()):
        torch.testing.assert_close(q.full_tensor(), p, rtol=1e-4, atol=1e-5)


def case_polled():
    """Nobody keeps the tensors: the thread that drops them needs the interpreter, which polls."""
    works = []
    for i in range(3000):
        outs = [torch.empty(3) for _ in range(dist.get_world_size())]
        works.append(dist.all_gather(outs, torch.ones(3), async_op=True))
        while len(works) > i % 8:
            works = [work for work in works if not work.is_completed()]


def case_mesh():
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    rank = dist.get_rank()
    for name, peers in (("data", [rank % 2, rank % 2 + 2]), ("tensor", [rank // 2 * 2, rank // 2 * 2 + 1])):
        g = mesh.get_group(name)
        assert dist.get_backend(g) == "commstream", dist.get_backend(g)
        t = torch.tensor(float(rank))
        dist.all_reduce(t, group=g)
        assert t == sum(peers), f"{name}: {t}, expected {sum(peers)}"


def case_tensors_over_a_mesh():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    a, b = torch.randn(8, 6), torch.randn(6, 4)
    product = distribute_tensor(a, mesh, [Shard(1)]) @ distribute_tensor(b, mesh, [Shard(0)])
    torch.testing.assert_close(product.full_tensor(), a @ b)
    moved = distribute_tensor(a, mesh, [Shard(0)]).redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()])
    assert torch.equal(moved.to_local(), a)


def case_functional():
    import torch.distributed._functional_collectives as functional

    g, rank, size = group("commstream"), dist.get_rank(), dist.get_world_size()
    t = torch.full((4,), float(rank))
    total = float(sum(range(size)))
    assert torch.equal(functional.all_reduce(t, "sum", g) + 0, torch.full((4,), total))
    assert torch.equal(functional.all_gather_tensor(t, 0, g) + 0, torch.arange(float(size)).repeat_interleave(4))
    assert torch.equal(functional.reduce_scatter_tensor(torch.ones(4 * size), "sum", 0, g) + 0, torch.full((4,), float(size)))
    assert torch.equal(functional.broadcast(t, 1, g) + 0, torch.ones(4))
    several = functional.all_reduce_coalesced([t, t + 1], "sum", g)
    assert torch.equal(several[1] + 0, torch.full((4,), total + size))
    got = functional.all_to_all_single(torch.arange(4.0 * size), None, None, g) + 0
    assert torch.equal(got, torch.arange(4.0 * rank, 4.0 * rank + 4).repeat(size))


def case_subset():
    """A group of some ranks, in whose ranks its members count."""
    rank = dist.get_rank()
    g = dist.new_group([3, 1], backend="commstream")
    if rank in (1, 3):
        t = torch.tensor([float(rank)])
        dist.all_reduce(t, group=g)
        assert t == 4.0
        dist.broadcast(t.fill_(rank), src=3, group=g)
        assert t == 3.0
        dist.destroy_process_group(g)
    many = [dist.new_group([rank // 2 * 2, rank // 2 * 2 + 1], backend="commstream", use_local_synchronization=True) for _ in range(3)]
    for g in many:
        t = torch.ones(1)
        dist.all_reduce(t, group=g)
        assert t == 2.0
    dist.barrier()


class Training(TeamTest):
    ranks = 2

    def test_ddp(self):
        for options in (
            {},
            {"accumulate": True},
            {"unused": True},
            {"gradient_as_bucket_view": True},
            {"static_graph": True},
            {"bucket_cap_mb": 0.001},
            {"hook": True},
        ):
            with self.subTest(**options):
                self.team.call(case_ddp, options)

    def test_chained_hook(self):
        self.team.call(case_chained_hook)

    def test_call_that_waits(self):
        self.team.call(case_call_that_waits)

    def test_buffers(self):
        self.team.call(case_buffers)

    def test_polled(self):
        self.team.call(case_polled)

    @unittest.skipUnless(hasattr(torch.cpu.Stream, "record_event"), "this torch's fully_shard does not run on CPUs: torch.cpu.Stream has no record_event")
    def test_fsdp(self):
        self.team.call(case_fsdp)

    def test_tensors_over_a_mesh(self):
        self.team.call(case_tensors_over_a_mesh)

    def test_functional(self):
        self.team.call(case_functional)


class SameBits(unittest.TestCase):
    """Training gives the same weights over shared memory and over TCP, with either poller."""

    def weights(self, backend, poller):
        with unittest.mock.patch.dict(os.environ, COMM_BACKEND=backend, COMM_TCP_POLLER=poller):
            team = Team(2)
            by_rank = team.call(case_weights)
            team.close()
        self.assertEqual(by_rank[0], by_rank[1])
        return by_rank[0]

    def test_weights(self):
        expected = self.weights("shm", "auto")
        self.assertEqual(self.weights("tcp", "epoll"), expected)
        try:
            self.assertEqual(self.weights("tcp", "io_uring"), expected)
        except AssertionError as e:
            if said := re.search(r"COMM_TCP_POLLER=io_uring: .*needs no ring", str(e)):
                self.skipTest(said.group())
            raise


class FourRanks(TeamTest):
    ranks = 4

    def test_mesh(self):
        self.team.call(case_mesh)

    def test_subset(self):
        self.team.call(case_subset)


if __name__ == "__main__":
    unittest.main(verbosity=2)
