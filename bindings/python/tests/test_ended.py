"""Objects that are ended while a call uses them: by another thread, or by the code of an argument."""
import threading
from pathlib import Path

import numpy as np
import pytest

import commstream as cs
from conftest import run_child

HERE = str(Path(__file__).parent)


class Ending:
    """A number whose conversion ends something first, as another thread could meanwhile."""

    def __init__(self, end, value=0):
        self.end, self.value = end, value

    def __index__(self):
        self.end()
        return self.value

    def __float__(self):
        self.end()
        return float(self.value)


def in_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_window_that_is_freed_while_arguments_are_read(monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "165")  # glibc fills what is freed
    said = run_child("""
        import sys, numpy as np, commstream as cs
        sys.path.insert(0, sys.argv[1])
        from test_ended import Ending, in_thread
        world = cs.open_local(1)[0]
        calls = {"put": lambda w, n: w.put(np.ones(1), 0, n), "get": lambda w, n: w.get(np.ones(1), 0, n),
                 "signal": lambda w, n: w.signal(0, 0, n), "wait_signal": lambda w, n: w.wait_signal(0, n),
                 "flush": lambda w, n: w.flush(n), "part": lambda w, n: w.part(n)}
        for name, call in calls.items():
            window = world.window(64, signals=1)
            try:
                call(window, Ending(lambda: in_thread(window.free)))
            except cs.ClosedError as error:
                print(name, error)
        world.close()
        """, HERE)
    assert said.splitlines() == [f"{name} the window is closed" for name in ("put", "get", "signal", "wait_signal", "flush", "part")]


def test_events_and_buckets_that_end_while_arguments_are_read(monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
    said = run_child("""
        import sys, numpy as np, commstream as cs
        sys.path.insert(0, sys.argv[1])
        from test_ended import Ending, in_thread
        world = cs.open_local(1)[0]

        def refused(call):
            try:
                call()
            except cs.ClosedError as error:
                print(error)

        for call in (lambda e, n: e.sync(n), lambda e, n: e.record_stream(n)):
            event = world.event()
            refused(lambda: call(event, Ending(lambda: in_thread(event.destroy))))
        for call in (lambda b, n: b.ready(n), lambda b, n: b.wait(n), lambda b, n: b.data(n), lambda b, n: b.ready_stream(0, n),
                     lambda b, n: b.wait_stream(n)):
            buckets = world.buckets([np.ones(10)], op=cs.SUM)
            refused(lambda: call(buckets, Ending(lambda: in_thread(buckets.free))))
        world.close()
        """, HERE)
    assert said.splitlines() == ["the event is closed"] * 2 + ["the bucket list is closed"] * 5


def test_a_communicator_that_is_closed_while_arguments_are_read():
    """Its handle may be another communicator's by then, which must not get the call."""
    worlds = cs.open_local(2)
    first = [request.result() for request in [world.dup(async_op=True) for world in worlds]]
    made = []

    def end():
        for c in first:
            c.close()
        made.extend(request.result() for request in [world.dup(async_op=True) for world in worlds])
    for call in (lambda c, n: c.broadcast(np.ones(1), n), lambda c, n: c.send(np.ones(1), 1, n)):
        with pytest.raises(cs.ClosedError, match="the communicator is closed"):
            call(first[0], Ending(end))
        assert [c.statistics().operations + c.statistics().messages for c in made] == [0, 0]
        first, made = made, []
    for c in first + worlds:
        c.close()


def test_an_operator_that_is_freed(world):
    operator = world.operator(lambda inout, input: None, name="freed", element_bytes=8)
    operator.free()
    operator.free()
    with pytest.raises(cs.ClosedError, match="the operator is closed"):
        world.allreduce(np.ones(1), op=operator)


# An operator in Python runs under the lock of its communicator: calls of other threads are inside the library meanwhile, and wait there.
LOCKED = """
    import sys, threading, numpy as np, commstream as cs
    sys.setswitchinterval(1000)  # a thread that has the GIL keeps it until it gives it up: inside a call of the library, or in a wait
    pair = cs.open_local(2, progress=cs.Progress.CALLER, operation_timeout=60)
    inside, release = threading.Event(), threading.Event()

    def hold(inout, input):
        inside.set()
        release.wait()

    def run(call):
        begun = threading.Event()

        def body():
            begun.set()
            call()
        thread = threading.Thread(target=body)
        thread.start()
        begun.wait()
        return thread

    functions = [hold, lambda inout, input: None]
    operators = [world.operator(f, name="hold", element_bytes=8) for world, f in zip(pair, functions)]

    def lock():
        pair[1].allreduce(np.ones(1), op=operators[1])
        return run(lambda: pair[0].allreduce(np.ones(1), op=operators[0]).wait())
    """


def test_a_plan_that_another_thread_starts_is_not_freed(monkeypatch):
    monkeypatch.setenv("MALLOC_PERTURB_", "165")
    said = run_child(LOCKED + """
    with pair[0].plan() as calls:
        calls.send(np.ones(1), 1)
    plan, ended = calls.plan, threading.Event()
    started = []
    threads = [lock()]
    inside.wait()
    threads.append(run(lambda: started.append(plan.start())))
    threads.append(run(lambda: (plan.free(), ended.set())))
    print("freed early" if ended.wait(0.5) else "not yet")
    release.set()
    for thread in threads:
        thread.join()
    print(pair[1].recv(np.zeros(1), 0).wait(), started[0].wait(), ended.is_set())
    for world in pair:
        world.close()
    """)
    assert said.splitlines() == ["not yet", "True True True"]


def test_memory_that_another_thread_frees_gives_no_views():
    said = run_child(LOCKED + """
    memory = pair[0].mem_alloc(64)
    threads = [lock()]
    inside.wait()
    threads.append(run(memory.free))
    try:
        memoryview(memory).release()
        print("a view of it")
    except BufferError as error:
        print(error)
    memory.free()  # once more, which does nothing
    release.set()
    for thread in threads:
        thread.join()
    for world in pair:
        world.close()
    """)
    assert said.splitlines() == ["this memory is freed"]
