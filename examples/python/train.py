#!/usr/bin/env python3
"""Data-parallel training that goes on after a rank was killed.

    torchrun --nproc-per-node 2 --max-restarts 3 train.py --checkpoint train.pt

Gradients are reduced in bf16 while the backward pass computes the ones of earlier layers. Two batches are accumulated
before each step. The ranks may have different numbers of batches, and the last batch of each is shorter. Rank 0
writes a checkpoint after each epoch. If a rank dies, the others get an error at once, torchrun starts all of them
again, and they go on from the checkpoint. With --lose 2, rank 1 is killed in epoch 2, the first time.
"""
from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import commstream.torch  # noqa: F401, registers the backend

SAMPLES, BATCH, ACCUMULATE = 993, 16, 2


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and whether each is inside of a circle."""
    x = torch.rand(SAMPLES, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return x, (x.square().sum(1) < 0.6).float()


def save(path: str, state: dict) -> None:
    """A reader finds the old checkpoint or the new one, whenever this process is killed."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def train_epoch(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    x, y = samples()
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
    batches = order[dist.get_rank()::dist.get_world_size()].split(BATCH)
    most = math.ceil(math.ceil(SAMPLES / dist.get_world_size()) / BATCH)  # of the rank with the most: all reduce at the same numbers
    optimizer.zero_grad()
    with Join([model]):  # a rank that has no batch left takes part in the reductions of the others
        for number, batch in enumerate(batches, 1):
            step = number % ACCUMULATE == 0 or number == most
            with contextlib.nullcontext() if step else model.no_sync():
                nn.functional.binary_cross_entropy_with_logits(model(x[batch]).flatten(), y[batch]).backward()
            if step:
                optimizer.step()
                optimizer.zero_grad()


def correct(model: nn.Module) -> float:
    """The share of samples that the model gets right: each rank counts those of its own, and the counts are summed."""
    x, y = (t[dist.get_rank()::dist.get_world_size()] for t in samples())
    with torch.no_grad():
        right = ((model(x).flatten() > 0) == (y > 0)).sum()
    work = dist.all_reduce(right, async_op=True)  # the program could compute here
    work.wait()
    return right.item() / SAMPLES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", required=True, help="a file that all ranks see")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lose", type=int, default=-1, help="the epoch in which rank 1 is killed")
    args = parser.parse_args()

    dist.init_process_group("commstream")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    begin = 0
    if os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epochs"]
    if rank == 0:
        print(f"begins at epoch {begin}", flush=True)
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(None, bf16_compress_hook)
    for epoch in range(begin, args.epochs):
        if (rank, epoch, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == (1, args.lose, "0"):
            os.kill(os.getpid(), signal.SIGKILL)
        train_epoch(parallel, optimizer, epoch)
        if rank == 0:
            save(args.checkpoint, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1})
    share = correct(model)
    if rank == 0:
        print(f"train: ok ranks={dist.get_world_size()} epochs={args.epochs} correct={share:.2f}", flush=True)
    dist.destroy_process_group()
    if share < 0.9:
        raise SystemExit(f"rank {rank}: {share:.2f} of the samples are right; expected 0.9")


if __name__ == "__main__":
    main()
