"""What a resume takes up from a session's transcript: its native id, what was left open, what was allowed always."""

from collections.abc import Iterator
from pathlib import Path

import attrs

from nucleic_core._session.ledger import Item
from nucleic_core._store.header import Header
from nucleic_core._store.home import transcript_path
from nucleic_core._store.reader import read_transcript
from nucleic_core.approvals import AllowAlways, Answers, ApprovalRequest, Deny
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    EventData,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    SessionStarted,
    ToolCallCompleted,
    ToolCallStarted,
    ToolResult,
    UserMessage,
)

_HOST = "nucleic"


@attrs.define
class History:
    """One session's past. `grants` are the always-rules that people gave, with the requests they gave them on."""

    header: Header
    native_id: str | None = None
    title: str = ""
    grants: list[tuple[AllowAlways, ApprovalRequest]] = attrs.field(factory=list)
    finished: bool = True
    last_seq: int = 0
    _asks: dict[str, EventData] = attrs.field(factory=dict)
    _calls: dict[str, str | None] = attrs.field(factory=dict)

    def feed(self, data: EventData, parent: str | None) -> None:
        """Take one event of the past into account."""
        match data:
            case SessionStarted(native_id=native) if native is not None:
                self.native_id = native
            case UserMessage(text=text):
                self.title = self.title or text
                self.finished = False
            case ToolCallStarted(tool_call=call) | ToolCallCompleted(tool_call=call):
                self._calls[call] = parent
            case ToolResult(tool_call=call):
                self._calls.pop(call, None)
            case ApprovalRequested(request=request):
                self._asks[request.id] = data
            case QuestionAsked(question=question):
                self._asks[question.id] = data
            case ApprovalResolved(id=ask, decision=decision):
                asked = self._asks.pop(ask, None)
                if isinstance(decision, AllowAlways) and isinstance(asked, ApprovalRequested):
                    self.grants.append((decision, asked.request))
            case QuestionAnswered(id=ask):
                self._asks.pop(ask, None)
            case RunFinished():
                self.finished = True
                self._asks.clear()
                self._calls.clear()

    def repairs(self) -> Iterator[Item]:
        """What a host that was killed left without an end: each ask, each call, the run."""
        if self.finished:
            return
        reason = "the host ended before anybody answered"
        for ask, asked in self._asks.items():
            match asked:
                case ApprovalRequested(request=request):
                    yield ApprovalResolved(ask, Deny(reason), _HOST, "host_restarted", request.tool_call), None, None
                case QuestionAsked(question=question):
                    yield QuestionAnswered(ask, Answers(None), _HOST, "host_restarted", question.tool_call), None, None
        for call, parent in self._calls.items():
            note = "The host ended before this call had a result; what it did is unknown."
            yield ToolResult(call, note, is_error=True, synthetic=True), None, parent
        yield RunFinished("errored", error="the host ended in the middle of the run"), None, None


def read_history(home: Path, session: str) -> History:
    """Read a session's transcript once. Raises SessionNotFound or TranscriptFailed."""
    header, events = read_transcript(transcript_path(home, session))
    history = History(header)
    for event in events:
        history.feed(event.data, event.parent)
        history.last_seq = event.seq
    return history
