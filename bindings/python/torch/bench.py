"""Times allreduce by commstream and by Gloo, one after the other on the same ranks, and prints medians and ratios.

    python bindings/python/torch/bench.py                    # 2 ranks, 8 B to 64 MiB
    python bindings/python/torch/bench.py --ranks 4 --rounds 9 --csv

Each round measures both backends at one length, in turn, so that a machine that slows down slows both. A figure is the
median over the rounds of the slowest rank's time for one call that is waited for.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BACKENDS = ("commstream", "gloo")


def once(group, tensor, repeats):
    dist.barrier(group=group)
    start = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(tensor, group=group)
    taken = torch.tensor((time.perf_counter() - start) / repeats, dtype=torch.float64)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX, group=group)
    return taken.item()


def repeats_for(size):
    return max(3, min(300, 8 * 2**20 // max(size, 1)))


def measure(rank, args, store):
    import commstream.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, args.ranks), rank=rank, world_size=args.ranks)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    if rank == 0:
        header = ["bytes", *(f"{name} us" for name in BACKENDS), "gloo / commstream"]
        print(",".join(header) if args.csv else "| " + " | ".join(header) + " |\n|---:|---:|---:|---:|", flush=True)
    size = args.min
    while size <= args.max:
        tensor = torch.ones(size // 4)
        times = {name: [] for name in BACKENDS}
        for name in BACKENDS:
            once(groups[name], tensor, 3)
        for _ in range(args.rounds):
            for name in BACKENDS:
                tensor.fill_(1e-6)
                times[name].append(once(groups[name], tensor, repeats_for(size)))
        if rank == 0:
            us = [statistics.median(times[name]) * 1e6 for name in BACKENDS]
            row = [str(size), *(f"{t:.1f}" for t in us), f"{us[1] / us[0]:.1f}"]
            print(",".join(row) if args.csv else "| " + " | ".join(row) + " |", flush=True)
        size *= args.factor
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--min", type=int, default=8, help="bytes, at least 4")
    parser.add_argument("--max", type=int, default=64 * 2**20, help="bytes")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--csv", action="store_true")
    args = parser.parse_args()
    if args.min < 4 or args.factor < 2 or args.rounds < 1 or args.ranks < 1:
        parser.error("expected --min of 4 or more, --factor of 2 or more, --rounds and --ranks of 1 or more")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(measure, (args, os.path.join(folder, "store")), nprocs=args.ranks)


if __name__ == "__main__":
    main()
