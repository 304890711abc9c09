"""Errors and their fields."""
import inspect
import os
import weakref

import numpy as np
import pytest

import commstream as cs


def test_one_class_for_each_result():
    results = [r for r in cs.Result if r != cs.Result.OK]
    assert sorted(cs.ERRORS) == sorted(results)
    classes = list(cs.ERRORS.values())
    assert len(set(classes)) == len(classes)
    for result, kind in cs.ERRORS.items():
        assert issubclass(kind, cs.Error) and inspect.getdoc(kind)
        assert getattr(cs, kind.__name__) is kind
        assert "COMM_" + result.name == cs.result_name(result)


def test_mismatch_has_the_same_cause_on_every_rank():
    worlds = cs.open_local(2, operation_timeout=60)
    requests = [worlds[0].allreduce(np.ones(2)), worlds[1].allreduce(np.ones(3))]
    errors = []
    for request in requests:
        with pytest.raises(cs.MismatchError) as caught:
            request.wait()
        errors.append(caught.value)
    assert errors[0].text.split(": ", 1)[1] == errors[1].text.split(": ", 1)[1]
    for error in errors:
        assert error.result == cs.Result.ERR_MISMATCH and error.name == "COMM_ERR_MISMATCH"
        assert error.operation == "allreduce" and error.sequence == 1 and "2" in error.text and "3" in error.text
    assert worlds[0].error_detail().text == errors[0].text
    with pytest.raises(cs.MismatchError):
        worlds[0].barrier()
    for world in worlds:
        world.close()


def test_abort_tells_its_code():
    worlds = cs.open_local(2)
    worlds[0].abort(42)
    for world in worlds:
        with pytest.raises(cs.AbortedError, match="42"):
            while True:
                world.barrier().wait(timeout=1)
        world.close()


def test_revoke_agree_shrink():
    import threading
    worlds = cs.open_local(2)
    worlds[0].revoke()
    for world in worlds:
        with pytest.raises(cs.RevokedError):
            world.recv(bytearray(1), 0).wait(timeout=10)
    agreed = [None, None]

    def agree(r):
        agreed[r] = worlds[r].agree(0b1100 if r else 0b0110)
    threads = [threading.Thread(target=agree, args=(r,)) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert agreed == [0b0100] * 2
    first = worlds[0].agree(2**64 - 1, async_op=True)
    assert not first.wait(timeout=0.05)
    assert worlds[1].agree(2**63 + 5, async_op=True).result() == first.result() == 2**63 + 5
    survivors = [request.result() for request in [world.shrink(async_op=True) for world in worlds]]
    assert cs.wait_all([survivor.barrier() for survivor in survivors])
    for c in survivors + worlds:
        c.close()


def test_a_closed_communicator():
    world = cs.open_local(1)[0]
    request = world.recv(bytearray(1), 0)
    world.close()
    world.close()
    for call in (lambda: world.barrier(), lambda: world.sync(), lambda: world.describe(), lambda: world.split(0), lambda: world.fileno(),
                 lambda: world.event(), lambda: world.group(), lambda: cs.open(engine_of=world)):
        with pytest.raises(cs.ClosedError):
            call()
    with pytest.raises(cs.Error) as caught:
        request.wait()
    assert caught.value.result in (cs.Result.ERR_CLOSED, cs.Result.ERR_CANCELLED)
    assert world.closed and "closed" in repr(world)


def test_a_close_that_leaves_work_unfinished_says_so():
    """It is no deadline of an operation, and each request has its own end."""
    worlds = cs.open_local(2, operation_timeout=60)
    unanswered, alone = worlds[0].recv(bytearray(1)), worlds[0].barrier()
    with pytest.raises(cs.TimeoutError, match="^close: work was unfinished when the time was over") as caught:
        worlds[0].close(timeout=0)
    assert caught.value.operation == "close" and worlds[0].closed
    with pytest.raises(cs.CancelledError):
        unanswered.wait()
    with pytest.raises(cs.ClosedError):
        alone.wait()
    worlds[1].close()


def test_open_names_what_is_wrong():
    with pytest.raises(cs.ConfigError) as caught:
        cs.open(rank=5, size=2)
    assert "rank" in caught.value.text and isinstance(caught.value, ValueError)
    with pytest.raises(cs.ArgumentError, match="128"):
        cs.open(id=b"short", rank=0, size=1)
    with pytest.raises(cs.ConfigError, match="no_such_option"):
        cs.open(options={"no_such_option": 1})
    with pytest.raises(cs.UnsupportedError):
        cs.open(backend="nccl")
    with pytest.raises(cs.TimeoutError) as caught:
        cs.open(rank=0, size=2, address="python-tests-nobody", open_timeout=0.3)
    assert isinstance(caught.value, TimeoutError) and "1" in caught.value.text


X = np.ones(4)
WRONG_KINDS = {
    "allreduce: op is 'sum'; expected a commstream.Op": lambda w: w.allreduce(X, op="sum"),
    "allreduce: type is <class 'float'>; expected a commstream.Type": lambda w: w.allreduce(X, type=float),
    "broadcast: root is 1.0; expected an integer": lambda w: w.broadcast(X, root=1.0),
    "send: tag is 'a'; expected an integer": lambda w: w.send(X, 0, "a"),
    "alltoall_v: counts is 4; expected a sequence": lambda w: w.alltoall_v(X, X.copy(), [4], 4),
    "alltoall_v: in_counts is 4.0; expected an integer": lambda w: w.alltoall_v(X, X.copy(), [4.0], [4]),
    "probe: peer is 'a'; expected an integer": lambda w: w.probe("a"),
    "split: color is 0.5; expected an integer": lambda w: w.split(0.5),
    "split_place: place is 'node'; expected a commstream.Place": lambda w: w.split_place("node"),
    "split_mesh: shape is 4; expected a sequence": lambda w: w.split_mesh(4),
    "subset: ranks is 0; expected a sequence": lambda w: w.subset(0),
    "dup: operation_timeout is '1'; expected seconds": lambda w: w.dup(operation_timeout="1"),
    "dup: options is 3; expected a str": lambda w: w.dup(options=3),
    "window: bytes is 'x'; expected an integer": lambda w: w.window("x"),
    "predict: type is 'f8'; expected a commstream.Type": lambda w: w.predict("allreduce", 1, type="f8"),
    "operator: function is 3; expected a function": lambda w: w.operator(3, element_bytes=8),
    "premul_sum: type is 'f8'; expected a commstream.Type": lambda w: w.premul_sum("f8", 2),
    "buckets: gradients is 3; expected a sequence": lambda w: w.buckets(3),
    "abort: code is 'x'; expected an integer": lambda w: w.abort("x"),
    "timeout is 'x'; expected seconds or None": lambda w: w.barrier().wait("x"),
    "add_done_callback: function is 3; expected a function": lambda w: w.barrier().add_done_callback(3),
    "wait_any: requests is .*; expected a list": lambda w: cs.wait_any((w.barrier(),)),
    "wait_all: requests is 3; expected a sequence": lambda w: cs.wait_all(3),
    "open: backend is 3; expected a str": lambda w: cs.open(backend=3),
    "open: log is 3; expected a function": lambda w: cs.open(log=3),
    "open: exchange is 3; expected a function": lambda w: cs.open(exchange=3, rank=0, size=2),
    "open: engine_of is 3; expected a Communicator": lambda w: cs.open(engine_of=3),
    "open: progress is 'thread'; expected a commstream.Progress": lambda w: cs.open(progress="thread"),
    "open: secret is of <class 'str'>; expected bytes": lambda w: cs.open(secret="hidden", rank=0, size=1),
    "open_local: devices is 3; expected a str": lambda w: cs.open_local(1, devices=[3]),
    "record: communicator is 3; expected a Communicator": lambda w: w.event().record(3),
    "record_stream: stream is 'x'; expected the address of a CUDA stream": lambda w: w.event().record_stream("x"),
    "translate: communicator is None; expected a Communicator": lambda w: w.translate(0, None),
    "queue_wait: what is 3; expected an Event or a Request": lambda w: w.queue_wait(3),
    "stream_wait: what is 3; expected an Event or a Request": lambda w: cs.stream_wait(0, 3),
    "wait: requests\\[1\\] is 3; expected a Request or None": lambda w: cs.wait_all([None, 3]),
    "trace_dump: path is None; expected a path": lambda w: w.trace_dump(None),
    "result_name: result is 'x'; expected a commstream.Result": lambda w: cs.result_name("x"),
    "result_text: result is None; expected a commstream.Result": lambda w: cs.result_text(None),
    "describe_request: request is 3; expected a Request": lambda w: cs.describe_request(3),
    "buckets: adopt is None; expected False, True or 2": lambda w: w.buckets([X], adopt=None),
}
WRONG_VALUES = {
    "send: tag is -1; expected 0 to 4294967295": lambda w: w.send(X, 0, -1),
    "allreduce: op is -1; expected 0 to 4294967295": lambda w: w.allreduce(X, op=-1),
    "probe: tag is 4294967296; expected 0 to 4294967295": lambda w: w.probe(0, 1 << 32, 0),
    "subset: tag is -1; expected 0 to 4294967295": lambda w: w.subset([0], -1),
    "split: color is 1099511627776; expected -2147483648 to": lambda w: w.split(1 << 40),
    "agree: flags is -1; expected 0 to 18446744073709551615": lambda w: w.agree(-1),
    "agree: flags is 18446744073709551616; expected 0 to": lambda w: w.agree(1 << 64),
    "window: bytes is -5; expected 0 to": lambda w: w.window(-5),
    "window: signals is -1; expected 0 to 4294967295": lambda w: w.window(8, signals=-1),
    "mem_alloc: bytes is 0; expected 1 to": lambda w: w.mem_alloc(0),
    "mem_alloc_symmetric: bytes is 0; expected 1 to": lambda w: w.mem_alloc_symmetric(0),
    "buckets: bytes is -1; expected 0 to": lambda w: w.buckets([X], bytes=-1),
    "describe_peer: peer is 9; expected 0 to 0": lambda w: w.describe_peer(9),
    "predict: n is -10; expected 0 to": lambda w: w.predict("allreduce", -10),
    "dup: operation_timeout is -1; expected seconds of 0 or more": lambda w: w.dup(operation_timeout=-1),
    "open: open_timeout is -3; expected seconds of 0 or more": lambda w: cs.open(open_timeout=-3),
    "record_stream: stream is -1; expected 0 to 18446744073709551615": lambda w: w.event().record_stream(-1),
    "wait_stream: stream is 18446744073709551616; expected 0 to": lambda w: w.buckets([X]).wait_stream(1 << 64),
    "buckets: adopt is 3; expected 0 to 2": lambda w: w.buckets([X], adopt=3),
    "operator: element_bytes is 0; expected 1 to 4096": lambda w: w.operator(print, element_bytes=0),
    "open_local: size is 0; expected 1 to 1024": lambda w: cs.open_local(0),
    "open: rank is 1 and size is None; expected the number of ranks as size, or neither": lambda w: cs.open(rank=1),
    "open: size is 4 and rank is None; expected this rank too, or neither": lambda w: cs.open(size=4),
    "elements of <Type.F64: 29> and <Type.F32: 28>; expected the same": lambda w: w.allreduce(X, np.ones(4, "f4")),
}


@pytest.mark.parametrize("text", [*WRONG_KINDS, *WRONG_VALUES])
def test_an_argument_that_is_wrong_is_named_with_its_value(world, text):
    kind = TypeError if text in WRONG_KINDS else cs.ArgumentError
    with pytest.raises(kind, match=text) as caught:
        {**WRONG_KINDS, **WRONG_VALUES}[text](world)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("wrong, right", [
    (lambda w: w.split("x"), lambda w: w.split(0, async_op=True)),
    (lambda w: w.split_place("node"), lambda w: w.split_place(cs.Place.NODE, async_op=True)),
    (lambda w: w.split_mesh(2), lambda w: w.split_mesh([2], async_op=True)),
    (lambda w: w.split_mesh([1 << 40]), lambda w: w.split_mesh([2], async_op=True)),
    (lambda w: w.dup(priority=1 << 40), lambda w: w.dup(async_op=True)),
    (lambda w: w.window(-1), lambda w: w.window(8, async_op=True)),
    (lambda w: w.mem_alloc_symmetric(-1), lambda w: w.mem_alloc_symmetric(8, async_op=True)),
    (lambda w: w.window(buffer=X[::2]), lambda w: w.window(8, async_op=True)),
    (lambda w: w.allreduce(X, other=X), lambda w: w.allreduce(X.copy())),
    (lambda w: w.broadcast(), lambda w: w.broadcast(X.copy())),
])
def test_other_ranks_are_told_of_arguments_that_python_refuses(pair, wrong, right):
    request = right(pair[1])
    with pytest.raises((TypeError, cs.ArgumentError)):
        wrong(pair[0])
    with pytest.raises(cs.RefusedError, match="rank 0 refused"):
        request.wait(10)
        pytest.fail("it was not told")


def test_in_place_is_for_the_root(pair):
    with pytest.raises(cs.ArgumentError, match="scatter_v: output is IN_PLACE; expected a buffer"):
        pair[0].scatter_v(output=cs.IN_PLACE, root=1)
    with pytest.raises(cs.ArgumentError, match="gather_v: input is IN_PLACE; expected a buffer"):
        pair[1].gather_v(cs.IN_PLACE, root=0)


def test_a_mesh_with_an_axis_that_fails(world):
    """An engine has 16,384 communicators: there is room for one axis of two, which is closed again."""
    made = []
    with pytest.raises(cs.FullError):
        while True:
            made.append(world.dup())
    made.pop().close()
    with pytest.raises(cs.FullError):
        world.split_mesh([1, 1])
    made.append(world.dup())
    for communicator in made:
        communicator.close()


def test_texts_that_are_no_utf8(world, monkeypatch):
    with pytest.raises(cs.SystemCallError, match="/nowhere/\ufffd/trace"):
        world.trace_dump(b"/nowhere/\xff/trace")
    assert "/nowhere/\ufffd/trace" in world.error_detail().text
    monkeypatch.setitem(os.environb, b"COMM_BACKEND", b"\xff")
    lines = []
    with pytest.raises(cs.ConfigError, match="backend=\ufffd"):
        cs.open(log=lambda level, line: lines.append(line))
    assert any("backend=\ufffd" in line for line in lines)


def test_an_operation_is_named_once(world):
    with pytest.raises(cs.ArgumentError) as caught:
        world.broadcast(X, root=7)
    assert str(caught.value).count("broadcast") == 1
    with pytest.raises(cs.ArgumentError) as caught:
        world.broadcast(X[::2])
    assert str(caught.value).startswith("broadcast: buffer: ")


def test_an_operator_without_a_name_of_its_own(world):
    import functools
    made = world.operator(functools.partial(lambda inout, input: None), element_bytes=8)
    assert made.name == "partial"
    made.free()


def test_exchange_and_its_exception():
    calls = []

    def exchange(data):
        calls.append(len(data))
        return [data]
    with cs.open(rank=0, size=1, exchange=exchange) as world:
        assert world.size == 1

    def failing(data):
        raise KeyError("no store")
    if calls:
        with pytest.raises(KeyError):
            cs.open(rank=0, size=1, exchange=failing)
    with pytest.raises(cs.ArgumentError, match="size"):
        cs.open(exchange=failing)


def test_log():
    lines = []
    with cs.open_local(1, log_level=cs.LogLevel.DEBUG, log=lambda level, line: lines.append((level, line)))[0]:
        pass
    assert lines and all(isinstance(line, str) for _, line in lines)


def test_log_until_the_last_communicator_is_closed():
    def log(level, line):
        pass
    world = cs.open_local(1, log=log)[0]
    last = weakref.ref(log)
    del log
    made = [world.dup(), world.split(0), cs.open(rank=0, size=1, engine_of=world), *world.split_mesh([1])]
    world.close()
    for communicator in made:
        assert last() is not None
        communicator.close()
    assert last() is None


def test_one_engine_for_two_worlds(world):
    with cs.open(rank=0, size=1, engine_of=world) as other:
        assert other.fileno() == world.fileno()
        other.queue_wait(world.barrier())
        other.barrier().wait()


@pytest.mark.parametrize("name", ["Communicator", "Recorder", "Window", "Request", "Plan", "Event", "Buckets", "Memory", "Operator"])
def test_objects_come_from_the_library_alone(name):
    with pytest.raises(TypeError, match="cannot create"):
        getattr(cs, name)()


def memory_of(world):
    return world.mem_alloc(8)


def part_of(world):
    return world.window(8).part()


@pytest.mark.parametrize("make", [memory_of, part_of])
def test_the_error_of_a_block_is_not_replaced_by_that_of_its_views(make):
    """The views of a block live on in the frames of its error."""
    with pytest.raises(ZeroDivisionError):
        with cs.open() as world:
            view = memoryview(make(world))
            1 / 0
    view.release()
    world.close()


def test_the_errors_of_windows_and_buckets_are_kept_too(world):
    with pytest.raises(ZeroDivisionError):
        with world.window(8) as window:
            view = memoryview(window.part())
            1 / 0
    view.release()
    window.free()
    with pytest.raises(ZeroDivisionError):
        with world.buckets([np.ones(1)], adopt=True) as buckets:
            view = memoryview(buckets.data(0))
            1 / 0
    view.release()
    buckets.free()


@pytest.mark.parametrize("sync", ["sync", "sync_all"])
def test_sync_raises_the_error_of_a_dropped_request_once(pair, sync):
    pair[1].recv(bytearray(1), 0)
    pair[0].send(bytes(2), 1).wait()
    asked = pair[1] if sync == "sync" else pair[0]
    with pytest.raises(cs.TruncatedError):
        for _ in range(100):
            getattr(asked, sync)()
    assert getattr(asked, sync)()


def test_sync_raises_no_error_that_is_known(pair):
    """That of a request that was waited for, or was cancelled."""
    request = pair[1].recv(bytearray(1), 0)
    pair[0].send(bytes(2), 1).wait()
    with pytest.raises(cs.TruncatedError):
        request.wait()
    pair[1].recv(bytearray(1), 0).cancel()
    assert cs.wait_all([world.barrier() for world in pair])
    assert pair[1].sync() and pair[1].sync_all()
