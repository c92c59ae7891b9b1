"""What the app-server's decoder makes of turns, texts, items, tokens and errors. Shapes are from recordings, shortened."""

import pytest

from codex_wire import COMMAND, ROOT, Wire
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

# -- the session and its turns ------------------------------------------------------------------------------------------


def test_the_reply_to_thread_start_starts_the_session_with_the_programs_version():
    wire = Wire(begun=False)
    wire.sends("initialize", 0).replies(0, userAgent="nucleic/0.171.0 (Debian 12; x86_64) dumb (nucleic; 0.1)")
    wire.sends("thread/start", 1, cwd="/w")
    wire.replies(1, thread={"id": ROOT, "path": "/h/rollout.jsonl"}, model="gpt-x", cwd="/w/app")
    wire.says("thread/started", thread={"id": ROOT})
    started = SessionStarted(ROOT, "gpt-x", "/w/app", agent_version="0.171.0", transcript_path="/h/rollout.jsonl")
    assert wire.events == [started]


@pytest.mark.parametrize("method", ["thread/resume", "thread/fork"])
def test_a_resume_and_a_fork_start_the_session_under_the_thread_that_was_opened(method):
    wire = Wire(begun=False)
    wire.sends(method, "a", threadId="old").replies("a", thread={"id": "new"}, model="gpt-x", cwd="/w")
    assert [started.native_id for started in wire.of(SessionStarted)] == ["new"]
    assert wire.started(thread="new").items[-1][2] is None


def test_a_bare_stdout_tells_its_session_too():
    wire = Wire(begun=False).replies(1, thread={"id": ROOT}, model="gpt-x", cwd="/w").started().completed()
    assert wire.kinds == ["session_started", "turn_started", "turn_completed"]


def test_a_turn_that_no_message_of_ours_began_is_the_agents():
    wire = Wire().completed().started("u2").completed("u2")
    wire.sends("turn/start", 5, threadId=ROOT).replies(5, turn={"id": "u3"}).started("u3")
    assert [turn.origin for turn in wire.of(TurnStarted)] == ["agent", "user"]


def test_a_turn_ends_with_its_last_text_its_time_and_nothing_more():
    wire = Wire().item("agentMessage", "m1", text="One.").item("agentMessage", "m2", text="Two.").completed()
    (ended,) = wire.of(TurnCompleted)
    assert (ended.outcome, ended.turn, ended.final_text, ended.duration_ms) == ("completed", "u1", "Two.", 7)
    assert ended.error is None
    assert not ended.more_follows


def test_where_no_message_was_shown_the_turns_own_summary_has_the_last_text():
    wire = Wire().completed(items=[{"type": "agentMessage", "id": "m", "text": "Said before."}])
    assert wire.of(TurnCompleted)[0].final_text == "Said before."


def test_the_end_of_another_turn_than_the_running_one_moves_nothing():
    wire = Wire().completed("u0").completed("u1").completed("u1")
    assert wire.kinds == ["raw", "turn_completed", "raw"]


def test_a_turn_that_begins_before_the_last_one_ended_ends_it():
    wire = Wire().started("u2").completed("u2")
    assert [(turn.turn, turn.outcome) for turn in wire.of(TurnCompleted)] == [("u1", "errored"), ("u2", "completed")]


def test_the_end_of_the_process_ends_its_turn_and_tells_how():
    wire = Wire().says("item/agentMessage/delta", itemId="m1", delta="Half").exits(-9)
    (ended,) = wire.of(TurnCompleted)
    assert (ended.outcome, ended.final_text) == ("errored", "Half")
    assert "SIGKILL" in ended.error


def test_an_interrupt_is_told_as_such_with_the_words_that_were_said():
    wire = Wire().says("item/agentMessage/delta", itemId="m1", delta="I was go").completed(status="interrupted")
    (whole,) = [text for text in wire.of(AssistantText) if not text.partial]
    assert (whole.text, whole.block) == ("I was go", "m1")
    assert [notice.topic for notice in wire.of(Notice)] == ["cut"]
    assert (wire.of(TurnCompleted)[0].outcome, wire.of(TurnCompleted)[0].final_text) == ("interrupted", "I was go")


# -- texts --------------------------------------------------------------------------------------------------------------


def test_pieces_and_the_whole_text_have_one_block_and_the_whole_counts():
    wire = Wire().begins("agentMessage", "m1", text="")
    wire.says("item/agentMessage/delta", itemId="m1", delta="Hel").ends("agentMessage", "m1", text="Hello!").completed()
    assert [(text.text, text.block, text.partial) for text in wire.of(AssistantText)] == [
        ("Hel", "m1", True),
        ("Hello!", "m1", False),
    ]
    assert wire.of(TurnCompleted)[0].final_text == "Hello!"


def test_each_part_of_reasoning_is_a_block_of_its_own():
    wire = Wire().begins("reasoning", "r1", summary=[], content=[])
    wire.says("item/reasoning/summaryPartAdded", itemId="r1", summaryIndex=0)
    wire.says("item/reasoning/summaryTextDelta", itemId="r1", summaryIndex=0, delta="Pl")
    wire.says("item/reasoning/textDelta", itemId="r1", contentIndex=0, delta="h")
    wire.ends("reasoning", "r1", summary=["Plan", "Do"], content=["hm"])
    assert [(part.text, part.block, part.partial) for part in wire.of(Thinking)] == [
        ("Pl", "r1/summary/0", True),
        ("h", "r1/content/0", True),
        ("Plan", "r1/summary/0", False),
        ("Do", "r1/summary/1", False),
        ("hm", "r1/content/0", False),
    ]


def test_reasoning_that_is_kept_secret_is_no_event():
    assert Wire().item("reasoning", summary=[], content=[]).events == []


def test_a_stream_that_is_cut_tells_the_half_answer_the_retry_and_the_whole_answer():
    wire = Wire().item("agentMessage", "m1", text="Half a")
    error = {"message": "Reconnecting... 1/2", "codexErrorInfo": {"responseStreamDisconnected": {}}}
    wire.says("error", turnId="u1", error=error, willRetry=True).item("agentMessage", "m2", text="A whole answer.")
    wire.completed()
    assert wire.kinds == ["assistant_text", "error", "assistant_text", "turn_completed"]
    assert wire.of(TurnCompleted)[0].final_text == "A whole answer."


def test_a_steer_that_breaks_off_an_answer_tells_what_was_said_of_it():
    wire = Wire().item("userMessage", "m0", clientId=None, content=[])
    wire.says("item/agentMessage/delta", itemId="m1", delta="one two").item(
        "userMessage", "m2", clientId=None, content=[]
    )
    wire.item("agentMessage", "m3", text="Steered.").completed()
    assert [text.text for text in wire.of(AssistantText) if not text.partial] == ["one two", "Steered."]
    assert wire.of(TurnCompleted)[0].final_text == "Steered."


def test_without_partials_the_whole_texts_come_and_what_broke_off_too():
    wire = Wire(partials=False).says("item/agentMessage/delta", itemId="m1", delta="Half")
    wire.completed(status="interrupted")
    assert [(text.text, text.partial) for text in wire.of(AssistantText)] == [("Half", False)]


# -- plans --------------------------------------------------------------------------------------------------------------


def test_the_plan_tool_is_a_plan_with_our_words_for_its_states():
    steps = [{"step": "Look", "status": "completed"}, {"step": "Do", "status": "inProgress"}]
    wire = Wire().says("turn/plan/updated", turnId="u1", explanation="why", plan=steps)
    entries = ({"content": "Look", "status": "completed"}, {"content": "Do", "status": "in_progress"})
    assert wire.events == [Plan(entries, "why")]


def test_plan_mode_gives_the_plan_once_it_is_whole():
    wire = Wire().begins("plan", "p", text="").says("item/plan/delta", itemId="p", delta="- st")
    assert wire.events == []
    assert wire.ends("plan", "p", text="- step\n").events == [Plan(text="- step\n")]


# -- commands -----------------------------------------------------------------------------------------------------------


def test_a_command_is_bash_without_its_shell_and_its_exit_code_is_literal():
    wire = Wire().begins("commandExecution", "c1", **COMMAND)
    wire.says("item/commandExecution/outputDelta", itemId="c1", delta="ok\n")
    wire.ends("commandExecution", "c1", **{**COMMAND, "status": "completed", "aggregatedOutput": "ok\n", "exitCode": 0})
    given = {"command": "npm test", "cwd": "/w"}
    assert wire.events == [
        ToolCallStarted("c1", "Bash", native_name="commandExecution"),
        ToolCallCompleted("c1", "Bash", given, "commandExecution"),
        ToolOutput("c1", "ok\n"),
        ToolResult("c1", "ok\n", exit_code=0, exit_code_source="literal"),
    ]


@pytest.mark.parametrize(
    ("native", "bare"),
    [
        ("/bin/bash -lc 'echo \"a b\" | wc'", 'echo "a b" | wc'),
        ("zsh -c ls", "ls"),
        ("bash -lc 'a' extra", "bash -lc 'a' extra"),
        ("python -c 'print(1)'", "python -c 'print(1)'"),
        ("bash -lc 'open", "bash -lc 'open"),
        ("", ""),
    ],
)
def test_only_a_shell_around_one_script_is_taken_off(native, bare):
    wire = Wire().begins("commandExecution", **{**COMMAND, "command": native})
    assert wire.of(ToolCallCompleted)[0].input["command"] == bare


def test_a_command_that_fails_is_an_error_with_its_code_and_a_declined_one_says_so():
    wire = Wire().item("commandExecution", "a", **COMMAND, then={"status": "failed", "exitCode": 3})
    wire.item("commandExecution", "b", **COMMAND, then={"status": "declined"})
    failed, declined = wire.of(ToolResult)
    assert (failed.is_error, failed.exit_code, failed.exit_code_source) == (True, 3, "literal")
    assert (declined.is_error, declined.exit_code, declined.exit_code_source) == (True, None, None)
    assert "not allowed" in declined.content


def test_where_the_whole_output_is_missing_the_pieces_are_told():
    wire = Wire().begins("commandExecution", "c1", **COMMAND)
    wire.says("item/commandExecution/outputDelta", itemId="c1", delta="a")
    wire.says("item/commandExecution/outputDelta", itemId="c1", delta="b")
    wire.ends("commandExecution", "c1", **{**COMMAND, "status": "completed", "exitCode": 0})
    assert wire.of(ToolResult)[0].content == "ab"


def test_output_that_comes_before_its_call_is_told_and_the_completed_item_counts():
    wire = Wire().says("item/commandExecution/outputDelta", itemId="c1", delta="first ")
    wire.item("commandExecution", "c1", **COMMAND, then={"status": "completed", "aggregatedOutput": "first second"})
    assert wire.kinds == ["tool_output", "tool_call_started", "tool_call_completed", "tool_result"]
    assert wire.of(ToolResult)[0].content == "first second"


def test_calls_that_end_in_another_order_than_they_began_keep_their_results():
    wire = Wire().begins("commandExecution", "a", **COMMAND).begins("commandExecution", "b", **COMMAND)
    wire.ends("commandExecution", "b", **{**COMMAND, "status": "completed", "aggregatedOutput": "B"})
    wire.ends("commandExecution", "a", **{**COMMAND, "status": "completed", "aggregatedOutput": "A"})
    assert [(result.tool_call, result.content) for result in wire.of(ToolResult)] == [("b", "B"), ("a", "A")]


def test_a_completed_item_that_never_started_is_a_call_with_its_result():
    wire = Wire().ends("commandExecution", "c1", **{**COMMAND, "status": "completed", "exitCode": 0})
    assert wire.kinds == ["tool_call_started", "tool_call_completed", "tool_result"]


def test_a_command_that_outlives_its_turn_is_still_running_and_no_failure():
    wire = Wire().begins("commandExecution", "c1", **{**COMMAND, "processId": "77"})
    wire.says("item/commandExecution/outputDelta", itemId="c1", delta="so far").completed()
    (result,) = wire.of(ToolResult)
    assert (result.synthetic, result.is_error) == (True, False)
    assert "still running" in result.content
    assert "so far" in result.content


def test_what_a_command_says_after_its_turn_is_a_notice_and_no_second_result():
    wire = Wire().begins("commandExecution", "c1", **{**COMMAND, "processId": "77"}).completed()
    done = {**COMMAND, "processId": "77", "status": "failed", "exitCode": 2, "aggregatedOutput": "late"}
    wire.ends("commandExecution", "c1", **done)
    assert len(wire.of(ToolResult)) == 1
    (late,) = wire.of(Notice)
    assert (late.topic, late.detail["tool_call"], late.detail["item"]["exitCode"]) == ("late_result", "c1", 2)
    assert "exit code 2" in late.text


def test_a_patch_that_is_applied_after_its_turn_still_tells_what_it_changed():
    changes = [change("/w/a", "add", "x\n")]
    wire = Wire().begins("fileChange", "p1", changes=changes, status="inProgress").completed(status="interrupted")
    wire.ends("fileChange", "p1", changes=changes, status="completed")
    assert wire.kinds[-2:] == ["notice", "file_change"]


def test_an_interrupted_command_that_was_never_started_is_left_to_the_core():
    wire = Wire().begins("commandExecution", "c1", **COMMAND).completed(status="interrupted")
    assert wire.of(ToolResult) == []


def test_what_the_agent_types_into_a_running_command_is_told():
    wire = Wire().says("item/commandExecution/terminalInteraction", itemId="c1", processId="7", stdin="yes\n")
    assert (wire.of(Notice)[0].topic, wire.of(Notice)[0].detail["stdin"]) == ("terminal", "yes\n")


# -- patches ------------------------------------------------------------------------------------------------------------


def change(path, kind, diff, move=None):
    named = {"type": kind, "move_path": move} if kind == "update" else {"type": kind}
    return {"path": path, "kind": named, "diff": diff}


def test_a_patch_is_one_edit_with_a_unified_diff_for_each_file():
    changes = [
        change("/w/new.txt", "add", "one\ntwo\n"),
        change("/w/old.txt", "delete", "gone"),
        change("/w/a.txt", "update", "@@ -1 +1 @@\n-x\n+y\n"),
        change("/w/b.txt", "update", "@@ -1 +1 @@\n-x\n+y\n\n\nMoved to: /w/c.txt", "/w/c.txt"),
        change("/other/d.txt", "update", "@@ -1 +1 @@\n-x\n+y"),
    ]
    wire = Wire().item("fileChange", "p1", changes=changes, status="inProgress", then={"status": "completed"})
    assert [call.name for call in wire.of(ToolCallCompleted)] == ["Edit"]
    told = {(c.change, c.path, c.old_path): c.diff for c in wire.of(FileChange)}
    assert told == {
        ("add", "/w/new.txt", None): "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n",
        ("delete", "/w/old.txt", None): (
            "--- a/old.txt\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-gone\n\\ No newline at end of file\n"
        ),
        ("update", "/w/a.txt", None): "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+y\n",
        ("rename", "/w/c.txt", "/w/b.txt"): "--- a/b.txt\n+++ b/c.txt\n@@ -1 +1 @@\n-x\n+y\n",
        ("update", "/other/d.txt", None): "--- a/other/d.txt\n+++ b/other/d.txt\n@@ -1 +1 @@\n-x\n+y\n",
    }
    assert all(c.authoritative and c.tool_call == "p1" for c in wire.of(FileChange))


@pytest.mark.parametrize("status", ["declined", "failed"])
def test_a_patch_that_was_not_applied_changes_nothing(status):
    changes = [change("/w/a", "add", "x\n")]
    wire = Wire().item("fileChange", changes=changes, status="inProgress", then={"status": status})
    assert wire.of(FileChange) == []
    assert wire.of(ToolResult)[0].is_error


def test_an_empty_file_has_no_diff_and_an_odd_change_is_raw():
    changes = [change("/w/empty", "add", ""), {"path": "/w/x", "kind": {"type": "teleport"}, "diff": ""}]
    wire = Wire().item("fileChange", changes=changes, status="inProgress", then={"status": "completed"})
    assert [(c.change, c.diff) for c in wire.of(FileChange)] == [("add", None)]
    assert wire.of(Raw) == [Raw({"change": changes[1]})]


# -- other calls --------------------------------------------------------------------------------------------------------


def test_a_tool_of_an_mcp_server_has_both_names_its_result_and_its_progress():
    fields = {"server": "notes", "tool": "echo", "arguments": {"text": "hi"}, "status": "inProgress"}
    wire = Wire().begins("mcpToolCall", "m", **fields).says("item/mcpToolCall/progress", itemId="m", message="half")
    blocks = [{"type": "text", "text": "echo:hi"}]
    wire.ends("mcpToolCall", "m", **{**fields, "status": "completed", "result": {"content": blocks}, "error": None})
    assert wire.of(ToolCallCompleted) == [ToolCallCompleted("m", "mcp__notes__echo", {"text": "hi"}, "notes.echo")]
    assert wire.of(ToolOutput) == [ToolOutput("m", "half")]
    assert wire.of(ToolResult) == [ToolResult("m", blocks)]


def test_a_failed_mcp_call_tells_the_servers_words_or_the_agents():
    fields = {"server": "notes", "tool": "boom", "arguments": {}, "status": "inProgress"}
    blocks = [{"type": "text", "text": "it went boom"}]
    wire = Wire().item("mcpToolCall", "a", **fields, then={"status": "failed", "result": {"content": blocks}})
    error = {"message": "user rejected MCP tool call"}
    wire.item("mcpToolCall", "b", **fields, then={"status": "failed", "result": None, "error": error})
    assert [(r.content, r.is_error) for r in wire.of(ToolResult)] == [(blocks, True), (error["message"], True)]


def test_a_web_search_is_complete_once_its_query_is_known():
    wire = Wire().begins("webSearch", "w", query="", action={"type": "other"})
    assert wire.kinds == ["tool_call_started"]
    action = {"type": "search", "query": "codex"}
    wire.ends("webSearch", "w", query="codex", action=action, results=None)
    assert wire.of(ToolCallCompleted) == [
        ToolCallCompleted("w", "WebSearch", {"query": "codex", "action": action}, "webSearch")
    ]


@pytest.mark.parametrize(
    ("kind", "fields", "name", "given"),
    [
        ("imageView", {"path": "/w/a.png"}, "Read", {"file_path": "/w/a.png"}),
        ("sleep", {"durationMs": 5}, "sleep", {"duration_ms": 5}),
        ("dynamicToolCall", {"tool": "ask", "arguments": {"q": 1}, "namespace": None}, "ask", {"q": 1}),
        ("dynamicToolCall", {"tool": "ask", "arguments": {}, "namespace": "n"}, "n.ask", {}),
        ("imageGeneration", {"revisedPrompt": "a cat", "result": "AAAA"}, "imageGeneration", {"prompt": "a cat"}),
        (
            "collabAgentToolCall",
            {"tool": "wait", "receiverThreadIds": ["t9"]},
            "Agent",
            {"action": "wait", "agents": ["t9"]},
        ),
    ],
)
def test_every_other_call_has_a_name_an_input_and_a_result(kind, fields, name, given):
    wire = Wire().item(kind, "x", **fields, status="inProgress", then={"status": "completed"})
    (call,) = wire.of(ToolCallCompleted)
    assert (call.name, call.input) == (name, given)
    assert [(result.tool_call, result.is_error) for result in wire.of(ToolResult)] == [("x", False)]


def test_a_dynamic_tool_that_did_not_succeed_has_failed():
    fields = {"tool": "ask", "arguments": {}, "status": "inProgress"}
    done = {"status": "completed", "success": False, "contentItems": []}
    assert Wire().item("dynamicToolCall", **fields, then=done).of(ToolResult)[0].is_error


def test_an_output_without_its_call_is_a_result_that_belongs_to_none():
    (result,) = Wire().item("functionCallOutput", "f", name="x", output="text").of(ToolResult)
    assert (result.content, result.correlated) == ("text", False)


@pytest.mark.parametrize(
    ("kind", "fields", "topic"),
    [
        ("contextCompaction", {}, "compaction"),
        ("hookPrompt", {"fragments": [{"text": "go on"}]}, "hook"),
        ("enteredReviewMode", {"review": "all"}, "review"),
        ("exitedReviewMode", {"review": "fine"}, "review"),
    ],
)
def test_what_is_neither_text_nor_call_is_one_notice(kind, fields, topic):
    assert [notice.topic for notice in Wire().item(kind, **fields).of(Notice)] == [topic]


def test_an_item_of_an_unknown_type_is_raw_both_times():
    wire = Wire().item("hologram", size=3)
    assert wire.kinds == ["raw", "raw"]


# -- tokens -------------------------------------------------------------------------------------------------------------


def test_a_turn_has_the_sum_over_its_model_calls_and_not_the_threads_total():
    """Case F7-03: `last` undercounts a turn of several calls, `total` overcounts a thread that is older."""
    wire = Wire(begun=False).sends("thread/resume", 1, threadId=ROOT).replies(1, thread={"id": ROOT}, cwd="/w")
    wire.started("u2")

    def told(total, last, window):
        names = ("totalTokens", "inputTokens", "cachedInputTokens", "outputTokens", "reasoningOutputTokens")
        usage = {"total": dict(zip(names, total, strict=True)), "last": dict(zip(names, last, strict=True))}
        return {"turnId": "u2", "tokenUsage": {**usage, "modelContextWindow": window}}

    wire.says("thread/tokenUsage/updated", **told((20500, 20400, 15000, 100, 40), (10500, 10450, 9000, 50, 20), 272000))
    wire.says("thread/tokenUsage/updated", **told((31520, 31400, 25000, 120, 45), (11020, 11000, 10000, 20, 5), None))
    wire.completed("u2")
    (turn,) = [usage for usage in wire.of(Usage) if usage.scope == "turn"]
    figures = (turn.input_tokens, turn.cached_input_tokens, turn.output_tokens, turn.reasoning_tokens)
    assert figures == (21450, 19000, 70, 25)
    assert turn.context_window == 272000
    assert turn.cache_write_tokens is None
    assert wire.of(TurnCompleted)[0].usage == turn
    assert wire.ledger.usage.input_tokens == 21450


def test_what_is_told_again_after_a_resume_counts_for_no_turn():
    wire = Wire(begun=False).sends("thread/resume", 1, threadId=ROOT).replies(1, thread={"id": ROOT}, cwd="/w")
    wire.tokens(100, 300, turn="old").started("u2").tokens(100, 300, turn="old").tokens(7, 307, turn="u2")
    wire.completed("u2").tokens(7, 307, turn="u2")
    assert [(usage.scope, usage.input_tokens) for usage in wire.of(Usage)] == [("message", 7), ("turn", 7)]


def test_figures_that_are_repeated_or_estimated_around_a_compaction_count_nothing():
    wire = Wire().tokens(100, 100).tokens(100, 100).tokens(20, 120).tokens(7000, 120).completed()
    assert [usage.input_tokens for usage in wire.of(Usage)] == [100, 20, 120]


def test_the_call_that_an_interrupt_cut_off_counts_where_the_total_shows_it():
    wire = Wire().completed(status="interrupted").started("u2").tokens(100, 250, turn="u2").completed("u2")
    assert [(usage.scope, usage.input_tokens) for usage in wire.of(Usage)] == [("message", 250), ("turn", 250)]


def test_without_a_total_or_with_one_that_shrank_the_last_call_counts():
    wire = Wire().tokens(5).tokens(6, 6).tokens(4, 2).completed()
    assert wire.of(TurnCompleted)[0].usage.input_tokens == 5 + 6 + 4


def test_a_turn_without_a_model_call_has_no_usage():
    assert Wire().completed().of(TurnCompleted)[0].usage is None


# -- errors -------------------------------------------------------------------------------------------------------------


def test_a_retry_is_recoverable_and_says_which_attempt_it_is():
    info = {"responseStreamDisconnected": {"httpStatusCode": None}}
    error = {"message": "Reconnecting... 1/2", "codexErrorInfo": info, "additionalDetails": "stream closed"}
    (told,) = Wire().says("error", turnId="u1", error=error, willRetry=True).of(Error)
    assert (told.recoverable, told.attempt, told.max_attempts) == (True, 1, 2)
    assert told.code == "responseStreamDisconnected"
    assert "stream closed" in told.message


def test_a_failed_turn_has_one_fatal_error_and_its_outcome_from_its_end():
    error = {"message": "stream disconnected", "codexErrorInfo": "other", "additionalDetails": None}
    wire = Wire().says("error", turnId="u1", error=error, willRetry=False).completed(status="failed", error=error)
    (told,) = wire.of(Error)
    assert (told.recoverable, told.message, told.code) == (False, "stream disconnected", "other")
    (ended,) = wire.of(TurnCompleted)
    assert (ended.outcome, ended.error, ended.stop_reason) == ("errored", "stream disconnected", "other")


def test_a_failed_turn_without_an_error_before_it_tells_one():
    wire = Wire().completed(status="failed", error={"message": "no", "codexErrorInfo": "other"})
    assert [(error.message, error.recoverable) for error in wire.of(Error)] == [("no", False)]


def test_an_error_of_a_turn_that_does_not_run_is_no_fatal_one():
    error = {"message": "late", "codexErrorInfo": "other"}
    (told,) = Wire().completed().says("error", turnId="u1", error=error, willRetry=False).of(Error)
    assert told.recoverable


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("contextWindowExceeded", "context_full"),
        ("sessionBudgetExceeded", "max_budget"),
        ("cyberPolicy", "refused"),
        ("usageLimitExceeded", "errored"),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, "errored"),
        (None, "errored"),
    ],
)
def test_the_kind_of_failure_is_the_outcome_where_we_have_a_word_for_it(kind, outcome):
    wire = Wire().completed(status="failed", error={"message": "no", "codexErrorInfo": kind})
    assert wire.of(TurnCompleted)[0].outcome == outcome


def test_of_a_refused_request_the_providers_own_words_are_told():
    body = '{"error": {"message": "bad thing", "code": "invalid_request"}}'
    (told,) = Wire().says("error", turnId="u1", error={"message": body}, willRetry=False).of(Error)
    assert told.message == "bad thing"
    assert told.detail["message"] == body
    (odd,) = Wire().says("error", turnId="u1", error={"message": "{no json"}, willRetry=False).of(Error)
    assert odd.message == "{no json"


# -- notices and the rest -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "topic"),
    [
        ("warning", {"message": "w"}, "warning"),
        ("guardianWarning", {"message": "w"}, "guardian"),
        ("configWarning", {"summary": "s", "details": "d", "path": "/c"}, "config"),
        ("deprecationNotice", {"summary": "s", "details": None}, "deprecation"),
        ("model/rerouted", {"fromModel": "a", "toModel": "b", "reason": "x"}, "model"),
        ("model/verification", {"verifications": []}, "model"),
        ("model/safetyBuffering/updated", {"model": "a"}, "model"),
        ("modelProvider/authRecoveryStarted", {"message": "m", "provider": "p"}, "auth"),
        ("thread/name/updated", {"threadName": "A name"}, "title"),
        ("thread/goal/updated", {"goal": {"objective": "win"}}, "goal"),
        ("thread/settings/updated", {"threadSettings": {"model": "a"}}, "settings"),
        ("thread/closed", {}, "thread"),
        ("turn/moderationMetadata", {"metadata": {}}, "moderation"),
        ("mcpServer/startupStatus/updated", {"name": "n", "status": "failed", "error": "no such file"}, "mcp"),
        ("mcpServer/oauthLogin/completed", {"name": "n", "success": True}, "mcp"),
    ],
)
def test_what_is_worth_knowing_is_a_notice(method, params, topic):
    wire = Wire().says(method, **params)
    assert [notice.topic for notice in wire.of(Notice)] == [topic]
    assert wire.kinds == ["notice"]


def test_rate_limits_are_told_when_they_change():
    def limits(used):
        return {"rateLimits": {"primary": {"usedPercent": used, "windowDurationMins": 300}, "secondary": None}}

    wire = Wire().says("account/rateLimits/updated", rateLimits={"primary": None})
    for used in (10, 10, 12):
        wire.says("account/rateLimits/updated", **limits(used))
    assert [notice.text for notice in wire.of(Notice)] == ["10 % used of 5 h", "12 % used of 5 h"]
    assert {notice.topic for notice in wire.of(Notice)} == {"rate_limit"}


def test_a_server_that_starts_and_is_ready_is_no_news():
    wire = Wire()
    for status in ("starting", "ready"):
        wire.says("mcpServer/startupStatus/updated", name="n", status=status, error=None)
    assert wire.events == []


def test_codexs_own_reviewer_is_told_as_the_one_who_decided():
    wire = Wire()
    for status in ("approved", "denied"):
        review = {"status": status, "rationale": "because"}
        wire.says("item/autoApprovalReview/completed", targetItemId="c1", review=review, action={})
    approved, denied = wire.events
    assert (approved.kind, approved.topic) == ("notice", "guardian")
    assert (denied.kind, denied.code, denied.recoverable) == ("error", "permission_denied", True)
    assert denied.detail["tool_call"] == "c1"


def test_a_request_of_ours_that_is_refused_is_a_notice_of_a_readable_length():
    wire = Wire().sends("thread/rollback", 9).refuses(9, "unknown variant " + "x" * 9000)
    (notice,) = wire.of(Notice)
    assert (notice.topic, notice.detail) == ("control", {"code": -32600})
    assert len(notice.text) <= 500


def test_an_interrupt_that_comes_too_late_is_no_news():
    assert Wire().sends("turn/interrupt", 9).refuses(9, "no active turn to interrupt").events == []


def test_what_is_not_known_is_raw_with_its_name():
    wire = Wire().says("thread/realtime/sdp", sdp="v=0")
    assert [(data.kind, native) for data, native, _ in wire.items] == [("raw", "thread/realtime/sdp")]
    wire.items.clear()
    wire.decoder.received(["a", "batch"], wire)
    wire.decoder.received({"id": 900, "result": {}}, wire)
    wire.decoder.received({"what": 1}, wire)
    assert wire.kinds == ["raw", "raw", "raw"]


# -- hooks --------------------------------------------------------------------------------------------------------------


def hook(event, status, *texts, run="pre-tool-use:0:/etc/codex/config.toml:call_1"):
    entries = [{"kind": "feedback", "text": text} for text in texts]
    return {"turnId": "u1", "run": {"id": run, "eventName": event, "status": status, "entries": entries}}


def test_a_call_that_a_hook_stopped_is_shown_and_denied():
    wire = Wire().says("hook/completed", **hook("preToolUse", "blocked", "locked"))
    started, completed, result, error = wire.events
    assert (started.tool_call, completed.name, result.content, result.is_error) == ("call_1", "unknown", "locked", True)
    assert (error.code, error.detail["tool_call"]) == ("permission_denied", "call_1")
    wire.items.clear()
    assert wire.says("hook/completed", **hook("preToolUse", "blocked", "me too")).kinds == ["notice"]


def test_a_gate_that_failed_is_an_error_for_its_call_went_on():
    wire = Wire().says("hook/completed", **hook("preToolUse", "failed", "hook timed out after 2s"))
    (error,) = wire.of(Error)
    assert (error.code, error.recoverable) == ("hook_failed", True)
    assert "timed out" in error.message


def test_a_hook_that_says_something_is_a_notice_and_a_silent_one_nothing():
    wire = Wire().says("hook/started", **hook("sessionStart", "running"))
    wire.says("hook/completed", **hook("sessionStart", "completed"))
    assert wire.events == []
    wire.says("hook/completed", **hook("postToolUse", "completed", "careful"))
    assert [(notice.topic, "careful" in notice.text) for notice in wire.of(Notice)] == [("hook", True)]


def test_a_call_that_our_own_hook_stopped_has_one_result():
    wire = Wire()
    payload = {"tool_name": "Bash", "tool_use_id": "call_1", "turn_id": "u1", "tool_input": {"command": "ls"}}
    wire.decoder.received({"key": "hook-1", "call": payload}, wire, "hook")
    verdict = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}
    wire.decoder.sent({"key": "hook-1", "verdict": verdict}, wire, "hook")
    wire.says("hook/completed", **hook("preToolUse", "blocked", "no"))
    assert [(result.tool_call, result.content) for result in wire.of(ToolResult)] == [("call_1", "no")]
    assert wire.of(Error) == []
