"""The devices of the tests: those of tests/torch/device.cpp, on the mock CUDA driver; with COMM_TEST_TORCH_CUDA=1 those of torch.cuda.

Each rank loads them by load(), which returns the same functions for both. The extension of the former is compiled once for each torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import os
import types
import unittest
from pathlib import Path

import torch

CUDA = os.environ.get("COMM_TEST_TORCH_CUDA", "0") not in ("", "0")
KIND = "cuda" if CUDA else "privateuseone"
MOCK = os.environ.get("COMMSTREAM_TEST_MOCK")  # the folder of the mock driver
ROOT = Path(__file__).resolve().parents[4]
SOURCE = ROOT / "tests/torch/device.cpp"
NAME = "commstream_test_device"

needed = unittest.skipUnless(CUDA or MOCK, "the mock driver is not named by COMMSTREAM_TEST_MOCK")


def _folder() -> Path:
    cache = os.environ.get("COMMSTREAM_CACHE") or os.path.expanduser("~/.cache/commstream")
    return Path(cache) / f"device-{torch.__version__}-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"


def build() -> Path:
    """Returns the extension of the mock's devices, which is compiled if it is not there."""
    from torch.utils import cpp_extension

    where = _folder()
    where.mkdir(parents=True, exist_ok=True)
    with open(where / "building", "w") as building:
        fcntl.flock(building, fcntl.LOCK_EX)
        (where / "lock").unlink(missing_ok=True)  # torch's, of a build that was killed: it would be waited for
        if not (where / f"{NAME}.so").exists():
            cpp_extension.load(
                name=NAME,
                sources=[str(SOURCE)],
                extra_include_paths=[str(ROOT / "src"), str(ROOT / "tests/cuda")],
                extra_cflags=["-O0"],
                build_directory=str(where),
                is_python_module=False,
                with_cuda=False,
            )
    return where / f"{NAME}.so"


def variables() -> dict[str, str]:
    """Returns the environment of ranks. torch's flight recorder takes seconds to write down what failed."""
    own = {"COMMSTREAM_TORCH_TEST_DEVICE": "1", "LD_LIBRARY_PATH": f"{MOCK}:{os.environ.get('LD_LIBRARY_PATH', '')}", "MOCK_RUN": "7"}
    if CUDA:  # torch makes many streams, and those that share a hardware queue wait for each other: docs/guide/torch.md
        own = {"CUDA_DEVICE_MAX_CONNECTIONS": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "32")}
    return {**own, "TORCH_FR_BUFFER_SIZE": "0"}


def prepare() -> None:
    """What is done once, before ranks load the devices."""
    if not CUDA:
        build()
    elif not torch.cuda.device_count():
        raise RuntimeError("COMM_TEST_TORCH_CUDA is set, and torch finds no CUDA device")


def load():
    """Returns the functions of the devices."""
    return Cuda() if CUDA else _load_mock()


class Cuda:
    """What device.cpp has, by torch.cuda and the driver. A stream is one of torch.cuda; the current device is not changed later.

    hold() puts a wait for a word of pinned memory on the stream, as the library does. So it needs no toolkit, and no kernel occupies the
    device, which others may use. What is on the stream before it goes on.
    """

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._words = {}  # that a stream waits for
        self.device_count = torch.cuda.device_count
        self.set_device = torch.cuda.set_device
        self.new_stream = torch.cuda.Stream
        self.current_stream = torch.cuda.current_stream

    def set_stream(self, stream):
        before = torch.cuda.current_stream()
        torch.cuda.set_stream(stream)
        return before

    def has_driver(self):
        return True

    def idle(self, stream):
        return stream.query()

    def synchronize(self, stream):
        stream.synchronize()

    def hold(self, stream, on):
        if on:
            word = self._new_word()
            at = ctypes.c_uint64()
            self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(at), word, ctypes.c_uint(0))
            greater_or_equal = ctypes.c_uint(0)
            self._call("cuStreamWaitValue64_v2", ctypes.c_void_p(stream.cuda_stream), at, ctypes.c_uint64(1), greater_or_equal)
            self._words.setdefault(stream, []).append(word)
        else:
            for word in self._words.pop(stream, []):
                ctypes.c_uint64.from_address(word.value).value = 1

    def _new_word(self):
        """It is never freed: the stream may still read it."""
        word = ctypes.c_void_p()
        portable_and_mapped = ctypes.c_uint(3)
        self._call("cuMemHostAlloc", ctypes.byref(word), ctypes.c_size_t(8), portable_and_mapped)
        ctypes.c_uint64.from_address(word.value).value = 0
        return word

    def _call(self, name, *args):
        result = getattr(self._driver, name)(*args)
        assert result == 0, f"{name} gave {result}"


def _load_mock():
    """Returns the extension's module; the device is there from then on."""
    # With a name, also its own, it is the process's accelerator, whose streams the backward pass uses. Else that may be CUDA.
    torch.utils.rename_privateuse1_backend("privateuseone")
    spec = importlib.util.spec_from_file_location(NAME, build())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch._register_device_module("privateuseone", _as_torch_has(module))
    return module


@contextlib.contextmanager
def _on_stream(stream):
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    yield
    torch.accelerator.set_stream(before)


def _as_torch_has(module):
    """What torch expects of a kind of device, as of torch.cuda."""
    made = types.ModuleType("privateuseone")
    made._lazy_init = lambda: None
    made.is_initialized = made.is_available = lambda: True
    made._is_in_bad_fork = lambda: False
    made.device_count = lambda: 8
    made.current_device = module.current_device
    made.Event = torch.Event
    made.Stream = lambda priority=0: torch.Stream(f"privateuseone:{module.current_device()}", priority=priority)
    made.current_stream = lambda device=None: torch.accelerator.current_stream(device)
    made.stream = _on_stream
    return made
