"""What the core adds to a decoder's events: calls opened and closed, usage counted once, one end."""

from typing import Any

import pytest

from nucleic_core._session.ledger import Ledger, add
from nucleic_core.approvals import CancelRun
from nucleic_core.events import (
    ApprovalResolved,
    AssistantText,
    EventData,
    InputAccepted,
    RunFinished,
    SessionStarted,
    ToolCallCompleted,
    ToolCallStarted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Usage,
    UserMessage,
)


class Stream:
    """A ledger and everything it let through."""

    def __init__(self, *events: EventData) -> None:
        self.ledger = Ledger()
        self.out: list[Any] = []
        self.parents: list[str | None] = []
        self.feed(*events)

    def feed(self, *events: EventData, parent: str | None = None) -> "Stream":
        for event in events:
            self._take(self.ledger.admit((event, "native", parent)))
        return self

    def foretell(self, call: str, parent: str | None = None) -> "Stream":
        self._take(self.ledger.foretell(call, "Bash", {"command": "ls"}, parent))
        return self

    def end(self, returncode: int | None, description: str = "exit", **more: bool) -> "Stream":
        self._take(self.ledger.end(returncode, description, **more))
        return self

    def _take(self, items: Any) -> None:
        for data, _, parent in items:
            self.out.append(data)
            self.parents.append(parent)

    @property
    def kinds(self) -> list[str]:
        return [data.kind for data in self.out]

    @property
    def last(self) -> Any:
        return self.out[-1]


ASKED = (UserMessage("1", "go"), InputAccepted("1", "delivered"), TurnStarted())


# -- beginnings ---------------------------------------------------------------------------------------------------------


def test_session_started_comes_once_a_process() -> None:
    started = SessionStarted("id", model="m")
    assert Stream(started, started, SessionStarted(None)).out == [started]


def test_a_native_id_that_is_proven_later_or_changes_is_told() -> None:
    stream = Stream(SessionStarted(None), SessionStarted("one"), SessionStarted("two"))
    assert [data.native_id for data in stream.out] == [None, "one", "two"]
    assert stream.ledger.native_id == "two"


def test_the_same_word_about_an_input_is_told_once() -> None:
    stream = Stream(
        UserMessage("1", "go"), *[InputAccepted("1", s) for s in ("queued", "queued", "delivered", "delivered")]
    )
    assert [data.state for data in stream.out[1:]] == ["queued", "delivered"]


# -- calls --------------------------------------------------------------------------------------------------------------


def test_a_completed_call_is_started_first() -> None:
    assert Stream(ToolCallCompleted("1", "Bash", {})).kinds == ["tool_call_started", "tool_call_completed"]


def test_a_call_is_started_once() -> None:
    stream = Stream(ToolCallStarted("1", "Bash"), ToolCallStarted("1", "Bash"), ToolCallCompleted("1", "Bash", {}))
    assert stream.kinds == ["tool_call_started", "tool_call_completed"]


def test_a_foretold_call_is_told_once_when_its_line_comes_later() -> None:
    stream = Stream().foretell("1")
    assert stream.kinds == ["tool_call_started", "tool_call_completed"]
    stream.feed(ToolCallStarted("1", "Bash"), ToolCallCompleted("1", "Bash", {"command": "ls"}), ToolResult("1", "ok"))
    assert stream.kinds == ["tool_call_started", "tool_call_completed", "tool_result"]


def test_an_ask_completes_a_call_that_has_only_started() -> None:
    stream = Stream(ToolCallStarted("1", "Bash")).foretell("1")
    assert stream.kinds == ["tool_call_started", "tool_call_completed"]


def test_an_ask_for_a_call_that_is_known_adds_nothing() -> None:
    stream = Stream(ToolCallCompleted("1", "Bash", {}))
    assert stream.foretell("1").kinds == ["tool_call_started", "tool_call_completed"]


def test_a_result_without_a_call_is_kept_and_marked() -> None:
    assert Stream(ToolResult("1", "ok")).last.correlated is False
    assert Stream(ToolCallStarted("1", "Bash"), ToolResult("1", "ok")).last.correlated is True


def test_a_second_result_is_no_longer_correlated() -> None:
    assert Stream(ToolCallStarted("1", "Bash"), ToolResult("1", "ok"), ToolResult("1", "ok")).last.correlated is False


def test_a_call_without_a_result_is_closed_before_its_turn_ends() -> None:
    stream = Stream(*ASKED, ToolCallCompleted("1", "Bash", {}), TurnCompleted("completed"))
    result = stream.out[-2]
    assert (result.kind, result.tool_call, result.synthetic, result.is_error) == ("tool_result", "1", True, True)


def test_the_turn_of_a_sub_agent_closes_its_own_calls_and_nothing_else() -> None:
    stream = Stream(*ASKED, ToolCallStarted("agent", "Task"))
    stream.feed(TurnStarted(), ToolCallStarted("inner", "Bash"), parent="agent")
    stream.feed(TurnCompleted("completed"), parent="agent")
    assert [data.tool_call for data in stream.out if isinstance(data, ToolResult)] == ["inner"]
    assert stream.ledger.turn_running
    assert not stream.ledger.idle
    stream.feed(ToolResult("agent", "done"), TurnCompleted("completed"))
    assert stream.last.outcome == "completed"
    assert stream.ledger.turns == 1


def test_a_background_call_outlives_the_turn_of_another_scope_and_ends_with_the_run() -> None:
    stream = Stream(*ASKED).feed(ToolCallStarted("inner", "Bash"), parent="agent").feed(TurnCompleted("completed"))
    assert "tool_result" not in stream.kinds
    stream.end(0)
    assert stream.kinds[-2:] == ["tool_result", "run_finished"]
    assert stream.parents[-2] == "agent"


def test_a_run_waits_for_sub_agents_that_outlive_the_turn_and_is_idle_after_the_last_of_them() -> None:
    stream = Stream(*ASKED, TurnCompleted("completed", more_follows=True))
    stream.feed(TurnCompleted("completed", more_follows=True), parent="one")
    assert not stream.ledger.idle
    stream.feed(TurnCompleted("completed"), parent="two")
    assert stream.ledger.idle
    assert stream.ledger.turns == 1


# -- usage --------------------------------------------------------------------------------------------------------------


def test_the_tokens_of_a_sub_agent_count_for_the_run_and_not_for_the_turn_of_its_caller() -> None:
    stream = Stream(*ASKED)
    stream.feed(Usage("message", input_tokens=5), Usage("turn", input_tokens=5), parent="agent")
    stream.feed(Usage("message", input_tokens=2))
    assert stream.ledger.usage.input_tokens == 7
    stream.feed(TurnCompleted("completed", usage=Usage("turn", input_tokens=2)))
    assert stream.last.usage.input_tokens == 2
    assert stream.ledger.usage.input_tokens == 7


def tokens(scope: Any, count: int, **more: Any) -> Usage:
    return Usage(scope, input_tokens=count, **more)


def test_the_usage_of_turns_adds_up_and_is_in_the_end_of_the_run() -> None:
    stream = Stream(*ASKED, tokens("turn", 3, cost_usd=0.5), TurnCompleted("completed"))
    stream.feed(TurnStarted(), tokens("turn", 4), TurnCompleted("completed"), RunFinished("completed"))
    assert stream.last.usage == Usage("run", input_tokens=7, cost_usd=0.5)


def test_a_turns_usage_in_its_end_alone_is_told_and_counted_once() -> None:
    stream = Stream(*ASKED, TurnCompleted("completed", usage=tokens("turn", 3)))
    assert stream.kinds[-2:] == ["usage", "turn_completed"]
    assert stream.ledger.usage.input_tokens == 3


def test_a_turns_usage_told_before_its_end_is_not_counted_again() -> None:
    stream = Stream(*ASKED, tokens("turn", 3), TurnCompleted("completed", usage=tokens("turn", 3)))
    assert stream.kinds.count("usage") == 1
    assert stream.ledger.usage.input_tokens == 3
    assert stream.last.usage == tokens("turn", 3)


def test_usage_is_live_within_a_turn_and_the_turns_own_figure_replaces_the_messages() -> None:
    stream = Stream(*ASKED, tokens("message", 1, message_id="a"), tokens("message", 2, message_id="b"))
    assert stream.ledger.usage.input_tokens == 3
    stream.feed(tokens("message", 5, message_id="a"))  # the same message again, with more
    assert stream.ledger.usage.input_tokens == 7
    stream.feed(tokens("turn", 8), TurnCompleted("completed"))
    assert stream.ledger.usage.input_tokens == 8


def test_messages_count_for_the_turn_where_the_wire_has_no_figure_for_it() -> None:
    stream = Stream(*ASKED, tokens("message", 1, message_id="a"), tokens("message", 2, message_id="b"))
    stream.feed(TurnCompleted("completed"), TurnStarted(), tokens("message", 4), TurnCompleted("completed"))
    assert stream.ledger.usage.input_tokens == 7
    assert stream.last.usage.input_tokens == 4


def test_unknown_figures_stay_unknown() -> None:
    assert add(Usage("turn"), Usage("turn", output_tokens=2)) == Usage("run", output_tokens=2)


# -- idle ---------------------------------------------------------------------------------------------------------------


def test_nothing_is_idle_before_it_was_asked_anything() -> None:
    assert not Stream().ledger.idle
    assert Stream().ledger.untouched


@pytest.mark.parametrize(
    "events",
    [
        (UserMessage("1", "go"),),
        (UserMessage("1", "go"), InputAccepted("1", "queued")),
        (UserMessage("1", "go"), InputAccepted("1", "delivered")),
        ASKED,
        (*ASKED, TurnCompleted("completed", more_follows=True)),
        (*ASKED, UserMessage("2", "more"), TurnCompleted("completed")),
        (*ASKED, UserMessage("2", "more"), TurnCompleted("completed"), InputAccepted("2", "delivered")),
    ],
)
def test_a_run_is_busy_while_something_runs_or_is_to_come(events: tuple[EventData, ...]) -> None:
    ledger = Stream(*events).ledger
    assert ledger.busy
    assert not ledger.idle


@pytest.mark.parametrize(
    "events",
    [
        (*ASKED, TurnCompleted("completed")),
        (UserMessage("1", "go"), InputAccepted("1", "refused")),
        (*ASKED, UserMessage("2", "more"), InputAccepted("2", "merged"), TurnCompleted("completed")),
        # where the word comes late, its turn may be over by then
        (UserMessage("1", "go"), TurnStarted(), TurnCompleted("completed"), InputAccepted("1", "delivered")),
        (UserMessage("1", "go"), TurnCompleted("completed"), InputAccepted("1", "delivered")),
        (
            *ASKED,
            TurnCompleted("completed", more_follows=True),
            TurnStarted(origin="agent"),
            TurnCompleted("completed"),
        ),
    ],
)
def test_a_run_is_idle_when_all_that_was_asked_is_done(events: tuple[EventData, ...]) -> None:
    assert Stream(*events).ledger.idle


# -- ends ---------------------------------------------------------------------------------------------------------------


def finished(stream: Stream) -> RunFinished:
    (end,) = [data for data in stream.out if isinstance(data, RunFinished)]
    return end


def test_run_finished_comes_once() -> None:
    stream = Stream(*ASKED, TurnCompleted("completed", final_text="bye"), RunFinished("completed"))
    stream.feed(RunFinished("errored")).end(1)
    assert finished(stream).outcome == "completed"
    assert finished(stream).final_text == "bye"


def test_the_run_takes_the_outcome_and_error_of_its_last_turn() -> None:
    end = finished(Stream(*ASKED, TurnCompleted("max_turns", error="too many", duration_ms=5)).end(0))
    assert (end.outcome, end.error, end.duration_ms, end.returncode) == ("max_turns", "too many", 5, 0)


def test_death_by_a_foreign_signal_in_a_turn_is_an_error_that_names_it() -> None:  # F5-09
    stream = Stream(*ASKED).end(-9, "killed by SIGKILL")
    turn = next(data for data in stream.out if isinstance(data, TurnCompleted))
    assert (turn.outcome, finished(stream).outcome) == ("errored", "errored")
    assert "SIGKILL" in str(turn.error)
    assert finished(stream).error == "killed by SIGKILL"


def test_death_by_our_interrupt_is_interrupted() -> None:  # F5-09
    stream = Stream(*ASKED)
    stream.ledger.interrupted = True
    end = finished(stream.end(-2))
    assert (end.outcome, end.error) == ("interrupted", None)


def test_an_error_result_after_our_interrupt_is_interrupted_once() -> None:  # F5-09
    stream = Stream(*ASKED)
    stream.ledger.interrupted = True
    stream.feed(TurnCompleted("errored", error="error_during_execution")).end(0)
    assert [data.outcome for data in stream.out if isinstance(data, TurnCompleted)] == ["interrupted"]
    assert finished(stream).outcome == "interrupted"


def test_a_process_that_takes_the_interrupt_of_a_turn_for_its_own_end_is_interrupted() -> None:
    stream = Stream(*ASKED)
    stream.ledger.interrupted = True
    stream.feed(TurnCompleted("interrupted"))
    assert finished(stream.end(130)).outcome == "interrupted"


def test_a_crash_long_after_an_interrupt_is_a_crash() -> None:
    stream = Stream(*ASKED)
    stream.ledger.interrupted = True
    stream.feed(TurnCompleted("interrupted"))
    assert finished(stream.end(-11, "killed by SIGSEGV")).outcome == "errored"


def test_an_interrupt_counts_for_its_own_turn_only() -> None:
    stream = Stream(*ASKED)
    stream.ledger.interrupted = True
    stream.feed(TurnCompleted("interrupted"), TurnStarted())
    assert finished(stream.end(-9)).outcome == "errored"


@pytest.mark.parametrize("returncode", [143, -15, -9, 0, 1])
def test_an_end_that_we_asked_for_is_interrupted_whatever_the_code(returncode: int) -> None:  # F5-09
    stream = Stream(*ASKED)
    stream.ledger.stopping = True
    assert finished(stream.end(returncode)).outcome == "interrupted"


def test_leaving_between_turns_keeps_the_outcome_of_the_last() -> None:
    stream = Stream(*ASKED, TurnCompleted("completed"))
    stream.ledger.stopping = True
    assert finished(stream.end(-15)).outcome == "completed"


def test_a_crash_between_turns_is_an_error() -> None:
    end = finished(Stream(*ASKED, TurnCompleted("completed", final_text="x")).end(-11, "killed by SIGSEGV"))
    assert (end.outcome, end.error) == ("errored", "killed by SIGSEGV")


def test_a_failure_of_ours_after_a_completed_turn_is_an_error() -> None:
    end = finished(Stream(*ASKED, TurnCompleted("completed")).end(0, "the driver failed", failed=True))
    assert (end.outcome, end.error) == ("errored", "the driver failed")


@pytest.mark.parametrize("more", [(), (InputAccepted("1", "delivered"),), (InputAccepted("1", "refused"),)])
def test_a_prompt_that_never_became_a_turn_is_an_error_also_with_exit_code_0(more: tuple[EventData, ...]) -> None:
    assert finished(Stream(UserMessage("1", "go"), *more).end(0)).outcome == "errored"


def test_cancel_run_makes_the_turn_cancelled() -> None:
    stream = Stream(*ASKED, ApprovalResolved("a", CancelRun(), "api"), TurnCompleted("interrupted"))
    assert stream.last.outcome == "cancelled"
    stream.feed(TurnStarted(), TurnCompleted("errored"))
    assert stream.last.outcome == "errored"


def test_text_passes_as_it_is() -> None:
    text = AssistantText("hi")
    assert Stream(text).out == [text]
