"""Windows, events, buckets, communicators made of others, and what is told of them."""
import ctypes

import numpy as np
import pytest

import commstream as cs
from conftest import run_child


def made(worlds, call):
    return [request.result() for request in [call(world, r) for r, world in enumerate(worlds)]]


def free(windows):
    """Freeing is collective: each rank of this process needs a thread."""
    import threading
    threads = [threading.Thread(target=window.free) for window in windows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(window.freed for window in windows)


def test_one_sided(pair):
    windows = made(pair, lambda world, r: world.window(64, signals=2, async_op=True))
    windows[0].put(np.arange(4, dtype="i8"), 1).wait()
    windows[0].flush(1).wait()
    windows[0].signal(1, slot=1).wait()
    windows[1].wait_signal(1).wait()
    view = np.frombuffer(windows[1].part(), "i8")
    assert view[:4].tolist() == [0, 1, 2, 3]
    room = np.zeros(2, "i8")
    assert windows[0].get(room, 1, offset=16).result() is room and room.tolist() == [2, 3]
    windows[0].accumulate(np.full(2, 10, "i8"), 1, op=cs.SUM).wait()
    old = np.zeros(1, "i8")
    windows[0].fetch_op(np.array([5]), old, 1, offset=0, op=cs.REPLACE).wait()
    assert old[0] == 10
    windows[0].compare_swap(np.array([5]), np.array([6]), old, 1).wait()
    assert old[0] == 5
    assert cs.wait_all([window.fence() for window in windows])
    assert view[0] == 6
    with pytest.raises(cs.ArgumentError):
        windows[0].put(np.zeros(100), 1)
    with pytest.raises(BufferError):
        windows[1].free()
    del view
    free(windows)
    with pytest.raises(cs.ClosedError):
        windows[0].put(np.zeros(1), 1)


def test_views_of_a_window_keep_its_communicator_open(pair):
    windows = made(pair, lambda world, r: world.window(64, async_op=True))
    view = np.frombuffer(windows[0].part(), "i8")
    with pytest.raises(BufferError):
        pair[0].close()
    assert view[0] == 0 and not pair[0].closed
    del view
    free(windows)


def test_window_of_ones_own_memory(pair):
    arrays = [np.zeros(4), np.zeros(4)]
    windows = made(pair, lambda world, r: world.window(buffer=arrays[r], async_op=True))
    windows[1].put(np.ones(2), 0, offset=8).wait()
    assert cs.wait_all([window.fence() for window in windows])
    assert arrays[0].tolist() == [0, 1, 1, 0]
    free(windows)


def test_events(pair):
    with pair[0].event() as event:
        assert event.query() is True
        event.reset()
        pair[0].queue_wait(event)
        requests = [world.barrier() for world in pair]
        assert not requests[0].wait(timeout=0.05) and not event.sync(timeout=0.01)
        event.set()
        assert cs.wait_all(requests) and event.sync()
        event.record(pair[0])
        assert event.sync(timeout=5)
        with pytest.raises(cs.StateError):
            event.set()
    with pytest.raises(cs.ClosedError):
        event.query()


def test_one_queue_waits_for_a_request_of_another(pair):
    others = made(pair, lambda world, r: world.dup(name="second", async_op=True))
    held = [world.barrier() for world in pair[:1]]
    others[0].queue_wait(held[0])
    after = [other.barrier() for other in others]
    assert not after[0].wait(timeout=0.05)
    held.append(pair[1].barrier())
    assert cs.wait_all(held + after)
    assert others[0].describe().name == "second"
    for other in others:
        other.close()


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver: the device's own tests are in tests/cuda")
def test_streams_are_refused_by_name_without_a_device(pair):
    with pair[0].event() as event:
        event.reset()
        for call in (lambda: event.record_stream(0), lambda: pair[0].queue_wait_stream(0), lambda: cs.stream_wait(0, event),
                     lambda: pair[0].stream(), lambda: cs.stream_wait(0, pair[0].barrier()), lambda: pair[0].stream_sync(timeout=5)):
            with pytest.raises(cs.UnsupportedError):
                call()
        event.set()
    pair[1].barrier().wait()


@pytest.mark.parametrize("adopt", [False, True])
def test_buckets(pair, adopt):
    gradients = [[np.full(3, r + 1.0, "f4"), np.full(2, 10.0 * r, "f4")] for r in range(2)]
    buckets = [world.buckets(g, op=cs.SUM, adopt=adopt) for world, g in zip(pair, gradients)]
    if adopt:
        inside = [[np.frombuffer(b.data(i), "f4") for i in range(len(b))] for b in buckets]
        for r in range(2):
            for mine, theirs in zip(inside[r], gradients[r]):
                mine[:] = theirs
        gradients = inside
    for b in buckets:
        b.ready(1)
        b.ready(0)
        with pytest.raises(cs.StateError):
            b.ready(0)
    while not all(b.wait(timeout=0.01) for b in buckets):
        pass
    assert gradients[0][0].tolist() == [3, 3, 3] and gradients[1][1].tolist() == [10, 10]
    for b in buckets:
        b.hold()
        b.hold(False)
        with pytest.raises(cs.UnsupportedError):
            b.ready_stream(0, 0)
        with pytest.raises(cs.UnsupportedError):
            b.wait_stream(0)
    if adopt:
        with pytest.raises(BufferError):
            buckets[0].free()
        del gradients, inside, mine, theirs
    for b in buckets:
        with b:
            pass


def test_communicators_of_communicators(worlds):
    size = len(worlds)
    halves = made(worlds, lambda world, r: world.split(r % 2, -r, async_op=True))
    assert [half.size for half in halves] == [(size + 1) // 2 if r % 2 == 0 else size // 2 for r in range(size)]
    assert halves[0].rank == halves[0].size - 1
    assert worlds[0].translate(0, halves[0]) == halves[0].rank and worlds[0].translate(1, halves[0]) == -1
    none = made(worlds, lambda world, r: world.split(cs.NO_COLOR if r == 0 else 1, async_op=True))
    assert none[0] is None and none[1].size == size - 1
    host = made(worlds, lambda world, r: world.split_place(cs.Place.NODE, async_op=True))
    assert host[0].size == size
    mesh = made(worlds, lambda world, r: world.split_mesh([1, size], async_op=True))
    assert [axis.size for axis in mesh[0]] == [1, size]
    first = made(worlds[:2], lambda world, r: world.subset([1, 0], async_op=True))
    assert [c.rank for c in first] == [1, 0]
    for c in [*halves, *none[1:], *host, *first, *[axis for axes in mesh for axis in axes]]:
        c.close()
        assert c.closed


def test_descriptions(pair):
    info = pair[0].describe()
    assert info.rank == 0 and info.ranks == 2 and info.queue_max > 0
    assert pair[0].describe_peer(1).local == 1
    before = pair[0].statistics().operations
    requests = [world.allreduce(np.ones(1)) for world in pair]
    assert cs.wait_all(requests)
    assert pair[0].statistics().operations == before + 1
    told = cs.describe_request(requests[0])
    assert told.result == 0 and told.sequence >= 1 and told.bytes == 8 and told.algorithm
    assert {"shm", "tcp", "mpi", "nccl"} <= {b.name for b in cs.describe_backends()}
    assert "queue" in " ".join(o.key for o in cs.describe_options()) and all(a.collective for a in cs.describe_algorithms())
    assert "allreduce" in pair[0].explain("allreduce", 100) and pair[0].predict("allreduce", 100) > 0
    assert "=" in pair[0].describe_machine() or pair[0].describe_machine()
    assert [cs.type_size(kind) for kind in (cs.Type.BOOL, cs.Type.BF16, cs.Type.F64_INDEX, 3)] == [1, 2, 16, 0]
    assert cs.result_name(-10) == "COMM_ERR_PEER" and "rank" in cs.result_text(-10)
    assert ".".join(map(str, cs.version())) == cs.__version__
    assert pair[0].error_detail() is None
    assert repr(pair[0]) == "<Communicator rank 0 of 2>"


def test_trace(pair, tmp_path):
    assert cs.wait_all([world.barrier() for world in pair])
    pair[0].trace_dump(tmp_path / "trace.json")
    assert "barrier" in (tmp_path / "trace.json").read_text()


def test_a_part_cannot_be_read_after_the_close():
    """The close unmaps it."""
    said = run_child("""
        import commstream as cs
        world = cs.open()
        part = world.window(1 << 20).part()
        world.close()
        try:
            print(memoryview(part)[0])
        except BufferError as error:
            print("refused:", error)
        """)
    assert "refused: this memory is freed" in said
