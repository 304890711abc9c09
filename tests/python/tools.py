#!/usr/bin/env python3
"""What the tests need from PyPI, once per machine: `tools.py` makes it and prints the interpreter that has it.

It is a virtual environment with the tools that build the Python package, and an MPI with the standard ABI (MPICH 5); beside it is a
folder of wheels for the environments that tests make. Both are in
$XDG_CACHE_HOME/commstream (~/.cache/commstream), under a name made of the list below, so that a change of the list makes a new one.
"""
import fcntl
import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

BUILD = ["pip>=23", "scikit-build-core>=0.10,<2", "cmake>=3.26", "ninja"]
MPI = ["mpich>=5,<6"]
TEST = ["numpy", "pytest", "distributed", "ml_dtypes"]


class Missing(Exception):
    """Something that has to be installed first."""


def folder():
    key = hashlib.sha256(repr((BUILD, MPI, TEST, sys.version, sys.prefix)).encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "commstream" / f"python-{key}"


def look():
    """What a system's package may lack."""
    if sys.version_info < (3, 10):
        raise Missing(f"Python is {sys.version.split()[0]}; the package needs 3.10 or newer")
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        raise Missing("Python's headers are not here (on Debian and Ubuntu: python3-dev)")
    try:
        import ensurepip, venv  # noqa: F401,E401
    except ImportError:
        raise Missing("Python's venv is not here (on Debian and Ubuntu: python3-venv)") from None


def pip(python, *words):
    done = subprocess.run([python, "-m", "pip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Missing("pip could not fetch the tools from PyPI:\n" + done.stdout)


def make():
    """(interpreter with the tools, folder of wheels); made if they are not there. Several processes may ask at once."""
    look()
    place = folder()
    python, wheels, done = place / "venv/bin/python", place / "wheels", place / "done"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", place / "venv"], check=True)
            pip(python, "install", "-q", "--upgrade", *BUILD, *MPI)
            pip(python, "download", "-q", "--prefer-binary", "-d", wheels, *TEST)
            done.touch()
    return str(python), str(wheels)


if __name__ == "__main__":
    try:
        print(make()[0])
    except Missing as missing:
        sys.exit(f"tools.py: {missing}")
