"""Git: tags and pushes of a release in a real repository, each with an undo that touches nothing of anybody else.

    git.check         looks at the repository and its remote before a release; the tag must be free
    git.tag           makes an annotated tag; its message names the operation, so an undo knows its own
    git.push          moves refs of the remote, all or none, from the values that they had to new ones
    git.restore_refs  puts them back to exactly those values; what somebody else has moved since is left alone: rejected

Where git can't say that nothing happened (it was killed, or the line broke, while it pushed) the outcome is unknown and
the probe looks at the remote. `git` is called without a shell, never asks for a password and uses the credentials of
whoever runs sagactl. Rejected: a tag that is taken, a remote that moved on, no permission. Unavailable: no network.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypedDict

from sagactl import CallContext, CannotTell, Done, NotDone, Rejected, Unavailable, tool

from ._programs import Ended, alone, run_program

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


class Release(TypedDict):
    """What a release begins with: the commit, and where the branch stands on the remote (null: nowhere)."""

    commit: str
    branch: str | None


class Tag(TypedDict):
    """An annotated tag: its name and the id of the tag object."""

    name: str
    object: str


class Update(TypedDict):
    """A ref of the remote, as it was (null: absent) and as it shall be."""

    ref: Annotated[str, {"pattern": "^refs/(heads|tags)/."}]
    old: MaybeObjectId
    new: ObjectId


class Pushed(TypedDict):
    """The refs that a push has moved; those that stood there already are not among them."""

    moved: list[str]


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

    def git(self, *arguments: str, text: str = "") -> Ended:
        """Run git here, whatever it ends with."""
        return _git(self.context, self.folder, *arguments, text=text, inherits=self.lock)

    def answer(self, *arguments: str) -> str | None:
        """Return what git answers, None where it fails."""
        done = self.git(*arguments)
        return done.out.strip() if done.code == 0 else None

    def locked(self, lock: int) -> Repository:
        """Return the same repository, where git inherits *lock*."""
        return Repository(self.folder, self.git_folder, self.context, (lock,))


def _git(context: CallContext, folder: Path, *arguments: str, text: str = "", inherits: tuple[int, ...] = ()) -> Ended:
    inherited = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_REPOSITORY}
    environment = {
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        **inherited,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "LC_ALL": "C",  # failures are told apart by git's own words
    }
    try:
        return run_program(
            context, ["git", *arguments], folder=folder, environment=environment, text=text, inherits=inherits
        )
    except FileNotFoundError as error:
        raise Rejected(f"can't run git in {folder}: {error.strerror}", code="no_git") from None


def _open(context: CallContext, repository: str) -> Repository:
    folder = context.project / repository
    if not folder.is_dir():
        raise Rejected(f"no folder {repository}", code="no_repository")
    done = _git(context, folder, "rev-parse", "--absolute-git-dir")
    if done.code:
        raise Rejected(f"{repository} is no git repository: {_last_line(done)}", code="no_repository")
    return Repository(folder, Path(done.out.strip()), context)


def _check_ref(repository: Repository, ref: str) -> str:
    if "/-" in ref or repository.git("check-ref-format", ref).code:
        raise Rejected(f"git doesn't allow the name {ref}", code="bad_name")
    return ref


def _find_url(repository: Repository, remote: str) -> str:
    """Return where a push to *remote* goes, since fetches may come from elsewhere."""
    if remote.startswith("-"):
        raise Rejected(f"{remote} can't be a remote", code="bad_name")
    if url := repository.answer("remote", "get-url", "--push", "--", remote):
        return url
    if "/" in remote:
        return remote
    raise Rejected(f"no remote named {remote}", code="no_remote")


def _look(repository: Repository, url: str, *refs: str) -> dict[str, str]:
    """Return where those of *refs* that there are stand on the remote."""
    done = repository.git("ls-remote", "--quiet", "--refs", "--", url, *refs)
    if done.code:
        raise _judge_line(done) or Unavailable(f"can't read the remote: {_last_line(done)}", code="git_failed")
    pairs = [line.split("\t", 1) for line in done.out.splitlines() if "\t" in line]
    return {ref: object_id for object_id, ref in pairs if ref in refs}


def _judge_line(done: Ended) -> Rejected | Unavailable | None:
    """Tell whether git never reached the remote, or wasn't let in: nothing happened. None where that isn't certain."""
    said = "\n".join(_own_lines(done))
    if MAYBE_SENT.search(said):
        return None
    if NO_PERMISSION.search(said):
        return Rejected(_last_line(done), code="no_permission")
    if NO_NETWORK.search(said):
        return Unavailable(_last_line(done), code="no_network")
    return None


def _own_lines(done: Ended) -> list[str]:
    """Return what git itself said: what the remote's hooks print may be any words, and proves nothing."""
    lines = [line.strip() for line in done.err.splitlines()]
    return [line for line in lines if line and not line.startswith("remote:")]


def _last_line(done: Ended) -> str:
    """Return what git said went wrong, without the advice that follows it."""
    lines = _own_lines(done)
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:"))]
    return CREDENTIALS.sub("", (telling or lines or [f"git ended with {done.code}"])[0])


@tool("git.check", read_only=True)
def check(
    context: CallContext,
    *,
    branch: Name,
    tag: Name,
    repository: str = ".",
    remote: Name = "origin",
    revision: Name = "HEAD",
) -> Release:
    """Look at a repository before a release: nothing is uncommitted, and the tag is free here and on the remote.

    Args:
        context: The call.
        branch: The branch of the remote that shall have the release.
        tag: The tag that the release shall have.
        repository: Its folder, seen from the project.
        remote: Name of the remote, or where it is.
        revision: What is to be released.
    """
    here = _open(context, repository)
    branch_ref, tag_ref = _check_ref(here, f"refs/heads/{branch}"), _check_ref(here, f"refs/tags/{tag}")
    commit = here.answer("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise Rejected(f"no commit {revision}", code="no_commit")
    if here.answer("status", "--porcelain", "--untracked-files=no"):
        raise Rejected("changes are not committed; what is built wouldn't be what is tagged", code="not_committed")
    there = _look(here, _find_url(here, remote), branch_ref, tag_ref)
    if tag_ref in there or _read_ref(here, tag_ref):
        raise Rejected(f"there is a tag {tag} already", code="tag_exists")
    return {"commit": commit, "branch": there.get(branch_ref)}


@tool("git.check_head", read_only=True)
def check_head(context: CallContext, commit: ObjectId, repository: str = ".") -> Release:
    """Make sure that the work tree is still at *commit*: a run that is resumed may find another one checked out."""
    here = _open(context, repository)
    head = here.answer("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head != commit:
        raise Rejected(f"the work tree is at {_short(head)} now, not at {_short(commit)}", code="moved")
    return {"commit": commit, "branch": None}


@tool(
    "git.tag",
    compensation="git.delete_tag",
    compensation_with={"repository": "${{ args.repository }}", "name": "${{ args.name }}"},
    probe="git.find_tag",
)
def make_tag(context: CallContext, name: Name, commit: ObjectId, message: str = "", repository: str = ".") -> Tag:
    """Make an annotated tag; its message ends with the key of the operation."""
    here = _open(context, repository)
    ref = _check_ref(here, f"refs/tags/{name}")
    with alone(context, here.git_folder) as lock:
        text = f"{message or name}\n\n{_trailer(context.idempotency_key)}\n"
        options = ("--annotate", "--cleanup=verbatim", "--file=-")
        done = here.locked(lock).git("tag", *options, "--", name, commit, text=text)
        found = _find_own(here, ref, context.idempotency_key)
    if found is not None:  # made now, or by an earlier try
        return {"name": name, "object": found}
    if _read_ref(here, ref):
        raise Rejected(f"there is a tag {name} already", code="tag_exists")
    if "cannot lock ref" in done.err:
        raise Unavailable(_last_line(done), code="busy")
    raise Rejected(_last_line(done), code="git_refused")


@tool("git.delete_tag", null_safe=True)
def delete_tag(context: CallContext, name: Name, repository: str = ".") -> Undone:
    """Delete the tag that an operation made; somebody else's tag of that name stays."""
    here = _open(context, repository)
    ref = _check_ref(here, f"refs/tags/{name}")
    with alone(context, here.git_folder) as lock:
        own = _find_own(here, ref, context.forward_key)
        if own is None:
            return {"status": "nothing_of_ours"}
        done = here.locked(lock).git("update-ref", "-d", ref, own)  # only if it is still that object
        if done.code:
            raise Unavailable(_last_line(done), code="busy")
    return {"status": "deleted"}


@tool("git.find_tag", read_only=True)
def find_tag(context: CallContext, name: Name, repository: str = ".") -> Done | NotDone:
    """Find out whether an operation made its tag."""
    here = _open(context, repository)
    with alone(context, here.git_folder):
        own = _find_own(here, _check_ref(here, f"refs/tags/{name}"), context.forward_key)
    return NotDone() if own is None else Done({"name": name, "object": own})


def _trailer(key: str) -> str:
    return f"Saga-Key: {key}"


def _read_ref(repository: Repository, ref: str) -> str | None:
    return repository.answer("rev-parse", "--verify", "--quiet", "--end-of-options", ref)


def _find_own(repository: Repository, ref: str, key: str) -> str | None:
    """Return the object of a tag that the operation of *key* made."""
    object_id = _read_ref(repository, ref)
    if object_id is None:
        return None
    content = repository.answer("cat-file", "tag", object_id) or ""  # a light tag is no tag object, and not ours
    return object_id if _trailer(key) in content.splitlines() else None


@tool(
    "git.push",
    compensation="git.restore_refs",
    compensation_with={
        "repository": "${{ args.repository }}",
        "remote": "${{ args.remote }}",
        "updates": "${{ args.updates }}",
    },
    probe="git.find_push",
)
def push(context: CallContext, updates: list[Update], repository: str = ".", remote: Name = "origin") -> Pushed:
    """Move refs of the remote, all or none, each from the value that it must still have; branches only forward."""
    here = _open(context, repository)
    url = _find_url(here, remote)
    changes = [update for update in updates if update["old"] != update["new"]]
    with alone(context, here.git_folder) as lock:
        there = _look(here, url, *(_check_ref(here, update["ref"]) for update in changes))
        if any(there.get(update["ref"]) != update["new"] for update in changes):
            for update in changes:
                _check_forward(here, update, there.get(update["ref"]))
                if here.answer("cat-file", "-e", update["new"]) is None:
                    why = "isn't in this repository: was it made on another machine?"
                    raise Rejected(f"{_short(update['new'])}, for {update['ref']}, {why}", code="not_here")
            _push(here.locked(lock), url, {u["ref"]: (u["old"], u["new"]) for u in changes})
    return {"moved": [update["ref"] for update in changes]}


def _check_forward(repository: Repository, update: Update, current: str | None) -> None:
    ref, old = update["ref"], update["old"]
    if current != old:
        raise Rejected(f"{ref} is at {_short(current)}, not at {_short(old)} any more", code="moved_on")
    if old is None or not ref.startswith("refs/heads/"):
        return
    code = repository.git("merge-base", "--is-ancestor", old, update["new"]).code
    if code:
        why = "doesn't follow it" if code == 1 else "can't be compared with it: fetch first"
        raise Rejected(f"{ref} is at {_short(old)}, and {_short(update['new'])} {why}", code="not_forward")


def _short(object_id: str | None) -> str:
    return "nothing" if object_id is None else object_id[:10]


def _push(repository: Repository, url: str, moves: dict[str, tuple[str | None, str | None]]) -> None:
    """Move each ref from its first value to its second; the remote compares and sets them, all or none."""
    leases = [f"--force-with-lease={ref}:{old or ''}" for ref, (old, _) in moves.items()]
    specs = [f"{new or ''}:{ref}" for ref, (_, new) in moves.items()]
    options = ("--porcelain", "--atomic", "--no-follow-tags", "--recurse-submodules=no")
    done = repository.git("push", *options, *leases, "--", url, *specs)
    if done.code == 0:
        return
    refused = [line.split("\t") for line in done.out.splitlines() if line.startswith("!\t")]
    reasons = "; ".join(dict.fromkeys(f"{parts[1]}: {parts[2]}" for parts in refused if len(parts) > 2))
    # git names each ref that wasn't moved: nothing happened, unless it only says that no report has come
    if len(refused) == len(moves) and "remote failure" not in reasons:
        if "lock" in reasons:
            raise Unavailable(reasons, code="busy")
        raise Rejected(reasons, code="remote_refused")
    raise _judge_line(done) or ConnectionError(_last_line(done))


@tool("git.restore_refs", null_safe=True)
def restore_refs(context: CallContext, updates: list[Update], repository: str = ".", remote: Name = "origin") -> Undone:
    """Put refs of the remote back to what they were; where somebody has moved one since, nothing is touched."""
    here = _open(context, repository)
    url = _find_url(here, remote)
    changes = [update for update in updates if update["old"] != update["new"]]
    with alone(context, here.git_folder) as lock:
        there = _look(here, url, *(_check_ref(here, update["ref"]) for update in changes))
        moved = [u for u in changes if there.get(u["ref"]) != u["old"]]
        for update in moved:
            if there.get(update["ref"]) != update["new"]:
                found = _short(there.get(update["ref"]))
                raise Rejected(f"{update['ref']} is at {found}: somebody has moved it since", code="moved_on")
        if not moved:
            return {"status": "nothing_to_restore"}
        for update in moved:
            if (
                update["old"] and here.answer("cat-file", "-e", update["old"]) is None
            ):  # a fresh clone on another machine
                here.git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", url, update["ref"])
        _push(here.locked(lock), url, {u["ref"]: (u["new"], u["old"]) for u in moved})
    return {"status": "restored"}


@tool("git.find_push", read_only=True)
def find_push(
    context: CallContext, updates: list[Update], repository: str = ".", remote: Name = "origin"
) -> Done | NotDone | CannotTell:
    """Find out whether a push arrived: it moves all refs or none, so one that is as it was says no."""
    here = _open(context, repository)
    changes = [update for update in updates if update["old"] != update["new"]]
    with alone(context, here.git_folder):
        refs = [_check_ref(here, update["ref"]) for update in changes]
        there = _look(here, _find_url(here, remote), *refs)
    if any(there.get(update["ref"]) == update["old"] for update in changes):
        return NotDone()
    if changes and not any(there.get(update["ref"]) == update["new"] for update in changes):
        return CannotTell("every ref has been moved by somebody else since")
    return Done({"moved": refs})
