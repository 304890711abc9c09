#!/usr/bin/env python3
"""The names that leave the library are those of the headers, no more and no fewer.

symbols.py headers INCLUDE LIST        the checked-in LIST is what the headers declare (with --write: make it so)
symbols.py library LIST NM LIBRARY     what LIBRARY exports is LIST; a name of the headers that is missing has no body yet
symbols.py selftest                    both can fail
"""
import os
import re
import subprocess
import sys


def declared(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return set(re.findall(r"^COMM_(?:MUST|API)\s+[^;(]*?(\w+)\s*\(", text, re.M))


def declared_in(folder):
    names = set()
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            names |= declared(file.read())
    return names


def exported(listing):
    """Of `nm` output: every defined global, but for the name of the version itself."""
    names = set()
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] not in "aA" and (fields[1].isupper() or fields[1] in "uvw"):
            names.add(fields[2].split("@")[0])
    return names


def compare(want, got, wanting, too_many):
    for name in sorted(want - got):
        print(f"{name}: {wanting}")
    for name in sorted(got - want):
        print(f"{name}: {too_many}")
    print(f"symbols: {len(want)} wanted, {len(want & got)} there, {len(got - want)} too many")
    return 0 if want == got and want else 1


def read_list(path):
    with open(path, encoding="utf-8") as file:
        return set(file.read().split())


def selftest():
    header = "/* COMM_API int comm_no(void); */\nCOMM_MUST enum comm_result comm_a(int\n b);\nCOMM_API void comm_b(void *p);\n" \
             "COMM_MUST const char *comm_c(void);\ntypedef int comm_fn(void);\n"
    listing = "0000 T comm_a@@COMMSTREAM_0.1\n0000 A COMMSTREAM_0.1\n0001 t comm_hidden\n0002 D data\n     U malloc\n"
    assert declared(header) == {"comm_a", "comm_b", "comm_c"}, declared(header)
    assert exported(listing) == {"comm_a", "data"}, exported(listing)
    assert compare({"a"}, {"a"}, "", "") == 0
    assert compare({"a"}, set(), "planted: missing", "") == 1
    assert compare({"a"}, {"a", "b"}, "", "planted: too many") == 1
    assert compare(set(), set(), "", "") == 1
    return 0


def main():
    what = sys.argv[1]
    if what == "selftest":
        return selftest()
    if what == "headers":
        names = declared_in(sys.argv[2])
        if "--write" in sys.argv:
            with open(sys.argv[3], "w", encoding="utf-8") as file:
                file.write("".join(name + "\n" for name in sorted(names)))
        return compare(read_list(sys.argv[3]), names, "in the list, not in the headers", "in the headers, not in the list")
    dynamic = ["-D"] if sys.argv[4].endswith(".so") else []
    listing = subprocess.run([sys.argv[3], *dynamic, "--defined-only", "-g", sys.argv[4]], check=True, capture_output=True, text=True).stdout
    return compare(read_list(sys.argv[2]), exported(listing), "declared, not exported", "exported, not declared")


if __name__ == "__main__":
    sys.exit(main())
