"""A work repository, its bare remote and a store: real ones in a folder, and all that a release may change in them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.project import ROOT, Project

BUILD = """#!/bin/sh
set -eu
mkdir -p dist
printf half > dist/app.txt
"$(dirname "$0")/during-build" 2>/dev/null || true
printf 'app %s' "$VERSION" > dist/app.txt
"""
IGNORED = "dist/\nplugins/\nsagas/\n.sagactl/\nduring-build\n"
IDENTITY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in
       (("NAME", "Ada"), ("EMAIL", "ada@example.com"))},
}  # fmt: skip


def run_git(folder: Path, *arguments: str, check: bool = True) -> str:
    """Run git in a folder and return what it prints."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **IDENTITY},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_template(folder: Path) -> None:
    """Make a project whose branch is one commit ahead of its remote, once for all tests."""
    folder.mkdir(parents=True)
    run_git(folder, "init", "-q", "--bare", "--template=", "-b", "main", "remote.git")
    run_git(folder, "init", "-q", "--template=", "-b", "main", "app")
    app = folder / "app"
    (app / "build.sh").write_text(BUILD)
    (app / ".gitignore").write_text(IGNORED)
    run_git(app, "remote", "add", "origin", "../remote.git")
    _commit(app, "one")
    run_git(app, "push", "-q", "origin", "main")
    (app / "app.c").write_text("int main() {}\n")
    _commit(app, "two")
    for name in ("plugins", "sagas"):
        shutil.copytree(ROOT / name, app / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "store").mkdir()


def _commit(folder: Path, message: str) -> None:
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-q", "-m", message)


@dataclass
class Repositories:
    """One such project."""

    folder: Path
    project: Project

    @classmethod
    def copy(cls, template: Path, folder: Path) -> Repositories:
        """Copy the template; what is in it refers to itself by relative paths only."""
        shutil.copytree(template, folder)
        return cls(folder, Project(folder / "app", dict(IDENTITY)))

    @property
    def app(self) -> Path:
        return self.folder / "app"

    @property
    def remote(self) -> Path:
        return self.folder / "remote.git"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def arguments(self, **inputs: Any) -> list[str]:
        """Return the command line of the release of version 1.0.0."""
        given = {"version": "1.0.0", "build": ["sh", "build.sh"], "artefact": "dist/app.txt", "store": "../store"}
        pairs = [["-i", f"{name}:={json.dumps(value)}"] for name, value in {**given, **inputs}.items()]
        return ["run", "release", "-q", *[word for pair in pairs for word in pair]]

    def build_before(self) -> None:
        """Leave an artefact of an earlier build, with a mode and a time that are worth keeping."""
        (self.app / "dist").mkdir()
        (self.app / "dist" / "app.txt").write_text("former")
        (self.app / "dist" / "app.txt").chmod(0o640)
        os.utime(self.app / "dist" / "app.txt", ns=(10**18, 10**18))

    def hook(self, folder: Path, name: str, script: str) -> None:
        """Make a git hook; `$PID` is the process id of sagactl, `$BASE` the folder of all this."""
        file = folder / "hooks" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\nBASE={self.folder}\nPID=$(cat $BASE/pid)\n{script}\n")
        file.chmod(0o755)

    def script(self, name: str, script: str) -> None:
        """Make a script of the project, likewise."""
        file = self.app / name
        file.write_text(f"#!/bin/sh\nBASE={self.folder}\nPID=$(cat $BASE/pid)\n{script}\n")
        file.chmod(0o755)

    def push_as_colleague(self, *, onto: str = "main") -> str:
        """Clone, commit and push as somebody else does; return the commit."""
        clone = self.folder / "clone"
        run_git(self.folder, "clone", "-q", "--branch", onto, "remote.git", "clone")
        (clone / "other.c").write_text("/* of somebody else */\n")
        _commit(clone, "other")
        run_git(clone, "push", "-q", "origin", f"HEAD:{onto}")
        commit = run_git(clone, "rev-parse", "HEAD")
        shutil.rmtree(clone)
        return commit

    def snapshot(self) -> dict[str, Any]:
        """Return all that a release may change: every ref here and there, the store, what was built, what is left."""
        return {
            "remote": read_refs(self.remote),
            "local": read_refs(self.app),
            "status": run_git(self.app, "status", "--porcelain"),
            "locks": sorted(path.name for path in (self.app / ".git").glob("*.lock")),
            "store": read_tree(self.store),
            "dist": read_tree(self.app / "dist", describe=_describe_closely),
            "kept": read_tree(self.app / ".sagactl" / "kept"),
        }

    def check_released(self, before: dict[str, Any], *, former: bool) -> None:
        """Compare the world with what it must be once everything is done, given what it was."""
        now = self.snapshot()
        head, tag = run_git(self.app, "rev-parse", "HEAD"), run_git(self.app, "rev-parse", "refs/tags/v1.0.0")
        assert run_git(self.app, "rev-parse", "v1.0.0^{commit}") == head
        assert now["remote"] == {**before["remote"], "refs/heads/main": head, "refs/tags/v1.0.0": tag}
        assert now["local"] == {**before["local"], "refs/tags/v1.0.0": tag}
        assert (now["locks"], now["kept"], now["status"]) == ([], {}, before["status"])
        assert sorted(now["store"]) == ["1.0.0", "1.0.0/app.txt", "1.0.0/release.json", "releases.jsonl"]
        assert (self.store / "1.0.0" / "app.txt").read_text() == "app 1.0.0"
        manifest = json.loads((self.store / "1.0.0" / "release.json").read_text())
        assert manifest["sha256"] == hashlib.sha256(b"app 1.0.0").hexdigest()
        assert len((self.store / "releases.jsonl").read_text().splitlines()) == 1
        assert (self.app / "dist" / "app.txt").read_text() == "app 1.0.0"
        assert former == bool(before["dist"])


def read_refs(folder: Path) -> dict[str, str]:
    """Return every ref of a repository, HEAD among them."""
    lines = run_git(folder, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return {"HEAD": run_git(folder, "symbolic-ref", "HEAD"), **dict(line.split(" ") for line in lines)}


def _describe(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"


def _describe_closely(path: Path) -> str:
    found = path.lstat()
    return f"{_describe(path)} {stat.filemode(found.st_mode)} {found.st_mtime_ns if path.is_file() else ''}"


def read_tree(folder: Path, describe: Callable[[Path], str] = _describe) -> dict[str, str]:
    """Return what stands in a folder, by its path; nothing where there is no folder."""
    inside = {str(path.relative_to(folder)): describe(path) for path in sorted(folder.rglob("*"))}
    return inside if folder.is_dir() else {}
