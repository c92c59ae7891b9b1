"""What people read of the events of a session."""

import pytest

from nucleic_core._cli.console.asking import bounded, chosen
from nucleic_core._cli.console.telling import Teller
from nucleic_core.approvals import Allow, ApprovalRequest, Deny
from nucleic_core.events import (
    AgentEvent,
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    Error,
    FileChange,
    Notice,
    Plan,
    Raw,
    RunFinished,
    Thinking,
    ToolCallCompleted,
    ToolResult,
    TurnCompleted,
    Usage,
    UserMessage,
)


def told(*items, teller=None):
    """The plain text of events; an item is a payload, or a payload with its parent."""
    teller = teller or Teller()
    text = ""
    for item in items:
        data, parent = item if isinstance(item, tuple) else (item, None)
        text += teller.tell(AgentEvent(1, None, "session-1", "demo", None, parent, data)).plain
    return text + teller.pause().plain


def test_text_streams_and_the_whole_block_only_ends_the_line():
    deltas = [AssistantText(word, block="1", partial=True) for word in ("one ", "two")]
    assert told(*deltas) == "one two"
    assert told(*deltas, AssistantText("one two", block="1")) == "one two\n"
    assert told(AssistantText("one two", block="1")) == "one two\n"


def test_thought_and_text_stand_on_lines_of_their_own():
    thought = Thinking("hm", block="1", partial=True)
    assert told(thought, AssistantText("so", block="2", partial=True)) == "hm\nso"
    assert told(thought, Notice("mode", "plan")) == "hm\n· mode: plan\n"


def test_sub_agents_are_told_by_whole_blocks():
    partial, whole = AssistantText("ab", block="1", partial=True), AssistantText("abc", block="1")
    assert told((partial, "call-1"), (whole, "call-1")) == "  │ abc\n"


def test_a_call_and_its_ask_make_one_line():
    call = ToolCallCompleted("1", "Bash", {"command": "rm -r x"})
    request = ApprovalRequest("Bash", {}, "Run: rm -r x", "1", risk="execute", id="a1")
    assert told(call, ApprovalRequested(request)) == "? Run: rm -r x · execute · a1\n"
    assert told(call) == "● Bash: rm -r x\n"
    assert told(call, ToolResult("1", "gone")) == "● Bash: rm -r x\n  ↳ gone\n"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (ToolResult("1", "a\n\nb\nc"), "  ↳ a (and 2 more lines)"),
        (ToolResult("1", "a", exit_code=2, exit_code_source="literal"), "  ↳ exit code 2: a"),
        (ToolResult("1", [{"type": "text", "text": "a"}, {"type": "image"}]), "  ↳ a (and 1 more line)"),
        (ToolResult("1"), "  ↳ done"),
        (FileChange("update", "/a", diff="--- a\n+++ b\n+x\n-y\n+z\n"), "  ± update /a (+2 −1)"),
        (FileChange("rename", "/b", old_path="/a"), "  ± rename /a → /b"),
        (Plan(({"content": "a", "status": "completed"}, {"content": "b"})), "  ☑ a\n  ☐ b"),
        (Error("slow", attempt=1, max_attempts=10), "! slow (attempt 1 of 10)"),
        (ApprovalResolved("a", Allow(), "policy:allow"), "  ✓ allowed by policy:allow"),
        (ApprovalResolved("a", Deny("too late"), "nucleic", "deadline"), "  ✗ denied (deadline): too late"),
        (TurnCompleted("max_turns"), "! the turn ended max turns"),
        (UserMessage("i", "do it"), "> do it"),
    ],
    ids=lambda value: value.kind if hasattr(value, "kind") else "",
)
def test_an_event_is_a_line(data, line):
    assert told(data) == line + "\n"


def test_the_last_line_says_what_it_took_and_how_to_go_on():
    usage = Usage("run", input_tokens=1000, cached_input_tokens=20_000, output_tokens=7, cost_usd=0.5)
    finished = RunFinished("completed", usage=usage, duration_ms=61_000)
    assert told(finished) == (
        "completed · 1 min 1 s · 21.0k tokens in, 7 out · $0.5000 · session session-1 · "
        "go on with: nucleic resume session-\n"
    )


def test_what_is_not_understood_is_told_when_asked_for():
    assert told(Raw({"a": 1})) == ""
    assert told(Raw({"a": 1}), teller=Teller(raw=True)) == 'raw: {"a":1}\n'


@pytest.mark.parametrize(
    "data",
    [
        AssistantText("\x1b[2Jx\u202ey[red]z"),
        Notice("a", "\x1b[2Jx\u202ey[red]z"),
        ToolCallCompleted("1", "Bash", {"command": "\x1b[2Jx\u202ey[red]z"}),
        ToolResult("1", "\x1b[2Jx\u202ey[red]z"),
        UserMessage("1", "\x1b[2Jx\u202ey[red]z"),
        Plan(({"content": "\x1b[2Jx\u202ey[red]z"},)),
        Error("\x1b[2Jx\u202ey[red]z"),
        FileChange("add", "\x1b[2Jx\u202ey[red]z"),
        ApprovalRequested(ApprovalRequest("Bash", {}, "\x1b[2Jx\u202ey[red]z", id="1")),
        ApprovalResolved("1", Deny("\x1b[2Jx\u202ey[red]z"), "socket:x"),
        RunFinished("errored", error="\x1b[2Jx\u202ey[red]z"),
    ],
    ids=lambda data: data.kind,
)
def test_nothing_of_an_agent_steers_the_terminal_or_is_read_as_markup(data):
    text = told(data)
    assert "\\u{1b}[2Jx\\u{202e}y[red]z" in text
    assert "\x1b" not in text


def test_a_long_text_is_cut_in_the_middle_with_its_end_in_view():
    text, cut = bounded("\n".join(map(str, range(100))), lines=10)
    assert cut
    assert text.splitlines() == ["0", "1", "2", "3", "4", "… 90 lines left out …", "95", "96", "97", "98", "99"]
    line, cut = bounded("a" * 50 + "b" * 50, characters=20)
    assert (line, cut) == ("aaaaaaaaaa … 80 characters left out … bbbbbbbbbb", True)
    assert bounded("short") == ("short", False)


@pytest.mark.parametrize(
    ("typed", "multi", "answer"),
    [
        ("1", False, "red"),
        ("2", False, "blue, dark"),
        ("3", False, None),
        ("0", False, None),
        ("green", False, "green"),
        ("1,2", False, "1,2"),
        ("1, 2", True, "red, blue, dark"),
        ("1,9", True, None),
        ("1 or so", True, "1 or so"),
    ],
)
def test_numbers_stand_for_options_and_text_for_itself(typed, multi, answer):
    assert chosen(typed, (("red", ""), ("blue, dark", "")), multi=multi) == answer


def test_a_number_is_a_text_where_there_are_no_options():
    assert chosen("42", ()) == "42"
