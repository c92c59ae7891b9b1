"""Transcripts read back: leniently, a block at a time, without holding the file open.

A line that is no event becomes `Raw`, in its place in the order; reading never stops at one. What follows the last
line feed is a line still being written, or one torn by a crash, and is not read.
"""

import logging
import os
from collections import deque
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Self

import orjson
import trio

from nucleic_core._store.header import Header, read_header
from nucleic_core._store.lock import writer_of
from nucleic_core._structure import strict_converter
from nucleic_core._values import JSON
from nucleic_core.errors import TranscriptFailed
from nucleic_core.events import KINDS, AgentEvent, EventData, Raw, RunFinished

DAMAGED = "nucleic:damaged_line"
"""The `native` name of a line that is no JSON object; its text is the value of the `Raw`."""

BLOCK = 256 * 1024
"""Bytes read at once; more only for a longer line."""

_POLL = 0.1  # seconds between two looks at another process's file

_log = logging.getLogger("nucleic.store")


def read_event(obj: JSON) -> AgentEvent:
    """One event from its JSON. Never raises: an unknown kind, a missing or odd field gives `Raw` of the whole object.

    Fields that we do not know are ignored, so a newer writer's additions do no harm.
    """
    flat = obj if isinstance(obj, dict) else {}
    seq, at, session, backend, native, parent = (
        flat.get(name) for name in ("seq", "at", "session", "backend", "native", "parent")
    )
    data: EventData | None = None
    if (
        type(seq) is int
        and isinstance(session, str)
        and isinstance(backend, str)
        and all(x is None or isinstance(x, str) for x in (at, native, parent))
    ):
        data = _payload(flat)
    return AgentEvent(
        seq if type(seq) is int else 0,
        at if isinstance(at, str) else None,
        session if isinstance(session, str) else "",
        backend if isinstance(backend, str) else "",
        native if isinstance(native, str) else None,
        parent if isinstance(parent, str) else None,
        Raw(obj) if data is None else data,
    )


def _payload(flat: JSON) -> EventData | None:
    kind = flat.get("kind")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return None
    try:
        data: EventData = strict_converter(known_keys_only=False).structure(flat, cls)
    except Exception:  # the file is foreign matter, and cattrs raises whatever its hooks ran into
        return None
    return data


class Cursor:
    """Walks the events of one transcript file from `after` on; `fill` reads a block, `take` gives its next event."""

    def __init__(self, path: Path, header: Header, offset: int, *, seq: int = 0, after: int = 0) -> None:
        """Start at `offset`, where a line begins; `seq` is the number of the event before it."""
        self.offset = offset
        self._path = path
        self._header = header
        self._seq = seq
        self._after = after
        self._lines: deque[bytes] = deque()

    def fill(self, end: int | None = None) -> bool:
        """Read the next whole lines, none beyond the offset `end`. False when there are none."""
        try:
            with self._path.open("rb", buffering=0) as file:
                size = file.seek(0, os.SEEK_END) if end is None else end
                block = _whole_lines(file, self.offset, size)
        except OSError as exc:
            raise TranscriptFailed(f"cannot read the transcript {self._path}: {exc.strerror}.") from exc
        self.offset += len(block)
        self._lines.extend(block.split(b"\n")[:-1])
        return bool(block)

    def take(self) -> AgentEvent | None:
        """The next event after `after` in what was read; None when a new block is due."""
        while self._lines:
            line = self._lines.popleft()
            seq, obj = seq_of(line)
            self._seq = self._seq + 1 if seq is None else seq  # our writer counts by one
            if self._seq > self._after:
                return self._damaged(line) if seq is None else read_event(obj)
        return None

    def _damaged(self, line: bytes) -> AgentEvent:
        _log.warning("%s: the line of event %d is damaged", self._path, self._seq)
        text = line.decode(errors="replace")
        return AgentEvent(self._seq, None, self._header.session, self._header.backend, DAMAGED, None, Raw(text))


def seq_of(line: bytes) -> tuple[int | None, JSON]:
    """The number of the event in a line, and the line's JSON; None for a line that is no event of ours."""
    try:
        obj: JSON = orjson.loads(line)
    except ValueError:
        return None, None
    seq = obj.get("seq") if isinstance(obj, dict) else None
    return (seq if type(seq) is int else None), obj


def _whole_lines(file: FileIO, start: int, end: int) -> bytes:
    """About a block from `start` up to a line feed at most at `end`; empty when no line ends there."""
    want = BLOCK
    while True:
        file.seek(start)
        block = file.read(min(want, end - start)) if end > start else b""
        whole = block.rfind(b"\n") + 1
        if whole or len(block) < want:
            return block[:whole]
        want *= 2


def read_transcript(path: Path) -> tuple[Header, Iterator[AgentEvent]]:
    """The header, and all events up to the end of the file as it is met. Raises as `read_header` does."""
    header, offset = read_header(path)
    return header, _events(Cursor(path, header, offset))


def _events(cursor: Cursor) -> Iterator[AgentEvent]:
    while cursor.fill():
        while (event := cursor.take()) is not None:
            yield event


class Follower:
    """Iterates over the events of a transcript that another process writes, and waits for more.

    It ends after a `run_finished` that nothing follows, or when no process holds the session any more.
    """

    def __init__(self, path: Path, *, after: int = 0) -> None:
        self._path = path
        self._header, self._begin = read_header(path)
        self._after = after
        self._cursor = Cursor(path, self._header, self._begin, after=after)
        self._finished = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        while True:
            await trio.lowlevel.checkpoint()
            event = self._cursor.take()
            if event is not None:
                self._after = event.seq
                self._finished = isinstance(event.data, RunFinished)
                return event
            # Asked before the read: what a writer appended before it let go must still be delivered.
            over = self._finished or writer_of(self._path.parent) is None
            if self._more():
                continue
            if over:
                raise StopAsyncIteration
            await trio.sleep(_POLL)

    def _more(self) -> bool:
        try:
            size = self._path.stat().st_size
        except OSError as exc:
            raise TranscriptFailed(f"cannot read the transcript {self._path}: {exc.strerror}.") from exc
        if size < self._cursor.offset:
            # The writer took a failed append back after we had read a part of it.
            self._cursor = Cursor(self._path, self._header, self._begin, after=self._after)
        return self._cursor.fill(size)
