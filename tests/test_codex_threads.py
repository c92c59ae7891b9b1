"""Sub-agents and other threads of one app-server, and what becomes of our messages."""

import pytest

from codex_wire import CHILD, COMMAND, ROOT, Wire
from nucleic_core.backend import Ask
from nucleic_core.events import (
    AssistantText,
    Error,
    InputAccepted,
    Notice,
    SessionStarted,
    ToolCallCompleted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Usage,
)


def with_child():
    wire = Wire()
    activity = {"kind": "started", "agentThreadId": CHILD, "agentPath": "/root/one", "model": "gpt-small"}
    wire.item("subAgentActivity", "spawn", **activity)
    return wire.started("v1", CHILD)


def parents(wire, *classes):
    return [parent for data, _, parent in wire.items if isinstance(data, classes)]


# -- sub-agents ---------------------------------------------------------------------------------------------------------


def test_what_a_sub_agent_does_bears_the_call_that_started_it():
    wire = with_child().item("userMessage", "m0", thread=CHILD, content=[{"type": "text", "text": "Do it."}])
    wire.item("commandExecution", "c1", thread=CHILD, **COMMAND, then={"status": "completed"})
    wire.item("agentMessage", "m1", thread=CHILD, text="Did it.").completed("v1", CHILD)
    started = [parent for data, _, parent in wire.items if isinstance(data, TurnStarted)]
    assert started == ["spawn"]
    assert parents(wire, AssistantText, Notice, TurnCompleted) == ["spawn"] * 3
    assert parents(wire, ToolCallCompleted) == [None, "spawn"]
    assert wire.of(Notice) == [Notice("prompt", "Do it.")]
    assert wire.of(TurnCompleted)[0].final_text == "Did it."


def test_a_call_that_starts_an_agent_has_its_result_at_once():
    wire = with_child()
    call, result = wire.of(ToolCallCompleted, ToolResult)
    assert (call.name, call.input["action"], call.input["agents"]) == ("Agent", "spawnAgent", [CHILD])
    assert (result.tool_call, result.is_error) == ("spawn", False)


def test_an_agent_that_a_tool_call_names_only_when_it_is_done_is_its_sub_agent():
    fields = {"tool": "spawnAgent", "prompt": "Do it.", "status": "inProgress", "agentsStates": {}}
    wire = Wire().item(
        "collabAgentToolCall", "spawn", **fields, then={"receiverThreadIds": [CHILD], "status": "completed"}
    )
    wire.started("v1", CHILD)
    assert parents(wire, TurnStarted) == ["spawn"]


def test_a_sub_agents_end_ends_no_turn_but_its_own_and_more_follows_while_one_runs():
    wire = with_child().completed("v1", CHILD).completed()
    inner, outer = wire.of(TurnCompleted)
    assert (inner.turn, outer.turn, outer.more_follows) == ("v1", "u1", False)
    assert wire.ledger.turns == 1


def test_a_sub_agent_that_outlives_the_roots_turn_is_waited_for():
    wire = with_child().completed(status="interrupted")
    assert wire.of(TurnCompleted)[-1].more_follows
    assert wire.ledger.busy
    wire.item("agentMessage", "m", thread=CHILD, text="Late.").completed("v1", CHILD)
    wire.item("subAgentActivity", "x", kind="completed", agentThreadId=CHILD, agentPath="/root/one")
    assert wire.ledger.idle
    assert wire.of(Notice)[-1].topic == "agent"


def test_a_sub_agents_failure_is_no_fatal_error():
    error = {"message": "no", "codexErrorInfo": "other"}
    wire = with_child().says("error", CHILD, turnId="v1", error=error, willRetry=False)
    wire.completed("v1", CHILD, status="failed", error=error)
    assert [told.recoverable for told in wire.of(Error)] == [True]
    assert parents(wire, Error) == ["spawn"]


def test_a_sub_agents_tokens_are_those_of_its_own_turn_and_count_for_the_run():
    wire = with_child().tokens(5, 5).tokens(7, 7, turn="v1", thread=CHILD).completed("v1", CHILD).completed()
    turns = {turn.turn: turn.usage.input_tokens for turn in wire.of(TurnCompleted)}
    assert turns == {"v1": 7, "u1": 5}
    assert {usage.model for usage in wire.of(Usage)} == {"gpt-x", "gpt-small"}
    assert wire.ledger.usage.input_tokens == 12


def test_a_sub_agents_ask_bears_its_parent_and_goes_with_its_turn():
    wire = with_child().begins("commandExecution", "c1", thread=CHILD, **COMMAND)
    wire.asks("item/commandExecution/requestApproval", 4, CHILD, "v1", itemId="c1", command="ls", cwd="/w")
    assert parents(wire, Ask) == ["spawn"]
    assert wire.of(Ask)[0].context["child"] is True
    wire.completed()
    assert wire.withdrawn == []
    wire.completed("v1", CHILD, status="interrupted")
    assert wire.withdrawn == ["4"]


def test_an_agent_of_an_agent_bears_the_inner_call():
    wire = with_child()
    wire.item("subAgentActivity", "inner", thread=CHILD, turn="v1", kind="started", agentThreadId="t3")
    wire.started("w1", "t3")
    assert parents(wire, TurnStarted) == ["spawn", "inner"]


def test_two_threads_with_the_same_call_and_message_ids_do_not_mix():
    wire = (
        with_child()
        .begins("commandExecution", "c1", **COMMAND)
        .begins("commandExecution", "c1", thread=CHILD, **COMMAND)
    )
    wire.says("item/commandExecution/outputDelta", CHILD, itemId="c1", delta="child")
    wire.ends("commandExecution", "c1", **{**COMMAND, "status": "completed"})
    wire.ends("commandExecution", "c1", thread=CHILD, **{**COMMAND, "status": "completed"})
    assert [result.content for result in wire.of(ToolResult)[1:]] == [None, "child"]


# -- threads that are nobody's ------------------------------------------------------------------------------------------


def test_a_foreign_thread_moves_nothing_of_the_root():
    wire = Wire().started("x1", "t9").tokens(9, 9, turn="x1", thread="t9")
    wire.begins("commandExecution", "c1", **COMMAND).completed("x1", "t9")
    assert parents(wire, TurnStarted, TurnCompleted) == ["t9", "t9"]
    assert wire.ledger.turn_running
    assert not wire.completed().of(TurnCompleted)[-1].more_follows


def test_a_second_thread_that_we_open_is_the_root_unless_the_first_is_busy():
    wire = Wire().sends("thread/start", 2).replies(2, thread={"id": "t5"}, model="m", cwd="/w")
    assert wire.of(SessionStarted) == []
    wire.completed().sends("thread/start", 3).replies(3, thread={"id": "t6"}, model="m", cwd="/w").started("z", "t6")
    assert [started.native_id for started in wire.of(SessionStarted)] == ["t6"]
    assert parents(wire, TurnStarted) == [None]


def test_the_ends_of_the_process_ends_every_turn_the_roots_last():
    wire = with_child().exits(0)
    assert [(turn.turn, turn.outcome) for turn in wire.of(TurnCompleted)] == [("v1", "errored"), ("u1", "errored")]


# -- our messages -------------------------------------------------------------------------------------------------------


def message(wire, number, input_id, method="turn/start", **params):
    return wire.sends(method, number, threadId=ROOT, input=[], clientUserMessageId=input_id, **params)


def taken(wire, input_id, item="m"):
    return wire.item("userMessage", f"{item}-{input_id}", clientId=input_id, content=[])


def states(wire):
    return [(accepted.input, accepted.state) for accepted in wire.of(InputAccepted)]


def test_a_message_is_delivered_when_the_model_gets_it_and_once():
    wire = message(
        Wire(begun=False).sends("thread/start", 1).replies(1, thread={"id": ROOT}, model="m", cwd="/w"), 2, "A"
    )
    wire.replies(2, turn={"id": "u1"}).started()
    assert states(wire) == []
    taken(wire, "A").completed()
    assert states(wire) == [("A", "delivered")]
    assert [turn.origin for turn in wire.of(TurnStarted)] == ["user"]


def test_messages_that_steer_are_queued_and_then_merged():
    wire = taken(message(Wire(), 2, "A"), "A")
    message(wire, 3, "B", "turn/steer", expectedTurnId="u1").replies(3, turnId="u1")
    message(wire, 4, "C", "turn/steer", expectedTurnId="u1").replies(4, turnId="u1")
    taken(taken(wire, "B"), "C")
    assert states(wire) == [("A", "delivered"), ("B", "queued"), ("C", "queued"), ("B", "merged"), ("C", "merged")]


@pytest.mark.parametrize("named", ["u1", "u-that-never-begins"])
def test_a_turn_that_is_started_while_one_runs_is_merged_into_it(named):
    """Wire truth A5: 0.171.0 names the running turn, 0.141.0 one that never begins."""
    wire = taken(message(Wire(), 2, "A"), "A")
    message(wire, 3, "B").replies(3, turn={"id": named})
    taken(wire, "B").completed()
    assert states(wire) == [("A", "delivered"), ("B", "merged")]


def test_a_steer_that_an_interrupt_overtakes_is_refused():
    wire = taken(message(Wire(), 2, "A"), "A")
    message(wire, 3, "B", "turn/steer", expectedTurnId="u1").replies(3, turnId="u1").completed(status="interrupted")
    assert states(wire)[1:] == [("B", "queued"), ("B", "refused")]


def test_a_steer_that_is_answered_after_its_turn_is_refused():
    wire = message(Wire(), 3, "B", "turn/steer", expectedTurnId="u1").completed().replies(3, turnId="u1")
    assert states(wire) == [("B", "refused")]


def test_a_message_that_is_refused_says_why_and_an_overloaded_agent_is_asked_again():
    wire = message(Wire(), 2, "A").refuses(2, "Server overloaded; retry later.", -32001)
    assert wire.events == []
    message(wire, 3, "A").refuses(3, "input too large", -32602)
    assert wire.of(InputAccepted) == [InputAccepted("A", "refused", "input too large")]


def test_a_message_that_a_hook_keeps_from_the_model_is_refused_with_the_hooks_words():
    wire = message(Wire().completed(), 2, "A").replies(2, turn={"id": "u2"}).started("u2")
    run = {"id": "user-prompt-submit:7:/c", "eventName": "userPromptSubmit", "status": "blocked"}
    wire.says("hook/completed", turnId="u2", run={**run, "entries": [{"kind": "feedback", "text": "not today"}]})
    wire.completed("u2")
    (refused,) = wire.of(InputAccepted)
    assert refused.state == "refused"
    assert "not today" in refused.reason


def test_what_our_driver_keeps_is_queued_and_what_it_gives_up_refused():
    wire = Wire()
    wire.decoder.sent({"id": "A"}, wire, "queue")
    wire.decoder.sent({"id": "B"}, wire, "queue")
    wire.decoder.sent({"id": "B", "refused": "the thread is gone"}, wire, "queue")
    assert [(accepted.input, accepted.state, accepted.reason) for accepted in wire.of(InputAccepted)] == [
        ("A", "queued", None),
        ("B", "queued", None),
        ("B", "refused", "the thread is gone"),
    ]


def test_a_message_that_the_process_never_took_is_refused_and_a_turn_that_failed():
    wire = message(Wire().completed(), 2, "A").exits(1)
    assert states(wire) == [("A", "refused")]
    assert (wire.of(TurnCompleted)[-1].outcome, wire.of(TurnCompleted)[-1].turn) == ("errored", None)


def test_a_message_of_nobody_we_know_is_not_acknowledged():
    assert states(taken(Wire(), "somebody-elses")) == []
    bare = Wire(begun=False).started().item("userMessage", clientId="A", content=[])
    assert states(bare) == [("A", "delivered")]
