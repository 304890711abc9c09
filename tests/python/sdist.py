#!/usr/bin/env python3
"""The source distribution as users install it: `sdist.py ROOT`. pip builds it, the whole C library included, in an environment of its own as
it always does, with the build tools that it asks for, and installs it into a new environment; four ranks run there. All is in a folder for
temporary files, where no checkout is near. Exit 77 is a skip; with CI=true a missing tool is none.

The build tools come from the wheels that tools.py keeps. In continuous integration what was compiled earlier comes from a cache; elsewhere
not, since users have none.
"""
import os
import sys
import tempfile
from pathlib import Path

import package

SCRIPT = """
import numpy as np
import commstream as cs
with cs.open() as world:
    x = np.full(1000, world.rank + 1.0)
    world.allreduce(x).wait()
    with world.split(world.rank % 2) as half:
        y = np.array([world.rank])
        half.allreduce(y).wait()
    print(f"rank {world.rank} of {world.size}: {x.min()} {x.max()} {y[0]}")
"""
SAYS = ["rank 0 of 4: 10.0 10.0 2", "rank 1 of 4: 10.0 10.0 4", "rank 2 of 4: 10.0 10.0 2", "rank 3 of 4: 10.0 10.0 4"]


def install(python, wheels, source, work):
    """A new environment with the package, without the network."""
    env = dict(os.environ, CCACHE_BASEDIR=str(work), CCACHE_NOHASHDIR="true")
    if os.environ.get("CI") != "true":
        env = {name: text for name, text in env.items() if not name.endswith("_COMPILER_LAUNCHER")}
    env.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", "2")
    env["TMPDIR"] = str(work)
    package.run(sys.executable, "-m", "venv", "--without-pip", work / "fresh")
    fresh = work / "fresh/bin/python"
    package.run(python, "-m", "pip", "--python", fresh, "install", "-v", "--no-cache-dir", "--no-compile", "--no-index", "--find-links", wheels,
                source, "numpy", cwd=work, env=env)
    return fresh


def see_modules(fresh):
    """Those that are built without MPI and without CUDA."""
    (folder,) = fresh.parent.parent.glob("lib/python*/site-packages/commstream/lib")
    for name in ("libcommstream_cuda.so", "libcommstream_mpi_abi.so"):
        if not (folder / name).exists():
            sys.exit(f"the package has no {name}; it has {sorted(path.name for path in folder.iterdir())}")


def see_tools(fresh):
    """The tools find the library and its modules, which the package has beside them."""
    said = package.run(fresh.parent / "comm-info", "backends")
    if "cannot be loaded;" in said or 'module "cuda"' in said:
        sys.exit(f"comm-info backends finds not all modules:\n{said}")
    package.run(fresh.parent / "comm-perf", "allreduce", "--max", "8", "--check")


def see_ranks(fresh, work):
    (work / "script.py").write_text(SCRIPT, encoding="utf-8")
    said = package.run(fresh, "-m", "commstream.run", "-n", "4", "--quiet-tags", "script.py", cwd=work)
    if sorted(said.splitlines()) != SAYS:
        sys.exit(f"four ranks printed\n{said}and not\n" + "\n".join(SAYS))


def main():
    root = Path(sys.argv[1]).resolve()
    python, wheels = package.find_tools()
    with tempfile.TemporaryDirectory(prefix="commstream-sdist-") as folder:
        work = Path(folder)
        package.copy_tree(root, work / "tree")
        source = package.make_sdist(python, work / "tree", work)
        fresh = install(python, wheels, source, work)
        see_modules(fresh)
        see_tools(fresh)
        see_ranks(fresh, work)


if __name__ == "__main__":
    main()
