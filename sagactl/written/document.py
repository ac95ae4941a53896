"""A YAML file of plain data, read as strictly as a saga file (rule F2): what `--inputs` takes."""

from __future__ import annotations

from sagactl.core.canonical import Json
from sagactl.written.findings import Findings
from sagactl.written.positions import plain_value, read_yaml
from sagactl.written.problem import InvalidSagaError
from sagactl.written.source import decode


def read_document(text: bytes | str, *, file: str) -> Json:
    """Return the value in *text*; raises InvalidSagaError with every problem and its place."""
    source, unreadable = decode(text, file, "data file")
    findings = Findings(source)
    if unreadable is not None:
        findings.error(unreadable.code, unreadable.message, unreadable.span, hint=unreadable.hint)
    root = None if unreadable is not None else read_yaml(source, findings)
    if root is None or findings.has_errors:
        raise InvalidSagaError(source.file, findings.sorted(), source.text, code="invalid-input")
    return plain_value(root)
