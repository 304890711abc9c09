#!/usr/bin/env python3
"""Runs the tests of commstream.torch: `run.py SOURCE LIB WORK`.

They run by the Python that COMM_TORCH_PYTHON names, or else by this one, around the library in LIB. The package that they import is made in
WORK of the sources alone, so that the tests need no other part of the Python package. 77: that Python has no torch."""
import os
import shutil
import subprocess
import sys
from pathlib import Path


def has_torch(python):
    code = "import torch.distributed as d, sys; sys.exit(not d.is_available())"
    return subprocess.run([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def prepare(source, lib, work):
    """Folders as the package and an installed library have them, made of links."""
    shutil.rmtree(work, ignore_errors=True)
    package = work / "site/commstream"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "torch").symlink_to(source / "bindings/python/src/commstream/torch")
    (work / "prefix").mkdir()
    (work / "prefix/include").symlink_to(source / "include")
    (work / "prefix/lib").symlink_to(lib)


def main():
    source, lib, work = (Path(a).resolve() for a in sys.argv[1:4])
    python = os.environ.get("COMM_TORCH_PYTHON", sys.executable)
    if not has_torch(python):
        print(f"skipped: torch is not installed for {python}")
        return 77
    prepare(source, lib, work)
    environment = dict(
        os.environ,
        PYTHONPATH=f"{work / 'site'}:{source / 'bindings/python/torch/tests'}",
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONWARNINGS="ignore",
        COMMSTREAM_ROOT=str(work / "prefix"),
        COMMSTREAM_CACHE=str(work.parent / "cache"),
        OMP_NUM_THREADS="1",
        PATH=os.path.dirname(python) + os.pathsep + os.environ["PATH"],
    )
    steps = [["-m", "commstream.torch.build", "--quiet"]]
    steps += [["-m", "unittest", "-v", name] for name in ("test_collectives", "test_training", "test_groups")]
    for step in steps:
        if subprocess.run([python, *step], env=environment, cwd=work).returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
