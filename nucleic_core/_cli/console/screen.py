"""The console: what is told, a status line while the agent is silent, and questions to the person there.

On anything that is no terminal the same words come as plain lines, without status line and colours.
"""

import io
import os
import sys
import time
from typing import TextIO

import rich.console
import trio
from rich.text import Text

from nucleic_core._cli.console import wording
from nucleic_core._cli.console.keyboard import Keyboard
from nucleic_core._cli.console.output import Output
from nucleic_core._cli.console.telling import Teller
from nucleic_core.events import AgentEvent, Usage

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CLEAR = "\r\x1b[2K"


class Screen:
    """One stream that people read. `floor` is held by whoever may write lines now: the events, or one question."""

    def __init__(self, stream: TextIO, output: Output, *, raw: bool = False) -> None:
        self.terminal = stream.isatty()
        self.floor = trio.Lock()
        self._output = output
        self._encoding = stream.encoding or "utf-8"
        self._teller = Teller(raw=raw)
        self._status_stands = False
        self._has_status = self.terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._frame = 0
        self._busy_since: float | None = None
        self._paint = rich.console.Console(
            file=io.StringIO(),
            force_terminal=self.terminal,
            color_system="auto" if self.terminal else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    @property
    def fd(self) -> int:
        """Where it is written to."""
        return self._output.fd

    async def show(self, event: AgentEvent) -> None:
        """Tell one event."""
        async with self.floor:
            await self._put(self._teller.tell(event))
            if not self._teller.busy:
                self._busy_since = None
            elif self._busy_since is None:
                self._busy_since = time.monotonic()

    async def pause(self, usage: Usage | None = None) -> None:
        """No event has come for a moment: tell what waits to be told, and move the status line on."""
        async with self.floor:
            await self._put(self._teller.pause())
            if self._has_status and self._busy_since is not None and not self._teller.mid_line:
                self._frame += 1
                facts = [wording.seconds(time.monotonic() - self._busy_since), wording.tokens(usage)]
                words = " · ".join(fact for fact in facts if fact)
                await self._write(
                    f"{_CLEAR}{self._painted(Text(f'{_FRAMES[self._frame % len(_FRAMES)]} {words}', 'dim'))}"
                )
                self._status_stands = True

    async def line(self, text: Text) -> None:
        """A line of our own, whoever has the floor."""
        told = self._teller.end_line()
        told.append_text(text)
        told.append("\n")
        await self._put(told)

    async def ask(self, words: Text, keyboard: Keyboard) -> str | None:
        """Ask for a line; None at the end of input. Cancelled, the line is left open and ends with what comes next."""
        await self._put(words)
        self._teller.mid_line = True
        typed = await keyboard.line()
        self._teller.mid_line = typed is None  # a person's Enter has ended the line
        return typed

    async def _put(self, text: Text) -> None:
        if text:
            clear, self._status_stands = (_CLEAR if self._status_stands else ""), False
            await self._write(clear + self._painted(text))

    def _painted(self, text: Text) -> str:
        with self._paint.capture() as capture:
            self._paint.print(text, end="", soft_wrap=True)
        return capture.get()

    async def _write(self, text: str) -> None:
        await self._output.write(text.encode(self._encoding, "replace"))


def stdout_screen(*, raw: bool = False) -> Screen:
    """The console of a run."""
    return Screen(sys.stdout, Output(1), raw=raw)


def stderr_screen() -> Screen:
    """The console of a run whose stdout is for a program."""
    return Screen(sys.stderr, Output(2))
