"""The commit step: messages in, events out, in one synchronous move.

First everything is decoded and every ask placed among the events; then one append gives them their `seq`; only then
decisions start and refusals are written, and what those cause comes after the batch. So the order of the transcript is
the order of the wire, and nothing is answered that is not recorded.
"""

from collections.abc import Callable, Iterable, Sequence

from nucleic_core._approvals.coordinator import Coordinator, OpenAsk
from nucleic_core._session.decoding import Decoding, Found, FoundAsk, Withdrawn
from nucleic_core._session.ledger import Item, Ledger
from nucleic_core._session.status import Status, StatusMachine
from nucleic_core._store.transcript import Transcript
from nucleic_core._values import JSON
from nucleic_core.approvals import ApprovalRequest
from nucleic_core.backend import Answer, Ask
from nucleic_core.errors import TranscriptFailed
from nucleic_core.events import AgentEvent, Error


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

    def ended(self, returncode: int | None, description: str) -> None:
        """Commit what the end of the process means."""
        self._commit(self._decoding.ended(returncode, description), _nobody)

    def record(self, items: Iterable[Item]) -> None:
        """Commit events of the core's own. Raises TranscriptFailed."""
        self._commit([admitted for item in items for admitted in self.ledger.admit(item)], _nobody)

    def report(self, text: str) -> None:
        """Commit a recoverable error; does nothing when the transcript has failed."""
        if self.failure is None:
            self.record([(Error(text), None, None)])

    def _commit(self, found: Sequence[Found], answer: Answer) -> None:
        items: list[Item] = []
        begun: list[OpenAsk] = []
        refused: list[Ask] = []
        for entry in found:
            match entry:
                case FoundAsk():
                    opened = self._place(entry, answer, items)
                    if opened is None:
                        refused.append(entry.ask)
                    else:
                        begun.append(opened)
                case Withdrawn():
                    items.extend(self.coordinator.withdrawn(entry.key, entry.reason))
                case _:
                    items.append(entry)
        self._append(items)
        for ask in refused:
            self.coordinator.refuse(ask, answer)
        for opened in begun:
            self.coordinator.begin(opened)

    def _place(self, found: FoundAsk, answer: Answer, items: list[Item]) -> OpenAsk | None:
        event, opened = self.coordinator.place(found.ask, found.native, found.parent, answer)
        if opened is not None and isinstance(opened.what, ApprovalRequest) and opened.tool_call is not None:
            # An ask on a channel of its own may overtake the line that shows its call.
            what, ledger = opened.what, self.ledger
            items.extend(ledger.foretell(opened.tool_call, what.tool, what.input, found.parent))
        items.append((event, found.native, found.parent))
        if opened is None:
            text = f"The agent asked something that is not understood ({found.native or 'unnamed'}); it is refused."
            items.append((Error(text, code="unknown_ask"), found.native, found.parent))
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
            self._status.feed(event.data)
        self._committed(events)


def _nobody(ask: Ask, reply: object) -> None:
    """Asks come from the agent alone; nothing else that is committed holds one."""
    raise AssertionError(f"an ask without a channel: {ask.key}")
