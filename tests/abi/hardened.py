#!/usr/bin/env python3
"""What was built has the protections that were asked for.

hardened.py built READELF BUILD COMPILE LINK FILE...   every FILE has them, and every source of the library was compiled with COMPILE
hardened.py selftest READELF CC                        files without them are found

COMPILE and LINK are the flags that CMake found, separated by commas. A file is asked for what it shows; the rest is looked for in
compile_commands.json alone: stack clash protection leaves no mark, and the mark of control-flow protection is there only where the C
library's own start files have it too.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

# The kernel and loader of any Linux that we build on know these; where CMake did not find them it looked wrongly.
ALWAYS = {"relro", "now", "noexecstack", "nodelete"}


def read(readelf, path):
    run = subprocess.run([readelf, "-W", "-h", "-l", "-d", "-n", "--dyn-syms", path], check=True, capture_output=True, text=True)
    return run.stdout


def missing(text, compile_flags, library):
    """Which protections the listing of one file does not show."""
    bad = []
    stack = re.search(r"GNU_STACK.*", text)
    if not re.search(r"Type:\s+DYN", text):
        bad.append("position-independent (pie)")
    if "GNU_RELRO" not in text:
        bad.append("relro")
    if "BIND_NOW" not in text and not re.search(r"FLAGS_1.*\bNOW\b", text):
        bad.append("now")
    if not stack or re.search(r"\bRWE\b", stack.group()):
        bad.append("noexecstack")
    if library and not re.search(r"FLAGS_1.*\bNODELETE\b", text):
        bad.append("nodelete")
    if any("stack-protector" in flag for flag in compile_flags) and "__stack_chk_fail" not in text:
        bad.append("stack protector")
    return bad


def fortified(text):
    return re.search(r"UND\s+__(?!stack)\w+_chk\b", text) is not None


def built(readelf, build, compile_flags, link_flags, files):
    offences = [f"the linker's -z {flag} was not found" for flag in sorted(ALWAYS - set(link_flags))]
    for path in files:
        library = ".so" in os.path.basename(path)
        offences += [f"{path}: without {what}" for what in missing(read(readelf, path), compile_flags, library)]
    if any("_FORTIFY_SOURCE=" in flag for flag in compile_flags) and not fortified(read(readelf, files[0])):
        offences.append(f"{files[0]}: without fortified functions")
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = [entry for entry in json.load(file) if "/src/" in entry["file"] and " -o tests/" not in entry["command"]]
    for entry in commands:
        words = entry["command"].split()
        offences += [f"{entry['file']}: compiled without {flag}" for flag in compile_flags if flag not in words]
    for line in offences:
        print(line)
    print(f"hardened: {len(files)} files and {len(commands)} sources looked at, {len(offences)} offences")
    return 1 if offences or not commands else 0


def selftest(readelf, compiler):
    source = "#include <string.h>\nint copy(char *to, const char *from);\nint copy(char *to, const char *from) " \
             "{ char own[64]; strcpy(own, from); memcpy(to, own, 64); return own[3]; }\n"
    flags = ["-fstack-protector-strong", "-D_FORTIFY_SOURCE=2"]
    good = ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack", "-Wl,-z,nodelete"]
    plain = ["-Wl,-z,norelro", "-Wl,-z,lazy", "-Wl,-z,execstack"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plain.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)

        def found(compile_words, link_words):
            out = os.path.join(folder, "plain.so")
            words = ["-O2", "-fPIC", "-shared", "-U_FORTIFY_SOURCE", *compile_words, path, *link_words]
            subprocess.run([compiler, "-o", out, *words], check=True)
            return missing(read(readelf, out), flags, True)

        assert found(flags, good) == [], found(flags, good)
        assert found(flags, plain) == ["relro", "now", "noexecstack", "nodelete"], found(flags, plain)
        assert fortified(read(readelf, os.path.join(folder, "plain.so")))
        assert found(["-fno-stack-protector"], good) == ["stack protector"], found(["-fno-stack-protector"], good)
        assert not fortified(read(readelf, os.path.join(folder, "plain.so")))
        for left_out in good[:1] + good[1:2] + good[3:]:
            name = left_out.rsplit(",", 1)[1]
            rest = [flag for flag in good if flag != left_out] + {"relro": ["-Wl,-z,norelro"], "now": ["-Wl,-z,lazy"]}.get(name, [])
            assert name in found(flags, rest), (name, found(flags, rest))
    assert missing("Type: EXEC\n", [], False)[0].startswith("position")
    print("hardened: what is missing is found")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "selftest":
        sys.exit(selftest(*sys.argv[2:]))
    flag_lists = [[flag for flag in text.split(",") if flag] for text in sys.argv[4:6]]
    sys.exit(built(sys.argv[2], sys.argv[3], *flag_lists, sys.argv[6:]))
