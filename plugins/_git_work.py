"""What the plugin git does to branches: make them, commit on them, merge into them, and take that back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, Unavailable, tool

from ._git import (
    MaybeObjectId,
    Name,
    ObjectId,
    Repository,
    Undone,
    check_ref,
    last_line,
    open_repository,
    read_ref,
    shorten,
    trailer,
)
from ._programs import Ended, alone

NOWHERE: Final = ""
"""To git: the ref must not be there yet."""

CLOCKS_DIFFER: Final = timedelta(days=1)
"""How far the clock of the machine that made a commit may be behind that of the one which looks for it."""

PathText = Annotated[str, {"pattern": "^[^-:]", "maxLength": 1_000}]
Paths = Annotated[list[PathText], {"minItems": 1, "maxItems": 1_000}]
MaybePaths = Annotated[list[PathText] | None, {"minItems": 1, "maxItems": 1_000}]


class Commit(TypedDict):
    """A commit that was made on a branch, and the one that it follows."""

    commit: str
    parent: str


class Branch(TypedDict):
    """A branch and where it stands."""

    name: str
    commit: str


@tool(
    "git.branch",
    compensation="git.delete_branch",
    compensation_with={
        "repository": "${{ args.repository }}",
        "name": "${{ args.name }}",
        "commit": "${{ args.commit }}",
        "made": "${{ output.commit }}",
    },
    probe="git.find_branch",
)
def make_branch(context: CallContext, name: Name, commit: ObjectId, repository: str = ".") -> Branch:
    """Make a branch at a commit; its reflog begins with the key of the operation."""
    here = open_repository(context, repository)
    ref = check_ref(here, f"refs/heads/{name}")
    with alone(context, here.git_folder) as lock:
        if not _is_own_branch(here, ref, context.idempotency_key):
            if read_ref(here, ref):
                raise Rejected(f"there is a branch {name} already", code="branch_exists")
            if here.git("cat-file", "-e", f"{commit}^{{commit}}").code:
                raise Rejected(f"no commit {shorten(commit)}", code="no_commit")
            reason = trailer(context.idempotency_key)
            _settle(here.locked(lock).git("update-ref", "--create-reflog", "-m", reason, ref, commit, NOWHERE))
    return {"name": name, "commit": commit}


@tool("git.delete_branch", null_safe=True)
def delete_branch(
    context: CallContext, name: Name, commit: ObjectId, repository: str = ".", made: MaybeObjectId = None
) -> Undone:
    """Delete the branch that an operation made; one of somebody else, or with commits of somebody else, stays."""
    here = open_repository(context, repository)
    ref = check_ref(here, f"refs/heads/{name}")
    with alone(context, here.git_folder) as lock:
        current = read_ref(here, ref)
        if current is None or not _is_own_branch(here, ref, context.forward_key):
            if made is not None and current == commit:
                raise Rejected(f"nothing tells whose branch {name} is: its reflog is gone", code="not_certain")
            if other := _find_renamed(here, context.forward_key):
                raise Rejected(f"{name} is called {other} now", code="moved_on")
            return {"status": "nothing_of_ours"}
        if current != commit:
            raise Rejected(f"{name} is at {shorten(current)}: somebody has committed on it", code="moved_on")
        if ref in _list_checked_out(here):
            raise Rejected(f"{name} is checked out", code="checked_out")
        _settle(here.locked(lock).git("update-ref", "-d", ref, commit))
    return {"status": "deleted"}


@tool("git.find_branch", read_only=True)
def find_branch(context: CallContext, name: Name, commit: ObjectId, repository: str = ".") -> Done | NotDone:
    """Find out whether an operation made its branch."""
    here = open_repository(context, repository)
    with alone(context, here.git_folder):
        is_own = _is_own_branch(here, check_ref(here, f"refs/heads/{name}"), context.forward_key)
    return Done({"name": name, "commit": commit}) if is_own else NotDone()


@tool(
    "git.commit",
    compensation="git.take_back",
    compensation_with={
        "repository": "${{ args.repository }}",
        "branch": "${{ args.branch }}",
        "paths": "${{ args.paths }}",
        "made": "${{ output.commit }}",
    },
    probe="git.find_commit",
)
def make_commit(context: CallContext, branch: Name, paths: Paths, message: str, repository: str = ".") -> Commit:
    """Commit files of the work tree as they are, new and deleted ones too, on the branch that is checked out.

    Args:
        context: The call.
        branch: The branch that must be checked out.
        paths: Files and folders, seen from the repository.
        message: What the commit says; it ends with the key of the operation.
        repository: Its folder, seen from the project.
    """
    here = open_repository(context, repository)
    ref = check_ref(here, f"refs/heads/{branch}")
    with alone(context, here.git_folder) as lock:
        own = _find_own(here, ref, context.idempotency_key)
        if own is None:
            parent = _check_ready(here, ref, branch)
            tree = _write_tree(here.locked(lock), parent, paths)
            own = _move_branch(here.locked(lock), ref, tree, (parent,), message)
        if not _complete(here.locked(lock), ref, own, paths):
            raise RuntimeError(f"{shorten(own)} is committed, and the index can't be written: is another git at work?")
        return _describe(here, own)


@tool(
    "git.merge",
    compensation="git.take_back",
    compensation_with={
        "repository": "${{ args.repository }}",
        "branch": "${{ args.branch }}",
        "made": "${{ output.commit }}",
    },
    probe="git.find_commit",
)
def merge(context: CallContext, branch: Name, revision: Name, message: str = "", repository: str = ".") -> Commit:
    """Merge a revision into a branch that isn't checked out; always with a commit, and never with a conflict.

    Args:
        context: The call.
        branch: The branch that moves.
        revision: What is merged into it.
        message: What the commit says.
        repository: Its folder, seen from the project.
    """
    here = open_repository(context, repository)
    ref = check_ref(here, f"refs/heads/{branch}")
    with alone(context, here.git_folder) as lock:
        own = _find_own(here, ref, context.idempotency_key)
        if own is None:
            if ref in _list_checked_out(here):
                raise Rejected(f"{branch} is checked out: its files would have to change too", code="checked_out")
            ours = _read_commit(here, ref)
            theirs = _read_commit(here, revision)
            if here.git("merge-base", "--is-ancestor", theirs, ours).code == 0:
                raise Rejected(f"{branch} has {revision} already", code="nothing_to_merge")
            tree = _merge_trees(here.locked(lock), ours, theirs)
            own = _move_branch(
                here.locked(lock), ref, tree, (ours, theirs), message or f"Merge {revision} into {branch}"
            )
        return _describe(here, own)


@tool("git.take_back", null_safe=True)
def take_back(
    context: CallContext, branch: Name, paths: MaybePaths = None, repository: str = ".", made: MaybeObjectId = None
) -> Undone:
    """Put a branch back to before the commit that an operation made; the files of the work tree stay as they are.

    Args:
        context: The call.
        branch: The branch that has the commit.
        paths: As for the action.
        repository: Its folder, seen from the project.
        made: The commit, where it is known that there was one.
    """
    here = open_repository(context, repository)
    ref = check_ref(here, f"refs/heads/{branch}")
    with alone(context, here.git_folder) as lock:
        _clear_index(here)
        own = _choose_own(here, ref, made)
        if own is None:
            return {"status": "nothing_of_ours"}
        if not paths and ref in _list_checked_out(here):
            raise Rejected(f"{branch} is checked out by now", code="checked_out")
        # the index first: with the branch goes what tells that there is something to undo
        _bring_index_along(here.locked(lock), ref, own, f"{own}^", paths or [])
        said, old = _say_undone(context.forward_key), _read_commit(here, f"{own}^")
        _settle(here.locked(lock).git("update-ref", "--create-reflog", "-m", said, ref, old, own))
    return {"status": "taken_back"}


def _choose_own(repository: Repository, ref: str, made: str | None) -> str | None:
    """Return the commit to take back, at which the branch stands; None where there is none, or none any more.

    Raises Rejected where what was made is neither there nor taken back: somebody has amended it, renamed the branch, or
    committed on top.
    """
    key = repository.context.forward_key
    own, is_undone = _trace(repository, ref, key)
    if is_undone:
        return None
    own, current = made or own, read_ref(repository, ref)
    name = ref.removeprefix("refs/heads/")
    if own is None:
        if _is_on_any_branch(repository, key):
            raise Rejected(f"what was committed on {name} is on another branch now", code="moved_on")
        return None
    if current == own:
        return own
    if current is not None and current == read_ref(repository, f"{own}^") and not _is_on_any_branch(repository, key):
        return None  # somebody has put it back already
    stands = "is gone" if current is None else f"is at {shorten(current)}"
    raise Rejected(f"{name} {stands}, not at {shorten(own)}: somebody has changed it since", code="moved_on")


@tool("git.find_commit", read_only=True)
def find_commit(context: CallContext, branch: Name, paths: MaybePaths = None, repository: str = ".") -> Done | NotDone:
    """Find out whether an operation made its commit; completes what a call that was broken off has left."""
    here = open_repository(context, repository)
    ref = check_ref(here, f"refs/heads/{branch}")
    with alone(context, here.git_folder) as lock:
        _clear_index(here)
        own = _find_own(here, ref, context.forward_key)
        if own is None:
            return NotDone()
        _complete(here.locked(lock), ref, own, paths or [])
        return Done(_describe(here, own))


def _is_own_branch(repository: Repository, ref: str, key: str) -> bool:
    """Tell whether a branch is there, and its reflog says that the operation of *key* made it."""
    said = repository.answer("log", "--walk-reflogs", "--format=%gs", ref, "--") if read_ref(repository, ref) else None
    return trailer(key) in (said or "").splitlines()


def _find_renamed(repository: Repository, key: str) -> str | None:
    """Return the name of a branch whose reflog says that the operation made it, whatever it was called then."""
    pattern = ("--walk-reflogs", "--fixed-strings", f"--grep-reflog={trailer(key)}")
    said = repository.answer("log", *pattern, "--branches", "--format=%gs%x00%gD") or ""
    found = [entry.partition("\x00") for entry in said.splitlines()]
    return next((where.partition("@{")[0] for what, _, where in found if what == trailer(key)), None)


def _find_own(repository: Repository, ref: str, key: str) -> str | None:
    """Return the commit that the operation of *key* made on a branch, and hasn't taken back."""
    return _trace(repository, ref, key)[0]


def _trace(repository: Repository, ref: str, key: str) -> tuple[str | None, bool]:
    """Return the commit that an operation made on a branch, and whether it was taken back.

    The reflog names the very commit. A message only says that it was made of ours: who amends it keeps our key.
    """
    if read_ref(repository, ref) is None:
        return None, False
    made, undone = trailer(key), _say_undone(key)
    pattern = ("--walk-reflogs", "--fixed-strings", f"--grep-reflog={made}")
    told = repository.answer("log", *pattern, "--format=%H %gs", ref, "--") or ""
    for entry in told.splitlines():  # the latest first
        object_id, _, said = entry.partition(" ")
        if said in {made, undone}:
            return (object_id, False) if said == made else (None, True)
    return _find_by_message(repository, key, ref), False


def _say_undone(key: str) -> str:
    """Return what the reflog says of an undo."""
    return f"undo of {trailer(key)}"


def _is_on_any_branch(repository: Repository, key: str) -> bool:
    """Tell whether any branch has a commit with the key of an operation."""
    return _find_by_message(repository, key, "--branches") is not None


def _find_by_message(repository: Repository, key: str, where: str) -> str | None:
    """Return the commit whose message has the key, looked for no further back than the operation began."""
    since = (repository.context.begun_at - CLOCKS_DIFFER).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted = trailer(key)
    found = repository.git(
        *("log", f"--since={since}", "--fixed-strings", f"--grep={wanted}"),
        *("--format=%H%x00%B%x01", where, "--"),
    )
    if found.code:
        raise Unavailable(last_line(found), code="git_failed")
    for entry in found.out.split("\x01"):
        object_id, _, body = entry.strip().partition("\x00")
        if wanted in body.splitlines():
            return object_id
    return None


def _check_ready(repository: Repository, ref: str, branch: str) -> str:
    """Return where the branch stands; raises Rejected where a commit on it would take along more than it is told."""
    if repository.answer("symbolic-ref", "--quiet", "HEAD") != ref:
        raise Rejected(f"{branch} isn't checked out", code="not_checked_out")
    for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"):
        if read_ref(repository, name):
            raise Rejected(f"{name} is there: something is being merged", code="in_progress")
    parent = _read_commit(repository, ref)
    if repository.git("diff-index", "--cached", "--quiet", parent, "--").code:
        raise Rejected("something is staged: it would be unstaged by the undo", code="staged")
    return parent


def _write_tree(repository: Repository, parent: str, paths: Sequence[str]) -> str:
    """Write what the paths hold now, and besides what *parent* has; the repository's own index isn't touched."""
    aside = repository.with_index(_name_index(repository))
    try:
        _settle(aside.git("read-tree", parent))
        _settle(aside.git("--literal-pathspecs", "add", "--all", "--", *paths))
        tree = _settle(aside.git("write-tree"))
    finally:
        _clear_index(repository)
    if tree == repository.answer("rev-parse", f"{parent}^{{tree}}"):
        raise Rejected("the paths are as they were committed", code="nothing_to_commit")
    return tree


def _name_index(repository: Repository) -> Path:
    """Return the file of an index that is the operation's own."""
    name = hashlib.sha256(repository.context.forward_key.encode()).hexdigest()[:16]
    return repository.git_folder / f"sagactl-{name}.index"


def _clear_index(repository: Repository) -> None:
    """Remove that index, also where a call was broken off while it had one."""
    file = _name_index(repository)
    for each in (file, Path(f"{file}.lock")):
        each.unlink(missing_ok=True)


def _merge_trees(repository: Repository, ours: str, theirs: str) -> str:
    done = repository.git("merge-tree", "--write-tree", "--name-only", "--no-messages", ours, theirs)
    tree, *conflicts = done.out.splitlines() or [""]
    if done.code == 1:
        raise Rejected(f"conflicts in {', '.join(conflicts[:5])}", code="conflict")
    _settle(done)
    return tree


def _move_branch(repository: Repository, ref: str, tree: str, parents: Sequence[str], message: str) -> str:
    """Commit a tree and move a branch to it, where it still stands at the first parent."""
    key = repository.context.idempotency_key
    follows = [word for parent in parents for word in ("-p", parent)]
    text = f"{message.strip() or 'Commit'}\n\n{trailer(key)}\n"
    commit = _settle(repository.at_this_time().git("commit-tree", tree, *follows, "-F", "-", text=text))
    _settle(repository.git("update-ref", "--create-reflog", "-m", trailer(key), ref, commit, parents[0]))
    return commit


def _complete(repository: Repository, ref: str, own: str, paths: Sequence[str]) -> bool:
    """Bring the index along with a commit that was made; tells whether it could be written."""
    if read_ref(repository, ref) == own:
        try:
            _bring_index_along(repository, ref, f"{own}^", own, paths)
        except (Rejected, Unavailable):
            return False
    return True


def _bring_index_along(repository: Repository, ref: str, old: str, new: str, paths: Sequence[str]) -> None:
    """Let the index have of the paths what *new* has, where it still has what *old* has: nobody has staged since."""
    if not paths or repository.answer("symbolic-ref", "--quiet", "HEAD") != ref:
        return
    literal = ("--literal-pathspecs",)
    if repository.git(*literal, "diff-index", "--cached", "--quiet", old, "--", *paths).code == 0:
        _settle(repository.git(*literal, "reset", "--quiet", new, "--", *paths))


def _describe(repository: Repository, commit: str) -> Commit:
    return {"commit": commit, "parent": _read_commit(repository, f"{commit}^")}


def _read_commit(repository: Repository, revision: str) -> str:
    found = read_ref(repository, f"{revision}^{{commit}}")
    if found is None:
        raise Rejected(f"no commit {revision}", code="no_commit")
    return found


def _list_checked_out(repository: Repository) -> set[str]:
    """Return the branches that are checked out in some work tree; a bare repository has none."""
    listed = repository.answer("worktree", "list", "--porcelain") or ""
    trees = [entry.splitlines() for entry in listed.split("\n\n")]
    return {
        line.removeprefix("branch ")
        for lines in trees
        if "bare" not in lines
        for line in lines
        if line.startswith("branch ")
    }


def _settle(done: Ended) -> str:
    """Return what git said; raises where it failed, which it does before anything has happened."""
    if done.code == 0:
        return done.out.strip()
    said = last_line(done)
    if "lock" in said or "index.lock" in done.err:
        raise Unavailable(said, code="busy")
    raise Rejected(said, code="git_refused")
