"""Asynchronous, stream-ordered communication between ranks.

    import numpy as np, commstream
    with commstream.open() as world:
        x = np.full(4, world.rank + 1.0)
        world.allreduce(x).wait()

Start it with `python -m commstream.run -n 4 script.py`. Each collective and each message returns a Request at once.

`commstream.run` starts ranks; `commstream.torch` is a backend of torch.distributed.
"""
from pathlib import Path as _Path

from ._core import Buckets, Event, Memory, Operator, Plan, Request
from . import _errors
from ._errors import *  # noqa: F401,F403
from ._types import (ANY_PEER, ANY_TAG, IN_PLACE, INFO_BUFFERS_HELD, INFO_STAGED, NO_COLOR, AlgorithmInfo, BackendInfo, ErrorDetail, Info,
                     LogLevel, Notify, Op, OptionInfo, Order, PeerInfo, Place, Placement, Progress, RequestInfo, Result, Statistics, Status,
                     Type)
from ._types import (SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC, REPLACE, NOOP, BYTE, BOOL, I8, I16,
                    I32, I64, U8, U16, U32, U64, F8E4M3, F8E5M2, F16, BF16, F32, F64, C64, C128, F32_INDEX, F64_INDEX, I32_INDEX,
                    I64_INDEX)
from ._open import open, open_local, unique_id
from ._world import (Communicator, Recorder, Registration, Window, describe_algorithms, describe_backends, describe_options,
                     describe_request, result_name, result_text, stream_wait, type_size, version, wait_all, wait_any, wait_some)

__version__ = "0.1.0"
#: What type checkers take as public, and what the reference has.
__all__ = [
    "open", "open_local", "unique_id", "Communicator", "Request", "Window", "Recorder", "Plan", "Event", "Operator", "Buckets", "Memory",
    "Registration", "wait_all", "wait_any", "wait_some", "stream_wait", "describe_algorithms", "describe_backends", "describe_options",
    "describe_request", "result_name", "result_text", "type_size", "version", "get_include", "get_library", "ANY_PEER", "ANY_TAG",
    "IN_PLACE", "INFO_BUFFERS_HELD", "INFO_STAGED", "NO_COLOR", "AlgorithmInfo", "BackendInfo", "ErrorDetail", "Info", "LogLevel",
    "Notify", "Op", "OptionInfo", "Order", "PeerInfo", "Place", "Placement", "Progress", "RequestInfo", "Result", "Statistics",
    "Status", "Type", "SUM", "PROD", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MINLOC", "MAXLOC", "REPLACE",
    "NOOP", "BYTE", "BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "F8E4M3", "F8E5M2", "F16", "BF16", "F32", "F64",
    "C64", "C128", "F32_INDEX", "F64_INDEX", "I32_INDEX",
    "I64_INDEX",
]
__all__ += _errors.__all__


def get_include() -> str:
    """The folder of the C headers, for an extension that shares communicators with this package."""
    return str(_Path(__file__).resolve().parent / "include")


def get_library() -> str:
    """The shared library that the package uses."""
    return str(next((_Path(__file__).resolve().parent / "lib").glob("libcommstream.so*")))
