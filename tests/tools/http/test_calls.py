"""Calls of declared tools against a real server: what is sent, byte by byte, and what comes of each answer."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from sagactl.core.canonical import Json
from sagactl.core.records import OutcomeKind, ProbeAnswer
from sagactl.secrets.masking import KNOWN
from tests.tools.http.declaring import one_tool, project
from tests.tools.http.servers import Asked, always, say, say_json, serve

FINE = always(say_json(200, {}))
KEY = "run2345678abc/deposit/action"


def ask(tmp_path: Path, lines: str, arguments: dict[str, Json], more: str = "", **given: Any) -> Asked:
    """Return what the server was asked by one call that succeeds."""
    with serve(FINE) as server, project(tmp_path, one_tool(server.url, lines, more), **given) as made:
        answer = made.call("shop.buy", arguments)
    assert answer.kind is OutcomeKind.SUCCEEDED, answer.failure
    (asked,) = server.asked
    return asked


def answer_of(tmp_path: Path, raw: bytes, lines: str = "request: POST /a", **given: Any) -> Any:
    """Return what a call comes to that is answered with *raw*."""
    with serve(always(raw)) as server, project(tmp_path, one_tool(server.url, lines)) as made:
        return made.call("shop.buy", given.pop("arguments", {}), **given)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("plain", "/a/plain/b"),
        ("a/b?c#d&e", "/a/a%2Fb%3Fc%23d%26e/b"),
        ("../admin", "/a/..%2Fadmin/b"),
        ("ä €", "/a/%C3%A4%20%E2%82%AC/b"),
        ("%41", "/a/%2541/b"),
        (12345678901234567890, "/a/12345678901234567890/b"),
        (True, "/a/true/b"),
        (Decimal("1.50"), "/a/1.50/b"),
        ("http://evil.example.com", "/a/http:%2F%2Fevil.example.com/b"),
        ("\r\nHost: evil", "/a/%0D%0AHost:%20evil/b"),
    ],
)
def test_a_value_stays_one_part_of_the_path(value: Json, path: str, tmp_path: Path) -> None:
    """H17: a value is percent-encoded, so it changes neither host nor path nor query."""
    assert ask(tmp_path, "request: GET /a/${{ args.x }}/b", {"x": value}).target == path


@pytest.mark.parametrize("value", ["", ".", "..", "%2e%2E", None, [1], {"a": 1}])
def test_a_value_that_would_make_another_path_is_refused(value: Json, tmp_path: Path) -> None:
    """H17: nothing is sent where a part of the path would be empty or lead to the folder above."""
    with serve(FINE) as server, project(tmp_path, one_tool(server.url, "request: GET /a/${{ args.x }}/b")) as made:
        answer = made.call("shop.buy", {"x": value})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.REJECTED, "bad_arguments")
    assert not server.asked


def test_a_query_has_the_values_that_were_given(tmp_path: Path) -> None:
    """Values are encoded, lists are given several times, what isn't there is left out; the file's own come first."""
    lines = """
request: GET /a?fixed=a+b&t=%C3%A9&x=${{ args.x }}
query: {list: "${{ args.list }}", gone: "${{ args.gone }}", no: "${{ args.no }}", text: "<${{ args.x }}>"}
optional: [gone]
"""
    asked = ask(tmp_path, lines, {"x": "1&y=2", "list": [1, "b c"], "no": None}, 'query: {v: "2"}\n')
    assert asked.target == "/a?v=2&fixed=a+b&t=%C3%A9&x=1%26y%3D2&list=1&list=b+c&text=%3C1%26y%3D2%3E"


def test_a_body_of_json_keeps_types_and_leaves_out_what_is_missing(tmp_path: Path) -> None:
    """F3: a reference alone keeps its type, exact at any size; an optional argument takes its entry along."""
    lines = """
request: POST /a
json:
  n: "${{ args.n }}"
  d: "${{ args.d }}"
  text: "n is ${{ args.n }}, $${{ is text"
  gone: "${{ args.gone }}"
  list: [1, "${{ args.gone }}", {run: "${{ context.run_id }}", step: "${{ context.step }}"}]
  none: "${{ context.item }}"
arguments: {n: {}, d: {}, gone: {}}
optional: [gone]
"""
    asked = ask(tmp_path, lines, {"n": 10**30, "d": Decimal("0.10")})
    large = "1" + "0" * 30
    assert asked.body.decode() == (
        '{"d":0.10,"list":[1,{"run":"run2345678abc","step":"deposit"}],'
        f'"n":{large},"none":null,"text":"n is {large}, ${{{{ is text"}}'
    )
    assert asked.headers["content-type"] == "application/json"


def test_forms_and_texts_are_bodies_too(tmp_path: Path) -> None:
    """A form is encoded as browsers do, a text is sent as it is."""
    form = ask(tmp_path, 'request: POST /a\nform: {"m[k]": "${{ args.x }}", l: [1, 2], none: null}', {"x": "a&b=ü"})
    assert form.body == b"m%5Bk%5D=a%26b%3D%C3%BC&l=1&l=2"
    assert form.headers["content-type"] == "application/x-www-form-urlencoded"
    text = ask(tmp_path, 'request: PUT /a\ntext: "hi ${{ args.x }}"\nheaders: {content-type: text/csv}', {"x": "ü"})
    assert (text.body, text.headers["content-type"]) == ("hi ü".encode(), "text/csv")


def test_every_request_bears_its_place_in_the_trace_and_its_key(tmp_path: Path) -> None:
    """E8: the key is the operation's, bare by default; `traceparent` is that of W3C Trace Context."""
    asked = ask(tmp_path, "request: POST /a", {})
    assert asked.headers["idempotency-key"] == KEY
    assert asked.headers["traceparent"].startswith("00-")
    assert asked.headers["user-agent"] == "sagactl"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("request: POST /a\nkey: {header: X-Once}", {"x-once": KEY}),
        ("request: POST /a\nkey: {quoted: true}", {"idempotency-key": f'"{KEY}"'}),
        ("request: POST /a\nkey: none", {}),
        ("request: GET /a", {}),
        ('request: POST /a\nheaders: {idempotency-key: "v1-${{ key }}"}', {"idempotency-key": f"v1-{KEY}"}),
    ],
)
def test_the_key_goes_where_the_declaration_says(lines: str, expected: dict[str, str], tmp_path: Path) -> None:
    """The key's header is the declaration's to choose; what only reads bears none."""
    asked = ask(tmp_path, lines, {})
    assert {name: asked.headers[name] for name in ("idempotency-key", "x-once") if name in asked.headers} == expected


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00b", "ü", "\x7f"])
def test_a_value_cannot_begin_another_header(value: str, tmp_path: Path) -> None:
    """A line break in a header would begin another one: nothing is sent."""
    lines = 'request: POST /a\nheaders: {X-Note: "${{ args.x }}"}'
    with serve(FINE) as server, project(tmp_path, one_tool(server.url, lines)) as made:
        answer = made.call("shop.buy", {"x": value})
    assert answer.kind is OutcomeKind.REJECTED
    assert not server.asked


def test_a_secret_is_sent_and_never_told(tmp_path: Path) -> None:
    """E19: a secret of the tool's own stands in headers and query; whatever echoes it is masked."""
    echo = always(say_json(500, {"message": "no such token: s3cret-t0ken"}))
    lines = 'request: POST /a\nquery: {api_key: "${{ secrets.TOKEN }}"}'
    more = 'headers: {Authorization: "Bearer ${{ secrets.TOKEN }}"}\n'
    with (
        serve(echo) as server,
        project(tmp_path, one_tool(server.url, lines, more), secrets={"TOKEN": "s3cret-t0ken"}) as made,
    ):
        assert made.registry.facts["shop.buy"].secrets == ("TOKEN",)
        answer = made.call("shop.buy")
    (asked,) = server.asked
    assert (asked.target, asked.headers["authorization"]) == ("/a?api_key=s3cret-t0ken", "Bearer s3cret-t0ken")
    assert "s3cret" not in repr(answer)
    assert answer.failure is not None
    assert "no such token" in answer.failure.message
    assert KNOWN.is_active


REJECTED, UNKNOWN, SUCCEEDED = OutcomeKind.REJECTED, OutcomeKind.UNKNOWN, OutcomeKind.SUCCEEDED
DEFAULTS = {
    **dict.fromkeys((200, 201, 202, 204, 226), SUCCEEDED),
    **dict.fromkeys((400, 401, 402, 403, 404, 405, 410, 411, 412, 413, 414, 415, 417, 422, 428, 431, 451), REJECTED),
    **dict.fromkeys((406, 408, 409, 418, 423, 424, 425, 429, 500, 501, 502, 503, 504, 520, 599), UNKNOWN),
    **dict.fromkeys((300, 301, 302, 303, 304), UNKNOWN),
    **dict.fromkeys((307, 308), REJECTED),
}


def test_every_status_means_what_the_page_says(tmp_path: Path) -> None:
    """E3: 2xx succeeded, refusals rejected, all that leaves room for an effect unknown."""
    statuses = list(DEFAULTS)

    def act(connection: Any, asked: Asked) -> None:
        connection.sendall(say(int(asked.target[1:])))

    with serve(act) as server, project(tmp_path, one_tool(server.url, "request: POST /${{ args.s }}")) as made:
        found = {status: made.call("shop.buy", {"s": status}).kind for status in statuses}
        undone = {status: made.call("shop.buy", {"s": status}, is_undo=True) for status in (404, 410, 409, 422)}
    assert found == DEFAULTS
    assert server.connections == 1, "connections are kept"
    assert [each.output for each in undone.values()] == [{"already_gone": True}] * 2 + [None] * 2
    assert [each.kind for each in undone.values()] == [SUCCEEDED, SUCCEEDED, UNKNOWN, REJECTED]


def test_a_conflict_without_a_key_is_a_rejection(tmp_path: Path) -> None:
    """409 means "this key is in use" only where there was one."""
    assert answer_of(tmp_path, say(409), "request: POST /a\nkey: none").kind is REJECTED
    assert answer_of(tmp_path, say(302), "request: GET /a").kind is REJECTED, "asking again would not help"


def test_a_declaration_may_know_its_server_better(tmp_path: Path) -> None:
    """`statuses` of the tool come before those of the file, a number before its class."""
    more = "statuses: {unavailable: [503], rejected: [5xx]}\n"
    lines = "request: POST /${{ args.s }}\nstatuses: {unavailable: 429, succeeded: [409], rejected: [404]}"

    def act(connection: Any, asked: Asked) -> None:
        connection.sendall(say(int(asked.target[1:]), retry_after="7"))

    with serve(act) as server, project(tmp_path, one_tool(server.url, lines, more)) as made:
        found = {status: made.call("shop.buy", {"s": status}) for status in (503, 500, 429, 409)}
        gone = made.call("shop.buy", {"s": 404}, is_undo=True)
    kinds = [each.kind for each in found.values()]
    assert kinds == [OutcomeKind.UNAVAILABLE, REJECTED, OutcomeKind.UNAVAILABLE, SUCCEEDED]
    assert [found[503].after_ms, found[429].after_ms] == [7_000, 7_000]
    assert gone.kind is REJECTED


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("7", 7_000, 7_000),
        ("in an hour", 3_500_000, 3_600_000),
        ("soon", None, None),
        ("9" * 99, 86_400_000, 86_400_000),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0),
    ],
)
def test_a_server_may_say_when_to_come_again(header: str, low: int | None, high: int | None, tmp_path: Path) -> None:
    """E5: `Retry-After` in seconds or as a date is the next delay, in doubt too."""
    header = formatdate(time.time() + 3_600, usegmt=True) if header == "in an hour" else header
    answer = answer_of(tmp_path, say(503, retry_after=header))
    assert answer.kind is UNKNOWN
    if low is None or high is None:
        assert answer.after_ms is None
    else:
        assert answer.after_ms is not None
        assert low <= answer.after_ms <= high


@pytest.mark.parametrize(
    ("lines", "raw", "output"),
    [
        ("", say_json(200, {"id": 7}), {"id": 7}),
        ("", say(204), None),
        ("", say(200, b'{"a": 0.10}', content_type="application/problem+json; charset=utf-8"), {"a": Decimal("0.10")}),
        ("", say(200, b"[]", content_type="text/plain"), []),
        ('output: "${{ response.body.data[1] }}"', say_json(200, {"data": [1, {"b": 2}]}), {"b": 2}),
        (
            'output: {id: "${{ response.body.id }}", at: "${{ response.headers.Location }}", a: "${{ args.a }}"}',
            say_json(201, {"id": 7}, location="/a/7"),
            {"id": 7, "at": "/a/7", "a": "x"},
        ),
        ("answer: text", say(200, "süß".encode("latin-1"), content_type="text/plain; charset=iso-8859-1"), "süß"),
        ('output: "${{ response.status }}"', say(202), 202),
        ("answer: none", say(200, b"<html>", content_type="text/html"), None),
        ('answer: none\noutput: {at: "${{ response.headers.location }}"}', say(201, b"x", location="/7"), {"at": "/7"}),
    ],
)
def test_the_output_is_what_the_declaration_names(lines: str, raw: bytes, output: Json, tmp_path: Path) -> None:
    """The whole body, a part of it, or a few named parts of the answer; numbers stay exact."""
    text = f'request: POST /a\nquery: {{a: "${{{{ args.a }}}}"}}\n{lines}'
    answer = answer_of(tmp_path, raw, text, arguments={"a": "x"})
    assert (answer.kind, answer.output) == (SUCCEEDED, output), answer.failure


@pytest.mark.parametrize(
    ("lines", "raw", "said"),
    [
        ('output: {id: "${{ response.body.id }}"}', say_json(200, {"ID": 7}), "there is no response.body.id"),
        ("output_schema: {type: object, required: [id]}", say_json(200, {"ID": 7}), "`id` is missing"),
        ("", say_json(200, {"a": "x" * 1_100_000}), "more than the 1048576"),
    ],
)
def test_an_output_that_does_not_fit_leaves_doubt_and_is_kept(
    lines: str, raw: bytes, said: str, tmp_path: Path
) -> None:
    """E3: it succeeded, as far as the server says; what came is kept as `raw` for the probe and the undo."""
    answer = answer_of(tmp_path, raw, f"request: POST /a\n{lines}")
    assert answer.kind is UNKNOWN
    assert answer.failure is not None
    assert said in answer.failure.message
    assert answer.raw


PROBE = """
request: GET /orders?key=${{ forward_key }}&s=${{ args.s }}
optional: [s]
done: {if: "${{ response.body.items[0] && response.body.items[0].state != 'void' }}"}
not_done: {status: [200, 404], if: "${{ !response.body.items[0] }}"}
output: {id: "${{ response.body.items[0].id }}"}
"""


@pytest.mark.parametrize(
    ("raw", "answer", "output"),
    [
        (say_json(200, {"items": [{"id": 7, "state": "paid"}]}), ProbeAnswer.DONE, {"id": 7}),
        (say_json(200, {"items": []}), ProbeAnswer.NOT_DONE, None),
        (say_json(404, {"items": []}), ProbeAnswer.NOT_DONE, None),
        (say_json(200, {"items": [{"id": 7, "state": "void"}]}), ProbeAnswer.CANNOT_TELL, None),
        (say_json(200, {"items": [{"state": "paid"}]}), ProbeAnswer.CANNOT_TELL, None),
        (say_json(500, {"items": []}), ProbeAnswer.CANNOT_TELL, None),
        (say(200, b"{", content_type="application/json"), ProbeAnswer.CANNOT_TELL, None),
        (say(200, b"<p>", content_type="text/html"), ProbeAnswer.CANNOT_TELL, None),
    ],
)
def test_a_probe_answers_by_status_and_condition(raw: bytes, answer: ProbeAnswer, output: Json, tmp_path: Path) -> None:
    """E6: done with the output, not done, or can't tell: never a guess from an error."""
    with serve(always(raw)) as server, project(tmp_path, one_tool(server.url, PROBE)) as made:
        reply = made.probe("shop.buy", {"amount": 5})
    assert (reply.answer, reply.output) == (answer, output), reply.failure
    assert server.asked[0].target == "/orders?key=run2345678abc%2Fdeposit%2Faction"


def test_a_probe_may_look_at_the_body_of_any_answer(tmp_path: Path) -> None:
    """E6: a 404 that says that the route is wrong isn't one that says that the order isn't there."""
    lines = """
request: GET /orders
done: {}
not_done: {status: 404, if: "${{ response.body.code == 'no_such_order' }}"}
"""
    found = []
    for code in ("no_such_order", "no_such_route"):
        with (
            serve(always(say_json(404, {"code": code}))) as server,
            project(tmp_path, one_tool(server.url, lines)) as made,
        ):
            found.append(made.probe("shop.buy").answer)
    assert found == [ProbeAnswer.NOT_DONE, ProbeAnswer.CANNOT_TELL]


def test_redirects_are_followed_where_it_is_said_and_to_the_same_server_alone(tmp_path: Path) -> None:
    """H45: none by default; with `redirects` so many, never to another host, nor for ever."""

    def act(connection: Any, asked: Asked) -> None:
        number = int(asked.target[1:])
        place = "http://127.0.0.2:1/" if number == 9 else f"/{number - 1}"
        connection.sendall(say_json(200, {"at": number}) if number == 0 else say(302, location=place))

    lines = "request: GET /${{ args.n }}\nredirects: 2"
    with serve(act) as server, project(tmp_path, one_tool(server.url, lines)) as made:
        found = [made.call("shop.buy", {"n": number}) for number in (0, 2, 3, 9)]
    assert [each.output for each in found[:2]] == [{"at": 0}, {"at": 0}]
    assert [each.kind for each in found[2:]] == [REJECTED, REJECTED]
    assert found[2].failure is not None
    assert found[2].failure.message.endswith("more than 2 redirects")
    assert found[3].failure is not None
    assert found[3].failure.type == "redirect"


def test_a_request_that_is_too_large_is_not_sent(tmp_path: Path) -> None:
    """What no server would take is refused before anything is sent."""
    lines = (
        'request: POST /a\njson: ["${{ args.x }}", "${{ args.x }}", "${{ args.x }}", "${{ args.x }}", "${{ args.x }}"]'
    )
    with serve(FINE) as server, project(tmp_path, one_tool(server.url, lines)) as made:
        answer = made.call("shop.buy", {"x": "y" * 1_000_000})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (REJECTED, "request_too_large")
    assert not server.asked


def test_messages_say_method_host_and_status_but_no_query(tmp_path: Path) -> None:
    """What a person reads names the server and what it said, on one line, and nothing of the query."""
    body = json.dumps({"errors": [{"detail": "no\n\x1b[2J such thing"}]}).encode()
    answer = answer_of(tmp_path, say(422, body, content_type="application/json"), "request: POST /a?x=hidden")
    assert answer.failure is not None
    assert answer.failure.message.startswith("POST 127.0.0.1:")
    assert "answered 422" in answer.failure.message
    assert answer.failure.message.endswith("no \\x1b[2J such thing")
    assert "hidden" not in answer.failure.message


def test_a_library_that_is_missing_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without httpx the tools are there, and a call says what to install; nothing was sent."""
    import sys

    monkeypatch.setitem(sys.modules, "httpx", None)
    with project(tmp_path, one_tool("https://shop.example.com", "request: POST /a")) as made:
        answer = made.call("shop.buy")
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.UNAVAILABLE, "missing_library")
    assert "pip install 'sagactl[http]'" in answer.failure.message
