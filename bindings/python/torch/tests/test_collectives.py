"""Every collective and message, beside the results of Gloo."""

import resource
import sys
import unittest
from pathlib import Path

import torch
import torch.distributed as dist

from samples import ALL, COMPLEX, FLOAT8, FLOATS, INTEGERS, OPS, UNSIGNED, Op, bits, reduced_by_hand, same, sample
from team import group, monitored_barrier, raw, refused, TeamTest


def allreduce(backend, t, op):
    options = dist.AllreduceOptions()
    options.reduceOp = op
    raw(backend).allreduce([t], options).wait()
    return t


def case_reductions(dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    counted = {"both": [], "ours": [], "gloo": [], "none": []}
    for name, op in OPS.items():
        for n in (1, 5, 3000):
            ours, gloo = sample(dtype, n, rank), sample(dtype, n, rank)
            our_error = refused(lambda: allreduce("commstream", ours, op))
            gloo_error = refused(lambda: allreduce("gloo", gloo, op))
            if not our_error and not gloo_error:
                if dtype is torch.bool:  # in Gloo the sum of two truths is a byte of 2
                    ours, gloo = ours.view(torch.uint8) != 0, gloo.view(torch.uint8) != 0
                same(ours, gloo, f"allreduce {dtype} {name} {n}")
            elif not our_error:
                expected = reduced_by_hand(dtype, name, n, size)
                same(ours.to(expected.dtype), expected, f"allreduce {dtype} {name} {n}")
            elif our_error:
                assert "commstream" in our_error, our_error
            kind = "none" if our_error and gloo_error else "gloo" if our_error else "ours" if gloo_error else "both"
        counted[kind].append(name)
    return counted


def case_reduce_family(dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in ("SUM", "MAX"):
        if dtype.is_complex and name == "MAX":
            continue
        expected = sample(dtype, 60 * size, 0)
        for r in range(1, size):
            other = sample(dtype, 60 * size, r)
            expected = expected + other if name == "SUM" else torch.maximum(expected, other)
        for root in range(size):
            t = sample(dtype, 60 * size, rank)
            dist.reduce(t, root, op=OPS[name], group=group("commstream"))
            if rank == root:
                same(t, expected, f"reduce {dtype} {name}")
        mine = expected.chunk(size)[rank]
        out = torch.empty(60, dtype=dtype)
        dist.reduce_scatter_tensor(out, sample(dtype, 60 * size, rank), op=OPS[name], group=group("commstream"))
        same(out, mine, f"reduce_scatter_tensor {dtype} {name}")
        out = torch.empty(60, dtype=dtype)
        parts = list(sample(dtype, 60 * size, rank).chunk(size))
        dist.reduce_scatter(out, parts, op=OPS[name], group=group("commstream"))
        same(out, mine, f"reduce_scatter {dtype} {name}")


def case_moves(dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    ours = group("commstream")
    everyone = [sample(dtype, 12, r) for r in range(size)]
    mine = everyone[rank]

    t = mine.clone()
    dist.broadcast(t, 1, group=ours)
    same(t, everyone[1], f"broadcast {dtype}")

    out = [torch.empty(12, dtype=dtype) for _ in range(size)]
    raw("commstream").allgather([out], [mine]).wait()
    for r in range(size):
        same(out[r], everyone[r], f"all_gather {dtype}")

    flat = torch.empty(12 * size, dtype=dtype)
    raw("commstream")._allgather_base(flat, mine).wait()
    for r in range(size):
        same(flat[12 * r : 12 * r + 12], everyone[r], f"all_gather_into_tensor {dtype}")
    flat = torch.empty(12 * size, dtype=dtype)
    flat[12 * rank : 12 * rank + 12].copy_(mine)
    raw("commstream")._allgather_base(flat, flat[12 * rank : 12 * rank + 12]).wait()
    for r in range(size):
        same(flat[12 * r : 12 * r + 12], everyone[r], f"all_gather_into_tensor in place {dtype}")

    for root in range(size):
        out = [torch.empty(12, dtype=dtype) for _ in range(size)] if rank == root else []
        options = dist.GatherOptions()
        options.rootRank = root
        raw("commstream").gather([out] if out else [], [mine], options).wait()
        for r in range(len(out)):
            same(out[r], everyone[r], f"gather {dtype}")
        options = dist.ScatterOptions()
        options.rootRank = root
        got = torch.empty(12, dtype=dtype)
        raw("commstream").scatter([got], [everyone] if rank == root else [], options).wait()
        same(got, mine, f"scatter {dtype}")

    whole = sample(dtype, 6 * size, rank)
    got = torch.empty(6 * size, dtype=dtype)
    raw("commstream").alltoall_base(got, whole, [], []).wait()
    for r in range(size):
        same(got[6 * r : 6 * r + 6], sample(dtype, 6 * size, r)[6 * rank : 6 * rank + 6], f"all_to_all_single {dtype}")

    # Rank a sends a + b + 1 elements to rank b.
    sends = [rank + r + 1 for r in range(size)]
    whole = sample(dtype, sum(sends), rank)
    got = torch.empty(sum(sends), dtype=dtype)
    raw("commstream").alltoall_base(got, whole, sends, sends).wait()
    expected = []
    for r in range(size):
        theirs = [r + q + 1 for q in range(size)]
        expected.append(sample(dtype, sum(theirs), r)[sum(theirs[:rank]) : sum(theirs[: rank + 1])])
    same(got, torch.cat([bits(e) for e in expected]).view(dtype), f"uneven all_to_all_single {dtype}")
    got = [torch.empty(n, dtype=dtype) for n in sends]
    raw("commstream").alltoall(got, list(whole.split(sends))).wait()
    for r in range(size):
        same(got[r], expected[r], f"all_to_all {dtype}")

    right, left = (rank + 1) % size, (rank - 1) % size
    got = torch.empty(12, dtype=dtype)
    sent = dist.isend(mine, right, group=ours, tag=3)
    dist.recv(got, left, group=ours, tag=3)
    sent.wait()
    same(got, everyone[left], f"send {dtype}")


def case_python_calls():
    """By the names that users call."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for backend in ("commstream", "gloo"):
        g = group(backend)
        t = torch.arange(4.0) + rank
        out = [torch.empty(4) for _ in range(size)]
        dist.all_gather(out, t, group=g)
        assert all(torch.equal(out[r], torch.arange(4.0) + r) for r in range(size))
        flat = torch.empty(4 * size)
        dist.all_gather_into_tensor(flat, t, group=g)
        assert torch.equal(flat, torch.cat(out))
        dist.gather(t, out if rank == 0 else None, dst=0, group=g)
        dist.scatter(t, out if rank == 0 else None, src=0, group=g)
        assert torch.equal(t, torch.arange(4.0) + rank)
        objects = [None] * size
        dist.all_gather_object(objects, {"rank": rank}, group=g)
        assert objects == [{"rank": r} for r in range(size)]
        one = [{"of": rank}]
        dist.broadcast_object_list(one, src=1, group=g)
        assert one == [{"of": 1}]
        dist.barrier(group=g)
        monitored_barrier(g)
        assert dist.get_backend(g) == backend
    z = torch.complex(torch.ones(3), torch.full((3,), float(rank)))
    dist.all_reduce(z, group=group("commstream"))
    assert torch.equal(z, torch.complex(torch.full((3,), float(size)), torch.full((3,), float(sum(range(size))))))


def case_forms_of_one_tensor():
    """By the names that newer torch has. gather_single is not Gloo's."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, everyone = torch.full((2,), float(rank)), torch.arange(float(size)).repeat_interleave(2)
    for g in (group("commstream"), group("gloo")):
        dist.all_gather_single(flat := torch.empty(2 * size), mine, group=g)
        assert torch.equal(flat, everyone)
        dist.reduce_scatter_single(part := torch.empty(2), everyone, group=g)
        assert torch.equal(part, mine * size)
    for root in range(size):
        got = torch.empty(2 * size) if rank == root else None
        dist.gather_single(mine, got, dst=root, group=group("commstream"))
        assert rank != root or torch.equal(got, everyone)


def case_premul():
    rank, size = dist.get_rank(), dist.get_world_size()
    t = torch.full((10,), float(rank + 1))
    dist.all_reduce(t, op=dist._make_nccl_premul_sum(0.5), group=group("commstream"))
    assert torch.equal(t, torch.full((10,), 0.5 * sum(range(1, size + 1))))
    source = torch.full((10 * size,), float(rank + 1))
    out = torch.empty(10)
    dist.reduce_scatter_tensor(out, source, op=dist._make_nccl_premul_sum(torch.tensor([2.0])), group=group("commstream"))
    assert torch.equal(out, torch.full((10,), 2.0 * sum(range(1, size + 1))))
    assert torch.equal(source, torch.full((10 * size,), float(rank + 1))), "the input was changed"


def case_strides():
    """Tensors that are not contiguous, share memory, or are empty."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ours = group("commstream")
    base = torch.zeros(6, 8)
    view = base.t()[::2]
    view.fill_(rank + 1)
    raw("commstream").allreduce([view]).wait()
    total = float(sum(range(1, size + 1)))
    assert torch.equal(view, torch.full((4, 6), total))
    assert base.sum() == 24 * total, "elements beside the view were written"

    view = torch.arange(12.0).view(3, 4).t() * (rank + 1)
    raw("commstream").broadcast([view]).wait()
    assert torch.equal(view, torch.arange(12.0).view(3, 4).t())

    out = [torch.empty(4, 3).t() for _ in range(size)]
    raw("commstream").allgather([out], [(torch.ones(4, 3) * rank).t()]).wait()
    assert all(torch.equal(out[r], torch.full((3, 4), float(r))) for r in range(size))

    channels = torch.full((2, 3, 4, 4), float(rank)).to(memory_format=torch.channels_last)
    dist.all_reduce(channels, group=ours)
    assert torch.equal(channels, torch.full((2, 3, 4, 4), float(sum(range(size)))))

    conjugate = torch.complex(torch.ones(4), torch.ones(4)).conj()
    raw("commstream").allreduce([conjugate]).wait()
    assert torch.equal(conjugate.resolve_conj(), torch.complex(torch.ones(4), -torch.ones(4)) * size)

    whole = torch.arange(4.0 * size) + 100 * rank
    dist.all_to_all_single(whole, whole, group=ours)
    assert torch.equal(whole, torch.cat([torch.arange(4.0 * rank, 4.0 * rank + 4) + 100 * r for r in range(size)]))

    whole = torch.ones(4 * size)
    dist.reduce_scatter_tensor(whole[4 * rank : 4 * rank + 4], whole, group=ours)
    assert torch.equal(whole[4 * rank : 4 * rank + 4], torch.full((4,), float(size)))

    nothing = torch.empty(0)
    dist.all_reduce(nothing, group=ours)
    dist.broadcast(nothing, 0, group=ours)
    raw("commstream").allgather([[torch.empty(0) for _ in range(size)]], [nothing]).wait()
    dist.all_to_all_single(nothing, nothing, group=ours)
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar, group=ours)
    assert scalar == sum(range(size))


def case_nothing():
    """An exchange in which no rank gives anything, or one rank alone takes nothing and gives nothing."""
    rank, size = dist.get_rank(), dist.get_world_size()
    g = group("commstream")
    dist.all_to_all([torch.empty(0) for _ in range(size)], [torch.empty(0) for _ in range(size)], group=g)
    for shape, splits in (((0, 4), [0] * size), ((size, 0), [1] * size)):
        dist.all_to_all_single(torch.empty(shape), torch.empty(shape), splits, splits, group=g)
    takes = [1 if peer == rank == 0 else 0 for peer in range(size)]
    got = torch.zeros(sum(takes))
    dist.all_to_all_single(got, torch.ones(sum(takes)), takes, takes, group=g)
    assert got.sum() == (rank == 0)


def case_shared_elements():
    """Elements of an output that share memory are refused before anything is sent."""
    size = dist.get_world_size()
    one = torch.ones(1).expand(4)
    calls = [
        lambda: raw("commstream").allreduce([one]),
        lambda: raw("commstream").broadcast([one], _rooted(0)),
        lambda: raw("commstream").allgather([[one] * size], [torch.ones(4)]),
    ]
    for call in calls:
        said = refused(call)
        assert said and "share memory" in said and "[4]" in said and "[0]" in said, said
    dist.all_reduce(t := torch.ones(1), group=group("commstream"))
    assert t == size


def case_uneven():
    """List forms whose tensors differ in length, which Gloo does not take."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ours = group("commstream")
    out = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(out, torch.full((rank + 1,), float(rank)), group=ours)
    assert all(torch.equal(out[r], torch.full((r + 1,), float(r))) for r in range(size))
    got = torch.empty(rank + 1)
    dist.reduce_scatter(got, [torch.full((r + 1,), float(r)) for r in range(size)], group=ours)
    assert torch.equal(got, torch.full((rank + 1,), float(rank * size)))


def case_asynchronous():
    rank, size = dist.get_rank(), dist.get_world_size()
    ours = group("commstream")
    tensors = [torch.full((n,), float(rank)) for n in (1, 1000, 300000, 7)]
    works = [dist.all_reduce(t, group=ours, async_op=True) for t in tensors]
    total = float(sum(range(size)))
    for work, t in reversed(list(zip(works, tensors))):
        assert work.wait()
        assert work.is_completed() and work.is_success()
        assert torch.equal(t, torch.full_like(t, total))
    t = torch.full((200000,), float(rank))
    future = dist.all_reduce(t, group=ours, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    assert torch.equal(future.wait(), torch.full_like(t, 2 * total)), "then() of a future"
    # Nobody holds the work or waits for it: it goes on by itself.
    t = torch.full((100000,), float(rank))
    dist.all_reduce(t, group=ours, async_op=True)
    last = dist.all_reduce(torch.ones(1), group=ours, async_op=True)
    last.get_future().wait()
    assert torch.equal(t, torch.full_like(t, total))
    before = raw("commstream")._get_sequence_number_for_group()
    dist.all_reduce(t, group=ours)
    assert raw("commstream")._get_sequence_number_for_group() == before + 1


def case_futures_asked_again():
    """Futures that are asked for while another thread completes them. A work completes its future once, whoever sees its end."""
    ours = group("commstream")
    t = torch.zeros(2)
    for i in range(8000):
        work = dist.all_reduce(t, group=ours, async_op=True)
        futures = [work.get_future()]
        for _ in range(i % 64):
            futures.append(work.get_future())
        for future in futures:
            future.wait()


KEPT = torch.ones(16)


def case_many(count):
    """Collectives that are waited for, asked for by their future, and dropped. Returns the process's bytes, and the tensor's references."""
    ours = group("commstream")
    for i in range(count):
        work = dist.all_reduce(KEPT.fill_(1), group=ours, async_op=i % 4 > 0)
        if i % 4 == 1:
            work.wait()
        elif i % 4 == 2:
            work.get_future().wait()
    dist.barrier(group=ours)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize(), sys.getrefcount(KEPT)


def case_messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    ours = group("commstream")
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            t = torch.empty(3)
            source = dist.recv(t, group=ours)
            assert torch.equal(t, torch.full((3,), float(source)))
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.full((3,), float(rank)), 0, group=ours)
    dist.barrier(group=ours)  # or a receive from any rank may take what a faster rank sends next
    big = torch.full((500000,), float(rank))
    got = torch.empty(500000)
    right, left = (rank + 1) % size, (rank - 1) % size
    calls = [dist.P2POp(dist.isend, big, right, group=ours), dist.P2POp(dist.irecv, got, left, group=ours)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert torch.equal(got, torch.full_like(got, float(left)))
    # By tag, not by order.
    one, two = torch.ones(2), torch.full((2,), 2.0)
    works = [dist.isend(one, right, group=ours, tag=1), dist.isend(two, right, group=ours, tag=2)]
    first, second = torch.empty(2), torch.empty(2)
    dist.recv(second, left, group=ours, tag=2)
    dist.recv(first, left, group=ours, tag=1)
    for work in works:
        work.wait()
    assert torch.equal(first, one) and torch.equal(second, two)
    dist.barrier(group=ours)


def case_refusals():
    rank = dist.get_rank()
    backend = raw("commstream")
    text = refused(lambda: backend.allreduce([torch.eye(2).to_sparse_csr()]))
    assert "sparse" in text or "layout" in text, text
    assert "cpu" in refused(lambda: backend.allreduce([torch.ones(2, device="meta")]))
    assert "expected 0 to" in refused(lambda: backend.broadcast([torch.ones(1)], _rooted(9)))
    assert "rows" in refused(lambda: backend.alltoall_base(torch.empty(4), torch.empty(4), *[[1] * dist.get_world_size()] * 2))
    assert "cannot reduce" in refused(lambda: allreduce("commstream", torch.ones(2, dtype=torch.complex32), Op.SUM))
    # What was refused on all ranks disturbs nothing.
    t = torch.ones(2)
    dist.all_reduce(t, group=group("commstream"))
    assert t[0] == dist.get_world_size(), rank


def _switches_of_engine():
    """How often the threads that complete work for which nobody waits have slept."""
    slept = 0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "commstream":
            lines = (task / "status").read_text().splitlines()
            slept += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
    return slept


def case_waits_need_no_thread():
    """Also in a torch whose flight recorder is told when each operation completes."""
    t, g = torch.ones(4), group("commstream")
    dist.barrier(group=g)
    before = _switches_of_engine()
    for _ in range(300):
        dist.all_reduce(t, op=dist.ReduceOp.MAX, group=g)
    slept = _switches_of_engine() - before
    assert slept < 30, f"the thread slept {slept} times during 300 calls that the caller waits for"


def _rooted(root):
    options = dist.BroadcastOptions()
    options.rootRank = root
    return options


class Collectives(TeamTest):
    ranks = 2
    backend = "gloo"

    def test_reductions(self):
        for dtype in FLOATS + INTEGERS + UNSIGNED + FLOAT8[:2] + COMPLEX + [torch.bool]:
            with self.subTest(dtype=dtype):
                counted = self.team.call(case_reductions, dtype)[0]
                lost = set(counted["gloo"])
                self.assertFalse(lost, f"Gloo reduces {dtype} with {lost}")
                self.assertTrue(counted["both"] + counted["ours"])

    def test_reduce_family(self):
        for dtype in FLOATS + INTEGERS + COMPLEX:
            with self.subTest(dtype=dtype):
                self.team.call(case_reduce_family, dtype)

    def test_moves(self):
        for dtype in ALL:
            with self.subTest(dtype=dtype):
                self.team.call(case_moves, dtype)

    def test_python_calls(self):
        self.team.call(case_python_calls)

    @unittest.skipIf(not hasattr(dist, "gather_single"), "torch has the older names alone")
    def test_forms_of_one_tensor(self):
        self.team.call(case_forms_of_one_tensor)

    def test_premul_sum(self):
        self.team.call(case_premul)

    def test_strides(self):
        self.team.call(case_strides)

    def test_nothing(self):
        self.team.call(case_nothing)

    def test_shared_elements(self):
        self.team.call(case_shared_elements)

    def test_uneven_lists(self):
        self.team.call(case_uneven)

    def test_asynchronous(self):
        self.team.call(case_asynchronous)

    def test_futures_asked_again(self):
        self.team.call(case_futures_asked_again)

    def test_no_leak(self):
        before = [self.team.call(case_many, 10_000) for _ in range(2)][-1]
        after = [self.team.call(case_many, 10_000) for _ in range(10)][-1]
        for (bytes_before, references), (bytes_after, references_after) in zip(before, after):
            self.assertLess(bytes_after - bytes_before, 4 << 20)
            # The last one may still be settled by the thread that completes it.
            self.assertLessEqual(references_after - references, 1)

    def test_messages(self):
        self.team.call(case_messages)

    @unittest.skipIf(not hasattr(dist.AllreduceOptions(), "asyncOp"), "torch does not say whether the caller waits")
    def test_waits_need_no_thread(self):
        self.team.call(case_waits_need_no_thread)

    def test_refusals(self):
        self.team.call(case_refusals)


class CollectivesOfThree(Collectives):
    ranks = 3
    test_no_leak = None  # once is enough


if __name__ == "__main__":
    unittest.main(verbosity=2)
