"""Operators written in Python run under a lock of the library: what would need that lock waits or is refused."""
import numpy as np
import pytest

import commstream as cs
from conftest import run_child


def test_callbacks_wait_for_the_end_of_an_operator():
    said = run_child("""
        import traceback, numpy as np, commstream as cs
        pair = cs.open_local(2, progress=cs.Progress.CALLER, operation_timeout=20)
        callers = []

        def add(inout, input):
            np.frombuffer(inout)[:] += np.frombuffer(input)

        def callback(request):
            callers.extend(frame.name for frame in traceback.extract_stack())

        operators = [world.operator(add, element_bytes=8) for world in pair]
        received = pair[1].recv(np.zeros(1024), 0)
        received.add_done_callback(callback)
        arrays = [np.ones(1 << 20) for _ in pair]
        requests = [world.allreduce(a, op=o) for world, a, o in zip(pair, arrays, operators)]
        pair[0].send(np.zeros(1024), 1)
        assert cs.wait_all(requests) and received.wait()
        assert callers and "add" not in callers, callers
        print("sum", arrays[0][0])
        """)
    assert "sum 2.0" in said


def test_objects_that_an_operator_drops():
    said = run_child("""
        import gc, threading, numpy as np, commstream as cs
        pair = cs.open_local(2, progress=cs.Progress.CALLER, operation_timeout=20)
        other = threading.Thread(target=lambda: cs.wait_all([world.barrier() for world in pair]))
        other.start()  # this thread is a guest of the locks then
        other.join()
        gc.disable()

        class Cycle:
            pass

        def add(inout, input):
            gc.collect()
            np.frombuffer(inout)[:] += np.frombuffer(input)

        def drop(world):
            cycle = Cycle()
            with world.plan() as calls:
                calls.barrier()
            cycle.all = [cycle, world.event(), world.mem_alloc(64), world.operator(add, name="dropped", element_bytes=8), calls.plan]

        for world in pair:
            drop(world)
        operators = [world.operator(add, element_bytes=8) for world in pair]
        arrays = [np.ones(1024) for _ in pair]
        assert cs.wait_all([world.allreduce(a, op=o) for world, a, o in zip(pair, arrays, operators)])
        again = pair[0].operator(add, name="dropped", element_bytes=8)
        print("sum", arrays[0][0])
        """)
    assert "sum 2.0" in said


def test_an_operator_may_not_call_the_library(pair):
    event, memory, request, refused = pair[0].event(), pair[0].mem_alloc(8), pair[0].barrier(), []
    calls = {"send": lambda: pair[0].send(b"x", 1), "split": lambda: pair[0].split(0), "close": lambda: pair[0].close(),
             "test": lambda: request.test(), "wait": lambda: request.wait(), "cancel": lambda: request.cancel(),
             "wait_all": lambda: cs.wait_all([request]), "callback": lambda: request.add_done_callback(print), "open": lambda: cs.open(),
             "query": lambda: event.query(), "destroy": lambda: event.destroy(), "free": lambda: memory.free(),
             "describe": lambda: cs.describe_request(request), "done": lambda: request.done, "fileno": lambda: pair[0].fileno()}

    def add(inout, input):
        np.frombuffer(inout)[:] += np.frombuffer(input)
        for name, call in calls.items():
            try:
                call()
            except cs.StateError:
                refused.append(name)
    operators = [world.operator(add, element_bytes=8) for world in pair]
    arrays = [np.ones(1) for _ in pair]
    pair[1].barrier()
    assert cs.wait_all([world.allreduce(a, op=o) for world, a, o in zip(pair, arrays, operators)]) and arrays[0][0] == 2
    assert set(refused) == set(calls)
    memory.free()


def test_views_that_an_operator_keeps_end_with_its_call(pair):
    kept = []
    operators = [world.operator(lambda inout, input: kept.extend((inout, input)), name="keep", element_bytes=8) for world in pair]
    assert cs.wait_all([world.allreduce(np.ones(4), op=operator) for world, operator in zip(pair, operators)])
    assert kept
    for view in kept:
        with pytest.raises(ValueError, match="released"):
            view[0]


@pytest.mark.parametrize("kind", ["i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_pre_multiplied_sums(pair, kind):
    types = {"i1": cs.I8, "u2": cs.U16, "i4": cs.I32, "u8": cs.U64, "f2": cs.F16, "f4": cs.F32, "f8": cs.F64, "c8": cs.C64, "c16": cs.C128}
    factors = [3, 2 + 1j if kind[0] == "c" else 2]
    operators = [world.premul_sum(types[kind], factor) for world, factor in zip(pair, factors)]
    arrays = [np.array([1, 2, 5], kind), np.array([7, 0, 1], kind)]
    want = arrays[0] * np.array(factors[0], kind) + arrays[1] * np.array(factors[1], kind)
    outs = [np.zeros(3, kind) for _ in pair]
    assert cs.wait_all([w.allreduce(a, out, op=o) for w, a, out, o in zip(pair, arrays, outs, operators)])
    assert (outs[0] == want).all() and (outs[1] == want).all()
    with pytest.raises(cs.ArgumentError, match="the type that the pre-multiplied sum was made for"):
        pair[0].allreduce(np.zeros(3, "i8"), op=operators[0])
    operators[0].free()
    assert operators[1].name == "premul_sum" and operators[1].element_bytes == np.dtype(kind).itemsize


def test_pre_multiplied_sums_of_types_that_python_lacks(pair):
    two = np.array([0x4000], "u2")  # bf16
    operators = [world.premul_sum(cs.BF16, two.tobytes()) for world in pair]
    arrays = [np.array([0x3f80, 0x4040], "u2") for _ in pair]  # 1, 3
    assert cs.wait_all([w.allreduce(a, op=o, type=cs.BF16) for w, a, o in zip(pair, arrays, operators)])
    assert (arrays[0] == np.array([0x4080, 0x4140], "u2")).all()  # 4, 12
    for type, factor, text in [(cs.BF16, 2.0, "expected a type that Python has numbers of"), (cs.F32, b"12", "has 2 bytes; expected 4"),
                               (cs.I8, 200, "expected a number that type 8 has"), (cs.F64, 1j, "expected a number that type 29 has"),
                               (77, 1, "type is 77; expected one of commstream.Type")]:
        with pytest.raises(cs.ArgumentError, match=text):
            pair[0].premul_sum(type, factor)
    with pytest.raises(cs.UnsupportedError, match="expected an integer, floating or complex type"):
        pair[0].premul_sum(cs.BYTE, b"1")


def test_a_plan_keeps_a_pre_multiplied_sum(pair):
    arrays, plans = [np.array([1.0]), np.array([2.0])], []
    for world, array in zip(pair, arrays):
        with world.plan() as calls:
            calls.allreduce(array, op=world.premul_sum(cs.F64, 10))
        plans.append(calls.plan)
    for _ in range(2):
        assert cs.wait_all([plan.start() for plan in plans])
    assert arrays[0][0] == 600 and arrays[1][0] == 600
