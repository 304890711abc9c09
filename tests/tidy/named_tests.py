"""Rules about the tests that pages name: the contract's rules, the attacks of SECURITY.md, and the closed holes of testing.md. A page that
names a test which is gone claims what nothing shows. Called by tidy.py; a tree is a dict of path -> text."""
import os
import re

CONTRACT, SECURITY, TESTING = "docs/reference/contract.md", "SECURITY.md", "docs/internals/testing.md"


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def check_contract(tree):
    """Each test that docs/reference/contract.md names for a rule is there, as a word in a file of tests/."""
    page = tree.get(CONTRACT, "")
    words = set()
    for path, text in tree.items():
        if path.startswith("tests/") and (path.endswith(".c") or path.endswith("CMakeLists.txt")):
            words.update(re.findall(r"\b(?:contract_\d+_\d+\w*|tidy_\w+)", text))
            words.update(re.findall(r"\bcmocka_unit_test\((\w+)", text))
            words.update(re.findall(r"\badd_test\(NAME (\w+)", text))
    for found in re.finditer(r"^\| *(\d+\.\d+) .*\| *([^|]*?) *\|$", page, re.M):
        names = re.findall(r"`(\w+)`", found.group(2))
        if not names and found.group(2) not in ("not built yet", "built, not under test"):
            yield CONTRACT, line_of(page, found.start()), f"rule {found.group(1)} names neither a test nor 'not built yet'"
        for name in names:
            if not any(word == name or word.startswith(name + "_") for word in words):
                yield CONTRACT, line_of(page, found.start()), f"no test is called {name}"


def tests_of(tree):
    """(pattern of a test's name, its functions) for each test that a CMakeLists.txt under tests/ adds. A ${variable} is any word. Functions
    are those that the program's own sources give to cmocka; a test that runs another one's program has that one's."""
    programs, runs = {}, []
    for path, text in tree.items():
        if not path.startswith("tests/") or not path.endswith("CMakeLists.txt"):
            continue
        for found in re.finditer(r"\bcomm_test\((\S+)\s+([^()]*)\)", text):
            functions = set()
            for word in found.group(2).split():
                source = os.path.normpath(os.path.join(os.path.dirname(path), word)).replace(os.sep, "/")
                functions.update(re.findall(r"\bcmocka_unit_test\((\w+)\)", tree.get(source, "")))
            programs[found.group(1)] = functions
        runs += re.findall(r"\badd_test\(\s*NAME (\S+)\s+COMMAND (\S+?)\)?\s", text)
        runs += [(name, "") for name in re.findall(r"\bcomm_check\((\S+)", text)]
    tests = list(programs.items()) + [(name, programs.get(re.sub(r"^test_", "", command), set())) for name, command in runs]
    return [(re.compile(r"\w+".join(re.escape(part) for part in re.split(r"\$\{\w+\}", name))), functions) for name, functions in tests]


def wrong_names(tests, cell):
    """What is wrong with the last column of a row: "`test`: `function`, `function`; `test`"."""
    if not re.search(r"`\w+`", cell):
        yield "names no test"
    for entry in cell.split(";"):
        test, *functions = re.findall(r"`(\w+)`", entry) or [None]
        known = [has for pattern, has in tests if test and pattern.fullmatch(test)]
        if test and not known:
            yield f"no test is called {test}"
        for function in functions if known else ():
            if not any(function in has for has in known):
                yield f"{test} has no function {function}"


def check_holes(tree):
    """Each hole of the table in docs/internals/testing.md names a test, and each test and function that it names is there."""
    page = tree.get(TESTING, "")
    tests = tests_of(tree) if page else []
    for row in re.finditer(r"^\| *(\d+) *\|.*\|([^|]*)\|$", page, re.M):
        for what in wrong_names(tests, row.group(2)):
            yield TESTING, line_of(page, row.start()), f"hole {row.group(1)}: {what}"


def check_attacks(tree):
    """Each test that a table of SECURITY.md names is there."""
    page = tree.get(SECURITY, "")
    tests = tests_of(tree) if page else []
    for row in re.finditer(r"^\|(?! *-|.*\| test \|$).*\|([^|]*)\|$", page, re.M):
        for name in re.findall(r"`(\w+)`", row.group(1)) or ["of no name"]:
            if not any(pattern.fullmatch(name) for pattern, _ in tests):
                yield SECURITY, line_of(page, row.start()), f"no test is called {name}"
