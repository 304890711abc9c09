"""Times a training step of DistributedDataParallel: without communication, with Gloo, with commstream, in turn.

    python bindings/python/torch/step.py                       # 2 ranks of this host
    tests/perf/torch_hosts.sh --rate 1gbit --run step.py       # two hosts on a limited link, as root

The model has 25 million parameters. What a step takes longer than without communication is exposed; the last line says
how much of what Gloo leaves exposed commstream hides. A figure is the median over the rounds of the slowest rank.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks

BACKENDS = ("commstream", "gloo")


def make_model(args):
    torch.manual_seed(0)
    layers = [layer for _ in range(args.layers) for layer in (nn.Linear(args.width, args.width), nn.ReLU())]
    return nn.Sequential(*layers)


class Trainer:
    """`name`: a backend; or "alone", which communicates nothing."""

    def __init__(self, name, args):
        model = make_model(args)
        self.parameters = sum(p.numel() for p in model.parameters())
        if name != "alone":
            model = DistributedDataParallel(model, process_group=dist.new_group(backend=name), gradient_as_bucket_view=True)
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        self.data = torch.randn(args.batch, args.width)

    def step(self):
        self.optimizer.zero_grad()
        self.model(self.data).square().mean().backward()
        self.optimizer.step()


def once(trainer, steps):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    taken = torch.tensor((time.perf_counter() - start) / steps, dtype=torch.float64)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return taken.item()


def measure(args):
    trainers = {name: Trainer(name, args) for name in ("alone", *BACKENDS)}
    times = {name: [] for name in trainers}
    for name, trainer in trainers.items():
        once(trainer, 2)  # the second step has the order of the buckets that all later ones have
    for done in range(args.rounds):
        for name, trainer in trainers.items():
            times[name].append(once(trainer, args.steps))
        if dist.get_rank() == 0 and not args.csv:
            print(f"round {done + 1} of {args.rounds}: " + ", ".join(f"{n} {t[-1]:.3f} s" for n, t in times.items()), flush=True)
    if dist.get_rank() == 0:
        report({name: statistics.median(t) for name, t in times.items()}, trainers["alone"].parameters, args)


def report(seconds, parameters, args):
    exposed = {name: seconds[name] - seconds["alone"] for name in BACKENDS}
    if args.csv:
        print("parameters,ranks,batch,alone_s,gloo_s,commstream_s")
        print(f"{parameters},{dist.get_world_size()},{args.batch},{seconds['alone']:.4f},{seconds['gloo']:.4f},{seconds['commstream']:.4f}")
        return
    print(f"\n{parameters / 1e6:.1f} M parameters, {dist.get_world_size()} ranks, batch of {args.batch} each\n")
    print("| | step s | exposed s |\n|---|---:|---:|")
    print(f"| without communication | {seconds['alone']:.3f} | |")
    for name in BACKENDS:
        print(f"| {name} | {seconds[name]:.3f} | {exposed[name]:.3f} |")
    if exposed["gloo"] > 0:
        print(f"\ncommstream hides {100 * (1 - exposed['commstream'] / exposed['gloo']):.0f} % of what Gloo leaves exposed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="of this host; unless RANK and WORLD_SIZE are set")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2, help="of a round, for each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", action="store_true")
    args = parser.parse_args()
    if min(args.ranks, args.layers, args.width, args.batch, args.steps, args.rounds) < 1:
        parser.error("expected numbers of 1 or more")
    ranks.run(measure, args)


if __name__ == "__main__":
    main()
