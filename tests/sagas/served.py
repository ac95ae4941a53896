"""The other end of `serve.py`: `sagactl` as another process, started in no time, killed where a test says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.project import ROOT, Project, Result

SCRIPT = Path(__file__).with_name("serve.py")


class Server:
    """A process that forks a `sagactl` for each request; it has imported *modules* before."""

    def __init__(self, *modules: str) -> None:
        environment = Project(ROOT).environment()
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=ROOT,
            text=True,
        )

    def run(
        self,
        project: Project,
        *arguments: str,
        kill: Mapping[str, Any] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Result:
        """Run `sagactl` in a project; its process id stands in the file `pid` beside the project."""
        request = {
            "arguments": arguments,
            "folder": str(project.path),
            "environment": project.environment(extra),
            "kill": kill,
            "pid_file": str(project.path.parent / "pid"),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Result(answer["code"], answer["out"], answer["err"])

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)
