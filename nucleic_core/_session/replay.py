"""Recorded messages of an agent turned into the events that a live session would have had, as far as a wire tells.

A record is one line: a message as the agent wrote it to stdout, or an object around it:

    {"dir": "in" | "out", "channel": "stdout" | "stdin" | "mcp" | ..., "msg": {...}, "at": "2026-01-01T00:00:00.000000Z"}

`in` comes from the agent, `out` goes to it. `nucleic decode` prints what comes out, and fixtures are compared with it,
so nothing in it is random: an ask has its key on the wire as id.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from nucleic_core._approvals.asking import completed
from nucleic_core._faults import failure_of, log_failure
from nucleic_core._plugins import Hooks
from nucleic_core._session.decoding import Decoding, Found, FoundAsk, Withdrawn, placed
from nucleic_core._session.ledger import Item, Ledger
from nucleic_core._values import JSON
from nucleic_core._wire.framing import LineFramer, Oversize, parse
from nucleic_core.approvals import Answers, ApprovalRequest, Deny, Question
from nucleic_core.backend import ApprovalMapper, Ask
from nucleic_core.events import (
    AgentEvent,
    ApprovalResolved,
    QuestionAnswered,
)
from nucleic_core.specs import RunSpec

log = logging.getLogger("nucleic.decode")


@attrs.frozen
class Record:
    """One recorded message. `outgoing`: it went to the agent."""

    message: JSON
    outgoing: bool = False
    channel: str = "stdout"
    at: str | None = None


def read_records(pieces: Iterable[bytes]) -> Iterator[Record]:
    """The records in a file that comes in pieces of any size. A line that is no JSON is a message like any other."""
    framer = LineFramer()
    for piece in pieces:
        yield from _records(framer.feed(piece))
    yield from _records(framer.finish())


def _records(lines: Iterable[bytes | Oversize]) -> Iterator[Record]:
    value: JSON
    for value in parse(lines):
        match value:
            case {"dir": "in" | "out" as direction, "msg": message}:
                outgoing = direction == "out"
                channel, at = value.get("channel"), value.get("at")
                if not isinstance(channel, str):
                    channel = "stdin" if outgoing else "stdout"
                yield Record(message, outgoing, channel, at if isinstance(at, str) else None)
            case _:
                yield Record(value)


def replay(hooks: Hooks, backend: str, records: Iterable[Record], *, cwd: Path) -> Iterator[AgentEvent]:
    """The events of a recording, numbered from 1, of an empty session; `cwd` is where the agent worked.

    The end of the records is the end of a process whose exit status is unknown. What was answered is in no recording of
    ours to tell, so asks are closed only where the agent took them back.
    """
    run = RunSpec(session="", backend=backend, cwd=cwd)
    placing = _Placing(Decoding(hooks.decoder(run), Ledger()), hooks.approval_mapper(run), cwd)
    for seq, (at, (data, native, parent)) in enumerate(placing.play(records), 1):
        yield AgentEvent(seq, at, "", backend, native, parent, data)


class _Placing:
    """Puts asks at their places, as the commit step of a live session does."""

    def __init__(self, decoding: Decoding, mapper: ApprovalMapper | None, cwd: Path) -> None:
        self._decoding = decoding
        self._mapper = mapper
        self._cwd = cwd
        self._open: dict[str, ApprovalRequest | Question] = {}

    def play(self, records: Iterable[Record]) -> Iterator[tuple[str | None, Item]]:
        for record in records:
            if record.outgoing:
                found = self._decoding.sent(record.message, record.channel)
            else:
                found = self._decoding.received([record.message], record.channel)
            for item in self._placed(found):
                yield record.at, item
        for item in self._placed(self._decoding.ended(None, "the recording ends here")):
            yield None, item

    def _placed(self, found: Iterable[Found]) -> Iterator[Item]:
        for entry in found:
            match entry:
                case FoundAsk():
                    yield from self._asked(entry)
                case Withdrawn(key, reason):
                    yield from self._withdrawn(key, reason)
                case _:
                    yield entry

    def _asked(self, found: FoundAsk) -> Iterator[Item]:
        what = self._read(found.ask)
        if what is not None:
            self._open[found.ask.key] = what
        return placed(found, what, self._decoding.ledger)

    def _read(self, ask: Ask) -> ApprovalRequest | Question | None:
        try:
            what = self._mapper.read(ask) if self._mapper is not None else None
        except BaseException as exc:
            log_failure(log, "the approval mapper, reading an ask,", failure_of(exc))
            return None
        match what:
            case ApprovalRequest():
                return attrs.evolve(completed(what, self._cwd), id=ask.key)
            case Question():
                return attrs.evolve(what, id=ask.key)
            case _:
                return None

    def _withdrawn(self, key: str, reason: str) -> Iterator[Item]:
        match self._open.pop(key, None):
            case ApprovalRequest(tool_call=call):
                yield ApprovalResolved(key, Deny(reason), "nucleic", "withdrawn", call), None, None
            case Question(tool_call=call):
                yield QuestionAnswered(key, Answers(None), "nucleic", "withdrawn", call), None, None
