"""Our ends of a child's output pipes: one that is read in pieces and closed without loss, and the memory of stderr."""

import fcntl
import os
from contextlib import suppress

import trio

READ_SIZE = 256 << 10
"""Bytes read at most in one turn of the event loop, so that a flooding child cannot starve other sessions."""


class ReadEnd:
    """The reading end of a pipe; whoever else may hold the other end, closing this one loses nothing that was in it.

    `at_end` is set when nothing more will come in; `read` then hands out what is left, and after that nothing.
    """

    def __init__(self, fd: int) -> None:
        # As large as one read, so that one read empties it. Not larger: a user's pipes share 64 MiB (pipe(7)).
        with suppress(AttributeError, OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, READ_SIZE)
        self._stream = trio.lowlevel.FdStream(fd)
        self._rest = b""
        self.at_end = trio.Event()

    async def read(self) -> bytes:
        """The next bytes, READ_SIZE at most; empty at the end. Cancelling it loses nothing."""
        if not self.at_end.is_set():
            with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
                if chunk := await self._stream.receive_some(READ_SIZE):
                    return chunk
            self.close()
        await trio.lowlevel.checkpoint()
        chunk, self._rest = self._rest, b""
        return chunk

    def take(self) -> bytes:
        """What is in the pipe at this moment, without waiting."""
        if not self.at_end.is_set():
            with suppress(BlockingIOError):
                return os.read(self._stream.fileno(), READ_SIZE)
        return b""

    def close(self) -> None:
        """Keep what is in the pipe for `read`, and let go of it. A process that goes on writing gets SIGPIPE."""
        if not self.at_end.is_set():
            self._rest = self.take()
            self.at_end.set()
            self._stream.close()


class StderrLog:
    """What a child wrote to stderr: the first 8 kB and the last 32 kB of it."""

    HEAD = 8 << 10
    TAIL = 32 << 10

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0

    def add(self, chunk: bytes) -> None:
        """Remember the next bytes."""
        room = self.HEAD - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if (surplus := len(self._tail) - self.TAIL) > 0:
            del self._tail[:surplus]
            self._cut += surplus

    def text(self) -> str:
        """Head and tail, with a line between them that says how much was left out; bytes that are no UTF-8 as U+FFFD."""
        head, tail = bytes(self._head), bytes(self._tail)
        if not self._cut:
            return (head + tail).decode("utf-8", "replace")
        gap = f"\n[... {self._cut} bytes of stderr left out ...]\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")
