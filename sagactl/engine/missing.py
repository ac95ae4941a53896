"""Which pinned tools a run can't call here, and why (rule E16)."""

from __future__ import annotations

from sagactl.core.pinned import Misfit, find_misfit
from sagactl.core.saga import Saga, ToolFacts
from sagactl.errors import NotFoundError, PluginError
from sagactl.tools.base import Toolbox

GONE = Misfit("is given by no plugin")


def find_missing_tools(saga: Saga, toolbox: Toolbox) -> dict[str, Misfit]:
    """Return the pinned tools that aren't here, or changed so that the run can't rely on them, each with the reason."""
    found = {name: _find_misfit(saga, pinned, toolbox) for name, pinned in saga.tools.items()}
    return {name: misfit for name, misfit in found.items() if misfit is not None}


def _find_misfit(saga: Saga, pinned: ToolFacts, toolbox: Toolbox) -> Misfit | None:
    try:
        present = toolbox.facts(pinned.name)
    except NotFoundError:
        return GONE
    except PluginError as error:
        return Misfit(error.message.removeprefix(f"tool {pinned.name!r} "))
    if present == pinned:
        return None
    return find_misfit(pinned, present) or _miss_new_secret(saga, present, toolbox)


def _miss_new_secret(saga: Saga, present: ToolFacts, toolbox: Toolbox) -> Misfit | None:
    """Say that a tool needs a secret by now that can't be had: the core looks after those that were pinned (E19)."""
    new = [name for name in present.secrets if name not in saga.secrets_needed]
    missing = toolbox.missing_secrets(new) if new else {}
    reasons = [f"needs the secret {name} by now: {reason}" for name, reason in missing.items()]
    return Misfit(reasons[0]) if reasons else None
