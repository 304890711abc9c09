"""Nothing stays behind: objects that come and go, and calls that are refused, leave references and memory as they were."""
import asyncio
import gc
import resource
import sys

import numpy as np
import pytest

import commstream as cs

TURNS = 500
COLLECTIVES = 100_000


def refused(world, x):
    for call in (lambda: world.send(x[::2], 1), lambda: world.send(3, 1), lambda: world.send(x, 1, tag=-1), lambda: world.recv(b""),
                 lambda: world.send(x, 9), lambda: world.send(x, 1, type=77), lambda: world.describe_peer(7)):
        with pytest.raises(cs.Error):
            call()


def comes_and_goes(pair, x):
    for world in pair:
        for call in (lambda: world.allreduce(x[::2]), lambda: world.allgather_v(x, x, [1]), lambda: world.allreduce(x, op=99)):
            with pytest.raises(cs.Error):
                call()
    plans = []
    for world in pair:
        with world.event() as event:
            event.record(world)
        with world.plan() as calls:
            calls.allreduce(x if world is pair[0] else np.ones(4))
        plans.append(calls.plan)
        world.mem_alloc(100).free()
        with world.mem_register(x):
            pass
    cs.wait_all([plan.start() for plan in plans])
    for request in [world.mem_alloc_symmetric(100, async_op=True) for world in pair]:
        request.result().free()
    request = pair[1].recv(bytearray(8), 0)
    request.add_done_callback(lambda r: None)
    pair[0].send(x[:1], 1)
    request.result()
    cancelled = pair[1].recv(x, 0)
    cancelled.cancel()
    with pytest.raises(cs.CancelledError):
        cancelled.wait()
    halves = [r.result() for r in [world.split(0, async_op=True) for world in pair]]
    buckets = [half.buckets([np.ones(3)]) for half in halves]
    for b in buckets:
        b.ready(0)
    while not all(b.wait(0.01) for b in buckets):
        pass
    for half, b in zip(halves, buckets):
        b.free()
        half.close()


async def awaited(pair):
    await asyncio.gather(*[wait(world.barrier()) for world in pair])


async def wait(request):
    await request


def test_nothing_stays_behind(pair):
    x = np.ones(4)

    def turn(count):
        for _ in range(count):
            refused(pair[0], x)
            comes_and_goes(pair, x)
            asyncio.run(awaited(pair))
        for world in pair:
            try:
                world.sync()
            except cs.ArgumentError:  # it tells of the refused calls once more
                pass
        gc.collect()

    turn(TURNS)
    references, blocks = sys.getrefcount(x), sys.getallocatedblocks()
    turn(TURNS)
    assert sys.getrefcount(x) == references
    assert sys.getallocatedblocks() - blocks < TURNS, sys.getallocatedblocks() - blocks
    assert cs._core.pending() <= 8


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_collectives_take_no_memory(pair):
    """Each of the 10^5 has a request of its own, waited for, polled or dropped."""
    inputs, outputs = [np.ones(16) for _ in pair], [np.zeros(16) for _ in pair]

    def turn(count):
        for i in range(count // 2):
            requests = [world.allreduce(x, out) for world, x, out in zip(pair, inputs, outputs)]
            if i % 4 == 0:
                del requests
            elif i % 4 == 1:
                cs.wait_all(requests)
            else:
                for request in requests:
                    while not request.test():
                        pass
        for world in pair:
            world.sync()
        gc.collect()

    turn(COLLECTIVES // 5)
    references, blocks, resident = [sys.getrefcount(x) for x in inputs + outputs], sys.getallocatedblocks(), resident_bytes()
    turn(COLLECTIVES)
    assert [sys.getrefcount(x) for x in inputs + outputs] == references
    assert sys.getallocatedblocks() - blocks < 1000, sys.getallocatedblocks() - blocks
    assert resident_bytes() - resident < 2 << 20, resident_bytes() - resident
    assert cs._core.pending() <= 8
