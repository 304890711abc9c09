"""`await request` in asyncio. One reader of the engine's descriptor serves all that wait on a loop: no thread, and nothing polls.

Loops of several threads may wait for one engine. Its descriptor tells of a completion once, and whichever loop is woken first takes that:
so each turn also looks at what the other loops wait for, and hands on the work that it leaves.
"""
import asyncio
import os
from typing import Any, Dict, Generator, List, Tuple

from . import _core

#: How often one turn makes progress before it lets the loop go on.
TURNS = 64


class Watcher:
    """All requests of one engine that one loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Any, fd: int) -> None:
        self.loop = loop
        self.engine = engine
        self.fd = os.dup(fd)  # its number is in use as long as the loop knows it, also after the engine is gone
        self.waiting: List[Tuple[Any, "asyncio.Future[None]"]] = []
        self.due = False
        loop.add_reader(self.fd, self.turn)

    async def wait(self, request: Any) -> None:
        future = self.loop.create_future()
        self.waiting.append((request, future))
        try:
            self.turn()
            await future
        finally:
            self.waiting = [entry for entry in self.waiting if entry[1] is not future]
            self.rest()

    def rest(self) -> None:
        if not self.waiting:
            self.end()

    def end(self) -> None:
        if _watchers.pop((self.loop, self.engine), None):
            if not self.loop.is_closed():
                self.loop.remove_reader(self.fd)
            os.close(self.fd)

    def pending(self) -> List[Tuple[Any, "asyncio.Future[None]"]]:
        return [entry for entry in self.waiting if not entry[1].done()]

    def settle(self) -> None:
        for request, future in self.pending():
            if request.done:
                future.set_result(None)

    def progress(self) -> bool:
        """Moves work; True if it is safe to sleep until the descriptor is readable, or until closed() is called."""
        alive = [r.communicator for r, _ in self.waiting if r.communicator and not r.communicator.closed]
        if not alive:
            return bool(self.waiting)
        return any(alive[0].progress() for _ in range(TURNS)) and alive[0].arm()

    def turn(self) -> None:
        """Progress until idle, arm, and look once more: after that the descriptor tells of whatever completes."""
        self.due = False
        safe = self.progress()
        self.settle()
        left = not safe
        if left and self.pending() and not self.due:
            self.due = True
            left = False
            self.loop.call_soon(self.turn)
        for other in _watchers_of(self.engine):
            if other is not self and any(left or request.done for request, _ in other.pending()):
                other.call()

    def call(self) -> None:
        """Has the loop make a turn; on any thread."""
        if not self.due:
            self.due = True
            try:
                self.loop.call_soon_threadsafe(self.turn)
            except RuntimeError:  # a loop that was closed while it waited
                pass


_watchers: Dict[Tuple[asyncio.AbstractEventLoop, Any], Watcher] = {}


def _watchers_of(engine: Any) -> List[Watcher]:
    return [watcher for watcher in list(_watchers.values()) if watcher.engine is engine]


def _forget_closed_loops() -> None:
    """Tasks of a loop that was closed while they waited never end, and so their watcher would not."""
    for watcher in list(_watchers.values()):
        if watcher.loop.is_closed():
            watcher.end()


def closed(engine: Any) -> None:
    """A communicator of the engine has closed: its requests have ended, and nobody else tells the loops."""
    _forget_closed_loops()
    for watcher in _watchers_of(engine):
        watcher.call()


async def _wait(request: Any) -> Any:
    if not request.test():
        loop, engine = asyncio.get_running_loop(), request.communicator._engine
        watcher = _watchers.get((loop, engine))
        if not watcher:
            _forget_closed_loops()
            watcher = _watchers[loop, engine] = Watcher(loop, engine, request.communicator.fileno())
        await watcher.wait(request)
    return request.result()


def wait_for(request: "_core.Request") -> Generator[Any, None, Any]:
    """What `await request` iterates over."""
    return _wait(request).__await__()
