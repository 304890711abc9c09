"""Rules about the pages of docs/reference/ that no tool writes: each error and each limit that they give is the code's. Called by tidy.py; a
tree is a dict of path -> text."""
import re

from named_tests import line_of

ERRORS, LIMITS, OPTIONS = "docs/reference/errors.md", "docs/reference/limits.md", "docs/reference/options.md"
NEAR = "src/core/base/option_near.c"


def check_errors(tree):
    """Each error of result.h has a row of its own in the page, and each variable that the library reads beside the options is in theirs."""
    results = tree.get("include/commstream/result.h", "")
    rows = set(re.findall(r"^\| `(COMM_ERR_\w+)` \|", tree.get(ERRORS, ""), re.M))
    for name in re.findall(r"^\s*X\((ERR_\w+), *-\d+,", results, re.M):
        if "COMM_" + name not in rows:
            yield ERRORS, 1, f"no row of COMM_{name}"
    others = re.search(r"\bothers\[\] = \{([^}]*)\}", tree.get(NEAR, ""))
    for name in re.findall(r'"(COMM_\w+)"', others.group(1)) if others else ():
        if f"\n| `{name}` |" not in tree.get(OPTIONS, ""):
            yield OPTIONS, 1, f"no row of {name}"


def constants(tree):
    """name -> the texts of its values, of the constants that enums in src/ define."""
    found = {}
    for path, text in tree.items():
        if path.startswith("src/") and path.endswith((".c", ".h")):
            for name, value in re.findall(r"\b([A-Z][A-Z0-9_]+) = ([^,;}/\n]+)", text):
                found.setdefault(name, set()).add(value.strip())
    return found


def values_of(text, known):
    """The numbers that `64`, `1 << 24`, or `64 * NAME` with a constant of that name, may be; none of anything else."""
    words = re.fullmatch(r"(\d+)(?: (<<|\*) (\w+))?", text)
    if not words:
        return set()
    first, sign, second = int(words.group(1)), words.group(2), words.group(3)
    if not sign:
        return {first}
    seconds = {int(value) for value in ({second} | known.get(second, set())) if value.isdigit()}
    return {first << value if sign == "<<" else first * value for value in seconds}


def check_limits(tree):
    """A row of the page that names a constant, in its last column, has its value in the second."""
    page, known = tree.get(LIMITS, ""), constants(tree)
    for row in re.finditer(r"^\|[^|]*\|([^|]*)\|(?:.*\|)? `([A-Z][A-Z0-9_]+)` \|$", page, re.M):
        numbers = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", row.group(1))}
        if not any(values_of(text, known) & numbers for text in known.get(row.group(2), ())):
            yield LIMITS, line_of(page, row.start()), f"{row.group(2)} is not {row.group(1).strip()}"
