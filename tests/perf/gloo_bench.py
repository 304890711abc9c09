#!/usr/bin/env python3
"""What comm-perf measures, over torch.distributed with Gloo: same buffers, batches, iterations and columns (src/tools/comm_perf.c).

    comm-run -n 2 python gloo_bench.py COLLECTIVE [--min BYTES] [--max BYTES] [--mode MODE] [--blocking] [--backend gloo]
"""
import argparse
import os
import sys
import time

import torch
import torch.distributed as dist

BATCHES, WARM_SECONDS, BATCH_SECONDS, DEPTH, ROTATE_BYTES = 15, 0.02, 0.1, 16, 64 << 20
MODES = ("request", "isolated", "pipelined")


def parts(bench, tensor):
    return list(tensor.chunk(bench.ranks))


# name: (input is a multiple of ranks, output has all ranks' inputs, how a call is started)
COLLECTIVES = {
    "allreduce": (False, False, lambda b, i, o, a: dist.all_reduce(i, async_op=a)),
    "reduce": (False, False, lambda b, i, o, a: dist.reduce(i, 0, async_op=a)),
    "broadcast": (False, False, lambda b, i, o, a: dist.broadcast(i, 0, async_op=a)),
    "allgather": (False, True, lambda b, i, o, a: dist.all_gather_into_tensor(o, i, async_op=a)),
    "reduce_scatter": (True, False, lambda b, i, o, a: dist.reduce_scatter_tensor(o[:i.numel() // b.ranks], i, async_op=a)),
    "gather": (False, True, lambda b, i, o, a: dist.gather(i, parts(b, o) if b.rank == 0 else None, 0, async_op=a)),
    "scatter": (True, False, lambda b, i, o, a: dist.scatter(o[:i.numel() // b.ranks], parts(b, i) if b.rank == 0 else None, 0, async_op=a)),
    "alltoall": (True, False, lambda b, i, o, a: dist.all_to_all_single(o, i, async_op=a)),
    "barrier": (False, False, lambda b, i, o, a: dist.barrier(async_op=a)),
}


class Bench:
    def __init__(self, args):
        self.rank, self.ranks, self.mode = dist.get_rank(), dist.get_world_size(), args.mode
        self.blocks, self.gathers, self.start = COLLECTIVES[args.collective]
        self.blocking = args.blocking
        self.warmed = 0.0

    def open(self, size):
        n = max(size // 4, 1)
        n = max(n // self.ranks, 1) * self.ranks if self.blocks else n
        out = n * (self.ranks if self.gathers else 1)
        self.slots = max(min(ROTATE_BYTES // ((n + out) * 4), DEPTH), 1) if self.mode != "pipelined" else DEPTH
        self.inputs = [torch.ones(n) for _ in range(self.slots)]
        self.outputs = [torch.zeros(out) for _ in range(self.slots)]

    def call(self, i):
        slot = i % self.slots
        return self.start(self, self.inputs[slot], self.outputs[slot], not self.blocking)

    def single(self, iterations):
        begin = time.perf_counter()
        for i in range(iterations):
            work = self.call(i)
            if not self.blocking:
                work.wait()
        return (time.perf_counter() - begin) / iterations

    def isolated(self, iterations):
        seconds = 0.0
        for i in range(iterations):
            dist.barrier()
            begin = time.perf_counter()
            work = self.call(i)
            if not self.blocking:
                work.wait()
            seconds += time.perf_counter() - begin
        return seconds / iterations

    def pipelined(self, iterations):
        begin = time.perf_counter()
        for _ in range(iterations):
            for work in [self.call(k) for k in range(DEPTH)]:
                work.wait()
        return (time.perf_counter() - begin) / (iterations * DEPTH)

    def batch(self, iterations):
        dist.barrier()
        how = {"pipelined": self.pipelined, "isolated": self.isolated}.get(self.mode, self.single)
        slowest = torch.tensor([how(iterations)], dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return float(slowest[0])

    def measure(self, size):
        self.open(size)
        depth = DEPTH if self.mode == "pipelined" else 1
        iterations = (2000 if size <= 4096 else 200 if size <= 262144 else 20 if size <= 4 << 20 else 4) // (4 if depth > 1 else 1) + 1
        self.batch(1)
        iterations = min(iterations, int(BATCH_SECONDS / (self.batch(iterations // 16 + 1) * depth + 1e-9)) + 1)
        while self.warmed < WARM_SECONDS:
            self.warmed += self.batch(iterations) * iterations * depth
        return sorted(self.batch(iterations) for _ in range(BATCHES))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collective")
    parser.add_argument("--min", type=int, default=8)
    parser.add_argument("--max", type=int, default=16 << 20)
    parser.add_argument("--mode", choices=MODES, default="request")
    parser.add_argument("--blocking", action="store_true")
    parser.add_argument("--backend", default="gloo")
    args = parser.parse_args()
    if args.collective not in COLLECTIVES:
        print(f"gloo_bench.py: {args.collective} is none of {' '.join(COLLECTIVES)}", file=sys.stderr)
        sys.exit(3)
    return args


def main():
    args = parse()
    rank, ranks = int(os.environ["COMM_RANK"]), int(os.environ["COMM_RANKS"])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group(args.backend, init_method=f"file:///tmp/gloo_bench.{os.getppid()}", rank=rank, world_size=ranks)
    bench = Bench(args)
    if rank == 0:
        print("collective,backend,ranks,type,bytes,mode,min_us,median_us,max_us,overlap_pct", flush=True)
    size = args.min
    while size <= args.max:
        times = bench.measure(size)
        if rank == 0:
            print(f"{args.collective},{args.backend},{ranks},f32,{size},{args.mode},{times[0] * 1e6:.3f},{times[BATCHES // 2] * 1e6:.3f},"
                  f"{times[-1] * 1e6:.3f},0.0", flush=True)
        size = size * 4 if args.collective != "barrier" else args.max + 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
