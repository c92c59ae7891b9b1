"""`nucleic run` on a terminal: the person there is asked, and Ctrl-C is theirs."""

import pytest

MENU = "[c] cancel the turn > "


def decisions(nucleic):
    return [
        (event["decision"], event["decided_by"])
        for event in nucleic.transcript()
        if event["kind"] in ("approval_resolved", "question_answered")
    ]


def test_yes_runs_it_and_no_tells_the_agent_why(nucleic):
    terminal = nucleic.terminal("run", "-b", "demo", "write a.txt x\nrun rm a.txt")
    terminal.expect("Write a.txt")
    terminal.expect("path: ")
    terminal.expect(f"{nucleic.cwd}/a.txt")
    terminal.expect(MENU)
    terminal.type("y\n")
    terminal.expect("✓ allowed by console")
    terminal.expect("wants to run:")
    terminal.expect("rm a.txt")
    terminal.expect(MENU)
    terminal.type("n\n")
    terminal.expect("why? (may be empty) > ")
    terminal.type("keep it\n")
    terminal.expect("✗ denied by console: keep it")
    terminal.expect("completed")
    assert terminal.end() == 0
    assert (nucleic.cwd / "a.txt").read_text() == "x\n"
    assert decisions(nucleic) == [
        ({"type": "allow", "updated_input": None}, "console"),
        ({"type": "deny", "reason": "keep it"}, "console"),
    ]


@pytest.mark.parametrize(
    ("typed", "scope", "pattern"),
    [
        (["a\n", "s\n"], "session", None),
        (["a t\n"], "tool_name", None),
        (["a\n", "p\n", "*.txt\n"], "tool_name_with_pattern", "*.txt"),
    ],
    ids=["session", "tool", "pattern"],
)
def test_always_is_not_asked_again(nucleic, typed, scope, pattern):
    terminal = nucleic.terminal("run", "-b", "demo", "write a.txt x\nwrite a.txt y")
    for words, line in zip((MENU, "always: [s]", "pattern > "), typed, strict=False):
        terminal.expect(words)
        terminal.type(line)
    terminal.expect("allowed always")
    terminal.expect("✓ allowed by rule:")
    assert terminal.end() == 0
    assert decisions(nucleic)[0] == ({"type": "allow_always", "scope": scope, "pattern": pattern}, "console")


def test_an_edited_input_is_typed_as_json(nucleic):
    terminal = nucleic.terminal("run", "-b", "demo", "run echo one")
    terminal.expect(MENU)
    terminal.type("e\n")
    terminal.expect("as JSON in one line > ")
    terminal.type("{nonsense\n")
    terminal.expect("That is no JSON")
    terminal.expect(MENU)
    terminal.type("e\n")
    terminal.expect("as JSON in one line > ")
    terminal.type('{"command": "echo two"}\n')
    terminal.expect("↳ two")
    assert terminal.end() == 0


def test_an_edited_input_comes_from_the_editor(nucleic, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed s/one/two/ $1 > $1.new && mv $1.new $1\n")
    editor.chmod(0o755)
    nucleic.env["EDITOR"] = str(editor)
    terminal = nucleic.terminal("run", "-b", "demo", "run echo one")
    terminal.expect(MENU)
    terminal.type("e\n")
    terminal.expect("↳ two")
    assert terminal.end() == 0


def test_cancel_ends_the_turn(nucleic):
    terminal = nucleic.terminal("run", "-b", "demo", "run true\nsay never")
    terminal.expect(MENU)
    terminal.type("c\n")
    terminal.expect("! the turn ended cancelled")
    assert terminal.end() == 4


def test_what_was_typed_before_the_question_is_no_answer_to_it(nucleic):
    terminal = nucleic.terminal("run", "-b", "demo", "sleep 1\nrun true")
    terminal.expect("0.2 s")
    terminal.type("y\n")
    terminal.expect(MENU)
    terminal.type("n no\n")
    terminal.expect("✗ denied by console: no")
    assert terminal.end() == 0


def test_an_ask_that_somebody_else_answers_leaves_the_prompt(nucleic):
    terminal = nucleic.terminal("run", "-b", "demo", "run true\nrun false")
    terminal.expect(MENU)
    ask = nucleic.transcript()[-1]["request"]["id"]
    assert nucleic("approve", ask).returncode == 0
    terminal.expect("✓ allowed by socket:cli")
    terminal.expect(MENU)
    terminal.type("y\n")
    terminal.expect("✓ allowed by console")
    assert terminal.end() == 0


def test_a_question_takes_a_number_or_text(nucleic):
    terminal = nucleic.terminal("run", "-b", "demo", "ask Colour? | red | blue\nask Name?")
    terminal.expect("2  blue")
    terminal.expect("no answer > ")
    terminal.type("3\n")
    terminal.expect("There is no such option; they go from 1 to 2.")
    terminal.expect("no answer > ")
    terminal.type("2\n")
    terminal.expect("You said blue.")
    terminal.expect("no answer > ")
    terminal.type("Ann\n")
    terminal.expect("You said Ann.")
    assert terminal.end() == 0


def test_ctrl_c_interrupts_the_turn_and_closes_its_asks(nucleic):
    terminal = nucleic.terminal("run", "-b", "demo", "run true\nsay never")
    terminal.expect(MENU)
    terminal.type("\x03")
    terminal.expect("Interrupting the turn; Ctrl-C again ends the session.")
    terminal.expect("! the turn ended interrupted")
    assert terminal.end() == 130
    assert [by for _, by in decisions(nucleic)] == ["nucleic"]


def test_a_second_ctrl_c_ends_the_session(nucleic, package):
    package("deaf", "nucleic.backends", DEAF, "deaf = deaf")
    terminal = nucleic.terminal("run", "-b", "deaf", "x")
    terminal.expect("busy")
    terminal.type("\x03")
    terminal.expect("Interrupting the turn; Ctrl-C again ends the session.")
    terminal.type("\x03")
    terminal.expect("interrupted")
    assert terminal.end() == 130
    assert nucleic.transcript()[-1]["kind"] == "run_finished"


DEAF = """
import sys
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.events import AssistantText, TurnStarted
from nucleic_core.hookspecs import hookimpl
from nucleic_core.lowlevel import BaseDecoder, LineDriver
from nucleic_core.specs import ProcessSpec

NUCLEIC_API = 1
PROGRAM = "import time; input(); print('{}', flush=True); time.sleep(60)"

class Decoder(BaseDecoder):
    def received(self, message, out, channel="stdout"):
        out.event(TurnStarted())
        out.event(AssistantText("busy"))

class Driver(LineDriver):
    def stop(self):
        return {"please": "stop"}

@hookimpl
def nucleic_decoder():
    return Decoder()

@hookimpl
def nucleic_driver():
    return Driver()

@hookimpl
def nucleic_spawn():
    return ProcessSpec((sys.executable, "-I", "-S", "-c", PROGRAM), grace=(0.2, 0.2))
"""


def test_with_json_the_person_is_asked_on_stderr(nucleic):
    terminal = nucleic.terminal("run", "-b", "demo", "--json", "run true")
    terminal.expect('"kind":"approval_requested"')
    terminal.expect("? ")
    terminal.expect("Run: true")
    terminal.expect(MENU)
    terminal.type("y\n")
    terminal.expect('"kind":"run_finished"')
    assert terminal.end() == 0


def test_resume_asks_for_the_message(nucleic):
    nucleic("run", "-b", "demo", "say one")
    terminal = nucleic.terminal("resume", nucleic.transcript()[0]["session"])
    terminal.expect("message > ")
    terminal.type("say two\n")
    terminal.expect("two")
    terminal.expect("completed")
    assert terminal.end() == 0
