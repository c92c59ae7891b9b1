"""Fan-out: any number of subscribers pull the events of a live transcript, each at its own pace.

The newest events wait in a ring bounded by count and bytes. A subscriber that lags behind it reads the file, so a slow
one costs neither memory nor the writer's time, and nobody misses an event.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import trio

from nucleic_core._store.header import Header
from nucleic_core._store.reader import BLOCK, Cursor
from nucleic_core.errors import TranscriptFailed
from nucleic_core.events import AgentEvent, RunFinished

RING_EVENTS = 4096
RING_BYTES = 8 * 1024 * 1024
"""Of the encoded lines; the objects take a few times as much."""

_EVENTS_A_CHECKPOINT = 32


class Feed:
    """What a transcript tells its subscribers: the newest events, and how far the file is good."""

    def __init__(self, path: Path, header: Header, begin: int, next_seq: int, end: int) -> None:
        self.path = path
        self.header = header
        self.history = next_seq - 1  # the last event of earlier processes
        self.next_seq = next_seq
        self.end = end
        self.closed = False
        self.over = False
        self.waiting = trio.lowlevel.ParkingLot()
        self._ring: deque[tuple[Sequence[AgentEvent], int]] = deque()  # whole batches, and the bytes of their lines
        self._events = self._bytes = 0
        self._marks = [(0, begin)]  # (seq before, offset) about every block, to find a place in the file

    def publish(self, events: Sequence[AgentEvent], end: int) -> None:
        """This batch is in the file, which is good up to `end`."""
        size = end - self.end
        if self.end - self._marks[-1][1] >= BLOCK:
            self._marks.append((self.next_seq - 1, self.end))
        self.next_seq += len(events)
        self.end = end
        self._ring.append((events, size))
        self._events += len(events)
        self._bytes += size
        while self._events > RING_EVENTS or self._bytes > RING_BYTES:
            oldest, size = self._ring.popleft()
            self._events -= len(oldest)
            self._bytes -= size
        if self.waiting:
            self.waiting.unpark_all()

    def newer(self, seq: int) -> Sequence[AgentEvent]:
        """What the ring has of the batch that the event after `seq` is in; empty when it is in the file alone."""
        for events, _ in reversed(self._ring):  # most subscribers are near the end
            first = events[0].seq
            if first <= seq + 1:
                return events[seq + 1 - first :]
        return ()

    def close(self) -> None:
        """No more events: subscribers end when they have read what is there."""
        self.closed = True
        self.end_streams()

    def end_streams(self) -> None:
        """The same for the subscribers, while the writer stays."""
        self.over = True
        self.waiting.unpark_all()

    def cursor(self, after: int) -> Cursor:
        """A cursor over the file that gives the events after this number."""
        seq, offset = self._marks[bisect_right(self._marks, after, key=lambda mark: mark[0]) - 1]
        return Cursor(self.path, self.header, offset, seq=seq, after=after)


class EventStream:
    """Iterates over the events after number `after`, and waits for more.

    Ends after this process's `run_finished`, or when the transcript is closed. Cancelling a wait loses nothing. Raises
    TranscriptFailed when the file was changed by somebody else. For one task at a time; take another for another task.
    """

    def __init__(self, feed: Feed, after: int = 0) -> None:
        self._feed = feed
        self._seq = max(after, 0)
        self._cursor: Cursor | None = None
        self._batch: deque[AgentEvent] = deque()
        self._ended = False
        self._credit = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        if self._ended:
            raise StopAsyncIteration
        event = await self._next()
        if event is None:
            self._ended = True
            raise StopAsyncIteration
        self._seq = event.seq
        self._ended = isinstance(event.data, RunFinished) and event.seq > self._feed.history
        return event

    async def _next(self) -> AgentEvent | None:
        feed = self._feed
        while True:
            if self._credit == 0:
                await trio.lowlevel.checkpoint()
                self._credit = _EVENTS_A_CHECKPOINT
            if self._seq + 1 >= feed.next_seq:
                if feed.over:
                    return None
                await feed.waiting.park()
                continue
            if not self._batch:
                self._batch = deque(feed.newer(self._seq))
            if self._batch:
                self._cursor = None
                event: AgentEvent | None = self._batch.popleft()
            else:
                event = self._lagging()
            if event is None:
                self._credit = 0
                continue
            self._credit -= 1
            return event

    def _lagging(self) -> AgentEvent | None:
        """The next event from the file; None after a block was read, which is worth a checkpoint."""
        if self._cursor is None:
            self._cursor = self._feed.cursor(self._seq)
        event = self._cursor.take()
        if event is None and not self._cursor.fill(self._feed.end):
            raise TranscriptFailed(
                f"{self._feed.path} ends before event {self._feed.next_seq - 1}, which was written to it. "
                "Something else has changed the file; what it lacks is lost."
            )
        return event
