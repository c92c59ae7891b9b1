"""What the Claude decoder makes of whole lines: shapes from recordings of 2.1.167 and 2.1.332, shortened."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nucleic_claude.decode import ClaudeDecoder
from nucleic_claude.system import SILENT

from nucleic_core.events import (
    AssistantText,
    Error,
    FileChange,
    Notice,
    Raw,
    RunFinished,
    SessionStarted,
    ToolCallCompleted,
    ToolCallStarted,
    ToolOutput,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Usage,
)

FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


class Collected:
    """An Out that keeps what it gets."""

    def __init__(self):
        self.items, self.asks, self.withdrawn = [], [], []

    def event(self, data, native=None, parent=None):
        self.items.append((data, native, parent))

    def ask(self, ask, native=None, parent=None):
        self.asks.append((ask, parent))
        self.items.append((ask, native, parent))

    def withdraw(self, key, reason):
        self.withdrawn.append((key, reason))
        self.items.append(((key, reason), None, None))

    @property
    def events(self):
        return [data for data, _, _ in self.items if hasattr(data, "kind")]

    def of(self, cls):
        return [data for data in self.events if isinstance(data, cls)]


def decode(*lines, decoder=None, channel="stdout"):
    out = Collected()
    decoder = decoder or ClaudeDecoder()
    for line in lines:
        decoder.received(line, out, channel)
    return out


def init(**fields):
    session = {"session_id": "s-1", "model": "claude-x", "cwd": "/w/app", "tools": ["Task", "Bash"], "uuid": "i-1"}
    base = {"type": "system", "subtype": "init", "claude_code_version": "2.1.332", "permissionMode": "default"}
    return {**base, **session, **fields}


def assistant(*blocks, parent=None, message="msg_1", **fields):
    body = {"id": message, "model": "claude-x", "role": "assistant", "content": list(blocks)}
    usage = fields.pop("usage", {"input_tokens": 4, "cache_read_input_tokens": 900, "output_tokens": 1})
    return {"type": "assistant", "message": {**body, "usage": usage}, "parent_tool_use_id": parent, **fields}


def text(words):
    return {"type": "text", "text": words}


def call(tool_call, name="Bash", **given):
    return {"type": "tool_use", "id": tool_call, "name": name, "input": given or {"command": "ls"}}


def answer(tool_call, content="ok", native=None, parent=None, **fields):
    block = {"type": "tool_result", "tool_use_id": tool_call, "content": content, **fields}
    line = {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": parent}
    return line if native is None else {**line, "tool_use_result": native}


def user(content, **fields):
    return {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None, **fields}


_numbers = itertools.count()


def result(**fields):
    base = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "stop_reason": "end_turn"}
    figures = {"duration_ms": 4210, "num_turns": 2, "total_cost_usd": 0.0184, "uuid": f"r-{next(_numbers)}"}
    usage = {
        "input_tokens": 9,
        "cache_read_input_tokens": 1800,
        "cache_creation_input_tokens": 120,
        "output_tokens": 64,
    }
    return {**base, **figures, "usage": usage, "permission_denials": [], **fields}


def retry(attempt, error="overloaded", status=529, **fields):
    base = {"type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": 10, "retry_delay_ms": 596}
    return {**base, "error": error, "error_status": status, **fields}


def outcome(*lines, sent=()):
    decoder, out = ClaudeDecoder(), Collected()
    decoder.received(init(), out)
    for message in sent:
        decoder.sent(message, out)
    for line in lines:
        decoder.received(line, out)
    return out.of(TurnCompleted)[-1]


INTERRUPT = {"type": "control_request", "request_id": "q-1", "request": {"subtype": "interrupt"}}
STOPPED = {"subtype": "error_during_execution", "is_error": True, "result": None, "errors": ["[ede_diagnostic]"]}


# The session


def test_the_first_init_starts_the_session_and_every_init_a_turn():
    out = decode(init(), assistant(text("a")), result(), init(uuid="i-2"), result())
    (started,) = out.of(SessionStarted)
    assert started == SessionStarted("s-1", "claude-x", "/w/app", ("Agent", "Bash"), "2.1.332", None)
    assert [turn.turn for turn in out.of(TurnStarted)] == ["i-1", "i-2"]


def test_an_init_with_another_session_id_is_followed_and_said():
    """F6-01, and /clear."""
    out = decode(init(), result(), {"type": "conversation_reset", "trigger": "clear"}, init(session_id="s-2"), result())
    assert [started.native_id for started in out.of(SessionStarted)] == ["s-1", "s-2"]
    assert "new native id, s-2; it was s-1" in out.of(Notice)[1].text


def test_a_result_of_an_unknown_resume_id_is_a_failed_turn_and_no_session():
    errors = ["No conversation found with session ID: dead"]
    out = decode(result(**{**STOPPED, "errors": errors}, session_id="dead"))
    assert out.of(SessionStarted) == []
    assert (out.of(TurnCompleted)[0].outcome, out.of(TurnCompleted)[0].error) == ("errored", errors[0])


def test_the_transcript_path_is_told_where_the_clis_rule_for_its_name_is_known():
    root = Path("/home/dev/.claude/projects")

    def path(cwd):
        (started,) = decode(init(cwd=cwd), decoder=ClaudeDecoder(transcript_root=root)).of(SessionStarted)
        return started.transcript_path

    assert path("/w/app") == "/home/dev/.claude/projects/-w-app/s-1.jsonl"
    assert path("/w/a.b c_d-ü$x") == "/home/dev/.claude/projects/-w-a-b-c-d---x/s-1.jsonl"
    assert path("/" + "w" * 200) is None


def test_a_mode_that_changes_and_a_server_that_fails_are_notices_once():
    failed = [{"name": "nucleic", "status": "failed"}]
    out = decode(init(mcp_servers=failed), result(), init(mcp_servers=failed, permissionMode="plan"), result())
    assert [(notice.topic, notice.text) for notice in out.of(Notice)] == [
        ("mcp", "The MCP server nucleic is not connected: failed"),
        ("mode", "Permission mode: plan"),
    ]


# Turns and outcomes


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "completed"),
        ({"is_error": True, "result": "API Error: 400"}, "errored"),
        ({"subtype": "error_max_turns", "is_error": True}, "max_turns"),
        ({"subtype": "error_max_budget_usd", "is_error": True}, "max_budget"),
        ({**STOPPED, "terminal_reason": "aborted_streaming"}, "interrupted"),
        ({**STOPPED, "terminal_reason": "completed"}, "errored"),
        ({"is_error": True, "terminal_reason": "prompt_too_long"}, "context_full"),
        ({"is_error": True, "terminal_reason": "blocking_limit"}, "context_full"),
        ({"is_error": True, "stop_reason": "refusal"}, "refused"),
        ({"is_error": True, "terminal_reason": "completed"}, "errored"),
    ],
)
def test_the_outcome_of_a_turn_is_read_from_is_error_before_all_else(fields, expected):
    assert outcome(result(**fields)).outcome == expected


def test_an_api_error_that_says_success_is_an_error_and_no_prose():
    """F2-05: is_error true, whatever subtype and exit code say."""
    failure = "API Error: 400 {}"
    line = assistant(text(failure), error="invalid_request", request_id="req_1")
    out = decode(init(), line, result(is_error=True, result=failure))
    assert out.of(AssistantText) == []
    assert out.of(Error) == [Error(failure, True, "invalid_request", detail={"request_id": "req_1"})]
    (ended,) = out.of(TurnCompleted)
    assert (ended.outcome, ended.error, ended.final_text) == ("errored", failure, None)


def test_the_output_of_a_command_of_the_cli_is_a_notice_and_no_prose():
    line = assistant(text("Estimated cost: $0.0008"))
    line["message"]["model"] = "<synthetic>"
    out = decode(init(), line, user("<local-command-stdout>Compacted </local-command-stdout>", isReplay=True))
    assert out.of(Notice) == [Notice("command", "Estimated cost: $0.0008"), Notice("command", "Compacted")]


def test_an_interrupt_that_we_sent_and_a_deny_that_interrupts_are_told_apart():
    deny = {"behavior": "deny", "message": "no", "interrupt": True}
    response = {"type": "control_response", "response": {"subtype": "success", "request_id": "k", "response": deny}}
    ending = result(**STOPPED, terminal_reason="aborted_tools")
    assert outcome(ending, sent=[INTERRUPT]).outcome == "interrupted"
    assert outcome(ending, sent=[response]).outcome == "denied"
    assert outcome(ending, sent=[response, INTERRUPT]).outcome == "interrupted"
    assert outcome(ending).error is None


def test_a_deny_over_mcp_that_interrupts_ends_the_turn_as_denied():
    decoder, out = ClaudeDecoder(), decode(init(), decoder=(decoder := ClaudeDecoder()))
    decoder.sent({"key": "1", "reply": {"behavior": "deny", "message": "no", "interrupt": True}}, out, "mcp")
    decoder.received(result(**STOPPED, terminal_reason="aborted_tools"), out)
    assert out.of(TurnCompleted)[0].outcome == "denied"


def test_an_interrupt_does_not_colour_the_next_turn():
    lines = [result(**STOPPED, terminal_reason="aborted_tools"), init(), result(**STOPPED, terminal_reason="completed")]
    assert outcome(*lines, sent=[INTERRUPT]).outcome == "errored"


def test_a_success_without_a_stop_reason_may_be_half_an_answer():
    assert decode(init(), result(stop_reason=None)).of(Notice)[0].topic == "cut"
    assert decode(init(), result(stop_reason=None, num_turns=0)).of(Notice) == []


def test_background_work_announces_further_turns_and_the_agent_begins_them():
    """2.1.332: the sub-agent outlives the result; its report starts a turn that nobody asked for."""
    launched = {"isAsync": True, "status": "async_launched", "agentId": "a1"}
    report = {
        "type": "system",
        "subtype": "task_notification",
        "task_id": "a1",
        "status": "completed",
        "summary": "made",
    }
    out = decode(
        init(),
        assistant(call("t1", "Agent", prompt="p")),
        {"type": "system", "subtype": "background_tasks_changed", "tasks": [{"task_id": "a1"}]},
        answer("t1", "Async agent launched", launched),
        result(),
        assistant(text("sub"), parent="t1", message="m2"),
        report,
        {"type": "system", "subtype": "background_tasks_changed", "tasks": []},
        init(uuid="i-2"),
        result(),
    )
    assert [turn.origin for turn in out.of(TurnStarted)] == ["user", "agent"]
    assert [turn.more_follows for turn in out.of(TurnCompleted)] == [True, False]
    assert out.of(Notice)[0].topic == "background"


def test_in_167_one_result_after_two_turns_still_gives_two_turns():
    launched = {"isAsync": True, "agentId": "a1"}
    over = {"type": "system", "subtype": "task_updated", "task_id": "a1", "patch": {"status": "completed"}}
    report = {"type": "system", "subtype": "task_notification", "task_id": "a1", "summary": "completed"}
    lines = [
        assistant(call("t1", "Agent")),
        answer("t1", "Async", launched),
        assistant(text("All done."), message="m2"),
    ]
    out = decode(
        init(), *lines, over, report, init(uuid="i-2"), assistant(text("Two."), message="m3"), result(result="Two.")
    )
    first, second = out.of(TurnCompleted)
    assert (first.turn, first.outcome, first.final_text, first.usage, first.more_follows) == (
        "i-1",
        "completed",
        "All done.",
        None,
        True,
    )
    assert (second.turn, second.final_text, second.more_follows) == ("i-2", "Two.", False)
    assert [turn.origin for turn in out.of(TurnStarted)] == ["user", "agent"]


def test_a_result_that_comes_twice_ends_one_turn():
    once = result()
    out = decode(init(), once, once)
    assert len(out.of(TurnCompleted)) == 1
    assert out.of(Raw) == [Raw(once)]


@pytest.mark.parametrize(
    ("returncode", "says"),
    [(1, "exit code 1"), (-9, "SIGKILL"), (143, "exit code 143"), (None, "ended before"), (-99, "signal 99")],
)
def test_a_process_that_ends_in_a_turn_ends_the_turn(returncode, says):
    decoder, out = ClaudeDecoder(), Collected()
    decoder.received(init(), out)
    decoder.received(assistant(text("so far")), out)
    decoder.ended(returncode, out)
    (ended,) = out.of(TurnCompleted)
    assert (ended.outcome, ended.final_text) == ("errored", "so far")
    assert says in ended.error


def test_a_process_that_ends_after_our_interrupt_was_interrupted_once():
    """F5-09: the signal is the core's to see; what we sent in band is the decoder's."""
    decoder, out = ClaudeDecoder(), Collected()
    decoder.received(init(), out)
    decoder.sent(INTERRUPT, out)
    decoder.ended(-2, out)
    decoder.ended(-2, out)
    assert [(ended.outcome, ended.error) for ended in out.of(TurnCompleted)] == [("interrupted", None)]


def test_exit_code_1_after_a_result_that_failed_is_that_result_and_no_crash():
    """Wire fact 9."""
    decoder, out = ClaudeDecoder(), Collected()
    for line in (init(), result(subtype="error_max_turns", is_error=True)):
        decoder.received(line, out)
    decoder.ended(1, out)
    assert out.of(RunFinished) == [RunFinished("max_turns", returncode=1)]


def test_a_process_that_ends_between_turns_ends_no_turn():
    decoder, out = ClaudeDecoder(), Collected()
    for line in (init(), result()):
        decoder.received(line, out)
    decoder.ended(0, out)
    assert len(out.of(TurnCompleted)) == 1


# Tool calls and results


def test_a_tool_call_starts_completes_and_ends():
    out = decode(init(), assistant(call("t1", command="ls")), answer("t1", "a.py"), result())
    assert [data for data in out.events if isinstance(data, (ToolCallStarted, ToolCallCompleted, ToolResult))] == [
        ToolCallStarted("t1", "Bash"),
        ToolCallCompleted("t1", "Bash", {"command": "ls"}),
        ToolResult("t1", "a.py"),
    ]


def test_the_same_call_twice_is_one_call_and_another_input_is_flagged():
    """F2-07: the first stands."""
    twice = decode(init(), assistant(call("t1")), assistant(call("t1")), answer("t1"))
    assert len(twice.of(ToolCallCompleted)) == len(twice.of(ToolResult)) == 1
    other = decode(init(), assistant(call("t1")), assistant(call("t1", command="rm")))
    assert other.of(ToolCallCompleted) == [ToolCallCompleted("t1", "Bash", {"command": "ls"})]
    assert other.of(Notice)[0].detail == {"tool_call": "t1", "input": {"command": "rm"}}


def test_a_second_result_of_a_call_stays_raw():
    again = answer("t1", "other")
    out = decode(init(), assistant(call("t1")), answer("t1"), again)
    assert len(out.of(ToolResult)) == 1
    assert out.of(Raw) == [Raw(again)]


def test_a_result_whose_call_was_never_seen_is_told_as_that():
    """F3-01: no invented call, no file change."""
    content = [{"type": "text", "text": "42 files"}]
    native = {"type": "create", "filePath": "/w/a", "content": "x"}
    out = decode(init(), answer("gone", content, native), assistant(text("continuing")), result())
    assert out.of(ToolResult) == [ToolResult("gone", content, correlated=False)]
    assert out.of(ToolCallStarted) == out.of(FileChange) == []


def test_the_exit_code_is_read_out_of_the_text_and_says_so():
    out = decode(
        init(), assistant(call("t1")), answer("t1", "Exit code 7\ncurl: no", "Error: Exit code 7", is_error=True)
    )
    (ended,) = out.of(ToolResult)
    assert (ended.is_error, ended.exit_code, ended.exit_code_source) == (True, 7, "heuristic")
    other = decode(init(), assistant(call("t1", "Read", file_path="a")), answer("t1", "Exit code 7", is_error=True))
    assert other.of(ToolResult)[0].exit_code is None
    fine = decode(init(), assistant(call("t1")), answer("t1", "Exit code 7"))
    assert fine.of(ToolResult)[0].exit_code is None


def test_task_and_agent_are_one_tool():
    out = decode(init(), assistant(call("t1", "Task", prompt="p")))
    assert out.of(ToolCallCompleted) == [ToolCallCompleted("t1", "Agent", {"prompt": "p"}, "Task")]


def test_sub_agents_keep_their_parent_and_stay_out_of_the_final_text():
    """F3-06: two of them interleaved."""
    out = decode(
        init(),
        assistant(call("A", "Task", prompt="p")),
        assistant(call("B", "Task", prompt="q")),
        user([text("p")], parent_tool_use_id="A"),
        assistant(text("A says"), parent="A", message="m2"),
        assistant(call("sB"), parent="B", message="m3"),
        assistant(call("sA", command="pwd"), parent="A", message="m4"),
        answer("sB", "a.py", parent="B"),
        answer("A", "A done"),
        answer("sA", "/w", parent="A"),
        result(result=None),
    )
    parents = {data.tool_call: parent for data, _, parent in out.items if isinstance(data, ToolResult)}
    assert parents == {"sB": "B", "A": None, "sA": "A"}
    assert [parent for data, _, parent in out.items if isinstance(data, AssistantText)] == ["A"]
    assert out.of(TurnCompleted)[0].final_text is None
    assert out.of(Raw) == []
    assert all(data.correlated for data in out.of(ToolResult))


def test_the_prompt_of_a_sub_agent_is_told_only_where_its_call_did_not():
    known = user([text("p")], parent_tool_use_id="t1")
    assert decode(init(), assistant(call("t1", "Agent", prompt="p")), known).of(Notice) == []
    assert decode(init(), assistant(call("t1", "Agent", prompt="other")), known).of(Notice) == [Notice("prompt", "p")]


# File changes


def change(native, name="Write", content="File created successfully at: x", **given):
    given = given or {"file_path": "x"}
    return decode(init(), assistant(call("t1", name, **given)), answer("t1", content, native)).of(FileChange)


def test_a_written_file_is_an_addition_with_its_whole_content_as_diff():
    (made,) = change({"type": "create", "filePath": "/w/app/n.txt", "content": "one\ntwo", "structuredPatch": []})
    diff = "--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"
    assert made == FileChange("add", "/w/app/n.txt", diff, True, "t1")


def test_an_edit_is_an_update_with_the_agents_own_hunks_and_an_absolute_path():
    hunk = {"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 2, "lines": [" # demo", "-hello", "+hello there"]}
    (edited,) = change({"filePath": "../app/README.md", "structuredPatch": [hunk]}, "Edit")
    assert edited.path == "/w/app/README.md"
    assert edited.diff == "--- a/README.md\n+++ b/README.md\n@@ -1,2 +1,2 @@\n # demo\n-hello\n+hello there\n"
    assert edited.authoritative


def test_a_file_outside_the_directory_keeps_its_whole_path_in_the_diff():
    (made,) = change({"type": "create", "filePath": "/tmp/out.txt", "content": "x\n"})
    assert made.diff == "--- /dev/null\n+++ b/tmp/out.txt\n@@ -0,0 +1,1 @@\n+x\n"


def test_a_notebook_edit_is_an_update_with_a_diff_of_the_file():
    native = {"notebook_path": "/w/app/a.ipynb", "original_file": "a\nb", "updated_file": "a\nc", "error": ""}
    (edited,) = change(native, "NotebookEdit")
    assert edited.diff == "--- a/a.ipynb\n+++ b/a.ipynb\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    assert change({**native, "error": "no such cell"}, "NotebookEdit") == [
        FileChange("update", "/w/app/x", tool_call="t1")
    ]


def test_files_that_a_shell_command_changed_are_told_where_the_agent_lists_them():
    """2.1.332's bashEditDiff."""
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-a", "+b"]}
    files = [
        {"filePath": "/w/app/b.txt", "hunks": [], "created": True},
        {"filePath": "c.txt", "hunks": [hunk]},
        {"x": 1},
    ]
    native = {"stdout": "", "bashEditDiff": {"files": files, "moreFiles": 2}}
    out = decode(init(), assistant(call("t1")), answer("t1", "", native))
    assert out.of(FileChange) == [
        FileChange("add", "/w/app/b.txt", None, True, "t1"),
        FileChange("update", "/w/app/c.txt", "--- a/c.txt\n+++ b/c.txt\n@@ -1,1 +1,1 @@\n-a\n+b\n", True, "t1"),
    ]
    assert out.of(Raw) == [Raw({"bashEditDiff": {"x": 1}})]
    assert out.of(Notice)[0].topic == "files"


def test_a_change_that_failed_or_was_denied_changed_nothing():
    native = {"filePath": "/w/app/a", "structuredPatch": []}
    lines = [init(), assistant(call("t1", "Edit", file_path="a"))]
    assert decode(*lines, answer("t1", "Denied", "Error: Denied", is_error=True)).of(FileChange) == []
    assert decode(*lines, answer("t1", "Denied", native, is_error=True)).of(FileChange) == []


def test_a_change_without_a_native_diff_is_inferred_from_the_input():
    """Lines of sub-agents lack tool_use_result."""
    assert change(None, "Write") == [FileChange("add", "/w/app/x", tool_call="t1")]
    assert change(None, "Edit", "The file x has been updated") == [FileChange("update", "/w/app/x", tool_call="t1")]


# Usage and cost


def test_usage_of_a_message_is_told_once_with_its_last_figures_and_the_turn_is_not_added():
    """F7-01: thinking, text and tool_use lines of one message, each with a full usage."""
    first = {
        "input_tokens": 2,
        "cache_creation_input_tokens": 8000,
        "cache_read_input_tokens": 15000,
        "output_tokens": 1,
    }
    last = {**first, "output_tokens": 310}
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    lines = [assistant(block, usage=first) for block in (thought, text("ok"))]
    out = decode(init(), *lines, assistant(call("t1"), usage=last), result(usage=last, total_cost_usd=0.5))
    message, turn = out.of(Usage)
    figures = (2, 15000, 8000, 310)
    for usage in (message, turn):
        given = (usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens, usage.output_tokens)
        assert given == figures
    assert (message.scope, message.message_id, turn.scope, turn.cost_usd) == ("message", "msg_1", "turn", 0.5)
    assert out.of(TurnCompleted)[0].usage == turn


def test_output_tokens_of_a_message_are_unknown_while_only_its_start_was_seen():
    message = decode(init(), assistant(text("a")), result()).of(Usage)[0]
    assert (message.scope, message.input_tokens, message.output_tokens) == ("message", 4, None)


def test_cost_is_the_difference_of_the_processs_total():
    out = decode(
        init(), result(total_cost_usd=0.25), init(), result(total_cost_usd=0.75), init(), result(total_cost_usd=0.5)
    )
    assert [usage.cost_usd for usage in out.of(Usage)] == [0.25, 0.5, 0.5]


def test_after_a_resume_the_old_total_is_not_charged_again():
    def costs(version, *results):
        decoder = ClaudeDecoder(resumed=True)
        lines = itertools.chain.from_iterable((init(claude_code_version=version), result(**one)) for one in results)
        return [usage.cost_usd for usage in decode(*lines, decoder=decoder).of(Usage)]

    totals = [{"total_cost_usd": 0.25}, {"total_cost_usd": 0.75}]
    assert costs("2.1.167", *totals) == [0.25, 0.5]
    assert costs("2.1.300", *totals) == [None, 0.5]
    assert costs("2.1.332", *totals) == [None, 0.5]
    since = {"model_usage_since_last_result": {"claude-x": {"costUSD": 0.125}}}
    assert costs("2.1.332", {**totals[0], **since}) == [0.125]


def test_a_turn_that_was_paid_for_and_reports_no_tokens_is_not_told_as_zero():
    nothing = {"input_tokens": 0, "output_tokens": 0}
    (unknown,) = decode(init(), result(usage=nothing)).of(Usage)
    assert (unknown.input_tokens, unknown.output_tokens) == (None, None)
    since = {"claude-x": {"costUSD": 0.5, "inputTokens": 100, "outputTokens": 20}}
    (known,) = decode(init(), result(usage=nothing, model_usage_since_last_result=since)).of(Usage)
    assert (known.input_tokens, known.output_tokens, known.cost_usd) == (100, 20, 0.5)


def test_the_context_window_is_that_of_the_sessions_model():
    models = {"claude-x": {"contextWindow": 200}, "other": {"contextWindow": 100}}
    assert decode(init(), result(modelUsage=models)).of(Usage)[0].context_window == 200
    assert decode(init(model="y"), result(modelUsage=models)).of(Usage)[0].context_window is None


# Errors, notices, other lines


def test_retries_of_the_cli_are_recoverable_errors():
    (error,) = decode(init(), retry(2)).of(Error)
    assert (error.recoverable, error.code, error.attempt, error.max_attempts, error.delay_ms) == (
        True,
        "overloaded",
        2,
        10,
        596,
    )
    assert "HTTP 529" in error.message
    assert decode(init(), retry("2")).of(Raw) == [Raw(retry("2"))]


def test_a_refused_key_is_said_at_the_first_retry_and_only_there():
    out = decode(init(), *(retry(n, "authentication_failed", 401) for n in (1, 2, 3)))
    assert [error.recoverable for error in out.of(Error)] == [False, True, True]
    assert "/login" in out.of(Error)[0].message


def test_what_the_cli_denied_itself_is_not_told_as_a_persons_deny():
    """F4-14: no ask came; the denied write is no change."""
    denial = {"tool_name": "Write", "tool_use_id": "t1", "tool_input": {"file_path": "/w/app/n.md"}}
    lines = [assistant(call("t1", "Write", file_path="/w/app/n.md"), parent="bg")]
    lines += [answer("t1", "auto-denied", "Error: auto-denied", parent="bg", is_error=True)]
    out = decode(init(), *lines, result(permission_denials=[denial]))
    assert out.asks == []
    (error,) = out.of(Error)
    assert (error.code, error.recoverable, error.detail) == ("permission_denied", True, denial)
    assert error.message == "Write was denied by the CLI, not by a person: no ask reached us."
    assert out.of(FileChange) == []
    assert out.of(TurnCompleted)[0].outcome == "completed"


def test_a_denial_is_told_once_and_not_at_all_where_we_denied():
    denial = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {}}
    told = {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": "Bash",
        "tool_use_id": "t1",
        "message": "dontAsk",
    }
    early = decode(init(), assistant(call("t1")), told, result(permission_denials=[denial]))
    assert [error.message.endswith("dontAsk") for error in early.of(Error)] == [True]
    asked = {"type": "control_request", "request_id": "k", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}}
    asked["request"] |= {"input": {"command": "ls"}, "tool_use_id": "t1"}
    assert decode(init(), assistant(call("t1")), asked, result(permission_denials=[denial])).of(Error) == []
    meta = {"tool_result_meta": [{"id": "t1", "permission_decision": {"decision": "reject", "source": "user_reject"}}]}
    unseen = {**answer("t1", "no", is_error=True), **meta}
    assert decode(init(), assistant(call("t1")), unseen, result(permission_denials=[denial])).of(Error) == []


def test_an_unknown_type_is_raw_and_the_run_goes_on():
    """F2-01: rate_limit_event once ended every session; `allowed` is no alarm."""
    limits = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}, "session_id": "s-1"}
    progress = {"type": "tool_progress", "tool_use_id": "t1", "tool_name": "Bash", "parent_tool_use_id": None}
    out = decode(init(), limits, {**progress, "elapsed_time_seconds": 3.2}, assistant(text("hi")), result())
    assert [(data, native) for data, native, _ in out.items if isinstance(data, Raw)] == [
        (Raw(limits), "rate_limit_event")
    ]
    assert out.of(ToolOutput) == [ToolOutput("t1", elapsed=3.2)]
    assert out.of(Error) == []
    assert out.of(TurnCompleted)[0].outcome == "completed"


def test_the_heartbeat_of_a_tool_belongs_to_its_call():
    beat = {"type": "tool_progress", "tool_use_id": "t1-heartbeat-0", "parent_tool_use_id": "t1", "heartbeat": True}
    out = decode({**beat, "elapsed_time_seconds": 30})
    assert out.items == [(ToolOutput("t1", elapsed=30), "tool_progress", None)]


@pytest.mark.parametrize(
    ("line", "topic", "says"),
    [
        ({"subtype": "status", "status": "compacting"}, "compaction", "sums up"),
        ({"subtype": "status", "status": None, "compact_result": "failed", "compact_error": "e"}, "compaction", "e"),
        (
            {"subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 9, "post_tokens": 2}},
            "compaction",
            "9 tokens",
        ),
        (
            {"subtype": "hook_response", "hook_name": "Stop", "outcome": "success", "exit_code": 0},
            "hook",
            "Stop: success",
        ),
        ({"subtype": "informational", "content": "c", "tag": "hook_no_verdict"}, "hook", "c"),
        ({"subtype": "informational", "content": "c", "level": "notice"}, "information", "c"),
        ({"subtype": "notification", "text": "n", "priority": "immediate"}, "information", "n"),
        ({"subtype": "session_title_changed", "title": "demo"}, "title", "demo"),
        ({"subtype": "model_refusal_no_fallback", "content": ""}, "refusal", "no explanation"),
    ],
)
def test_what_the_cli_says_of_itself_is_a_notice(line, topic, says):
    (notice,) = decode({"type": "system", **line}).of(Notice)
    assert notice.topic == topic
    assert says in notice.text


def test_words_that_the_cli_puts_into_the_conversation_are_a_notice():
    out = decode(
        init(), user([text("Output token limit hit.")], isSynthetic=True), user([text("[Request interrupted by user]")])
    )
    assert out.of(Notice) == [Notice("injected", "Output token limit hit.")]
    assert out.of(Raw) == []


def test_a_refusal_that_was_told_makes_the_failed_turn_refused():
    line = {"type": "system", "subtype": "model_refusal_no_fallback", "content": ""}
    assert outcome(line, result(is_error=True)).outcome == "refused"


def test_lone_surrogates_pass_through_a_result():
    """F1-10: escaped by the CLI, valid JSON, no valid UTF-8."""
    line = json.loads('{"c": "latin \\udcb2 half \\ud83d end"}')
    assert decode(init(), assistant(call("t1")), answer("t1", line["c"])).of(ToolResult)[0].content == line["c"]


def test_text_that_is_not_ascii_arrives_as_it_was():
    """F1-03, once the framer has put the line together."""
    assert decode(assistant(text("部署完成 🚀 café"))).of(AssistantText)[0].text == "部署完成 🚀 café"


# Bad types


@pytest.mark.parametrize(
    "line",
    [
        assistant() | {"message": "text"},
        assistant() | {"message": {"content": "text"}},
        assistant() | {"message": {"content": None}},
        assistant(text("a")) | {"parent_tool_use_id": 7},
        assistant(text("a")) | {"error": {"code": 1}},
        user(None),
        user([]),
        user("words of nobody"),
        {"type": ["assistant"]},
        {"type": "system", "subtype": 4},
        {"type": "system", "subtype": "init", "session_id": 3},
        {"type": "stream_event", "event": "message_stop"},
        {"type": "stream_event", "event": {"type": "ping"}},
        {"type": "control_request", "request_id": 5, "request": {}},
        {"type": "command_lifecycle", "command_uuid": "u", "state": "lost"},
        {"no": "type"},
        [1],
        "line",
        None,
    ],
)
def test_a_line_of_the_wrong_shape_stays_raw_and_whole(line):
    assert decode(line).of(Raw) == [Raw(line)]


def test_a_block_of_the_wrong_shape_stays_raw_and_the_others_are_read():
    odd = [
        {"type": "text", "text": None},
        7,
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": 1, "name": "B"},
    ]
    out = decode(assistant(text("a"), *odd, text("b")))
    assert [data.text for data in out.of(AssistantText)] == ["a", "b"]
    assert out.of(Raw) == [Raw(block) for block in odd]


def test_a_result_with_odd_fields_still_ends_its_turn_and_stays_raw_too():
    odd = result(usage="many", result=["x"], duration_ms="long", is_error="no")
    out = decode(init(), odd)
    assert out.of(Raw) == [Raw(odd)]
    (ended,) = out.of(TurnCompleted)
    assert (ended.outcome, ended.final_text, ended.duration_ms) == ("completed", None, None)


KNOWN = [
    init(mcp_servers=[{"name": "nucleic", "status": "connected"}]),
    assistant(text("a"), call("t1"), {"type": "thinking", "thinking": "h", "signature": "s"}),
    assistant(call("t2", "Write", file_path="x")),
    answer("t1", "Exit code 1", "Error", is_error=True),
    answer("t2", "File created", {"type": "create", "filePath": "x", "content": "y", "structuredPatch": []}),
    answer(
        "t3", "x", {"bashEditDiff": {"files": [{"filePath": "a", "hunks": [{}], "created": False}], "moreFiles": 1}}
    ),
    user([text("w")], isReplay=True, uuid=FIRST),
    user([text("w")], isSynthetic=True),
    result(
        modelUsage={"claude-x": {"contextWindow": 1}}, errors=["e"], model_usage_since_last_result={"m": {"costUSD": 1}}
    ),
    retry(1),
    {"type": "command_lifecycle", "command_uuid": SECOND, "state": "queued"},
    {
        "type": "control_request",
        "request_id": "k",
        "request": {"subtype": "can_use_tool", "tool_name": "B", "input": {}},
    },
    {"type": "control_response", "response": {"subtype": "error", "request_id": "k", "error": "no"}},
    {"type": "control_cancel_request", "request_id": "k"},
    {"type": "conversation_reset", "trigger": "clear"},
    {"type": "system", "subtype": "background_tasks_changed", "tasks": [{"task_id": "a"}]},
    {"type": "system", "subtype": "task_started", "task_id": "a", "tool_use_id": "t1", "is_backgrounded": True},
    {"type": "system", "subtype": "task_notification", "task_id": "a", "summary": "s"},
    {"type": "system", "subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 1}},
    {"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m", "usage": {"output_tokens": 1}}}},
    {
        "type": "stream_event",
        "event": {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    },
    {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    },
    {"type": "stream_event", "event": {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}},
]

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def spoiled(draw):
    """A known line with junk somewhere in it."""
    line = json.loads(json.dumps(draw(st.sampled_from(KNOWN))))
    place = line
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return line
        key = draw(st.sampled_from(keys))
        if isinstance(place[key], (dict, list)) and place[key] and draw(st.booleans()):
            place = place[key]
        else:
            place[key] = draw(junk)
            return line


def kind_of(line):
    kind = line.get("type")
    if kind == "stream_event":
        return f"{kind}/{line['event']['type']}"
    if kind == "user":
        return "user/replay" if line.get("isReplay") else "user/text"
    return f"{kind}/{line['subtype']}" if kind == "system" else kind


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(spoiled() | st.sampled_from(KNOWN), max_size=8), st.integers(-70, 200) | st.none())
def test_junk_in_any_field_never_raises_and_loses_no_line(lines, returncode):
    decoder, out = ClaudeDecoder(cwd=Path("/w")), Collected()
    decoder.received(init(), out)
    for line in lines:
        before = len(out.items)
        decoder.received(line, out)
        assert len(out.items) > before or kind_of(line) in SILENT
        decoder.sent(line, out)
    decoder.ended(returncode, out)
    turns = out.of(TurnStarted)
    assert len([ended for ended in out.of(TurnCompleted) if ended.turn is not None]) <= len(turns)


@given(junk)
def test_anything_that_is_json_is_read_or_raw(message):
    for channel in ("stdout", "mcp"):
        assert decode(message, channel=channel).of(Raw) == [Raw(message)]
    ClaudeDecoder().sent(message, Collected(), "mcp")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("mcp__nucleic__greet", True),
        ("mcp__nucleic__greet_all", False),
        ("mcp__nucleic__approve", False),
        ("mcp__other__greet", False),
        ("mcp__nucleic_greet", False),
        ("greet", False),
        ("nucleic", False),
    ],
)
@pytest.mark.parametrize("channel", ["stdout", "mcp"])
def test_an_ask_is_about_an_own_tool_only_under_the_whole_name_that_our_server_gives_it(name, own, channel):
    decoder = ClaudeDecoder(own_tools=frozenset({"mcp__nucleic__greet"}))
    fields = {"tool_name": name, "input": {"server": "nucleic", "tool": "greet"}, "tool_use_id": "t1"}
    if channel == "mcp":
        line = {"method": "tools/call", "key": "k", "arguments": fields, "_meta": {}}
    else:
        line = {"type": "control_request", "request_id": "k", "request": {"subtype": "can_use_tool", **fields}}
    ((ask, _),) = decode(line, decoder=decoder, channel=channel).asks
    assert ask.own_tool == own
