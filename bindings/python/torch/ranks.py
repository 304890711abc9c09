"""Starts the ranks of the programs in this folder that measure: on this host, or as torchrun and others have started them."""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run_rank(rank, measure, args, store):
    """Without a store: the environment says who this rank is."""
    import commstream.torch  # noqa: F401

    torch.set_num_threads(1)
    if store:
        dist.init_process_group("gloo", store=dist.FileStore(store, args.ranks), rank=rank, world_size=args.ranks)
    else:
        dist.init_process_group("gloo")
    measure(args)
    dist.destroy_process_group()


def new_group(name):
    """Of a backend; "commstream plain" does not encrypt what it sends to other hosts, as Gloo does not."""
    plain = name.endswith(" plain")
    before = os.environ.get("COMM_TCP_SEAL")
    if plain:
        os.environ["COMM_TCP_SEAL"] = "no"
    try:
        return dist.new_group(backend=name.split()[0])
    finally:
        if plain:
            os.environ.pop("COMM_TCP_SEAL")
            if before is not None:
                os.environ["COMM_TCP_SEAL"] = before


def run(measure, args):
    """Calls measure(args) on each rank, in which the default group is Gloo's: args.ranks of them, unless RANK is set."""
    if "RANK" in os.environ:
        run_rank(None, measure, args, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (measure, args, os.path.join(folder, "store")), nprocs=args.ranks)
