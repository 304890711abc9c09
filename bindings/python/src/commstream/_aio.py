"""`await request` in asyncio. One reader of the engine's descriptor serves all that wait on a loop: no thread, and nothing polls."""
import asyncio
from typing import Any, Dict, Generator, List, Tuple

from . import _core

#: How often one turn makes progress before it lets the loop go on.
TURNS = 64


class Watcher:
    """All requests of one engine that one loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        self.loop = loop
        self.fd = fd
        self.waiting: List[Tuple[Any, "asyncio.Future[None]"]] = []
        self.due = False

    async def wait(self, request: Any) -> None:
        future = self.loop.create_future()
        if not self.waiting:
            self.loop.add_reader(self.fd, self.turn)
        self.waiting.append((request, future))
        try:
            self.turn()
            await future
        finally:
            self.waiting = [entry for entry in self.waiting if entry[1] is not future]
            self.rest()

    def rest(self) -> None:
        if not self.waiting and (self.loop, self.fd) in _watchers:
            del _watchers[self.loop, self.fd]
            self.loop.remove_reader(self.fd)

    def settle(self) -> None:
        for request, future in self.waiting:
            if not future.done() and request.done:
                future.set_result(None)

    def progress(self) -> bool:
        """Moves work; True if it is safe to sleep until the descriptor is readable."""
        alive = [r.communicator for r, _ in self.waiting if r.communicator and not r.communicator.closed]
        if not alive:
            return True
        return any(alive[0].progress() for _ in range(TURNS)) and alive[0].arm()

    def turn(self) -> None:
        """Progress until idle, arm, and look once more: after that the descriptor tells of whatever completes."""
        self.due = False
        safe = self.progress()
        self.settle()
        if not safe and not self.due and any(not future.done() for _, future in self.waiting):
            self.due = True
            self.loop.call_soon(self.turn)


_watchers: Dict[Tuple[asyncio.AbstractEventLoop, int], Watcher] = {}


async def _wait(request: Any) -> Any:
    if not request.test():
        loop, fd = asyncio.get_running_loop(), request.communicator.fileno()
        watcher = _watchers.setdefault((loop, fd), Watcher(loop, fd))
        await watcher.wait(request)
    return request.result()


def wait_for(request: "_core.Request") -> Generator[Any, None, Any]:
    """What `await request` iterates over."""
    return _wait(request).__await__()
