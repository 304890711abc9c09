#!/usr/bin/env python3
"""What every file of this tree keeps to, checked by reading it: `tidy.py ROOT` prints `path:line: rule: what` and exits 1.

Each rule is a function (tree) -> findings; selftest.py plants one offence per rule and wants it found. The tree is a dict of path -> text,
so that a rule never touches the disk.
"""
import os
import re
import sys

sys.dont_write_bytecode = True  # the tree stays as it is
from named_tests import check_attacks, check_contract, check_holes, line_of  # noqa: E402
from reference import check_errors, check_limits  # noqa: E402

COLUMNS = 140
FUNCTION_LINES, FILE_LINES, ROOM_LINES, STRUCT_FIELDS = 60, 500, 3500, 40
DOC_WORDS = 6

# Which rooms a room may use, by what it includes (check_includes) and by what it calls (rooms.py). No cycles; every room may use base; a room
# above comm is called back through the slots of its part (src/core/progress/part.h).
LAW = {
    "api": {"world", "inspect", "failure", "plan", "event", "rma", "fastpath", "p2p", "comm", "common", "progress", "timeline", "program", "data"},
    "world": {"staged", "inspect", "failure", "event", "rma", "native", "fastpath", "p2p", "comm", "heard", "common", "progress", "timeline", "message", "model",
              "program", "team", "wire"},
    "inspect": {"failure", "fastpath", "p2p", "comm", "progress", "timeline", "select", "model", "program", "team", "wire", "data"},
    "failure": {"fastpath", "p2p", "comm", "heard", "progress", "timeline", "message", "program", "team", "data"},
    "plan": {"event", "staged", "fastpath", "p2p", "comm", "common", "progress", "timeline", "message"},
    "event": {"fastpath", "comm", "staging", "progress", "timeline", "wire"},
    "rma": {"fastpath", "p2p", "comm", "heard", "progress", "timeline", "message", "program", "data"},
    "fastpath": {"staged", "p2p", "comm", "common", "progress", "timeline", "select", "program", "data"},
    "p2p": {"staged", "comm", "heard", "common", "staging", "progress", "timeline", "message"},
    "native": {"comm", "progress", "timeline", "select", "data"},
    "comm": {"heard", "common", "progress", "timeline", "message", "select", "model", "algo", "program", "team", "wire", "data"},
    "heard": {"message", "wire", "data"},
    "common": {"progress", "timeline", "model", "program", "wire", "data"},
    "staged": {"comm", "staging", "progress", "timeline", "program", "data"},
    "staging": {"progress", "wire"},
    "progress": {"timeline", "wire", "data"},
    "select": {"algo", "model", "program", "data"},
    "algo": {"program", "data"},
    "model": {"program", "data"},
    "program": {"data", "wire"},
    "message": {"wire", "data"},
    "timeline": set(),
    "team": {"wire"},
    "hybrid": {"wire", "data"},
    "channel": {"wire", "data"},
    "wire": {"data"},
    "data": set(),
    "net/mpi": {"wire", "data"},
    "net/mpiwire": {"net/mpi", "wire", "data"},
    "net/tcp": {"net/mesh", "net/lane", "net/state", "net/record", "net/frame", "net/auth", "net/poll", "wire"},
    "net/mesh": {"net/lane", "net/state", "net/record", "net/frame", "net/auth", "net/posix", "wire", "data"},
    "net/lane": {"net/state", "net/record", "net/frame", "net/poll", "wire", "data"},
    "net/state": {"net/record", "net/frame", "net/poll", "wire"},
    "net/record": {"net/frame", "net/auth", "net/poll"},
    "net/frame": {"wire"},
    "net/boot": {"net/auth", "net/posix", "wire"},
    "net/auth": {"net/posix", "wire"},
    "net/poll": {"net/posix", "wire"},
    "net/posix": {"wire"},
    "shm": {"channel", "wire", "data"},
    "cuda/nccl": {"cuda", "wire", "data"},
    "cuda/oneshot": {"cuda", "cuda/pipeline", "wire", "data"},
    "cuda/pipeline": {"cuda", "wire", "data"},
    "cuda": {"wire", "data"},
    "bucket": set(),
    "tools": set(),
    "tools/run": set(),
    "base": set(),
}
BANNED = ("strcpy", "strcat", "sprintf", "gets", "strtok", "alloca", "system", "atoi", "rand")
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def is_c(path):
    return path.endswith((".c", ".h", ".cpp"))


def bare(text):
    """The text with comments and literals blanked, every newline in its place."""
    def blank(match):
        got = match.group(0)
        if got[0] == "/":
            return re.sub(r"[^\n]", " ", got)
        return got[0] + re.sub(r"[^\n]", "_", got[1:-1]) + got[-1]
    return COMMENT_OR_TEXT.sub(blank, text)


def room_of(path):
    parts = path.split("/")
    if parts[0] != "src" or len(parts) < 3:
        return None
    return named_room(parts[2:] if parts[1] == "core" else parts[1:])


def named_room(parts):
    """The room that a path from src or src/core names: net, cuda and tools have rooms of their own."""
    return "/".join(parts[:2 if parts[0] in ("net", "cuda", "tools") and len(parts) > 2 else 1])


def check_includes(tree):
    for path, text in tree.items():
        if not is_c(path):
            continue
        room = room_of(path)
        if room is None:
            if path.startswith("examples/"):
                for found in INCLUDE.finditer(text):
                    if named_room(found.group(1).split("/")) in LAW:
                        yield path, line_of(text, found.start()), f"an example includes the room of {found.group(1)}"
            continue
        if room not in LAW:
            yield path, 1, f"room '{room}' is not in the include law"
            continue
        for found in INCLUDE.finditer(text):
            other = named_room(found.group(1).split("/"))
            line = line_of(text, found.start())
            if room in ("tools", "tools/run") and "/" not in found.group(1):
                continue
            if "/" not in found.group(1) or other not in LAW:
                yield path, line, f'"{found.group(1)}" does not name its room'
            elif other != room and other != "base" and other not in LAW[room]:
                yield path, line, f"{room} may not include {other}"


def check_cycles(tree):
    """The law itself has no cycle; base includes nothing of ours."""
    done, walk = set(), []

    def visit(room):
        if room in walk:
            return walk[walk.index(room):] + [room]
        if room in done:
            return None
        walk.append(room)
        for other in LAW[room]:
            cycle = visit(other)
            if cycle:
                return cycle
        walk.pop()
        done.add(room)
        return None

    for room in LAW:
        cycle = visit(room)
        if cycle:
            yield "tests/tidy/tidy.py", 1, "the include law has a cycle: " + " -> ".join(cycle)
            return


def functions(text):
    """(name, first line, last line) of each function body, by braces at depth 0 behind a parameter list."""
    text = re.sub(r'extern "_*" *\{', lambda m: " " * len(m.group(0)), bare(text).replace('extern "C"', 'extern "_"'))
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.M)
    depth, start, statement, name = 0, None, 0, "?"
    for at, char in enumerate(text):
        if char == "{":
            if depth == 0:
                head = text[statement:at]
                called = re.search(r"(\w+)\s*\(", head)
                if called and "=" not in head and head.rstrip().endswith(")"):
                    start, name = statement + len(head) - len(head.lstrip()), called.group(1)
            depth += 1
        elif char == "}":
            # Alternatives of the preprocessor may leave a brace open; a brace in the first column always closes what is outermost.
            depth = 0 if at == 0 or text[at - 1] == "\n" else max(0, depth - 1)
            if depth == 0:
                if start is not None:
                    yield name, line_of(text, start), line_of(text, at)
                start, statement = None, at + 1
        elif char == ";" and depth == 0:
            statement = at + 1


def check_function_length(tree):
    for path, text in tree.items():
        for name, first, last in functions(text) if is_c(path) else ():
            if last - first + 1 > FUNCTION_LINES:
                yield path, first, f"{name} has {last - first + 1} lines; at most {FUNCTION_LINES}"


def check_file_length(tree):
    for path, text in tree.items():
        lines = text.count("\n")
        if (is_c(path) or path.endswith((".py", ".sh"))) and lines > FILE_LINES:
            yield path, FILE_LINES, f"{lines} lines; at most {FILE_LINES}"


def count_fields(text, at):
    """The fields of the struct whose body begins at `at`; a struct or union within it is one field."""
    depth, count, field = 1, 0, ""
    while depth and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 1 and text[at] == ";":
            plain = re.sub(r"\{.*\}|\[[^\]]*\]|\([^()]*\)", "", field, flags=re.S)
            count, field = count + 1 + plain.count(","), ""
        else:
            field += text[at]
        at += 1
    return count


def check_struct_fields(tree):
    for path, text in tree.items():
        code = bare(text) if is_c(path) and path.startswith(("src/", "include/")) else ""
        for m in re.finditer(r"^struct (\w+)[^;{}()]*\{", code, re.M):
            fields = count_fields(code, m.end())
            if fields > STRUCT_FIELDS:
                yield path, line_of(text, m.start()), f"struct {m.group(1)} has {fields} fields; at most {STRUCT_FIELDS}"


def check_room_length(tree):
    lines = {}
    for path, text in tree.items():
        room = room_of(path) if is_c(path) else None
        if room:
            lines[room] = lines.get(room, 0) + text.count("\n")
    for room, count in sorted(lines.items()):
        if count > ROOM_LINES:
            yield "src", 1, f"room {room} has {count} lines; at most {ROOM_LINES}"


def check_banned(tree):
    call = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
    for path, text in tree.items():
        if is_c(path):
            for found in call.finditer(bare(text)):
                yield path, line_of(text, found.start()), f"{found.group(1)} is banned"


def check_columns(tree):
    for path, text in tree.items():
        if is_c(path):
            for number, line in enumerate(text.split("\n"), 1):
                if len(line) > COLUMNS:
                    yield path, number, f"{len(line)} columns; at most {COLUMNS}"


def public_calls(text):
    """(name, offset) of each function that a public header declares."""
    clean = bare(text)
    for found in re.finditer(r"^COMM_(?:MUST|API)\s+[^;(]*?(\w+)\s*\(", clean, re.M):
        yield found.group(1), found.start()


def check_documented(tree):
    for path, text in tree.items():
        if not path.startswith("include/commstream/"):
            continue
        for name, at in public_calls(text):
            above = text[:at]
            comment = above[above.rfind("/*"):] if above.endswith("*/\n") else ""
            if len(re.findall(r"\w+", comment)) < DOC_WORDS:
                yield path, line_of(text, at), f"{name} has no comment of its own directly above"


def check_unfinished(tree):
    word = re.compile(r"\b(" + "|".join(UNFINISHED) + r")\b")
    for path, text in tree.items():
        for found in word.finditer(text):
            yield path, line_of(text, found.start()), f"the word {found.group(1)}"


def check_blanks(tree):
    for path, text in tree.items():
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip():
                yield path, number, "blanks at the end of the line"
        if text and not text.endswith("\n"):
            yield path, text.count("\n") + 1, "no newline at the end"


def check_tabs(tree):
    for path, text in tree.items():
        if is_c(path) and "\t" in text:
            yield path, line_of(text, text.index("\t")), "a tab"


def check_listed(tree):
    """Every source is named, by its path from there, in a CMakeLists.txt of its folder or of one above, or all of the folder are; a list
    may leave out the suffix."""
    for path in tree:
        if not path.endswith((".c", ".cpp")):
            continue
        parts = path.split("/")
        for depth in range(len(parts)):
            listing = tree.get("/".join(parts[:depth] + ["CMakeLists.txt"]), "")
            name, suffix = "/".join(parts[depth:]).rsplit(".", 1)
            if "/" not in name and f"CURRENT_SOURCE_DIR}}/*.{suffix}" in listing:
                break
            if re.search(rf"(?<![\w.-]){re.escape(name)}(?:\.{suffix}(?![\w.])|[\s)])", listing):
                break
        else:
            yield path, 1, "no CMakeLists.txt lists it"


def check_include_path(tree):
    """The header folder itself is never on the include path: <event.h> must stay somebody else's."""
    for path, text in tree.items():
        if path.endswith(("CMakeLists.txt", ".cmake", ".pc.in")):
            found = re.search(r"include_directories[^)]*include/commstream|-I\S*include\S*/commstream", text)
            if found:
                yield path, line_of(text, found.start()), "include/commstream on the include path"


def names_of(tree, where):
    """What begins with comm_ or COMM_ in these files, and the results that an X-macro makes of its rows."""
    names = set()
    for path, text in tree.items():
        if where(path):
            names.update(re.findall(r"\b(?:comm|COMM)_\w+", text))
            names.update("COMM_" + name for name in re.findall(r"^\s*X\((\w+), *-?\d+,", text, re.M))
    return names


def check_names(tree):
    """Pages name what is there: in a page for those who come from another library, what the public headers have. `comm_wait_*` is a few."""
    code = names_of(tree, lambda path: not path.endswith(".md"))
    public = names_of(tree, lambda path: path.startswith("include/commstream/"))
    options = set(re.findall(r'"(COMM_\w+)"', "".join(text for path, text in tree.items() if path.startswith("src/"))))
    for path, text in tree.items():
        if not path.endswith(".md"):
            continue
        known = public | options if path.startswith("docs/migrate/from-") else code
        for found in re.finditer(r"(?<!MPI\.)\b((?:comm|COMM)_\w+)(\*?)", text):
            name = found.group(1)
            if name in known or ((found.group(2) or name.endswith("_")) and any(other.startswith(name) for other in known)):
                continue
            yield path, line_of(text, found.start()), f"nothing is called {name}"


LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
FILE = re.compile(r"`([\w./-]*\w\.(?:c|h|cpp|py|sh))`")


def anchors(page):
    """What a heading is called in a link, as GitHub makes it."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", page, re.M)}


def check_links(tree):
    """A link of a page to another page leads to a page and a heading that are there."""
    for path, text in tree.items():
        if not path.endswith(".md"):
            continue
        prose = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.M | re.S)
        for found in LINK.finditer(prose):
            to, title = found.groups()
            page = os.path.normpath(os.path.join(os.path.dirname(path), to)).replace(os.sep, "/") if to else path
            if "://" in to or not page.endswith(".md"):
                continue
            if page not in tree:
                yield path, line_of(text, found.start()), f"there is no {page}"
            elif title and title not in anchors(tree[page]):
                yield path, line_of(text, found.start()), f"{page} has no heading '{title}'"


def check_files(tree):
    """A source that a page names is there. Pages for users may name files of the reader's."""
    for path, text in tree.items():
        if not path.startswith(("docs/internals/", "docs/performance/", "docs/reference/", "SECURITY.md", "CONTRIBUTING.md")) or not path.endswith(".md"):
            continue
        for found in FILE.finditer(text):
            name = found.group(1)
            if not any(other == name or other.endswith("/" + name) for other in tree):
                yield path, line_of(text, found.start()), f"there is no {name}"


ROW = re.compile(r"^\| ([a-z0-9/, ]+) \| [^|]+ \| ([^|]+) \|$", re.M)


def check_design(tree):
    """The table of rooms in the design is the law."""
    page = tree.get("docs/internals/design.md")
    if page is None:
        return
    told = {}
    for row in ROW.finditer(page):
        for room in row.group(1).split(", "):
            if room in LAW:
                told[room] = row.start(), {other for other in row.group(2).split(", ") if other in LAW} - {"base"}
    for room in sorted(LAW):
        if room not in told:
            yield "docs/internals/design.md", 1, f"the table of rooms lacks {room}"
        elif told[room][1] != LAW[room]:
            yield "docs/internals/design.md", line_of(page, told[room][0]), f"{room} may use {', '.join(sorted(LAW[room])) or 'base'}"


# Words of this house for which the field has a plain one. PLAIN_NAMES holds in every page and header, PLAIN_WORDS in what outsiders read.
PLAIN_NAMES = ((r"watchers?", "monitor"), (r"helper threads?", "progress thread"), (r"crowded", "oversubscribed"), (r"played", "mock"))
PLAIN_WORDS = (
    (r"told", "reported"), (r"asked for", "requested"), (r"but for", "except"), (r"he|she|whom", "it: programs are things"),
    (r"stands? (?:in|at|on|for|still)", "is blocked, is stored, means"), (r"beside", "compared with, next to, and"),
    (r"strangers?", "pending peer"), (r"rooms|(?:a|the|each|this) room", "module"), (r"what is (?:different|wrong|gained|compared|promised|added)", "the noun: differences, guarantees"),
)
PLAIN_EVERYWHERE = ("include/", "docs/", "README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/")
PLAIN_OUTSIDE = ("include/", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/README.md", "docs/getting-started/", "docs/guide/",
                 "docs/how-to/", "docs/migrate/", "docs/reference/")
# Pages that still have such words: none, and none may come.
PLAIN_NOT_YET = ()


def plain_text(path, text):
    """The prose of a file: a page without its code, a header or an example's comments; every newline in its place."""
    def blank(found):
        return re.sub(r"[^\n]", " ", found.group(0))
    if path.endswith(".md"):
        return re.sub(r"`[^`\n]*`", blank, re.sub(r"^```.*?^```", blank, text, flags=re.M | re.S))
    code = bare(text)
    return "".join(a if b == " " and a != " " else ("\n" if a == "\n" else " ") for a, b in zip(text, code))


def check_plain(tree):
    for path, text in tree.items():
        if not path.startswith(PLAIN_EVERYWHERE) or path in PLAIN_NOT_YET or not path.endswith((".md", ".h", ".c")):
            continue
        prose = plain_text(path, text)
        for word, plain in PLAIN_NAMES + (PLAIN_WORDS if path.startswith(PLAIN_OUTSIDE) else ()):
            for found in re.finditer(rf"\b(?:{word})\b", prose, re.I):
                yield path, line_of(text, found.start()), f"'{found.group(0)}': better {plain}"


RULES = {
    "includes": check_includes, "cycles": check_cycles, "function-length": check_function_length, "file-length": check_file_length,
    "room-length": check_room_length, "struct-fields": check_struct_fields, "banned": check_banned, "columns": check_columns, "documented": check_documented, "unfinished": check_unfinished,
    "blanks": check_blanks, "tabs": check_tabs, "listed": check_listed, "include-path": check_include_path, "contract": check_contract,
    "holes": check_holes, "attacks": check_attacks, "errors": check_errors, "limits": check_limits,
    "names": check_names, "links": check_links, "files": check_files, "design": check_design, "plain": check_plain,
}


def read_tree(root):
    tree = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(("build", ".git")) and f != "__pycache__"]
        for name in files:
            if name.endswith((".c", ".h", ".cpp", ".cmake", ".in", ".md", ".py", ".sh", ".awk")) or name in ("CMakeLists.txt", "dev"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    tree[os.path.relpath(path, root).replace(os.sep, "/")] = file.read()
    return tree


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    tree = read_tree(root)
    if not any(path.startswith("src/") for path in tree):
        print(f"tidy: no sources under {root}")
        return 2
    count = 0
    for rule, check in RULES.items():
        for path, line, what in check(tree):
            print(f"{path}:{line}: {rule}: {what}")
            count += 1
    print(f"tidy: {len(tree)} files, {len(RULES)} rules, {count} offences")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
