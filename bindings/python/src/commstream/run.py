"""Starts ranks: `python -m commstream.run -n 4 script.py ...`. It is comm-run of the C library, which the package carries.

With `--hosts n1,n2` it starts them by ssh, so the package must be in the same place on each host.

A program whose name ends in .py is run by this interpreter; `-m module` likewise. Everything else is run as it is.
"""
import os
import sys
from pathlib import Path
from typing import List, NoReturn

#: comm-run's options that take a value.
WITH_VALUE = {"-n", "--hosts", "--hostfile", "--ssh", "--backend", "--bind", "--timeout", "-x"}
BIN = Path(__file__).resolve().parent / "bin"


def program_at(words: List[str]) -> int:
    """Where comm-run's own options end."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--"):
        at += 2 if words[at] in WITH_VALUE else 1
    return at


def command(words: List[str]) -> List[str]:
    """The arguments of comm-run for those of this module."""
    at = program_at(words)
    options, program = words[:at], words[at:]
    if program[:1] == ["--"]:
        program = program[1:]
    elif program and (program[0] == "-m" or program[0].endswith(".py")):
        program = [sys.executable, *program]
    return [*options, *program]


def run_tool(name: str, words: List[str]) -> NoReturn:
    tool = BIN / name
    os.execv(tool, [str(tool), *words])


def comm_run() -> NoReturn:
    """The program comm-run of an installed package."""
    run_tool("comm-run", command(sys.argv[1:]))


def comm_info() -> NoReturn:
    """The program comm-info of an installed package."""
    run_tool("comm-info", sys.argv[1:])


def comm_perf() -> NoReturn:
    """The program comm-perf of an installed package."""
    run_tool("comm-perf", sys.argv[1:])


if __name__ == "__main__":
    comm_run()
