"""Writing to stdout or stderr without ever blocking the loop: a reader that is slow, or has stopped, stops nothing else."""

import os

import trio

_PIECE = 4096  # bytes: a pipe that polls as writable takes as many at once (PIPE_BUF)


class Output:
    """One descriptor. Raises BrokenPipeError when its reader has gone."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._one_at_a_time = trio.Lock()
        self._polls = True

    async def write(self, data: bytes) -> None:
        """Write all of it. Cancelled while the reader keeps it waiting, a part may be written."""
        async with self._one_at_a_time:
            rest = memoryview(data)
            while rest:
                await self._writable()
                try:
                    rest = rest[os.write(self.fd, rest[:_PIECE] if self._polls else rest) :]
                except BlockingIOError:
                    continue

    async def _writable(self) -> None:
        if self._polls:
            try:
                await trio.lowlevel.wait_writable(self.fd)
            except OSError:
                self._polls = False  # a regular file: always writable, and not for polling
        if not self._polls:
            await trio.lowlevel.checkpoint()
