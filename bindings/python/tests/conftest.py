"""Worlds for the tests: ranks of this process that one thread drives, and ranks that are processes, started as users start them."""
import os
import subprocess
import sys
import textwrap

import pytest

import commstream


@pytest.fixture(params=[2, 3])
def worlds(request):
    """All communicators of a world of this process."""
    made = commstream.open_local(request.param, operation_timeout=60)
    yield made
    for world in made:
        world.close()


@pytest.fixture
def pair():
    made = commstream.open_local(2, operation_timeout=60)
    yield made
    for world in made:
        world.close()


@pytest.fixture
def world():
    with commstream.open_local(1)[0] as made:
        yield made


def run_ranks(size, code, *words, status=0, env=None, timeout=60):
    """Runs code in `size` processes and returns what they wrote."""
    script = textwrap.dedent(code)
    command = [sys.executable, "-m", "commstream.run", "-n", str(size), "--timeout", str(timeout), "--", sys.executable, "-c", script, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(env or {})})
    assert done.returncode == status, done.stdout
    return done.stdout


def run_child(code, *words, timeout=60):
    """Runs code in a process of its own, which may crash or hang if it fails, and returns what it wrote."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout
    return done.stdout
