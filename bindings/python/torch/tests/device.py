"""The device of the tests (tests/torch/device.cpp): compiled once for each torch, loaded by ranks."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import types
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[4]
SOURCE = ROOT / "tests/torch/device.cpp"
NAME = "commstream_test_device"


def _folder() -> Path:
    cache = os.environ.get("COMMSTREAM_CACHE") or os.path.expanduser("~/.cache/commstream")
    return Path(cache) / f"device-{torch.__version__}-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"


def build() -> Path:
    """Returns the extension, which is compiled if it is not there."""
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


def load():
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
