"""The processes that calls start: each noted before it begins, supervised, and ended for sure.

There is one of these for a project. Commands and isolated tools share its spawner and its folder of notes, so whoever
resumes a run ends what is left of either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sagactl.once import once_property
from sagactl.tools.kind import Unsure
from sagactl.tools.shell.notes import list_notes

if TYPE_CHECKING:
    from sagactl.tools.shell.launcher import Command, Launcher, Piped
    from sagactl.tools.shell.orphans import CallFile, CallFiles

_LOOK_SECONDS: Final = 0.5


class Processes:
    """Starts what calls need, by way of one spawner, which is started when the first of them is.

    Args:
        folder: Where what is under way is noted.
        boot_id: Tells this boot of the machine, and this pid namespace, from others.
        make_folder: Makes the folder where it is missing, in its own way; may raise OSError.
    """

    def __init__(
        self, folder: Path, boot_id: Callable[[], str], make_folder: Callable[[Path], None] | None = None
    ) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._make_folder = make_folder

    def make_file(self, run_id: str) -> CallFile:
        """Return a place for the note about a new call; raises OSError."""
        return self._files.make(run_id)

    def run(self, command: Command, hear: Callable[[str, bytes], None], must_end: Callable[[], bool]) -> int:
        """Run *command* and return its wait status once nothing of it is left; the arguments are the launcher's.

        Raises NotStartedError where nothing began, and Unsure where the supervisor was lost.
        """
        from sagactl.tools.shell.launcher import SupervisorLostError

        try:
            return self._launcher.run(command, hear, must_end)
        except SupervisorLostError:
            self._end_for_sure(command.file)
            name = command.name or command.argv[0]
            raise Unsure(f"who watched over {name} was killed; all of it was ended", code="supervisor_lost") from None

    def open(self, command: Command) -> Piped:
        """Start *command* to run beside its driver, with pipes to its streams; raises OSError."""
        return self._launcher.open(command)

    def end_abandoned(self, name: str) -> None:
        """End what drivers that are gone left running under *name*; raises BusyError where one can't be ended (E17)."""
        if list_notes(self._folder, name):
            self._files.end_abandoned(name)

    def end_orphans(self, run_id: str) -> None:
        """End what calls of earlier drivers left running; raises BusyError where one can't be ended (E17)."""
        if list_notes(self._folder, run_id):
            self._files.end_orphans(run_id)

    def close(self) -> None:
        """Let the spawner end."""
        if "_launcher" in vars(self):
            self._launcher.close()

    def _end_for_sure(self, file: Path | None) -> None:
        """Return only when nothing of the call is left, however long that takes (E14)."""
        while file is not None and self._files.end_call(file) is not None:
            time.sleep(_LOOK_SECONDS)

    @once_property
    def _files(self) -> CallFiles:
        from sagactl.tools.shell.orphans import CallFiles

        given = () if self._make_folder is None else (self._make_folder,)
        return CallFiles(self._folder, self._boot_id, *given)

    @once_property
    def _launcher(self) -> Launcher:
        from sagactl.tools.shell.launcher import Launcher

        return Launcher()
