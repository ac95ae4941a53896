"""The tools that are always there: `shell.*` and `time.*`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sagactl.tools import timers
from sagactl.tools.kind import VERSION
from sagactl.tools.plugin import Loaded, Plugin
from sagactl.tools.shell.kinds import ShellTools
from sagactl.tools.shell.processes import Processes

PLUGIN: Final = "built-in"


class BuiltIn:
    """The built-in tools of one project.

    Args:
        calls: The folder where commands under way are noted, beside the log, so that whoever resumes finds it.
        boot_id: Tells this boot of the machine, and this pid namespace, from others.
        make_folder: Makes the folder where it is missing, in its own way; may raise OSError.
    """

    def __init__(
        self, calls: Path, boot_id: Callable[[], str], make_folder: Callable[[Path], None] | None = None
    ) -> None:
        self.processes = Processes(calls, boot_id, make_folder)
        self._shell = ShellTools(self.processes)

    def load(self) -> Loaded:
        """Return the tools as those of a plugin."""
        shell = self._shell
        functions = (shell.run, shell.run_idempotent, shell.run_probed, shell.undo, shell.probe)
        plugin = Plugin(PLUGIN, "sagactl", __file__, VERSION, description="What every project has.")
        return Loaded(plugin, (*functions, timers.sleep, timers.wait_until))

    def end_orphans(self, run_id: str) -> None:
        """End what calls of earlier drivers left running; raises BusyError where that can't be done (E17)."""
        self.processes.end_orphans(run_id)

    def close(self) -> None:
        """Let go of what calls needed."""
        self.processes.close()
