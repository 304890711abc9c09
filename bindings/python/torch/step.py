"""Times a training step of DistributedDataParallel: without communication, with Gloo, with commstream, in turn.

    python bindings/python/torch/step.py                       # 2 ranks of this host
    tests/perf/torch_hosts.sh --rate 1gbit --run step.py       # two hosts on a limited link, as root

The model has 25 million parameters. What a step takes longer than without communication is exposed; the last line says
how much of what Gloo leaves exposed commstream hides. A figure is the median over the rounds of the slowest rank.

With --link RATE (Gbit/s) it also says what no backend can go below: the buckets of this model, each on the link as soon as its gradients
are there and the link is free, with computation that nothing disturbs. Of two ranks each sends the bytes of a bucket once.
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

BACKENDS = ["commstream", "gloo"]


def make_model(args):
    torch.manual_seed(0)
    layers = [layer for _ in range(args.layers) for layer in (nn.Linear(args.width, args.width), nn.ReLU())]
    return nn.Sequential(*layers)


class Clock:
    """A communication hook that communicates nothing: it notes when each bucket has its gradients, and how many bytes."""

    def __init__(self):
        self.buckets, self.start = [], 0.0

    def hook(self, _, bucket):
        self.buckets.append((time.perf_counter() - self.start, bucket.buffer().nbytes))
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def least(self, taken, bytes_per_second):
        """Seconds of a step on a link that sends each bucket when it is there. `taken`: of the same step, without a link."""
        free = last = 0.0
        for last, size in self.buckets:
            free = max(free, last) + size / bytes_per_second
        return free + taken - last


class Trainer:
    """`name`: as ranks.new_group has it; "alone", which communicates nothing; "link", which only notes what a link would have to send."""

    def __init__(self, name, args):
        model = make_model(args)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.clock = Clock()
        if name != "alone":
            group = ranks.new_group("gloo" if name == "link" else name)
            model = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
        if name == "link":
            model.register_comm_hook(None, self.clock.hook)
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        self.data = torch.randn(args.batch, args.width)

    def step(self):
        self.clock.buckets, self.clock.start = [], time.perf_counter()
        self.optimizer.zero_grad()
        self.model(self.data).square().mean().backward()
        self.optimizer.step()


def once(trainer, steps, link=0.0):
    """Seconds of a step; of trainer "link": what they would be on the link."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        begin = time.perf_counter()
        trainer.step()
    end = time.perf_counter()
    seconds = trainer.clock.least(end - begin, link) if link else (end - start) / steps
    taken = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return taken.item()


def measure(args):
    trainers = {name: Trainer(name, args) for name in ("alone", *(["link"] if args.link else []), *args.backends)}
    times = {name: [] for name in trainers}
    for name, trainer in trainers.items():
        once(trainer, 2)  # the second step has the order of the buckets that all later ones have
    for done in range(args.rounds):
        for name, trainer in trainers.items():
            times[name].append(once(trainer, args.steps, args.link * 1e9 / 8 if name == "link" else 0.0))
        if dist.get_rank() == 0 and not args.csv:
            print(f"round {done + 1} of {args.rounds}: " + ", ".join(f"{n} {t[-1]:.3f} s" for n, t in times.items()), flush=True)
    if dist.get_rank() == 0:
        report({name: statistics.median(t) for name, t in times.items()}, trainers["alone"].parameters, args)


def report(seconds, parameters, args):
    exposed = {name: seconds[name] - seconds["alone"] for name in seconds}
    if args.csv:
        print(",".join(["parameters,ranks,batch", *(f"{name}_s".replace(" ", "_") for name in seconds)]))
        print(",".join([f"{parameters},{dist.get_world_size()},{args.batch}", *(f"{s:.4f}" for s in seconds.values())]))
        return
    print(f"\n{parameters / 1e6:.1f} M parameters, {dist.get_world_size()} ranks, batch of {args.batch} each\n")
    print("| | step s | exposed s |\n|---|---:|---:|")
    print(f"| without communication | {seconds['alone']:.3f} | |")
    if args.link:
        print(f"| the least on this link | {seconds['link']:.3f} | {exposed['link']:.3f} |")
    for name in args.backends:
        print(f"| {name} | {seconds[name]:.3f} | {exposed[name]:.3f} |")
    for name in args.backends:
        if name != "gloo" and exposed["gloo"] > 0:
            print(f"\n{name} hides {100 * (1 - exposed[name] / exposed['gloo']):.0f} % of what Gloo leaves exposed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="of this host; unless RANK and WORLD_SIZE are set")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2, help="of a round, for each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--link", type=float, default=0.0, help="Gbit/s: say what no backend can go below on such a link")
    parser.add_argument("--plain", action="store_true", help="commstream without encryption too, which Gloo does not have")
    parser.add_argument("--csv", action="store_true")
    args = parser.parse_args()
    if min(args.ranks, args.layers, args.width, args.batch, args.steps, args.rounds) < 1:
        parser.error("expected numbers of 1 or more")
    args.backends = [*BACKENDS, "commstream plain"] if args.plain else BACKENDS
    ranks.run(measure, args)


if __name__ == "__main__":
    main()
