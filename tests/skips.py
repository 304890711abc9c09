#!/usr/bin/env python3
"""Which tests did not run, and whether each may be left out: `skips.py [--strict] LIST RESULTS.xml...` reads what ctest wrote
(--output-junit), prints each skip with its reason, and with --strict exits 1 where one is not in LIST (tests/skips.txt).

Two things are a skip: a test that ctest calls skipped, and a line "skipped: ..." in the output of a test that ran, which had a part that
did not. A skipped test that says no reason is never allowed, nor is one that ctest could not run. `skips.py selftest` plants each kind."""
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

SAID = re.compile(r"^(?:.*?\] )?skipped: (.*)$")


def read_list(path):
    """[(test pattern, reason pattern, why)]; raises ValueError naming the line that is none."""
    rules = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            fields = [field.strip() for field in line.split(" | ")]
            if len(fields) != 3 or not all(fields):
                raise ValueError(f"{path}:{number}: expected TEST | REASON | WHY")
            rules.append((re.compile(fields[0]), re.compile(fields[1]), fields[2]))
    return rules


def skips_of(path):
    """(test, reason) of all that did not run in one file of results; a reason may be empty."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, output = case.get("name"), case.findtext("system-out") or ""
        reasons = [match.group(1).strip() for match in map(SAID.match, output.splitlines()) if match]
        if case.find("skipped") is not None and not reasons:
            reasons = [""]
        yield from ((name, reason) for reason in dict.fromkeys(reasons))


def allowed(rules, test, reason):
    return bool(reason) and any(t.fullmatch(test) and r.search(reason) for t, r, _ in rules)


def report(rules, results, strict, say=print):
    """Prints; the number of skips that are not in the list."""
    unlisted, by_reason = 0, {}
    for test, reason in results:
        known = allowed(rules, test, reason)
        unlisted += not known
        by_reason.setdefault((known, reason or "no reason given"), []).append(test)
    for (known, reason), tests in sorted(by_reason.items(), key=lambda item: (item[0][0], item[0][1])):
        mark = "skipped" if known else "SKIPPED, NOT IN THE LIST" if strict else "skipped, not in the list"
        say(f"  {mark}: {reason}\n      {' '.join(sorted(tests))}")
    return unlisted


def selftest():
    xml = """<testsuite><testcase name="a_1" status="run"><system-out>x\nskipped: case: no rings here (EPERM)\ny</system-out></testcase>
    <testcase name="a_2" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skipped: no tool</system-out></testcase>
    <testcase name="a_3" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out/></testcase>
    <testcase name="a_4" status="run"><system-out>nothing was skipped: here</system-out></testcase>
    <testcase name="a_5" status="run"><system-out>[0] skipped: by a rank</system-out></testcase></testsuite>"""
    wrong = []

    def want(lines, unlisted, what):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as results, tempfile.NamedTemporaryFile("w", suffix=".txt") as rules:
            results.write(xml)
            rules.write(lines)
            results.flush()
            rules.flush()
            got = report(read_list(rules.name), list(skips_of(results.name)), True, say=lambda text: None)
        if got != unlisted:
            wrong.append(f"{what}: {got} unlisted, expected {unlisted}")
    want("", 4, "an empty list allows nothing")
    want("a_.* | . | all\n", 1, "no list allows a skip without a reason")
    want("# x\na_1 | no rings | y\na_2 | ^no tool$ | y\na_5 | rank | y\n", 1, "listed skips pass")
    want("a_1 | no tool | y\na_2 | no rings | y\na_[36] | . | y\n", 4, "test and reason belong together")
    want("a | . | a name is matched whole\n", 4, "a name is matched whole")
    for bad in ("a_1 | x\n", "a_1 |  | y\n", "a_1 x y\n"):
        try:
            want(bad, 0, bad)
            wrong.append(f"this line was taken: {bad!r}")
        except ValueError:
            pass
    print("\n".join(wrong) or "skips.py: ok")
    return 1 if wrong else 0


def main(words):
    if words == ["selftest"]:
        return selftest()
    strict = words[:1] == ["--strict"]
    words = words[strict:]
    if len(words) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    rules = read_list(words[0])
    unlisted = report(rules, [skip for path in words[1:] for skip in skips_of(path)], strict)
    if unlisted and strict:
        print(f"{unlisted} skips are not in {words[0]}")
    return 1 if unlisted and strict else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
