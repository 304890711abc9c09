#!/usr/bin/env python3
"""The C code of pages. A program in docs/migrate/from-*.md compiles, runs, and prints the lines below it. Code in docs/how-to/*.md is an
excerpt of a file in examples/, line for line.

`pages.py ROOT CC LIBDIR COMM_RUN` prints what is wrong and exits 1; `pages.py selftest ...` with the same three behind a ROOT plants one page
for each way to be wrong. A page has a ```c block with a main, then ```sh with `comm-run -n N ./name` or `./name`, then ```text with the lines
(of several ranks in any order). A ```c block without a main is declarations and functions, which compile behind commstream/comm.h.
"""
import os
import re
import subprocess
import sys
import tempfile

LAST = "Left out on purpose, and what to use instead"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SECONDS = 60


def blocks(page):
    """(language, text, line) of each fenced block."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S):
        yield found.group(1), found.group(2), page.count("\n", 0, found.start()) + 1


class Build:
    def __init__(self, root, cc, libraries, comm_run):
        self.include, self.cc, self.libraries, self.comm_run = os.path.join(root, "include"), cc.split(), libraries, comm_run

    def compile(self, folder, name, text, whole):
        source = os.path.join(folder, name + ".c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text if whole else "#include <commstream/comm.h>\n" + text)
        end = ["-o", os.path.join(folder, name), "-L" + self.libraries, "-lcommstream", "-Wl,-rpath," + self.libraries]
        done = subprocess.run([*self.cc, *FLAGS, "-I" + self.include, source, *(end if whole else ["-fsyntax-only"])],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return None if done.returncode == 0 else "does not compile:\n" + done.stdout

    def run(self, folder, words):
        if words[0] == "comm-run":
            words = [self.comm_run, *words[1:]]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COMM_")}
        try:
            done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return None, f"does not end within {SECONDS} s"
        if done.returncode != 0:
            return None, f"ends with {done.returncode}:\n{done.stderr}"
        return done.stdout, None


def check_program(build, folder, text, after):
    """What is wrong with one program, or None; `after` are the two blocks that stand below it."""
    if [language for language, _, _ in after] != ["sh", "text"]:
        return "no ```sh and ```text below it"
    words = after[0][1].split()
    name = words[-1] if words else ""
    if not re.fullmatch(r"(comm-run -n [1-9]\d* )?\./[a-z]+", " ".join(words)):
        return "the command below it is not 'comm-run -n N ./name' or './name'"
    wrong = build.compile(folder, name[2:], text, True)
    if wrong:
        return wrong
    printed, wrong = build.run(folder, words)
    if wrong:
        return wrong
    if sorted(printed.splitlines()) != sorted(after[1][1].splitlines()):
        return "prints\n" + printed + "and not\n" + after[1][1]
    return None


def check_page(build, page):
    """(line, what) of each offence; the number of programs comes last, as (None, count)."""
    programs, there = 0, list(blocks(page))
    for at, (language, text, line) in enumerate(there):
        if language != "c":
            continue
        with tempfile.TemporaryDirectory() as folder:
            if re.search(r"^int main\(", text, re.M):
                programs += 1
                wrong = check_program(build, folder, text, there[at + 1:at + 3])
            else:
                wrong = build.compile(folder, "part", text, False)
        if wrong:
            yield line, wrong
    headings = re.findall(r"^## (.*)$", page, re.M)
    if not programs:
        yield 1, "has no program"
    if not headings or headings[-1] != LAST:
        yield 1, f"does not end with '{LAST}'"
    yield None, programs


def check_excerpts(examples, page):
    """(line, what) of each ```c block that no example contains."""
    for language, text, line in blocks(page):
        if language == "c" and not any(text in example for example in examples):
            yield line, "is in no file of examples/"


def read_all(folder, suffix):
    """(name, text) of each file of a folder whose name ends so."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(suffix):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                yield name, file.read()


END = f"\n## {LAST}\n"
GOOD = ("```c\n#include <commstream/comm.h>\n#include <stdio.h>\nint main(void)\n{\n    struct comm_communicator *c;\n"
        "    if (comm_open(NULL, &c) != COMM_OK)\n        return 1;\n    printf(\"%d\\n\", comm_rank(c));\n"
        "    return comm_close(c, COMM_DEFAULT_TIMEOUT) != COMM_OK;\n}\n```\n\n```sh\ncomm-run -n 2 ./a\n```\n\n```text\n[1] 1\n[0] 0\n```\n")
PLANTED = [
    (GOOD.replace("comm_rank(c)", "comm_rang(c)") + END, "does not compile"),
    (GOOD.replace("[1] 1", "[1] 2") + END, "prints"),
    (GOOD.replace("comm_close(c, COMM_DEFAULT_TIMEOUT) != COMM_OK", "3") + END, "ends with 3"),
    (GOOD.replace("```text\n[1] 1\n[0] 0\n```\n", "") + END, "no ```sh and ```text"),
    (GOOD.replace("comm-run -n 2", "comm-run -n many") + END, "the command below it"),
    (GOOD + "```c\nint f(void)\n{\n    return comm_rang(NULL);\n}\n```\n" + END, "does not compile"),
    (GOOD, "does not end with"),
    (END, "has no program"),
]


def selftest(build):
    wrong = [f"{line}: {what}" for line, what in check_page(build, GOOD + END) if line is not None]
    for page, expected in PLANTED:
        found = [what for line, what in check_page(build, page) if line is not None]
        if len(found) != 1 or not found[0].startswith(expected):
            wrong.append(f"expected '{expected}', found {found}")
    excerpt, examples = "```c\nint a;\nint b;\n```\n", ["int z;\nint a;\nint b;\n"]
    wrong += [f"excerpt: {what}" for _, what in check_excerpts(examples, excerpt)]
    if not list(check_excerpts(examples, excerpt.replace("int b", "int c"))):
        wrong.append("an excerpt that is in no example was not found")
    for line in wrong:
        print("pages:", line)
    print(f"pages: {len(PLANTED) + 1} planted, {len(wrong)} wrong")
    return 1 if wrong else 0


def main():
    if sys.argv[1] == "selftest":
        return selftest(Build(*sys.argv[2:]))
    root = sys.argv[1]
    build, count, programs = Build(*sys.argv[1:]), 0, 0
    pages = [(name, text) for name, text in read_all(os.path.join(root, "docs", "migrate"), ".md") if name.startswith("from-")]
    for name, page in pages:
        if "```python\n" in page:  # its scripts are run with the Python package (tests/python/package.py)
            continue
        for line, what in check_page(build, page):
            if line is None:
                programs += what
            else:
                print(f"docs/migrate/{name}:{line}: {what}")
                count += 1
    examples = [text for _, text in read_all(os.path.join(root, "examples"), ".c")]
    for name, page in read_all(os.path.join(root, "docs", "how-to"), ".md"):
        for line, what in check_excerpts(examples, page):
            print(f"docs/how-to/{name}:{line}: {what}")
            count += 1
    print(f"pages: {len(pages)} pages, {programs} programs, {count} wrong")
    return 1 if count or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
