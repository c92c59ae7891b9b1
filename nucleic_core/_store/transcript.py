"""The transcript of a session: one append-only file, one writer, and the place where events get their number.

`append` is one synchronous step from payloads to bytes handed to the kernel, so that what was appended is recorded
before any reply leaves. Making it durable is the sync task's work (`syncing`), handing it out that of `stream`.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import attrs
import trio

from nucleic_core._store.header import Header, read_header
from nucleic_core._store.home import make_private, session_dir, sessions_dir
from nucleic_core._store.lock import WriterLock
from nucleic_core._store.reader import read_event, seq_of
from nucleic_core._store.redaction import Redactor
from nucleic_core._store.stream import EventStream, Feed
from nucleic_core.errors import SessionNotFound, TranscriptFailed
from nucleic_core.events import AgentEvent, EventData, Raw, encode_line, envelope

__all__ = ["EventStream", "Header", "Item", "TornLine", "Transcript", "now"]

Item = tuple[EventData, str | None, str | None]
"""A payload, the wire's name of its message, and the tool call of the sub-agent it belongs to."""

_NAME = "transcript.jsonl"
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_BACKWARDS = 64 * 1024


def now() -> str:
    """RFC 3339 UTC with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@attrs.frozen
class TornLine:
    """What a crash left of a line at the end of the file: cut when the transcript was reopened, and kept at `copy`."""

    size: int
    copy: Path


class Transcript:
    """The writer's end of one session. Made by `create` or `reopen`; for the one trio thread of its session."""

    def __init__(self, directory: Path, lock: WriterLock, fd: int, feed: Feed, secrets: Sequence[str]) -> None:
        self.directory = directory
        self.path = feed.path
        self.header = feed.header
        self.torn: TornLine | None = None
        self.dirty = True
        """Whether something was written since the last `sync_fd`."""
        self.on_dirty: Callable[[Transcript], None] | None = None
        """Called when it becomes dirty; set by the sync task."""
        self._lock = lock
        self._fd = fd
        self._feed = feed
        self._redactor = Redactor(secrets)
        self._failure: str | None = None

    @classmethod
    def create(cls, home: Path, header: Header, *, secrets: Sequence[str] = ()) -> Self:
        """Begin the transcript of a new session. Raises TranscriptFailed when that cannot be done."""
        directory = session_dir(home, header.session)
        make_private(sessions_dir(home))
        make_private(directory)
        path = directory / _NAME
        with _as_transcript_failed(f"cannot create the transcript {path}"), contextlib.ExitStack() as undo:
            lock = WriterLock(directory)
            undo.callback(lock.close)
            try:
                fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError as exc:
                raise TranscriptFailed(
                    f"session {header.session} exists already. Resume it, or choose another id."
                ) from exc
            undo.callback(os.close, fd)
            undo.callback(path.unlink, missing_ok=True)  # without its header it could never be opened
            line = header.to_line() + b"\n"
            _write_all(fd, line)
            undo.pop_all()
        return cls(directory, lock, fd, Feed(path, header, len(line), 1, len(line)), secrets)

    @classmethod
    def reopen(cls, home: Path, session: str, *, secrets: Sequence[str] = ()) -> Self:
        """Open a session's transcript to append to it; numbers go on after the last good line.

        A torn last line is cut off and told in `torn`. Raises SessionNotFound, SessionBusy, or TranscriptFailed.
        """
        directory = session_dir(home, session)
        path = directory / _NAME
        if not path.exists():
            raise SessionNotFound(f"no session {session} under {home}. `nucleic sessions` lists what is there.")
        with _as_transcript_failed(f"cannot open the transcript {path}"), contextlib.ExitStack() as undo:
            lock = WriterLock(directory)
            undo.callback(lock.close)
            header, begin = read_header(path)
            fd = os.open(path, _FLAGS)
            undo.callback(os.close, fd)
            torn = _cut_torn_line(fd, directory)
            end = os.fstat(fd).st_size
            feed = Feed(path, header, begin, _last_seq(fd, begin, end) + 1, end)
            undo.pop_all()
        transcript = cls(directory, lock, fd, feed, secrets)
        transcript.torn = torn
        return transcript

    @property
    def next_seq(self) -> int:
        """The number that the next event gets."""
        return self._feed.next_seq

    @trio.lowlevel.enable_ki_protection  # Ctrl-C between the write and the count would give two events one number
    def append(self, items: Sequence[Item]) -> list[AgentEvent]:
        """Number these payloads, write them in one piece and hand them out; all of them or, on an error, none.

        Raises TranscriptFailed when the file cannot be written (disk full), and from then on always.
        """
        if self._failure is not None or self._feed.closed:
            raise TranscriptFailed(self._failure or f"the transcript {self.path} is closed.")
        at, seq, session, backend = now(), self._feed.next_seq, self.header.session, self.header.backend
        shared = envelope(at, session, backend)
        lines: list[bytes] = []
        events: list[AgentEvent] = []
        for data, native, parent in items:
            try:
                line = encode_line(seq, shared, native, parent, data)
            except (TypeError, ValueError, RecursionError):
                data = _as_text(data)
                line = encode_line(seq, shared, native, parent, data)
            lines.append(line)
            events.append(AgentEvent(seq, at, session, backend, native, parent, data))
            seq += 1
        if not lines:
            return events
        lines.append(b"")
        batch = b"\n".join(lines)
        lines.pop()
        if self._redactor.finds(batch):
            self._redact(lines, events)
            batch = b"\n".join([*lines, b""])
        try:
            _write_all(self._fd, batch)
        except OSError as exc:
            with contextlib.suppress(OSError):  # if even that fails, the torn line is cut at the next open
                os.ftruncate(self._fd, self._feed.end)
            self.fail(exc)
            raise TranscriptFailed(self._failure) from exc
        self._feed.publish(events, self._feed.end + len(batch))
        if not self.dirty:
            self.dirty = True
            if self.on_dirty is not None:
                self.on_dirty(self)
        return events

    def also_redact(self, secrets: Iterable[str]) -> None:
        """More secrets are known; what is written from now on is free of them."""
        self._redactor.learn(secrets)

    def _redact(self, lines: list[bytes], events: list[AgentEvent]) -> None:
        """Replace secrets; the events become what the file says, so that subscribers get the same."""
        for i, line in enumerate(lines):
            if self._redactor.finds(line):
                lines[i] = self._redactor.clean(line)
                events[i] = read_event(seq_of(lines[i])[1])

    def events(self, after: int = 0) -> EventStream:
        """The events after number `after`, those of earlier processes included; any number of streams."""
        return EventStream(self._feed, after)

    def fail(self, exc: OSError) -> None:
        """Nothing can be recorded any more: every later `append` raises TranscriptFailed."""
        if self._failure is None:
            self._failure = (
                f"cannot write the transcript {self.path}: {exc.strerror}. "
                f"Events up to {self._feed.next_seq - 1} were written, the last of them perhaps not for good; make room there "
                "and resume the session."
            )

    @property
    def failure(self) -> TranscriptFailed | None:
        """Why not everything could be recorded for good, if so; known for certain after `close`."""
        return None if self._failure is None else TranscriptFailed(self._failure)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._feed.closed

    def sync_fd(self) -> int:
        """A descriptor of the file for one fsync, which the caller closes. The transcript counts as clean from here on.

        It is a duplicate, because the number of ours may belong to another file by the time a thread gets to it.
        """
        self.dirty = False
        return os.dup(self._fd)

    def begin_run(self) -> None:
        """What stands in the file by now is history: streams end after a `run_finished` that comes later."""
        self._feed.history = self._feed.next_seq - 1

    def end_streams(self) -> None:
        """Nothing more will come: streams end when they have read what is there, `run_finished` or not."""
        self._feed.end_streams()

    def close(self) -> None:
        """Make what is written durable (blocking, unless the sync task has done it), let go, end the streams.

        Should it not become durable, `failure` says so.
        """
        if self._feed.closed:
            return
        try:
            if self.dirty:
                try:
                    os.fsync(self._fd)
                except OSError as exc:
                    self.fail(exc)
        finally:
            self._feed.close()
            os.close(self._fd)
            self._lock.close()


@contextlib.contextmanager
def _as_transcript_failed(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise TranscriptFailed(
            f"{what}: {exc.strerror}. Set NUCLEIC_HOME to a directory that you may write to."
        ) from exc


def _write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):  # a disk that fills up takes a part first and refuses the rest
        written += os.write(fd, memoryview(data)[written:])


def _as_text(data: EventData) -> EventData:
    """A payload that has no JSON form (a decoder put an object in it, or it nests too deep) as text."""
    try:
        return Raw(json.dumps({name: getattr(data, name) for name in data.field_names}, default=repr, skipkeys=True))
    except (TypeError, ValueError, RecursionError):
        return Raw(f"a {data.kind} that cannot be written as JSON")


def _cut_torn_line(fd: int, directory: Path) -> TornLine | None:
    size = os.fstat(fd).st_size
    end = _line_end_before(fd, size)
    if end == size:
        return None
    taken = [int(m[1]) for p in directory.iterdir() if (m := re.fullmatch(r"transcript\.torn-(\d+)", p.name))]
    copy = directory / f"transcript.torn-{max(taken, default=0) + 1}"
    out = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_all(out, os.pread(fd, size - end, end))
    finally:
        os.close(out)
    os.ftruncate(fd, end)
    return TornLine(size - end, copy)


def _line_end_before(fd: int, offset: int) -> int:
    """The offset behind the last line feed before `offset`; 0 when there is none."""
    while offset > 0:
        start = max(0, offset - _BACKWARDS)
        found = os.pread(fd, offset - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        offset = start
    return 0


def _last_seq(fd: int, begin: int, end: int) -> int:
    """The number of the last event; damaged lines behind the last good one count, as they do for readers."""
    damaged = 0
    while end > begin:
        start = max(begin, _line_end_before(fd, end - 1))
        seq, _ = seq_of(os.pread(fd, end - 1 - start, start))
        if seq is not None:
            return seq + damaged
        damaged += 1
        end = start
    return damaged
