"""What may be passed as a buffer, and what is refused with which words."""
import array
import ctypes
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import commstream as cs


class Interface:
    """An object with memory that __cuda_array_interface__ tells of."""

    def __init__(self, values, **other):
        self.values = values
        inside = values.__array_interface__
        self.__cuda_array_interface__ = {"shape": inside["shape"], "typestr": inside["typestr"], "data": inside["data"], "version": 3, **other}


class Capsule:
    """An object that has only DLPack."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **words):
        return self.values.__dlpack__(**words)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.mark.parametrize("make", [bytearray, lambda b: array.array("B", b), lambda b: np.frombuffer(bytearray(b), "u1"),
                                  lambda b: memoryview(bytearray(b)), lambda b: (ctypes.c_uint8 * len(b))(*b)])
def test_the_buffer_protocol(pair, make):
    buffers = [make(b"\x01\x02"), make(b"\x03\x04")]
    requests = [world.allreduce(buffer) for world, buffer in zip(pair, buffers)]
    assert cs.wait_all(requests)
    assert bytes(buffers[0]) == bytes(buffers[1]) == b"\x04\x06"


@pytest.mark.parametrize("kind", [Interface, Capsule])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u2", "c8", "?", "f2"])
def test_other_protocols_take_no_copy(pair, kind, dtype):
    inside = [np.ones(4, dtype), np.zeros(4, dtype)]
    objects = [kind(values) for values in inside]
    op = cs.LOR if dtype == "?" else cs.SUM
    assert cs.wait_all([world.allreduce(o, op=op) for world, o in zip(pair, objects)])
    assert (inside[0] == 1).all() and (inside[1] == 1).all()


def test_zero_elements_and_zero_dimensions(pair):
    assert cs.wait_all([world.allreduce(np.zeros(0)) for world in pair])
    scalars = [np.array(3.0), np.array(4.0)]
    assert cs.wait_all([world.allreduce(s) for world, s in zip(pair, scalars)])
    assert scalars[0] == 7


def refused(call, *words):
    with pytest.raises(cs.ArgumentError) as caught:
        call()
    for word in words:
        assert word in caught.value.text, caught.value.text
    assert isinstance(caught.value, ValueError)
    assert caught.value.result == cs.Result.ERR_ARGUMENT


def test_refusals(pair):
    world = pair[0]
    grid = np.zeros((4, 4))
    refused(lambda: world.allreduce(grid[:, ::2]), "input", "dense in C order", "ascontiguousarray")
    refused(lambda: world.allreduce(grid.T[1:]), "dense in C order")
    refused(lambda: world.allreduce(Interface(np.zeros((2, 2)), strides=(8, 16))), "dense in C order", "strides")
    refused(lambda: world.allreduce(Capsule(grid[:, ::2])), "dense in C order")
    refused(lambda: world.allreduce(b"fixed"), "input", "writable")
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    refused(lambda: world.allreduce(np.zeros(3), frozen), "output", "writable")
    refused(lambda: world.allreduce(3), "buffer protocol", "int")
    refused(lambda: world.allreduce(np.zeros(3, "S3")), "format", "type=")
    refused(lambda: world.allreduce(np.zeros(3, ">f8")), "format")
    refused(lambda: world.allreduce(bytearray(6), type=cs.F32), "6 bytes", "4 bytes")
    refused(lambda: world.allreduce(np.zeros(3), type=77), "type is 77")
    refused(lambda: world.allreduce(np.zeros(3), np.zeros(4)), "4 elements", "expected 3")
    refused(lambda: world.allreduce(np.zeros(3), np.zeros(3, "f4")), "same")
    refused(lambda: world.allgather(np.zeros(3), np.zeros(5)), "5 elements", "expected 6")
    refused(lambda: world.reduce_scatter(np.zeros(3), np.zeros(1)), "multiple of 2")
    refused(lambda: world.allgather_v(np.zeros(3), np.zeros(5), [1]), "counts has 1 items", "expected 2")
    refused(lambda: world.allgather_v(np.zeros(3), np.zeros(5), [3, 3]), "5 elements", "expected 6")
    refused(lambda: world.send(np.zeros(1), 1, tag=-1), "tag is -1")
    refused(lambda: world.scatter(None, np.zeros(1)), "input is None")
    with pytest.raises(TypeError, match="allreduce.. needs argument 'input'"):
        world.allreduce()
    with pytest.raises(TypeError, match="no argument 'inputs'"):
        world.allreduce(inputs=3)
    with pytest.raises(TypeError, match="twice"):
        world.allreduce(np.zeros(1), input=np.zeros(1))
    with pytest.raises(TypeError, match="too many"):
        world.barrier(1)


class Interchange:
    """An object whose DLPack tells of elements of a type of one's own."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32), ("axes", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                    ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]

    def __init__(self, memory, count, code, bits, lanes):
        self.shape = (ctypes.c_int64 * 1)(count)
        self.memory = memory
        address = memory.ctypes.data if memory is not None else None
        self.tensor = self.Tensor(address, 1, 0, 1, code, bits, lanes, ctypes.addressof(self.shape), None, 0)

    def __dlpack__(self, **words):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def test_elements_of_several_lanes_are_their_bytes(pair):
    """Such as torch's float4_e2m1fn_x2, which has two lanes of 4 bits."""
    inside = [np.arange(1, 5, dtype="u1"), np.zeros(4, "u1")]
    objects = [Interchange(memory, 4, 17, 4, 2) for memory in inside]
    assert cs.wait_all([world.broadcast(o, type=cs.BYTE) for world, o in zip(pair, objects)])
    assert bytes(inside[1]) == b"\x01\x02\x03\x04"
    refused(lambda: pair[0].broadcast(Interchange(inside[0], 8, 1, 4, 1), type=cs.BYTE), "buffer", "whole bytes", "4 bits")


class Versioned(Capsule):
    """An object that has only DLPack of version 1."""

    def __dlpack__(self, *, max_version):
        return self.values.__dlpack__(max_version=max_version)


def test_dlpack_with_a_version(pair):
    memory = [np.full(3, rank + 1.0) for rank in range(2)]
    assert cs.wait_all([world.allreduce(Versioned(m)) for world, m in zip(pair, memory)])
    assert memory[0].tolist() == [3, 3, 3]
    fixed = [np.ones(3), np.ones(3)]
    for array_ in fixed:
        array_.flags.writeable = False
    assert cs.wait_all([world.allreduce(Versioned(f), m) for world, f, m in zip(pair, fixed, memory)])
    assert memory[1].tolist() == [2, 2, 2]
    refused(lambda: pair[0].recv(Versioned(fixed[0]), 1), "buffer", "writable", "read-only")


def test_addresses_of_nothing(pair):
    """An empty torch tensor has no address. No rank has elements to exchange."""
    nothing = [Interchange(None, 0, 2, 32, 1) for _ in pair]
    zeros = [0, 0]
    assert cs.wait_all([world.alltoall_v(o, o, zeros, zeros) for world, o in zip(pair, nothing)])
    assert cs.wait_all([world.allreduce(o) for world, o in zip(pair, nothing)])


def test_a_type_does_not_hide_what_elements_are(pair):
    """Pointers mean nothing on another rank, and type= does not turn bytes around."""
    objects = np.array([1, "two"], dtype=object)
    inside = np.zeros(2, dtype=[("number", "i4"), ("pointer", "O")])
    for array in (objects, inside):
        for type in (None, cs.BYTE, cs.U64):
            refused(lambda: pair[0].send(array, 1, type=type), "buffer", "Python objects")
    named_so = np.zeros(2, dtype=[("O", "i4")])
    swapped = [np.arange(3, dtype=">f8"), np.zeros(3, dtype=">f8")]
    pairs = np.zeros(3, dtype=[("a>b", "f8"), ("index", ">i8")])
    refused(lambda: pair[0].send(pairs, 1, type=cs.F64_INDEX), "buffer", "big-endian", "index")
    assert pair[0].send(pairs.astype([("a>b", "f8"), ("index", "i8")]), 0, type=cs.F64_INDEX) and pair[0].recv(pairs, 0, type=cs.BYTE).wait()
    for array in (swapped[0], Interface(swapped[0])):
        refused(lambda: pair[0].send(array, 1, type=cs.F64), "buffer", "big-endian", "f")
    requests = [pair[0].send(swapped[0], 1, type=cs.BYTE), pair[0].send(named_so, 1, tag=1, type=cs.BYTE),
                pair[1].recv(swapped[1], 0, type=cs.BYTE), pair[1].recv(named_so.copy(), 0, tag=1, type=cs.BYTE)]
    assert cs.wait_all(requests)
    assert (swapped[1] == [0, 1, 2]).all()


def test_memory_that_is_registered(pair):
    """Whatever has an address, until the registration is over."""
    values = np.zeros(4096)
    for kind in (lambda v: v, Interface, Capsule):
        taken = kind(values)
        watch = weakref.ref(taken) if kind is Interface else None
        with pair[0].mem_register(taken):
            del taken
            gc.collect()
            assert watch is None or watch()
        gc.collect()
        assert watch is None or not watch()
    room = bytearray(8192)
    with pair[0].mem_register(room), pytest.raises(BufferError):
        room.clear()
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    refused(lambda: pair[0].mem_register(frozen), "buffer", "writable")
    refused(lambda: pair[0].mem_register(values[::2]), "buffer", "dense in C order")
    refused(lambda: pair[0].mem_register([1]), "buffer", "list")


def test_memory_whose_registration_was_dropped_is_not_registered(pair):
    memory = np.ones(4)
    pair[0].mem_register(memory)
    with pair[0].mem_register(memory):
        pass


COLLECTIVES = {
    "allreduce": lambda w, b: w.allreduce(b), "broadcast": lambda w, b: w.broadcast(b), "allgather": lambda w, b: w.allgather(b, np.zeros(8)),
    "reduce": lambda w, b: w.reduce(b, np.zeros(4)), "gather": lambda w, b: w.gather(b, np.zeros(8)),
    "scatter": lambda w, b: w.scatter(np.zeros(8), b), "broadcast_bytes": lambda w, b: w.broadcast_bytes(b),
    "reduce_scatter_v": lambda w, b: w.reduce_scatter_v(b, np.zeros(2), [2, 2]), "scan": lambda w, b: w.scan(b),
    "alltoall_v": lambda w, b: w.alltoall_v(b, np.zeros(4), [2, 2], [2, 2]), "alltoall": lambda w, b: w.alltoall(b),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_one_rank_refuses_fails_on_the_others(name):
    """They are told which rank it was, as in C, and do not wait for a call that never comes."""
    worlds = cs.open_local(2)
    refused(lambda: COLLECTIVES[name](worlds[1], np.ones((4, 4))[:, 1]), "dense")
    with pytest.raises(cs.RefusedError) as caught:
        COLLECTIVES[name](worlds[0], np.ones(4)).wait(timeout=30)  # a root may be done before it is told
        worlds[0].barrier().wait(timeout=30)
    assert caught.value.rank == 1 and caught.value.operation == name
    for world in worlds:
        world.close()


def test_a_collective_that_all_ranks_refuse_ends_that_call_alone(pair):
    for call in COLLECTIVES.values():
        for world in pair:
            refused(lambda: call(world, np.ones((4, 4))[:, 1]), "dense")
    assert cs.wait_all([w.barrier() for w in pair])


def test_a_refused_message_is_nobodys_business(pair):
    refused(lambda: pair[0].send(np.ones((4, 4))[:, 1], 1), "dense")
    assert cs.wait_all([pair[0].send(b"x", 1), pair[1].recv(bytearray(1)), *[w.barrier() for w in pair]])


def test_a_forgotten_request_keeps_its_buffers(pair):
    """The memory is the library's until the operation is complete, also if Python has forgotten everything; not longer."""
    gone = []
    room = np.zeros(1000)
    weakref.finalize(room, gone.append, True)
    pair[0].recv(room, 1)
    del room
    gc.collect()
    assert not gone
    kept = cs._core.pending()
    pair[1].send(np.ones(1000), 0).wait()
    pair[0].sync()
    gc.collect()
    assert gone and cs._core.pending() < kept


def test_views_hold_back_the_end():
    world = cs.open_local(1)[0]
    memory = world.mem_alloc(64)
    values = np.frombuffer(memory, "f8")
    values[:] = 2
    world.allreduce(values).wait()
    with pytest.raises(BufferError, match="1 views"):
        world.close()
    with pytest.raises(BufferError, match="1 views"):
        memory.free()
    del values
    memory.free()
    with pytest.raises(BufferError, match="freed"):
        memoryview(memory)
    with world.mem_register(bytearray(100)):
        pass
    world.close()


def test_dropped_operations_hold_back_no_end():
    pair = cs.open_local(2)
    memories = [world.mem_alloc(64) for world in pair]
    for world, memory in zip(pair, memories):
        world.allreduce(memory)
    waiting = pair[0].recv(memories[0], 1)
    with pytest.raises(BufferError, match="1 views"):
        pair[0].close(timeout=0.1)
    waiting.cancel()
    del waiting
    for world in pair:
        world.close()


def test_memory_that_all_ranks_allocate(pair):
    memories = [request.result() for request in [world.mem_alloc_symmetric(64, async_op=True) for world in pair]]
    arrays = [np.frombuffer(memory, "f8") for memory in memories]
    for array in arrays:
        assert len(array) == 8 and not array.any()
        array[:] = 2
    assert cs.wait_all([world.allreduce(array) for world, array in zip(pair, arrays)])
    assert arrays[1].tolist() == [4] * 8
    del arrays, array
    for memory in memories:
        memory.free()
    requests = [world.mem_alloc_symmetric(8 + world.rank, async_op=True) for world in pair]
    for request in requests:
        with pytest.raises(cs.ArgumentError, match="bytes=9 on rank 1, and 8 on rank 0; expected the same on every rank"):
            request.result()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_of_ml_dtypes(pair, name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    arrays = [np.ones(3, getattr(ml_dtypes, name)) for _ in pair]
    assert cs.wait_all([world.allreduce(array) for world, array in zip(pair, arrays)])
    assert arrays[0].astype("f4").tolist() == [2, 2, 2]
    refused(lambda: pair[0].send(np.ones((4, 4), getattr(ml_dtypes, name))[:, 1], 1), "dense in C order")


def test_a_full_queue(pair):
    """Nothing is started by a call that finds no room, and its buffer is free at once."""
    room, started = bytearray(1), []
    with pytest.raises(cs.FullError):
        for _ in range(100 * pair[0].describe().queue_max):
            started.append(pair[0].barrier())
    assert len(started) >= 16
    with pytest.raises(cs.FullError):
        pair[0].allreduce(room)
    room.append(2)  # a bytearray with views cannot grow
    assert cs.wait_all([pair[1].barrier() for _ in started])
    assert cs.wait_all(started)


@pytest.mark.parametrize("wait", [lambda r: r.wait(), lambda r: cs.wait_all([r]), lambda r: cs.wait_any([r]), lambda r: cs.wait_some([r])])
def test_buffers_stay_held_while_another_thread_closes(wait):
    """A wait that fails since the communicator closes says nothing of the operation, which may end well before the close does."""
    worlds = cs.open_local(2, progress=cs.Progress.THREAD, operation_timeout=60)
    outputs = [np.zeros(1 << 16) for _ in worlds]
    request, ended = worlds[0].allreduce(np.ones(1 << 16), outputs[0]), []

    def waiting():
        try:
            wait(request)
        except cs.Error:
            pass
        ended.append(request.done)
        if ended[0]:
            outputs[0][:] = -1

    def late():
        time.sleep(0.5)
        worlds[1].allreduce(np.ones(1 << 16), outputs[1]).wait()
    threads = [threading.Thread(target=target) for target in (waiting, late)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    worlds[0].close()
    for thread in threads:
        thread.join()
    assert (outputs[0] == (-1 if ended[0] else 2)).all()
    worlds[1].close()
