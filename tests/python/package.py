#!/usr/bin/env python3
"""The Python package as users get it: `package.py ROOT INSTALLED WORK`. It makes the source distribution, builds the wheel from it around the
library that is installed in INSTALLED, installs the wheel into a new environment, and runs there the scripts of the pages below and the
package's own tests; sdist.py has pip build the library too. Exit 77 is a skip; with CI=true a missing tool is none.
"""
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import tools

PARTS = ["bindings/python", "CMakeLists.txt", "LICENSE", "cmake", "include", "src", "docs/CMakeLists.txt", "docs/reference"]

PAGES = ["docs/getting-started/python.md", "docs/migrate/from-mpi4py.md"]


def run(*words, stderr=subprocess.STDOUT, **more):
    words = [str(word) for word in words]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def find_tools():
    try:
        return tools.make()
    except tools.Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)


def copy_tree(root, tree):
    """The tree without what others write in it meanwhile."""
    for part in PARTS:
        source, target = root / part, tree / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("build", "dist", "library", "__pycache__", ".*_cache"))
        else:
            shutil.copy2(source, target)


def make_sdist(python, tree, work):
    """The source distribution, as `./dev wheel` makes it."""
    package = tree / "bindings/python"
    code = "import sys; sys.path.insert(0, 'packaging'); import backend; print(backend.build_sdist(sys.argv[1]))"
    name = run(python, "-c", code, work / "dist", cwd=package).splitlines()[-1]
    if (package / "library").exists():
        sys.exit("building the source distribution left library/ behind")
    return work / "dist" / name


def make_wheel(python, source, installed, work):
    run(python, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-C", f"cmake.define.COMM_INSTALLED={installed}",
        "-w", work / "dist", source)
    (wheel,) = (work / "dist").glob("*.whl")
    return wheel


def see_license(root, wheel):
    """Whoever passes the wheel on passes on the licence too."""
    with zipfile.ZipFile(wheel) as file:
        names = [name for name in file.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        if [file.read(name) for name in names] != [(root / "LICENSE").read_bytes()]:
            sys.exit(f"{wheel.name}: expected one dist-info/licenses/LICENSE, with the text of LICENSE; found {names}")


def make_environment(python, wheel, wheels, work):
    """A new environment with the wheel and what the tests need, without the network."""
    run(sys.executable, "-m", "venv", "--without-pip", work / "fresh")
    fresh = work / "fresh/bin/python"
    run(python, "-m", "pip", "--python", fresh, "install", "-q", "--no-compile", "--no-index", "--find-links", wheels, wheel, *tools.TEST)
    return fresh


def check_page(fresh, page, work):
    """Each script of the page, run by the command below it, prints the lines below that, in any order."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    count = 0
    for (kind, script), (next_kind, command), (last_kind, expected) in zip(blocks, blocks[1:], blocks[2:]):
        if (kind, next_kind, last_kind) != ("python", "sh", "text"):
            continue
        words = command.split()
        (work / words[-1]).write_text(script, encoding="utf-8")
        said = run(fresh, *words[1:], cwd=work, stderr=None)
        if sorted(said.splitlines()) != sorted(expected.splitlines()):
            sys.exit(f"{page.name}: {command}printed\n{said}and the page says\n{expected}")
        count += 1
    if not count:
        sys.exit(f"{page}: no script with a command and its output")
    print(f"{page.name}: {count} scripts print what stands below them")


def check_sddp(fresh, example, work):
    """Any number of ranks, a run that goes on from a file, and one that loses a rank: the same line."""
    def say(ranks, *words):
        return run(fresh, "-m", "commstream.run", "-n", ranks, "--quiet-tags", example, *words, cwd=work, stderr=None)
    alone = say(1)
    file = work / "policy.npz"
    say(2, "--file", file, "--iterations", 3)
    others = {"3 ranks": say(3), "a file": say(3, "--file", file), "the loss of a rank": say(3, "--lose", 2)}
    for what, said in others.items():
        if said != alone or not alone.startswith("sddp: "):
            sys.exit(f"{example.name} with {what} printed\n{said}and alone\n{alone}")
    print(f"{example.name}: {alone}", end="")


def run_tests(fresh, tests, work):
    done = subprocess.run([fresh, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-W", "error::ResourceWarning", tests], cwd=work,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    for reason in re.findall(r"^SKIPPED \[\d+\] \S+ (.*)$", done.stdout, re.M):
        print(f"skipped: {reason}")
    if done.returncode:
        sys.exit(done.returncode)


def main():
    root, installed, work = (Path(word).resolve() for word in sys.argv[1:4])
    python, wheels = find_tools()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    copy_tree(root, work / "tree")
    source = make_sdist(python, work / "tree", work)
    wheel = make_wheel(python, source, installed, work)
    see_license(root, wheel)
    fresh = make_environment(python, wheel, wheels, work)
    for page in PAGES:
        check_page(fresh, root / page, work)
    check_sddp(fresh, root / "examples/python/sddp.py", work)
    run_tests(fresh, root / "bindings/python/tests", work)
    shutil.rmtree(work / "fresh")  # 400 MB


if __name__ == "__main__":
    main()
