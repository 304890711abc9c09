"""Memory of a device, on the mock CUDA driver of the library's tests: the host cannot read it."""
import os

import pytest

from conftest import run_child

MOCK = os.environ.get("COMMSTREAM_TEST_MOCK")
pytestmark = pytest.mark.skipif(not MOCK, reason="the mock driver is not named by COMMSTREAM_TEST_MOCK")


@pytest.fixture
def mock(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([MOCK, os.environ.get("LD_LIBRARY_PATH", "")]))
    monkeypatch.setenv("MOCK_RUN", "7")


def test_memory_of_nccl_is_the_devices(mock):
    said = run_child("""
        import commstream as cs
        pair = cs.open_local(2, backend="nccl", devices=["cuda:0", "cuda:1"], operation_timeout=30)
        symmetric = [request.result() for request in [world.mem_alloc_symmetric(64, async_op=True) for world in pair]]
        for memories in ([world.mem_alloc(64) for world in pair], symmetric):
            try:
                memoryview(memories[0])
            except BufferError as error:
                print(error)
            inside = memories[0].__cuda_array_interface__
            print(inside["shape"], inside["typestr"], inside["version"], inside["data"][1])
            requests = [world.allreduce(memory, type=cs.F64) for world, memory in zip(pair, memories)]
            try:
                memories[0].free()
            except BufferError as error:
                print(error)
            assert cs.wait_all(requests)
            print(cs.describe_request(requests[0]).algorithm)
            del requests
            for memory in memories:
                memory.free()
            print(hasattr(memory, "__cuda_array_interface__"))
        for world in pair:
            world.close()
        """)
    refused = 'this memory is a device\'s; expected torch.as_tensor(memory, device="cuda"), cupy.asarray(memory) or another reader of'
    used = "free(): 1 views of this memory exist; drop them first"
    assert said.splitlines() == [f"{refused} __cuda_array_interface__", "(64,) |u1 3 False", used, "nccl", "False"] * 2


def test_buckets_in_memory_of_a_device(mock):
    said = run_child("""
        import numpy as np, commstream as cs
        world = cs.open(device="cuda:0")
        with world.buckets([np.ones(10), np.ones(3, "f4")], adopt=2) as buckets:
            memory = buckets.data(1)
            print(len(memory), memory.__cuda_array_interface__["shape"])
            try:
                memoryview(memory)
            except BufferError as error:
                print(error)
        with world.buckets([np.ones(10)], adopt=False) as buckets:
            print(memoryview(buckets.data(0)).nbytes, hasattr(buckets.data(0), "__cuda_array_interface__"))
        world.close()
        """)
    lines = said.splitlines()
    assert lines[0] == "12 (12,)" and "a device's" in lines[1] and lines[2:] == ["80 False"]
