"""All checks in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sagactl.app import Project
from sagactl.doctor.check import Check, count, fail, ok, warn
from sagactl.doctor.machine import check_machine
from sagactl.doctor.store import check_store
from sagactl.errors import InvalidError, SagactlError

SECRETS_NAMED_MAX: Final = 5
_SERVER_STATES: Final = {
    "new": "isn't pinned",
    "changed": "isn't what is pinned",
    "removed": "is pinned, and not in the settings",
}


def examine(open_project: Callable[[], Project]) -> Iterator[Check]:
    """Yield a check for everything that is looked at; one that fails doesn't keep the others from being made."""
    yield from check_machine()
    try:
        project = open_project()
    except InvalidError as error:
        yield fail("settings", error.message, error.hint or "sagactl help config")
        return
    with project:
        where = f"project {project.config.project}" if project.config.has_project else "no project here"
        yield ok("settings", where, None if project.config.has_project else "sagactl init demo")
        yield from _check_ways(project)
        yield from check_store(project)
        yield _check_plugins(project)
        yield from _check_library(project)
        yield from _check_servers(project)
        yield from _check_sagas(project)


def _check_ways(project: Project) -> Iterator[Check]:
    """Fail where no run would start because nobody could be told of it."""
    try:
        ways = project.ways
    except InvalidError as error:
        yield fail("alerts", error.message, error.hint or "sagactl help alerts")
        return
    if ways:
        mute = project.find_mute()
        target = "no events" if ways.target is None else "events"
        text = f"{count(len(ways.channels), 'channel')}, {target}"
        if mute:
            said = "; ".join(f"{name}: {reason}" for name, reason in sorted(mute.items()))
            yield warn("alerts", f"{text}; nothing can be sent from here: {said}", "sagactl help alerts")
        else:
            yield ok("alerts", text)


def _check_plugins(project: Project) -> Check:
    try:
        registry = project.registry
    except SagactlError as error:
        return fail("plugins", error.message, error.hint)
    if registry.broken:
        names = ", ".join(sorted({each.name for each in registry.broken}))
        return fail("plugins", f"{len(registry.broken)} broken: {names}", "sagactl tools")
    return ok("plugins", count(len(registry.facts), "tool"))


def _check_library(project: Project) -> Iterator[Check]:
    """Fail where there are tools that are requests, and nothing to send them with: runs wait for them."""
    if project.toolset.http.lacks_library():
        yield fail("http", "HTTP tools can't be called: httpx isn't installed", "pip install 'sagactl[http]'")


def _check_servers(project: Project) -> Iterator[Check]:
    """Say which MCP servers can't be reached, or aren't what is pinned: calls to them would wait."""
    if (servers := project.toolset.servers) is None:
        return
    try:
        looks = servers.look()
    except SagactlError as error:
        yield fail("servers", error.message, error.hint)
        return
    bad = [look for look in looks if look.status != "same"]
    for look in bad:
        what = f"can't be used: {look.error}" if look.error else _SERVER_STATES.get(look.status, look.status)
        hint = "sagactl help secrets" if look.needs_secret else "sagactl tools pin --check"
        yield fail("servers", f"{look.name} {what}", hint)
    if not bad:
        yield ok("servers", f"{count(len(looks), 'MCP server')} reached, as pinned")


def _check_sagas(project: Project) -> Iterator[Check]:
    folder = project.config.project / "sagas"
    files = sorted(folder.glob("*.y*ml")) if folder.is_dir() else []
    bad: list[str] = []
    secrets: dict[str, str] = {}
    warned = 0
    for file in files:
        try:
            loaded = project.load_saga(file)
            warned += bool(loaded.warnings)
            secrets |= project.toolbox.missing_secrets(loaded.saga.secrets_needed)
        except SagactlError:
            bad.append(file.stem)
    if secrets:  # a run would do all that comes before it, and then wait
        said = "; ".join(f"{name}: {reason}" for name, reason in sorted(secrets.items())[:SECRETS_NAMED_MAX])
        yield warn("secrets", f"{count(len(secrets), 'secret')} can't be had here: {said}", "sagactl help secrets")
    if bad:
        yield fail("sagas", f"{len(bad)} of {len(files)} can't be run: {', '.join(bad[:10])}", "sagactl validate")
    elif warned:
        yield warn("sagas", f"{len(files)} right, {warned} of them with warnings", "sagactl validate")
    else:
        yield ok("sagas", f"{len(files)} right" if files else "none in sagas/")
