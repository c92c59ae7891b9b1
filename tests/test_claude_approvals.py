"""Asks of Claude Code over both channels: found by the decoder, read and answered by the mapper."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nucleic_claude.approvals import ClaudeApprovals
from nucleic_claude.decode import ClaudeDecoder

from nucleic_core.approvals import Allow, AllowAlways, Answers, CancelRun, Deny, Question, QuestionItem
from nucleic_core.backend import Ask
from nucleic_core.events import Notice, Raw, ToolCallCompleted, ToolCallStarted, ToolResult, TurnCompleted

INIT = {"type": "system", "subtype": "init", "session_id": "s-1", "cwd": "/w", "model": "claude-x"}
UNCHANGED = {"behavior": "allow", "updatedInput": {}}
QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "Red", "description": "red"}, {"label": "Blue", "description": "blue"}],
}
mapper = ClaudeApprovals()


class Collected:
    """An Out that keeps what it gets, in order."""

    def __init__(self):
        self.items = []

    def event(self, data, native=None, parent=None):
        self.items.append((data, parent))

    def ask(self, ask, native=None, parent=None):
        self.items.append((ask, parent))

    def withdraw(self, key, reason):
        self.items.append(((key, reason), None))

    @property
    def withdrawn(self):
        return [key for item, _ in self.items if isinstance(item, tuple) for key in item[:1]]

    def of(self, *classes):
        return [item for item, _ in self.items if isinstance(item, classes)]


def decode(*lines, decoder=None):
    decoder, out = decoder or ClaudeDecoder(), Collected()
    for line in lines:
        decoder.received(line, out, "mcp" if "method" in line else "stdout")
    return out


def line(*blocks, parent=None, kind="assistant"):
    message = {"id": "m", "model": "claude-x", "content": list(blocks)}
    return {"type": kind, "message": message, "parent_tool_use_id": parent}


def call(tool_call="t1", name="Bash", **given):
    return {"type": "tool_use", "id": tool_call, "name": name, "input": given or {"command": "touch a"}}


def answer(tool_call="t1", content="ok", **fields):
    return line({"type": "tool_result", "tool_use_id": tool_call, "content": content, **fields}, kind="user")


def asked(name="Bash", tool_call="t1", key="k-1", given=None, **fields):
    """A control request, as on stdio."""
    given = {"command": "touch a"} if given is None else given
    request = {"subtype": "can_use_tool", "tool_name": name, "input": given, "tool_use_id": tool_call, **fields}
    return {"type": "control_request", "request_id": key, "request": request}


def called(name="Bash", tool_call="t1", key="7", given=None):
    """An approve call, as from our own MCP server."""
    arguments = {
        "tool_name": name,
        "input": {"command": "touch a"} if given is None else given,
        "tool_use_id": tool_call,
    }
    return {"method": "tools/call", "key": key, "arguments": arguments, "_meta": {"progressToken": 2}}


def read(name, given, **fields):
    return mapper.read(Ask("k", {"tool_name": name, "input": given, "tool_use_id": "t1", **fields}))


def reply(decision, name="Bash", given=None):
    given = {"command": "touch a"} if given is None else given
    return mapper.reply(Ask("k", {"tool_name": name, "input": given}), decision)


# Finding asks


@pytest.mark.parametrize("ask", [asked(), called()])
def test_an_ask_stands_behind_its_completed_call(ask):
    out = decode(INIT, line(call()), ask)
    found = out.of(ToolCallCompleted, Ask)
    assert [type(one) for one in found] == [ToolCallCompleted, Ask]
    assert mapper.read(found[1]).tool_call == "t1"


@pytest.mark.parametrize("ask", [asked(), called()])
def test_an_ask_that_overtakes_its_line_tells_the_call_itself(ask):
    out = decode(INIT, ask, line(call()), answer())
    assert [type(one) for one in out.of(ToolCallStarted, ToolCallCompleted, Ask, ToolResult)] == [
        ToolCallStarted,
        ToolCallCompleted,
        Ask,
        ToolResult,
    ]
    assert out.of(ToolCallCompleted)[0].input == {"command": "touch a"}
    assert out.of(Notice) == []


def test_a_line_that_says_otherwise_than_its_ask_did_is_flagged_and_the_ask_stands():
    out = decode(INIT, called(given={"command": "rm -rf b"}), line(call()))
    assert out.of(ToolCallCompleted) == [ToolCallCompleted("t1", "Bash", {"command": "rm -rf b"})]
    assert out.of(Notice)[0].detail == {"tool_call": "t1", "input": {"command": "touch a"}}


def test_an_ask_of_a_sub_agent_has_its_parent():
    started = {"type": "system", "subtype": "task_started", "task_id": "a1", "tool_use_id": "agent-call"}
    by_agent = decode(INIT, started, asked(agent_id="a1"))
    by_call = decode(INIT, line(call(), parent="agent-call"), called())
    for out in (by_agent, by_call):
        assert {parent for item, parent in out.items if isinstance(item, (Ask, ToolCallCompleted))} == {"agent-call"}


def test_a_cancelled_ask_is_withdrawn():
    hung_up = {"method": "notifications/cancelled", "key": "7", "reason": "AbortError"}
    out = decode(INIT, asked(), called("Write", "t2"), {"type": "control_cancel_request", "request_id": "k-1"}, hung_up)
    assert out.of(tuple)[0][0] == "k-1"
    assert out.of(tuple)[1] == ("7", "AbortError")


def test_a_result_withdraws_the_open_asks_of_its_call_first():
    """Wire fact 76: in 2.1.332 a hook may answer before people do. A repeated approve call has two keys."""
    out = decode(INIT, line(call()), called(), called(key="8"), called(tool_call="t2", key="9"), answer())
    assert out.withdrawn == ["7", "8"]
    kinds = [type(item) for item, _ in out.items]
    assert kinds.index(tuple) < kinds.index(ToolResult)


def test_an_answered_ask_is_not_withdrawn_by_its_result():
    decoder = ClaudeDecoder()
    out = decode(INIT, line(call()), asked(), called("Write", "t2"), decoder=decoder)
    response = {"subtype": "success", "request_id": "k-1", "response": UNCHANGED}
    decoder.sent({"type": "control_response", "response": response}, out)
    decoder.sent({"key": "7", "reply": UNCHANGED}, out, "mcp")
    for one in (answer(), answer("t2")):
        decoder.received(one, out)
    assert out.withdrawn == []


def test_our_own_replies_and_those_to_our_requests_are_no_events():
    """Wire fact 90: with --replay-user-messages our replies come back."""
    decoder = ClaudeDecoder()
    out = decode(INIT, asked(), decoder=decoder)
    refused = {
        "type": "control_response",
        "response": {"subtype": "error", "request_id": "k-1", "error": "not understood"},
    }
    decoder.sent(refused, out)
    decoder.sent({"type": "control_request", "request_id": "q", "request": {"subtype": "set_model"}}, out)
    before = len(out.items)
    decoder.received(refused, out)
    decoder.received({"type": "control_response", "response": {"subtype": "success", "request_id": "q"}}, out)
    assert len(out.items) == before
    decoder.sent({"type": "control_request", "request_id": "r", "request": {"subtype": "interrupt"}}, out)
    decoder.received(
        {"type": "control_response", "response": {"subtype": "error", "request_id": "r", "error": "no"}}, out
    )
    assert out.of(Notice) == [Notice("control", "The agent refused interrupt: no")]


@pytest.mark.parametrize("subtype", ["hook_callback", "mcp_message", "something_new"])
def test_a_request_that_we_do_not_serve_is_raw_and_an_ask_that_is_refused_aloud(subtype):
    request = {
        "type": "control_request",
        "request_id": "k",
        "request": {"subtype": subtype, "input": {"tool_name": "B"}},
    }
    out = decode(request)
    assert out.of(Raw) == [Raw(request)]
    (ask,) = out.of(Ask)
    assert (ask.key, mapper.read(ask)) == ("k", None)


@pytest.mark.parametrize(
    "arguments", [None, "text", {"tool_name": 4, "input": {}}, {"tool_name": "Bash", "input": "ls"}]
)
def test_a_malformed_approve_call_is_raw_and_refused_aloud(arguments):
    message = {"method": "tools/call", "key": "7", "arguments": arguments}
    out = decode(message)
    assert out.of(Raw) == [Raw(message)]
    assert mapper.read(out.of(Ask)[0]) is None


def test_an_interrupted_turn_with_an_open_ask_leaves_no_ask_open():
    rejected = answer(content="The user doesn't want to proceed", is_error=True)
    ending = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "terminal_reason": "aborted_tools",
    }
    denial = {"permission_denials": [{"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {}}]}
    out = decode(INIT, line(call()), called(), rejected, {**ending, **denial})
    assert out.withdrawn == ["7"]
    assert out.of(TurnCompleted)[0].outcome == "interrupted"


# Reading


def test_a_shell_command_is_read_with_why_where_and_what_the_cli_suggests():
    rules = [{"toolName": "Bash", "ruleContent": "touch a"}]
    suggestions = [
        {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "localSettings"},
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
        {"type": "addDirectories", "directories": ["/w", "/x"], "destination": "session"},
        {"type": "addRules", "rules": [{"toolName": "Read"}], "behavior": "allow", "destination": "session"},
        {"type": "somethingNew", "destination": "session"},
        "odd",
    ]
    request = read(
        "Bash",
        {"command": "touch a\n  && echo"},
        permission_suggestions=suggestions,
        decision_reason="Path is outside",
        blocked_path="/w/a",
    )
    assert (request.tool, request.title, request.command) == ("Bash", "Run: touch a && echo", "touch a\n  && echo")
    assert (request.reason, request.paths, request.risk) == ("Path is outside", (Path("/w/a"),), None)
    assert [one["text"] for one in request.suggested] == [
        "Always allow Bash(touch a), from now on in this project (written to .claude/settings.local.json)",
        "Switch the agent's permission mode to acceptEdits (no edit is asked about any more), "
        "until this session of the agent ends",
        "Let the agent work in /w and /x, until this session of the agent ends",
        "Always allow any call of Read, until this session of the agent ends",
        "Something that we do not understand",
        "Something that we do not understand",
    ]
    assert [one["native"] for one in request.suggested] == suggestions


@pytest.mark.parametrize(
    ("name", "given", "title", "paths"),
    [
        ("Write", {"file_path": "/w/a.txt", "content": "x"}, "Write /w/a.txt", ["/w/a.txt"]),
        ("NotebookEdit", {"notebook_path": "a.ipynb"}, "Edit a.ipynb", ["a.ipynb"]),
        ("Task", {"description": "look around", "prompt": "p"}, "Start a sub-agent: look around", []),
        ("WebFetch", {"url": "https://example.com/"}, "Fetch https://example.com/", []),
        ("mcp__host__ping", {"x": 1, "path": "/not/a/file"}, "mcp__host__ping: x=1, path=/not/a/file", []),
        ("mcp__host__note", {}, "mcp__host__note", []),
        ("Bash", {"cmd": 4}, "Bash: cmd=4", []),
        ("Edit", {"file_path": 4}, "Edit: file_path=4", []),
    ],
)
def test_a_title_says_in_one_line_what_would_happen(name, given, title, paths):
    request = read(name, given)
    assert (request.title, request.paths) == (title, tuple(map(Path, paths)))


def test_a_long_title_leaves_out_the_middle():
    title = read("Bash", {"command": "x" * 1_000_000 + " && rm -rf ~"}).title
    assert len(title) < 5000
    assert title.endswith(" && rm -rf ~")  # the core makes one line of it, with the end in view


@pytest.mark.parametrize("tool", ["Bash", "Monitor", "PowerShell"])
def test_what_a_shell_runs_is_a_command(tool):
    assert read(tool, {"command": "ls", "description": "d"}).command == "ls"


def test_questions_are_read_with_their_options_and_keyed_by_their_text():
    several = {**QUESTION, "question": "Which sizes?", "multiSelect": True, "options": [{"label": "S"}, "odd"]}
    assert read("AskUserQuestion", {"questions": [QUESTION, several]}) == Question(
        (
            QuestionItem("Which colour?", "Which colour?", (("Red", "red"), ("Blue", "blue"))),
            QuestionItem("Which sizes?", "Which sizes?", (("S", ""),), multi=True),
        ),
        "t1",
    )


@pytest.mark.parametrize(
    "given", [{}, {"questions": []}, {"questions": "?"}, {"questions": [QUESTION, {"question": 4}]}]
)
def test_questions_that_are_not_understood_are_refused(given):
    assert read("AskUserQuestion", given) is None


@pytest.mark.parametrize(
    ("lines", "plan"),
    [
        ([asked("ExitPlanMode", given={"plan": "1. write"})], "1. write"),
        ([line(call("t1", "ExitPlanMode", plan="1. write")), asked("ExitPlanMode", given={})], "1. write"),
        (
            [
                line({"type": "text", "text": "My plan"}, call("t1", "ExitPlanMode", x=1)),
                called("ExitPlanMode", given={}),
            ],
            "My plan",
        ),
        ([asked("ExitPlanMode", given={})], ""),
    ],
)
def test_a_plan_is_found_in_the_ask_the_call_or_the_last_text(lines, plan):
    """In 2.1.332 the ask's input is empty (wire fact 74)."""
    (ask,) = decode(INIT, *lines).of(Ask)
    question = mapper.read(ask)
    assert (question.plan, [item.id for item in question.questions]) == (plan, ["plan"])


# Replying


@pytest.mark.parametrize(
    "decision", [Allow(), AllowAlways("session"), AllowAlways("tool_name_with_pattern", "touch *")]
)
def test_a_plain_allow_never_echoes_the_input(decision):
    """F4-01, wire facts 16 and 17: `{}` means unchanged everywhere; an echo over 100 kB fails the tool."""
    given = {"file_path": "/w/naïve.md", "content": "x" * 200_000, "n": 1.0, "nested": {"a": [None, False]}}
    sent = reply(decision, "Write", given)
    assert sent.message == UNCHANGED
    assert not sent.interrupt


def test_an_edited_input_goes_back_whole():
    assert reply(Allow({"command": "touch b"})).message == {"behavior": "allow", "updatedInput": {"command": "touch b"}}


@pytest.mark.parametrize("edited", [{}, [], "touch b", 0, False])
def test_an_edit_that_the_wire_cannot_say_is_refused_before_it_is_recorded(edited):
    """`{}` would run the original. No reply at all can be made of it, so the wire can only be told no."""
    with pytest.raises(ValueError, match="an object with fields"):
        reply(Allow(edited))


def test_an_empty_edit_of_an_empty_input_is_no_edit():
    assert reply(Allow({}), given={}).message == UNCHANGED


def test_a_deny_has_words_and_a_cancel_stops_the_turn_too():
    assert reply(Deny("not here")).message == {"behavior": "deny", "message": "not here"}
    assert reply(Deny("")).message == {"behavior": "deny", "message": "Denied."}
    assert reply(CancelRun("stop")).message == {"behavior": "deny", "message": "stop", "interrupt": True}
    assert reply(CancelRun()).message["message"]


def test_answers_go_back_beside_their_questions():
    given = {"questions": [QUESTION]}
    sent = reply(Answers({"Which colour?": "Blue"}), "AskUserQuestion", given).message
    assert sent == {
        "behavior": "allow",
        "updatedInput": {"questions": [QUESTION], "answers": {"Which colour?": "Blue"}},
    }


@pytest.mark.parametrize("answers", [None, {}])
def test_no_answer_is_said_as_no_answer(answers):
    assert reply(Answers(answers), "AskUserQuestion", {"questions": [QUESTION]}).message == UNCHANGED


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"plan": "Accept"}, UNCHANGED),
        ({"plan": " accept "}, UNCHANGED),
        ({"plan": "Keep planning"}, "keep planning"),
        ({"plan": "use tabs"}, "use tabs"),
        ({"other": "Accept"}, "Nobody answered"),
        ({}, "Nobody answered"),
        (None, "Nobody answered"),
    ],
)
def test_a_plan_runs_only_where_somebody_accepted_it(answers, expected):
    sent = reply(Answers(answers), "ExitPlanMode", {"plan": "1. write"}).message
    if isinstance(expected, dict):
        assert sent == expected
    else:
        assert sent["behavior"] == "deny"
        assert expected in sent["message"]


def test_both_channels_get_the_same_reply():
    (one,), (other,) = decode(asked()).of(Ask), decode(called()).of(Ask)
    for decision in (Allow(), Allow({"command": "b"}), Deny("no"), CancelRun("no")):
        assert mapper.reply(one, decision) == mapper.reply(other, decision)


def test_lone_surrogates_in_an_input_are_read_and_answered():
    """F1-10."""
    given = json.loads('{"command": "echo \\ud83d", "file_path": "\\udcb2"}')
    request = read("Bash", given)
    assert request.title == "Run: echo \ud83d"
    assert reply(Allow(), given=given).message == UNCHANGED


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
tools = st.sampled_from(["Bash", "Write", "AskUserQuestion", "ExitPlanMode", "mcp__a__b"])
fields = st.sampled_from(["questions", "options", "command", "file_path", "plan", "path"])
inputs = st.dictionaries(
    fields, junk | st.lists(st.dictionaries(st.sampled_from(["question", "options"]), junk)), max_size=3
)


@given(tools | junk, inputs | junk, junk, junk)
def test_junk_in_an_ask_never_raises_and_no_plain_allow_echoes_it(name, given, extra, answers):
    native = {
        "tool_name": name,
        "input": given,
        "permission_suggestions": extra,
        "blocked_path": extra,
        "decision_reason": extra,
    }
    ask = Ask("k", native, extra)
    request = mapper.read(ask)
    assert request is None or isinstance(request, Question) or request.title
    assert mapper.reply(ask, Allow()).message == UNCHANGED
    with contextlib.suppress(ValueError):  # what no reply can be made of
        assert mapper.reply(ask, Allow(answers)).message["behavior"] == "allow"
    assert mapper.reply(ask, Deny("")).message["message"]
    assert mapper.reply(Ask("k", extra), Answers(None)).message["behavior"] == "allow"
