"""Finds every process that belongs to a run, also those that left its process group, and signals them safely.

A run's child gets a random cookie in its environment (`COOKIE_VARIABLE`), and whatever it starts inherits it. A process
belongs to the run when its environment carries the cookie, or when an ancestor belongs; once seen, it stays known after
its parent died. What cleaned its environment *and* lost its parent before anybody looked is not found.

Needs Linux's /proc. Elsewhere nothing is ever found, and the process group is all that gets ended.

Standard library only, and no import of our own: the guard program loads this file by its path.
"""

import errno
import os
import signal
from collections.abc import Iterable

COOKIE_VARIABLE = "NUCLEIC_RUN"
"""Holds the cookies of the run and of the runs around it, joined by `:`, so that a nested run belongs to both."""

_NOBODY = (0, -1)
_DEEPEST = 256  # ancestors looked at; the table may change while we walk it, so the walk has an end of its own


def pid_namespace() -> int:
    """Names the namespace in which our process ids mean something (pid_namespaces(7)); 0 where there are none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    except OSError:
        return 0


def carried_cookies(pid: int) -> set[str]:
    """The cookies of every run that a process belongs to, by its own environment or an ancestor's."""
    cookies: set[str] = set()
    for _ in range(_DEEPEST):
        cookies.update(cookie.decode(errors="replace") for cookie in _cookies_of(pid))
        stat = _stat(pid)
        if stat is None or stat[0] <= 1:
            break
        pid = stat[0]
    return cookies


def lives(pid: int) -> bool:
    """Whether a process is there, and more than a zombie. Without Linux's /proc none is."""
    return _stat(pid) is not None


class Descendants:
    """The processes of some runs, remembered from scan to scan as (process id, start time), which no other ever is."""

    def __init__(self, cookies: Iterable[str]) -> None:
        self._cookies = {cookie.encode() for cookie in cookies}
        self._known: dict[int, int] = {}

    def scan(self) -> set[int]:
        """Look at all processes anew; returns the ids of ours that live. Zombies do not count as living."""
        table = _table()
        table.pop(os.getpid(), None)
        known = {pid: start for pid, start in self._known.items() if table.get(pid, _NOBODY)[1] == start}
        children: dict[int, list[int]] = {}
        for pid, (parent, start) in table.items():
            children.setdefault(parent, []).append(pid)
            if pid not in known and self._carries(pid):
                known[pid] = start
        to_visit = list(known)
        while to_visit:
            for child in children.get(to_visit.pop(), ()):
                if child not in known:
                    known[child] = table[child][1]
                    to_visit.append(child)
        self._known = known
        return set(known)

    def signal(self, signum: int) -> None:
        """Signal what the last scan found. A process id that has changed hands since then is left alone."""
        for pid, start in self._known.items():
            try:
                _signal(pid, start, signum)
            except OSError:  # gone, or not ours to signal
                continue

    def _carries(self, pid: int) -> bool:
        return not self._cookies.isdisjoint(_cookies_of(pid))


def _cookies_of(pid: int) -> list[bytes]:
    for setting in _read(pid, "environ").split(b"\0"):
        name, _, value = setting.partition(b"=")
        if name == COOKIE_VARIABLE.encode():
            return value.split(b":")
    return []


def _signal(pid: int, start: int, signum: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError as problem:
        if problem.errno == errno.ENOSYS and _start_time(pid) == start:  # an old kernel or a sandbox
            os.kill(pid, signum)
        return
    try:
        # The handle stays on the process it was opened for, so comparing now rules out a reused id for good.
        if _start_time(pid) == start:
            signal.pidfd_send_signal(handle, signum)
    finally:
        os.close(handle)


def _table() -> dict[int, tuple[int, int]]:
    """Every living process: its parent's id and its start time in clock ticks since boot (proc(5), `stat`)."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib would double the guard's start
    except OSError:
        return {}
    return {int(name): stat for name in names if name.isdigit() and (stat := _stat(int(name)))}


def _stat(pid: int) -> tuple[int, int] | None:
    # The command, in parentheses, may itself hold blanks and parentheses: the fields begin after the last one.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    try:
        state, parent, threads, start = fields[0], int(fields[1]), int(fields[17]), int(fields[19])
    except (IndexError, ValueError):  # gone meanwhile, or not Linux's /proc
        return None
    # A process whose first thread ended looks like a zombie while its other threads work on.
    dead = state in b"ZX" and threads <= 1
    return None if dead else (parent, start)


def _start_time(pid: int) -> int | None:
    stat = _stat(pid)
    return stat and stat[1]


def _read(pid: int, name: str) -> bytes:
    """A file of /proc/<pid>; empty when the process is gone or not ours to read (setuid)."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""
