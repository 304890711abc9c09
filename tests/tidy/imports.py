#!/usr/bin/env python3
"""The core imports no operating system: `imports.py TABLE.C LD NM OBJECT...` links the objects into one and looks at what stays undefined.

Allowed: mem*, strlen, strcmp, strncmp; the compiler's own run-time; the constants of the backends that TABLE.C names.
"""
import re
import subprocess
import sys
import tempfile

PLAIN = {"memcpy", "memmove", "memset", "memcmp", "memchr", "strlen", "strcmp", "strncmp"}
RUNTIME = re.compile(
    r"__stack_chk_fail|__cpu_model|__cpu_indicator_init|_GLOBAL_OFFSET_TABLE_|__mem(cpy|move|set)_chk"
    r"|__(u?(div|mod|divmod)ti[34]|(extendhfsf|truncsfhf|truncdfhf|truncsfbf)2|mul[sdt]c3|popcount[sd]i2)"
    r"|__(asan|ubsan|tsan|gcov|llvm_gcov|sanitizer)_\w+")


def named_constants(table):
    lists = re.findall(r"\bextern\s+const\s+struct\s+\w+\s+([^;]+);", table)
    return {name for names in lists for name in re.findall(r"\w+", re.sub(r"\[[^]]*\]", "", names))}


def offences(undefined, table):
    allowed = PLAIN | named_constants(table)
    return sorted(name for name in undefined if name not in allowed and not RUNTIME.fullmatch(name))


def undefined_of(ld, nm, objects):
    with tempfile.NamedTemporaryFile(suffix=".o") as one:
        subprocess.run([ld, "-r", "-o", one.name, *objects], check=True)
        listing = subprocess.run([nm, "-u", one.name], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listing.splitlines() if line.split()}


def main():
    table_path, ld, nm, *objects = sys.argv[1:]
    if not objects:
        print("imports: no objects of the core were given")
        return 2
    try:
        with open(table_path, encoding="utf-8") as file:
            table = file.read()
    except FileNotFoundError:
        table = ""
    undefined = undefined_of(ld, nm, objects)
    bad = offences(undefined, table)
    for name in bad:
        print(f"src/core imports {name}")
    print(f"imports: {len(objects)} objects, {len(undefined)} imports, {len(bad)} not allowed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
