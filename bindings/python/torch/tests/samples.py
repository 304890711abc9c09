"""The types and operators of tests, values of each type, and what they reduce to."""

import functools

import torch
import torch.distributed as dist

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
COMPLEX = [torch.complex64, torch.complex128]
ALL = FLOATS + INTEGERS + UNSIGNED + FLOAT8 + COMPLEX + [torch.complex32, torch.bool]
Op = dist.ReduceOp
OPS = {"SUM": Op.SUM, "AVG": Op.AVG, "PRODUCT": Op.PRODUCT, "MIN": Op.MIN, "MAX": Op.MAX, "BAND": Op.BAND, "BOR": Op.BOR, "BXOR": Op.BXOR}


def sample(dtype, n, rank):
    """Small values, the same whenever it is called, and others on each rank."""
    values = (torch.arange(n) * 7 + rank * 5) % 9 + 1
    if dtype.is_complex:
        return torch.complex(values.to(torch.float64), (values % 3).to(torch.float64)).to(dtype)
    if dtype is torch.bool:
        return values % 2 == 0
    return values.to(torch.float32).to(dtype)


def bits(t):
    return t.contiguous().view(torch.uint8) if t.dtype in FLOAT8 + UNSIGNED + [torch.complex32] else t


def same(a, b, what):
    a, b = bits(a), bits(b)
    close = torch.equal(a, b)
    if not close and (a.dtype.is_floating_point or a.dtype.is_complex):
        tolerance = 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-5
        close = torch.allclose(a.to(torch.complex128), b.to(torch.complex128), rtol=tolerance)
    assert close, f"{what}: {a}, expected {b}"


def reduced_by_hand(dtype, name, n, size):
    """The result in doubles or 64-bit integers."""
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    rows = [sample(dtype, n, r).to(wide) for r in range(size)]
    fold = {
        "SUM": torch.add,
        "AVG": torch.add,
        "PRODUCT": torch.mul,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "BAND": torch.bitwise_and,
        "BOR": torch.bitwise_or,
        "BXOR": torch.bitwise_xor,
    }
    result = functools.reduce(fold[name], rows)
    return (result / size if name == "AVG" else result).to(dtype).to(wide)
