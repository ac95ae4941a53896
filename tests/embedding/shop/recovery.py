"""Carry on with the runs that a crash, or a stop, has broken off."""

from sagactl import BusyError, Ending, Project


def carry_on(project: Project) -> list[Ending]:
    """Drive all unfinished runs that no other process has."""
    with project.driver() as driver:
        for run_id in project.unfinished():
            try:
                driver.resume(run_id)
            except BusyError:
                print(run_id, "is driven by another process")
        return list(driver.drive().values())
