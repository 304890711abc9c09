"""Opening a world: the calls whose arguments are those of struct comm_config."""
import os
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _check, _core
from ._types import LogLevel, Notify, Order, Progress
from ._world import Communicator


def _config(rank: Optional[int], size: Optional[int], backend: Optional[str], device: Optional[str], address: Optional[str],
            id: Optional[bytes], exchange: Optional[Callable[[bytes], Any]], engine_of: Optional[Communicator], secret: Optional[bytes],
            progress: Progress, notify: Notify, order: Order, log_level: LogLevel, open_timeout: Optional[float],
            operation_timeout: Optional[float], options: Union[str, Mapping[str, Any], None],
            log: Optional[Callable[[int, str], None]]) -> Tuple[Any, ...]:
    if exchange is not None and not size:
        raise _check.wrong("open", "size is not given; exchange needs it")
    if rank is not None and not size:
        raise _check.wrong("open", f"rank is {rank!r} and size is {size!r}; expected the number of ranks as size, or neither")
    if rank is None and size not in (None, 0, 1):
        raise _check.wrong("open", f"size is {size!r} and rank is None; expected this rank too, or neither")
    if engine_of is not None and not isinstance(engine_of, Communicator):
        raise TypeError(f"open: engine_of is {engine_of!r}; expected a Communicator or None")
    for name, value in (("id", id), ("secret", secret)):
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"open: {name} is of {type(value)}; expected bytes or None")  # not what it is: it is secret
    texts = [_check.text("open", name, value) for name, value in (("backend", backend), ("device", device), ("address", address))]
    enums = [_check.int32("open", name, value, f"a commstream.{kind}") for name, value, kind in (
        ("progress", progress, "Progress"), ("notify", notify, "Notify"), ("order", order, "Order"), ("log_level", log_level, "LogLevel"))]
    return (_check.int32("open", "rank", rank or 0), _check.int32("open", "size", size or 0), *texts, id,
            exchange and _joined(_check.function("open", "exchange", exchange)), engine_of, secret, *enums,
            _check.nanoseconds("open", "open_timeout", open_timeout), _check.nanoseconds("open", "operation_timeout", operation_timeout),
            _check.options("open", options), log and _check.function("open", "log", log))


def _aside(backend: Optional[str], device: Optional[str], engine_of: Optional[Communicator], exchange: Any, options: Any) -> bool:
    """Whether another thread may open, so that this one handles signals. MPI, NCCL and CUDA know their thread, and so may a function."""
    said = f"{backend} {os.environ.get('COMM_BACKEND')} {options}".lower()
    return device is None and engine_of is None and exchange is None and not any(name in said for name in ("mpi", "nccl", "cuda"))


def _joined(exchange: Callable[[bytes], Any]) -> Callable[[bytes], bytes]:
    def call(data: bytes) -> bytes:
        said = exchange(data)
        return said if isinstance(said, bytes) else b"".join(said)
    return call


def open(*, rank: Optional[int] = None, size: Optional[int] = None, backend: Optional[str] = None, device: Optional[str] = None,
         address: Optional[str] = None, id: Optional[bytes] = None, exchange: Optional[Callable[[bytes], Any]] = None,
         engine_of: Optional[Communicator] = None, secret: Optional[bytes] = None, progress: Progress = Progress.AUTO,
         notify: Notify = Notify.DEFAULT, order: Order = Order.DEFAULT, log_level: LogLevel = LogLevel.DEFAULT,
         open_timeout: Optional[float] = None, operation_timeout: Optional[float] = None,
         options: Union[str, Mapping[str, Any], None] = None, log: Optional[Callable[[int, str], None]] = None) -> Communicator:
    """Opens the world of this job, and returns this rank's communicator of all ranks; collective: comm_open.

    Without arguments everything comes from the launcher: comm-run, torchrun, mpirun, srun, Kubernetes. Without a launcher it is a world of
    one rank.

    Args:
        rank, size: this rank and the number of ranks, where no launcher tells them.
        backend: auto, local, shm, tcp, shm+tcp, mpi, shm+mpi, nccl or cuda.
        device: "cuda:0", for nccl, cuda and for streams.
        address: for tcp HOST:PORT of rank 0, or file:PATH; otherwise a name where ranks of a host meet.
        id: what unique_id() of rank 0 returned, instead of an address and a secret.
        exchange: a function that gets the bytes of this rank and returns those of all ranks, in rank order, instead of an address.
        engine_of: a communicator whose engine the world joins.
        secret: at least 16 bytes that all ranks have: they prove it to each other.
        progress, notify, order, log_level: see the enums.
        open_timeout: seconds to wait for the other ranks (60).
        operation_timeout: seconds after which an operation fails (1800).
        options: "key=value,..." or a mapping; describe_options() lists the keys.
        log: a function (level, line) that receives the log, on a thread of the library.
    """
    config = _config(rank, size, backend, device, address, id, exchange, engine_of, secret, progress, notify, order, log_level, open_timeout,
                     operation_timeout, options, log)
    world: Communicator = _core.open(config, _aside(backend, device, engine_of, exchange, options))
    return world


def open_local(size: int, *, devices: Optional[Sequence[Optional[str]]] = None, progress: Progress = Progress.AUTO,
               notify: Notify = Notify.DEFAULT, order: Order = Order.DEFAULT, log_level: LogLevel = LogLevel.DEFAULT,
               backend: Optional[str] = None, open_timeout: Optional[float] = None, operation_timeout: Optional[float] = None,
               options: Union[str, Mapping[str, Any], None] = None,
               log: Optional[Callable[[int, str], None]] = None) -> List[Communicator]:
    """Opens a world whose ranks are all in this process, for threads and tests: comm_open_local. Returns one communicator per rank."""
    config = _config(None, None, backend, None, None, None, None, None, None, progress, notify, order, log_level, open_timeout,
                     operation_timeout, options, log)
    names = None if devices is None else [_check.text("open_local", "devices", device) for device in
                                          _check.items("open_local", "devices", devices)]
    return _core.open_local(_check.integer("open_local", "size", size, 1, 1024), names, config)


def unique_id(*, backend: Optional[str] = None, address: Optional[str] = None) -> bytes:
    """Makes the identity of a world on rank 0; all ranks then call open(id=..., rank=..., size=...): comm_id_create.

    It contains a secret: hand it out by private means. It can be used once. For ranks on several hosts pass backend="tcp"; rank 0 must then
    run on this host.
    """
    return _core.unique_id(_check.text("unique_id", "backend", backend), _check.text("unique_id", "address", address))
