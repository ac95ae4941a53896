"""Deployments: releases side by side in a folder, and links that say which of them is used.

    deploy.read_link   tells where a link points; what an undo goes back to
    deploy.install     copies a release into `releases/VERSION`, so that it is whole or isn't there
    deploy.point       makes a link point to a release, in one instant; only from where it must still point
    deploy.remove, deploy.point_back   undo these two; what is somebody else's stays

A site is a folder with `releases/` and links such as `current` (what the web server serves) and `next`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, TypedDict

from sagactl import CallContext, Done, NotDone, Rejected, tool

from ._programs import alone

Version = Annotated[str, {"pattern": "^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$"}]
Link = Annotated[str, {"pattern": "^[a-z][a-z0-9_-]{0,62}$"}]

RELEASES: Final = "releases"
MARK: Final = ".saga-key"
"""In a release: the operation that installed it."""


class Pointed(TypedDict):
    """Where a link points (null: there is no link)."""

    target: str | None


class Installed(TypedDict):
    """A release that is installed, as a link to it would say."""

    target: str


class Undone(TypedDict):
    """What an undo found and did."""

    status: str


@tool("deploy.read_link", read_only=True)
def read_link(context: CallContext, site: str, link: Link) -> Pointed:
    """Tell where a link points."""
    return {"target": _read(_find_site(context, site) / link)}


@tool(
    "deploy.install",
    compensation="deploy.remove",
    compensation_with={"site": "${{ args.site }}", "version": "${{ args.version }}"},
    probe="deploy.find_installed",
)
def install(context: CallContext, source: str, site: str, version: Version) -> Installed:
    """Copy a folder into the site as a release; a release that there is already stays."""
    releases, origin = _find_site(context, site) / RELEASES, context.project / source
    if not origin.is_dir():
        raise Rejected(f"no folder {source}", code="no_source")
    target = releases / version
    with alone(context, releases.parent):  # a call of an earlier try may still be copying
        if not _is_ours(target, context.idempotency_key):
            if target.exists():
                raise Rejected(f"{version} is installed already", code="release_exists")
            part = _part_of(target, context.idempotency_key)
            shutil.rmtree(part, ignore_errors=True)  # what an earlier try has left
            releases.mkdir(exist_ok=True)
            shutil.copytree(origin, part, symlinks=True)
            (part / MARK).write_text(context.idempotency_key)
            part.rename(target)
    return {"target": f"{RELEASES}/{version}"}


@tool("deploy.remove", null_safe=True)
def remove(context: CallContext, site: str, version: Version) -> Undone:
    """Remove the release that an operation installed, whole or in part; refuse while a link still points to it."""
    folder = _find_site(context, site)
    target = folder / RELEASES / version
    with alone(context, folder):
        shutil.rmtree(_part_of(target, context.forward_key), ignore_errors=True)
        is_ours = _is_ours(target, context.forward_key)
        if is_ours:
            users = [each.name for each in folder.iterdir() if _read(each) == f"{RELEASES}/{version}"]
            if users:
                raise Rejected(f"{users[0]} points to {version}", code="in_use")
            gone = _part_of(target, context.forward_key)
            target.rename(gone)  # from one instant to the next it isn't there
            shutil.rmtree(gone)
    with contextlib.suppress(OSError):
        target.parent.rmdir()
    return {"status": "removed" if is_ours else "nothing_of_ours"}


@tool("deploy.find_installed", read_only=True)
def find_installed(context: CallContext, site: str, version: Version) -> Done | NotDone:
    """Find out whether an operation has installed its release."""
    is_ours = _is_ours(_find_site(context, site) / RELEASES / version, context.forward_key)
    return Done({"target": f"{RELEASES}/{version}"}) if is_ours else NotDone()


@tool(
    "deploy.point",
    compensation="deploy.point_back",
    compensation_with={name: f"${{{{ args.{name} }}}}" for name in ("site", "link", "old", "new")},
    probe="deploy.find_pointed",
)
def point(context: CallContext, *, site: str, link: Link, old: str | None, new: str) -> Pointed:
    """Make a link point to *new*, in one instant, where it still points to *old*."""
    folder = _find_site(context, site)
    if not (folder / new).is_dir():
        raise Rejected(f"no {new}", code="no_release")
    with _locked(folder):
        found = _read(folder / link)
        if found != new:
            if found != old:
                raise Rejected(f"{link} points to {found}, not to {old} any more", code="moved_on")
            _swap(folder / link, new, context.forward_key)
    return {"target": new}


@tool("deploy.point_back", null_safe=True)
def point_back(context: CallContext, *, site: str, link: Link, old: str | None = None, new: str) -> Undone:
    """Make a link point to where it pointed before; one that somebody else has moved since is left alone.

    Where the answer of `deploy.point` was lost, arguments that are null are left out: no *old*, no link.
    """
    folder = _find_site(context, site)
    with _locked(folder):
        found = _read(folder / link)
        if found == old:
            return {"status": "nothing_to_undo"}
        if found != new:
            raise Rejected(f"{link} points to {found}: somebody has moved it since", code="moved_on")
        _swap(folder / link, old, context.forward_key)
    return {"status": "pointed_back"}


@tool("deploy.find_pointed", read_only=True)
def find_pointed(context: CallContext, site: str, link: Link, new: str) -> Done | NotDone:
    """Find out whether a link points to its new target."""
    return Done({"target": new}) if _read(_find_site(context, site) / link) == new else NotDone()


def _find_site(context: CallContext, site: str) -> Path:
    folder = context.project / site
    if not folder.is_dir():
        raise Rejected(f"no folder {site}", code="no_site")
    return folder


def _read(link: Path) -> str | None:
    return os.readlink(link) if link.is_symlink() else None  # noqa: PTH115 - as written, not as a path


def _swap(link: Path, target: str | None, key: str) -> None:
    if target is None:
        link.unlink()
        return
    part = _part_of(link, key)
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)


def _part_of(path: Path, key: str) -> Path:
    """Return a name beside *path*, of the operation alone, for what isn't whole yet."""
    return path.with_name(f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.part")


def _is_ours(release: Path, key: str) -> bool:
    try:
        return (release / MARK).read_text() == key
    except (FileNotFoundError, NotADirectoryError):
        return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
