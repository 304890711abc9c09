"""`await request`: by the engine's descriptor, with no thread and no polling."""
import asyncio
import gc
import os
import threading
import time

import numpy as np
import pytest

import commstream as cs

MODES = [cs.Progress.CALLER, cs.Progress.THREAD]


@pytest.fixture(params=MODES)
def couple(request):
    worlds = cs.open_local(2, progress=request.param, operation_timeout=60)
    yield worlds
    for world in worlds:
        world.close()


def test_await_gives_the_result(couple):
    async def main():
        room = bytearray(4)
        got = couple[1].recv(room, 0)
        await couple[0].send(b"1234", 1, tag=3)
        assert await got == cs.Status(0, 3, 4)
        arrays = [np.full(100000, r + 1.0) for r in range(2)]
        results = await asyncio.gather(*[world.allreduce(array) for world, array in zip(couple, arrays)])
        assert results[0] is arrays[0] and arrays[0][0] == 3
        halves = await asyncio.gather(*[world.split(0, async_op=True) for world in couple])
        assert [half.size for half in halves] == [2, 2]
        for half in halves:
            half.close()
    asyncio.run(main())


def test_a_wait_that_another_thread_ends(couple):
    def send():
        time.sleep(0.3)
        couple[0].send(b"x", 1).wait()

    async def main():
        threading.Thread(target=send).start()
        assert (await asyncio.wait_for(couple[1].recv(bytearray(1), 0), 30)).bytes == 1
    asyncio.run(main())


def test_a_blocking_wait_beside_it_loses_no_wakeup(couple):
    async def main():
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        assert cs.wait_all([world.barrier() for world in couple])
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, lambda: couple[0].send(b"y", 1).wait())
        assert (await asyncio.wait_for(waiting, 30)).bytes == 1

    async def receive():
        return await couple[1].recv(bytearray(1), 0)
    asyncio.run(main())


def test_it_does_not_poll(couple):
    """While nothing comes, the loop sleeps: the process uses no processor time."""
    async def main():
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0.1)
        before = time.thread_time()
        await asyncio.sleep(0.5)
        assert time.thread_time() - before < 0.1
        assert not waiting.done()
        await couple[0].send(b"z", 1)
        await waiting

    async def receive():
        await couple[1].recv(bytearray(1), 0)
    asyncio.run(main())


def test_errors_and_cancelled_tasks(couple):
    async def main():
        request = couple[1].recv(bytearray(1), 0)
        task = asyncio.ensure_future(receive(request))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = asyncio.ensure_future(receive(request))
        await asyncio.sleep(0)
        request.cancel()
        with pytest.raises(cs.CancelledError):
            await asyncio.wait_for(task, 30)
    asyncio.run(main())


async def receive(request):
    return await request


def test_many_at_once(couple):
    async def main():
        rooms = [bytearray(1) for _ in range(200)]
        waiting = [receive(couple[1].recv(room, 0, tag)) for tag, room in enumerate(rooms)]
        sending = [receive(couple[0].send(bytes([tag]), 1, tag)) for tag in reversed(range(200))]
        await asyncio.gather(*waiting, *sending)
        assert rooms == [bytes([tag]) for tag in range(200)]
    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_loops_of_two_threads_wait_for_one_engine(mode):
    worlds = cs.open_local(2, progress=mode, operation_timeout=60)
    rounds = []

    async def side(world):
        other, room = 1 - world.rank, bytearray(1)
        for i in range(100):
            for request in ([world.send, world.recv] if world.rank == 0 else [world.recv, world.send]):
                await asyncio.wait_for(receive(request(room, other)), 20)
        rounds.append(i)
    threads = [threading.Thread(target=lambda world=world: asyncio.run(side(world))) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rounds == [99, 99]
    for world in worlds:
        world.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_close_ends_what_waits(mode):
    async def main():
        for turn in range(2):  # the second engine has the descriptor's number of the first
            worlds = cs.open_local(2, progress=mode, operation_timeout=60)
            waiting = asyncio.ensure_future(receive(worlds[1].recv(bytearray(1), 0)))
            await asyncio.sleep(0.05)
            for world in worlds:
                world.close()
            following = cs.open_local(2, progress=mode, operation_timeout=60)
            threading.Timer(0.1, lambda: following[0].send(b"x", 1).wait()).start()
            assert (await asyncio.wait_for(following[1].recv(bytearray(1), 0), 20)).bytes == 1
            with pytest.raises(cs.CancelledError):
                await asyncio.wait_for(waiting, 20)
            for world in following:
                world.close()
    asyncio.run(main())


def test_a_loop_that_was_closed_with_waiting_tasks_leaves_nothing(couple):
    async def main():
        waiting = asyncio.ensure_future(receive(couple[1].recv(bytearray(1), 0, tag=1)))
        await asyncio.sleep(0.01)
        await couple[0].send(bytes(1), 1, tag=1)
        await waiting
    asyncio.run(main())
    descriptors, logged = len(os.listdir("/proc/self/fd")), []
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: logged.append(context["message"]))
        task = loop.create_task(receive(couple[1].recv(bytearray(1), 0, tag=2)))
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        del task, loop
    asyncio.run(main())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert logged == 3 * ["Task was destroyed but it is pending!"]
