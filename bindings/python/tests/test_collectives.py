"""Every collective with every type of element, against numpy."""
import numpy as np
import pytest

import commstream as cs

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
N = 5


def data(dtype, rank, count=N):
    """Small whole numbers, which no type rounds."""
    return ((np.arange(count) + rank) % 3 + 1).astype(dtype)


def run(worlds, call):
    """call(world, rank) of each rank returns a request; all are waited for."""
    requests = [call(world, rank) for rank, world in enumerate(worlds)]
    for request in requests:
        assert request.wait() is True
        assert request.done


@pytest.mark.parametrize("dtype", NUMBERS)
def test_allreduce_of_every_type(worlds, dtype):
    size = len(worlds)
    inputs, outputs = [data(dtype, r) for r in range(size)], [np.zeros(N, dtype) for _ in range(size)]
    run(worlds, lambda world, r: world.allreduce(inputs[r], outputs[r]))
    for out in outputs:
        assert np.array_equal(out, np.sum(inputs, axis=0, dtype=dtype))


OPS = {cs.SUM: np.add, cs.PROD: np.multiply, cs.MIN: np.minimum, cs.MAX: np.maximum, cs.BAND: np.bitwise_and, cs.BOR: np.bitwise_or,
       cs.BXOR: np.bitwise_xor, cs.LAND: np.logical_and, cs.LOR: np.logical_or, cs.LXOR: np.logical_xor}


@pytest.mark.parametrize("op", OPS)
def test_allreduce_with_every_operator_in_place(worlds, op):
    arrays = [data("i4", r) - 1 for r in range(len(worlds))]
    expected = arrays[0].copy()
    for array in arrays[1:]:
        expected = OPS[op](expected, array)
    run(worlds, lambda world, r: world.allreduce(arrays[r], op=op))
    for array in arrays:
        assert np.array_equal(array, expected.astype("i4"))


def test_average_and_bools(worlds):
    size = len(worlds)
    means, bools = [data("f8", r) for r in range(size)], [np.array([r == 0, True, False]) for r in range(size)]
    expected = np.mean(means, axis=0)
    run(worlds, lambda world, r: world.allreduce(means[r], op=cs.AVG))
    run(worlds, lambda world, r: world.allreduce(bools[r], op=cs.LAND))
    for r in range(size):
        assert np.allclose(means[r], expected)
        assert bools[r].tolist() == [False, True, False]


@pytest.mark.parametrize("type,pair", [(cs.F32_INDEX, "f4,i4"), (cs.I64_INDEX, "i8,i8"), (cs.F64_INDEX, "f8,i8"), (cs.I32_INDEX, "i4,i4")])
def test_minloc_by_a_named_type(worlds, type, pair):
    arrays = [np.array([(10 - r, r), (r, r)], dtype=pair) for r in range(len(worlds))]
    run(worlds, lambda world, r: world.allreduce(arrays[r], op=cs.MINLOC, type=type))
    last = len(worlds) - 1
    for array in arrays:
        assert array.tolist() == [(10 - last, last), (0, 0)]


def test_bfloat16_by_a_named_type(worlds):
    one = np.full(3, 0x3F80, "u2")  # 1.0
    arrays = [one.copy() for _ in worlds]
    run(worlds, lambda world, r: world.allreduce(arrays[r], type=cs.BF16))
    expected = {2: 0x4000, 3: 0x4040}[len(worlds)]
    assert all((array == expected).all() for array in arrays)


@pytest.mark.parametrize("dtype", NUMBERS + ["?"])
def test_what_only_moves(worlds, dtype):
    size, last = len(worlds), len(worlds) - 1
    mine = [data(dtype, r) for r in range(size)]
    everything = np.concatenate(mine)
    copies = [m.copy() for m in mine]
    run(worlds, lambda world, r: world.broadcast(copies[r], root=last))
    gathered = [np.zeros(N * size, dtype) for _ in range(size)]
    run(worlds, lambda world, r: world.allgather(mine[r], gathered[r]))
    on_root = np.zeros(N * size, dtype)
    run(worlds, lambda world, r: world.gather(mine[r], on_root if r == last else None, root=last))
    parts = [np.zeros(N, dtype) for _ in range(size)]
    run(worlds, lambda world, r: world.scatter(everything if r == 0 else None, parts[r]))
    blocks, turned = [np.repeat(mine[r][:1], size * 2) for r in range(size)], [np.zeros(size * 2, dtype) for _ in range(size)]
    run(worlds, lambda world, r: world.alltoall(blocks[r], turned[r]))
    for r in range(size):
        assert np.array_equal(copies[r], mine[last])
        assert np.array_equal(gathered[r], everything)
        assert np.array_equal(parts[r], mine[r])
        assert np.array_equal(turned[r], np.repeat([m[0] for m in mine], 2))
    assert np.array_equal(on_root, everything)


@pytest.mark.parametrize("dtype", ["i4", "f8", "c16"])
def test_the_other_reductions(worlds, dtype):
    size = len(worlds)
    mine = [data(dtype, r) for r in range(size)]
    total = np.sum(mine, axis=0)
    result = np.zeros(N, dtype)
    run(worlds, lambda world, r: world.reduce(mine[r], result if r == 0 else None))
    scans, exscans = [np.zeros(N, dtype) for _ in range(size)], [np.zeros(N, dtype) for _ in range(size)]
    run(worlds, lambda world, r: world.scan(mine[r], scans[r]))
    run(worlds, lambda world, r: world.exscan(mine[r], exscans[r]))
    wide, parts = [data(dtype, r, N * size) for r in range(size)], [np.zeros(N, dtype) for _ in range(size)]
    run(worlds, lambda world, r: world.reduce_scatter(wide[r], parts[r]))
    assert np.array_equal(result, total)
    for r in range(size):
        assert np.array_equal(scans[r], np.sum(mine[:r + 1], axis=0))
        assert r == 0 or np.array_equal(exscans[r], np.sum(mine[:r], axis=0))
        assert np.array_equal(parts[r], np.sum(wide, axis=0)[N * r:N * (r + 1)])


def test_in_place(worlds):
    size = len(worlds)
    mine = [data("f4", r) for r in range(size)]
    rooms = [np.zeros(N * size, "f4") for _ in range(size)]
    for r in range(size):
        rooms[r][N * r:N * (r + 1)] = mine[r]
    run(worlds, lambda world, r: world.allgather(cs.IN_PLACE, rooms[r]))
    assert all(np.array_equal(room, np.concatenate(mine)) for room in rooms)
    run(worlds, lambda world, r: world.reduce_scatter(cs.IN_PLACE, rooms[r]))
    assert all(np.array_equal(rooms[r][N * r:N * (r + 1)], size * mine[r]) for r in range(size))
    out = np.zeros(N, "f4")
    source = np.concatenate(mine)
    run(worlds, lambda world, r: world.scatter(source, cs.IN_PLACE) if r == 0 else world.scatter(None, out if r == 1 else out.copy()))
    assert np.array_equal(out, mine[1])
    turned = [np.full(size, r, "i4") for r in range(size)]
    run(worlds, lambda world, r: world.alltoall(turned[r]))
    assert all(array.tolist() == list(range(size)) for array in turned)


def test_blocks_of_different_lengths(worlds):
    size = len(worlds)
    counts = [r + 1 for r in range(size)]
    displs = [3 * r for r in range(size)]
    mine = [data("f8", r, counts[r]) for r in range(size)]
    dense = np.concatenate(mine)
    outs = [np.zeros(dense.size) for _ in range(size)]
    run(worlds, lambda world, r: world.allgather_v(mine[r], outs[r], counts))
    assert all(np.array_equal(out, dense) for out in outs)
    spread = np.zeros(3 * size)
    run(worlds, lambda world, r: world.gather_v(mine[r], spread, counts, displs) if r == 0 else world.gather_v(mine[r]))
    assert all(np.array_equal(spread[displs[r]:displs[r] + counts[r]], mine[r]) for r in range(size))
    parts = [np.zeros(counts[r]) for r in range(size)]
    run(worlds, lambda world, r: world.scatter_v(spread if r == 0 else None, parts[r], np.array(counts), displs))
    assert all(np.array_equal(parts[r], mine[r]) for r in range(size))
    wide = [np.arange(sum(counts), dtype="f8") for _ in range(size)]
    run(worlds, lambda world, r: world.reduce_scatter_v(wide[r], parts[r], counts))
    ends = np.cumsum([0, *counts])
    assert all(np.array_equal(parts[r], size * wide[0][ends[r]:ends[r + 1]]) for r in range(size))
    sent = [np.full(size * (r + 1), r, "i4") for r in range(size)]
    got = [np.zeros(sum(counts), "i4") for _ in range(size)]
    run(worlds, lambda world, r: world.alltoall_v(sent[r], got[r], [r + 1] * size, counts))
    assert all(np.array_equal(array, np.repeat(np.arange(size), counts)) for array in got)


def test_bytes_of_unknown_length(pair):
    text, room = b"a length and that many bytes", bytearray(100)
    requests = [pair[0].broadcast_bytes(text), pair[1].broadcast_bytes(room)]
    assert [request.result() for request in requests] == [len(text)] * 2
    assert room[:len(text)] == text
    requests = [pair[0].broadcast_bytes(None), pair[1].broadcast_bytes(room)]
    for request in requests:
        with pytest.raises(cs.AbortedError):
            request.wait()


def test_results_and_barrier(pair):
    out = np.zeros(1)
    requests = [pair[0].allreduce(np.ones(1), out), pair[1].allreduce(np.ones(1), np.zeros(1))]
    assert requests[0].result() is out and out[0] == 2
    requests[1].wait()
    run(pair, lambda world, r: world.barrier())
