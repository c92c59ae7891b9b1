"""Reads the file in which Codex keeps a thread: what its turns had taken before ours, and what ours called.

`$CODEX_HOME/sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`, one record a line, appended to as the turn goes on. With
`--ephemeral` there is none. Only the records that the decoder has a use for are kept: a file may hold megabytes.
"""

import re
from pathlib import Path

import attrs

from nucleic_codex.fields import mapping
from nucleic_core.lowlevel import JSON, LineFramer, parse

_WANTED = frozenset(
    {"token_count", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
_THREAD = re.compile(r"[0-9A-Za-z-]{1,64}")
_PIECE = 1 << 20


@attrs.frozen
class Mark:
    """How far a thread's file went before our turn, in bytes, and the last count of its tokens up to there."""

    thread: str
    size: int = 0
    count: JSON = None


def mark(home: Path, thread: str) -> Mark:
    """Where the thread stands now."""
    file = _find(home, thread)
    if file is None:
        return Mark(thread)
    counts = [record for record in _records(file, 0) if mapping(record.get("payload")).get("type") == "token_count"]
    return Mark(thread, file.stat().st_size, counts[-1] if counts else None)


def since(home: Path, thread: str, before: Mark | None) -> list[dict[str, JSON]]:
    """The records of a thread that came after the mark; all of them where the mark is another thread's."""
    file = _find(home, thread)
    start = before.size if before is not None and before.thread == thread else 0
    return _records(file, start) if file is not None else []


def _find(home: Path, thread: str) -> Path | None:
    if not _THREAD.fullmatch(thread):
        return None
    return next(iter((home / "sessions").glob(f"*/*/*/rollout-*-{thread}.jsonl")), None)


def _records(file: Path, start: int) -> list[dict[str, JSON]]:
    framer, kept = LineFramer(), list[dict[str, JSON]]()
    with file.open("rb") as stream:
        stream.seek(start)
        while piece := stream.read(_PIECE):
            kept += _wanted(framer.feed(piece))
    return kept + _wanted(framer.finish())


def _wanted(lines: list[JSON]) -> list[dict[str, JSON]]:
    """The records we know by their type. What is no JSON is half a line of a process that was killed."""
    records = [record for record in parse(lines) if isinstance(record, dict)]
    return [record for record in records if mapping(record.get("payload")).get("type") in _WANTED]
