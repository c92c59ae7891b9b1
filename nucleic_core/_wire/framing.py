"""Cuts a byte stream into lines and reads each line as JSON, losing nothing and never raising.

`LineFramer` finds the lines, `parse` reads them; `ChildProcess.batches()` puts the two behind a pipe. Whatever a child
prints comes out as one of three things: a JSON value, `Unparsed` for a line that is no JSON, `Oversize` for a line that
was too long to keep.
"""

import hashlib
import json
from collections.abc import Iterable

import attrs
import orjson

from nucleic_core._values import JSON, unicode_text

LINE_LIMIT = 64 << 20
"""Bytes in the longest line that is kept. The longest seen from a real CLI was 1.2 MB."""

_HEAD = 4096


@attrs.frozen
class Oversize:
    """A line longer than the limit: its `size` in bytes without the newline, its first 4 kB, its SHA-256 in hex."""

    size: int
    head: bytes
    sha256: str


@attrs.frozen
class Unparsed:
    """A line that is no JSON; bytes that are no UTF-8 stand in `text` as U+FFFD."""

    text: str


class LineFramer:
    r"""Splits chunks of any size at the `\n` byte and at nothing else, since U+2028, NUL and CR occur inside lines.

    Blank lines are skipped. The open tail is a list of chunks, joined once, so a huge line costs linear time.
    """

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._size = 0
        self._skipped: _Skipped | None = None

    def feed(self, chunk: bytes) -> list[bytes | Oversize]:
        """The lines that this chunk completes, without their newlines."""
        *ends, tail = chunk.split(b"\n")
        lines: list[bytes | Oversize] = []
        if ends:
            self._extend(ends[0])
            lines += self._take()
            if len(chunk) <= self._limit:  # then each of the rest is a whole line as it stands
                lines += [line for line in ends[1:] if line and not line.isspace()]
            else:
                for end in ends[1:]:
                    self._extend(end)
                    lines += self._take()
        self._extend(tail)
        return lines

    def finish(self) -> list[bytes | Oversize]:
        """The last line when the stream ended without a newline; the framer is as new then."""
        return self._take()

    def _extend(self, piece: bytes) -> None:
        if self._skipped is not None:
            self._skipped.add(piece)
        elif piece:
            self._tail.append(piece)
            self._size += len(piece)
            if self._size > self._limit:
                self._skipped = _Skipped()
                for part in self._tail:
                    self._skipped.add(part)
                self._tail = []

    def _take(self) -> list[bytes | Oversize]:
        if self._skipped is not None:
            whole: bytes | Oversize = self._skipped.result()
        else:
            whole = self._tail[0] if len(self._tail) == 1 else b"".join(self._tail)
        self._tail, self._size, self._skipped = [], 0, None
        return [] if isinstance(whole, bytes) and (not whole or whole.isspace()) else [whole]


class _Skipped:
    """What is remembered of a line that is too long, while it still comes in."""

    def __init__(self) -> None:
        self._size = 0
        self._head = b""
        self._hash = hashlib.sha256()

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        self._head += piece[: _HEAD - len(self._head)]
        self._hash.update(piece)

    def result(self) -> Oversize:
        return Oversize(self._size, self._head, self._hash.hexdigest())


def parse(lines: Iterable[bytes | Oversize]) -> list[JSON | Unparsed | Oversize]:
    """Each line as the JSON value it holds, in order; every value can be written again as strict JSON.

    orjson reads nearly all. What it refuses is read leniently, by these rules: bytes that are no UTF-8 and lone
    surrogates, in strings and keys, become U+FFFD; NaN and the infinities become null. A line that is no JSON even then,
    or nests deeper than orjson reads (1024), is `Unparsed`. Integers beyond 64 bits become floats in either way.
    """
    values: list[JSON | Unparsed | Oversize] = []
    for line in lines:
        try:
            values.append(orjson.loads(line))  # type: ignore[arg-type]  # it says no to an Oversize, too
        except orjson.JSONDecodeError:
            values.append(line if isinstance(line, Oversize) else _read_leniently(line))
    return values


def _read_leniently(line: bytes) -> JSON | Unparsed:
    text = line.decode("utf-8", "replace")
    try:
        value = json.loads(text, parse_constant=lambda _name: None, parse_float=_finite)
        # Written and read once more, so that the result is what orjson makes of strict JSON.
        return orjson.loads(unicode_text(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return Unparsed(text)


def _finite(number: str) -> float | None:
    value = float(number)
    return value if abs(value) != float("inf") else None
