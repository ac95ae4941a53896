"""The small process that starts commands, and its children that each watch over one: run as a script of its own.

    driver ── spawner ──┬── supervisor ── command ── whatever it forks
                        └── supervisor ── command ── ...

The driver has many threads and much memory, so it doesn't fork: it starts the spawner once, and that forks within a
millisecond. Each supervisor is a *subreaper*: a process whose parent has died becomes its child, also one that left its
session and forked twice. So the tree below a supervisor holds all that a command began, and when the supervisor has no
child any more, nothing of it runs. That is what "ended for sure" means.

A supervisor ends its command when the driver says so, and when the driver dies: it watches the driver's process itself
(pidfd), beside the socket between them. First everything gets SIGTERM, after a grace SIGKILL, again and again until
nothing is left. Where the command ends by itself, what it left running is ended the same way. A command dies with its
supervisor (PR_SET_PDEATHSIG: here one thread forks, so the signal is bound to the right one); what is below that
command then falls to the spawner, which is a subreaper too and kills what it never started.

Before the command starts, the supervisor writes a file that says who it is; whoever resumes the run finds what was left
behind by it (see `orphans`). It takes the file away when everything is gone.

Only the standard library, and as little of it as can be: the start counts. And one file, since an interpreter that is
started isolated finds no module beside its script; whoever else here looks at processes borrows its words for them.
"""

from __future__ import annotations

import array
import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from _socket import AF_UNIX, CMSG_LEN, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from typing import Any, NoReturn

FDS = 4
"""What comes with each command: the socket to the driver, and the command's stdin, stdout and stderr."""
SWEEP_SECONDS = 0.02
SWEEP_SECONDS_MAX = 1.0
"""How soon what is left is killed again: first at once, then less and less often, for some things can't be killed."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = range(1, 65)


def main(channel: int, driver: int) -> None:
    """Fork a supervisor for each message on *channel* until the driver is gone, and wait for the last of them."""
    if os.getppid() != driver:
        return
    own = socket(AF_UNIX, SOCK_STREAM, 0, channel)
    life = open_life(driver)
    set_subreaper()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    wake = wake_on(signal.SIGCHLD)
    supervisors: set[int] = set()
    is_driver_there = True
    while is_driver_there or supervisors:
        ready = wait_for([own.fileno(), life, wake] if is_driver_there else [wake], None)
        if wake in ready:
            drain(wake)
            reap_supervisors(supervisors)
        if life in ready:
            is_driver_there = False
        elif own.fileno() in ready:
            descriptors = receive(own)
            is_driver_there = bool(descriptors)
            if descriptors:
                start(own, life, descriptors, supervisors)


def start(own: socket, life: int, descriptors: list[int], supervisors: set[int]) -> None:
    """Fork the supervisor of one command."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            own.close()
            signal.set_wakeup_fd(-1)
            Supervisor(descriptors, life).watch()
            code = 0
        finally:
            os._exit(code)
    supervisors.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)


def reap_supervisors(supervisors: set[int]) -> None:
    """Take in what has ended; what a supervisor that was killed left behind is ours now, and is killed."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            break
        supervisors.discard(pid)
    parents = read_parents()
    for pid, parent in parents.items():
        if parent == os.getpid() and pid not in supervisors:
            for each in [pid, *list_below(pid, parents)]:
                send(each, signal.SIGKILL)


class Supervisor:
    """Watches over one command, from before its start until nothing of it runs."""

    def __init__(self, descriptors: list[int], life: int) -> None:
        self._control = socket(AF_UNIX, SOCK_STREAM, 0, descriptors[0])
        self._standard = descriptors[1:]
        self._life = life
        self._ending_at: float | None = None
        """When SIGTERM has had its time; None while nothing is to end."""
        self._sweep_seconds = SWEEP_SECONDS
        self._note: int | None = None
        self._is_cut_off = False
        self._command = 0
        self._has_exited = False
        set_subreaper()
        self._wake = wake_on(signal.SIGCHLD, signal.SIGTERM)
        self._asked_to_end = False
        signal.signal(signal.SIGTERM, self._on_term)
        self._request = self._read_request()

    def _on_term(self, *_: object) -> None:
        self._asked_to_end = True

    def _read_request(self) -> dict[str, Any]:
        size = int.from_bytes(self._read_exactly(8), "big")
        request: dict[str, Any] = json.loads(self._read_exactly(size))
        return request

    def _read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._control.recv(size - len(data))
            if not part:
                os._exit(1)
            data += part
        return data

    def watch(self) -> None:
        """Start the command and return when it and all that it began are gone."""
        try:
            self._start()
        except OSError as error:
            self._forget()
            self._tell(event="not_started", what="start", errno=error.errno)
            return
        while self._reap():
            self._end_if_due()
            ready = wait_for(self._watched(), self._patience())
            if self._wake in ready:
                drain(self._wake)
            if self._asked_to_end or self._is_over(ready):
                self._begin_to_end()
        self._tell(event="gone")
        self._forget()

    def _watched(self) -> list[int]:
        return [self._wake] if self._is_cut_off else [self._wake, self._life, self._control.fileno()]

    def _is_over(self, ready: set[int]) -> bool:
        """Tell whether the driver wants the command to end, or has ended itself."""
        if self._life in ready:
            self._is_cut_off = True
        if self._control.fileno() in ready and not self._hear():
            self._is_cut_off = True
        return self._is_cut_off or self._asked_to_end

    def _hear(self) -> bool:
        try:
            said = self._control.recv(16)
        except OSError:
            return False
        self._asked_to_end = self._asked_to_end or bool(said)
        return bool(said)

    def _start(self) -> None:
        """Fork the command, note it, and only then let it go."""
        self._open_note()
        read_go, write_go = os.pipe()
        read_error, write_error = os.pipe()
        self._command = os.fork()
        if self._command == 0:
            os.close(write_go)
            self._become_command(read_go, write_error)
        for descriptor in (*self._standard, read_go, write_error):
            os.close(descriptor)
        try:
            self._write_note({"command": [self._command, read_started(self._command)]})
            self._check_wanted()
        except OSError:
            os.close(write_go)  # it ends without having begun
            os.waitpid(self._command, 0)
            raise
        os.write(write_go, b"g")
        os.close(write_go)
        self._report_start(os.read(read_error, 64))
        os.close(read_error)

    def _check_wanted(self) -> None:
        """Raise OSError where the driver is gone, or wants no start any more.

        The note is written before this look: whoever resumes the run has seen the note, or nothing is started.
        """
        if self._is_over(wait_for(self._watched(), 0)):
            raise OSError(errno.ECANCELED, "not wanted any more")

    def _report_start(self, trouble: bytes) -> None:
        if trouble:
            what, number = trouble.decode().split()
            self._tell(event="not_started", what=what, errno=int(number))
        else:
            self._tell(event="started", pid=self._command)

    def _become_command(self, read_go: int, write_error: int) -> NoReturn:
        what = "start"
        try:
            os.setsid()
            die_with_parent()
            restore_signals()
            for number, descriptor in enumerate(self._standard):
                os.dup2(descriptor, number)
            if os.read(read_go, 1) != b"g":
                os._exit(1)
            close_all_but(write_error)
            what = "cwd"
            os.chdir(self._request["cwd"])
            what = "exec"
            execute(self._request["argv"], self._request["env"])
        except (OSError, ValueError) as error:
            os.write(write_error, f"{what} {getattr(error, 'errno', errno.EINVAL)}".encode())
        finally:
            os._exit(127)

    def _open_note(self) -> None:
        """Write down who watches."""
        if self._request["file"] is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._note = os.open(self._request["file"], flags, 0o600)
            self._write_note({**self._request["about"], "supervisor": [os.getpid(), read_started(os.getpid())]})

    def _write_note(self, fields: dict[str, object]) -> None:
        if self._note is not None:
            os.write(self._note, json.dumps(fields).encode() + b"\n")

    def _forget(self) -> None:
        if self._note is not None:
            try:
                os.unlink(self._request["file"])
            except OSError:
                pass

    def _tell(self, **fields: object) -> None:
        try:
            self._control.sendall(json.dumps(fields).encode() + b"\n")
        except OSError:
            self._is_cut_off = True

    def _reap(self) -> bool:
        """Take in what has ended; tell whether anything of the command is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                break
            if pid == self._command:
                self._has_exited = True
                self._tell(event="exited", status=status)
        if self._has_exited:
            self._begin_to_end()
        return True

    def _begin_to_end(self) -> None:
        if self._ending_at is None:
            self._ending_at = time.monotonic() + self._request["grace_seconds"]
            self._send_all(signal.SIGTERM, signal.SIGCONT)

    def _end_if_due(self) -> None:
        if self._ending_at is not None and time.monotonic() >= self._ending_at:
            self._send_all(signal.SIGKILL)
            self._sweep_seconds = min(self._sweep_seconds * 1.2, SWEEP_SECONDS_MAX)

    def _send_all(self, *numbers: int) -> None:
        parents = read_parents()
        below = list_below(os.getpid(), parents)
        if not parents and not self._has_exited:
            below = [-self._command]  # no /proc: the command's group is all that is known
        for number in numbers:
            for pid in below:
                send(pid, number)

    def _patience(self) -> float | None:
        if self._ending_at is None:
            return None
        return max(self._sweep_seconds, self._ending_at - time.monotonic())


def open_life(driver: int) -> int:
    """Return a descriptor that is ready when the process *driver* has ended; one that never is where there is none."""
    try:
        return os.pidfd_open(driver)
    except (AttributeError, OSError):
        return os.pipe()[0]


def wake_on(*numbers: int) -> int:
    """Return a descriptor that is ready when one of the signals came."""
    reader, writer = os.pipe()
    for descriptor in (reader, writer):
        os.set_blocking(descriptor, False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def wait_for(descriptors: list[int], seconds: float | None) -> set[int]:
    """Return which of the descriptors can be read, or have come to their end, within the time."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000)}


def drain(descriptor: int) -> None:
    """Read away what says that a signal came."""
    try:
        while os.read(descriptor, 512):
            pass
    except BlockingIOError:
        pass


def receive(own: socket) -> list[int]:
    """Return the descriptors of the next message, none at the end."""
    try:
        data, ancillary, _, _ = own.recvmsg(1, CMSG_LEN(FDS * array.array("i").itemsize))
    except OSError:
        return []
    found = array.array("i")
    for level, kind, content in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return list(found) if data and len(found) == FDS else []


def call_prctl(option: int, value: int) -> None:
    """Set something of this process that Python has no word for; without effect where the kernel has none either."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def set_subreaper() -> None:
    """Become the parent of every descendant whose own parent ends."""
    call_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let the kernel end this process when its parent, which has one thread, ends."""
    call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def restore_signals() -> None:
    """Give a command signals as a fresh process has them."""
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_all_but(kept: int) -> None:
    """Close every descriptor above the first three but one."""
    highest = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, kept)
    os.closerange(kept + 1, highest if highest > 0 else 65_536)


def execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Become the program, found by the PATH of its own environment."""
    os.execvpe(argv[0], argv, env)  # noqa: S606 - this is what the module is for


def send(pid: int, number: int) -> None:
    """Send a signal to a child or what is below it; what is gone, or another user's, is passed over."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def read_parents() -> dict[int, int]:
    """Map each process of this machine to its parent, those that have ended but for their status left out."""
    parents = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    for name in names:
        words = read_stat(name) if name.isdigit() else []
        if words and words[0] not in ("Z", "X"):
            parents[int(name)] = int(words[1])
    return parents


def read_stat(pid: int | str) -> list[str]:
    """Return what the kernel says of a process, from its state on; nothing where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def read_started(pid: int) -> str:
    """Return when a process started, in the kernel's words."""
    words = read_stat(pid)
    return words[19] if words else ""


def list_below(root: int, parents: dict[int, int]) -> list[int]:
    """Return all descendants of *root*."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
