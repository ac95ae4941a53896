"""HTTP tools from the command line: a whole saga over a real server, killed, interrupted and undone."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.project import ROOT, WAIT_SECONDS, Project, interrupt_twice
from tests.tools.http.servers import Asked, Server, say, say_json, serve

README = (ROOT / "README.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- http (\S+) -->\n```\w+\n(.*?)```", README, re.DOTALL))
TOKEN = "t0ken-of-the-crm"
ASK = ("run", "welcome", "-i", "email=ada@example.com", "-o", "json")


@dataclass
class Crm:
    """A CRM that keeps leads, and what each key came to; it may hold its answers back."""

    leads: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    may_answer: threading.Event = field(default_factory=threading.Event)
    answer: bytes | None = None

    def act(self, connection: socket.socket, asked: Asked) -> None:
        """Do what is asked, then answer."""
        url = urlsplit(asked.target)
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            connection.sendall(say_json(401, {"message": f"no such token: {asked.headers.get('authorization')}"}))
        elif asked.line.startswith("POST"):
            key = asked.headers.get("idempotency-key", str(len(self.keys)))
            if key not in self.keys:
                self.keys[key] = f"L{len(self.keys) + 1}"
                self.leads[self.keys[key]] = json.loads(asked.body)["email"]
            self.may_answer.wait(60)
            connection.sendall(self.answer or say_json(201, {"id": self.keys[key], "token": TOKEN}))
        elif asked.line.startswith("DELETE"):
            is_there = self.leads.pop(url.path.rpartition("/")[2], None) is not None
            connection.sendall(say(204 if is_there else 404))
        elif not url.query:
            connection.sendall(say_json(200, {"leads": sorted(self.leads.values())}))
        else:
            found = self.keys.get(parse_qs(url.query)["key"][0])
            connection.sendall(say_json(200, {"items": [{"id": found}] if found in self.leads else []}))


@pytest.fixture
def crm() -> Iterator[tuple[Crm, Server]]:
    """A CRM that answers at once."""
    made = Crm()
    made.may_answer.set()
    with serve(made.act) as server:
        yield made, server
        made.may_answer.set()


@pytest.fixture
def project(tmp_path: Path, crm: tuple[Crm, Server]) -> Project:
    """The files of the README, with their server on this machine."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    settings = f'[http]\nallow = ["127.0.0.1"]\nservers = {{leads = "{crm[1].url}/v1"}}\n'
    (tmp_path / "sagactl.toml").write_text(settings)
    return Project(tmp_path, {"SAGACTL_SECRET_CRM_TOKEN": TOKEN})


def test_the_example_of_the_readme_works_as_written(project: Project, crm: tuple[Crm, Server]) -> None:
    """The README's declaration and saga, saved as they stand: the lead is made, and taken back where a step fails."""
    state, server = crm
    failed = project.run(*ASK)
    assert failed.code == 10, failed.err
    assert state.leads == {}
    assert [each.line.split(" ")[0] for each in server.asked] == ["POST", "DELETE"]
    (project.path / "greeting.txt").write_text("hi")
    assert project.run(*ASK).code == 0
    assert list(state.leads.values()) == ["ada@example.com"]
    assert project.run("validate", "welcome").code == 0


def test_no_secret_is_told_anywhere(project: Project, crm: tuple[Crm, Server]) -> None:
    """H25: the token is in requests and in an answer, and in no byte that sagactl prints or keeps."""
    results = [project.run(*ASK), project.run("log", "@latest"), project.run("show", "@latest", "-o", "json")]
    project.environ["SAGACTL_SECRET_CRM_TOKEN"] = other = "another-token"
    refused = project.run(*ASK)
    assert refused.code == 10
    assert "no such token" in refused.json["run"]["error"]["message"]
    texts = [text for each in (*results, refused) for text in (each.out, each.err)]
    kept = [file.read_bytes() for file in (project.path / ".sagactl").rglob("*") if file.is_file()]
    assert not any(TOKEN in text or other in text for text in texts)
    assert not any(TOKEN.encode() in data or other.encode() in data for data in kept)
    assert crm[1].asked[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_run_waits_for_the_secret_of_its_tool(project: Project, crm: tuple[Crm, Server]) -> None:
    """E19: nothing is asked of the server without the token that its requests need."""
    del project.environ["SAGACTL_SECRET_CRM_TOKEN"]
    waiting = project.run(*ASK)
    assert waiting.code == 12
    assert not crm[1].asked


def _wait_for_request(server: Server) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not server.asked and time.monotonic() < ends_at:
        time.sleep(0.02)
    assert server.asked


def test_killed_in_a_request_the_run_goes_on_with_the_same_key(project: Project, crm: tuple[Crm, Server]) -> None:
    """E1, E6, E8: killed before the server has answered what it has done, the run asks with the same key: one lead."""
    state, server = crm
    (project.path / "greeting.txt").write_text("hi")
    state.may_answer.clear()
    process = project.start(*ASK)
    _wait_for_request(server)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WAIT_SECONDS)
    state.may_answer.set()
    resumed = project.run("resume", "--all", "-q")
    assert resumed.code == 0, resumed.err
    assert len(state.leads) == 1
    assert {each.headers["idempotency-key"] for each in server.asked} == set(state.keys)
    assert len(server.asked) == 2


def test_an_interrupt_ends_a_request_that_waits(project: Project, crm: tuple[Crm, Server]) -> None:
    """E17: the second Ctrl-C ends the request at once, and the run can be resumed."""
    state, server = crm
    state.may_answer.clear()
    process = project.start(*ASK)
    _wait_for_request(server)
    interrupt_twice(process)
    assert process.returncode == 130
    state.may_answer.set()
    (project.path / "greeting.txt").write_text("hi")
    assert project.run("resume", "--all", "-q").code == 0
    assert len(state.leads) == 1


def test_a_lost_answer_is_asked_about(project: Project, crm: tuple[Crm, Server]) -> None:
    """E6: with a probe, an answer that can't be read is cleared up by asking, not by doing it again."""
    state, server = crm
    text = FILES["plugins/leads.yaml"].replace(
        "    idempotent: true", "    idempotent: false\n    probe: leads.find\n   "
    )
    text += (
        "  leads.find:\n    request: GET /leads?key=${{ forward_key }}\n"
        '    done: {if: "${{ response.body.items[0] }}"}\n    not_done: {status: 200}\n'
        '    output: {id: "${{ response.body.items[0].id }}"}\n'
    )
    (project.path / "plugins" / "leads.yaml").write_text(text)
    state.answer = say(201, b"<html>", content_type="text/html")
    (project.path / "greeting.txt").write_text("hi")
    done = project.run(*ASK)
    assert done.code == 0, done.err
    assert [each.line.split(" ")[0] for each in server.asked] == ["POST", "GET"]
    assert done.json["run"]["steps"][0]["output"] == {"id": "L1"}


def test_declared_tools_keep_their_promises_or_are_found_out(project: Project) -> None:
    """The golden rules are tried on declared tools as on any other: the CRM's hold, and a claim too much is named."""
    told = FILES["plugins/leads.yaml"].replace("    json:", "    arguments: {email: {type: string}}\n    json:")
    leads = told.replace("    json:", '    output: {id: "${{ response.body.id }}"}\n    json:')
    (project.path / "plugins" / "leads.yaml").write_text(leads + "  leads.list:\n    request: GET /leads\n")
    (project.path / "plugins" / "leads.check.yaml").write_text(
        'safe_tools: ["leads.*"]\nobserve: [{tool: leads.list}]\n'
        'tools: {leads.create: {with: {email: "${{ run.id }}@example.com"}}}\n'
    )
    good = project.run("tools", "check", "leads.create", "-o", "json", timeout=240)
    (found,) = good.json["tools"]
    verdicts = {each["rule"]: each["verdict"] for each in found["rules"]}
    assert good.code == 0, good.out
    assert {"succeeds", "schema", "same-key", "at-once", "undo", "undo-twice"} <= {
        rule for rule, verdict in verdicts.items() if verdict == "holds"
    }
    (project.path / "plugins" / "leads.yaml").write_text(
        (leads + "  leads.list:\n    request: GET /leads\n").replace(
            "    json:", "    key: {header: X-Other}\n    json:"
        )
    )
    broken = project.run("tools", "check", "leads.create", "--rule", "same-key", "-o", "json", timeout=240)
    assert broken.code == 1
    assert broken.json["tools"][0]["rules"][0]["verdict"] == "broken"


def test_a_url_from_the_input_reaches_nothing_private(project: Project, crm: tuple[Crm, Server]) -> None:
    """H17: the run fails with the reason, once, and neither the metadata service nor this machine is connected to."""
    (project.path / "plugins" / "hooks.yaml").write_text(
        "tools:\n  hooks.send:\n    request: POST ${{ args.url }}\n    json: {done: true}\n"
    )
    (project.path / "sagas" / "notify.yaml").write_text(
        "saga: notify\ninput: {type: object, required: [url], properties: {url: {type: string}}}\n"
        'steps:\n  - id: hook\n    tool: hooks.send\n    with: {url: "${{ input.url }}"}\n'
        "    compensate: {none: a message can't be unsent}\n"
    )
    (project.path / "sagactl.toml").write_text("")
    for url in ("http://169.254.169.254/latest/meta-data", f"http://localhost:{crm[1].port}/", "http://10.0.0.1/"):
        failed = project.run("run", "notify", "-i", f"url={url}", "-o", "json")
        (step,) = failed.json["run"]["steps"]
        assert (failed.code, step["attempts"], failed.json["run"]["error"]["type"]) == (10, 1, "blocked")
    assert crm[1].connections == 0


def test_tools_shows_what_is_declared_and_what_is_wrong(project: Project) -> None:
    """A declared tool is shown as any other; a wrong one with its lines and a caret, and the others stay."""
    shown = project.run("tools", "leads.create")
    assert "leads.delete, with lead" in shown.out
    assert "POST /leads, at http://127.0.0.1" in shown.out
    assert "CRM_TOKEN" in shown.out
    with (project.path / "plugins" / "leads.yaml").open("a") as file:
        file.write("  leads.wrong:\n    request: FETCH /x\n    jsn: {}\n")
    listed = project.run("tools")
    assert "^^^ did you mean json?" in listed.out
    assert "leads.create" in listed.out
    document = project.run("tools", "-o", "json").json
    assert document["broken"][0]["tools"] == ["leads.wrong"]
    assert document["broken"][0]["line"] == 13
    planned = project.run("plan", "welcome", "-i", "email=ada@example.com")
    assert planned.code == 0
    assert "leads.delete" in planned.out


def test_an_import_makes_a_plugin_that_loads(project: Project) -> None:
    """`tools import openapi` writes a file that `tools` lists, over none that is there, and says what is left out."""
    source = ROOT / "tests" / "tools" / "http" / "descriptions" / "shop.yaml"
    made = project.run("tools", "import", "openapi", str(source), "--out", "plugins/shop.yaml")
    assert made.code == 0, made.err
    assert "6 tools in plugins/shop.yaml" in made.out
    assert "PUT /orders/{orderId}/photo" in made.out
    assert "corner_shop.create_order" in project.run("tools").out
    again = project.run("tools", "import", "openapi", str(source), "--out", "plugins/shop.yaml", "-o", "json")
    assert (again.code, again.json["error"]["code"]) == (6, "file-exists")
    nowhere = project.run("tools", "import", "openapi", str(source), "--out", "nosuch/shop.yaml")
    assert (nowhere.code, "can't be written" in nowhere.err) == (6, True)
    text = project.run("tools", "import", "openapi", str(source), "--only", "cancelOrder", "-q")
    assert text.err == ""
    assert text.out.splitlines()[2].startswith("server:")
    assert "request: DELETE" in text.out.replace('"', "")


def test_a_description_comes_from_stdin_or_from_another_command(project: Project) -> None:
    """`curl … | sagactl tools import openapi -`, and a shell's `<(curl …)`, make what the file itself makes."""
    source = ROOT / "tests" / "tools" / "http" / "descriptions" / "shop.yaml"
    expected = project.run("tools", "import", "openapi", str(source)).out.splitlines()[1:]
    sagactl = f"{sys.executable} -m sagactl tools import openapi"
    lines = {f"cat {source} | {sagactl} -": "stdin", f"{sagactl} <(cat {source})": "a pipe"}
    for line, name in lines.items():
        made = _in_shell(project, line)
        assert made.returncode == 0, made.stderr
        assert made.stdout.splitlines()[0].startswith(f"# Made of {name} by `sagactl tools import")
        assert made.stdout.splitlines()[1:] == expected
    empty = _in_shell(project, f"false | {sagactl} - -o json")
    assert empty.returncode == 3
    assert json.loads(empty.stdout)["error"]["message"] == "stdin: it is empty"


def _in_shell(project: Project, line: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", line]
    return subprocess.run(
        command, cwd=project.path, env=project.environment(), capture_output=True, text=True, timeout=60, check=False
    )


LIST_MODULES = """
import sys
from sagactl.cli.main import run_command_line
run_command_line(["validate", "nap"])
names = {name.partition(".")[0] for name in sys.modules} | {name for name in sys.modules if name.startswith("sagactl")}
print("\\nmodules", *sorted(names))
"""


def test_declarations_cost_no_more_than_reading_yaml(project: Project) -> None:
    """Start-up: httpx is imported by the first call; without files of declarations not even their reading is."""
    (project.path / "sagas" / "nap.yaml").write_text(
        "saga: nap\nsteps:\n  - {id: nap, tool: time.sleep, with: {for: 1ms}, read_only: true}\n"
    )
    modules = set(project.run_python("-c", LIST_MODULES).out.partition("\nmodules ")[2].split())
    assert "sagactl.tools.http.reading" in modules
    assert not modules & {"httpx", "httpcore", "h11", "jsonschema", "email", "ssl", "socket", "asyncio"}
    assert not modules & {"sagactl.tools.http.calling", "sagactl.tools.http.transport", "sagactl.tools.http.openapi"}
    (project.path / "plugins" / "leads.yaml").unlink()
    (project.path / "sagas" / "welcome.yaml").unlink()
    modules = set(project.run_python("-c", LIST_MODULES).out.partition("\nmodules ")[2].split())
    assert {each for each in modules if each.startswith("sagactl.tools.http.")} == {"sagactl.tools.http.files"}


def test_without_the_library_a_run_waits_before_the_call(project: Project, crm: tuple[Crm, Server]) -> None:
    """E16: where httpx isn't installed nothing is intended, nothing undone, and every look says what to install."""
    (project.path / "greeting.txt").write_text("hi")
    missing = project.path / "without"
    missing.mkdir()
    (missing / "sitecustomize.py").write_text("import sys\nsys.modules['httpx'] = None\n")
    project.environ["PYTHONPATH"] = f"{missing}:{ROOT}"
    waiting = project.run(*ASK)
    assert waiting.code == 12, waiting.err
    waits = waiting.json["run"]["waiting_for"]
    assert waits["what"] == "missing_tool"
    assert "pip install 'sagactl[http]'" in waits["detail"]
    shown = project.run("show", "@latest").out
    assert "sagactl doctor" in shown
    assert "--definition" not in shown, "another definition needs the library too"
    examined = project.run("doctor", "-o", "json")
    assert examined.code == 3
    found = {each["name"]: (each["level"], each["hint"]) for each in examined.json["items"]}
    assert found["http"] == ("fail", "pip install 'sagactl[http]'")
    assert '"intent"' not in project.run("log", "@latest", "-o", "json").out
    assert not crm[1].asked
    del project.environ["PYTHONPATH"]
    assert project.run("resume", waiting.json["run"]["id"]).code == 0
    assert list(crm[0].leads.values()) == ["ada@example.com"]
    assert '"intent"' in project.run("log", "@latest", "-o", "json").out


def test_a_server_that_asks_for_years_is_asked_again_within_a_day(project: Project, crm: tuple[Crm, Server]) -> None:
    """E5, E14: `Retry-After` is a day at most; where the step has less time, that ends the wait."""
    crm[0].answer = say(503, retry_after="999999999")
    left = project.run(*ASK, "--no-wait")
    assert left.code == 12, left.err
    run = left.json["run"]
    until = datetime.fromisoformat(run["waiting_for"]["until"])
    assert timedelta(hours=23) < until - datetime.now(UTC) <= timedelta(hours=24)
    file = project.path / "sagas" / "welcome.yaml"
    times = "start_to_close_timeout: 8s\n    schedule_to_close_timeout: 9s"
    file.write_text(file.read_text().replace("tool: leads.create", f"tool: leads.create\n    {times}"))
    begun = time.monotonic()
    assert project.run(*ASK).code == 11, "in doubt, and nothing to ask about it: a person is told"
    assert time.monotonic() - begun < 60


def test_a_missing_secret_is_told_once(project: Project) -> None:
    """E19: `validate` says of each secret once that it can't be had, however many sagas need it."""
    del project.environ["SAGACTL_SECRET_CRM_TOKEN"]
    text = (project.path / "sagas" / "welcome.yaml").read_text()
    (project.path / "sagas" / "again.yaml").write_text(text.replace("saga: welcome", "saga: again"))
    assert project.run("validate").err.count("the secret CRM_TOKEN can't be had") == 1
