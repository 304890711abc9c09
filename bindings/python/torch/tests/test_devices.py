"""Tensors of a device: a device of the tests' own, on the mock CUDA driver, or with COMM_TEST_TORCH_CUDA=1 a real CUDA device (device.py).

There is one process for each rank. It has a device to itself; real devices are shared if there are fewer of them than ranks."""

import copy
import datetime
import functools
import os
import re
import threading
import time
import unittest
import unittest.mock

import torch
import torch.distributed as dist

import device
import samples
from on_device import current, filled, held, here, on_stream, place, place_of, put, same, triangle
from team import eventually, Team, expect, needs, refused


# ---------------------------------------------------------------------------------------------------------------- results
def case_results():
    rank, size = dist.get_rank(), dist.get_world_size()
    t = filled(5000, rank + 1)
    dist.all_reduce(t)
    same(t, triangle())
    t = filled(7, rank + 1)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    same(t, size)
    t = filled(300, rank)
    dist.broadcast(t, src=1)
    same(t, 1)
    t = filled(4, rank + 1)
    dist.reduce(t, dst=0)
    same(t, triangle() if rank == 0 else rank + 1)

    whole = filled(3 * size, -1)
    dist.all_gather_into_tensor(whole, filled(3, rank))
    same(whole, torch.arange(float(size)).repeat_interleave(3))
    part = filled(2, 0)
    dist.reduce_scatter_tensor(part, put(torch.arange(2.0 * size)))
    same(part, [size * (2.0 * rank), size * (2.0 * rank + 1)])
    swapped = filled(2 * size, 0)
    dist.all_to_all_single(swapped, put(torch.arange(2.0 * size) + 100 * rank))
    same(swapped, torch.cat([torch.tensor([2.0 * rank, 2.0 * rank + 1]) + 100 * r for r in range(size)]))
    dist.barrier()


def case_lists():
    """With lists the results are copied at the end, by a stream."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [filled(50, -1) for _ in range(size)]
    dist.all_gather(parts, filled(50, rank))
    for r, part in enumerate(parts):
        same(part, r)
    out = filled(3, -1)
    dist.reduce_scatter(out, [filled(3, rank + r) for r in range(size)])
    same(out, sum(range(size)) + size * rank)
    outs = [filled(2, -1) for _ in range(size)]
    dist.all_to_all(outs, [filled(2, 10 * rank + r) for r in range(size)])
    for r, part in enumerate(outs):
        same(part, 10 * r + rank)
    parts = [filled(2, -1) for _ in range(size)] if rank == 0 else None
    dist.gather(filled(2, rank), parts, dst=0)
    for r, part in enumerate(parts or []):
        same(part, r)
    out = filled(2, -1)
    dist.scatter(out, [filled(2, r) for r in range(size)] if rank == 1 else None, src=1)
    same(out, rank)


def case_strided():
    """Tensors that are not contiguous, before and after."""
    rank, size = dist.get_rank(), dist.get_world_size()
    base = put(torch.zeros(4, 6))
    base.t().fill_(rank + 1)
    dist.all_reduce(base.t())
    same(base, triangle())
    half = put(torch.zeros(8))[::2]
    whole = put(torch.zeros(2 * 4 * size))[::2]
    half.fill_(rank)
    dist.all_gather_into_tensor(whole, half)
    same(whole, torch.arange(float(size)).repeat_interleave(4))


def case_messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    t = filled(1000, rank)
    got = filled(1000, -1)
    works = [dist.isend(t, (rank + 1) % size, tag=3), dist.irecv(got, (rank - 1) % size, tag=3)]
    for work in works:
        work.wait()
    same(got, (rank - 1) % size)
    if rank == 0:
        dist.send(filled(4, 9), 1)
    elif rank == 1:
        got = filled(4, -1)
        assert dist.recv(got) == 0  # from any rank
        same(got, 9)
    ops = [dist.P2POp(dist.isend, t, (rank + 1) % size), dist.P2POp(dist.irecv, got1 := filled(1000, -1), (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(got1, (rank - 1) % size)


def case_coalesced():
    rank = dist.get_rank()
    several = [filled(3, rank + 1), filled(5, 2 * (rank + 1))]
    dist.group.WORLD._get_backend(place()).allreduce_coalesced(several).wait()
    same(several[0], triangle())
    same(several[1], 2 * triangle())


def case_types():
    """Every type, in short and in long tensors."""
    rank, size = dist.get_rank(), dist.get_world_size()
    backend = dist.group.WORLD._get_backend(place())
    options = dist.AllreduceOptions()
    for dtype in samples.ALL:
        for name, n in (("SUM", 1), ("SUM", 5), ("SUM", 1000), ("SUM", 300000), ("MAX", 1000)):
            t = samples.sample(dtype, n, rank).to(place())
            options.reduceOp = samples.OPS[name]
            refusal = refused(lambda: backend.allreduce([t], options).wait())
            without = dtype is torch.complex32 or "fnuz" in str(dtype) or (name == "MAX" and dtype.is_complex)
            assert ("commstream" in refusal) if without else not refusal, f"{dtype} {name}: {refusal}"
            expected = samples.sample(dtype, n, rank) if without else samples.reduced_by_hand(dtype, name, n, size)
            samples.same(t.cpu().to(expected.dtype), expected, f"all_reduce of {n} {dtype}, {name}")


def case_cpu_beside():
    """The same group serves tensors on the CPU."""
    t = torch.ones(3)
    dist.all_reduce(t)
    assert torch.equal(t, torch.full((3,), float(dist.get_world_size())))


# ---------------------------------------------------------------------------------------------------------------- order
def case_order():
    """A call starts behind what its stream has, and returns at once. A wait for a staged operation holds the host, and no stream."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t = filled(1000, -5)
    here().synchronize(current())
    with held() as stream:
        t.fill_(rank + 1)
        work = dist.all_reduce(t, async_op=True)
        time.sleep(0.05)
        assert not work.is_completed()
        if not device.CUDA:
            assert here().peek(t)[0] == -5, "nothing of the stream has run"
        threading.Timer(0.1, stream.let_go).start()
        work.wait()
        assert work.is_completed()
        after = torch.empty_like(t)
        after.copy_(t)
    same(after, triangle())
    dist.barrier()
    # One rank alone holds: the other's work is not complete either.
    t = filled(10, rank + 1)
    if rank == 0:
        with held() as stream:
            t.fill_(7)
            work = dist.all_reduce(t, async_op=True)
            time.sleep(0.1)
            stream.let_go()
    else:
        work = dist.all_reduce(t, async_op=True)
        work.wait()
        copy = torch.empty_like(t)
        copy.copy_(t)
        same(copy, triangle() - 1 + 7)
    work.wait()
    same(t, triangle() - 1 + 7)


def case_other_stream():
    """The second wait is in another stream, for what the first one put on its stream."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [filled(1000, -1) for _ in range(size)]
    work = dist.all_gather(parts, filled(1000, rank), async_op=True)
    work.wait()
    other = here().new_stream()
    with on_stream(other):
        work.wait()
        copies = [torch.empty_like(p) for p in parts]
        for copy, part in zip(copies, parts):
            copy.copy_(part)
        for r, copy in enumerate(copies):
            same(copy, r)


def case_seen_first():
    """The host sees the end before anybody waits: the results are copied on a stream of the pool, for which wait() waits."""
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [filled(1000, -1) for _ in range(size)]
    work = dist.all_gather(parts, filled(1000, rank), async_op=True)
    eventually(work.is_completed)
    work.wait()
    for r, part in enumerate(parts):
        same(part, r)


def case_many():
    """Many operations at once, waited for in either order."""
    for wait_last in (False, True):
        tensors = [filled(100, dist.get_rank() + 1) for _ in range(12)]
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        if wait_last:
            works.reverse()
        for work in works:
            work.wait()
        for t in tensors:
            same(t, triangle())


def case_busy():
    """The stream of the call is far behind the host. It writes the tensor again behind the call."""
    rank, size = dist.get_rank(), dist.get_world_size()
    wide, long = (4096, 1 << 20) if device.CUDA else (32, 1 << 12)
    big = put(torch.eye(wide))
    with on_stream(here().new_stream()):
        results = []
        for step in range(20):
            t = torch.empty(long, device=place()).fill_(0)
            for _ in range(3):
                big @ big
            t.add_(rank + 1 + step)
            work = dist.all_reduce(t, async_op=True)
            work.wait()
            results.append(t * 2)
            t.zero_()
        for step, result in enumerate(results):
            same(result, 2 * (triangle() + size * step))


def case_dropped():
    """Nobody keeps the work or the input: freed memory is written over at once by the stream that allocated it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for _ in range(10):
        outs = [[filled(500, -1) for _ in range(size)] for _ in range(3)]
        works = [dist.all_gather(out, filled(500, rank), async_op=True) for out in outs]
        others = [torch.empty(500, device=place()).fill_(238) for _ in range(6)]  # in the memory that the inputs had, if it is free
        for work in works:
            work.wait()
        del works, work, others
        for out in outs:
            for r, part in enumerate(out):
                same(part, r)
    dist.all_reduce(filled(500, 1), async_op=True)
    dist.barrier()


def case_futures():
    rank, size = dist.get_rank(), dist.get_world_size()
    t = filled(100, rank + 1)
    future = dist.all_reduce(t, async_op=True).get_future()
    same(future.wait()[0], triangle())
    doubled = dist.all_reduce(filled(10, rank + 1), async_op=True).get_future().then(lambda f: f.value()[0] + f.value()[0])
    same(doubled.wait(), 2 * triangle())
    parts = [filled(1000, -1) for _ in range(size)]
    future = dist.all_gather(parts, filled(1000, rank), async_op=True).get_future()
    future.wait()
    for r, part in enumerate(parts):
        same(part, r)
    with held() as stream:
        t.fill_(rank + 1)
        future = dist.all_reduce(t, async_op=True).get_future()
        time.sleep(0.05)
        assert not future.done()
        stream.let_go()
        future.wait()
    same(t, triangle())


def case_functional():
    import torch.distributed._functional_collectives as functional

    rank, size = dist.get_rank(), dist.get_world_size()
    g = dist.group.WORLD
    same(functional.all_reduce(filled(4, rank + 1), "sum", g) + 0, triangle())
    same(functional.all_gather_tensor(filled(4, rank), 0, g) + 0, torch.arange(float(size)).repeat_interleave(4))
    same(functional.reduce_scatter_tensor(filled(4 * size, 1), "sum", 0, g) + 0, size)


def train(model, place):
    """Three steps of gradient descent; returns the weights."""
    options = {"gradient_as_bucket_view": place.type != "cpu", "device_ids": [place] if place.type == "cuda" else None}
    ours = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001, **options)
    for step in range(3):
        x = torch.full((4, 20), 0.1 * (step + 1 + dist.get_rank()))
        model.zero_grad()
        ours(x.to(place)).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)
    return [p.detach().cpu() for p in model.parameters()]


def case_ddp():
    """The reducer's buckets are reduced behind the backward pass, and the optimizer is behind the reductions."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))
    on_device = copy.deepcopy(plain).to(place())
    for p, q in zip(train(on_device, place()), train(plain, torch.device("cpu")), strict=True):
        torch.testing.assert_close(p, q)
    weights = torch.cat([p.detach().flatten() for p in on_device.parameters()])
    everyone = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, weights)
    for other in everyone:
        same(other, weights.cpu())


def case_fsdp():
    """Parameters and gradients are in parts, which streams of FSDP's own gather and reduce."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    sharded = copy.deepcopy(plain).to(place())
    mesh = init_device_mesh(device.KIND, (dist.get_world_size(),))
    for layer in (sharded[0], sharded[2], sharded):
        fully_shard(layer, mesh=mesh)
    for step in range(3):
        x = torch.full((4, 20), 0.1 * (step + 1))
        for model, there in ((plain, "cpu"), (sharded, place())):
            model.zero_grad()
            model(x.to(there)).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=0.1)
    for p, q in zip(plain.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(q.full_tensor().detach().cpu(), p.detach(), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------- refused
def case_refused():
    """By name, and the group goes on."""
    backend = dist.group.WORLD._get_backend(place())
    mixed = [filled(3, 1), torch.ones(3)]
    expect(ValueError, f"tensors on {place()} and on cpu", lambda: backend.allreduce_coalesced(mixed).wait())
    expect(ValueError, f"tensors on cpu and on {place()}", lambda: backend.allgather([[torch.zeros(3), torch.zeros(3)]], [filled(3, 1)]).wait())
    other = place_of(dist.get_rank() + dist.get_world_size())
    if other != place():
        expect(ValueError, f"and on {other}", lambda: backend.allreduce_coalesced([filled(3, 1), torch.empty(3, device=other)]).wait())
    expect(ValueError, "a tensor on meta; expected one on cpu or cuda", lambda: backend.allreduce([torch.ones(3, device="meta")]).wait())
    t = filled(3, 1)
    dist.all_reduce(t)
    same(t, dist.get_world_size())


def case_captured():
    """A call is refused while its stream is captured in a graph. The capture goes on, and so does the group."""
    size = dist.get_world_size()
    t = filled(8, 1)
    wrong = "allreduce: a tensor on .*; the C library does not take it: COMM_ERR_UNSUPPORTED"
    if device.CUDA:
        t.add_(0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            t.add_(1)
            refusal = refused(lambda: dist.all_reduce(t))
            t.add_(1)
        replay = graph.replay
    else:
        here().capture(current(), True)
        refusal = refused(lambda: dist.all_reduce(t))
        here().capture(current(), False)
        replay = functools.partial(t.add_, 2)
    assert refusal and re.search(wrong, refusal), refusal
    expected = 1
    for _ in range(3):  # in turn with launches of the graph
        replay()
        dist.all_reduce(t)
        expected = (expected + 2) * size
        same(t, expected)


def case_no_driver():
    """The library says what is missing, and the group goes on with tensors on the CPU."""
    assert not here().has_driver()
    t = torch.empty(3, device=place())
    expect(ValueError, f"allreduce: a tensor on {place()}; the C library does not take it: COMM_ERR_UNSUPPORTED", lambda: dist.all_reduce(t))
    t = torch.ones(3)
    dist.all_reduce(t)
    assert torch.equal(t, torch.full((3,), 2.0))


# ---------------------------------------------------------------------------------------------------------------- failures
def case_aborted():
    """A failure ends the wait. The work and the next call have it."""
    g = dist.new_group(backend="commstream")
    if dist.get_rank() == 0:
        t = filled(10, 1)
        work = dist.all_reduce(t, group=g, async_op=True)
        dist.barrier()
        expect(dist.DistBackendError, "COMM_ERR_ABORTED", work.wait)
        assert work.is_completed() and not work.is_success()
        here().synchronize(current())
        expect(dist.DistBackendError, "COMM_ERR_ABORTED", lambda: dist.all_reduce(t, group=g))
        expect(dist.DistBackendError, "COMM_ERR_ABORTED", lambda: work.get_future().wait())
    else:
        dist.barrier()
        g._get_backend(place()).abort()
    dist.barrier()


def case_timed_out():
    """The group's own timeout ends what waits for a rank that does not come."""
    g = dist.new_group(backend="commstream", timeout=datetime.timedelta(seconds=2))
    if dist.get_rank() == 0:
        t = filled(10, 1)
        work = dist.all_reduce(t, group=g, async_op=True)
        expect(dist.DistBackendError, "COMM_ERR_TIMEOUT", work.wait)
        assert work.is_completed()
        here().synchronize(current())
    dist.barrier()


class OnDevices(unittest.TestCase):
    variables = {}

    @classmethod
    def setUpClass(cls):
        device.prepare()
        with unittest.mock.patch.dict(os.environ, {**device.variables(), **cls.variables}):
            cls.team = Team(2)

    @classmethod
    def tearDownClass(cls):
        cls.team.close()

    def call(self, *cases):
        for case in cases:
            with self.subTest(case.__name__):
                self.team.call(case)


@device.needed
class Devices(OnDevices):
    def test_results(self):
        self.call(case_results, case_lists, case_strided, case_messages, case_coalesced, case_cpu_beside)

    def test_types(self):
        self.call(case_types)

    def test_order(self):
        self.call(case_order, case_other_stream, case_seen_first, case_many, case_busy, case_dropped)

    def test_futures(self):
        self.call(case_futures)

    def test_functional(self):
        self.call(case_functional)

    def test_ddp(self):
        self.call(case_ddp)

    def test_fsdp(self):
        self.call(case_fsdp)

    def test_refused(self):
        self.call(case_refused)

    def test_captured(self):
        self.call(case_captured)

    @needs("abort")
    def test_aborted(self):
        self.call(case_aborted)

    def test_timed_out(self):
        self.call(case_timed_out)


class OverTcp(Devices):
    variables = {"COMM_BACKEND": "tcp"}


@unittest.skipIf(device.CUDA, "a CUDA device has its driver")
@device.needed
class NoDriver(unittest.TestCase):
    def test_no_driver(self):
        device.prepare()
        with unittest.mock.patch.dict(os.environ, COMMSTREAM_TORCH_TEST_DEVICE="1"):
            team = Team(2)
        team.call(case_no_driver)
        team.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
