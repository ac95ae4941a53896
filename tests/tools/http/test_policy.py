"""H17, H21, H45: which hosts may be asked, and which addresses they may lead to."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from pathlib import Path

import pytest

from sagactl.core.records import OutcomeKind
from sagactl.errors import InvalidError
from sagactl.tools.http.policy import Destination, object_to_address, object_to_host
from sagactl.tools.http.settings import read_settings
from tests.tools.http.declaring import one_tool, project
from tests.tools.http.servers import always, say_json, serve

FINE = always(say_json(200, {"ok": True}))
TO_ARGUMENT = "request: POST ${{ args.url }}"

PRIVATE = (
    *("127.0.0.1", "127.8.9.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200"),
    *("0.0.0.0", "255.255.255.255", "224.0.0.1", "192.0.2.1", "198.18.0.1", "240.0.0.1"),
    *("::1", "::", "fe80::1", "fd00:ec2::254", "fc00::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::"),
    *("2001:0:4136:e378:8000:63bf:80ff:fffe", "::127.0.0.1", "::ffff:0:127.0.0.1"),
)
PUBLIC = ("8.8.8.8", "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8", "64:ff9b::808:808")


@pytest.mark.parametrize("address", PRIVATE)
def test_no_private_address_is_connected_to(address: str) -> None:
    """However it is written, and whatever it is wrapped in, an address that isn't public is refused."""
    destination = Destination("shop.example.com", 443, is_declared=True)
    assert object_to_address(ip_address(address), destination, read_settings({}, Path())) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_fine(address: str) -> None:
    """What anybody may reach needs no listing."""
    destination = Destination("shop.example.com", 443, is_declared=True)
    assert object_to_address(ip_address(address), destination, read_settings({}, Path())) is None


def test_listed_networks_may_be_led_to() -> None:
    """An address or a network in `allow` is what a private host needs."""
    settings = read_settings({"allow": ["10.1.0.0/16", "fd00::/8", "192.168.7.7"]}, Path())
    destination = Destination("erp.example.com", 443, is_declared=True)
    found = {
        each: object_to_address(ip_address(each), destination, settings) is None
        for each in ("10.1.2.3", "10.2.0.1", "fd00::5", "192.168.7.7", "192.168.7.8", "::ffff:10.1.2.3")
    }
    assert [each for each, is_fine in found.items() if is_fine] == [
        "10.1.2.3",
        "fd00::5",
        "192.168.7.7",
        "::ffff:10.1.2.3",
    ]


@pytest.mark.parametrize(
    ("host", "port", "is_fine"),
    [
        ("hooks.example.com", 443, True),
        ("HOOKS.example.com.", 80, True),
        ("a.partner.example.com", 8443, True),
        ("a.b.partner.example.com", 8443, True),
        ("partner.example.com", 8443, False),
        ("a.partner.example.com", 443, False),
        ("evilpartner.example.com", 8443, False),
        ("hooks.example.com.evil.example.com", 443, False),
        ("10.1.2.3", 80, True),
        ("10.2.0.1", 80, False),
        ("2130706433", 80, False),
    ],
)
def test_a_host_from_an_argument_must_be_listed(host: str, port: int, is_fine: bool) -> None:
    """Names, with `*.` for those below, with a port where one is given; nothing that only looks like one."""
    allowed = ["hooks.example.com", "*.partner.example.com:8443", "10.1.0.0/16"]
    settings = read_settings({"allow": allowed}, Path())
    assert (object_to_host(Destination(host, port, is_declared=False), settings) is None) is is_fine
    assert object_to_host(Destination(host, port, is_declared=True), settings) is None


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_a_url_from_an_argument_reaches_nothing_private(host: str, tmp_path: Path) -> None:
    """H17: this machine by any spelling: blocked before connecting, rejected, and the server saw nothing."""
    with serve(FINE) as server, project(tmp_path, one_tool("https://shop.example.com", TO_ARGUMENT)) as made:
        answer = made.call("shop.buy", {"url": f"http://{host}:{server.port}/latest/meta-data"})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.REJECTED, "blocked")
    assert server.connections == 0


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "localhost", "rebound.example.com"])
def test_a_listed_name_that_leads_to_a_private_address_is_blocked(host: str, tmp_path: Path) -> None:
    """H17: a name in `allow` lets it be asked, not lead anywhere: the connected address is what counts."""

    def resolve(name: str, port: int) -> list[str]:
        name = "127.0.0.1" if name == "rebound.example.com" else name
        return [str(each[4][0]) for each in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)]

    text = one_tool("https://shop.example.com", TO_ARGUMENT)
    with serve(FINE) as server, project(tmp_path, text, settings={"allow": [host]}, resolve=resolve) as made:
        answer = made.call("shop.buy", {"url": f"http://{host}:{server.port}/"})
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.REJECTED, "blocked")
    assert "this machine" in answer.failure.message
    assert server.connections == 0


def test_a_name_that_leads_elsewhere_the_second_time_gains_nothing(tmp_path: Path) -> None:
    """DNS rebinding: what was checked is what is connected to, so a second answer is never asked for."""
    asked = []

    def resolve(name: str, _: int) -> list[str]:
        asked.append(name)
        return ["10.66.66.66", "127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    settings = {"allow": ["127.0.0.1"]}
    with serve(FINE) as server:
        text = one_tool(f"http://rebound.example.com:{server.port}", "request: POST /a")
        with project(tmp_path, text, settings=settings, resolve=resolve) as made:
            answer = made.call("shop.buy")
    assert answer.output == {"ok": True}, "the address that may be reached is, and the other isn't tried"
    assert asked == ["rebound.example.com"]


def test_a_listed_host_and_address_are_reached(tmp_path: Path) -> None:
    """What the operator lists is reached, by a URL that comes with an argument."""
    text = one_tool("https://shop.example.com", TO_ARGUMENT + '\njson: {n: "${{ args.n }}"}')
    with serve(FINE) as server, project(tmp_path, text, settings={"allow": ["127.0.0.1"]}) as made:
        answer = made.call("shop.buy", {"url": f"{server.url}/a/b?c=d", "n": 1})
    assert answer.output == {"ok": True}
    assert server.asked[0].target == "/a/b?c=d"


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "gopher://127.0.0.1/x", "//127.0.0.1/x", "127.0.0.1", ""),
        *("http://me:pass@127.0.0.1/", "http://127.0.0.1/#x", "http://127.0.0.1/a b", "http://127.0.0.1/\n"),
        *(
            "http://127.0.0.1:99999/",
            "http://[fe80::1%25eth0]/",
            "http://ex ample/",
            "http://127.0.0.1\\@evil/",
            5,
            None,
        ),
        *("http://bücher.example/", "http://127.0.0.1/../x", "http:///x"),
    ],
)
def test_what_is_no_plain_url_is_refused(url: object, tmp_path: Path) -> None:
    """A URL in an argument is http or https, without a password, a fragment, or anything that hides its host."""
    text = one_tool("https://shop.example.com", TO_ARGUMENT)
    with project(tmp_path, text, settings={"allow": ["127.0.0.1"]}) as made:
        answer = made.call("shop.buy", {"url": url})  # type: ignore[dict-item]
    assert answer.failure is not None
    assert (answer.kind, answer.failure.type) == (OutcomeKind.REJECTED, "bad_arguments")


def test_no_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy sees everything, so it is the operator's to name, in the settings."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serve(FINE) as server, project(tmp_path, one_tool(server.url, "request: POST /a")) as made:
        assert made.call("shop.buy").output == {"ok": True}


def test_a_proxy_of_the_settings_is_asked_for_everything_but_what_names_an_address(tmp_path: Path) -> None:
    """Behind a proxy names are the proxy's to look up; an address that is written is still checked here."""
    with serve(FINE) as proxy:
        settings = {"proxy": proxy.url, "allow": ["127.0.0.1", "shop.example.com"]}
        text = one_tool("http://shop.example.com", "request: POST ${{ args.url }}")
        with project(tmp_path, text, settings=settings) as made:
            answer = made.call("shop.buy", {"url": "http://shop.example.com/a"})
            blocked = made.call("shop.buy", {"url": "http://169.254.169.254/a"})
    assert answer.output == {"ok": True}
    assert [each.target for each in proxy.asked] == ["http://shop.example.com/a"]
    assert blocked.kind is OutcomeKind.REJECTED


def test_the_operator_may_send_a_file_s_requests_elsewhere(tmp_path: Path) -> None:
    """`[http] servers` takes the place of `server`, for a test system or another region."""
    with serve(FINE) as server:
        text = one_tool("https://shop.example.com", "request: POST /a")
        with project(tmp_path, text, settings={"servers": {"shop": f"{server.url}/v9"}}) as made:
            made.call("shop.buy")
    assert server.asked[0].target == "/v9/a"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"allowed": []}, "unknown setting allowed"),
        ({"allow": "x"}, "allow must be a list"),
        ({"allow": ["http://x"]}, "no host, address or network"),
        ({"allow": ["x:99999"]}, "no host, address or network"),
        ({"allow": ["*"]}, "no host, address or network"),
        ({"servers": []}, "servers must be a table"),
        ({"servers": {"a": "x"}}, "servers: a: a URL begins with"),
        ({"ca": "nosuch.pem"}, "there is no file"),
        ({"proxy": "socks5://x"}, "proxy: a URL begins with"),
        ({"proxy": "http://x/y"}, "a proxy has no path"),
        ({"answer_bytes_max": 0}, "answer_bytes_max must be"),
        ({"answer_bytes_max": True}, "answer_bytes_max must be"),
    ],
)
def test_a_wrong_setting_is_an_error(table: dict[str, object], said: str) -> None:
    """Settings that nobody can have meant are refused as a whole."""
    with pytest.raises(InvalidError, match=said):
        read_settings(table, Path())
