"""The lock that makes one process the only writer of a transcript.

A kernel lock (`flock`), so a crash releases it, on a file of its own beside the transcript that also holds the writer's
pid. Never blocking: an abandoned thread that waits for a lock would take it for nobody.
"""

import errno
import fcntl
import os
import time
import weakref
from pathlib import Path

from nucleic_core.errors import SessionBusy, TranscriptFailed

_RETRIES = 5
_RETRY_AFTER = 0.01  # seconds; `writer_of` holds the lock for less

_held: "weakref.WeakSet[WriterLock]" = weakref.WeakSet()


class WriterLock:
    """Held from construction until `close`. Raises SessionBusy naming the pid that has it."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(_path(directory), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(directory)
            pid = b"%d\n" % os.getpid()
            os.pwrite(self._fd, pid, 0)
            os.ftruncate(self._fd, len(pid))
        except BaseException:
            os.close(self._fd)
            raise
        _held.add(self)

    def _take(self, directory: Path) -> None:
        for attempt in range(_RETRIES):
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt < _RETRIES - 1:
                    time.sleep(_RETRY_AFTER)
            except OSError as exc:
                if exc.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):
                    raise
                raise TranscriptFailed(
                    f"the file system of {directory} has no file locks. Set NUCLEIC_HOME to a directory on a local disk."
                ) from exc
        pid = _pid(self._fd)
        who = f"process {pid}" if pid else "another process"
        raise SessionBusy(f"session {directory.name} is open in {who}. End it there, or fork the session.")

    def close(self) -> None:
        """Release it; again is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _held.discard(self)


def writer_of(directory: Path) -> int | None:
    """The pid of the process that writes the session in this directory; 0 when it is unknown, None when there is none."""
    try:
        fd = os.open(_path(directory), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _path(directory: Path) -> Path:
    return directory / "writer.lock"


def _pid(fd: int) -> int:
    text = os.pread(fd, 20, 0).strip()
    return int(text) if text.isdigit() else 0


def _let_go_after_fork() -> None:
    """A fork without exec shares the lock: it would outlive its owner until the child ends."""
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_let_go_after_fork)
