"""A program for torchrun: `elastic.py FOLDER STEP` trains, and goes on from its checkpoint in FOLDER if there is one.

When it runs for the first time, rank 1 kills itself in the backward pass of STEP (-1: of no step), when other gradients are on their way.
At the end each rank writes the bytes of its weights there.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import commstream.torch  # noqa: F401

STEPS = 6


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def save(state, path):
    """Whoever reads it finds a whole one, whenever this process is killed."""
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def train(folder, last, attempt=0):
    rank, done = dist.get_rank(), 0
    torch.manual_seed(attempt)
    model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    checkpoint = os.path.join(folder, "checkpoint")
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["done"]
    print(f"attempt {attempt} rank {rank} begins at step {done}", flush=True)
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.001)
    for step in range(done, STEPS):
        if (attempt, rank, step) == (0, 1, last):
            model[0].weight.register_hook(die)
        torch.manual_seed(100 * step + rank)
        optimizer.zero_grad()
        parallel(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
        if rank == 0:
            save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": step + 1}, checkpoint)
    with open(os.path.join(folder, f"weights-{rank}"), "wb") as out:
        out.writelines(weights.detach().numpy().tobytes() for weights in model.parameters())


def main(folder, last):
    dist.init_process_group("commstream")
    train(folder, last, int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
