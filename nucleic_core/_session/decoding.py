"""From messages to an ordered list of events, asks and withdrawals: the first half of the commit step.

Pure: live sessions and `nucleic decode` run the same code. Lines that are no JSON are placed here, in line order, and
kept from the decoder; a decoder that raises costs one message its meaning and the run nothing.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeAlias

import attrs

from nucleic_core._faults import failure_of, log_failure
from nucleic_core._session.ledger import Item, Ledger
from nucleic_core._values import JSON
from nucleic_core._wire.framing import Oversize, Unparsed
from nucleic_core.approvals import ApprovalRequest, Question
from nucleic_core.backend import Ask, Decoder, Out
from nucleic_core.events import ApprovalRequested, Error, EventData, Notice, QuestionAsked, Raw

log = logging.getLogger("nucleic.decode")


@attrs.frozen
class FoundAsk:
    """An ask at its place among the events."""

    ask: Ask
    native: str | None
    parent: str | None


@attrs.frozen
class Withdrawn:
    """The agent took an ask back."""

    key: str
    reason: str


Found: TypeAlias = "Item | FoundAsk | Withdrawn"


def placed(found: FoundAsk, what: ApprovalRequest | Question | None, ledger: Ledger) -> Iterator[Item]:
    """An ask at its place as events; `what` is what the mapper made of it, with its id."""
    native, parent = found.native, found.parent
    match what:
        case ApprovalRequest():
            if what.tool_call is not None:  # an ask on a channel of its own may overtake the line that shows its call
                yield from ledger.foretell(what.tool_call, what.tool, what.input, parent)
            yield ApprovalRequested(what), native, parent
        case Question():
            yield QuestionAsked(what), native, parent
        case None:
            yield Raw(found.ask.native), native, parent
            text = f"The agent asked something that is not understood ({native or 'unnamed'}); it is refused."
            yield Error(text, code="unknown_ask"), native, parent


class Collected:
    """An `Out`: one list, in order."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[Found] = []

    def event(self, data: EventData, native: str | None = None, parent: str | None = None) -> None:
        """See `Out.event`."""
        self.found.append((data, native, parent))

    def ask(self, ask: Ask, native: str | None = None, parent: str | None = None) -> None:
        """See `Out.ask`."""
        self.found.append(FoundAsk(ask, native, parent))

    def withdraw(self, key: str, reason: str) -> None:
        """See `Out.withdraw`."""
        self.found.append(Withdrawn(key, reason))


class Decoding:
    """One process's decoder and ledger."""

    def __init__(self, decoder: Decoder, ledger: Ledger) -> None:
        self._decoder = decoder
        self.ledger = ledger
        self._told: set[str] = set()

    def received(self, messages: Iterable[JSON], channel: str = "stdout") -> Iterator[Found]:
        """What messages from the agent mean, in order; each is accounted for when it is taken, after what stood before it."""
        out = Collected()
        for message in messages:
            if type(message) is dict:  # nearly always
                self._decode(self._decoder.received, message, out, channel)
            elif isinstance(message, Unparsed):
                out.event(Raw(message.text), "unparsed")
            elif isinstance(message, Oversize):
                detail = {
                    "size": message.size,
                    "head": message.head.decode("utf-8", "replace"),
                    "sha256": message.sha256,
                }
                out.event(Notice("oversize", f"A line of {message.size} bytes was not read.", detail), "oversize")
            else:
                self._decode(self._decoder.received, message, out, channel)
        return self._admitted(out)

    def sent(self, message: JSON, channel: str = "stdin") -> Iterator[Found]:
        """What a message to the agent means."""
        out = Collected()
        self._decode(self._decoder.sent, message, out, channel)
        return self._admitted(out)

    def ended(self, returncode: int | None, description: str, *, failed: bool = False) -> Iterator[Found]:
        """What the end of the process means; `description` says it to a person, `failed` that it was our own failure."""
        out = Collected()
        try:
            self._decoder.ended(returncode, out)
        except BaseException as exc:
            self._failed(out, failure_of(exc))
        return chain(self._admitted(out), self.ledger.end(returncode, description, failed=failed))

    def _decode(self, decode: Callable[[JSON, Out, str], None], message: JSON, out: Collected, channel: str) -> None:
        try:
            decode(message, out, channel)
        except BaseException as exc:
            failure = failure_of(exc)
            out.event(Raw(message))
            self._failed(out, failure)

    @staticmethod
    def _failed(out: Collected, failure: Exception) -> None:
        log_failure(log, "the decoder", failure)
        out.event(Notice("decoder", f"The decoder failed on this message: {failure!r}"))

    def _admitted(self, out: Collected) -> Iterator[Found]:
        """Lazily: an ask in the midst must find the account as it is at its place, to foretell a call whose line follows."""
        for found in out.found:
            if isinstance(found, tuple):
                if type(found[0]) is Raw:
                    self._tell(found[1])
                yield from self.ledger.admit(found)
            else:
                yield found

    def _tell(self, native: str | None) -> None:
        """Log what is not understood once a run by its type, so that a flood of it costs one line."""
        if (native or "") not in self._told:
            self._told.add(native or "")
            log.info("not understood, kept as raw: %s", native or "a message without a type")
