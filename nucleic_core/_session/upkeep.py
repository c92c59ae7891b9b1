"""What runs beside a session and may fail without hurting it: the index row and the observers."""

import logging
from pathlib import Path

import trio

from nucleic_core._background import Background
from nucleic_core._faults import failure_of, log_failure
from nucleic_core._session.session import Session
from nucleic_core._store.git import GitPosition, git_position
from nucleic_core._store.transcript import now
from nucleic_core.backend import Observer
from nucleic_core.events import Notice

log = logging.getLogger("nucleic.session")

LAST_WORDS = 5.0
"""Seconds that observers have after `run_finished`."""


class IndexKeeper:
    """Writes a session's row whenever its status changes, with where its directory stands in git."""

    def __init__(self, home: Path, session: Session, title: str) -> None:
        self._home = home
        self._session = session
        self._title = title
        self._thread = trio.CapacityLimiter(1)
        self._written = ""
        self._changed = trio.Event()
        session.on_change(self._look)

    def _look(self) -> None:
        if self._session.status != self._written:
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self.write()
            await self._changed.wait()

    async def write(self) -> None:
        """Write the row as it is now; whatever goes wrong, it is a row of a list and no reason to end a session."""
        try:
            await self._write()
        except Exception as exc:
            log_failure(log, "the index row", exc)

    async def _write(self) -> None:
        session, self._changed, self._written = self._session, trio.Event(), self._session.status
        header = session.header
        position = await git_position(session.cwd) or GitPosition()

        def put() -> None:
            from nucleic_core._store.index import Index, SessionRow, title_of  # sqlite3 is not for an import to pay

            row = SessionRow(
                id=session.id,
                backend=header.backend,
                cwd=header.cwd,
                status=self._written,
                created_at=header.created_at,
                last_activity=now(),
                model=header.model,
                title=title_of(self._title),
                events=session.last_seq,
                branch=position.branch,
                ahead=position.ahead,
                behind=position.behind,
            )
            Index(self._home).update(row)

        await trio.to_thread.run_sync(put, limiter=self._thread)


class Observers:
    """Runs what `nucleic_observer` gave; one that fails is left behind with a notice."""

    def __init__(self, session: Session, given: "list[tuple[str, Observer | Exception]]") -> None:
        self._session = session
        self._given = given
        self._running = 0
        self._done = trio.Event()
        self._done.set()

    def start(self, tasks: Background) -> None:
        """Start each in a task of its own."""
        if self._given:
            self._running, self._done = len(self._given), trio.Event()
        for name, observer in self._given:
            tasks.start_soon(self._observe, name, observer)

    async def drain(self) -> None:
        """Wait for them to read to the end, for a while."""
        with trio.move_on_after(LAST_WORDS):
            await self._done.wait()

    async def _observe(self, name: str, observer: "Observer | Exception") -> None:
        try:
            if isinstance(observer, Exception):
                raise observer
            await observer.observe(self._session.events())
        except BaseException as exc:
            failure = failure_of(exc)
            log_failure(log, f"the observer {name}", failure)
            self._session.pipeline.mention(Notice("observer", f"The observer {name} failed: {failure!r}"))
        finally:
            self._running -= 1
            if self._running == 0:
                self._done.set()
