"""Errors and their fields."""
import inspect

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


def test_one_engine_for_two_worlds(world):
    with cs.open(rank=0, size=1, engine_of=world) as other:
        assert other.fileno() == world.fileno()
        other.queue_wait(world.barrier())
        other.barrier().wait()


@pytest.mark.parametrize("name", ["Communicator", "Recorder", "Window", "Request", "Plan", "Event", "Buckets", "Memory", "Operator"])
def test_objects_come_from_the_library_alone(name):
    with pytest.raises(TypeError, match="cannot create"):
        getattr(cs, name)()
