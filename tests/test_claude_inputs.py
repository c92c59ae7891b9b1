"""What became of each message to Claude: told once, from whatever the version at hand says of it."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from nucleic_claude.decode import ClaudeDecoder

from nucleic_core.events import InputAccepted, TurnCompleted, TurnStarted

A, B, C = "aaaaaaaa", "bbbbbbbb", "cccccccc"
INIT = {"type": "system", "subtype": "init", "session_id": "s-1", "cwd": "/w", "model": "claude-x"}
PROSE = {
    "type": "assistant",
    "message": {"id": "m", "content": [{"type": "text", "text": "a"}]},
    "parent_tool_use_id": None,
}
REPORT = [
    {"type": "system", "subtype": "background_tasks_changed", "tasks": [{"task_id": "a1"}]},
    {"type": "system", "subtype": "task_notification", "task_id": "a1", "summary": "done"},
]


class Collected:
    """An Out that keeps the events."""

    def __init__(self):
        self.events = []

    def event(self, data, native=None, parent=None):
        self.events.append(data)

    def ask(self, ask, native=None, parent=None): ...

    def withdraw(self, key, reason): ...


_numbers = itertools.count()


def result(**fields):
    base = {"type": "result", "subtype": "success", "is_error": False, "stop_reason": "end_turn"}
    return {**base, "uuid": f"r-{next(_numbers)}", **fields}


def send(uuid, words="hello"):
    message = {"role": "user", "content": [{"type": "text", "text": words}]}
    return "sent", {"type": "user", "message": message} | ({} if uuid is None else {"uuid": uuid})


def state(uuid, what):
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": what}


def replay(uuid, *words):
    content = [{"type": "text", "text": word} for word in words]
    return {"type": "user", "message": {"content": content}, "parent_tool_use_id": None, "isReplay": True, "uuid": uuid}


def run(*steps, end=None):
    decoder, out = ClaudeDecoder(), Collected()
    for step in steps:
        if isinstance(step, tuple):
            decoder.sent(step[1], out)
        else:
            decoder.received(step, out)
    if end is not None:
        decoder.ended(end, out)
    return out.events


def told(*steps, end=None):
    return [(one.input, one.state) for one in run(*steps, end=end) if isinstance(one, InputAccepted)]


def origins(*steps):
    return [one.origin for one in run(*steps) if isinstance(one, TurnStarted)]


def test_a_message_that_opens_a_turn_is_delivered_and_one_during_it_is_merged():
    """2.1.332 with lifecycle and replay, as recorded in 07b."""
    steps = [send(A), state(A, "queued"), state(A, "started"), INIT, replay(A, "hello"), PROSE]
    steps += [send(B, "tabs"), state(B, "queued"), replay(B, "tabs"), state(B, "started"), state(B, "completed")]
    assert told(*steps, result(), state(A, "completed")) == [
        (A, "queued"),
        (A, "delivered"),
        (B, "queued"),
        (B, "merged"),
    ]


def test_a_message_that_waits_for_the_next_turn_is_delivered_then():
    steps = [send(A), state(A, "started"), INIT, PROSE, send(B), state(B, "queued"), result()]
    steps += [state(A, "cancelled"), state(B, "started"), INIT, replay(B, "hello"), PROSE, result()]
    assert told(*steps) == [(A, "delivered"), (B, "queued"), (B, "delivered")]
    assert origins(*steps) == ["user", "user"]


def test_a_message_that_is_dropped_from_the_queue_is_refused():
    assert told(send(A), state(A, "queued"), state(A, "cancelled"), state(A, "completed"))[-1] == (A, "refused")


def test_with_replays_alone_joined_messages_are_all_taken():
    """2.1.167: one replay line with a uuid of its own and the texts of both."""
    steps = [send(A, "one"), INIT, replay("x", "one"), send(B, "two"), send(C, "three"), PROSE, result(), INIT]
    assert told(*steps) == [(A, "delivered")]
    assert told(*steps, replay("y", "two\n", "three")) == [(A, "delivered"), (B, "delivered"), (C, "merged")]


def test_a_replay_takes_only_the_messages_it_shows():
    steps = [send(A, "go on"), send(B, "go on"), INIT, replay(A, "go on")]
    assert told(*steps) == [(A, "delivered")]


def test_uuids_on_the_result_tell_too():
    steps = [send(A), state(A, "started"), INIT, PROSE, send(B), state(B, "queued")]
    assert told(*steps, result(user_message_uuid=A, user_message_uuids=[A, B]))[-1] == (B, "merged")


def test_where_the_cli_never_says_a_result_takes_what_waits():
    assert told(send(A), INIT, PROSE, send(B), result()) == [(A, "delivered"), (B, "merged")]


def test_where_it_says_so_of_others_a_turn_that_took_none_took_the_oldest():
    """A slash command, which 2.1.167 does not replay."""
    steps = [send(A), INIT, replay(A, "hello"), result(), send(B, "/cost"), INIT, send(C, "next"), result()]
    assert told(*steps) == [(A, "delivered"), (B, "delivered")]


def test_a_message_that_the_turn_did_not_take_stays_open_until_it_is_taken():
    steps = [send(A), INIT, replay(A, "hello"), PROSE, send(B, "late"), result()]
    assert told(*steps) == [(A, "delivered")]
    assert told(*steps, INIT, replay(B, "late"), result()) == [(A, "delivered"), (B, "delivered")]


def test_a_process_that_ends_refuses_what_it_never_took_and_that_is_a_failure():
    events = run(send(A), end=1)
    assert [(one.input, one.state) for one in events if isinstance(one, InputAccepted)] == [(A, "refused")]
    (ended,) = [one for one in events if isinstance(one, TurnCompleted)]
    assert (ended.outcome, ended.turn) == ("errored", None)
    assert "exit code 1 before it took the message" in ended.error


def test_a_message_without_a_uuid_begins_a_turn_and_is_told_of_by_nothing():
    steps = [send(None), INIT, replay("x", "hello"), PROSE, result()]
    assert told(*steps, end=0) == []
    assert origins(*steps) == ["user"]


def test_a_turn_without_a_message_of_ours_is_the_agents():
    assert origins(send(A), state(A, "started"), INIT, PROSE, result(), *REPORT, INIT) == ["user", "agent"]
    assert origins(send(A), INIT, replay(A, "hello"), PROSE, result(), INIT) == ["user", "agent"]


def test_what_joins_a_turn_of_the_agent_is_merged():
    steps = [send(A), state(A, "started"), INIT, PROSE, result(), *REPORT, INIT, PROSE]
    assert told(*steps, send(B), state(B, "started"))[-1] == (B, "merged")


def test_of_a_bare_stdout_the_acknowledgements_are_told_and_turns_are_the_users_unless_work_reported():
    steps = [state(A, "queued"), state(A, "started"), INIT, replay(A, "hello"), PROSE, result(), INIT, PROSE, result()]
    assert told(*steps) == [(A, "queued"), (A, "delivered")]
    assert origins(*steps, *REPORT, INIT) == ["user", "user", "agent"]


steps = st.sampled_from(
    [send(A, "one"), send(B, "two"), send(C, "three"), INIT, PROSE]
    + [state(one, what) for one in (A, B, C) for what in ("queued", "started", "completed", "cancelled")]
    + [replay(A, "one"), replay("x", "two", "three"), replay(B, "two\n"), *REPORT]
)


@given(st.lists(steps | st.builds(result), max_size=25), st.integers(0, 1))
def test_every_message_is_settled_once_whatever_the_order(script, end):
    sent, clean = set(), []
    for step in itertools.dropwhile(lambda step: not isinstance(step, tuple), script):
        if not isinstance(step, tuple) or step[1]["uuid"] not in sent:  # a uuid is sent once
            clean.append(step)
            sent |= {step[1]["uuid"]} if isinstance(step, tuple) else set()
    settled = [uuid for uuid, what in told(*clean, end=end) if what != "queued"]
    assert sorted(settled) == sorted(sent)
