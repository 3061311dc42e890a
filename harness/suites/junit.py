"""junit.xml of a suite, as CI servers read it: a test case for each run, its report in the message.

A run that failed is a failure; one whose verdict is unknown, that was not judged or not run, is an error: nothing is
skipped. The name of a case is that of the plan, the same every time; where a plan has several seeds each is named too,
and the seed is a property as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from junitparser import Error, Failure, JUnitXml, Properties, Property, SystemOut, TestCase, TestSuite

from harness.report.terminal import printable
from harness.suites.results import Ran
from spark_history.regular import replacing

#: What XML 1.0 has no place for, beside what printable() shows as escapes.
_NOT_XML: Final = re.compile("[\ud800-\udfff\ufffe\uffff]")


def write(path: Path, name: str, ran: Sequence[Ran], directory: Path) -> None:
    """name, directory: of the suite. Raises OSError."""
    suite = TestSuite(_text(name))
    seeds = Counter(each.name for each in ran)
    for each in ran:
        suite.add_testcase(_case(each, name, directory, seeds[each.name] > 1))
    document = JUnitXml()
    document.name = "chaos"
    document.add_testsuite(suite)
    document.update_statistics()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        document.write(str(unfinished), pretty=True)


def _case(ran: Ran, suite: str, directory: Path, with_seed: bool) -> TestCase:
    case = TestCase(_text(ran.title if with_seed else ran.name), f"chaos.{_text(suite)}", ran.took_s)
    where = f"; report: {directory / ran.report}" if ran.report else ""
    message = _text(ran.reason + where)
    if ran.outcome == "failed":
        # What a CI server groups by: a broken property, a broken threshold, or a control that did not fail.
        case.result = [Failure(message, ran.broken if ran.expect == "pass" else "unexpected")]
    elif ran.outcome != "passed":
        case.result = [Error(message, ran.outcome if ran.outcome == "not run" else ran.verdict)]
    properties = Properties()
    for name, value in (("seed", ran.seed), ("verdict", ran.verdict), ("expected", ran.expect),
                        ("acknowledged", ran.acknowledged), ("lost", ran.lost), ("run", ran.directory)):  # fmt: skip
        properties.add_property(Property(name, _text(str(value))))
    case.append(properties)
    case.append(_output(ran, where))
    return case


def _output(ran: Ran, where: str) -> SystemOut:
    element = SystemOut()
    element.text = _text(f"{ran.verdict}: {ran.reason}{where}")
    return element


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", printable(text))
