"""What the recordings of all backends share: steps, and a place for what a decoder finds."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nucleic_core.backend import Ask
from nucleic_core.events import EventData

Step = tuple[str, str, Any]
"""(direction, channel, message): received, sent or ended."""


class Collected:
    """An `Out` that keeps everything."""

    def __init__(self) -> None:
        self.events: list[tuple[EventData, str | None, str | None]] = []
        self.asks: list[Ask] = []
        self.withdrawn: list[str] = []

    def event(self, data: EventData, native: str | None = None, parent: str | None = None) -> None:
        self.events.append((data, native, parent))

    def ask(self, ask: Ask, native: str | None = None, parent: str | None = None) -> None:
        self.asks.append(ask)

    def withdraw(self, key: str, reason: str) -> None:
        self.withdrawn.append(key)

    def __len__(self) -> int:
        return len(self.events) + len(self.asks) + len(self.withdrawn)


def lines(path: Path) -> Iterator[Any]:
    """The lines of a file that are JSON; the others never reach a decoder."""
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            if line.strip():
                yield None
