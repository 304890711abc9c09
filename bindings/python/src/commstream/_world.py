"""Worlds, communicators, windows: the classes that programs use, over the types of the extension module."""
import atexit
import warnings
import weakref
from typing import Any, Callable, List, Mapping, MutableSequence, Optional, Sequence, Tuple, Union

from . import _check, _core
from ._errors import Error, make_error
from ._types import (ANY_PEER, ANY_TAG, IN_PLACE, AlgorithmInfo, BackendInfo, ErrorDetail, Info, LogLevel, Notify, Op, OptionInfo, Order,
                     PeerInfo, Place, Placement, Progress, RequestInfo, Statistics, Status, Type)

Buffer = Any
Request = _core.Request
_open: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


class Communicator(_core.Communicator):
    """A group of ranks and its work queue. open() makes the first one, split(), dup() and subset() make others of it.

    Each collective and each message returns a Request at once. Collectives run in the order of the calls. Use it in a `with` statement, or
    close() it; the interpreter's exit closes what is open.
    """

    def _made(self) -> None:
        _open.add(self)

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        try:
            self.close()
        except Error:
            if kind is None:
                raise

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"rank {self.rank} of {self.size}"
        return f"<{type(self).__name__} {state}>"

    # ------------------------------------------------------------------------------------------------ other communicators
    def split(self, color: int, key: int = 0, *, async_op: bool = False) -> Any:
        """Splits into one communicator for each color, ordered by key, then by rank: comm_split.

        Returns this rank's communicator, or None for NO_COLOR. With async_op it returns a request, whose result() is that.
        """
        return _made(self._split(_check.int32("split", "color", color), _check.int32("split", "key", key)), async_op)

    def split_place(self, place: Place, *, async_op: bool = False) -> Any:
        """Splits by where ranks run: a host, a NUMA node or a device: comm_split_place."""
        return _made(self._split_place(_check.int32("split_place", "place", place, "a commstream.Place")), async_op)

    def split_mesh(self, shape: Sequence[int], *, async_op: bool = False) -> Any:
        """Views the ranks as a mesh and returns a list with a communicator for each axis: comm_split_mesh."""
        return _made(self._split_mesh(_check.items("split_mesh", "shape", shape)), async_op)

    def subset(self, ranks: Sequence[int], tag: int = 0, *, async_op: bool = False) -> Any:
        """Makes a communicator of some ranks; only those call it: comm_subset."""
        return _made(self._subset(_check.items("subset", "ranks", ranks), _check.uint32("subset", "tag", tag)), async_op)

    def dup(self, *, name: Optional[str] = None, priority: int = 0, order: Order = Order.DEFAULT,
            operation_timeout: Optional[float] = None, stream: int = 0, options: Union[str, Mapping[str, Any], None] = None,
            async_op: bool = False) -> Any:
        """Makes a communicator of the same ranks with a queue of its own: comm_dup."""
        made = self._dup(_check.text("dup", "name", name), _check.int32("dup", "priority", priority),
                         _check.int32("dup", "order", order, "a commstream.Order"),
                         _check.nanoseconds("dup", "operation_timeout", operation_timeout), _check.uint64("dup", "stream", stream),
                         _check.options("dup", options))
        return _made(made, async_op)

    def shrink(self, *, async_op: bool = False) -> Any:
        """Makes a communicator of the surviving ranks of a failed or revoked one: comm_shrink."""
        return _made(self._shrink(), async_op)

    def agree(self, flags: int, *, async_op: bool = False) -> Any:
        """Returns the bitwise AND of the flags of all surviving ranks, the same on each: comm_agree.

        With async_op it returns a request, whose result() is that.
        """
        return _made(self._agree(_check.uint64("agree", "flags", flags)), async_op)

    # ------------------------------------------------------------------------------------------------ batches, memory, events
    def group(self) -> "Recorder":
        """Begins a group: operations that start together: comm_group_begin.

        `with comm.group() as g: g.send(...); g.recv(...)` starts it at the end of the block; g.request is its request.
        """
        recorder: Recorder = _core.group_begin(self)
        return recorder

    def plan(self) -> "Recorder":
        """Begins a plan: operations that are recorded, and started many times: comm_plan_begin.

        `with comm.plan() as p: p.allreduce(x)` makes p.plan at the end of the block; p.plan.start() returns a request.
        """
        recorder: Recorder = _core.plan_begin(self)
        return recorder

    def window(self, bytes: int = 0, *, buffer: Optional[Buffer] = None, signals: int = 0,
               placement: Placement = Placement.DEFAULT, async_op: bool = False) -> Any:
        """Makes a window in which this rank has `bytes` bytes, or the memory of `buffer`; collective: comm_window_create."""
        made = self._window(_check.length("window", "bytes", bytes), buffer,
                            _check.int32("window", "placement", placement, "a commstream.Placement"),
                            _check.uint32("window", "signals", signals))
        return _made(made, async_op)

    def event(self) -> _core.Event:
        """Makes an event whose point is reached: comm_event_create."""
        return _core.event(self)

    def buckets(self, gradients: Sequence[Buffer], *, bytes: int = 0, first_bytes: int = 0, op: Union[Op, _core.Operator] = Op.AVG,
                adopt: bool = False) -> _core.Buckets:
        """Makes gradient buckets for a list of arrays, in the order of the forward pass: comm_buckets_create.

        With `adopt` the gradients live in the buckets: data(i) is their memory, and the arrays only say lengths and types.
        """
        return _core.buckets(self, _check.items("buckets", "gradients", gradients), _check.length("buckets", "bytes", bytes),
                             _check.length("buckets", "first_bytes", first_bytes), op, adopt)

    def operator(self, function: Callable[[memoryview, memoryview], None], *, name: Optional[str] = None, element_bytes: int,
                 ordered: bool = False) -> _core.Operator:
        """Makes a reduction operator: comm_op_create.

        function(inout, input) combines bytes of whole elements in place: inout = input op inout. It must keep neither view. An exception in
        it is raised by each request that uses the operator. Buffers are passed as bytes, whatever their type.
        """
        _check.function("operator", "function", function)
        called: str = _check.text("operator", "name", name) or getattr(function, "__qualname__", type(function).__qualname__)
        return _core.operator(self, function, called, _check.length("operator", "element_bytes", element_bytes), ordered)

    def mem_alloc(self, bytes: int) -> _core.Memory:
        """Allocates zeroed memory that other ranks of this host can read without a copy: comm_mem_alloc."""
        return _core.mem_alloc(self, _check.length("mem_alloc", "bytes", bytes, 1))

    def mem_register(self, buffer: Buffer) -> "Registration":
        """Registers memory of one's own; the result is a context manager that unregisters: comm_mem_register."""
        return Registration(self, buffer)

    # ------------------------------------------------------------------------------------------------ order and progress
    def probe(self, peer: Optional[int] = None, tag: Optional[int] = None, timeout: Optional[float] = None) -> Optional[Status]:
        """Waits for a message and leaves it in place: comm_probe. Returns None if there was none in `timeout` seconds; 0 looks once."""
        status = self._probe(_check.int32("probe", "peer", ANY_PEER if peer is None else peer),
                             _check.uint32("probe", "tag", ANY_TAG if tag is None else tag), timeout)
        return None if status is None else Status(*status)

    def queue_wait(self, what: Union[_core.Event, Request]) -> None:
        """Makes the queue wait for an event or a request of another communicator: comm_queue_wait_event, comm_queue_wait_request."""
        wait = _core.queue_wait_request if isinstance(what, _core.Request) else _core.queue_wait_event
        wait(self, what)

    def queue_wait_stream(self, stream: int) -> None:
        """Makes the queue wait for everything on a CUDA stream, given by its address: comm_queue_wait_stream."""
        _core.queue_wait_stream(self, _check.uint64("queue_wait_stream", "stream", stream))

    def stream(self) -> int:
        """The address of the CUDA stream on which the device work of this communicator runs: comm_stream_of."""
        return _core.stream_of(self)

    # ------------------------------------------------------------------------------------------------ what it tells
    def translate(self, rank: int, other: "Communicator") -> int:
        """The rank in `other` of the process that is `rank` here; -1 if it is none: comm_translate."""
        return self._translate(_check.int32("translate", "rank", rank), other)

    def describe(self) -> Info:
        """Backend, launcher, host, place and limits: comm_describe."""
        return Info(**_core.describe(self))

    def describe_peer(self, peer: int) -> PeerInfo:
        """Where a rank runs, and which backend reaches it: comm_describe_peer."""
        return PeerInfo(**_core.describe_peer(self, _check.integer("describe_peer", "peer", peer, 0, self.size - 1)))

    def statistics(self) -> Statistics:
        """Counters: comm_statistics."""
        return Statistics(**_core.statistics(self))

    def error_detail(self) -> Optional[ErrorDetail]:
        """What caused the failure of this communicator, or its last refused call; None if there is nothing: comm_error_detail."""
        fields = _core.error_detail(self)
        return ErrorDetail(**fields) if fields and fields["result"] else None

    def trace_dump(self, path: Any) -> None:
        """Writes the last operations to a file that chrome://tracing and Perfetto read: comm_trace_dump."""
        _core.trace_dump(self, path)

    def describe_machine(self) -> str:
        """The figures of the machine that predictions use: comm_describe_machine."""
        return _core.describe_machine(self)

    def explain(self, collective: str, n: int, type: Type = Type.F32, op: Op = Op.SUM, root: int = 0, ranks: int = 0) -> str:
        """Which algorithm a call would use, and why: comm_explain."""
        return _core.explain(self, *_call("explain", collective, n, type, op, root, ranks), None, None)

    def predict(self, collective: str, n: int, type: Type = Type.F32, op: Op = Op.SUM, root: int = 0, ranks: int = 0,
                algorithm: Optional[str] = None, machine: Optional[str] = None) -> float:
        """How many seconds a call is predicted to take: comm_predict."""
        return _core.predict(self, *_call("predict", collective, n, type, op, root, ranks),
                             _check.text("predict", "algorithm", algorithm), _check.text("predict", "machine", machine))


class Recorder(Communicator):
    """Records calls for a group or a plan. Its calls return None. The end of its `with` block ends it, and so does end()."""

    #: The request of a group that has ended; None before, and for a group inside a plan.
    request: Optional[Request] = None
    #: The plan, after its end.
    plan: Optional[_core.Plan] = None  # type: ignore[assignment]

    def end(self) -> Any:
        """Starts the group and returns its request, or returns the plan: comm_group_end, comm_plan_end."""
        made = _core.recorder_end(self)
        if isinstance(made, _core.Plan):
            self.plan = made
        else:
            self.request = made
        return made

    def give_up(self) -> None:
        """Ends the recording without starting anything. The other ranks of a group then get RefusedError."""
        try:
            self.allreduce(bytearray(1), op=0)  # refused, and with it the whole group
        except Error:
            pass
        try:
            self.end()
        except Error:
            pass

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            self.end()
        else:
            self.give_up()


class Window(_core.Window):
    """Memory of all ranks that all of them can access. Communicator.window() makes it. The end of its `with` block frees it."""

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        try:
            self.free()
        except Error:
            if kind is None:
                raise


class Registration:
    """Memory that mem_register() registered. The end of its `with` block, or free(), unregisters it."""

    def __init__(self, communicator: Communicator, buffer: Buffer) -> None:
        self._communicator = communicator
        self._address, self._keep = communicator._register(buffer)

    def free(self) -> None:
        """Unregisters the memory: comm_mem_unregister."""
        if self._keep is not None:
            self._communicator._unregister(self._address)
            self._keep = None

    def __enter__(self) -> "Registration":
        return self

    def __exit__(self, *rest: Any) -> None:
        self.free()


def _call(operation: str, collective: str, n: int, type: int, op: int, root: int, ranks: int) -> Tuple[str, int, int, int, int, int]:
    """What explain() and predict() ask about."""
    if not isinstance(collective, str):
        raise TypeError(f"{operation}: collective is {collective!r}; expected a str such as 'allreduce'")
    return (collective, _check.length(operation, "n", n), _check.int32(operation, "type", type, "a commstream.Type"),
            _check.integer(operation, "op", op, 0, (1 << 32) - 1, "a commstream.Op"), _check.int32(operation, "root", root),
            _check.int32(operation, "ranks", ranks))


def _made(request: Request, async_op: bool) -> Any:
    return request if async_op else request.result()


def _config(rank: Optional[int], size: Optional[int], backend: Optional[str], device: Optional[str], address: Optional[str],
            id: Optional[bytes], exchange: Optional[Callable[[bytes], Any]], engine_of: Optional[Communicator], secret: Optional[bytes],
            progress: Progress, notify: Notify, order: Order, log_level: LogLevel, open_timeout: Optional[float],
            operation_timeout: Optional[float], options: Union[str, Mapping[str, Any], None],
            log: Optional[Callable[[int, str], None]]) -> Tuple[Any, ...]:
    if exchange is not None and not size:
        raise _check.wrong("open", "size is not given; exchange needs it")
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
    world: Communicator = _core.open(*config)
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
    return _core.open_local(_check.int32("open_local", "size", size), names, config)


def unique_id(*, backend: Optional[str] = None, address: Optional[str] = None) -> bytes:
    """Makes the identity of a world on rank 0; all ranks then call open(id=..., rank=..., size=...): comm_id_create.

    It contains a secret: hand it out by private means. It can be used once. For ranks on several hosts pass backend="tcp"; rank 0 must then
    run on this host.
    """
    return _core.unique_id(_check.text("unique_id", "backend", backend), _check.text("unique_id", "address", address))


def wait_all(requests: Sequence[Request], timeout: Optional[float] = None) -> bool:
    """Waits until all requests are complete: comm_wait_all. Raises the first error, once all are; False if `timeout` passed first."""
    return bool(_core.wait_many(0, _check.items("wait_all", "requests", requests), timeout))


def _changeable(operation: str, requests: Any) -> List[Any]:
    if not isinstance(requests, MutableSequence):
        raise TypeError(f"{operation}: requests is {requests!r}; expected a list, since items that are complete become None")
    return list(requests)


def wait_any(requests: List[Optional[Request]], timeout: Optional[float] = None) -> Optional[int]:
    """Waits until one of the requests is complete, sets its item to None, and returns its index: comm_wait_any.

    Items that are None are skipped. Returns None if no request is left, and -1 if `timeout` seconds passed first. Raises the request's error.
    """
    given = _changeable("wait_any", requests)
    index: Optional[int]
    try:
        index = _core.wait_many(1, given, timeout)
    except Error as error:
        for at, request in enumerate(given):
            if request is not None and request.error is error:
                requests[at] = None
                break
        raise
    if index is not None and index >= 0:
        requests[index] = None
    return index


def wait_some(requests: List[Optional[Request]], timeout: Optional[float] = None) -> List[int]:
    """Waits until at least one request is complete, sets the items of all that are to None, and returns their indices: comm_wait_some.

    Errors stay with their requests: `error` tells them. An empty list means that none is left, or that `timeout` seconds passed first.
    """
    indices: List[int] = _core.wait_many(2, _changeable("wait_some", requests), timeout)
    for index in indices:
        requests[index] = None
    return indices


def stream_wait(stream: int, what: Union[_core.Event, Request]) -> None:
    """Makes a CUDA stream wait for an event or a request: comm_stream_wait_event, comm_stream_wait_request."""
    _core.stream_wait(_check.uint64("stream_wait", "stream", stream), what)


def version() -> Tuple[int, int, int]:
    """The version of the C library, as (major, minor, patch): comm_version."""
    return _core.version()


def type_size(type: Union[Type, int]) -> int:
    """Bytes of one element; 0 for a number that is not a type: comm_type_size."""
    return _core.type_size(_check.int32("type_size", "type", type, "a commstream.Type"))


def result_name(result: int) -> str:
    """The name of a result, such as "COMM_ERR_PEER": comm_result_name."""
    return _core.result_name(result)


def result_text(result: int) -> str:
    """A result in a few words: comm_result_text."""
    return _core.result_text(result)


def describe_request(request: Request) -> RequestInfo:
    """An operation's sequence number, bytes, times and algorithm: comm_describe_request."""
    return RequestInfo(**_core.describe_request(request))


def describe_backends() -> List[BackendInfo]:
    """All backends, and why those that are missing are: comm_describe_backend."""
    return [BackendInfo(**fields) for fields in _core.describe_backends()]


def describe_options() -> List[OptionInfo]:
    """All options: comm_describe_option."""
    return [OptionInfo(**fields) for fields in _core.describe_options()]


def describe_algorithms() -> List[AlgorithmInfo]:
    """All algorithms: comm_describe_algorithm."""
    return [AlgorithmInfo(**fields) for fields in _core.describe_algorithms()]


@atexit.register
def _close_all() -> None:
    """The interpreter's exit closes what is open, so that the other ranks need not guess."""
    for communicator in list(_open):
        try:
            communicator.close()
        except (Error, BufferError):
            pass


_core.bind(Communicator, Window, make_error, IN_PLACE, Status)
_core.bind_recorder(Recorder)
