"""Exceptions: one class for each result of the C library, with what it knows about the failure."""
import builtins
from typing import Any, Dict, Type

from . import _core
from ._types import Result

__all__ = ["AbandonedError", "AbortedError", "ArgumentError", "AuthError", "BackendError", "CancelledError", "ClosedError", "ConfigError",
           "CorruptError", "DeadlockError", "DependencyError", "ERRORS", "Error", "ForkedError", "FullError", "MismatchError", "OutOfMemoryError",
           "PeerError", "PendingError", "RefusedError", "RevokedError", "StateError", "SystemCallError", "TimeoutError", "TruncatedError",
           "UnsupportedError"]


class Error(Exception):
    """A call or an operation failed. Each result of the library has a subclass.

    Attributes:
        result: the number of the result, a Result.
        name: its name in C, such as "COMM_ERR_PEER".
        rank: the rank that failed; -1: unknown.
        peer: the rank that noticed; -1: unknown.
        operation: the name of the operation; "" if there is none.
        sequence: the sequence number of the operation; 0: none.
        errno: of a system call; 0: none.
        backend_code: the error code of MPI, NCCL or CUDA.
        cause: the kind of the cause, in a word or two.
        text: what happened and what was expected.
    """

    result: Result = Result.OK
    name: str = ""
    rank: int = -1
    peer: int = -1
    operation: str = ""
    sequence: int = 0
    errno: int = 0
    backend_code: int = 0
    cause: str = ""
    text: str = ""


class PendingError(Error, builtins.TimeoutError):  # type: ignore[misc]
    """The time given to result() passed before the operation was complete; the operation goes on."""


class ArgumentError(Error, ValueError):
    """An argument is wrong; the text names it, its value and what was expected."""


class StateError(Error, RuntimeError):
    """The call is not allowed now: inside a callback or an operator, while recording, or a second time."""


class UnsupportedError(Error, NotImplementedError):
    """Not supported by this build, backend, type and operator, or set of machines."""


class FullError(Error):
    """A queue or table is full. Nothing was started: wait for something and call again."""


class OutOfMemoryError(Error, MemoryError):
    """There is no memory for this."""


class SystemCallError(Error):
    """A system call failed; errno tells why."""


class ConfigError(Error, ValueError):
    """The configuration is missing or wrong; the text names every wrong value."""


class AuthError(Error):
    """A peer did not prove its identity: secret, job, version or rank."""


class TimeoutError(Error, builtins.TimeoutError):  # type: ignore[misc]
    """The operation's own deadline passed."""


class PeerError(Error, ConnectionError):  # type: ignore[misc]
    """A rank died, stopped or cannot be reached."""


class MismatchError(Error):
    """Ranks made different calls; the text names both."""


class TruncatedError(Error):
    """A message is longer than its receive."""


class CancelledError(Error):
    """The operation was cancelled before it matched."""


class AbortedError(Error):
    """abort() was called, here or elsewhere, or the root of a broadcast_bytes() gave up."""


class RevokedError(Error):
    """The communicator was revoked: agree, shrink or close it."""


class DependencyError(Error):
    """Something that it waited for had failed."""


class BackendError(Error):
    """MPI, NCCL or CUDA reported an error; backend_code and text have it."""


class CorruptError(Error):
    """Data is corrupt, or a member sent what no member may send."""


class ClosedError(Error):
    """The object is closed: here, or by the peer that the text names."""


class ForkedError(Error):
    """The call was made in a forked child."""


class RefusedError(Error):
    """Another rank refused its own call; the text names it and its reason."""


class DeadlockError(Error):
    """A cycle of operations and points waits for itself; the text names the cycle."""


class AbandonedError(Error):
    """An event was destroyed or recorded anew while work waited for its hand-set point."""


ERRORS: Dict[Result, Type[Error]] = {
    Result.PENDING: PendingError,
    Result.ERR_ARGUMENT: ArgumentError,
    Result.ERR_STATE: StateError,
    Result.ERR_UNSUPPORTED: UnsupportedError,
    Result.ERR_FULL: FullError,
    Result.ERR_MEMORY: OutOfMemoryError,
    Result.ERR_SYSTEM: SystemCallError,
    Result.ERR_CONFIG: ConfigError,
    Result.ERR_AUTH: AuthError,
    Result.ERR_TIMEOUT: TimeoutError,
    Result.ERR_PEER: PeerError,
    Result.ERR_MISMATCH: MismatchError,
    Result.ERR_TRUNCATED: TruncatedError,
    Result.ERR_CANCELLED: CancelledError,
    Result.ERR_ABORTED: AbortedError,
    Result.ERR_REVOKED: RevokedError,
    Result.ERR_DEPENDENCY: DependencyError,
    Result.ERR_BACKEND: BackendError,
    Result.ERR_CORRUPT: CorruptError,
    Result.ERR_CLOSED: ClosedError,
    Result.ERR_FORKED: ForkedError,
    Result.ERR_REFUSED: RefusedError,
    Result.ERR_DEADLOCK: DeadlockError,
    Result.ERR_ABANDONED: AbandonedError,
}


def make_error(result: int, fields: Dict[str, Any]) -> Error:
    """The exception of a result. The module calls it with what comm_error_detail told."""
    name = _core.result_name(result)
    text = fields.get("text") or _core.result_text(result)
    operation = fields.get("operation", "")
    kind: Type[Error] = ERRORS.get(result, Error)  # type: ignore[call-overload]
    said = not operation or text.startswith((f"{operation}: ", f"comm_{operation}: "))
    error = kind(text if said else f"{operation}: {text}")
    fields = {**fields, "name": name, "text": text, "operation": operation}
    fields["result"] = Result(result) if result in Result._value2member_map_ else result
    for field, value in fields.items():
        setattr(error, field, value)
    return error
