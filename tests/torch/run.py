#!/usr/bin/env python3
"""Runs the tests of commstream.torch: `run.py SOURCE LIB WORK [TEST...]`. A test is one of TESTS or a part of it, such as
test_devices.Devices.test_ddp; without one all run. With COMM_TEST_TORCH_CUDA=1 the tests of device tensors use the machine's GPUs.

They run by the Python that COMM_TORCH_PYTHON names; or with COMM_TEST_TORCH=VERSION by an environment that environment.py makes from PyPI;
or else by this Python. They run around the library in LIB. The package that they import is made in WORK of the sources alone, so that the
tests need no other part of the Python package. 77: that Python has no torch, or PyPI does not answer."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import environment

TESTS = ["test_collectives", "test_coalescing", "test_works", "test_training", "test_compiled", "test_groups", "test_windows", "test_shared",
         "test_suspend", "test_timeouts", "test_sparse", "test_reports", "test_devices", "test_kernels", "test_bound"]
# In continuous integration, which has no time for all, unless COMM_TEST_LONG is set.
FEW = ["test_collectives", "test_coalescing", "test_works", "test_training", "test_compiled", "test_groups", "test_shared"]
INFERENCE = ["examples/python/inference.py", "--layers", "2", "--hidden", "64", "--tokens", "8", "--rounds", "1"]


def has_torch(python):
    code = "import torch.distributed as d, sys; sys.exit(not d.is_available())"
    return subprocess.run([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def find_python():
    """Raises environment.Missing where there is none with torch."""
    version = os.environ.get("COMM_TEST_TORCH")
    if version and "COMM_TORCH_PYTHON" not in os.environ:
        return environment.make(environment.VERSION if version == "1" else version)
    python = os.environ.get("COMM_TORCH_PYTHON", sys.executable)
    python = os.path.abspath(shutil.which(python) or python)
    if not has_torch(python):
        raise environment.Missing(f"torch is not installed for {python}")
    return python


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
    (work / "bin").mkdir()
    if os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER") == "ccache" and "CXX" not in os.environ:
        (work / "bin/c++").symlink_to(shutil.which("ccache"))  # which calls the c++ that comes after it in PATH


def steps(source, chosen):
    few = os.environ.get("CI") == "true" and not os.environ.get("COMM_TEST_LONG")
    yield ["-m", "commstream.torch.build", "--quiet"]
    yield ["-m", "unittest", "-v", *(chosen or (FEW if few else TESTS))]  # by one process, which imports torch once
    if not chosen:
        yield [str(source / INFERENCE[0]), *INFERENCE[1:]]


def run_step(python, step, variables, work):
    """Shows what a step says; and each test that it left out, so that the reason is among those of all skipped tests."""
    test = step[-1]
    with subprocess.Popen([python, *step], env=variables, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        for line in running.stdout:
            print(line, end="", flush=True)
            if match := re.match(r"(?:setUpClass \(|(?=test_\w+ \())([\w.]+)", line):
                test = match.group(1)
            # What ranks say, and the first line of a test's comment, come between the name and the result.
            if match := re.search(r"(?:^|\.\.\. )skipped (['\"])(.*)\1$", line):
                print(f"skipped: {test}: {match.group(2)}")
    return running.returncode


def main():
    source, lib, work = (Path(a).resolve() for a in sys.argv[1:4])
    try:
        python = find_python()
    except environment.Missing as missing:
        print(f"skipped: {missing}")
        return 77
    prepare(source, lib, work)
    variables = dict(
        os.environ,
        PYTHONPATH=f"{work / 'site'}:{source / 'bindings/python/torch/tests'}",
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONWARNINGS="ignore",
        COMMSTREAM_ROOT=str(work / "prefix"),
        COMMSTREAM_CACHE=str(work.parent / "cache"),
        OMP_NUM_THREADS="1",
        COMMSTREAM_TEST_MOCK=str(lib.parent / "tests/cuda/mock"),
        PATH=os.pathsep.join([str(work / "bin"), os.path.dirname(python), os.environ["PATH"]]),
    )
    for step in steps(source, sys.argv[4:]):
        if run_step(python, step, variables, work):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
