"""The status of a session, derived from its events alone, as a table.

Two things together make the status: the phase, which the table moves, and what is open. An open approval shows as
`awaiting_approval` and an open question as `awaiting_input`, whatever the phase, until the last of them closes.
"""

from typing import Literal, TypeAlias

from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    Error,
    EventData,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    TurnCompleted,
    TurnStarted,
)

Status: TypeAlias = Literal["idle", "running", "awaiting_approval", "awaiting_input", "finished", "error"]
Phase: TypeAlias = Literal["idle", "running", "awaiting_input", "finished", "error"]

TRANSITIONS: dict[str, dict[Phase, Phase]] = {
    # event             from -> to; a phase that is not named stays
    "user_message": {"idle": "running", "awaiting_input": "running", "finished": "running", "error": "running"},
    "turn_started": {"idle": "running", "awaiting_input": "running"},  # also one that the agent began by itself
    "turn_completed": {"idle": "awaiting_input", "running": "awaiting_input"},
    "turn_completed, more follows": {"idle": "running"},
    "error, fatal": {"idle": "error", "running": "error", "awaiting_input": "error"},
    "run_finished": {"idle": "finished", "running": "finished", "awaiting_input": "finished"},
    "run_finished, errored": {"idle": "error", "running": "error", "awaiting_input": "error", "finished": "error"},
}
"""Every other event leaves the phase as it is: what comes after a turn or a run changes nothing, and a message to a
finished session (a resume, also one after a crash) makes it run again."""


_MOVING = frozenset(row.partition(",")[0] for row in TRANSITIONS) | {
    "approval_requested",
    "approval_resolved",
    "question_asked",
    "question_answered",
}


def trigger(data: EventData) -> str:
    """The row of `TRANSITIONS` that an event stands in."""
    match data:
        case TurnCompleted(more_follows=True):
            return "turn_completed, more follows"
        case Error(recoverable=False):
            return "error, fatal"
        case RunFinished(outcome="errored"):
            return "run_finished, errored"
        case _:
            return data.kind


class StatusMachine:
    """Feed it every event of a session, in order; `status` is the session's status after the last one."""

    def __init__(self) -> None:
        self.phase: Phase = "idle"
        self._approvals: set[str] = set()
        self._questions: set[str] = set()
        self._lingers = False  # the session's own turn has ended and sub-agents of it go on

    @property
    def status(self) -> Status:
        """The status now."""
        if self._approvals:
            return "awaiting_approval"
        return "awaiting_input" if self._questions else self.phase

    def feed(self, data: EventData, parent: str | None = None) -> None:
        """Take one event into account.

        The turns of a sub-agent (`parent`) are not the session's, but for the last of those that outlive its turn.
        """
        if data.kind not in _MOVING:  # nearly always
            return
        match data:
            case TurnCompleted(more_follows=False) if parent is not None and self._lingers:
                self._lingers = False
            case TurnStarted() | TurnCompleted() if parent is not None:
                return
            case TurnStarted() | TurnCompleted():
                self._lingers = isinstance(data, TurnCompleted) and data.more_follows
            case ApprovalRequested(request=request):
                self._approvals.add(request.id)
            case ApprovalResolved(id=ask):
                self._approvals.discard(ask)
            case QuestionAsked(question=question):
                self._questions.add(question.id)
            case QuestionAnswered(id=ask):
                self._questions.discard(ask)
            case RunFinished():
                self._approvals.clear()
                self._questions.clear()
        row = TRANSITIONS.get(trigger(data))
        if row is not None:
            self.phase = row.get(self.phase, self.phase)
