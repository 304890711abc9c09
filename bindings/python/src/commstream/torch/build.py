"""Compiles the extension of the backend against the torch that is installed.

One source serves several versions of torch, whose C++ interface is not stable, so no wheel can carry the compiled
extension. It is compiled when :mod:`commstream.torch` is first imported, and kept in a folder that is named for the
version of torch, for the sources, and for the headers of the C library. ``python -m commstream.torch.build`` does it
before, such as in a container image.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
SOURCES = sorted((HERE / "csrc").glob("*.cpp"))


class BuildError(ImportError):
    """The extension cannot be compiled; the text says what is missing."""


def _is_home(folder: Path) -> tuple[Path, Path] | None:
    """Returns the headers' folder and the library of a prefix, of this package, or of a source tree with a build folder."""
    if not (folder / "include/commstream/commstream.h").exists():
        return None
    for lib in ("lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH')}", "build/lib"):
        # A wheel has no link without a version.
        found = sorted((folder / lib).glob("libcommstream.so*"))
        if found:
            return folder / "include", found[0]
    return None


def _pkg_config() -> list[Path]:
    try:
        out = subprocess.run(["pkg-config", "--variable=prefix", "commstream"], capture_output=True, text=True, check=True)
        return [Path(out.stdout.strip())]
    except (OSError, subprocess.CalledProcessError):
        return []


def find_library() -> tuple[Path, Path]:
    """Returns the folder of the C library's headers, and the library."""
    named = os.environ.get("COMMSTREAM_ROOT")
    if named:
        home = _is_home(Path(named))
        if home is None:
            raise BuildError(f"COMMSTREAM_ROOT={named}: expected include/commstream/commstream.h and lib/libcommstream.so there")
        return home
    checkout = HERE.parents[4:5]  # of the repository, if this file lies in one
    for folder in [HERE.parent, *checkout, *_pkg_config(), Path(sys.prefix), Path("/usr/local"), Path("/usr")]:
        home = _is_home(folder)
        if home is not None:
            return home
    raise BuildError("commstream.torch: the C library is not found; install it, or set COMMSTREAM_ROOT to its prefix")


def _key() -> str:
    import torch

    include, library = find_library()
    digest = hashlib.sha256(f"{include}\n{library}\n".encode())
    for file in [*sorted((HERE / "csrc").iterdir()), *sorted((include / "commstream").glob("*.h"))]:
        digest.update(f"{file.name}\n{file.stat().st_size}\n".encode())
        digest.update(file.read_bytes())
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"torch-{torch.__version__}-python-{python}-{digest.hexdigest()[:12]}"


def folder() -> Path:
    """Returns the folder of the compiled extension for this torch, Python, and C library."""
    cache = os.environ.get("COMMSTREAM_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "commstream")
    return Path(cache).expanduser() / _key()


def _check_tools() -> None:
    compiler = os.environ.get("CXX", "c++").split()[0]
    if shutil.which(compiler) is None:
        raise BuildError(
            f"commstream.torch is compiled when it is first imported, and there is no C++ compiler ({compiler}); "
            "install g++ or clang, or set CXX"
        )
    if shutil.which("ninja") is None:
        try:
            import ninja

            os.environ["PATH"] = ninja.BIN_DIR + os.pathsep + os.environ["PATH"]
        except ImportError:
            raise BuildError("commstream.torch is compiled when it is first imported, and there is no ninja; pip install ninja") from None


def load(verbose: bool = False) -> ModuleType:
    """Returns the extension; compiles it where that has not been done. Processes wait for the one that compiles."""
    where = folder()
    name = "commstream_torch"
    built = where / f"{name}.so"
    if not built.exists():
        compile_into(where, name, verbose)
    spec = importlib.util.spec_from_file_location(name, built)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_into(where: Path, name: str, verbose: bool) -> None:
    """Compiles the extension into a folder."""
    import fcntl

    from torch.utils import cpp_extension

    _check_tools()
    include, library = find_library()
    where.mkdir(parents=True, exist_ok=True)
    with open(where / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (where / f"{name}.so").exists():
            return
        work = where / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        # As one file: torch's headers take most of the time, and are read once.
        (work / "all.cpp").write_text("".join(f'#include "{source}"\n' for source in SOURCES))
        try:
            cpp_extension.load(
                name=name,
                sources=[str(work / "all.cpp")],
                extra_include_paths=[str(include)],
                extra_cflags=["-O2", "-fvisibility=hidden"],
                extra_ldflags=[f"-L{library.parent}", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}"],
                build_directory=str(work),
                verbose=verbose,
                is_python_module=False,
                with_cuda=False,
            )
        except RuntimeError as e:
            raise BuildError(f"commstream.torch: compiling against this torch failed: {e}") from e
        # torch adds a number to the name when one process compiles twice.
        os.replace(next(work.glob(f"{name}*.so")), where / f"{name}.so")
        shutil.rmtree(work, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m commstream.torch.build", description=__doc__.splitlines()[0])
    parser.add_argument("--quiet", action="store_true", help="do not show what the compiler says")
    args = parser.parse_args()
    where = folder()
    if not (where / "commstream_torch.so").exists():
        compile_into(where, "commstream_torch", not args.quiet)
    print(where / "commstream_torch.so")


if __name__ == "__main__":
    main()
