"""The host's side of the guard, which ends a host's runs when the host itself can no longer do so.

One guard process a host (`guard_program.py`, about 10 MB), in a session of its own, with nothing of the host but the
reading end of a pipe. The host holds the only writing end: whatever way the host ends, `kill -9` included, the guard
reads end of file and ends every process of the runs that are still watched. A host names a run to the guard before it
starts the run's process, and takes the name back when the process and its descendants are gone.

The guard finds processes as `descendants.py` does, so without Linux's /proc it finds none.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

import trio

from nucleic_core._background import Background
from nucleic_core._wire.process import exit_status

_PROGRAM = Path(__file__).with_name("guard_program.py")

_STARTS = 3
"""How often a guard is started at most; one that keeps ending has a cause that starting again does not cure."""

_CLOSING = 10.0
"""Seconds that the guard may take to end what is still watched when the host closes."""

_KILLED = 2.0
"""Seconds until a guard that SIGKILL does not end is left to the kernel."""

_lifelines: set[int] = set()


def _close_lifelines() -> None:
    """A process that the application forked without exec would hold the lifeline open, and the guard would wait for it."""
    for lifeline in _lifelines:
        os.close(lifeline)
    _lifelines.clear()


os.register_at_fork(after_in_child=_close_lifelines)


class Guard:
    """The guard process of one host, made by `start`."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._watched: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._closing = trio.Event()
        self._over = trio.Event()

    @classmethod
    async def start(cls, tasks: Background, *, notice: Callable[[str], None]) -> Self:
        """Start the guard. A guard that cannot be started, or ends by itself, is a notice to the host and no error.

        Cancelled, it either has started one or has not.
        """
        guard = cls(notice)
        await guard._spawn()
        tasks.start_soon(guard._keep)
        return guard

    def watch(self, cookie: str) -> None:
        """From now on the run of this cookie ends with the host. Call it before the run's process starts."""
        self._watched.add(cookie)
        self._tell("watch", cookie)

    def forget(self, cookie: str) -> None:
        """The run is over and nothing of it is left. Not for one of which something was given up."""
        self._watched.discard(cookie)
        self._tell("forget", cookie)

    async def close(self) -> None:
        """Let the guard go, and wait for its end. Runs that are still watched are ended."""
        self._closing.set()
        self._hang_up()
        await self._over.wait()

    async def _spawn(self) -> None:
        self._process = None
        reading, writing = os.pipe()  # neither is inherited, except as the stdin given below

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM)],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )

        try:
            # Not one of the default threads: the application may keep all of them busy.
            self._process = await trio.to_thread.run_sync(start, limiter=trio.CapacityLimiter(1))
        except OSError as problem:
            self._notice(f"The guard could not be started ({problem}). {_UNGUARDED}")
        finally:
            os.close(reading)
            if self._process is None:
                os.close(writing)
        if self._process is not None:
            os.set_blocking(writing, False)
            self._lifeline = writing
            _lifelines.add(writing)
            for cookie in self._watched:
                self._tell("watch", cookie)

    async def _keep(self) -> None:
        """Replace a guard that ended by itself; see the last one out."""
        try:
            starts = 1
            while self._process is not None and not self._closing.is_set():
                status = await _end_of(self._process)
                if self._closing.is_set():
                    return
                self._hang_up()
                if starts == _STARTS:
                    self._notice(f"The guard keeps ending (status {status}) and is not started again. {_UNGUARDED}")
                    return
                self._notice(f"The guard ended by itself (status {status}) and is started again.")
                starts += 1
                await self._spawn()
        finally:
            try:
                with trio.CancelScope(shield=True):
                    self._hang_up()
                    await self._see_out()
            finally:
                self._over.set()

    async def _see_out(self) -> None:
        if self._process is not None:
            with trio.move_on_after(_CLOSING):
                await _end_of(self._process)
            self._process.kill()
            with trio.move_on_after(_KILLED):
                await _end_of(self._process)

    def _tell(self, verb: str, cookie: str) -> None:
        if self._lifeline is None or self._process is None:
            return
        try:
            os.write(self._lifeline, f"{verb} {cookie}\n".encode())
        except BlockingIOError:
            self._process.kill()  # it does not listen; the next one is told everything
        except BrokenPipeError:
            pass  # it is gone, which `_keep` is about to notice

    def _hang_up(self) -> None:
        if self._lifeline is not None:
            _lifelines.discard(self._lifeline)
            os.close(self._lifeline)
            self._lifeline = None


async def _end_of(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for the exit and reap; the status."""
    if process.returncode is None:
        await exit_status(process)
    return process.poll()


_UNGUARDED = "Should this process be killed, agents that it runs go on; end them by hand then."
