"""Editing a tool's input: in the person's editor, or typed as a line of JSON."""

import os
import shlex
import tempfile
import termios
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import orjson
import trio

from nucleic_core._values import JSON


class EditFailed(Exception):
    """The edit came to nothing; the message says why."""


class Editor:
    """`$VISUAL` or `$EDITOR`, with the terminal on `fd` as its stdout.

    `away` is entered while it has the terminal: Ctrl-C is then its own.
    """

    def __init__(self, fd: int, away: Callable[[], AbstractContextManager[object]]) -> None:
        self._fd = fd
        chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        self.command = shlex.split(chosen) if chosen else None
        self._away = away

    @staticmethod
    def read(text: str) -> JSON:
        """The edited input. Raises EditFailed for what is no JSON."""
        try:
            return orjson.loads(text)
        except ValueError as exc:
            raise EditFailed(f"That is no JSON: {exc}.") from exc

    async def edit(self, text: str) -> JSON:
        """Let the person edit it, and read the result. Cancelled, the editor is ended. Raises EditFailed."""
        assert self.command is not None
        modes = termios.tcgetattr(0)
        with tempfile.TemporaryDirectory(prefix="nucleic-") as directory:
            path = Path(directory) / "input.json"
            path.write_text(text + "\n", "utf-8")
            try:
                with self._away():
                    done = await trio.run_process([*self.command, str(path)], stdin=0, stdout=self._fd, check=False)
            except OSError as exc:
                raise EditFailed(f"The editor cannot be started: {exc.strerror}.") from exc
            finally:
                termios.tcsetattr(0, termios.TCSADRAIN, modes)
            if done.returncode != 0:
                raise EditFailed(f"The editor ended with exit code {done.returncode}; nothing was changed.")
            try:
                return self.read(path.read_text("utf-8", "replace"))
            except OSError as exc:
                raise EditFailed("The editor has removed the file; nothing was changed.") from exc
