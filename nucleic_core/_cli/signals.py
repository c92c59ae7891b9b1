"""Ctrl-C and the signals that end a run in order. They are received here and nowhere else: the library leaves them alone."""

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from nucleic_core._background import Background
from nucleic_core._faults import log_failure
from nucleic_core._session.session import Session
from nucleic_core.events import EventData, TurnCompleted

log = logging.getLogger("nucleic.cli")


class Signals:
    """Ctrl-C once interrupts the turn, twice ends the session; without a turn, and for SIGTERM and SIGHUP, once is enough.

    `scope` goes around the session and is cancelled to end it.
    """

    def __init__(self, tasks: Background, say: Callable[[str], Awaitable[None]]) -> None:
        self.scope = trio.CancelScope()
        self.session: Session | None = None
        self._tasks = tasks
        self._say = say
        self._interrupted = False
        self._away = False

    def seen(self, data: EventData) -> None:
        """The next turn has a first Ctrl-C of its own."""
        if isinstance(data, TurnCompleted):
            self._interrupted = False

    @contextmanager
    def away(self) -> Iterator[None]:
        """While somebody else has the terminal, Ctrl-C is theirs."""
        self._away = True
        try:
            yield
        finally:
            self._away = False

    async def watch(self, arriving: AsyncIterator[int]) -> None:
        """Act on what arrives, until cancelled."""
        async for signum in arriving:
            if signum != signal.SIGINT:
                self.scope.cancel()
            elif not self._away:
                self._ctrl_c()

    def _ctrl_c(self) -> None:
        session = self.session
        # A turn waits or runs, unless nothing is asked and the session says so: at a turn's end it awaits input, too.
        if session is None or self._interrupted or (session.status != "running" and not session.open_asks):
            self.scope.cancel()
            return
        self._interrupted = True
        self._tasks.start_soon(self._interrupt, session)

    async def _interrupt(self, session: Session) -> None:
        await self._say("Interrupting the turn; Ctrl-C again ends the session.")
        try:
            await session.interrupt()
        except Exception as exc:
            log_failure(log, "interrupting the turn", exc)


@contextmanager
def receiving() -> Iterator[AsyncIterator[int]]:
    """The signals to act on. One that is ignored (nohup, a script's background job) stays ignored."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught = [signum for signum in wanted if signal.getsignal(signum) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*caught) as arriving:
        yield arriving
