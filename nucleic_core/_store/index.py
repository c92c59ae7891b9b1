"""The list of sessions, `index.sqlite3`: a cache over the transcripts, shared by all hosts of one home.

Each host writes a session's row when its status changes; whoever lists the sessions completes what is missing from the
transcripts. So a lost, damaged or older file costs only time, and no failure in here may stop a run.

A connection lasts one operation, which keeps threads, forks and a replaced file out of question. A file lock keeps
connections away while a damaged file is removed.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

import attrs

from nucleic_core._faults import log_failure
from nucleic_core._store.header import read_header
from nucleic_core._store.home import index_path, locks_dir, make_private, sessions_dir, transcript_path
from nucleic_core._store.lock import writer_of
from nucleic_core._store.reader import BLOCK, seq_of
from nucleic_core._values import JSON
from nucleic_core.errors import NucleicError

_SCHEMA = 1
_BUSY = 0.5  # seconds; a write takes well under a millisecond
_TITLE = 60  # characters

_log = logging.getLogger("nucleic.store")


@attrs.frozen(kw_only=True)
class SessionRow:
    """One session as it is listed. Times are RFC 3339 UTC; `events` is the number of its last event.

    `writer` is the pid of the process that has it open now (0: unknown which), None where nobody has: a status such as
    running is then what a crash left behind. It is looked up when listed, not stored.
    """

    id: str
    backend: str
    cwd: str
    status: str
    created_at: str
    last_activity: str
    model: str | None = None
    title: str = ""
    events: int = 0
    branch: str | None = None
    ahead: int | None = None
    behind: int | None = None
    writer: int | None = attrs.field(default=None, eq=False)


_COLUMNS = tuple(field.name for field in attrs.fields(SessionRow) if field.name != "writer")
_CREATE = f"CREATE TABLE IF NOT EXISTS sessions ({', '.join(_COLUMNS)}, PRIMARY KEY (id))"
_PUT = f"INSERT OR {{}} INTO sessions ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM sessions"  # noqa: S608
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_ERROR")  # the last: other tables or columns

_T = TypeVar("_T")


class _Unusable(Exception):
    """The index file is missing, damaged, or of another version."""


def title_of(prompt: str) -> str:
    """The first words of a prompt, on one line."""
    words = " ".join(prompt[: 20 * _TITLE].split())
    return words if len(words) <= _TITLE else words[: _TITLE - 1].rstrip() + "…"


class Index:
    """The sessions of one home. Blocking, for a moment at most; failures are logged and never raised."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = index_path(home)

    def update(self, row: SessionRow) -> None:
        """Write a session's row, whole."""
        self._put([row])

    def get(self, session: str) -> SessionRow | None:
        """One session as it would be listed, or None. Raises SessionNotFound for what can be no id."""
        path = transcript_path(self._home, session)
        if not path.exists():
            return None
        row = self._rows().get(session) or _from_transcript(path)
        return row and attrs.evolve(row, writer=writer_of(path.parent))

    def sessions(self) -> list[SessionRow]:
        """All sessions that have a transcript, the latest active first."""
        known = self._rows()
        rows: list[SessionRow] = []
        missing: list[SessionRow] = []
        try:
            directories = [path.parent for path in sessions_dir(self._home).glob("*/transcript.jsonl")]
        except OSError:
            directories = []
        for directory in directories:
            row = known.get(directory.name)
            if row is None:
                row = _from_transcript(directory / "transcript.jsonl")
                if row is None:
                    continue
                missing.append(row)
            rows.append(attrs.evolve(row, writer=writer_of(directory)))
        if missing:
            self._put(missing, replace=False)
        return sorted(rows, key=lambda row: row.last_activity, reverse=True)

    def _rows(self) -> dict[str, SessionRow]:
        rows = self._try(lambda db: db.execute(_SELECT).fetchall())
        return {row[0]: SessionRow(**dict(zip(_COLUMNS, row, strict=True))) for row in rows or ()}

    def _put(self, rows: list[SessionRow], *, replace: bool = True) -> None:
        values = [[getattr(row, name) for name in _COLUMNS] for row in rows]
        # A row completed from a transcript must not undo what its host wrote meanwhile.
        put = _PUT.format("REPLACE" if replace else "IGNORE")
        self._try(lambda db: db.executemany(put, values))

    def _try(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        try:
            try:
                return self._once(work)
            except _Unusable:
                self._renew()
                return self._once(work)
        except (OSError, sqlite3.Error, NucleicError, _Unusable) as exc:
            _log.warning("the index %s is left out: %s", self._path, exc)
        except Exception as exc:  # a value that sqlite cannot hold, such as a text that is no Unicode
            log_failure(_log, f"the index {self._path} is left out: it", exc)
        return None

    def _once(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            with self._lock(fcntl.LOCK_SH), self._open() as db, db:
                if db.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA:
                    raise _Unusable("it is of another version")
                return work(db)
        except sqlite3.DatabaseError as exc:
            if getattr(exc, "sqlite_errorname", "") in _DAMAGE:
                raise _Unusable(str(exc)) from exc
            raise

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY)
        with contextlib.closing(db):
            db.execute("PRAGMA synchronous = OFF")  # what a crash of the machine damages is made anew
            yield db

    def _renew(self) -> None:
        """Begin with an empty file, unless another process just has."""
        with self._lock(fcntl.LOCK_EX):
            try:
                with self._open() as db:
                    state = [db.execute(f"PRAGMA {ask}").fetchone()[0] for ask in ("user_version", "integrity_check")]
                    if state == [_SCHEMA, "ok"] and db.execute(_SELECT):
                        return
            except sqlite3.DatabaseError:
                pass
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))  # sqlite's own would be 0644
            with self._open() as db, db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(_CREATE)
                db.execute(f"PRAGMA user_version = {_SCHEMA}")

    @contextlib.contextmanager
    def _lock(self, mode: int) -> Iterator[None]:
        make_private(locks_dir(self._home))
        fd = os.open(locks_dir(self._home) / "index", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _BUSY
            while True:
                try:
                    fcntl.flock(fd, mode | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
            yield
        finally:
            os.close(fd)


_STATUS = {
    "user_message": "running",
    "turn_started": "running",
    "approval_requested": "awaiting_approval",
    "approval_resolved": "running",
    "question_asked": "awaiting_input",
    "question_answered": "running",
    "turn_completed": "awaiting_input",
    "run_finished": "finished",
}
"""What the newest of these events says. Enough for a list; a live session's host writes the exact status."""


def _from_transcript(path: Path) -> SessionRow | None:
    """A row made from both ends of a transcript; None, logged, when it cannot be read."""
    try:
        header, begin = read_header(path)
        with path.open("rb") as file:
            file.seek(begin)
            first = _events(file.read(BLOCK))
            last = _events(_tail(file, begin))
        touched = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="microseconds")
    except (OSError, NucleicError) as exc:
        _log.warning("%s is left out of the list: %s", path, exc)
        return None
    prompt = next((e["text"] for e in first if e.get("kind") == "user_message" and isinstance(e.get("text"), str)), "")
    newest = last[-1] if last else {}
    status = "running" if last else "idle"
    for event in reversed(last):
        kind = event.get("kind")
        if (kind == "run_finished" and event.get("outcome") == "errored") or (
            kind == "error" and event.get("recoverable") is False
        ):
            status = "error"
            break
        if isinstance(kind, str) and kind in _STATUS:
            status = _STATUS[kind]
            break
    return SessionRow(
        id=path.parent.name,
        backend=header.backend,
        cwd=header.cwd,
        status=status,
        created_at=header.created_at,
        last_activity=newest["at"] if isinstance(newest.get("at"), str) else touched.replace("+00:00", "Z"),
        model=header.model,
        title=title_of(prompt),
        events=newest.get("seq", 0),
    )


def _events(block: bytes) -> list[dict[str, JSON]]:
    return [obj for seq, obj in map(seq_of, block.split(b"\n")) if seq is not None]


def _tail(file: BinaryIO, begin: int) -> bytes:
    """The last block of the file, or more where it holds no whole line."""
    size = file.seek(0, os.SEEK_END)
    want = BLOCK
    while True:
        start = max(begin, size - want)
        file.seek(start)
        block = file.read(size - start)
        if start == begin or block.count(b"\n") > 1:
            return block[: block.rfind(b"\n") + 1]
        want *= 2
