"""The one task of a host that makes transcripts durable: fsync in a thread, a moment after something was written.

`write` has handed the bytes to the kernel before any reply, so a crash of ours loses nothing; this is for a crash of
the machine, which may cost the last 200 ms.
"""

import os

import trio

from nucleic_core._store.transcript import Transcript

INTERVAL = 0.2
"""Seconds from a write to its fsync."""


class Syncer:
    """Syncs the transcripts given to `add`. `run` is the task; `close` ends one transcript without blocking the loop."""

    def __init__(self) -> None:
        self._dirty: set[Transcript] = set()
        self._wake = trio.Event()
        # Our own: the default one is shared with the application, which may fill it.
        self._limiter = trio.CapacityLimiter(1)

    def add(self, transcript: Transcript) -> None:
        """Sync this transcript from now on, until `close`."""
        transcript.on_dirty = self._touched
        if transcript.dirty:
            self._touched(transcript)

    def _touched(self, transcript: Transcript) -> None:
        self._dirty.add(transcript)
        self._wake.set()

    async def run(self) -> None:
        """Sync what was written, until cancelled."""
        while True:
            await self._wake.wait()
            await trio.sleep(INTERVAL)
            self._wake = trio.Event()
            due, self._dirty = self._dirty, set()
            for transcript in due:
                if not transcript.closed:
                    await self._sync(transcript)

    async def _sync(self, transcript: Transcript) -> None:
        try:
            fd = transcript.sync_fd()
        except OSError:  # out of descriptors: a little later there may be one
            transcript.dirty = True
            self._touched(transcript)
            return
        done = False
        try:
            await trio.to_thread.run_sync(os.fsync, fd, limiter=self._limiter)
            done = True
        except OSError as exc:
            transcript.fail(exc)
        finally:
            os.close(fd)  # the thread is done: run_sync waits for it, also when cancelled
            if not done:
                transcript.dirty = True

    async def close(self, transcript: Transcript) -> None:
        """The last sync of a transcript, and its end; its `failure` says whether all of it is on the disk."""
        transcript.on_dirty = None
        self._dirty.discard(transcript)
        try:
            if transcript.dirty:
                await self._sync(transcript)
        finally:
            transcript.close()
