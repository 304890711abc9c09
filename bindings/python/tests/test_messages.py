"""Messages, requests, callbacks, groups and plans."""
import threading
import time

import numpy as np
import pytest

import commstream as cs
from conftest import run_child


def until(world, condition, seconds=30):
    """Makes progress until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        world.progress()


def test_send_and_recv(pair):
    room = np.zeros(8, "i4")
    got = pair[1].recv(room)
    pair[0].send(np.arange(3, dtype="i4"), 1, tag=7).wait()
    status = got.result()
    assert status == cs.Status(peer=0, tag=7, bytes=12)
    assert room[:3].tolist() == [0, 1, 2]
    assert got.operation == "recv" and got.communicator is pair[1] and got.error is None


def test_probe(pair):
    assert pair[1].probe(timeout=0) is None
    pair[0].send(b"abc", 1, tag=4).wait()
    assert pair[1].probe(0, 4, timeout=5) == (0, 4, 3)
    assert pair[1].recv(bytearray(3), 0, 4).result().bytes == 3


def test_wait_with_a_timeout(pair):
    request = pair[1].recv(bytearray(4), 0)
    start = time.monotonic()
    assert request.wait(timeout=0.15) is False
    assert 0.1 < time.monotonic() - start < 5
    assert request.test() is False and request.done is False
    with pytest.raises(cs.PendingError):
        request.result(timeout=0)
    with pytest.raises(cs.ArgumentError, match="timeout is -1"):
        request.wait(timeout=-1)
    pair[0].send(b"1234", 1)
    assert request.wait(timeout=10) is True and request.done is True


def test_cancel_and_truncation_end_one_request(pair):
    request = pair[1].recv(bytearray(4), 0, 9)
    assert request.cancel() is True
    with pytest.raises(cs.CancelledError) as caught:
        request.wait()
    assert caught.value.operation == "recv"
    assert request.error is caught.value and request.cancel() is False
    request = pair[1].recv(bytearray(1), 0)
    pair[0].send(b"long", 1)
    with pytest.raises(cs.TruncatedError):
        request.wait()
    assert cs.wait_all([world.barrier() for world in pair])


def test_any_and_some(pair):
    rooms = [bytearray(1) for _ in range(3)]
    requests = [pair[1].recv(room, 0, tag) for tag, room in enumerate(rooms)]
    assert cs.wait_any(requests, timeout=0) == -1
    pair[0].send(b"b", 1, 1).wait()
    assert cs.wait_any(requests) == 1 and requests[1] is None
    pair[0].send(b"c", 1, 2).wait()
    assert cs.wait_some(requests) == [2]
    assert cs.wait_some(requests, timeout=0) == []
    requests[0].cancel()
    with pytest.raises(cs.CancelledError):
        cs.wait_any(requests)
    assert requests == [None] * 3 and cs.wait_any(requests) is None
    assert cs.wait_all([]) is True


def test_the_first_error_of_all(pair):
    requests = [pair[1].recv(bytearray(1), 0, tag) for tag in range(2)]
    assert cs.wait_all(requests, timeout=0.01) is False
    requests[1].cancel()
    pair[0].send(b"x", 1, 0)
    with pytest.raises(cs.CancelledError):
        cs.wait_all(requests)
    assert requests[0].done and requests[0].error is None


def test_all_that_were_complete_before_the_close():
    worlds = cs.open_local(2)
    requests = [world.barrier() for world in worlds]
    assert cs.wait_all(requests)
    for world in worlds:
        world.close()
    assert cs.wait_all(requests) and cs.wait_some(list(requests)) == [0, 1] and cs.wait_any(list(requests)) == 0


def test_callbacks(pair):
    seen = []
    request = pair[1].recv(bytearray(1), 0)
    request.add_done_callback(lambda r: seen.append((r.done, r.result().peer)))
    assert seen == []
    pair[0].send(b"x", 1)
    request.wait()
    until(pair[0], lambda: seen == [(True, 0)])
    request.add_done_callback(lambda r: seen.append("again"))
    assert seen[-1] == "again"
    failing = pair[1].recv(bytearray(1), 0)
    failing.add_done_callback(lambda r: seen.append(type(r.error)))
    failing.cancel()
    with pytest.raises(cs.CancelledError):
        failing.wait()
    until(pair[0], lambda: seen[-1] is cs.CancelledError)


def test_a_callback_is_called_once_while_another_thread_waits():
    said = run_child("""
        import collections, sys, threading, commstream as cs
        sys.setswitchinterval(1e-6)
        pair = cs.open_local(2, progress=cs.Progress.THREAD, operation_timeout=60)
        calls = collections.Counter()
        for i in range(1000):
            received = pair[1].recv(bytearray(1), 0)
            waiting = threading.Thread(target=received.wait)
            waiting.start()
            pair[0].send(b"x", 1)
            received.add_done_callback(lambda request, i=i: calls.update([i]))
            waiting.join()
        while len(calls) < 1000:
            pair[1].progress()
        print("called", len(calls), set(calls.values()))
        """)
    assert "called 1000 {1}" in said


def test_a_callback_that_is_due_while_another_request_is_completed():
    """What completes a forgotten receive runs Python code: there the main thread looks for callbacks, and must do so again."""
    pair, called = cs.open_local(2, progress=cs.Progress.CALLER, operation_timeout=60), []
    pair[1].recv(bytearray(1), 0, tag=1)
    request = pair[1].recv(bytearray(1), 0, tag=2)
    request.add_done_callback(called.append)
    with pair[0].group() as both:
        both.send(b"x", 1, tag=1)
        both.send(b"x", 1, tag=2)
    for _ in range(1000):
        len(called)
    assert called == [request]
    for world in pair:
        world.close()


def test_last_sync_and_progress(pair):
    for world in pair:
        world.barrier()
    last = pair[0].last()
    assert pair[1].sync() is True and last.wait() and pair[0].sync_all(timeout=5)
    while not pair[0].progress():
        pass
    assert pair[0].fileno() >= 0 and pair[0].arm() in (True, False)
    pair[1].recv(bytearray(1), 0)
    assert pair[1].sync(timeout=0.01) is False


def test_groups(pair):
    arrays = [np.full(3, r + 1.0) for r in range(2)]
    rooms = [bytearray(2) for _ in pair]
    recorders = []
    for r, world in enumerate(pair):
        with world.group() as group:
            assert group.allreduce(arrays[r]) is None
            group.send(b"hi", 1 - r)
            group.recv(rooms[r], 1 - r)
        recorders.append(group)
    for group in recorders:
        group.request.wait()
    assert rooms == [b"hi", b"hi"] and arrays[0].tolist() == [3, 3, 3]


def test_a_group_that_raises_starts_nothing(pair):
    for world in pair:
        with pytest.raises(ZeroDivisionError):
            with world.group() as group:
                group.allreduce(np.ones(1))
                1 / 0
        assert group.request is None and group.closed
    assert cs.wait_all([world.barrier() for world in pair])


def test_the_last_operation_of_a_recorder(world):
    with world.group() as calls, pytest.raises(cs.StateError, match="last"):
        calls.last()


def test_a_plan_that_raises_is_none(pair):
    x = np.ones(2)
    recorders = []
    for world in pair:
        with pytest.raises(KeyError), world.plan() as recorder:
            recorder.allreduce(x)
            recorders.append(recorder)
            raise KeyError("of the program")
    assert [recorder.plan for recorder in recorders] == [None, None]
    values = [np.ones(2), np.ones(2)]
    assert cs.wait_all([world.allreduce(value) for world, value in zip(pair, values)]) and (values[0] == 2).all()


def test_plans(pair):
    arrays = [np.ones(2) for _ in pair]
    plans = []
    for r, world in enumerate(pair):
        with world.plan() as calls:
            calls.allreduce(arrays[r])
            with calls.group() as group:
                group.send(arrays[r], 1 - r)
                group.recv(np.zeros(2), 1 - r)
            assert group.request is None
        plans.append(calls.plan)
    for step in range(1, 4):
        assert cs.wait_all([plan.start() for plan in plans])
        assert arrays[0].tolist() == [2 ** step] * 2
    for plan in plans:
        with plan:
            pass
        with pytest.raises(cs.ClosedError):
            plan.start()


def test_a_plan_keeps_its_buffers(pair):
    plans = []
    for world in pair:
        recorder = world.plan()
        recorder.allreduce(np.ones(1000))
        plans.append(recorder.end())
    for _ in range(3):
        assert cs.wait_all([plan.start() for plan in plans])


def test_a_plan_keeps_its_events(monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "165")  # glibc fills what is freed
    said = run_child("""
        import commstream as cs
        world = cs.open_local(1)[0]
        dropped, destroyed = world.event(), world.event()
        with world.plan() as calls:
            calls.queue_wait(dropped)
            calls.queue_wait(destroyed)
            calls.barrier()
        del dropped
        destroyed.destroy()
        print([calls.plan.start().wait(20) for _ in range(3)])
        try:
            destroyed.query()
        except cs.ClosedError as error:
            print(error)
        """)
    assert "[True, True, True]" in said and "the event is closed" in said


def test_what_another_thread_waits_for_is_not_freed(monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
    said = run_child("""
        import threading, time, numpy as np, commstream as cs
        pair = cs.open_local(2, operation_timeout=20)
        received, event, gate = pair[0].recv(bytearray(1), 1), pair[0].event(), pair[0].event()
        event.record(pair[0])
        gate.reset()
        buckets = [world.dup(async_op=True) for world in pair]
        buckets = [request.result().buckets([np.ones(100)]) for request in buckets]
        ended = {}

        def wait(name, call):
            try:
                ended[name] = call(20)
            except cs.Error as error:
                ended[name] = error.name

        calls = {"event": event.sync, "gate": gate.sync, "buckets": buckets[0].wait}
        threads = [threading.Thread(target=wait, args=item) for item in calls.items()]
        for thread in threads:
            thread.start()
        time.sleep(0.3)  # waits look for signals each 0.1 s
        event.destroy()
        gate.destroy()
        try:
            buckets[0].free()
        except cs.StateError as error:
            print(error)
        time.sleep(0.3)
        pair[1].send(b"x", 0)
        buckets[1].wait()
        for thread in threads:
            thread.join()
        print(sorted(ended.items()))
        buckets[0].free()
        """)
    assert "another call on these buckets is running" in said
    assert "[('buckets', True), ('event', True), ('gate', 'COMM_ERR_ABANDONED')]" in said


def test_operators(pair):
    def product(inout, left):
        a, b = np.frombuffer(left, "i8").reshape(-1, 2, 2), np.frombuffer(inout, "i8").reshape(-1, 2, 2)
        b[:] = a @ b

    operators = [world.operator(product, name="product", element_bytes=32, ordered=True) for world in pair]
    matrices = [np.array([[1, 1], [0, 1]]), np.array([[1, 0], [1, 1]])]
    assert cs.wait_all([world.allreduce(m, op=o) for world, m, o in zip(pair, [m.copy() for m in matrices], operators)])
    results = [m.copy() for m in matrices]
    assert cs.wait_all([world.allreduce(m, op=o) for world, m, o in zip(pair, results, operators)])
    assert (results[0] == matrices[0] @ matrices[1]).all() and (results[1] == results[0]).all()
    assert operators[0].name == "product" and operators[0].element_bytes == 32 and operators[0].error is None
    for o in operators:
        o.free()


def test_an_operator_that_raises(pair):
    def bad(inout, left):
        raise KeyError("no sum")

    operators = [world.operator(bad, element_bytes=8) for world in pair]
    requests = [world.allreduce(np.ones(1), op=o) for world, o in zip(pair, operators)]
    errors = 0
    for request in requests:
        try:
            request.wait()
        except KeyError:
            errors += 1
    assert errors >= 1 and any(isinstance(o.error, KeyError) for o in operators)
    failed = [request for request in requests if request.error]
    with pytest.raises(KeyError):
        cs.wait_any(failed)
    assert failed[0] is None


def test_an_operator_that_raises_in_a_group_and_a_plan(pair):
    def bad(inout, left):
        raise KeyError("no sum")

    operators = [world.operator(bad, element_bytes=8) for world in pair]
    groups, plans = [], []
    for world, o in zip(pair, operators):
        with world.group() as group:
            group.barrier()
            group.allreduce(np.ones(1), op=o)
        groups.append(group.request)
    for world, o in zip(pair, operators):
        with world.plan() as plan, plan.group() as group:
            group.allreduce(np.ones(1), op=o)
        plans.append(plan.plan)
    for requests in groups, [plan.start() for plan in plans]:
        with pytest.raises(KeyError):
            cs.wait_all(requests)
        errors = [request.error for request in requests]
        assert errors == [o.error for o in operators]


def test_the_lock_of_the_interpreter_is_free_in_a_wait(pair):
    """A wait on one thread that only a send of another one ends, and a thread that counts meanwhile."""
    request = pair[1].recv(bytearray(1), 0)
    count, stop = [0], threading.Event()

    def counting():
        while not stop.is_set():
            count[0] += 1

    def sending():
        time.sleep(0.3)
        pair[0].send(b"x", 1).wait()

    threads = [threading.Thread(target=counting), threading.Thread(target=sending)]
    for thread in threads:
        thread.start()
    request.wait()
    before = count[0]
    stop.set()
    for thread in threads:
        thread.join()
    assert before > 1000


def test_an_operator_and_calls_on_other_threads():
    """The library calls the operator on a thread that waits, while others make calls that enter the engine: none waits for the other."""
    worlds = cs.open_local(2, operation_timeout=60, progress=cs.Progress.THREAD)
    stop = threading.Event()

    def add(inout, left):
        a, b = np.frombuffer(inout, "f8"), np.frombuffer(left, "f8")
        a += b

    def asking():
        while not stop.is_set():
            worlds[0].statistics(), worlds[0].describe(), worlds[0].mem_alloc(4096).free()
            with worlds[0].event() as event:
                event.record(worlds[0])

    operators = [world.operator(add, element_bytes=8) for world in worlds]
    thread = threading.Thread(target=asking)
    thread.start()
    for _ in range(300):
        arrays = [np.ones(100), np.ones(100)]
        assert cs.wait_all([world.allreduce(a, op=o) for world, a, o in zip(worlds, arrays, operators)])
        assert arrays[0][99] == 2
    stop.set()
    thread.join()
    for world in worlds:
        world.close()


def test_many_threads_wait_for_one_request(pair):
    wrong = []

    def waiting(request, barrier):
        barrier.wait()
        if request.result().bytes != 8:
            wrong.append(request)

    for _ in range(100):
        request, barrier = pair[1].recv(np.zeros(1), 0), threading.Barrier(5)
        threads = [threading.Thread(target=waiting, args=(request, barrier)) for _ in range(4)]
        for thread in threads:
            thread.start()
        barrier.wait()
        pair[0].send(np.ones(1), 1)
        for thread in threads:
            thread.join()
    assert not wrong


def test_threads_with_a_communicator_each(pair):
    wrong = []
    copies = [[request.result() for request in [world.dup(async_op=True) for world in pair]] for _ in range(4)]

    def using(worlds):
        for _ in range(500):
            arrays = [np.ones(10), np.ones(10)]
            for request in [world.allreduce(array) for world, array in zip(worlds, arrays)]:
                request.wait()
            if arrays[0][0] != 2:
                wrong.append(arrays)
    threads = [threading.Thread(target=using, args=(worlds,)) for worlds in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for world in sum(copies, []):
        world.close()


def test_close_ends_the_wait_of_another_thread(pair):
    ended = []

    def waiting():
        try:
            pair[0].recv(bytearray(1), 1).wait(timeout=60)
        except cs.Error as error:
            ended.append(error.result)
    thread = threading.Thread(target=waiting)
    thread.start()
    time.sleep(0.1)
    pair[0].close()
    thread.join()
    assert ended in ([cs.Result.ERR_CANCELLED], [cs.Result.ERR_CLOSED])
