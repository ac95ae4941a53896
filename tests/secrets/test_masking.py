"""Values of secrets are found in whatever spelling programs give them, and nothing else is touched (E19, X2)."""

from __future__ import annotations

import base64
import json
import time
import urllib.parse
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagactl.core.canonical import Json
from sagactl.secrets.masking import GROWTH_MAX, LENGTH_MIN, MASK, VALUES_MAX, Masker

PLAIN = "sk_live_51HxYz93Qq"
ODD = "p+/ %é'\"\\\n€😀q=&x"
PEM = "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0\nSECONDLINEabcdef12\n-----END KEY-----\n"
VALUES = {"plain": PLAIN, "odd": ODD, "pem": PEM, "short": "s3cr3t"}

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda value: json.dumps(value, ensure_ascii=False),
    "JSON in JSON": lambda value: json.dumps(json.dumps({"a": value})),
    "repr": repr,
    "ascii": ascii,
    "repr of bytes": lambda value: repr(value.encode()),
    "repr of JSON": lambda value: repr(json.dumps(value)),
    "repr of repr": lambda value: repr(repr(value)),
    "URL": urllib.parse.quote,
    "URL, all of it": lambda value: urllib.parse.quote(value, safe=""),
    "form": urllib.parse.quote_plus,
    "URL in URL": lambda value: urllib.parse.quote(urllib.parse.quote(value, safe=""), safe=""),
    "URL, small digits": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()),
    "hex": lambda value: value.encode().hex(),
    "hex, capitals": lambda value: value.encode().hex().upper(),
    "MIME": lambda value: base64.encodebytes(b"x" * 50 + value.encode()).decode(),
    "repr of MIME": lambda value: repr(base64.encodebytes(b"x" * 50 + value.encode())),
    "base64 in a URL": lambda value: urllib.parse.quote(base64.b64encode(value.encode()).decode(), safe=""),
    "over two lines": lambda value: value[:5] + "\n" + value[5:],
    "over lines in JSON": lambda value: json.dumps(value[:5] + "\r\n    " + value[5:]),
}


def around(encode: Callable[[bytes], bytes], before: str, after: str) -> Callable[[str], str]:
    """Return what encodes a value with other text before and after it."""
    return lambda value: encode((before + value + after).encode()).decode()


for _before in ("", "u", "u:", "u:p"):
    for _after in ("", "t", "tail"):
        SPELLINGS[f"base64 of {_before}…{_after}"] = around(base64.b64encode, _before, _after)
        SPELLINGS[f"base64url of {_before}…{_after}"] = around(base64.urlsafe_b64encode, _before, _after)


def knowing(*values: str) -> Masker:
    """Return a masker of its own that knows *values*."""
    masker = Masker()
    for value in values:
        masker.add(value)
    return masker


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_found_in_every_spelling(name: str, spelling: str) -> None:
    """X2: what is left has no run of characters of the spelled value, and what stood around it is as it was."""
    value = VALUES[name]
    spelled = SPELLINGS[spelling](value)
    masked = knowing(value).mask(f"before {spelled} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert MASK in masked
    left = masked.removeprefix("before ").removesuffix(" after").replace("BEGIN", "").replace("END", "")
    encoded = spelled if "MIME" not in spelling else SPELLINGS["base64 of …"](value)
    frame = SPELLINGS[spelling]("")
    runs = {encoded[place : place + 8] for place in range(len(encoded) - 8)}
    assert not [run for run in runs if run in left and run not in frame and "-----" not in run]


@given(st.text(max_size=200), st.text(max_size=200), st.sampled_from(list(VALUES.values())))
def test_whatever_stands_around_a_value_it_is_found(before: str, after: str, value: str) -> None:
    """X2: no text beside it hides a value."""
    assert value not in knowing(value).mask(before + value + after)


@given(st.text(max_size=300))
def test_a_text_without_secrets_is_the_same_text(text: str) -> None:
    """Nothing but values is masked."""
    masker = knowing("never-in-here-" + "\N{SNOWMAN}" * 3)
    assert masker.mask(text) == text
    value: Json = {"a": [text, 1, Decimal("1.50"), None, True]}
    assert masker.mask_json(value) is value


def test_each_line_of_a_value_with_several_is_a_secret() -> None:
    """E19: a tool that shows a key line by line shows nothing; the public frame of a PEM stays."""
    masker = knowing(PEM)
    assert masker.mask("1: MIIEvAIBADANBgkqhkiG9w0") == f"1: {MASK}"
    assert masker.mask("-----END KEY-----") == "-----END KEY-----"


def test_json_is_masked_in_texts_keys_and_numbers_at_any_depth() -> None:
    """E19: a secret of digits is masked where a tool gives it back as a number as well."""
    masker = knowing(PLAIN, "12345678")
    value: Json = {"a": [{PLAIN: f"x{PLAIN}y"}], "n": 12345678, "d": Decimal("0.12345678"), "t": True, "k": 7}
    assert masker.mask_json(value) == {
        "a": [{MASK: f"x{MASK}y"}],
        "n": MASK,
        "d": f"0.{MASK}",
        "t": True,
        "k": 7,
    }


def test_several_values_and_old_ones_are_masked() -> None:
    """E19: a rotated value is masked on; values that touch are one mask."""
    masker = knowing("old-value-1", "new-value-2")
    assert masker.mask("old-value-1new-value-2 and new-value-2") == f"{MASK} and {MASK}"


def test_a_value_too_short_to_be_masked_is_not_known() -> None:
    """E19: masking it would take too much else away; who resolves it refuses it (see the sources)."""
    assert not knowing("x" * (LENGTH_MIN - 1)).is_active
    assert knowing("x" * LENGTH_MIN).is_active


def test_only_so_many_values_are_known() -> None:
    """X3: the oldest are forgotten."""
    masker = knowing(*(f"value-{number:06}" for number in range(VALUES_MAX + 1)))
    assert masker.mask("value-000000") == "value-000000"
    assert masker.mask(f"value-{VALUES_MAX:06}") == MASK


@pytest.mark.parametrize("kept", range(1, len(PLAIN)))
def test_a_text_that_was_cut_shows_no_part_of_a_value(kept: int) -> None:
    """X2: where only an end of a text was kept, what may be a piece of a value goes as well."""
    masker = knowing(PLAIN)
    noise = "." * GROWTH_MAX * len(PLAIN)
    assert PLAIN[:kept] not in masker.mask_cut("lorem" + noise + PLAIN[:kept], end=True).replace("lorem", "")
    assert PLAIN[-kept:] not in masker.mask_cut(PLAIN[-kept:] + noise + "LOREM", start=True).replace("LOREM", "")


@pytest.mark.parametrize("dots", ["...", "…", " ... ", " [...]", "....."])
@pytest.mark.parametrize("kept", range(4, 40, 5))
def test_what_is_left_of_a_shortened_value_is_masked(dots: str, kept: int) -> None:
    """E19: libraries that quote what they were given cut it in the middle, or at an end."""
    value = "".join(chr(ord("a") + place % 26) + str(place) for place in range(30))
    masker = knowing(value)
    assert masker.mask(f"'Bear{dots}{value[-kept:]}'}}, of a dict") == f"'Bear{dots}***'}}, of a dict"
    assert masker.mask(f"seen: '{value[:kept]}{dots} of a dict") == f"seen: '***{dots} of a dict"
    assert masker.mask(f"{value[:kept]}{dots}{value[-kept:]}") == f"***{dots}***"
    assert masker.mask(f"wait{dots}for it") == f"wait{dots}for it"


def test_what_is_left_of_an_escaped_value_is_masked() -> None:
    """E19: pieces are looked for beneath the same layers as whole values."""
    masker = knowing('a "quoted" secret / of some length')
    assert masker.mask(r"x...ted\" secret / of some length'") == "x...***'"
    assert masker.mask("x...secret%20%2F%20of%20some%20length'") == "x...***'"


def test_a_long_text_costs_little() -> None:
    """X3: a MiB that is all escapes and line breaks takes seconds at most, and one without them next to nothing."""
    masker = knowing(PLAIN, ODD)
    started = time.process_time()
    masker.mask("lorem %20 \\n ipsum \\u00e9 dolor\n" * 33_000)
    assert time.process_time() - started < 20
    started = time.process_time()
    masker.mask("lorem ipsum " * 90_000)
    assert time.process_time() - started < 2
    started = time.process_time()
    knowing(*(f"secret-{number}-{PLAIN}" for number in range(20))).mask("lorem... " * 110_000)
    assert time.process_time() - started < 5
    started = time.process_time()
    knowing("\\" * 40 + "x").mask("\\" * 200_000)
    assert time.process_time() - started < 5
