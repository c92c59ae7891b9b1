"""Partial streams of Claude: deltas and whole blocks under one id, and streams that are cut off."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from nucleic_claude.decode import ClaudeDecoder

from nucleic_core.events import (
    AssistantText,
    Notice,
    Raw,
    Thinking,
    ToolCallCompleted,
    ToolCallInputDelta,
    ToolCallStarted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Usage,
)

INIT = {"type": "system", "subtype": "init", "session_id": "s-1", "cwd": "/w", "model": "claude-x", "uuid": "i-1"}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "Plan: one, two",
    "stop_reason": "end_turn",
}


class Collected:
    """An Out that keeps what it gets."""

    def __init__(self):
        self.items = []

    def event(self, data, native=None, parent=None):
        self.items.append((data, native, parent))

    def ask(self, ask, native=None, parent=None):
        self.items.append((ask, native, parent))

    def withdraw(self, key, reason):
        self.items.append((key, reason, None))

    def of(self, *classes):
        return [data for data, _, _ in self.items if isinstance(data, classes)]


def decode(*lines, end=None):
    decoder, out = ClaudeDecoder(), Collected()
    for line in lines:
        decoder.received(line, out)
    if end is not None:
        decoder.ended(end, out)
    return out


def event(kind, parent=None, **fields):
    return {"type": "stream_event", "event": {"type": kind, **fields}, "parent_tool_use_id": parent}


def start(message, parent=None):
    body = {"id": message, "content": [], "model": "claude-x", "usage": {"input_tokens": 3, "output_tokens": 1}}
    return event("message_start", parent, message=body)


def block(index, kind, parent=None, **fields):
    return event("content_block_start", parent, index=index, content_block={"type": kind, **fields})


def delta(index, words, kind="text", parent=None):
    field = {"input_json": "partial_json"}.get(kind, kind)
    return event("content_block_delta", parent, index=index, delta={"type": f"{kind}_delta", field: words})


def stop(index, parent=None):
    return event("content_block_stop", parent, index=index)


def whole(message, *blocks, parent=None):
    body = {
        "id": message,
        "model": "claude-x",
        "content": list(blocks),
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    return {"type": "assistant", "message": body, "parent_tool_use_id": parent}


def text(words):
    return {"type": "text", "text": words}


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
CALL_DELTAS = [
    block(0, "tool_use", id="t1", name="Bash", input={}),
    delta(0, "", "input_json"),
    delta(0, '{"comm', "input_json"),
    delta(0, 'and": "ls"}', "input_json"),
]


def test_a_whole_block_replaces_its_deltas_once_under_the_same_id():
    """F3-09: position 0 of an assistant line is not index 0 of the message."""
    out = decode(
        INIT,
        start("msg_P"),
        block(0, "thinking", thinking="", signature=""),
        delta(0, "hm", "thinking"),
        whole("msg_P", THOUGHT),
        stop(0),
        block(1, "text", text=""),
        delta(1, "P"),
        whole("msg_P", text("Plan: one, two")),
        RESULT,
    )
    assert out.of(Thinking) == [Thinking("hm", "msg_P", "msg_P:0", True), Thinking("hm", "msg_P", "msg_P:0")]
    assert out.of(AssistantText) == [
        AssistantText("P", "msg_P", "msg_P:1", True),
        AssistantText("Plan: one, two", "msg_P", "msg_P:1"),
    ]
    assert out.of(Raw) == []
    assert out.of(TurnCompleted)[0].final_text == "Plan: one, two"


def test_streams_with_and_without_partials_give_the_same_whole_blocks():
    blocks = [THOUGHT, text("a"), text("b"), CALL]
    lines, partials = [INIT, *(whole("m", one) for one in blocks), RESULT], [INIT, start("m")]
    for index, one in enumerate(blocks):
        kind = one["type"]
        opening = {"id": "t1", "name": "Bash"} if kind == "tool_use" else {kind: ""}
        words = '{"command": "ls"}' if kind == "tool_use" else one[kind]
        partials += [block(index, kind, **opening), delta(index, words, "input_json" if kind == "tool_use" else kind)]
        partials += [whole("m", one), stop(index)]
    finals = [
        [
            one
            for one in decode(*stream).of(AssistantText, Thinking, ToolCallCompleted)
            if not getattr(one, "partial", False)
        ]
        for stream in (lines, [*partials, event("message_stop"), RESULT])
    ]
    assert finals[0] == finals[1]
    assert [one.block for one in finals[0][:3]] == ["m:0", "m:1", "m:2"]


def test_deltas_of_two_sub_agents_with_the_same_index_do_not_mix():
    out = decode(
        INIT,
        *(start(f"m{parent}", parent) for parent in "AB"),
        *(block(0, "text", parent, text="") for parent in "AB"),
        delta(0, "from A", parent="A"),
        delta(0, "from B", parent="B"),
        whole("mB", text("from B"), parent="B"),
        whole("mA", text("from A"), parent="A"),
    )
    assert [(one.text, one.block, parent) for one, _, parent in out.items if isinstance(one, AssistantText)] == [
        ("from A", "mA:0", "A"),
        ("from B", "mB:0", "B"),
        ("from B", "mB:0", "B"),
        ("from A", "mA:0", "A"),
    ]


def test_a_tool_call_starts_with_its_block_streams_its_input_and_completes_once():
    out = decode(INIT, start("m"), *CALL_DELTAS, whole("m", CALL), stop(0))
    assert out.of(ToolCallStarted, ToolCallInputDelta, ToolCallCompleted) == [
        ToolCallStarted("t1", "Bash"),
        ToolCallInputDelta("t1", '{"comm'),
        ToolCallInputDelta("t1", 'and": "ls"}'),
        ToolCallCompleted("t1", "Bash", {"command": "ls"}),
    ]


def test_lines_of_a_sub_agent_between_the_last_blocks_change_nothing():
    """Wire fact 39: a tool may run before message_stop."""
    prompt = {"type": "user", "message": {"content": [text("p")]}, "parent_tool_use_id": "t1"}
    finals = {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}}
    lines = [start("m"), *CALL_DELTAS, whole("m", CALL), stop(0), event("message_delta", **finals)]
    out = decode(INIT, *lines, prompt, whole("m2", text("Sub"), parent="t1"), event("message_stop"), RESULT)
    assert [(one.text, one.block) for one in out.of(AssistantText)] == [("Sub", "m2:0")]
    assert len(out.of(Usage)) == 1


def test_the_final_figures_of_a_message_are_those_of_its_message_delta():
    finals = {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}}
    lines = [start("m"), block(0, "text", text=""), whole("m", text("a")), stop(0), event("message_delta", **finals)]
    (usage,) = decode(INIT, *lines, whole("m", text("b")), RESULT).of(Usage)
    assert (usage.scope, usage.input_tokens, usage.output_tokens, usage.message_id) == ("message", 3, 20, "m")


def test_a_message_that_was_aborted_has_no_final_figures():
    aborted = {"delta": {"stop_reason": None}, "usage": {"input_tokens": 3, "output_tokens": 1}}
    (usage,) = decode(INIT, start("m"), event("message_delta", **aborted), RESULT).of(Usage)
    assert (usage.input_tokens, usage.output_tokens) == (3, None)


def test_a_stream_that_is_killed_in_a_text_tells_what_came_and_that_it_was_cut():
    out = decode(INIT, start("m"), block(0, "text", text=""), delta(0, "A long "), delta(0, "answer"), end=-9)
    assert out.of(AssistantText)[-1] == AssistantText("A long answer", "m", "m:0")
    (notice,) = out.of(Notice)
    assert (notice.topic, notice.detail) == ("cut", {"block": "m:0", "tool_call": None})
    (ended,) = out.of(TurnCompleted)
    assert (ended.outcome, ended.final_text) == ("errored", "A long answer")


def test_a_call_that_is_killed_in_its_input_never_completes():
    out = decode(INIT, start("m"), *CALL_DELTAS[:3], end=1)
    assert len(out.of(ToolCallStarted)) == 1
    assert out.of(ToolCallCompleted) == []
    assert out.of(Notice)[0].detail == {"block": "m:0", "tool_call": "t1"}


def test_a_block_that_ended_without_its_whole_line_is_told_from_its_deltas_at_the_next_message():
    lines = [start("m"), block(0, "text", text=""), delta(0, "a"), stop(0), start("m2"), RESULT]
    out = decode(INIT, *lines)
    assert out.of(AssistantText)[-1] == AssistantText("a", "m", "m:0")
    assert out.of(Notice) == []


def test_a_result_completes_its_call_from_the_deltas_if_the_line_never_came():
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    line = {"type": "user", "message": {"content": [answer]}, "parent_tool_use_id": None}
    out = decode(INIT, start("m"), *CALL_DELTAS, stop(0), line)
    assert out.of(ToolCallCompleted, ToolResult) == [
        ToolCallCompleted("t1", "Bash", {"command": "ls"}),
        ToolResult("t1", "ok"),
    ]


def test_a_turn_that_begins_in_the_middle_of_the_stream_begins_with_its_message():
    assert len(decode(start("m"), RESULT).of(TurnStarted)) == 1


def test_deltas_without_a_block_or_of_another_kind_stay_raw():
    lines = [
        delta(0, "no message"),
        start("m"),
        delta(4, "no block"),
        block(0, "text", text=""),
        delta(0, "thought", "thinking"),
        event("content_block_delta", index=0, delta={"type": "citations_delta"}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": None}),
        block(1, "redacted_thinking"),
        block("2", "text"),
        event("message_start", message={"id": 4}),
    ]
    raw = [one.value for one in decode(INIT, *lines).of(Raw)]
    assert raw == [line for line in lines if line not in (start("m"), block(0, "text", text=""))]


def test_a_signature_is_no_event():
    out = decode(INIT, start("m"), block(0, "thinking", thinking=""), delta(0, "c2ln", "signature"))
    assert out.of(Raw, Thinking) == []


def test_a_block_that_starts_with_text_loses_none_of_it():
    out = decode(INIT, start("m"), block(0, "text", text="He"), delta(0, "llo"), end=0)
    assert [one.text for one in out.of(AssistantText)] == ["He", "llo", "Hello"]


pieces = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.sampled_from(["text", "thinking"]), pieces), min_size=1, max_size=4), st.integers(0, 40))
def test_cut_anywhere_deltas_and_whole_blocks_tell_the_same_text(blocks, cut):
    lines = [start("m")]
    for index, (kind, words) in enumerate(blocks):
        lines += [block(index, kind, **{kind: ""}), *(delta(index, word, kind) for word in words)]
        lines += [whole("m", {"type": kind, kind: "".join(words)}), stop(index)]
    out = decode(INIT, *lines[: cut % (len(lines) + 1)], end=0)
    told = out.of(AssistantText, Thinking)
    for name, group in itertools.groupby(told, key=lambda one: one.block):
        parts = list(group)
        assert not parts[-1].partial, name
        assert "".join(part.text for part in parts[:-1]) == parts[-1].text
    assert out.of(Raw) == []
