"""Git: commits, branches, merges, tags and pushes, each with an undo that touches nothing of anybody else.

    git.check         looks at the repository and its remote before a release; the tag must be free
    git.commit        commits files of the work tree on the branch that is checked out
    git.merge         merges a revision into a branch that isn't checked out, as a commit of its own
    git.take_back     undoes these two: the branch is where it was, and the files of the work tree stay as they are
    git.branch        makes a branch; git.delete_branch undoes it where nobody has committed on it
    git.tag           makes an annotated tag; git.delete_tag undoes it
    git.push          moves refs of the remote, all or none, from the values that they had to new ones
    git.restore_refs  puts them back to exactly those values; what somebody else has moved since is left alone: rejected

What an operation made is known by its key: in the message of a tag or commit, in the reflog of a branch. A commit is
made of the paths that are named and of nothing else, where nothing is staged; hooks aren't run. On top of what somebody
else has committed nothing is taken back, nor what somebody has amended, renamed or moved since: rejected.

A repository is seen from the project and its folder lies within it, whatever the input says: `..`, an absolute path or
a link that leads out is rejected (`outside`). A project that is part of a larger repository is `.`.

Where git can't say that nothing happened (it was killed, or the line broke, while it pushed) the outcome is unknown and
the probe looks. `git` is called without a shell, never asks for a password and uses the credentials of whoever runs
sagactl. Rejected: a name that is taken, a branch that moved on, a conflict, no permission. Unavailable: no network,
another git at work.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from sagactl import CallContext, CannotTell, Done, NotDone, Rejected, Unavailable, tool

from . import _git_work  # noqa: F401 - its tools are this plugin's
from ._git import (
    MaybeObjectId,
    Name,
    ObjectId,
    Repository,
    Undone,
    check_ref,
    find_url,
    judge_line,
    last_line,
    look_at_remote,
    open_repository,
    read_ref,
    shorten,
    trailer,
)
from ._programs import alone


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
    here = open_repository(context, repository)
    branch_ref, tag_ref = check_ref(here, f"refs/heads/{branch}"), check_ref(here, f"refs/tags/{tag}")
    commit = here.answer("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise Rejected(f"no commit {revision}", code="no_commit")
    if here.answer("status", "--porcelain", "--untracked-files=no"):
        raise Rejected("changes are not committed; what is built wouldn't be what is tagged", code="not_committed")
    there = look_at_remote(here, find_url(here, remote), branch_ref, tag_ref)
    if tag_ref in there or read_ref(here, tag_ref):
        raise Rejected(f"there is a tag {tag} already", code="tag_exists")
    return {"commit": commit, "branch": there.get(branch_ref)}


@tool("git.check_head", read_only=True)
def check_head(context: CallContext, commit: ObjectId, repository: str = ".") -> Release:
    """Make sure that the work tree is still at *commit*: a run that is resumed may find another one checked out."""
    here = open_repository(context, repository)
    head = here.answer("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head != commit:
        raise Rejected(f"the work tree is at {shorten(head)} now, not at {shorten(commit)}", code="moved")
    return {"commit": commit, "branch": None}


@tool(
    "git.tag",
    compensation="git.delete_tag",
    compensation_with={"repository": "${{ args.repository }}", "name": "${{ args.name }}"},
    probe="git.find_tag",
)
def make_tag(context: CallContext, name: Name, commit: ObjectId, message: str = "", repository: str = ".") -> Tag:
    """Make an annotated tag; its message ends with the key of the operation."""
    here = open_repository(context, repository)
    ref = check_ref(here, f"refs/tags/{name}")
    with alone(context, here.git_folder) as lock:
        text = f"{message or name}\n\n{trailer(context.idempotency_key)}\n"
        options = ("--annotate", "--cleanup=verbatim", "--file=-")
        done = here.locked(lock).git("tag", *options, "--", name, commit, text=text)
        found = _find_own(here, ref, context.idempotency_key)
    if found is not None:  # made now, or by an earlier try
        return {"name": name, "object": found}
    if read_ref(here, ref):
        raise Rejected(f"there is a tag {name} already", code="tag_exists")
    if "cannot lock ref" in done.err:
        raise Unavailable(last_line(done), code="busy")
    raise Rejected(last_line(done), code="git_refused")


@tool("git.delete_tag", null_safe=True)
def delete_tag(context: CallContext, name: Name, repository: str = ".") -> Undone:
    """Delete the tag that an operation made; somebody else's tag of that name stays."""
    here = open_repository(context, repository)
    ref = check_ref(here, f"refs/tags/{name}")
    with alone(context, here.git_folder) as lock:
        own = _find_own(here, ref, context.forward_key)
        if own is None:
            return {"status": "nothing_of_ours"}
        done = here.locked(lock).git("update-ref", "-d", ref, own)  # only if it is still that object
        if done.code:
            raise Unavailable(last_line(done), code="busy")
    return {"status": "deleted"}


@tool("git.find_tag", read_only=True)
def find_tag(context: CallContext, name: Name, repository: str = ".") -> Done | NotDone:
    """Find out whether an operation made its tag."""
    here = open_repository(context, repository)
    with alone(context, here.git_folder):
        own = _find_own(here, check_ref(here, f"refs/tags/{name}"), context.forward_key)
    return NotDone() if own is None else Done({"name": name, "object": own})


def _find_own(repository: Repository, ref: str, key: str) -> str | None:
    """Return the object of a tag that the operation of *key* made."""
    object_id = read_ref(repository, ref)
    if object_id is None:
        return None
    content = repository.answer("cat-file", "tag", object_id) or ""  # a light tag is no tag object, and not ours
    return object_id if trailer(key) in content.splitlines() else None


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
    here = open_repository(context, repository)
    url = find_url(here, remote)
    changes = [update for update in updates if update["old"] != update["new"]]
    with alone(context, here.git_folder) as lock:
        there = look_at_remote(here, url, *(check_ref(here, update["ref"]) for update in changes))
        if any(there.get(update["ref"]) != update["new"] for update in changes):
            for update in changes:
                _check_forward(here, update, there.get(update["ref"]))
                if here.answer("cat-file", "-e", update["new"]) is None:
                    why = "isn't in this repository: was it made on another machine?"
                    raise Rejected(f"{shorten(update['new'])}, for {update['ref']}, {why}", code="not_here")
            _push(here.locked(lock), url, {u["ref"]: (u["old"], u["new"]) for u in changes})
    return {"moved": [update["ref"] for update in changes]}


def _check_forward(repository: Repository, update: Update, current: str | None) -> None:
    ref, old = update["ref"], update["old"]
    if current != old:
        raise Rejected(f"{ref} is at {shorten(current)}, not at {shorten(old)} any more", code="moved_on")
    if old is None or not ref.startswith("refs/heads/"):
        return
    code = repository.git("merge-base", "--is-ancestor", old, update["new"]).code
    if code:
        why = "doesn't follow it" if code == 1 else "can't be compared with it: fetch first"
        raise Rejected(f"{ref} is at {shorten(old)}, and {shorten(update['new'])} {why}", code="not_forward")


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
    raise judge_line(done) or ConnectionError(last_line(done))


@tool("git.restore_refs", null_safe=True)
def restore_refs(context: CallContext, updates: list[Update], repository: str = ".", remote: Name = "origin") -> Undone:
    """Put refs of the remote back to what they were; where somebody has moved one since, nothing is touched."""
    here = open_repository(context, repository)
    url = find_url(here, remote)
    changes = [update for update in updates if update["old"] != update["new"]]
    with alone(context, here.git_folder) as lock:
        there = look_at_remote(here, url, *(check_ref(here, update["ref"]) for update in changes))
        moved = [u for u in changes if there.get(u["ref"]) != u["old"]]
        for update in moved:
            if there.get(update["ref"]) != update["new"]:
                found = shorten(there.get(update["ref"]))
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
    here = open_repository(context, repository)
    changes = [update for update in updates if update["old"] != update["new"]]
    with alone(context, here.git_folder):
        refs = [check_ref(here, update["ref"]) for update in changes]
        there = look_at_remote(here, find_url(here, remote), *refs)
    if any(there.get(update["ref"]) == update["old"] for update in changes):
        return NotDone()
    if changes and not any(there.get(update["ref"]) == update["new"] for update in changes):
        return CannotTell("every ref has been moved by somebody else since")
    return Done({"moved": refs})
