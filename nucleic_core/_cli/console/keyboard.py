"""Reading lines that a person types, without a thread: the terminal stays in line mode, and waiting can be cancelled."""

import contextlib
import os
import termios

import trio

_LONGEST = 64 * 1024  # bytes; in line mode the kernel takes 4095 of one line
_POLL = 0.2  # seconds between two looks whether the shell has put us into the foreground again


class Keyboard:
    """The terminal on a descriptor."""

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd

    def forget_typed(self) -> None:
        """Drop what was typed before the question was there: it cannot be an answer to it."""
        if self._in_foreground():  # from the background this, too, would stop the process
            with contextlib.suppress(termios.error):  # no terminal any more; the read will tell
                termios.tcflush(self._fd, termios.TCIFLUSH)

    async def line(self) -> str | None:
        """The next line without its line feed; None at the end of input (Ctrl-D)."""
        while not self._in_foreground():  # noqa: ASYNC110 - the shell tells nobody
            await trio.sleep(_POLL)  # reading from the background would stop this whole process (SIGTTIN)
        try:
            await trio.lowlevel.wait_readable(self._fd)
            typed = os.read(self._fd, _LONGEST)
        except OSError:
            return None  # hung up
        return typed.decode(errors="replace").rstrip("\n") if typed else None

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return True
