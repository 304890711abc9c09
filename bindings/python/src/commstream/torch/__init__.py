"""The ``commstream`` backend of :mod:`torch.distributed`, for CPU and CUDA tensors.

Importing this module registers it:

    import commstream.torch
    torch.distributed.init_process_group("commstream")

The first import compiles an extension, which takes about a minute (see :mod:`commstream.torch.build`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Sequence
from typing import cast

import torch
import torch.distributed as dist

from . import build

_extension = build.load()


def shared_tensor(tensor: torch.Tensor | None = None, *, group: dist.ProcessGroup | None = None, group_src: int = 0) -> torch.Tensor:
    """Returns a tensor whose memory all ranks of a host share, with the elements of one rank's tensor; collective.

    Each host has one copy, however many ranks it has. Every rank gets its type, shape and elements from `tensor` of rank `group_src`
    of the group; the other ranks may pass None. The result is contiguous and needs no gradient.

    It is for reading. torch has no tensors that refuse a store, so a store changes the copy of all ranks of the host.

    One rank of each host has the copy: the source, elsewhere the first rank of the host. The tensors of the host are valid as long as
    that rank has its tensor or has not destroyed the group, also after it was killed. The memory is given back when the group is
    destroyed and the tensors are gone; so make a group of its own for tensors that come and go.

    Raises ValueError on all ranks if the tensor cannot be shared, and if there is no default group, TypeError if the group's backend is
    another one.
    """
    group = _or_default(group)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if not 0 <= group_src < size:
        raise ValueError(f"commstream: shared_tensor: group_src={group_src}; expected 0 to {size - 1}")
    backend = _backend_of(group, "shared_tensor")
    told = [_describe(tensor if rank == group_src else None)]
    dist.broadcast_object_list(told, src=dist.get_global_rank(group, group_src), group=group, device=torch.device("cpu"))
    wrong, dtype, shape, count = told[0]
    if wrong:
        raise ValueError(f"commstream: shared_tensor: rank {group_src} passed {wrong}; expected a dense tensor on the CPU")
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    given = tensor.detach().contiguous() if tensor is not None and rank == group_src else None
    return _extension.share(backend, given, count * dtype.itemsize, group_src).view(dtype).view(shape)


def empty(*size: int | Sequence[int], dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Returns a tensor of that shape on the CPU, in memory of the library, which the other ranks of the host read without a copy.

    It is as :func:`torch.empty`: the shape is given as integers or as one sequence, and the type is torch's default without `dtype`. Its
    elements are not set. It is local, and any call on `group` (None: the default group) takes it, as windows do.

    The memory comes out of the group's segment (``COMM_SHM_SEGMENT_BYTES``). It outlives the group, and is given back when the last tensor
    that uses it is gone. While it is in use, `suspend` of the group is refused.

    Raises TypeError if the group's backend is another one, ValueError if there is no default group, RuntimeError if there is no room.
    """
    one = len(size) == 1 and not isinstance(size[0], int)
    shape = torch.Size(cast("Sequence[int]", size[0] if one else size))
    dtype = dtype or torch.get_default_dtype()
    backend = _backend_of(_or_default(group), "empty")
    if min(shape, default=1) < 0:
        raise ValueError(f"commstream: empty: sizes {tuple(shape)}; expected 0 or more")
    return _extension.allocate(backend, shape.numel() * dtype.itemsize).view(dtype).view(shape)


def _or_default(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Raises ValueError, as torch does, if that is the default group and there is none."""
    return group or dist.distributed_c10d._get_default_group()


def _backend_of(group: dist.ProcessGroup, call: str):
    backend = group._get_backend(torch.device("cpu"))
    if backend.name() != "commstream":
        raise TypeError(f"commstream: {call}: the group's backend for CPU tensors is {backend.name()}; expected commstream")
    return backend


def _describe(tensor: torch.Tensor | None) -> tuple:
    """Returns what is wrong with a tensor that is to be shared, its type, its shape, its number of elements."""
    if not isinstance(tensor, torch.Tensor):
        return type(tensor).__name__, None, None, 0
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return f"a tensor of {tensor.layout} on {tensor.device}", None, None, 0
    return None, tensor.dtype, tuple(tensor.shape), tensor.numel()


def _create(options, backend_options=None):
    del backend_options  # the C library reads its own options from the environment
    create = _extension.create_later if getattr(options, "enable_reconfigure", False) else _extension.create
    return create(options.store, options.group_rank, options.group_size, options.timeout, _device(options))


def _device(options) -> str:
    """Returns the rank's device, or "" where the C library chooses that of the local rank."""
    bound = getattr(getattr(options, "process_group", None), "bound_device_id", None)  # older torch does not tell it
    if bound is not None and bound.type == "cuda" and bound.index is not None:
        return f"cuda:{bound.index}"
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_initialized() else ""


def _devices() -> list[str]:
    """Returns the kinds of device whose tensors the backend serves; the tests have one of their own.

    Without a GPU it is not registered for CUDA: torch asks for the current stream of each kind that a group has, also when a tensor is on
    the CPU.
    """
    cuda = ["cuda"] if torch.cuda.device_count() else []
    return ["cpu", *cuda, *(["privateuseone"] if "COMMSTREAM_TORCH_TEST_DEVICE" in os.environ else [])]


def _end_blocks_that_exceptions_leave() -> None:
    """Has an exception inside of torch's coalescing manager end its block, for groups of this backend.

    torch's manager does nothing then. Its list of the group's calls would stay, and each later all_reduce would only be noted in that list.
    """
    c10d = dist.distributed_c10d
    plain = c10d._coalescing_manager

    @functools.wraps(plain)
    @contextlib.contextmanager
    def manager(group=None, device=None, async_ops=False):
        group = group or dist.group.WORLD
        entered = False
        try:
            with plain(group, device, async_ops) as block:
                entered = True
                yield block
        except BaseException:
            if entered:
                _give_up_block(group, device)
            raise

    c10d._coalescing_manager = dist._coalescing_manager = manager


def _give_up_block(group: dist.ProcessGroup, device: torch.device | None) -> None:
    with contextlib.suppress(RuntimeError):  # the group has no backend for that device
        backend = group._get_backend(device or torch.device("cpu"))
        if backend.name() == "commstream":
            dist.distributed_c10d._world.pg_coalesce_state.pop(group, None)
            _extension.drop_block(backend)


_end_blocks_that_exceptions_leave()
dist.Backend.register_backend("commstream", _create, extended_api=True, devices=_devices())
atexit.register(_extension.stop)
