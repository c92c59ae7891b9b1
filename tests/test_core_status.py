"""The status of a session: one test a cell of its table, and what is open on top of it."""

import pytest

from nucleic_core._session.status import TRANSITIONS, StatusMachine
from nucleic_core.approvals import Answers, ApprovalRequest, Deny, Question
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    Error,
    EventData,
    InputAccepted,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    SessionStarted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    UserMessage,
)

WAYS_INTO: dict[str, list[EventData]] = {
    "idle": [],
    "running": [UserMessage("1", "go")],
    "awaiting_input": [UserMessage("1", "go"), TurnCompleted("completed")],
    "finished": [UserMessage("1", "go"), RunFinished("completed")],
    "error": [UserMessage("1", "go"), RunFinished("errored")],
}

EVENTS: dict[str, EventData] = {
    "user_message": UserMessage("2", "more"),
    "turn_started": TurnStarted(),
    "turn_completed": TurnCompleted("completed"),
    "turn_completed, more follows": TurnCompleted("completed", more_follows=True),
    "error, fatal": Error("no", recoverable=False),
    "error, recoverable": Error("again", recoverable=True),
    "run_finished": RunFinished("completed"),
    "run_finished, errored": RunFinished("errored"),
    "session_started": SessionStarted("native"),
    "assistant_text": AssistantText("hi"),
    "tool_result": ToolResult("1"),
    "input_accepted": InputAccepted("1", "delivered"),
}

TABLE = {
    # event                       idle              running           awaiting_input    finished    error
    "user_message": ("running", "running", "running", "running", "running"),
    "turn_started": ("running", "running", "running", "finished", "error"),
    "turn_completed": ("awaiting_input", "awaiting_input", "awaiting_input", "finished", "error"),
    "turn_completed, more follows": ("running", "running", "awaiting_input", "finished", "error"),
    "error, fatal": ("error", "error", "error", "finished", "error"),
    "error, recoverable": ("idle", "running", "awaiting_input", "finished", "error"),
    "run_finished": ("finished", "finished", "finished", "finished", "error"),
    "run_finished, errored": ("error", "error", "error", "error", "error"),
    "session_started": ("idle", "running", "awaiting_input", "finished", "error"),
    "assistant_text": ("idle", "running", "awaiting_input", "finished", "error"),
    "tool_result": ("idle", "running", "awaiting_input", "finished", "error"),
    "input_accepted": ("idle", "running", "awaiting_input", "finished", "error"),
}
CELLS = [(event, phase, TABLE[event][i]) for event in TABLE for i, phase in enumerate(WAYS_INTO)]


def after(*events: EventData) -> StatusMachine:
    machine = StatusMachine()
    for event in events:
        machine.feed(event)
    return machine


@pytest.mark.parametrize(("event", "phase", "expected"), CELLS)
def test_a_cell_of_the_table(event: str, phase: str, expected: str) -> None:
    assert after(*WAYS_INTO[phase]).status == phase
    assert after(*WAYS_INTO[phase], EVENTS[event]).status == expected


def test_the_table_here_covers_the_table_there() -> None:
    assert TRANSITIONS.keys() <= TABLE.keys()


@pytest.mark.parametrize("phase", WAYS_INTO)
def test_an_open_approval_shows_whatever_the_phase(phase: str) -> None:
    machine = after(*WAYS_INTO[phase], ApprovalRequested(ApprovalRequest("Bash", {}, "t", id="a")))
    assert machine.status == "awaiting_approval"
    machine.feed(ApprovalResolved("a", Deny("no"), "api"))
    assert machine.status == phase


@pytest.mark.parametrize("phase", WAYS_INTO)
def test_an_open_question_shows_as_awaiting_input(phase: str) -> None:
    machine = after(*WAYS_INTO[phase], QuestionAsked(Question((), id="q")))
    assert machine.status == "awaiting_input"
    machine.feed(QuestionAnswered("q", Answers(None), "api"))
    assert machine.status == phase


def test_several_open_asks_show_until_the_last_is_closed_and_approvals_come_first() -> None:
    machine = after(
        UserMessage("1", "go"),
        QuestionAsked(Question((), id="q")),
        ApprovalRequested(ApprovalRequest("Bash", {}, "t", id="a")),
        ApprovalRequested(ApprovalRequest("Bash", {}, "t", id="b")),
    )
    seen = [machine.status]
    for event in (
        ApprovalResolved("a", Deny(""), "api"),
        ApprovalResolved("b", Deny(""), "api"),
        QuestionAnswered("q", Answers(None), "api"),
    ):
        machine.feed(event)
        seen.append(machine.status)
    assert seen == ["awaiting_approval", "awaiting_approval", "awaiting_input", "running"]


def test_status_updates_do_not_hide_an_open_approval() -> None:
    asked = ApprovalRequested(ApprovalRequest("Bash", {}, "t", id="a"))
    assert after(UserMessage("1", "go"), asked, TurnStarted(), AssistantText("x")).status == "awaiting_approval"


def test_a_turn_that_the_agent_begins_by_itself_runs() -> None:
    assert after(*WAYS_INTO["awaiting_input"], TurnStarted(origin="agent")).status == "running"


def test_the_turns_of_a_sub_agent_are_not_the_sessions() -> None:
    machine = after(*WAYS_INTO["running"])
    machine.feed(TurnCompleted("completed"), "agent-call")
    assert machine.status == "running"
    machine = after(*WAYS_INTO["awaiting_input"])
    machine.feed(TurnStarted(), "agent-call")
    assert machine.status == "awaiting_input"


def test_the_end_of_the_run_leaves_nothing_open() -> None:
    asked = ApprovalRequested(ApprovalRequest("Bash", {}, "t", id="a"))
    assert after(UserMessage("1", "go"), asked, RunFinished("interrupted")).status == "finished"


def test_a_message_reopens_a_session_after_a_crash() -> None:
    machine = after(UserMessage("1", "go"), RunFinished("errored", error="the host ended in the middle of the run"))
    assert machine.status == "error"
    machine.feed(UserMessage("2", "go on"))
    assert machine.status == "running"
    machine.feed(RunFinished("completed"))
    assert machine.status == "finished"


def test_sub_agents_that_outlive_the_turn_keep_the_session_running_until_the_last_of_them_ends() -> None:
    machine = StatusMachine()
    for event in (UserMessage("1", "go"), TurnStarted(), TurnCompleted("completed", more_follows=True)):
        machine.feed(event)
    machine.feed(TurnCompleted("completed", more_follows=True), "one")
    assert machine.status == "running"
    machine.feed(TurnCompleted("completed"), "two")
    assert machine.status == "awaiting_input"
    machine.feed(TurnStarted())
    machine.feed(TurnCompleted("completed"), "three")
    assert machine.status == "running"
