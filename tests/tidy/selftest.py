#!/usr/bin/env python3
"""A tidy that cannot fail is worthless: each rule gets one planted offence that it alone must find, and a clean tree in which none finds
anything. `selftest.py [CC]` also compiles an object that calls malloc, for the gate on imports."""
import os
import subprocess
import sys
import tempfile

import imports
import tidy

HOLE = "| # | hole | closed by | test |\n|--:|---|---|---|\n| 1 | A rank reads too far. | It counts. | {} |\n"
DOC = "/* Gives the number back to the caller, from any thread. */\n"
CLEAN = {
    "src/core/CMakeLists.txt": "add_subdirectory(api)\n",
    "src/core/api/CMakeLists.txt": "target_sources(x PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/call.c)\n",
    "src/core/api/call.c": '#include "api/call.h"\n#include "timeline/queue.h"\n#include "base/log.h"\n#include <string.h>\n\n'
                           'int operand(int x);\n\nint f(int x)\n{\n    return operand(x) + (int)strlen("strcpy(");\n}\n',
    "include/commstream/x.h": f"{DOC}COMM_MUST int comm_x(void);\n",
    "examples/CMakeLists.txt": "add_executable(hello hello.c)\n",
    "examples/hello.c": "#include <commstream/commstream.h>\n\nint main(void)\n{\n    return 0;\n}\n",
    "src/tools/CMakeLists.txt": "add_executable(comm-run comm_run.c)\n",
    "src/tools/comm_run.c": '#include "comm_run.h"\n',
    "tests/contract/CMakeLists.txt": "comm_test(contract lines.c ../other.c INSIDE\n  TIMEOUT 9)\nadd_test(NAME contract_${wire} COMMAND "
                                     "test_contract)\ncomm_check(check python3)\n",
    "tests/contract/lines.c": "static void contract_1_1(void **state)\n{\n    (void)state;\n}\n\nint main(void)\n{\n"
                              "    const struct CMUnitTest tests[] = {cmocka_unit_test(contract_1_1)};\n    return 0;\n}\n",
    "CMakeLists.txt": "target_include_directories(a PUBLIC include)\n",
    "docs/migrate/from-mpi.md": "MPI_X is `comm_x`, and so are all of `comm_*`; `COMM_ERR_PEER` is an error, `COMM_LOG` an option.\n",
    "include/commstream/result.h": '#define COMM_RESULTS(X) \\\n    X(ERR_PEER, -10, "died")\n',
    "src/core/base/option.h": '#define LOG "COMM_LOG"\nint comm_inside(void);\n',
    "src/core/base/option_near.c": 'static const char *const others[] = {"COMM_JOB",\n    "COMM_RANK"};\n',
    "src/core/base/CMakeLists.txt": "target_sources(x PRIVATE option_near.c)\n",
    "src/core/base/limits.h": "enum { WORDS = 16, RANKS_MOST = 64 * WORDS, LINES_MOST = 1 << 8, RANKS_LEAST = 2 };\n",
    "docs/reference/errors.md": "| error | meaning |\n|---|---|\n| `COMM_ERR_PEER` | died |\n",
    "docs/reference/limits.md": "| limit | at most | where |\n|---|---|---|\n| ranks | 1,024, or 7 | `RANKS_MOST` |\n"
                                "| lines | 256 | some | `LINES_MOST` |\n| least | 2 | `RANKS_LEAST` |\n| names | 9 |  |\n",
    "docs/reference/options.md": "| variable |\n|---|\n| `COMM_JOB` | a |\n| `COMM_RANK` | b |\n",
}


def body(lines):
    return "int f(void)\n{\n" + "    g();\n" * (lines - 3) + "}\n"


def design(law):
    return "".join(f"| {room} | what it is | {', '.join(sorted(law[room])) or 'base'} |\n" for room in law)


C = "src/core/api/call.c"
# rule, path, text that offends
OFFENCES = [
    ("includes", C, '#include "wire/wire.h"\n'),
    ("includes", C, '#  include "shm/segment.h"\n'),
    ("includes", C, '#include "call.h"\n'),
    ("includes", "src/core/base/log.h", '#include "data/data.h"\n'),
    ("includes", "src/core/timeline/queue.h", '#include "data/data.h"\n'),
    ("includes", "src/shm/segment.h", '#include "comm/state.h"\n'),
    ("includes", "src/core/bucket/bucket.h", '#include "api/api.h"\n'),
    ("includes", "src/core/attic/old.h", "int x;\n"),
    ("includes", "examples/hello.c", '#include "data/data.h"\n'),
    ("function-length", C, body(61)),
    ("function-length", C, "static inline int f(int x) {\n" + "    g();\n" * 60 + "}\n"),
    ("function-length", C, "#if A\nint f(void)\n{\n#else\nint h(void)\n{\n#endif\n" + "    g();\n" * 60 + "}\n"),
    ("function-length", "tests/contract/lines.c", body(61)),
    ("file-length", C, "int x;\n" * 501),
    ("file-length", "tests/contract/lines.c", "int x;\n" * 501),
    ("file-length", "tests/contract/lines.py", "x = 1\n" * 501),
    ("struct-fields", C, "struct s {\n" + "    int x, *y[2];\n" * 20 + "    struct {\n        int a, b;\n    } z;\n};\n"),
    ("columns", C, "int " + "x" * 140 + ";\n"),
    ("documented", "include/commstream/x.h", "COMM_MUST int comm_x(void);\n"),
    ("documented", "include/commstream/x.h", f"{DOC}\nCOMM_MUST int comm_x(void);\n"),
    ("documented", "include/commstream/x.h", "/* x */\nCOMM_API void comm_x(void);\n"),
    ("documented", "include/commstream/x.h", f"{DOC}COMM_MUST int comm_x(void);\nCOMM_API void comm_y(int a,\n    int b);\n"),
    ("blanks", C, "int x; \n"),
    ("blanks", C, "int x;"),
    ("blanks", "docs/page.md", "text\t\n"),
    ("tabs", C, "int\tx;\n"),
    ("listed", "src/core/api/other.c", "int x;\n"),
    ("listed", "examples/hell.c", "int x;\n"),
    ("contract", "docs/reference/contract.md", "| 1.1 | Work is ordered. | `contract_1_1` |\n| 1.2 | So are others. | `contract_1_2` |\n"),
    ("contract", "docs/reference/contract.md", "| 1.1 | Work is ordered. | some day |\n"),
    ("holes", "docs/internals/testing.md", HOLE.format("`contract`: `contract_1_2`")),
    ("holes", "docs/internals/testing.md", HOLE.format("`contract`: `contract_1_1`; `lines`")),
    ("holes", "docs/internals/testing.md", HOLE.format("`contract_shm`: `contract_1_1`, `contract_1_2`")),
    ("holes", "docs/internals/testing.md", HOLE.format("`check`: `contract_1_1`")),
    ("holes", "docs/internals/testing.md", HOLE.format("one day")),
    ("attacks", "SECURITY.md", "| attack | defence | where | test |\n|---|---|---|---|\n| read | sealed | here | `contract`, `gone` |\n"),
    ("attacks", "SECURITY.md", "| change | sealed | here | none yet |\n"),
    ("errors", "docs/reference/errors.md", "See `COMM_ERR_PEER`.\n"),
    ("errors", "docs/reference/options.md", "| variable |\n|---|\n| `COMM_JOB` | as `COMM_RANK` |\n"),
    ("limits", "docs/reference/limits.md", "| ranks | 1,023 | `RANKS_MOST` |\n"),
    ("limits", "docs/reference/limits.md", "| ranks | 1,024 | `RANKS_ALL` |\n"),
    ("names", "docs/page.md", "Call `comm_y`.\n"),
    ("names", "docs/page.md", "Call `comm_y_*`.\n"),
    ("names", "docs/page.md", "That is `COMM_ERR_PEERS`.\n"),
    ("names", "docs/migrate/from-mpi.md", "MPI_X is `comm_inside`.\n"),
    ("design", "docs/internals/design.md", design({room: tidy.LAW[room] for room in tidy.LAW if room != "wire"})),
    ("design", "docs/internals/design.md", design({**tidy.LAW, "wire": {"data", "team"}})),
    ("plain", "docs/internals/page.md", "The watcher looks at peers.\n"),
    ("plain", "docs/internals/page.md", "Tests use a played driver.\n"),
    ("plain", "docs/guide/page.md", "A death is told within a second.\n"),
    ("plain", "docs/guide/page.md", "All of it but for one.\n"),
    ("plain", "docs/how-to/page.md", "The rooms of the library.\n"),
    ("plain", "README.md", "The peer speaks when he wants.\n"),
    ("links", "docs/page.md", "See [the rest](gone.md).\n"),
    ("links", "docs/page.md", "# One\n\nSee [below](#two).\n"),
    ("links", "README.md", "See [MPI](docs/migrate/from-mpi.md#names).\n"),
    ("files", "docs/internals/page.md", "The call is in `api/gone.c`.\n"),
    ("plain", "include/commstream/x.h", DOC + "COMM_MUST int comm_x(void); /* stands for a stream */\n"),
    ("include-path", "CMakeLists.txt", "target_include_directories(a PUBLIC include/commstream)\n"),
    ("include-path", "cmake/x.pc.in", "Cflags: -I${prefix}/include/commstream\n"),
]
OFFENCES += [("banned", C, f"int f(void)\n{{\n    {name}(a);\n}}\n") for name in tidy.BANNED]
OFFENCES += [("unfinished", C, f"/* {word}: later */\n") for word in tidy.UNFINISHED]
FINE = [
    ("docs/internals/testing.md", HOLE.format("`contract`: `contract_1_1`; `contract_tcp_epoll`: `contract_1_1`; `check`")),
    ("SECURITY.md", "| attack | test |\n|---|---|\n| read | `contract`, `contract_shm`, `check` |\n"),
    ("src/core/api/CMakeLists.txt", "file(GLOB all ${CMAKE_CURRENT_SOURCE_DIR}/*.c)\n"),
    ("docs/internals/design.md", design(tidy.LAW)),
    ("src/tools/CMakeLists.txt", "foreach(name comm_run other)\n"),
    ("docs/reference/contract.md", "| 1.1 | Work is ordered. | `contract_1_1` |\n| 1.2 | Not these. | not built yet |\n"),
    ("docs/guide/page.md", "There is room for `told`.\n\n```c\nint told; /* beside */\n```\n"),
    ("docs/internals/page.md", "A death is told, beside other things.\n"),
    ("include/commstream/x.h", f"{DOC}COMM_MUST int comm_x(void);\nextern int told;\n"),
    (C, body(60)),
    (C, "int x;\n" * 500),
    (C, "int " + "x" * 135 + ";\n"),
    (C, "static const struct a t[] = {\n" + "    {f(1)},\n" * 100 + "};\n"),
    (C, "int f(void)\n{\n    return p->system(1) + operand(2) + g.rand(3);\n}\n"),
]


def found(tree):
    return {rule for rule, check in tidy.RULES.items() if list(check(tree))}


def main():
    wrong = []
    if found(CLEAN):
        wrong.append(f"the clean tree offends {sorted(found(CLEAN))}")
    for rule, path, text in OFFENCES:
        got = found({**CLEAN, path: text})
        if got != {rule}:
            wrong.append(f"{path!r} {text[:60]!r}: wanted {rule}, found {sorted(got)}")
    for path, text in FINE:
        if found({**CLEAN, path: text}):
            wrong.append(f"{text[:60]!r}: offends {sorted(found({**CLEAN, path: text}))}")
    room = {f"src/core/api/{part}.c": "int x;\n" * 500 for part in "abcdefgh"}
    if len(list(tidy.check_room_length(room))) != 1 or list(tidy.check_room_length({C: "int x;\n" * 500})):
        wrong.append("a room of 4,000 lines is to be found, and one of 500 is not")
    law = dict(tidy.LAW)
    tidy.LAW["data"] = {"algo"}
    if "cycles" not in found(CLEAN):
        wrong.append("a cycle in the law: not found")
    tidy.LAW.clear()
    tidy.LAW.update(law)
    untested = set(tidy.RULES) - {rule for rule, _, _ in OFFENCES} - {"cycles", "room-length"}
    if untested:
        wrong.append(f"rules without an offence: {sorted(untested)}")

    table = "extern const struct comm_env env_posix;\nextern const struct wire_class wire_local, wire_shm;\n"
    if imports.offences({"memcpy", "env_posix", "wire_local", "wire_shm", "__stack_chk_fail", "__asan_init"}, table):
        wrong.append("the gate on imports refuses what is allowed")
    if imports.offences({"malloc", "errno", "__tls_get_addr", "wire_tcp", "memcpy"}, table) != ["__tls_get_addr", "errno", "malloc", "wire_tcp"]:
        wrong.append("the gate on imports lets something through")
    if len(sys.argv) > 1:
        wrong += compiled(sys.argv[1])
    for line in wrong:
        print("selftest:", line)
    print(f"selftest: {len(OFFENCES)} planted, {len(wrong)} wrong")
    return 1 if wrong else 0


def compiled(cc):
    """Two objects of which one defines what the other calls, and one that calls malloc."""
    with tempfile.TemporaryDirectory() as folder:
        texts = {"a": "int b(void); int a(void) { return b(); }", "b": "int b(void) { return 1; }",
                 "m": "#include <stdlib.h>\nvoid *m(void) { return malloc(7); }"}
        for name, text in texts.items():
            with open(os.path.join(folder, name + ".c"), "w", encoding="utf-8") as file:
                file.write(text + "\n")
            subprocess.run([*cc.split(), "-c", os.path.join(folder, name + ".c"), "-o", os.path.join(folder, name + ".o")], check=True)

        def undefined(names):
            return imports.undefined_of("ld", "nm", [os.path.join(folder, name + ".o") for name in names])
        wrong = []
        if imports.offences(undefined("ab"), ""):
            wrong.append("a call from one object to another counts as an import")
        if imports.offences(undefined("abm"), "") != ["malloc"]:
            wrong.append("malloc in an object is not found")
        return wrong


if __name__ == "__main__":
    sys.exit(main())
