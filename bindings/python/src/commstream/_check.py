"""Checks of arguments before the library sees them: the error names the argument, its value, and what was expected."""
import operator
import os
import struct
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from ._errors import make_error
from ._core import type_size
from ._types import Result, Type


def wrong(operation: str, text: str) -> Exception:
    """The exception for an argument whose value is wrong."""
    return make_error(Result.ERR_ARGUMENT, {"operation": operation, "text": text})


def integer(operation: str, name: str, value: Any, low: int, high: int, expected: str = "an integer") -> int:
    """A number of a range, from everything that Python takes as an index."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{operation}: {name} is {value!r}; expected {expected}") from None
    if not low <= number <= high:
        raise wrong(operation, f"{name} is {number}; expected {low} to {high}")
    return number


def int32(operation: str, name: str, value: Any, expected: str = "an integer") -> int:
    return integer(operation, name, value, -(1 << 31), (1 << 31) - 1, expected)


def uint32(operation: str, name: str, value: Any) -> int:
    return integer(operation, name, value, 0, (1 << 32) - 1)


def uint64(operation: str, name: str, value: Any) -> int:
    return integer(operation, name, value, 0, (1 << 64) - 1)


def length(operation: str, name: str, value: Any, low: int = 0) -> int:
    return integer(operation, name, value, low, (1 << 63) - 1)


def items(operation: str, name: str, value: Any) -> List[Any]:
    """The items of what can be iterated over."""
    try:
        return list(value)
    except TypeError:
        raise TypeError(f"{operation}: {name} is {value!r}; expected a sequence") from None


def function(operation: str, name: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"{operation}: {name} is {value!r}; expected a function")
    return value  # type: ignore[no-any-return]


# How struct packs a number of each type that it knows.
_FORMATS: Dict[int, str] = {Type.I8: "b", Type.I16: "h", Type.I32: "i", Type.I64: "q", Type.U8: "B", Type.U16: "H", Type.U32: "I",
                            Type.U64: "Q", Type.F16: "e", Type.F32: "f", Type.F64: "d", Type.C64: "ff", Type.C128: "dd"}


def element(operation: str, name: str, type: int, value: Any) -> bytes:
    """One element of a type as bytes, from a number or from its bytes."""
    number = int32(operation, "type", type, "a commstream.Type")
    size = type_size(number)
    if not size:
        raise wrong(operation, f"type is {number}; expected one of commstream.Type")
    if isinstance(value, (bytes, bytearray, memoryview)):
        if len(bytes(value)) != size:
            raise wrong(operation, f"{name} has {len(bytes(value))} bytes; expected {size}, those of one element of type {number}")
        return bytes(value)
    form = _FORMATS.get(number)
    if form is None:
        raise wrong(operation, f"{name} is {value!r}, type is {number}; expected a type that Python has numbers of, or the element's bytes")
    try:
        parts = (complex(value).real, complex(value).imag) if len(form) == 2 else (value,)
        return struct.pack("=" + form, *parts)
    except (struct.error, OverflowError, TypeError, ValueError):
        raise wrong(operation, f"{name} is {value!r}; expected a number that type {number} has") from None


def text(operation: str, name: str, value: Any) -> Optional[str]:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{operation}: {name} is {value!r}; expected a str or None")
    return value


def path(operation: str, name: str, value: Any) -> Union[str, bytes]:
    try:
        return os.fspath(value)
    except TypeError:
        raise TypeError(f"{operation}: {name} is {value!r}; expected a path") from None


def nanoseconds(operation: str, name: str, seconds: Optional[float]) -> int:
    """A time for the library, where 0 means the default."""
    if seconds is None:
        return 0
    if isinstance(seconds, (str, bytes)) or not hasattr(seconds, "__float__") and not hasattr(seconds, "__index__"):
        raise TypeError(f"{operation}: {name} is {seconds!r}; expected seconds or None")
    if not seconds >= 0:
        raise wrong(operation, f"{name} is {seconds!r}; expected seconds of 0 or more, or None")
    return max(1, int(min(float(seconds), 9e9) * 1e9))


def options(operation: str, given: Union[str, Mapping[str, Any], None]) -> Optional[str]:
    """Options as the library reads them."""
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"{operation}: options is {given!r}; expected a str such as 'key=value,key=value', or a mapping")
    return ",".join(f"{key}={value}" for key, value in given.items())
