"""The lines of `codex exec --json`, and what the driver finds beside them, as events."""

import json

import hypothesis.strategies as st
import orjson
import pytest
from hypothesis import given
from nucleic_codex.exec.decode import ExecDecoder
from nucleic_codex.exec.unseen import line_of

from nucleic_core.events import (
    AssistantText,
    Error,
    FileChange,
    Notice,
    Plan,
    Raw,
    SessionStarted,
    Thinking,
    ToolCallCompleted,
    ToolCallStarted,
    ToolOutput,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Usage,
)

THREAD = "019c0000-0000-7000-8000-00000000aaaa"
STARTED = {"type": "thread.started", "thread_id": THREAD}
TURN = {"type": "turn.started"}
DONE = {"type": "turn.completed", "usage": {"input_tokens": 120, "cached_input_tokens": 20, "output_tokens": 34}}
NEVER = "approval policy is Never; reject command — you cannot ask for escalated permissions if the approval policy is Never"


class Collected:
    def __init__(self):
        self.events = []

    def event(self, data, native=None, parent=None):
        self.events.append(data)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def decoded(*messages, returncode=0, end=True, **kwargs):
    """Messages of stdout, or (channel, message), and the end of the process."""
    decoder, out = ExecDecoder(**kwargs), Collected()
    for message in messages:
        channel, message = message if isinstance(message, tuple) else ("stdout", message)
        decoder.received(message, out, channel)
    if end:
        decoder.ended(returncode, out)
    return out


def item(phase, kind, key="item_0", **fields):
    return {"type": f"item.{phase}", "item": {"id": key, "type": kind, **fields}}


def command(phase, line, key="item_0", output="", code=None, status="in_progress"):
    shown = f"/bin/bash -lc {json.dumps(line)}"
    return item(phase, "command_execution", key, command=shown, aggregated_output=output, exit_code=code, status=status)


def call(key, name, arguments, **more):
    payload = {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": key, **more}
    return ("rollout", {"type": "response_item", "payload": payload})


def custom(key, name, text):
    payload = {"type": "custom_tool_call", "name": name, "input": text, "call_id": key}
    return ("rollout", {"type": "response_item", "payload": payload})


def answer(key, output, kind="function_call_output"):
    return ("rollout", {"type": "response_item", "payload": {"type": kind, "call_id": key, "output": output}})


def count(**total):
    info = {"total_token_usage": total, "model_context_window": 258400}
    return ("rollout", {"type": "event_msg", "payload": {"type": "token_count", "info": info}})


def stderr(text):
    return ("stderr", {"line": text})


# -- a turn ---------------------------------------------------------------------------------------------------------------


def test_a_turn_has_a_session_a_start_words_and_an_end_with_its_tokens():
    out = decoded(
        ("program", {"version": "0.171.0"}),
        STARTED,
        TURN,
        item("completed", "reasoning", text="**Plan**\ngo"),
        item("completed", "agent_message", "item_1", text="Hello."),
        DONE,
    )
    assert out.events == [
        SessionStarted(THREAD, agent_version="0.171.0"),
        TurnStarted(),
        Thinking("**Plan**\ngo", block="item_0"),
        AssistantText("Hello.", block="item_1"),
        TurnCompleted(
            "completed",
            final_text="Hello.",
            usage=Usage(
                "turn",
                input_tokens=120,
                cached_input_tokens=20,
                output_tokens=34,
            ),
        ),
    ]


def test_the_final_text_is_what_codex_wrote_into_its_file():
    told = item("completed", "agent_message", text="{}")
    out = decoded(STARTED, TURN, told, DONE, ("last_message", {"text": '{"answer": 42}'}))
    assert out.of(TurnCompleted)[0].final_text == '{"answer": 42}'


def test_the_end_of_a_turn_waits_for_the_end_of_the_process():
    decoder, out = ExecDecoder(), Collected()
    for message in (STARTED, TURN, DONE):
        decoder.received(message, out)
    assert decoder.turn_over
    assert out.of(TurnCompleted) == []
    decoder.ended(0, out)
    assert len(out.of(TurnCompleted)) == 1


def test_a_turn_that_codex_did_not_end_is_left_for_the_core_to_end():
    assert decoded(STARTED, TURN, command("started", "sleep 9"), returncode=1).of(TurnCompleted) == []


def test_a_second_thread_is_not_ours():
    other = {**STARTED, "thread_id": "019c0000-0000-7000-8000-00000000bbbb"}
    out = decoded(STARTED, other)
    assert [started.native_id for started in out.of(SessionStarted)] == [THREAD]
    assert out.of(Raw) == [Raw(other)]


# -- failures -------------------------------------------------------------------------------------------------------------


def test_a_failed_turn_prints_its_message_twice_and_it_is_told_once():
    out = decoded(
        STARTED, TURN, {"type": "error", "message": "bad"}, {"type": "turn.failed", "error": {"message": "bad"}}
    )
    assert out.of(Error) == [Error("bad", recoverable=False)]
    assert out.of(TurnCompleted) == [TurnCompleted("errored", error="bad")]


def test_retries_are_recoverable_and_carry_their_number():
    busy = "We’re currently experiencing high demand"
    out = decoded(
        STARTED,
        TURN,
        {"type": "error", "message": f"Reconnecting... 1/2 ({busy})"},
        {"type": "error", "message": f"Reconnecting... 2/2 ({busy})"},
        {"type": "error", "message": busy},
        {"type": "turn.failed", "error": {"message": busy}},
    )
    assert [(e.recoverable, e.attempt, e.max_attempts) for e in out.of(Error)] == [
        (True, 1, 2),
        (True, 2, 2),
        (False, None, None),
    ]


def test_a_stream_that_dropped_and_came_back_is_no_failure():
    out = decoded(
        STARTED,
        TURN,
        item("completed", "agent_message", text="partial"),
        {"type": "error", "message": "Reconnecting... 1/2 (stream disconnected before completion)"},
        item("completed", "agent_message", "item_1", text="ok"),
        DONE,
    )
    assert [end.outcome for end in out.of(TurnCompleted)] == ["completed"]
    assert out.of(TurnCompleted)[0].final_text == "ok"
    assert all(error.recoverable for error in out.of(Error))


def test_an_error_that_no_failed_turn_follows_is_recoverable_and_the_last_word_of_a_process_is_not():
    message = {"type": "error", "message": "odd"}
    assert [error.recoverable for error in decoded(STARTED, TURN, message, DONE).of(Error)] == [True]
    assert [error.recoverable for error in decoded(STARTED, TURN, message, returncode=1).of(Error)] == [False]


def test_two_different_messages_of_a_failed_turn_are_both_told():
    out = decoded(
        STARTED, TURN, {"type": "error", "message": "one"}, {"type": "turn.failed", "error": {"message": "two"}}
    )
    assert [error.message for error in out.of(Error)] == ["one", "two"]


def test_an_item_called_error_is_a_warning():
    out = decoded(
        STARTED, item("completed", "error", message="This session was recorded with another model."), TURN, DONE
    )
    assert [notice.topic for notice in out.of(Notice)] == ["warning"]
    assert out.of(Error) == []


# -- tool calls -----------------------------------------------------------------------------------------------------------


def test_a_command_is_a_call_of_bash_whose_result_has_the_exit_code():
    out = decoded(
        STARTED,
        TURN,
        command("started", "echo bad; exit 3"),
        command("completed", "echo bad; exit 3", output="bad\n", code=3, status="failed"),
        DONE,
    )
    assert out.of(ToolCallCompleted) == [
        ToolCallCompleted("item_0", "Bash", {"command": "echo bad; exit 3"}, "command_execution")
    ]
    assert out.of(ToolResult) == [ToolResult("item_0", "bad\n", True, 3, "literal")]


def test_the_output_of_a_running_command_comes_as_what_was_added():
    out = decoded(
        command("started", "make"),
        command("updated", "make", output="one\n"),
        command("updated", "make", output="one\ntwo\n"),
        command("updated", "make", output="one\ntwo\n"),
        end=False,
    )
    assert [event.text for event in out.of(ToolOutput)] == ["one\n", "two\n"]


def test_a_command_without_output_on_the_wire_has_an_unknown_one():
    done = command("completed", "ls", output=None, code=0, status="completed")
    assert decoded(done).of(ToolResult) == [ToolResult("item_0", None, False, 0, "literal")]


def test_results_that_come_in_reverse_order_find_their_own_commands():  # case F3-07
    out = decoded(
        command("started", "echo one", "item_1"),
        command("started", "echo two", "item_2"),
        command("completed", "echo two", "item_2", "two\n", 0, "completed"),
        command("completed", "echo one", "item_1", "one\n", 0, "completed"),
    )
    assert {call.tool_call: call.input["command"] for call in out.of(ToolCallCompleted)} == {
        "item_1": "echo one",
        "item_2": "echo two",
    }
    assert {result.tool_call: result.content for result in out.of(ToolResult)} == {"item_1": "one\n", "item_2": "two\n"}


def test_a_change_of_files_is_told_by_path_and_kind_without_a_diff():
    changes = [{"path": "/work/a.txt", "kind": "add"}, {"path": "/work/b.txt", "kind": "delete"}]
    out = decoded(
        item("started", "file_change", changes=changes, status="in_progress"),
        item("completed", "file_change", changes=changes, status="completed"),
    )
    assert [call.name for call in out.of(ToolCallCompleted)] == ["Edit"]
    assert out.of(FileChange) == [
        FileChange("add", "/work/a.txt", authoritative=True, tool_call="item_0"),
        FileChange("delete", "/work/b.txt", authoritative=True, tool_call="item_0"),
    ]


def test_a_change_that_failed_changed_nothing():
    failed = item("completed", "file_change", changes=[{"path": "/a", "kind": "add"}], status="failed")
    out = decoded(failed)
    assert out.of(FileChange) == []
    assert [result.is_error for result in out.of(ToolResult)] == [True]


def test_a_call_of_an_mcp_server_has_its_content_or_its_error():
    fields = {"server": "nucleic", "tool": "echo", "arguments": {"text": "hi"}}
    content = [{"type": "text", "text": "echo:hi"}]
    out = decoded(
        item("started", "mcp_tool_call", **fields, result=None, error=None, status="in_progress"),
        item("completed", "mcp_tool_call", **fields, result={"content": content}, error=None, status="completed"),
        item("completed", "mcp_tool_call", "item_1", **fields, error={"message": "boom"}, status="failed"),
    )
    assert [call.name for call in out.of(ToolCallCompleted)] == ["mcp__nucleic__echo"] * 2
    assert [(result.content, result.is_error) for result in out.of(ToolResult)] == [(content, False), ("boom", True)]
    assert out.of(Error) == []


def test_a_call_of_an_mcp_server_that_would_have_asked_is_denied_by_policy():
    why = "MCP tool call requires approval, but approval policy is never"
    fields = {"server": "notes", "tool": "write", "arguments": {}}
    out = decoded(item("completed", "mcp_tool_call", **fields, error={"message": why}, status="failed"))
    assert [(error.code, error.recoverable) for error in out.of(Error)] == [("denied_by_policy", True)]
    assert [result.is_error for result in out.of(ToolResult)] == [True]


def test_a_web_search_has_its_id_twice_and_its_messages_still_meet():
    lines = (
        b'{"type":"item.started","item":{"id":"item_7","type":"web_search","id":"ws_1","query":"","action":{"type":"other"}}}',
        b'{"type":"item.completed","item":{"id":"item_7","type":"web_search","id":"ws_1","query":"codex",'
        b'"action":{"type":"search","query":"codex"}}}',
    )
    out = decoded(*map(orjson.loads, lines))
    assert out.of(ToolCallStarted) == [ToolCallStarted("ws_1", "WebSearch", native_name="web_search")]
    (asked,) = out.of(ToolCallCompleted)
    assert (asked.tool_call, asked.input["query"]) == ("ws_1", "codex")
    assert out.of(ToolResult) == [ToolResult("ws_1", None)]


def test_a_todo_list_is_a_plan_told_when_it_changes():
    def todo(phase, *done):
        return item(phase, "todo_list", items=[{"text": f"step {n}", "completed": d} for n, d in enumerate(done)])

    out = decoded(todo("started", False, False), todo("updated", True, False), todo("completed", True, False))
    assert [[entry["status"] for entry in plan.entries] for plan in out.of(Plan)] == [
        ["pending", "pending"],
        ["completed", "pending"],
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "turn.paused"},
        {"type": "thread.started"},
        {"type": "error"},
        item("completed", "agent_message"),
        item("completed", "hologram", text="?"),
        item("completed", "command_execution"),
        item("completed", "file_change", changes="all"),
        item("completed", "mcp_tool_call", server="x"),
        item("completed", "web_search"),
        item("updated", "todo_list", items=[{"text": "x"}]),
        {"type": "item.completed", "item": {"type": "agent_message", "text": "no id"}},
        {"type": "item.completed"},
        "text",
        7,
        None,
    ],
)
def test_what_is_not_understood_is_kept_whole(message):
    assert decoded(message).events == [Raw(message)]


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        ("/bin/bash -lc 'echo out; echo err >&2'", "echo out; echo err >&2"),
        ("/bin/bash -lc pwd", "pwd"),
        ("/usr/bin/zsh -c 'ls'", "ls"),
        ("python3 -c 'print(1)'", "python3 -c 'print(1)'"),
        ("echo 'open", "echo 'open"),
        (["/bin/bash", "-lc", "ls"], "ls"),
        (["ls", "-l", "a b"], "ls -l 'a b'"),
        (None, None),
    ],
)
def test_codexs_own_shell_is_taken_off_a_command(shown, line):
    assert line_of(shown) == line


# -- tokens ---------------------------------------------------------------------------------------------------------------


def tokens(out):
    usage = out.of(TurnCompleted)[0].usage
    return usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens, usage.output_tokens


def test_the_tokens_of_a_resumed_thread_are_what_was_added_to_it():
    before = count(input_tokens=100, cached_input_tokens=5, cache_write_input_tokens=0, output_tokens=30)
    assert tokens(decoded(before, STARTED, TURN, DONE, resumed=True)) == (20, 15, None, 4)


def test_the_tokens_of_a_resumed_thread_are_unknown_where_nobody_knows_what_it_had_before():
    assert tokens(decoded(STARTED, TURN, DONE, resumed=True)) == (None, None, None, None)


def test_figures_that_fell_are_unknown():
    before = count(input_tokens=500, cached_input_tokens=5, output_tokens=30)
    assert tokens(decoded(before, STARTED, TURN, DONE, resumed=True)) == (None, 15, None, 4)


def test_counts_of_the_turn_itself_are_not_taken_off():
    out = decoded(STARTED, TURN, DONE, count(input_tokens=120, output_tokens=34))
    assert tokens(out) == (120, 20, None, 34)
    assert out.of(TurnCompleted)[0].usage.context_window == 258400


def test_a_turn_without_figures_has_no_usage():
    assert decoded(STARTED, TURN, {"type": "turn.completed"}).of(TurnCompleted)[0].usage is None


# -- what stdout kept silent about ----------------------------------------------------------------------------------------


def test_a_call_that_policy_refused_is_shown_as_denied():
    out = decoded(
        STARTED,
        TURN,
        DONE,
        call("call_1", "exec_command", {"cmd": "touch /srv/x", "sandbox_permissions": "require_escalated"}),
        answer("call_1", NEVER),
    )
    assert out.of(ToolCallCompleted) == [
        ToolCallCompleted("call_1", "Bash", {"command": "touch /srv/x"}, "exec_command")
    ]
    assert out.of(ToolResult) == [ToolResult("call_1", NEVER, is_error=True)]
    (error,) = out.of(Error)
    assert (error.recoverable, error.code) == (True, "denied_by_policy")
    assert error.detail == {"source": "codex:rollout:function_call_output", "heuristic": True}
    assert isinstance(out.events[-1], TurnCompleted)


REFUSALS = [
    NEVER,
    "patch rejected: writing outside of the project; rejected by user approval settings",
    "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings",
    "Command blocked by PreToolUse hook: locked. Command: *** Begin Patch",
    'exec_command failed for `/bin/bash -lc \'rm -rf x\'`: CreateProcess { message: "Rejected(\\"blocked by policy\\")" }',
]


@pytest.mark.parametrize("text", REFUSALS)
def test_every_refusal_that_was_seen_is_known_in_the_rollout_and_on_stderr(text):
    recorded = decoded(custom("call_1", "apply_patch", "*** Begin"), answer("call_1", text, "custom_tool_call_output"))
    assert [error.code for error in recorded.of(Error)] == ["denied_by_policy"]
    line = (
        f"\x1b[2m2026-11-30T18:42:10Z\x1b[0m \x1b[31mERROR\x1b[0m \x1b[2mcodex_core::tools::router\x1b[0m: error={text}"
    )
    printed = decoded(stderr(line))
    assert [error.code for error in printed.of(Error)] == ["denied_by_policy"]
    assert printed.of(ToolResult) == [ToolResult("stderr:1", text, is_error=True, correlated=False)]


def test_a_refusal_in_both_places_is_told_once():
    out = decoded(
        call("call_1", "exec_command", {"cmd": "touch /srv/x"}),
        answer("call_1", NEVER),
        stderr(f"2026-11-30T18:42:10Z ERROR codex_core::tools::router: error={NEVER}"),
    )
    assert len(out.of(Error)) == 1


def test_two_equal_refusals_of_which_one_is_recorded_are_told_twice():
    line = stderr(f"2026-11-30T18:42:10Z ERROR codex_core::tools::router: error={NEVER}")
    out = decoded(call("call_1", "exec_command", {"cmd": "x"}), answer("call_1", NEVER), line, line)
    assert [error.detail["source"] for error in out.of(Error)] == ["codex:rollout:function_call_output", "codex:stderr"]


def test_a_refusal_inside_a_script_of_code_mode_is_found():
    parts = [
        {"type": "input_text", "text": "Script failed\nWall time 0.0 seconds\nOutput:\n"},
        {"type": "input_text", "text": f"Script error:\n{NEVER}"},
    ]
    out = decoded(
        custom("call_js", "exec", "tools.exec_command()"), answer("call_js", parts, "custom_tool_call_output")
    )
    assert [error.message for error in out.of(Error)] == [f"Codex refused exec: {NEVER}"]


def test_the_output_of_a_program_is_no_refusal_whatever_it_says():
    ran = f"Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n{NEVER}\npatch rejected\n"
    out = decoded(
        command("started", "cat log"),
        command("completed", "cat log", output=NEVER, code=0, status="completed"),
        call("call_1", "exec_command", {"cmd": "cat log"}),
        answer("call_1", ran),
        custom("call_2", "exec", "text(1)"),
        answer("call_2", f"Script completed\nOutput:\n{NEVER}", "custom_tool_call_output"),
    )
    assert out.of(Error) == []


def test_a_command_that_ran_without_an_item_is_shown_from_the_rollout():
    ran = "Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code 1\nOutput:\ntouch: Read-only file system\n"
    out = decoded(
        STARTED,
        TURN,
        command("started", "ls"),
        command("completed", "ls", output="", code=0, status="completed"),
        DONE,
        call("call_1", "exec_command", {"cmd": "ls"}),
        answer("call_1", ran.replace("code 1", "code 0")),
        call("call_2", "exec_command", {"cmd": "touch /usr/x"}),
        answer("call_2", ran),
    )
    assert [(c.tool_call, c.input) for c in out.of(ToolCallCompleted)] == [
        ("item_0", {"command": "ls"}),
        ("call_2", {"command": "touch /usr/x"}),
    ]
    assert out.of(ToolResult)[-1] == ToolResult("call_2", ran, True, 1, "heuristic")
    assert out.of(Error) == []


def test_the_same_command_twice_with_one_item_ran_once_unseen():
    ran = "Chunk ID: 1\nProcess exited with code 0\nOutput:\n"
    out = decoded(
        command("completed", "ls", output="", code=0, status="completed"),
        *(
            step
            for key in ("call_1", "call_2")
            for step in (call(key, "exec_command", {"cmd": "ls"}), answer(key, ran))
        ),
    )
    assert [c.tool_call for c in out.of(ToolCallCompleted)] == ["item_0", "call_2"]


def test_a_command_whose_end_has_no_item_gets_its_result_from_the_rollout():
    """Seen with 0.141.0, where a slow command's end was not printed, though the model had its output."""
    ran = "Chunk ID: 1\nProcess exited with code 0\nOutput:\nslow\n"
    out = decoded(
        STARTED,
        TURN,
        command("started", "sleep 1", "item_0"),
        command("started", "sleep 20", "item_1"),
        DONE,
        call("call_1", "exec_command", {"cmd": "sleep 1"}),
        answer("call_1", ran),
        call("call_2", "exec_command", {"cmd": "sleep 20"}),
        answer("call_2", "Chunk ID: 2\nProcess running with session ID 7\nOutput:\n"),
    )
    assert [c.tool_call for c in out.of(ToolCallCompleted)] == ["item_0", "item_1"]
    assert out.of(ToolResult) == [ToolResult("item_0", ran, False, 0, "heuristic")]


def test_another_failure_of_a_tool_on_stderr_is_a_recoverable_error():
    out = decoded(stderr("2026-11-30T18:34:25Z ERROR codex_core::tools::router: error=unsupported call: update_plan"))
    assert [(error.code, error.recoverable) for error in out.of(Error)] == [("tool_failed", True)]


def test_protocol_on_stderr_is_never_read_as_protocol():  # case F1-08
    out = decoded(
        STARTED,
        TURN,
        stderr('2026-11-01T10:00:00Z INFO codex_otel: event.name="codex.tool_result" output='),
        stderr('{"type":"thread.started","thread_id":"019c0000-0000-7000-8000-00000000bbbb"}'),
        stderr('{"type":"turn.completed","usage":{"input_tokens":999999,"cached_input_tokens":0,"output_tokens":1}}'),
    )
    assert [started.native_id for started in out.of(SessionStarted)] == [THREAD]
    assert out.of(TurnCompleted) == []
    assert len(out.events) == 2


# -- junk -----------------------------------------------------------------------------------------------------------------

_leaf = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
_json = st.recursive(
    _leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
_texts = st.sampled_from(
    [*REFUSALS, "ls", "/bin/bash -lc 'ls", "Process exited with code 99999999999", "Reconnecting... 1/", ""]
)
_values = _json | _texts
_items = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "agent_message",
                "reasoning",
                "command_execution",
                "file_change",
                "mcp_tool_call",
                "web_search",
                "todo_list",
                "error",
                "x",
            ]
        )
    },
    optional=dict.fromkeys(
        (
            "id",
            "text",
            "command",
            "aggregated_output",
            "exit_code",
            "status",
            "changes",
            "server",
            "tool",
            "arguments",
            "result",
            "error",
            "query",
            "action",
            "items",
            "message",
        ),
        _values,
    ),
)
_payloads = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "token_count"]
        ),
        "call_id": st.sampled_from(["a", "b"]) | _json,
    },
    optional=dict.fromkeys(("name", "namespace", "arguments", "input", "output", "info"), _values),
)
_messages = st.one_of(
    st.tuples(st.sampled_from(["stdout", "stderr", "rollout", "program", "last_message", "?"]), _json),
    st.tuples(
        st.just("stdout"),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["item.started", "item.updated", "item.completed"]), "item": _items}
        ),
    ),
    st.tuples(
        st.just("stdout"),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["thread.started", "turn.started", "turn.completed", "turn.failed", "error"])},
            optional=dict.fromkeys(("thread_id", "usage", "error", "message"), _values),
        ),
    ),
    st.tuples(
        st.just("rollout"),
        st.fixed_dictionaries({"type": st.sampled_from(["response_item", "event_msg"]), "payload": _payloads}),
    ),
    st.tuples(st.just("stderr"), st.fixed_dictionaries({"line": _values})),
)


@given(st.lists(_messages, max_size=12), st.booleans())
def test_no_junk_makes_it_raise(messages, resumed):
    decoded(*messages, resumed=resumed)
