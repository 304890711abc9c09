#!/usr/bin/env python3
"""Does exactly what the guides tell a newcomer to do, on a copy of the tree, and runs the result.

    newcomer.py SOURCE WORK CC CMAKE

docs/internals/adding-an-algorithm.md: one file, one row. docs/internals/adding-an-option.md: one field, one row, the page. Both on one copy,
which is built once: neither touches what the other does.
"""
import os
import pathlib
import shutil
import subprocess
import sys

ROW = 'ROW(ALLREDUCE, "toy", 1, ALGO_GROUP, ALGO_ONCE, allreduce_toy, 0, "a newcomer\'s: everyone reads everyone\'s input")\n'
OPTION = """    {.key = "toy",
     .environment = "COMM_TOY",
     .type = OPTION_NUMBER,
     AT(toy),
     .default_text = "7",
     .min = 1,
     .max = 9,
     .unit = "toys",
     .help = "how many toys"},
"""


def run(*command, expect=0, **environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != expect:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}, expected {expect}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def must(condition, what):
    if not condition:
        sys.exit(f"newcomer: {what}")


def edit(path, old, new):
    text = path.read_text()
    must(text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times; expected once")
    path.write_text(text.replace(old, new))


def copy(source, tree):
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name in ("CMakeLists.txt", "cmake", "include", "src", "tests", "docs", "LICENSE"):
        have = source / name
        if have.is_dir():
            shutil.copytree(have, tree / name, ignore=shutil.ignore_patterns("corpus", "__pycache__"))
        else:
            shutil.copy(have, tree / name)


def build(tree, cc, cmake):
    built = tree / "build"
    run(cmake, "-S", tree, "-B", built, f"-DCMAKE_C_COMPILER={cc}", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0", "-DCOMM_WERROR=ON",
        "-DCOMM_TESTS=OFF", "-DCOMM_EXAMPLES=OFF", *(f"-DCOMM_WITH_{part}=OFF" for part in ("MPI", "CUDA", "URING", "OPENSSL", "PMIX")))
    run(cmake, "--build", built, "--parallel", "2", "--target", "comm-info", "comm-perf", "comm-run")
    return built / "bin"


def add_algorithm(tree):
    room = tree / "src/core/algo"
    text = (room / "allreduce_read_all.c").read_text()
    (room / "allreduce_toy.c").write_text(text.replace("allreduce_read_all", "allreduce_toy").replace('"read_all"', '"toy"'))
    rows = room / "rows.def"
    rows.write_text(rows.read_text() + ROW)


def see_algorithm(programs):
    said = run(programs / "comm-run", "-n", "3", programs / "comm-perf", "allreduce", "--check", "--max", "512", "--backend", "shm",
               COMM_ALGORITHM="allreduce:toy")
    must("toy" in said, f"comm-perf does not name the algorithm:\n{said}")
    run(programs / "comm-run", "-n", "3", programs / "comm-perf", "allreduce", "--max", "512", "--backend", "shm", expect=1,
        COMM_ALGORITHM="allreduce:tox")


def add_option(tree):
    edit(tree / "src/core/base/option.h", "    uint32_t order_block;\n", "    uint32_t order_block;\n    uint32_t toy;\n")
    edit(tree / "src/core/base/option_table.c", '    {.key = "queue",\n', OPTION + '    {.key = "queue",\n')


def see_option(programs):
    must("COMM_TOY" in run(programs / "comm-info", "options"), "comm-info does not list the option")
    must("COMM_TOY" in run(programs / "comm-info", "--options-markdown"), "the page does not list the option")
    run(programs / "comm-perf", "allreduce", "--max", "8", COMM_TOY="3")
    said = run(programs / "comm-perf", "allreduce", "--max", "8", expect=1, COMM_TOY="10")
    must("COMM_TOY" in said and "1 to 9" in said, f"a wrong value is not named:\n{said}")


def main():
    source, work, cc, cmake = sys.argv[1:]
    tree = pathlib.Path(work) / "tree"
    copy(pathlib.Path(source), tree)
    add_algorithm(tree)
    add_option(tree)
    programs = build(tree, cc, cmake)
    see_algorithm(programs)
    see_option(programs)
    shutil.rmtree(tree)


if __name__ == "__main__":
    main()
