"""From the events of a session, one after the other, to the text that a person reads.

Pure: events go in, styled text comes out. Text streams as it comes; the whole block that follows its deltas is not told
again. A tool call is told with the next event, or at the next `pause`, so that a call and its ask make one line.
"""

from rich.text import Text

from nucleic_core._cli.console import wording
from nucleic_core._store.reader import DAMAGED
from nucleic_core.events import (
    AgentEvent,
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    Error,
    EventData,
    FileChange,
    InputAccepted,
    Notice,
    Plan,
    QuestionAnswered,
    QuestionAsked,
    Raw,
    RunFinished,
    SessionStarted,
    Thinking,
    ToolCallCompleted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    UserMessage,
)


class Teller:
    """Tells one session. `raw`: also what was not understood."""

    def __init__(self, *, raw: bool = False) -> None:
        self._raw = raw
        self._call: tuple[ToolCallCompleted, str | None] | None = None
        self._streamed: set[tuple[str | None, str]] = set()
        self._block: str | None = None
        self.mid_line = False
        """Whether a streamed line stands open."""
        self.busy = False
        """Whether the agent is at work: a message was sent or a turn began, and no turn has ended since."""

    def tell(self, event: AgentEvent) -> Text:
        """The text that an event adds; empty where it adds nothing that people read."""
        data, parent = event.data, event.parent
        told = Text()
        if self._call is not None:
            call, its_parent = self._call
            self._call = None
            if not (isinstance(data, ApprovalRequested) and data.request.tool_call == call.tool_call):
                self._line(told, _call_line(call), its_parent)
        if isinstance(data, AssistantText | Thinking):
            self._speech(told, data, parent)
            return told
        match data:
            case UserMessage() | TurnStarted():
                self.busy = True
            case TurnCompleted(more_follows=more):
                self.busy = more
            case RunFinished():
                self.busy = False
            case ToolCallCompleted():
                self._call = data, parent
        line = _damaged(event) if event.native == DAMAGED else self._line_for(data, event)
        if line is not None:
            self._line(told, line, parent)
        return told

    def pause(self) -> Text:
        """What is still to be told when no further event has come for a moment."""
        told = Text()
        if self._call is not None:
            (call, parent), self._call = self._call, None
            self._line(told, _call_line(call), parent)
        return told

    def end_line(self) -> Text:
        """Close a streamed line, for text of somebody else's."""
        told = Text("\n" if self.mid_line else "")
        self.mid_line = False
        return told

    def _line(self, told: Text, line: Text, parent: str | None) -> None:
        told.append_text(self.end_line())
        if parent is not None:
            told.append("  │ ", "dim")  # a sub-agent's
        told.append_text(line)
        told.append("\n")

    def _speech(self, told: Text, data: AssistantText | Thinking, parent: str | None) -> None:
        style = "dim italic" if isinstance(data, Thinking) else ""
        if parent is not None:
            # Several sub-agents may speak at once: theirs is told by whole blocks.
            if not data.partial and data.text.strip():
                self._line(told, Text(wording.shown(data.text), style or "dim"), parent)
            return
        block = (data.kind, data.block or "")
        if not data.partial and block in self._streamed:
            self._streamed.discard(block)
            told.append_text(self.end_line())
            return
        if self.mid_line and (not data.partial or self._block != data.kind):
            told.append_text(self.end_line())
        self._block = data.kind
        text = wording.shown(data.text)
        if data.partial:
            self._streamed.add(block)
            told.append(text, style)
            self.mid_line = not text.endswith("\n") if text else self.mid_line
        elif text.strip():
            told.append(text.rstrip("\n") + "\n", style)

    def _line_for(self, data: EventData, event: AgentEvent) -> Text | None:
        match data:
            case SessionStarted():
                who = f"{event.backend} {data.agent_version or ''}".strip()
                facts = filter(None, (who, data.model, data.cwd))
                return Text(wording.brief(" · ".join(facts)), "dim")
            case UserMessage(text=text, images=images):
                pictures = f" (with {images} images)" if images else ""
                return Text(f"> {wording.shown(text)}{pictures}", "bold")
            case InputAccepted(state="queued" | "refused" as state, reason=reason):
                return Text(f"· message {state}{': ' if reason else ''}{wording.brief(reason or '')}", "dim")
            case ToolResult():
                return wording.result_line(data)
            case FileChange():
                return wording.change_line(data)
            case Plan():
                return wording.plan_lines(data)
            case ApprovalRequested(request=request):
                return wording.ask_line(request)
            case QuestionAsked(question=question):
                return wording.question_line(question)
            case ApprovalResolved() | QuestionAnswered():
                return wording.decision_line(data.decision, data.decided_by, data.cause)
            case Error():
                return _error_line(data)
            case Notice(topic=topic, text=text):
                return Text(wording.brief(f"· {topic}: {text}", 400), "dim")
            case TurnCompleted(outcome=outcome, error=error) if outcome != "completed":
                why = f": {wording.brief(error, 400)}" if error else ""
                return Text(f"! the turn ended {outcome.replace('_', ' ')}{why}", "red")
            case RunFinished():
                return wording.summary(data, event.session)
            case Raw(value=value) if self._raw:
                return Text(wording.brief(f"raw: {wording.flat_text(value)}", 400), "dim")
            case _:
                return None


def _call_line(call: ToolCallCompleted) -> Text:
    return Text(f"● {wording.call_title(call.name, call.input)}")


def _error_line(error: Error) -> Text:
    again = ""
    if error.attempt is not None:
        of = f" of {error.max_attempts}" if error.max_attempts is not None else ""
        again = f" (attempt {error.attempt}{of})"
    return Text(f"! {wording.brief(error.message, 400)}{again}", "yellow" if error.recoverable else "bold red")


def _damaged(event: AgentEvent) -> Text:
    return Text(f"! line {event.seq} of this transcript is damaged; `show --json` has its text", "red")
