"""Running git for the plugin beside this file: in the right repository, without questions, and judged by its words."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, TypedDict

from sagactl import CallContext, Rejected, Unavailable

from ._programs import Ended, run_program

ObjectId = Annotated[str, {"pattern": "^([0-9a-f]{40}|[0-9a-f]{64})$"}]
MaybeObjectId = Annotated[str | None, {"pattern": "^([0-9a-f]{40}|[0-9a-f]{64})$"}]
Name = Annotated[str, {"pattern": "^[^-]", "maxLength": 200}]
"""What git must not take for an option."""

OF_ANOTHER_REPOSITORY: Final = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
)
"""Set where sagactl is started by a git hook; they would lead git to the hook's repository."""

NO_NETWORK: Final = re.compile(
    r"could not resolve host|couldn't connect|failed to connect|connection refused|connection timed out"
    r"|network is unreachable|no route to host|unable to look up|temporary failure in name resolution"
    r"|error: (429|50[0234])",
    re.IGNORECASE,
)

MAYBE_SENT: Final = re.compile(r"rpc failed|hung up|disconnect|client_loop|early eof|broken pipe", re.IGNORECASE)
"""The line was there and broke, so nobody here knows what arrived."""

NO_PERMISSION: Final = re.compile(
    r"authentication failed|could not read (username|password)|permission denied|host key verification failed"
    r"|repository .*not found|does not appear to be a git repository|access denied|error: 40[134]"
    r"|transport '.*' not allowed",
    re.IGNORECASE,
)

CREDENTIALS: Final = re.compile(r"[^\s/'\"@:]+:[^\s/@]+@")
"""What a URL may hold and a log must not."""


class Undone(TypedDict):
    """What an undo found and did."""

    status: str


@dataclass(frozen=True)
class Repository:
    """A work tree or bare repository, its git directory, and the call in which git is run there."""

    folder: Path
    git_folder: Path
    context: CallContext
    lock: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def git(self, *arguments: str, text: str = "") -> Ended:
        """Run git here, whatever it ends with."""
        return _git(self, *arguments, text=text)

    def answer(self, *arguments: str) -> str | None:
        """Return what git answers, None where it fails."""
        done = self.git(*arguments)
        return done.out.strip() if done.code == 0 else None

    def locked(self, lock: int) -> Repository:
        """Return the same repository, where git inherits *lock*."""
        return replace(self, lock=(lock,))

    def with_index(self, file: Path) -> Repository:
        """Return the same repository, where git has an index of its own."""
        return replace(self, environment={"GIT_INDEX_FILE": str(file)})

    def at_this_time(self) -> Repository:
        """Return the same repository, where commits are of now, whatever the environment says."""
        return replace(self, environment={"GIT_COMMITTER_DATE": f"{int(time.time())} +0000"})


def _git(repository: Repository, *arguments: str, text: str = "") -> Ended:
    inherited = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_REPOSITORY}
    environment = {
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        **inherited,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "LC_ALL": "C",  # failures are told apart by git's own words
        **repository.environment,
    }
    try:
        return run_program(
            repository.context,
            ["git", *arguments],
            folder=repository.folder,
            environment=environment,
            text=text,
            inherits=repository.lock,
        )
    except FileNotFoundError as error:
        raise Rejected(f"can't run git in {repository.folder}: {error.strerror}", code="no_git") from None


def open_repository(context: CallContext, repository: str) -> Repository:
    """Find a repository by its folder, seen from the project and within it; raises Rejected where there is none."""
    folder = context.project / repository
    if not folder.resolve().is_relative_to(context.project.resolve()):
        raise Rejected(f"{repository!r:.200} leads out of the project's folder", code="outside")
    if not folder.is_dir():
        raise Rejected(f"no folder {repository}", code="no_repository")
    here = Repository(folder, folder, context)
    done = here.git("rev-parse", "--absolute-git-dir")
    if done.code:
        raise Rejected(f"{repository} is no git repository: {last_line(done)}", code="no_repository")
    return replace(here, git_folder=Path(done.out.strip()))


def check_ref(repository: Repository, ref: str) -> str:
    """Return *ref*; raises Rejected where git doesn't allow such a name."""
    if "/-" in ref or repository.git("check-ref-format", ref).code:
        raise Rejected(f"git doesn't allow the name {ref}", code="bad_name")
    return ref


def find_url(repository: Repository, remote: str) -> str:
    """Return where a push to *remote* goes, since fetches may come from elsewhere."""
    if remote.startswith("-"):
        raise Rejected(f"{remote} can't be a remote", code="bad_name")
    if url := repository.answer("remote", "get-url", "--push", "--", remote):
        return url
    if "/" in remote:
        return remote
    raise Rejected(f"no remote named {remote}", code="no_remote")


def look_at_remote(repository: Repository, url: str, *refs: str) -> dict[str, str]:
    """Return where those of *refs* that there are stand on the remote."""
    done = repository.git("ls-remote", "--quiet", "--refs", "--", url, *refs)
    if done.code:
        raise judge_line(done) or Unavailable(f"can't read the remote: {last_line(done)}", code="git_failed")
    pairs = [line.split("\t", 1) for line in done.out.splitlines() if "\t" in line]
    return {ref: object_id for object_id, ref in pairs if ref in refs}


def judge_line(done: Ended) -> Rejected | Unavailable | None:
    """Tell whether git never reached the remote, or wasn't let in: nothing happened. None where that isn't certain."""
    said = "\n".join(_own_lines(done))
    if MAYBE_SENT.search(said):
        return None
    if NO_PERMISSION.search(said):
        return Rejected(last_line(done), code="no_permission")
    if NO_NETWORK.search(said):
        return Unavailable(last_line(done), code="no_network")
    return None


def _own_lines(done: Ended) -> list[str]:
    """Return what git itself said: what the remote's hooks print may be any words, and proves nothing."""
    lines = [line.strip() for line in done.err.splitlines()]
    return [line for line in lines if line and not line.startswith("remote:")]


def last_line(done: Ended) -> str:
    """Return what git said went wrong, without the advice that follows it."""
    lines = _own_lines(done)
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:"))]
    return CREDENTIALS.sub("", (telling or lines or [f"git ended with {done.code}"])[0])


def trailer(key: str) -> str:
    """Return the line by which what an operation made is known."""
    return f"Saga-Key: {key}"


def read_ref(repository: Repository, ref: str) -> str | None:
    """Return where a ref stands, None where there is none."""
    return repository.answer("rev-parse", "--verify", "--quiet", "--end-of-options", ref)


def shorten(object_id: str | None) -> str:
    """Return an id as people read it."""
    return "nothing" if object_id is None else object_id[:10]
