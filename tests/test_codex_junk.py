"""Nothing on the wire makes the decoder raise, and nothing is lost: what it cannot read is raw."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nucleic_codex.app_server.notices import NOTICES, SILENT

from codex_wire import CHILD, COMMAND, ROOT, Wire
from nucleic_core.events import Raw

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def note(method, **params):
    return {"method": method, "params": {"threadId": ROOT, "turnId": "u1", **params}}


def item(kind, /, **fields):
    return {"item": {"type": kind, "id": "i1", "status": "completed", **fields}}


TURN = {"id": "u1", "status": "failed", "error": {"message": "no", "codexErrorInfo": {"other": {}}}, "items": []}
CHANGES = [{"path": "/w/a", "kind": {"type": "update", "move_path": "/w/b"}, "diff": "@@\n"}]
TOKENS = {"last": {"inputTokens": 1}, "total": {"inputTokens": 1}, "modelContextWindow": 9}
RUN = {"id": "a:b", "eventName": "preToolUse", "status": "blocked", "entries": [{"kind": "feedback", "text": "no"}]}

KNOWN = [
    note("turn/started", turn={"id": "u2"}),
    note("turn/completed", turn=TURN),
    note("error", error={"message": "Reconnecting... 1/2", "codexErrorInfo": "other"}, willRetry=True),
    note("thread/tokenUsage/updated", tokenUsage=TOKENS),
    note("item/agentMessage/delta", itemId="i1", delta="x"),
    note("item/plan/delta", itemId="i1", delta="x"),
    note("item/reasoning/summaryTextDelta", itemId="i1", delta="x", summaryIndex=0),
    note("item/reasoning/textDelta", itemId="i1", delta="x", contentIndex=0),
    note("item/commandExecution/outputDelta", itemId="i1", delta="x"),
    note("item/mcpToolCall/progress", itemId="i1", message="x"),
    note("item/commandExecution/terminalInteraction", itemId="i1", stdin="x"),
    note("item/fileChange/patchUpdated", itemId="i1", changes=CHANGES),
    note("serverRequest/resolved", requestId=0),
    note("account/rateLimits/updated", rateLimits={"primary": {"usedPercent": 3, "windowDurationMins": 60}}),
    note("hook/completed", run=RUN),
    note("turn/plan/updated", plan=[{"step": "a", "status": "pending"}], explanation=None),
    note("item/autoApprovalReview/completed", targetItemId="i1", review={"status": "denied"}, action={}),
    *(
        note(f"item/{phase}", **item(kind, **fields))
        for phase in ("started", "completed")
        for kind, fields in {
            "userMessage": {"content": [{"type": "text", "text": "x"}], "clientId": "A"},
            "agentMessage": {"text": "x"},
            "reasoning": {"summary": ["x"], "content": ["y"]},
            "plan": {"text": "x"},
            "commandExecution": {**COMMAND, "exitCode": 1, "aggregatedOutput": "x"},
            "fileChange": {"changes": CHANGES},
            "mcpToolCall": {"server": "s", "tool": "t", "arguments": {}, "result": {"content": []}},
            "dynamicToolCall": {"tool": "t", "arguments": {}, "success": True, "contentItems": []},
            "webSearch": {"query": "q", "action": {"type": "search"}},
            "imageView": {"path": "/a"},
            "imageGeneration": {"result": "x"},
            "sleep": {"durationMs": 1},
            "collabAgentToolCall": {"tool": "spawnAgent", "receiverThreadIds": [CHILD]},
            "subAgentActivity": {"kind": "started", "agentThreadId": CHILD, "agentPath": "/a"},
            "functionCallOutput": {"name": "n", "output": "x"},
            "hookPrompt": {"fragments": [{"text": "x"}]},
            "exitedReviewMode": {"review": "x"},
        }.items()
    ),
]


def places(value, path=()):
    """Every place inside a message."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield from places(item, (*path, name))


def put(message, path, junk):
    message = copy.deepcopy(message)
    if not path:
        return junk
    target = message
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = junk
    return message


@settings(max_examples=1500, deadline=None)
@given(data=st.data())
def test_junk_in_any_field_of_any_message_is_read_or_raw_and_the_stream_goes_on(data):
    message = data.draw(st.sampled_from(KNOWN))
    path = data.draw(st.sampled_from(list(places(message))))
    wire = Wire().begins("commandExecution", "i1", **COMMAND)
    wire.decoder.received(put(message, path, data.draw(JUNK)), wire)
    wire.started("after").completed("after").exits(0)
    assert wire.kinds.count("turn_completed") >= 1


@settings(max_examples=300, deadline=None)
@given(message=JUNK | st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error"]), JUNK))
def test_a_message_that_is_junk_is_read_or_raw(message):
    wire = Wire()
    wire.decoder.received(message, wire)
    wire.decoder.sent(message, wire)
    assert wire.items or message.get("method") in SILENT


@settings(max_examples=300, deadline=None)
@given(method=st.sampled_from(sorted({**NOTICES, **SILENT})), params=st.dictionaries(st.text(max_size=8), JUNK))
def test_a_known_method_with_unknown_parameters_is_told_raw_or_silent_on_purpose(method, params):
    wire = Wire()
    wire.decoder.received({"method": method, "params": {"threadId": ROOT, **params}}, wire)
    assert wire.items or method in SILENT


@settings(max_examples=100, deadline=None)
@given(messages=st.lists(st.sampled_from(KNOWN), max_size=12))
def test_any_order_of_messages_is_survived_and_every_call_is_told_before_its_result(messages):
    wire = Wire()
    for message in messages:
        wire.decoder.received(copy.deepcopy(message), wire)
    wire.exits(None)
    known = set()
    for data in wire.events:
        if data.kind == "tool_call_completed":
            known.add(data.tool_call)
        elif data.kind == "tool_result" and data.correlated:
            assert data.tool_call in known


@pytest.mark.parametrize("message", KNOWN, ids=lambda m: f"{m['method']} {m['params'].get('item', {}).get('type', '')}")
def test_every_message_of_this_file_is_understood(message):
    wire = Wire().begins("fileChange", "i1", changes=[]) if "patchUpdated" in message["method"] else Wire()
    wire.decoder.received(message, wire)
    assert Raw not in {type(data) for data in wire.events}


def test_every_silent_method_has_its_reason():
    assert all(SILENT.values())
    assert not set(SILENT) & set(NOTICES)
