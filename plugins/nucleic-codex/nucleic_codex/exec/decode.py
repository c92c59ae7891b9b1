"""The messages of `codex exec --json` as events.

One process is one turn. Its end is told when the process has ended, not before: only then the last message lies in its
file, and what stdout kept silent about can be looked up. So four channels are read beside stdout, all given by the driver:

    program        {"version"}: the version of the program, before anything else
    rollout        records of the thread's own file: the last count before this turn, then the turn's calls and answers
    last_message   {"text"}: what `-o` wrote
    stderr         {"line"}: for people, never read as protocol, whatever it looks like
"""

import re
from pathlib import Path

from nucleic_codex.exec.items import COMPLETED, STARTED, UPDATED, Items
from nucleic_codex.exec.unseen import Unseen
from nucleic_codex.exec.usage import Meter
from nucleic_codex.fields import mapping, string
from nucleic_core.backend import Out
from nucleic_core.events import Error, Raw, SessionStarted, TurnCompleted, TurnStarted
from nucleic_core.lowlevel import JSON, BaseDecoder

_RETRY = re.compile(r"Reconnecting\.\.\. ([0-9]{1,6})/([0-9]{1,6})")


class ExecDecoder(BaseDecoder):
    """Reads one process. `resumed`: its thread had turns before, whose tokens the wire counts in."""

    def __init__(self, *, cwd: Path | None = None, model: str | None = None, resumed: bool = False) -> None:
        self._cwd = cwd
        self._model = model
        self._unseen = Unseen()
        self._items = Items(self._unseen)
        self._meter = Meter(resumed=resumed)
        self._version: str | None = None
        self._failure: str | None = None  # an `error` that may be the turn's: the next message tells
        self._total: JSON = None
        self._end: TurnCompleted | None = None
        self._written: str | None = None
        self._lines = 0
        self.thread: str | None = None
        """The thread's id, once Codex has named it."""

    @property
    def turn_over(self) -> bool:
        """Whether Codex has said that its turn ended; the process has yet to."""
        return self._end is not None

    def received(self, message: JSON, out: Out, channel: str = "stdout") -> None:
        """See `Decoder.received`."""
        read = {"stdout": self._stdout, "rollout": self._rollout, "stderr": self._stderr}.get(channel, self._told)
        if not isinstance(message, dict) or not read(message, out):
            kind = message.get("type") if isinstance(message, dict) else None
            out.event(Raw(message), kind if isinstance(kind, str) else None)

    def ended(self, returncode: int | None, out: Out) -> None:
        """See `Decoder.ended`. A turn that Codex did not end (SIGINT, SIGTERM) is the core's to end."""
        self._tell_failure(out, recoverable=False)
        if self._end is not None:
            text = self._items.last_text if self._written is None else self._written
            done = self._end.outcome == "completed"
            out.event(
                self._end.but(usage=self._meter.turn(self._total), final_text=text if done else None),
                f"turn.{'completed' if done else 'failed'}",
            )

    # -- stdout -----------------------------------------------------------------------------------------------------

    def _stdout(self, message: dict[str, JSON], out: Out) -> bool:
        kind = message.get("type")
        match message:
            case {"type": "turn.failed"}:
                return self._failed(string(mapping(message.get("error")).get("message")), out)
            case {"type": "error", "message": str(text)}:
                self._tell_failure(out)
                return self._error(text, out)
        self._tell_failure(out)
        match message:
            case {"type": "thread.started", "thread_id": str(thread)}:
                return self._started(thread, out)
            case {"type": "turn.started"}:
                out.event(TurnStarted(), "turn.started")
                return True
            case {"type": "turn.completed"}:
                self._total, self._end = message.get("usage"), TurnCompleted("completed")
                return True
            case {"type": "item.started" | "item.updated" | "item.completed", "item": item}:
                assert kind in (STARTED, UPDATED, COMPLETED)
                return self._items.read(kind, item, out)
            case _:
                return False

    def _started(self, thread: str, out: Out) -> bool:
        if self.thread is not None:
            return False
        self.thread = thread
        cwd = None if self._cwd is None else str(self._cwd)
        out.event(SessionStarted(thread, self._model, cwd, agent_version=self._version), "thread.started")
        return True

    def _error(self, text: str, out: Out) -> bool:
        """A retry is no failure. Of any other error the next message tells whether the turn failed by it."""
        if retry := _RETRY.match(text):
            attempt, most = map(int, retry.groups())
            out.event(Error(text, code="retry", attempt=attempt, max_attempts=most), "error")
        else:
            self._failure = text
        return True

    def _failed(self, text: str | None, out: Out) -> bool:
        """The turn failed. Codex says why twice, in `error` and here; it is told once."""
        if self._failure not in (None, text):
            self._tell_failure(out)
        self._failure = text if text is not None else self._failure
        self._end = TurnCompleted("errored", error=self._failure)
        self._tell_failure(out, recoverable=False)
        return True

    def _tell_failure(self, out: Out, *, recoverable: bool = True) -> None:
        text, self._failure = self._failure, None
        if text is not None:
            out.event(Error(text, recoverable=recoverable), "error")

    # -- the other channels -----------------------------------------------------------------------------------------

    def _told(self, message: dict[str, JSON], out: Out) -> bool:
        match message:
            case {"version": str(version)}:
                self._version = version
            case {"text": str(text)}:
                self._written = text
            case _:
                return False
        return True

    def _rollout(self, record: dict[str, JSON], out: Out) -> bool:
        match record:
            case {"type": "event_msg", "payload": {"type": "token_count", **counted}}:
                self._meter.counted(counted.get("info"), before=self.thread is None)
                return True
            case _:
                return self._unseen.record(record, out)

    def _stderr(self, message: dict[str, JSON], out: Out) -> bool:
        self._lines += 1
        line = message.get("line")
        if isinstance(line, str):
            self._unseen.line(line, self._lines, out)
        return isinstance(line, str)
