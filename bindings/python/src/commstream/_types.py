"""Numbers of the C API as enums, and the descriptions that the library fills as records."""
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Optional


class Type(IntEnum):
    """The type of an element. Buffers that say theirs need none; `type=` names it for raw bytes."""

    BYTE = 1
    BOOL = 2
    I8 = 8
    I16 = 9
    I32 = 10
    I64 = 11
    U8 = 16
    U16 = 17
    U32 = 18
    U64 = 19
    F8E4M3 = 24
    F8E5M2 = 25
    F16 = 26
    BF16 = 27
    F32 = 28
    F64 = 29
    C64 = 40
    C128 = 41
    F32_INDEX = 48
    F64_INDEX = 49
    I32_INDEX = 50
    I64_INDEX = 51


class Op(IntEnum):
    """A built-in reduction operator. REPLACE and NOOP are for windows."""

    SUM = 1
    PROD = 2
    MIN = 3
    MAX = 4
    AVG = 5
    BAND = 6
    BOR = 7
    BXOR = 8
    LAND = 9
    LOR = 10
    LXOR = 11
    MINLOC = 12
    MAXLOC = 13
    REPLACE = 14
    NOOP = 15


class Result(IntEnum):
    """What a call returns in C and a request ends with."""

    OK = 0
    PENDING = 1
    ERR_ARGUMENT = -1
    ERR_STATE = -2
    ERR_UNSUPPORTED = -3
    ERR_FULL = -4
    ERR_MEMORY = -5
    ERR_SYSTEM = -6
    ERR_CONFIG = -7
    ERR_AUTH = -8
    ERR_TIMEOUT = -9
    ERR_PEER = -10
    ERR_MISMATCH = -11
    ERR_TRUNCATED = -12
    ERR_CANCELLED = -13
    ERR_ABORTED = -14
    ERR_REVOKED = -15
    ERR_DEPENDENCY = -16
    ERR_BACKEND = -17
    ERR_CORRUPT = -18
    ERR_CLOSED = -19
    ERR_FORKED = -20
    ERR_REFUSED = -21
    ERR_DEADLOCK = -22
    ERR_ABANDONED = -23


class Progress(IntEnum):
    """Who moves work while no thread of the program is inside the library."""

    AUTO = 0
    CALLER = 1
    THREAD = 2


class Notify(IntEnum):
    """Where the library notices that callbacks are due. Python's functions run on Python's threads in any case."""

    DEFAULT = 0
    ANY = 1
    PROGRESS = 2


class Order(IntEnum):
    """The order of operands in reductions."""

    DEFAULT = 0
    FIXED = 1
    FREE = 2


class Place(IntEnum):
    """What split_place() brings together."""

    NODE = 1
    NUMA = 2
    DEVICE = 3


class Placement(IntEnum):
    """On which NUMA nodes the pages of a window are."""

    DEFAULT = 0
    FIRST_TOUCH = 1
    INTERLEAVE = 2


class LogLevel(IntEnum):
    """How much is logged. COMM_LOG in the environment wins."""

    OFF = -1
    DEFAULT = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    DEBUG = 4
    TRACE = 5


# Both by their names in C, as commstream.SUM and commstream.F32.
SUM = Op.SUM
PROD = Op.PROD
MIN = Op.MIN
MAX = Op.MAX
AVG = Op.AVG
BAND = Op.BAND
BOR = Op.BOR
BXOR = Op.BXOR
LAND = Op.LAND
LOR = Op.LOR
LXOR = Op.LXOR
MINLOC = Op.MINLOC
MAXLOC = Op.MAXLOC
REPLACE = Op.REPLACE
NOOP = Op.NOOP
BYTE = Type.BYTE
BOOL = Type.BOOL
I8 = Type.I8
I16 = Type.I16
I32 = Type.I32
I64 = Type.I64
U8 = Type.U8
U16 = Type.U16
U32 = Type.U32
U64 = Type.U64
F8E4M3 = Type.F8E4M3
F8E5M2 = Type.F8E5M2
F16 = Type.F16
BF16 = Type.BF16
F32 = Type.F32
F64 = Type.F64
C64 = Type.C64
C128 = Type.C128
F32_INDEX = Type.F32_INDEX
F64_INDEX = Type.F64_INDEX
I32_INDEX = Type.I32_INDEX
I64_INDEX = Type.I64_INDEX


class InPlace:
    """The class of IN_PLACE."""

    def __repr__(self) -> str:
        return "commstream.IN_PLACE"

    def __reduce__(self) -> str:
        """A copy, also one that came from another process, is the same object: it is known by what it is."""
        return "IN_PLACE"


#: Passed as an input (or as the output of a scatter): the input is in the output buffer.
IN_PLACE = InPlace()
#: Matches a message from any rank.
ANY_PEER = -1
#: Matches a message with any tag.
ANY_TAG = 0xFFFFFFFF
#: The color of a rank that takes part in a split and gets no communicator.
NO_COLOR = -1
#: A flag of RequestInfo: the operation failed while MPI, NCCL or a copy of a device was at work, and its buffers are kept for good.
INFO_BUFFERS_HELD = 1
#: A flag of RequestInfo: a buffer was a device's; its bytes went through pinned memory of the host.
INFO_STAGED = 2


class Status(NamedTuple):
    """What a receive or a probe got."""

    peer: int
    tag: int
    bytes: int


@dataclass(frozen=True)
class Info:
    """What Communicator.describe() tells: struct comm_info."""

    backend: str
    launcher: str
    host: str
    name: str
    library: str
    slurm_job: str
    rank: int
    ranks: int
    node: int
    nodes: int
    local_rank: int
    local_ranks: int
    cpus: int
    homogeneous: int
    device_buffers: int
    stream_wait: int
    graph_capture: int
    fixed_order: int
    device_order: int
    queue_max: int
    window: int
    inline_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class PeerInfo:
    """What Communicator.describe_peer() tells: struct comm_peer_info."""

    node: int
    local: int
    host: str
    wire: str
    address: str


@dataclass(frozen=True)
class RequestInfo:
    """What describe_request() tells: struct comm_request_info. `flags` has INFO_BUFFERS_HELD and INFO_STAGED."""

    result: int
    flags: int
    sequence: int
    bytes: int
    queued_ns: int
    started_ns: int
    completed_ns: int
    algorithm: str
    waited_for: int


@dataclass(frozen=True)
class BackendInfo:
    """One of describe_backends(): struct comm_backend_info."""

    name: str
    version: str
    missing: str
    available: int
    threads: int
    fixed_order: int
    device_buffers: int


@dataclass(frozen=True)
class OptionInfo:
    """One of describe_options(): struct comm_option_info."""

    key: str
    environment: str
    type: str
    default_text: str
    unit: str
    help: str
    also: Optional[str]
    environment_only: int
    values: str


@dataclass(frozen=True)
class AlgorithmInfo:
    """One of describe_algorithms(): struct comm_algorithm_info."""

    ranks_min: int
    ranks_max: int
    bounded: int
    over_hosts: int
    collective: str
    name: str
    help: str


@dataclass(frozen=True)
class Statistics:
    """Counters of a communicator: struct comm_stats."""

    operations: int
    messages: int
    bytes_out: int
    bytes_in: int
    queue_high_water: int
    network_out: int
    network_in: int


@dataclass(frozen=True)
class ErrorDetail:
    """What Communicator.error_detail() tells: struct comm_error."""

    result: int
    rank: int
    peer: int
    errno: int
    sequence: int
    backend_code: int
    operation: str
    cause: str
    text: str
