"""The ``commstream`` backend of :mod:`torch.distributed`, for CPU tensors.

Importing this module registers it::

    import commstream.torch
    torch.distributed.init_process_group("commstream")

The first import compiles an extension, which takes about a minute (see :mod:`commstream.torch.build`).
"""

from __future__ import annotations

import atexit

import torch.distributed as dist

from . import build

_extension = build.load()


def _create(options, backend_options=None):
    del backend_options  # the C library reads its own options from the environment
    create = _extension.create_later if getattr(options, "enable_reconfigure", False) else _extension.create
    return create(options.store, options.group_rank, options.group_size, options.timeout)


dist.Backend.register_backend("commstream", _create, extended_api=True, devices=["cpu"])
atexit.register(_extension.stop)
