"""`--notify CMD`: a command that runs when the session begins to wait for a person."""

import logging
import os
import subprocess

import trio

from nucleic_core._session.session import Session
from nucleic_core._session.status import StatusMachine
from nucleic_core.errors import TranscriptFailed

log = logging.getLogger("nucleic.cli")

_WAITING = ("awaiting_approval", "awaiting_input")
_SETTLES = 0.2  # seconds; what a policy answers, and the turn that ends the run, keeps nobody waiting
_LAST = 5.0  # seconds that a command which still runs at the end of the session has


class Notifier:
    """Runs the command once per entry into a waiting status, with NUCLEIC_SESSION and NUCLEIC_STATUS set."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._entry = 0
        self._waits = False
        self.done = trio.Event()

    async def watch(self, session: Session) -> None:
        """Follow a session to its end; then `done` is set."""
        machine = StatusMachine()
        try:
            async with trio.open_nursery() as nursery:
                try:
                    async for event in session.events():
                        machine.feed(event.data, event.parent)
                        waits = machine.status in _WAITING
                        if waits and not self._waits:
                            self._entry += 1
                            nursery.start_soon(self._run, session.id, machine.status, self._entry)
                        self._waits = waits
                except TranscriptFailed as exc:
                    log.warning("--notify sees no more: %s", exc)
                nursery.cancel_scope.deadline = trio.current_time() + _LAST
        finally:
            self.done.set()

    async def _run(self, session: str, status: str, entry: int) -> None:
        await trio.sleep(_SETTLES)
        if not self._waits or self._entry != entry:
            return
        env = {**os.environ, "NUCLEIC_SESSION": session, "NUCLEIC_STATUS": status}
        try:
            done = await trio.run_process(
                ["/bin/sh", "-c", self._command], env=env, stdin=subprocess.DEVNULL, stdout=2, check=False
            )
        except OSError as exc:
            log.warning("--notify: %s", exc)
        else:
            if done.returncode != 0:
                log.warning("--notify ended with exit code %d", done.returncode)
