"""F2: a file of inputs is read as strictly as a saga, and isn't called one."""

from __future__ import annotations

import pytest

from sagactl.core.canonical import Json
from sagactl.core.saga import FILE_BYTES_MAX
from sagactl.written.document import read_document
from sagactl.written.problem import InvalidSagaError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("email: a@b.c\nzip: 012\n", {"email": "a@b.c", "zip": "012"}),
        (b'{"amount": 5, "to": "${{ input.x }}"}', {"amount": 5, "to": "${{ input.x }}"}),
        ("[1, no, ~]", [1, "no", None]),
        ("{}", {}),
    ],
)
def test_data_is_read_as_it_is_written(text: str | bytes, value: Json) -> None:
    """F2, F3: words and numbers mean what they mean in a saga, and `${{` in data is text."""
    assert read_document(text, file="in.yaml") == value


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", "empty-file", "there is nothing in the file"),
        ("a: 1\n---\nb: 2\n", "several-documents", "a second document begins here; a data file holds one"),
        ("a: !!str 1\n", "tag", "the tag !!str has no meaning in a data file"),
        ("a: &x 1\n", "alias", "anchors and aliases may not stand in a data file (limit: 0)"),
        ("a: {<<: 1}\n", "merge-key", "merge keys may not stand in a data file"),
        (b"\xff\xfea", "bad-encoding", "the file is UTF-16"),
        (b"#" * (FILE_BYTES_MAX + 1), "file-too-large", f"the file has more than {FILE_BYTES_MAX} bytes"),
        ("a: 1\na: 2\n", "duplicate-key", "the key a is given twice"),
    ],
)
def test_what_is_wrong_with_data_is_told_in_words_of_data(text: str | bytes, code: str, message: str) -> None:
    """F2: the rules and codes are those of a saga file; no message or hint speaks of a saga."""
    with pytest.raises(InvalidSagaError) as caught:
        read_document(text, file="in.yaml")
    (problem,) = caught.value.problems
    assert problem.code == code
    assert problem.message.startswith(message)
    assert "saga" not in f"{problem.message} {problem.hint}"
