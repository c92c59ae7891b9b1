"""The commit step: messages in, events out, in one synchronous move.

First everything is decoded and every ask placed among the events; then one append gives them their `seq`; only then
decisions start and refusals are written, and what those cause comes after the batch. So the order of the transcript is
the order of the wire, and nothing is answered that is not recorded.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from nucleic_core._approvals.coordinator import Coordinator, OpenAsk
from nucleic_core._session.decoding import Decoding, Found, FoundAsk, Withdrawn, placed
from nucleic_core._session.ledger import Item, Ledger
from nucleic_core._session.status import Status, StatusMachine
from nucleic_core._store.transcript import Transcript
from nucleic_core._values import JSON
from nucleic_core.backend import Answer, Ask
from nucleic_core.errors import TranscriptFailed
from nucleic_core.events import AgentEvent, Error, EventData, Notice, Raw, RunFinished, TurnCompleted


class Pipeline:
    """Everything that is committed to one session's transcript goes through here."""

    coordinator: Coordinator  # set once, by the session: each needs the other

    def __init__(
        self,
        transcript: Transcript,
        decoding: Decoding,
        status: StatusMachine,
        *,
        committed: Callable[[Sequence[AgentEvent]], None],
        failed: Callable[[TranscriptFailed], None],
    ) -> None:
        self._transcript = transcript
        self._decoding = decoding
        self._status = status
        self._committed = committed
        self._failed = failed
        self.failure: TranscriptFailed | None = None

    @property
    def ledger(self) -> Ledger:
        """What is open in the stream."""
        return self._decoding.ledger

    @property
    def status(self) -> Status:
        """The session's status after the last commit."""
        return self._status.status

    def received(self, messages: Iterable[JSON], channel: str, answer: Answer) -> None:
        """Commit messages from the agent; asks among them are answered through `answer`."""
        self._commit(self._decoding.received(messages, channel), answer)

    def sent(self, message: JSON, channel: str, answer: Answer) -> None:
        """Commit a message to the agent."""
        self._commit(self._decoding.sent(message, channel), answer)

    def ended(self, returncode: int | None, description: str, *, failed: bool) -> None:
        """Commit what the end of the process means."""
        self._commit(self._decoding.ended(returncode, description, failed=failed), _nobody)

    def record(self, items: Iterable[Item]) -> None:
        """Commit events of the core's own. Raises TranscriptFailed."""
        self._commit((admitted for item in items for admitted in self.ledger.admit(item)), _nobody)

    def report(self, text: str) -> None:
        """Commit a recoverable error; does nothing when the transcript has failed."""
        self.mention(Error(text))

    def mention(self, data: EventData) -> None:
        """Commit an event that is worth a try and no more: never raises."""
        if self.failure is None:
            with contextlib.suppress(TranscriptFailed):
                self.record([(data, None, None)])

    def conceal(self, secrets: Iterable[str]) -> None:
        """Keep these out of the transcript from now on."""
        self._transcript.also_redact(secrets)

    def _commit(self, found: Iterable[Found], answer: Answer) -> None:
        items: list[Item] = []
        begun: list[OpenAsk] = []
        refused: list[Ask] = []
        expired: list[tuple[OpenAsk, str]] = []
        for entry in found:
            if type(entry) is tuple and type(entry[0]) not in _ENDINGS:  # most of a stream
                items.append(entry)
                continue
            match entry:
                case FoundAsk() if (same := self.coordinator.repeats(entry.ask, answer)) is not None:
                    text = "The agent asked again under the name of an open ask; one answer is all that the wire takes."
                    items.append((Raw(entry.ask.native), entry.native, entry.parent))
                    items.append((Notice("repeated_ask", text), entry.native, entry.parent))
                    if same.ask.native != entry.ask.native:  # nobody can know which of the two an allow would start
                        expired.extend(self._expire("the agent asked something else under the same name", items, same))
                case FoundAsk():
                    opened = self._place(entry, answer, items)
                    if opened is None:
                        refused.append(entry.ask)
                    else:
                        begun.append(opened)
                case Withdrawn():
                    items.extend(self.coordinator.withdrawn(entry.key, entry.reason))
                case (TurnCompleted(more_follows=False) | RunFinished(), _, None):
                    # Here and not once it is committed: an ask of the next turn may stand in this very batch.
                    items.append(entry)
                    expired.extend(self._expire("the turn that asked is over", items))
                case _:
                    items.append(entry)
        self._append(items)
        for gone, reason in expired:
            self.coordinator.tell_denied(gone, reason)
        for ask in refused:
            self.coordinator.refuse(ask, answer)
        for opened in begun:
            self.coordinator.begin(opened)

    def _expire(self, reason: str, items: list[Item], only: OpenAsk | None = None) -> Iterator[tuple[OpenAsk, str]]:
        for gone, resolution in self.coordinator.expire(reason, only):
            items.append(resolution)
            yield gone, reason

    def _place(self, found: FoundAsk, answer: Answer, items: list[Item]) -> OpenAsk | None:
        _, opened = self.coordinator.place(found.ask, found.native, found.parent, answer)
        items.extend(placed(found, None if opened is None else opened.what, self.ledger))
        return opened

    def _append(self, items: Sequence[Item]) -> None:
        if not items:
            return
        if self.failure is None:
            try:
                events = self._transcript.append(items)
            except TranscriptFailed as exc:
                self.failure = exc
                self._failed(exc)
        if self.failure is not None:
            self.coordinator.deny_unrecorded("the transcript cannot be written")
            raise self.failure
        for event in events:
            self._status.feed(event.data, event.parent)
        self._committed(events)


_ENDINGS = frozenset({TurnCompleted, RunFinished})


def _nobody(ask: Ask, reply: object) -> None:
    """Asks come from the agent alone; nothing else that is committed holds one."""
    raise AssertionError(f"an ask without a channel: {ask.key}")
