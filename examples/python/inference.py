#!/usr/bin/env python3
"""Tensor-parallel inference on CPUs: a small transformer with random weights, split over ranks.

    python inference.py --ranks 2

Each rank has a part of the attention heads and of the feed-forward units of every layer, so each layer adds up partial results twice:
two allreduces of one hidden state per token. Between them a rank computes little, so the time of an allreduce decides the speed.
The program generates the same tokens with the groups of several backends, checks that all of them give the same tokens, and prints the
tokens per second of each.
"""
from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.functional import layer_norm, relu, scaled_dot_product_attention


@dataclass
class Shape:
    layers: int = 8
    hidden: int = 256
    heads: int = 8
    words: int = 1000


def part(rank: int, size: int, total: int) -> slice:
    """Returns which of the heads, or units, a rank has."""
    return slice(total * rank // size, total * (rank + 1) // size)


class Layer:
    """A rank's part of a layer. Every rank draws the same full weights and keeps its part."""

    def __init__(self, shape: Shape, random: torch.Generator, rank: int, size: int):
        hidden, wide, each = shape.hidden, 4 * shape.hidden, shape.hidden // shape.heads

        def draw(*dimensions: int) -> torch.Tensor:
            return torch.randn(*dimensions, generator=random) / dimensions[-1] ** 0.5

        heads, units = part(rank, size, shape.heads), part(rank, size, wide)
        columns = slice(heads.start * each, heads.stop * each)
        self.each = each
        self.query, self.key, self.value = (draw(hidden, hidden)[columns] for _ in range(3))
        self.out = draw(hidden, hidden)[:, columns].contiguous()
        self.up, self.down = draw(wide, hidden)[units], draw(hidden, wide)[:, units].contiguous()
        self.keys, self.values = [], []

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 1, self.each)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Of one token to all before it, by the heads of this rank."""
        self.keys.append(self.split(self.key @ x))
        self.values.append(self.split(self.value @ x))
        keys, values = torch.cat(self.keys, 1), torch.cat(self.values, 1)
        return self.out @ scaled_dot_product_attention(self.split(self.query @ x), keys, values).flatten()

    def step(self, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        for compute in (self.attention, lambda y: self.down @ relu(self.up @ y)):
            y = compute(layer_norm(x, x.shape))
            dist.all_reduce(y, group=group)
            x = x + y
        return x


def generate(shape: Shape, count: int, group: dist.ProcessGroup) -> tuple[list[int], float]:
    """Returns the tokens that follow token 0, each the likeliest one, and how many came in a second."""
    random = torch.Generator().manual_seed(0)
    words, scores = (torch.randn(shape.words, shape.hidden, generator=random) for _ in range(2))
    layers = [Layer(shape, random, dist.get_rank(group), dist.get_world_size(group)) for _ in range(shape.layers)]
    tokens, start = [0], time.perf_counter()
    for _ in range(count):
        x = words[tokens[-1]]
        for layer in layers:
            x = layer.step(x, group)
        tokens.append(int((scores @ layer_norm(x, x.shape)).argmax()))
    return tokens[1:], count / (time.perf_counter() - start)


@torch.inference_mode()
def serve(rank: int, args: argparse.Namespace, store: str) -> None:
    torch.set_num_threads(args.threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if "commstream" in args.backends:
        import commstream.torch  # noqa: F401
    dist.init_process_group(args.backends[0], init_method=f"file://{store}", rank=rank, world_size=args.ranks)
    shape = Shape(layers=args.layers, hidden=args.hidden)
    groups = {backend: dist.new_group(backend=backend) for backend in args.backends}
    best, tokens = dict.fromkeys(groups, 0.0), {}
    for _ in range(args.rounds):
        for backend, group in groups.items():
            tokens[backend], speed = generate(shape, args.tokens, group)
            best[backend] = max(best[backend], speed)
    if rank == 0:
        report(tokens, best, args)
    first = tokens[args.backends[0]]
    dist.destroy_process_group()
    if any(other != first for other in tokens.values()):
        raise SystemExit(f"rank {rank}: the backends gave different tokens: {tokens}")


def report(tokens: dict[str, list[int]], best: dict[str, float], args: argparse.Namespace) -> None:
    print(f"{args.layers} layers of {args.hidden}, {args.ranks} ranks, {args.tokens} tokens, best of {args.rounds}")
    for backend in args.backends:
        print(f"{backend:12} {best[backend]:9.1f} tokens/s", flush=True)
    different = len({tuple(t) for t in tokens.values()}) > 1
    print("tokens differ" if different else "same tokens: " + " ".join(map(str, tokens[args.backends[0]][:8])), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 8")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--backends", nargs="+", default=["commstream", "gloo"])
    args = parser.parse_args()
    if args.hidden % 8 or args.hidden < 8:
        parser.error(f"--hidden {args.hidden}: expected a multiple of 8")
    if not 1 <= args.ranks <= 8:
        parser.error(f"--ranks {args.ranks}: expected 1 to 8, the number of heads")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(serve, (args, os.path.join(folder, "store")), args.ranks)


if __name__ == "__main__":
    main()
