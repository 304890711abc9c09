#!/usr/bin/env python3
"""Stochastic dual dynamic programming of one reservoir, on any number of ranks.

    python -m commstream.run -n 4 --quiet-tags sddp.py --file policy.npz

In each stage of the backward pass a rank makes cuts at its own trial points, and sends them to all ranks in chunks, while it makes the
next ones. It drops cuts that gain nothing, so the others do not know how many come: the counts travel first. All ranks sort the cuts by
trial, so the policy has the same bits on any number of ranks.

The ranks stop together: when the bound rises no more, or when the time of one of them is over. With --file rank 0 writes the policy after
each iteration, and a later run goes on from there. If a rank dies, the others do that iteration again (--lose 3: rank 1
dies in iteration 3).

--solver highs solves the stage problems by HiGHS (pip install highspy). 10_cuts.c is the same model in C.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import time

import numpy as np

import commstream as cs

STAGES, TRIALS, CHUNK = 12, 24, 4
DEMAND, TURBINES, CAPACITY, THERMAL_COST, FIRST_VOLUME = 40.0, 60.0, 100.0, 25.0, 30.0
INFLOWS = np.array([2.0, 14.0, 27.0, 41.0, 66.0])
TRIAL, VALUE, SLOPE = range(3)  # a cut: the future cost is at least value + slope * volume
NO_CUTS = np.empty((0, 3))


class ByHand:
    """Water is used where a unit of it saves most: in the turbines while they replace thermal plants, or in later stages."""

    def __init__(self, cuts: np.ndarray):
        self.lines = np.vstack([[0.0, 0.0], cuts[:, VALUE:]])

    def corner(self, binds: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns up to which volume a line binds, and which one binds after it."""
        steeper = self.lines[self.lines[:, 1] > binds[1]]
        cross = (binds[0] - steeper[:, 0]) / (steeper[:, 1] - binds[1])
        if not cross.size or cross.min() > CAPACITY:
            return CAPACITY, binds
        after = steeper[cross <= cross.min()]
        return cross.min(), after[after[:, 1].argmax()]

    def solve(self, water: float) -> tuple[float, float, float]:
        """Returns the cost of this and later stages, its derivative with respect to the water, and the volume that stays."""
        released = stays = slope = 0.0
        left, most = water, min(DEMAND, TURBINES)
        empty = self.lines[self.lines[:, 0] >= self.lines[:, 0].max()]
        ahead = empty[empty[:, 1].argmax()]
        while left > 0 and (released < most or stays < CAPACITY):
            after = ahead
            if released < most and (stays >= CAPACITY or -THERMAL_COST <= ahead[1]):
                used, slope = min(left, most - released), -THERMAL_COST
                released += used
            else:
                end, after = self.corner(ahead)
                used, slope = min(left, max(0.0, end - stays)), ahead[1]
                stays += used
            left, ahead = left - used, ahead if used == left else after
        return THERMAL_COST * (DEMAND - released) + ahead[0] + ahead[1] * stays, 0.0 if left > 0 else slope, stays


class ByHighs:
    """The same as a linear program."""

    def __init__(self, cuts: np.ndarray):
        import highspy

        self.highs = highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        for cost, upper in ((THERMAL_COST, highs.inf), (0, TURBINES), (0, CAPACITY), (0, highs.inf), (1, highs.inf)):
            highs.addVar(0, upper)
            highs.changeColCost(highs.getNumCol() - 1, cost)
        _, released, stays, spilled, future = range(5)
        highs.addRow(DEMAND, highs.inf, 2, np.array([0, released]), np.ones(2))
        highs.addRow(0, 0, 3, np.array([released, stays, spilled]), np.ones(3))
        for cut in cuts:
            highs.addRow(cut[VALUE], highs.inf, 2, np.array([stays, future]), np.array([-cut[SLOPE], 1.0]))

    def solve(self, water: float) -> tuple[float, float, float]:
        self.highs.changeRowBounds(1, water, water)
        self.highs.clearSolver()  # from the last basis it may find other duals: they would depend on which trials this rank has
        self.highs.run()
        solution = self.highs.getSolution()
        return self.highs.getInfo().objective_function_value, solution.row_dual[1], solution.col_value[2]


class Exchange:
    """Rows of which only their rank knows how many: the counts of all ranks, then the rows."""

    def __init__(self, world: cs.Communicator, rows: np.ndarray):
        self.world, self.rows = world, rows
        self.counts = np.empty(world.size, np.int64)
        self.request = world.allgather(np.array([rows.size]), self.counts)

    def send(self) -> None:
        self.request.wait()
        self.all = np.empty(self.counts.sum())
        self.request = self.world.allgather_v(self.rows, self.all, self.counts.tolist())

    def result(self) -> np.ndarray:
        self.request.wait()
        return self.all.reshape(-1, 3)


def own_trials(world: cs.Communicator) -> range:
    return range(TRIALS * world.rank // world.size, TRIALS * (world.rank + 1) // world.size)


def forward(world: cs.Communicator, solvers: list, iteration: int) -> np.ndarray:
    """Returns the volume of each stage in this rank's trials. The inflows depend on iteration and trial, not on the rank."""
    volumes = np.full((STAGES, TRIALS), FIRST_VOLUME)
    for trial in own_trials(world):
        inflows = np.random.default_rng([iteration, trial]).choice(INFLOWS, STAGES)
        for stage in range(STAGES - 1):
            volumes[stage + 1, trial] = solvers[stage].solve(volumes[stage, trial] + inflows[stage])[2]
    return volumes


def mean_cut(solver, trial: int, volume: float) -> list[float]:
    costs, slopes, _ = np.mean([solver.solve(volume + inflow) for inflow in INFLOWS], axis=0)
    return [trial, costs - slopes * volume, slopes]


def backward(world: cs.Communicator, make_solver, pool: list[np.ndarray], volumes: np.ndarray) -> tuple[list[np.ndarray], float]:
    """Returns the new cuts of each stage, and the lower bound."""
    trials, chunks = own_trials(world), -(-TRIALS // (world.size * CHUNK))
    new = [NO_CUTS] * (STAGES + 1)
    for stage in range(STAGES - 1, 0, -1):
        solver, exchanges = make_solver(np.vstack([pool[stage + 1], new[stage + 1]])), []
        for chunk in range(chunks):
            made = [mean_cut(solver, trial, volumes[stage, trial]) for trial in trials[chunk * CHUNK:(chunk + 1) * CHUNK]]
            useful = [cut for cut in made if gains(cut, pool[stage], volumes[stage, cut[TRIAL]])]
            exchanges.append(Exchange(world, np.array(useful).reshape(-1, 3)))
            if chunk > 0:
                exchanges[-2].send()  # its counts came while this chunk was computed
        exchanges[-1].send()
        rows = np.vstack([exchange.result() for exchange in exchanges])
        new[stage] = rows[rows[:, TRIAL].argsort()]
    first = mean_cut(make_solver(np.vstack([pool[1], new[1]])), 0, FIRST_VOLUME)
    return new, first[VALUE] + first[SLOPE] * FIRST_VOLUME


def gains(cut: list[float], known: np.ndarray, volume: float) -> bool:
    return not known.size or cut[VALUE] + cut[SLOPE] * volume > (known[:, VALUE] + known[:, SLOPE] * volume).max() + 1e-6


def on_any(world: cs.Communicator, here: bool) -> bool:
    """Whether it is so on at least one rank."""
    flag = np.array([here])
    world.allreduce(flag, op=cs.LOR).wait()
    return bool(flag[0])


def load(world: cs.Communicator, path: str | None) -> tuple[int, float, list[np.ndarray]]:
    """Returns the iteration, the bound and the policy. Rank 0 reads the file, and the others get what is in it."""
    numbers, bound, rows = np.zeros(STAGES + 2, np.int64), np.zeros(1), NO_CUTS
    if world.rank == 0 and path and os.path.exists(path):
        with np.load(path) as file:
            numbers, bound, rows = file["numbers"], file["bound"], file["rows"]
    world.broadcast(numbers).wait()
    world.broadcast(bound).wait()
    rows = np.ascontiguousarray(rows) if world.rank == 0 else np.empty((numbers[1:].sum(), 3))
    world.broadcast(rows).wait()
    return int(numbers[0]), float(bound[0]), np.split(rows, np.cumsum(numbers[1:-1]))


def save(path: str, iteration: int, bound: float, pool: list[np.ndarray]) -> None:
    """A reader finds the old file or the new one, whenever this process is killed."""
    with open(path + ".new", "wb") as file:
        np.savez(file, numbers=np.array([iteration, *map(len, pool)]), bound=np.array([bound]), rows=np.vstack(pool))
    os.replace(path + ".new", path)


def survivors(world: cs.Communicator) -> cs.Communicator:
    rest = world.shrink()
    with contextlib.suppress(cs.Error):  # what the lost rank has left unfinished
        world.close()
    return rest


def iterate(world: cs.Communicator, make_solver, pool: list[np.ndarray], iteration: int, end: float):
    """Returns the new cuts, the bound, and whether the time of a rank is over; None if a rank died. All survivors return the same."""
    try:
        solvers = [make_solver(cuts) for cuts in pool[1:]]
        new, bound = backward(world, make_solver, pool, forward(world, solvers, iteration))
        result = new, bound, on_any(world, time.monotonic() > end)
    except cs.Error:
        result = None
        world.revoke()  # others may still wait
    return result if world.agree(int(result is not None)) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solver", choices=["hand", "highs"], default="hand")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--file", help="where rank 0 keeps the policy")
    parser.add_argument("--lose", type=int, default=-1, help="the iteration in which rank 1 dies")
    args = parser.parse_args()
    make_solver, end = ByHighs if args.solver == "highs" else ByHand, time.monotonic() + args.seconds
    world = cs.open()
    was_rank_1 = world.rank == 1
    iteration, bound, pool = load(world, args.file)
    done = False
    while not done and iteration < args.iterations:
        if was_rank_1 and iteration == args.lose:
            os._exit(0)  # without closing the world, like a process that crashes
        result = iterate(world, make_solver, pool, iteration, end)
        if result is None:
            world = survivors(world)
            continue
        new, now, late = result
        pool = [np.vstack(both) for both in zip(pool, new)]
        iteration += 1
        if world.rank == 0 and args.file:
            save(args.file, iteration, now, pool)
        done, bound = late or now - bound < 1e-6 * now, now  # the same on all ranks
    if world.rank == 0:
        print(f"sddp: {iteration} iterations, {sum(map(len, pool))} cuts, the cost is at least {bound:.10f}")
    world.close()


if __name__ == "__main__":
    main()
