"""JUnit XML held against a schema of the format: what CI servers read, no more, with what they need."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

SCHEMA = Path(__file__).with_name("views") / "junit.xsd"


@cache
def _load_schema() -> Any:
    # By name, and once: type checks need no package of the tests, and reading the schema takes a while.
    return import_module("xmlschema").XMLSchema10(str(SCHEMA))


def check_junit(text: str) -> ET.Element:
    """Return the root of a report that fits the schema, and whose counts are right."""
    _load_schema().validate(text)
    root = ET.fromstring(text)
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == sum(case.find(tag) is not None for case in cases)
    for name in ("tests", "failures", "errors"):
        assert int(root.attrib[name]) == sum(int(suite.attrib[name]) for suite in root)
    return root
