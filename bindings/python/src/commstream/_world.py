"""Worlds, communicators, windows: the classes that programs use, over the types of the extension module."""
import atexit
import contextlib
import warnings
import weakref
from typing import Any, Callable, Iterator, List, Literal, Mapping, MutableSequence, Optional, Sequence, Tuple, Union, overload

from . import _check, _core
from ._errors import Error, make_error
from ._types import (ANY_PEER, ANY_TAG, IN_PLACE, AlgorithmInfo, BackendInfo, ErrorDetail, Info, Op, OptionInfo, Order, PeerInfo, Place,
                     Placement, RequestInfo, Statistics, Status, Type)

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
        except (Error, BufferError):
            if kind is None:
                raise

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"rank {self.rank} of {self.size}"
        return f"<{type(self).__name__} {state}>"

    @contextlib.contextmanager
    def _telling(self, operation: str) -> Iterator[None]:
        """Of arguments of a collective call that are refused here the other ranks are told, as of those that the library refuses."""
        try:
            yield
        except Exception:
            if not self.closed:
                self._refuse(operation)
            raise

    # ------------------------------------------------------------------------------------------------ other communicators
    @overload
    def split(self, color: int, key: int = 0, *, async_op: Literal[False] = False) -> Optional["Communicator"]: ...
    @overload
    def split(self, color: int, key: int = 0, *, async_op: Literal[True]) -> Request: ...
    def split(self, color: int, key: int = 0, *, async_op: bool = False) -> Any:
        """Splits into one communicator for each color, ordered by key, then by rank: comm_split.

        Returns this rank's communicator, or None for NO_COLOR. With async_op it returns a request, whose result() is that.
        """
        with self._telling("split"):
            given = _check.int32("split", "color", color), _check.int32("split", "key", key)
        return _made(self._split(*given), async_op)

    @overload
    def split_place(self, place: Place, *, async_op: Literal[False] = False) -> "Communicator": ...
    @overload
    def split_place(self, place: Place, *, async_op: Literal[True]) -> Request: ...
    def split_place(self, place: Place, *, async_op: bool = False) -> Any:
        """Splits by where ranks run: a host, a NUMA node or a device: comm_split_place."""
        with self._telling("split_place"):
            number = _check.int32("split_place", "place", place, "a commstream.Place")
        return _made(self._split_place(number), async_op)

    @overload
    def split_mesh(self, shape: Sequence[int], *, async_op: Literal[False] = False) -> List["Communicator"]: ...
    @overload
    def split_mesh(self, shape: Sequence[int], *, async_op: Literal[True]) -> Request: ...
    def split_mesh(self, shape: Sequence[int], *, async_op: bool = False) -> Any:
        """Views the ranks as a mesh and returns a list with a communicator for each axis: comm_split_mesh."""
        with self._telling("split_mesh"):
            axes = _check.items("split_mesh", "shape", shape)
        return _made(self._split_mesh(axes), async_op)

    @overload
    def subset(self, ranks: Sequence[int], tag: int = 0, *, async_op: Literal[False] = False) -> "Communicator": ...
    @overload
    def subset(self, ranks: Sequence[int], tag: int = 0, *, async_op: Literal[True]) -> Request: ...
    def subset(self, ranks: Sequence[int], tag: int = 0, *, async_op: bool = False) -> Any:
        """Makes a communicator of some ranks; only those call it: comm_subset."""
        return _made(self._subset(_check.items("subset", "ranks", ranks), _check.uint32("subset", "tag", tag)), async_op)

    @overload
    def dup(self, *, name: Optional[str] = None, priority: int = 0, order: Order = Order.DEFAULT,
            operation_timeout: Optional[float] = None, stream: int = 0, options: Union[str, Mapping[str, Any], None] = None,
            async_op: Literal[False] = False) -> "Communicator": ...
    @overload
    def dup(self, *, name: Optional[str] = None, priority: int = 0, order: Order = Order.DEFAULT,
            operation_timeout: Optional[float] = None, stream: int = 0, options: Union[str, Mapping[str, Any], None] = None,
            async_op: Literal[True]) -> Request: ...
    def dup(self, *, name: Optional[str] = None, priority: int = 0, order: Order = Order.DEFAULT,
            operation_timeout: Optional[float] = None, stream: int = 0, options: Union[str, Mapping[str, Any], None] = None,
            async_op: bool = False) -> Any:
        """Makes a communicator of the same ranks with a queue of its own: comm_dup."""
        with self._telling("dup"):
            given = (_check.text("dup", "name", name), _check.int32("dup", "priority", priority),
                     _check.int32("dup", "order", order, "a commstream.Order"),
                     _check.nanoseconds("dup", "operation_timeout", operation_timeout), _check.uint64("dup", "stream", stream),
                     _check.options("dup", options))
        return _made(self._dup(*given), async_op)

    @overload
    def shrink(self, *, async_op: Literal[False] = False) -> "Communicator": ...
    @overload
    def shrink(self, *, async_op: Literal[True]) -> Request: ...
    def shrink(self, *, async_op: bool = False) -> Any:
        """Makes a communicator of the surviving ranks of a failed or revoked one: comm_shrink."""
        return _made(self._shrink(), async_op)

    @overload
    def agree(self, flags: int, *, async_op: Literal[False] = False) -> int: ...
    @overload
    def agree(self, flags: int, *, async_op: Literal[True]) -> Request: ...
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

    @overload
    def window(self, bytes: int = 0, *, buffer: Optional[Buffer] = None, signals: int = 0,
               placement: Placement = Placement.DEFAULT, async_op: Literal[False] = False) -> "Window": ...
    @overload
    def window(self, bytes: int = 0, *, buffer: Optional[Buffer] = None, signals: int = 0,
               placement: Placement = Placement.DEFAULT, async_op: Literal[True]) -> Request: ...
    def window(self, bytes: int = 0, *, buffer: Optional[Buffer] = None, signals: int = 0,
               placement: Placement = Placement.DEFAULT, async_op: bool = False) -> Any:
        """Makes a window in which this rank has `bytes` bytes, or the memory of `buffer`; collective: comm_window_create."""
        with self._telling("window"):
            given = (_check.length("window", "bytes", bytes), buffer,
                     _check.int32("window", "placement", placement, "a commstream.Placement"), _check.uint32("window", "signals", signals))
        return _made(self._window(*given), async_op)

    def event(self) -> _core.Event:
        """Makes an event whose point is reached: comm_event_create."""
        return _core.event(self)

    def buckets(self, gradients: Sequence[Buffer], *, bytes: int = 0, first_bytes: int = 0, op: Union[Op, _core.Operator] = Op.AVG,
                adopt: int = False) -> _core.Buckets:
        """Makes gradient buckets for a list of arrays, in the order of the forward pass: comm_buckets_create.

        With `adopt` the gradients live in the buckets: data(i) is their memory, and the arrays only say lengths and types. With adopt=2 that is
        memory of the communicator's device.
        """
        return _core.buckets(self, _check.items("buckets", "gradients", gradients), _check.length("buckets", "bytes", bytes),
                             _check.length("buckets", "first_bytes", first_bytes), op,
                             _check.integer("buckets", "adopt", adopt, 0, 2, "False, True or 2"))

    def operator(self, function: Callable[[memoryview, memoryview], None], *, name: Optional[str] = None, element_bytes: int,
                 ordered: bool = False) -> _core.Operator:
        """Makes a reduction operator: comm_op_create.

        function(inout, input) combines bytes of whole elements in place: inout = input op inout. It must keep neither view. An exception in
        it is raised by each request that uses the operator. Calls of the library in it raise StateError, and callbacks wait until it has
        returned. Buffers are passed as bytes, whatever their type.
        """
        _check.function("operator", "function", function)
        called = _check.text("operator", "name", name) or str(getattr(function, "__qualname__", type(function).__qualname__))
        return _core.operator(self, function, called, _check.integer("operator", "element_bytes", element_bytes, 1, 4096), ordered)

    def premul_sum(self, type: Type, factor: Union[complex, bytes]) -> _core.Operator:
        """Makes the operator that multiplies this rank's input by `factor` and adds the products: comm_op_create_premul_sum.

        `type` is an integer, floating or complex type; calls pass buffers of it. The factor is a number, or the bytes of one element, as it
        must be for types that Python has no numbers of: BF16, F8E4M3 and F8E5M2.
        """
        return _core.premul_sum(self, type, "premul_sum", _check.element("premul_sum", "factor", type, factor))

    def mem_alloc(self, bytes: int) -> _core.Memory:
        """Allocates memory that moves with fewer copies: comm_mem_alloc.

        It is zeroed, and other ranks of this host read it without a copy. On backend nccl it is memory of the device, which is not zeroed.
        """
        return _core.mem_alloc(self, _check.length("mem_alloc", "bytes", bytes, 1))

    @overload
    def mem_alloc_symmetric(self, bytes: int, *, async_op: Literal[False] = False) -> _core.Memory: ...
    @overload
    def mem_alloc_symmetric(self, bytes: int, *, async_op: Literal[True]) -> Request: ...
    def mem_alloc_symmetric(self, bytes: int, *, async_op: bool = False) -> Any:
        """Allocates memory of the same length on every rank; collective: comm_mem_alloc_symmetric.

        On backend nccl all ranks register it together, as a symmetric window of NCCL's. With async_op it returns a request, whose
        result() is the memory.
        """
        with self._telling("mem_alloc_symmetric"):
            length = _check.length("mem_alloc_symmetric", "bytes", bytes, 1)
        return _made(self._mem_alloc_symmetric(length), async_op)

    def mem_register(self, buffer: Buffer) -> "Registration":
        """Registers memory of one's own; the result is a context manager that unregisters: comm_mem_register."""
        return Registration(self, buffer)

    # ------------------------------------------------------------------------------------------------ order and progress
    def probe(self, peer: Optional[int] = None, tag: Optional[int] = None, timeout: Optional[float] = None) -> Optional[Status]:
        """Waits for a message and leaves it in place: comm_probe.

        Returns None if there was none in `timeout` seconds; 0 looks once, and None waits without a limit.
        """
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
        _core.trace_dump(self, _check.path("trace_dump", "path", path))

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
        if self.plan is not None:
            self.plan.free()
            self.plan = None

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
        except (Error, BufferError):
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

    def __del__(self) -> None:
        """The memory may go with the last reference to it, and another array may get its address."""
        if hasattr(self, "_keep"):
            self.free()

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
    except Exception as error:  # of the library, or of an operator
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
    return _core.result_name(_check.int32("result_name", "result", result, "a commstream.Result"))


def result_text(result: int) -> str:
    """A result in a few words: comm_result_text."""
    return _core.result_text(_check.int32("result_text", "result", result, "a commstream.Result"))


def describe_request(request: Request) -> RequestInfo:
    """An operation's sequence number, bytes, times and algorithm: comm_describe_request."""
    if not isinstance(request, Request):
        raise TypeError(f"describe_request: request is {request!r}; expected a Request")
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
