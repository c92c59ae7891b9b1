"""One run of the command line from its start to its exit code: shown on the console or as JSON, answered by who is there.

events ---> console (or NDJSON on stdout)
asks   ---> the person at the terminal, or nobody, or with --wait whoever uses the control socket
Ctrl-C ---> interrupts the turn, then ends the session
"""

import contextlib
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import attrs
import trio
from rich.text import Text

from nucleic_core._approvals.coordinator import Responder
from nucleic_core._background import background
from nucleic_core._cli.console.asking import ConsoleResponder
from nucleic_core._cli.console.editing import Editor
from nucleic_core._cli.console.keyboard import Keyboard
from nucleic_core._cli.console.output import Output
from nucleic_core._cli.console.screen import Screen, stderr_screen, stdout_screen
from nucleic_core._cli.exits import BY_OUTCOME, INTERRUPTED
from nucleic_core._cli.following import follow
from nucleic_core._cli.notify import Notifier
from nucleic_core._cli.signals import Signals, receiving
from nucleic_core._host import Host, open_host
from nucleic_core._session.session import Session
from nucleic_core._store.transcript import EventStream
from nucleic_core.events import AgentEvent
from nucleic_core.settings import Settings

Say: TypeAlias = Callable[[str], Awaitable[None]]
Open: TypeAlias = Callable[[Host, Responder, Say], Awaitable[AbstractAsyncContextManager[Session]]]
"""Prepares the session of a run; `Say` puts a line of ours on stderr."""


@attrs.frozen
class Manner:
    """How a run is shown and who answers; see the options of the same names."""

    as_json: bool = False
    wait: bool = False
    notify: str | None = None


async def converse(settings: Settings, manner: Manner, open_: Open) -> int:
    """Hold the conversation; the exit code. Raises what opening the session raises, and BrokenPipeError."""
    with receiving() as arriving:
        async with background() as tasks:
            screen = stderr_screen() if manner.as_json else stdout_screen()
            # On one terminal there is one writer, which knows what stands on the last line.
            errors = screen if manner.as_json or (screen.terminal and sys.stderr.isatty()) else stderr_screen()

            async def say(words: str) -> None:
                with contextlib.suppress(BrokenPipeError):  # nobody is there to be told
                    await errors.line(Text(words))

            signals = Signals(tasks, say)
            tasks.start_soon(signals.watch, arriving)
            talk = _Talk(manner, screen, screen if screen.terminal else errors, signals)
            with signals.scope:
                async with open_host(settings.home) as host, await open_(host, talk.responder, say) as session:
                    talk.begin(session)
                    if talk.notifier is not None:
                        tasks.start_soon(talk.notifier.watch, session)
                    await talk.follow()
            interrupted = signals.scope.cancelled_caught or talk.session is None
            signals.scope = trio.CancelScope()  # a further signal ends what is still to be shown
            with signals.scope:
                await talk.follow()  # what the end of the session added, when a signal took us out of it
                if talk.notifier is not None and talk.session is not None:
                    await talk.notifier.done.wait()
            if interrupted or talk.session is None:
                return INTERRUPTED
            return BY_OUTCOME[(await talk.session.result()).outcome]


class _Talk:
    """The parts of a conversation that know each other."""

    def __init__(self, manner: Manner, screen: Screen, asking: Screen, signals: Signals) -> None:
        self.session: Session | None = None
        self.notifier = Notifier(manner.notify) if manner.notify is not None else None
        self._screen = screen
        self._signals = signals
        self._json = Output(1) if manner.as_json else None
        self._events: EventStream | None = None
        self._console: ConsoleResponder | None = None
        if sys.stdin.isatty() and asking.terminal:
            editor = Editor(asking.fd, signals.away)
            self._console = ConsoleResponder(asking, Keyboard(), editor, alone=asking is not screen or manner.as_json)
        self.responder: Responder = self._console or ("wait" if manner.wait else "deny")

    def begin(self, session: Session) -> None:
        """The session is open."""
        self.session = self._signals.session = session
        if self._console is not None:
            self._console.session = session
        self._events = session.events()

    async def follow(self) -> None:
        """Show events until there are no more."""
        if self._events is not None:
            await follow(self._events, self._show, self._pause)

    async def _show(self, event: AgentEvent) -> None:
        if self._json is not None:
            await self._json.write(event.to_line() + b"\n")
        else:
            await self._screen.show(event)
        self._signals.seen(event.data)
        if self._console is not None:
            self._console.told(event.data)

    async def _pause(self) -> None:
        if self._json is None and self.session is not None:
            await self._screen.pause(self.session.usage)
