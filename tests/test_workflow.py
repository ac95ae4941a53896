"""What a runner of CI obeys: our commands say exactly what they mean, and foreign text is never one (UX, CI row)."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from sagactl.workflow import DATA_LENGTH_MAX, Tamer, is_listening, is_read, make_command, tame

NAMES = ("set-output", "add-mask", "error", "stop-commands", "group", "debug", "set-env", "add-path", "add-matcher")
LEADS = ("", " ", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u00ad", "\x00", "\x0b", "\u2028", " \u200b \u2060")
IGNORED = frozenset("\u200b\ufeff\u00ad\x00\u2060\u200d")


def read_command(line: str) -> tuple[str, dict[str, str], str] | None:
    """Read a line as a runner does, at its most lenient: it leaves out what has no width wherever it compares."""
    bare = "".join(each for each in line if each not in IGNORED).lstrip()
    if bare.startswith("::") and "::" in bare[2:]:
        info, _, data = bare[2:].partition("::")
        name, _, given = info.partition(" ")
        pairs = [pair.split("=", 1) for pair in given.strip().split(",") if "=" in pair]
        return name, {key: _unescape(value, ":,") for key, value in pairs}, _unescape(data, "")
    if "##[" in bare and "]" in bare.split("##[", 1)[1]:
        return bare.split("##[", 1)[1].split("]", 1)[0], {}, ""
    return None


def _unescape(text: str, more: str) -> str:
    for sign in ("\r", "\n", *more, "%"):
        text = text.replace(f"%{ord(sign):02X}", sign)
    return text


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lead", LEADS)
def test_foreign_text_is_never_a_command(name: str, lead: str) -> None:
    """A tool's text can't set an output, mask a word or stop commands, however the line begins."""
    hostile = (
        f"{lead}::{name} name=a::b",
        f"{lead}:\u200b:{name}::b",
        f"x {lead}##[{name}]b",
        f"{lead}##\u00ad[{name}]",
    )
    for text in hostile:
        for before in ("", "fine\n", "fine\r", "fine\r\n", "\n\n"):
            assert not any(read_command(line) for line in _lines(tame(before + text)))


def test_text_that_is_no_command_stays_as_it_is() -> None:
    """Times, colons, hashes and brackets of ordinary lines are left alone."""
    for text in ("14:02:11 ok  lead", "a :: b", "# [x]", "#[derive(x)]", "a\nb: c\n  d: e", ""):
        assert tame(text) == text


def test_tamed_json_means_the_same() -> None:
    """`-o json` stays one value, with the same text in it."""
    value = {"note": "##[set-output name=a]b ##[x]", "b": "::error::"}
    text = json.dumps(value)
    assert json.loads(tame(text)) == value
    assert read_command(tame(text)) is None


def test_pieces_are_tamed_like_the_whole() -> None:
    """However a pipe cuts the text of a tool, no command comes out of it."""
    source = "ok\n  ::add-mask::x\n##[group]y\n a::b\n" + " " * 200 + "::error::z\n##[debug]"
    for first, second in itertools.combinations(range(0, len(source), 3), 2):
        tamer = Tamer()
        out = "".join(map(tamer.feed, (source[:first], source[first:second], source[second:])))
        assert not any(read_command(line) for line in _lines(out)), (first, second)
    chance = random.Random(7)
    for _ in range(500):
        text = "".join(chance.choices(":# \n[]a\r\u200b", k=40))
        tamer, pieces = Tamer(), [text[:13], text[13:14], text[14:15], text[15:]]
        assert not any(read_command(line) for line in _lines("".join(map(tamer.feed, pieces)))), ascii(text)
    tamer = Tamer()
    assert "".join(map(tamer.feed, source)).count("\\x3a") == 2


@pytest.mark.parametrize("text", ["50% off", "%0A", "a\nb\r\nc", "a,b:c=d::e", "::error::x", "é ✗", ""])
def test_a_command_says_exactly_what_it_is_given(text: str) -> None:
    """Percent signs, line ends, colons and commas of messages and properties arrive as they were."""
    line = make_command("error", text, file="sagas/a,b.yaml", line=31, col=None, title=text)
    assert "\n" not in line
    assert "\r" not in line
    name, properties, data = read_command(line) or ("", {}, "")
    assert (name, data, properties["file"], properties["line"]) == ("error", text, "sagas/a,b.yaml", "31")
    assert properties.get("title", "") == text
    assert "col" not in properties


def test_a_message_is_bounded() -> None:
    """A tool's long error doesn't flood the annotations."""
    assert len(make_command("error", "x" * 100_000)) < DATA_LENGTH_MAX + 20


def test_only_a_runner_is_spoken_to_and_taming_does_not_end_with_that() -> None:
    """`SAGACTL_CI=off` leaves the commands out; the runner obeys lines all the same, so text stays tamed."""
    assert is_listening({"GITHUB_ACTIONS": "true"})
    assert not is_listening({"GITHUB_ACTIONS": "true", "SAGACTL_CI": "off"})
    assert not is_listening({"CI": "true"})
    assert is_read({"GITHUB_ACTIONS": "true", "SAGACTL_CI": "off"})
