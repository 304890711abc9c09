"""Times collectives by commstream and by Gloo, one after the other on the same ranks, and prints medians and ratios.

    python bindings/python/torch/bench.py                              # allreduce, 2 ranks of this host, 8 B to 64 MiB
    python bindings/python/torch/bench.py all --ranks 4 --rounds 9     # every collective
    torchrun --nnodes=2 ... bindings/python/torch/bench.py allreduce   # ranks that torchrun starts, such as on two hosts

Each round measures the backends at one length, in turn, so that a machine that slows down slows both. A figure is the
median over the rounds of the slowest rank's time for one call that is waited for. A length is that of a rank's input;
of a part of the input for those that send a part to each rank.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist

import ranks

BACKENDS = ["commstream", "gloo"]
SECONDS = 0.3  # for one figure, about


class Case:
    """Tensors of a length: `one` of n elements, `all` of n for each rank, and both as the lists that older calls take."""

    def __init__(self, group, n):
        self.group, self.rank, self.ranks = group, dist.get_rank(), dist.get_world_size()
        self.one, self.all = torch.full((n,), 1e-6), torch.full((n * self.ranks,), 1e-6)
        self.result = torch.zeros(n * self.ranks)
        self.parts = list(self.all.chunk(self.ranks))
        self.apart = [torch.zeros(n) for _ in range(self.ranks)]

    def at_root(self, tensors):
        return tensors if self.rank == 0 else None

    def pass_on(self):
        """To the right and from the left."""
        right, left = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        works = [dist.isend(self.one, right, group=self.group), dist.irecv(self.result[: self.one.numel()], left, group=self.group)]
        for work in works:
            work.wait()


COLLECTIVES = {
    "allreduce": lambda c: dist.all_reduce(c.one, group=c.group),
    "reduce": lambda c: dist.reduce(c.one, 0, group=c.group),
    "broadcast": lambda c: dist.broadcast(c.one, 0, group=c.group),
    "reduce_scatter_tensor": lambda c: dist.reduce_scatter_tensor(c.one, c.all, group=c.group),
    "reduce_scatter": lambda c: dist.reduce_scatter(c.one, c.parts, group=c.group),
    "all_gather_into_tensor": lambda c: dist.all_gather_into_tensor(c.result, c.one, group=c.group),
    "all_gather": lambda c: dist.all_gather(c.apart, c.one, group=c.group),
    "gather": lambda c: dist.gather(c.one, c.at_root(c.apart), 0, group=c.group),
    "scatter": lambda c: dist.scatter(c.one, c.at_root(c.parts), 0, group=c.group),
    "all_to_all_single": lambda c: dist.all_to_all_single(c.result, c.all, group=c.group),
    "all_to_all": lambda c: dist.all_to_all(c.apart, c.parts, group=c.group),
    "send_recv": lambda c: c.pass_on(),
    "barrier": lambda c: dist.barrier(group=c.group),
}


def once(call, case, repeats):
    dist.barrier(group=case.group)
    start = time.perf_counter()
    for _ in range(repeats):
        call(case)
    taken = torch.tensor((time.perf_counter() - start) / repeats, dtype=torch.float64)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX, group=case.group)
    return taken.item()


def time_all(call, cases, rounds):
    """{backend: median seconds}; all ranks agree on how often a call is repeated, from the first times."""
    repeats = {name: max(1, min(300, int(SECONDS / rounds / once(call, cases[name], 2)))) for name in cases}
    times = {name: [] for name in cases}
    for _ in range(rounds):
        for name in cases:
            cases[name].one.fill_(1e-6)
            times[name].append(once(call, cases[name], repeats[name]))
    return {name: statistics.median(times[name]) for name in cases}


class Table:
    def __init__(self, args, name):
        self.csv, self.name, self.shown = args.csv, name, dist.get_rank() == 0
        ours = [backend for backend in args.backends if backend != "gloo"]
        header = ["bytes", *(f"{backend} us" for backend in args.backends), *(f"gloo / {backend}" for backend in ours)]
        self.say(",".join(["collective", *header]) if self.csv else f"\n{name}, {dist.get_world_size()} ranks\n\n| " + " | ".join(header) + " |")
        if not self.csv:
            self.say("|" + "---:|" * len(header))

    def say(self, line):
        if self.shown:
            print(line, flush=True)

    def row(self, size, seconds):
        ratios = [seconds["gloo"] / taken for backend, taken in seconds.items() if backend != "gloo"]
        cells = [str(size), *(f"{taken * 1e6:.1f}" for taken in seconds.values()), *(f"{ratio:.2f}" for ratio in ratios)]
        self.say(",".join([self.name, *cells]) if self.csv else "| " + " | ".join(cells) + " |")


def sizes(args, name):
    size = args.min
    while size <= args.max:
        yield size
        if name == "barrier":
            return
        size *= args.factor


def measure_all(args):
    groups = {backend: ranks.new_group(backend) for backend in args.backends}
    for name in COLLECTIVES if args.collective == "all" else [args.collective]:
        table = Table(args, name)
        for size in sizes(args, name):
            cases = {backend: Case(groups[backend], size // 4) for backend in args.backends}
            table.row(size, time_all(COLLECTIVES[name], cases, args.rounds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collective", nargs="?", default="allreduce", choices=["all", *COLLECTIVES])
    parser.add_argument("--ranks", type=int, default=2, help="of this host; unless RANK and WORLD_SIZE are set")
    parser.add_argument("--min", type=int, default=8, help="bytes, at least 4")
    parser.add_argument("--max", type=int, default=64 * 2**20, help="bytes")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plain", action="store_true", help="commstream without encryption too, which Gloo does not have")
    parser.add_argument("--csv", action="store_true")
    args = parser.parse_args()
    if args.min < 4 or args.factor < 2 or args.rounds < 1 or args.ranks < 1:
        parser.error("expected --min of 4 or more, --factor of 2 or more, --rounds and --ranks of 1 or more")
    args.backends = [*BACKENDS, "commstream plain"] if args.plain else BACKENDS
    ranks.run(measure_all, args)


if __name__ == "__main__":
    main()
