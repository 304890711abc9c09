#!/usr/bin/env python3
"""A Python with torch for the tests, made once per machine: `environment.py [VERSION]` makes it and prints the interpreter.

PyPI's torch for Linux carries CUDA code and needs about 2.5 GB of NVIDIA's libraries, which CPU tensors never call. So this installs torch
without them, and puts in their place libraries of the same names, made here, whose every function returns "no device". torch then finds
no GPU, and its CPU part works as it is. The environment is in $XDG_CACHE_HOME/commstream (~/.cache/commstream), beside that of tools.py.
"""
import fcntl
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import tools

Missing = tools.Missing

VERSION = "2.15.0"
NEEDS = ["filelock", "fsspec", "jinja2", "networkx", "numpy", "sympy", "typing-extensions", "setuptools", "ninja", "expecttest", "pytest"]

# What torch's libraries may lack: NVIDIA's, by their names.
FOREIGN = re.compile(r"lib(cu|nv|nccl)[A-Za-z_]*[A-Za-z0-9_]*\.so")


def output(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", str(library)))


def undefined(library):
    """{(function, version or "")} that a library expects of others."""
    rows = (line.split() for line in output("readelf", "--dyn-syms", "-W", str(library)).splitlines())
    names = (row[7] for row in rows if len(row) > 7 and row[6] == "UND")
    return {tuple((name + "@").split("@")[:2]) for name in names}


def versions(library):
    """{version: file that defines it} as a library expects."""
    found, file = {}, None
    for line in output("readelf", "-V", "-W", str(library)).splitlines():
        if match := re.search(r"Version: 1  File: (\S+)", line):
            file = match.group(1)
        elif (match := re.search(r" Name: (\S+)  Flags:", line)) and file:
            found[match.group(1)] = file
    return found


def defined(library):
    rows = (line.split() for line in output("readelf", "--dyn-syms", "-W", str(library)).splitlines())
    return {row[7].split("@")[0] for row in rows if len(row) > 7 and row[6] not in ("UND", "Ndx")}


def wanted(libraries):
    """{file that is missing: {version: functions}}; functions without a version are expected of any missing file."""
    missing, loose = {}, set()
    own = {library.name for library in libraries}
    for library in libraries:
        absent = [name for name in needed(library) if name not in own and FOREIGN.match(name)]
        for name in absent:
            missing.setdefault(name, {})
        where = versions(library)
        for function, version in undefined(library) if absent else ():
            if where.get(version) in missing:
                missing[where[version]].setdefault(version, set()).add(function)
            elif not version:
                loose.add(function)
    loose -= set().union(*map(defined, libraries))
    loose = {function for function in loose if re.match(r"(cu|nv|nccl)", function)}
    if missing:
        next(iter(missing.values())).setdefault("", set()).update(loose)
    return missing


def stand_in(folder, name, by_version):
    """Compiles a library of this name. Its functions return 100, which is cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE."""
    functions = sorted(set().union(*by_version.values()) if by_version else ())
    source = "int no_device(void);\nint no_device(void) { return 100; }\n"
    source += "".join(f'int {function}(void) __attribute__((alias("no_device")));\n' for function in functions)
    script = "".join(f"{version} {{ {' '.join(f'{f};' for f in sorted(by_version[version]))} }};\n" for version in by_version if version)
    (folder / "map").write_text(script or "no_version { };\n", encoding="utf-8")
    done = subprocess.run(["cc", "-x", "c", "-shared", "-fPIC", "-fno-builtin", "-w", "-o", folder / name, f"-Wl,-soname,{name}",
                           f"-Wl,--version-script,{folder / 'map'}", "-"],
                          input=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    (folder / "map").unlink()
    if done.returncode:
        raise tools.Missing(f"cc could not make {name}:\n{done.stdout}")


def stand_in_all(site):
    folder = site / "torch/lib"
    for name, by_version in wanted(sorted(folder.glob("*.so"))).items():
        stand_in(folder, name, by_version)


def check(python):
    code = "import torch, torch.distributed as d; assert d.is_available() and not torch.cuda.is_available(); (torch.ones(4, 4) @ torch.ones(4))"
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise tools.Missing("torch does not work without NVIDIA's libraries:\n" + done.stdout)


def folder(version):
    source = Path(__file__).read_bytes()
    key = hashlib.sha256(repr((version, source, sys.version, sys.prefix)).encode()).hexdigest()[:12]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "commstream" / f"torch-{version}-{key}"


def make(version=VERSION):
    """The interpreter with torch; made if it is not there. Several processes may ask at once."""
    tools.look()
    place = folder(version)
    python, done = place / "bin/python", place / "done"
    place.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            tools.pip(python, "install", "-q", "--no-cache-dir", "--no-deps", f"torch=={version}")
            tools.pip(python, "install", "-q", "--prefer-binary", *NEEDS)
            (site,) = place.glob("lib/python*/site-packages")
            stand_in_all(site)
            check(python)
            done.touch()
    return str(python)


if __name__ == "__main__":
    try:
        print(make(*sys.argv[1:2]))
    except tools.Missing as missing:
        sys.exit(f"environment.py: {missing}")
