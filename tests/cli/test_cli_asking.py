"""The questions that the console puts to a person, over a terminal that is only pretended."""

import pytest
import trio

from nucleic_core._cli.console.asking import ConsoleResponder
from nucleic_core.approvals import Allow, AllowAlways, Answers, ApprovalRequest, CancelRun, Deny, Question, QuestionItem
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import ApprovalClosed, Unsupported
from nucleic_core.events import ApprovalRequested, QuestionAsked


class Person:
    """Types the lines it was given; a keyboard and a screen in one."""

    def __init__(self, *lines):
        self.floor = trio.Lock()
        self.shown = ""
        self._lines = list(lines)

    def forget_typed(self):
        pass

    async def line(self, text):
        self.shown += text.plain + "\n"

    async def ask(self, words, keyboard):
        self.shown += words.plain + "\n"
        return self._lines.pop(0)


class Session:
    """Takes answers, or raises what it was given first."""

    def __init__(self, *refusals, can_edit=True):
        self.capabilities = BackendCapabilities(can_modify_tool_input=can_edit)
        self.answers = []
        self.answered = trio.Event()
        self._refusals = list(refusals)

    async def respond(self, ask, answer, *, by):
        assert by == "console"
        self.answers.append(answer)
        if self._refusals:
            raise self._refusals.pop(0)
        self.answered.set()


class NoEditor:
    command = None

    @staticmethod
    def read(text):
        return {"typed": text}


async def answered(what, *lines, session=None):
    """What the person decided about an ask, and all that was shown."""
    person, session = Person(*lines), session or Session()
    responder = ConsoleResponder(person, person, NoEditor())
    responder.session = session
    responder.told(ApprovalRequested(what) if isinstance(what, ApprovalRequest) else QuestionAsked(what))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(responder, what)
        await session.answered.wait()
        nursery.cancel_scope.cancel()
    return session.answers[-1], person.shown


BASH = ApprovalRequest(
    "Bash",
    {"command": "make"},
    "Run: make",
    command="make",
    reason="outside the sandbox",
    risk="execute",
    id="a",
    suggested=("Bash(make:*) from now on in this project",),
)


@pytest.mark.parametrize(
    ("lines", "decision"),
    [
        (["y"], Allow()),
        (["what", "", "YES"], Allow()),
        (["n because"], Deny("because")),
        (["n", "because"], Deny("because")),
        (["a", "x", "a", "t"], AllowAlways("tool_name")),
        (["a p", "", "a p src/**"], AllowAlways("tool_name_with_pattern", "src/**")),
        (["e", "x"], Allow({"typed": "x"})),
        (["c"], CancelRun("cancelled at the console")),
        ([None], Deny("the console was closed")),
    ],
)
async def test_what_is_typed_becomes_a_decision(lines, decision):
    assert (await answered(BASH, *lines))[0] == decision


async def test_a_person_sees_what_is_needed_to_judge():
    _, shown = await answered(BASH, "y")
    assert "Bash wants to run:\n    make" in shown
    assert "reason: outside the sandbox" in shown
    assert "the agent suggests: Bash(make:*) from now on in this project" in shown
    assert "[v]" not in shown


async def test_edit_is_offered_only_where_the_backend_can():
    decision, shown = await answered(BASH, "e", "y", session=Session(can_edit=False))
    assert "[e] edit" not in shown
    assert decision == Allow()


async def test_a_long_input_is_cut_and_can_be_viewed_whole():
    request = ApprovalRequest("Write", {"text": "\n".join(map(str, range(100)))}, "Write a", id="a")
    _, shown = await answered(request, "v", "y")
    cut, _, whole = shown.partition("[v] view it whole")
    assert "\n    50\n" not in cut
    assert "\n    99\n" in cut
    assert "\n50\n" in whole


async def test_control_characters_in_what_would_run_are_shown():
    request = ApprovalRequest("Bash", {}, "Run", command="ls \x1b[8m; rm -r x\r\u202e", id="a")
    _, shown = await answered(request, "y")
    assert "ls \\u{1b}[8m; rm -r x\\u{d}\\u{202e}" in shown


async def test_what_the_session_refuses_is_said_and_asked_again():
    session = Session(Unsupported("not like that"), ValueError("a pattern scope needs a pattern"))
    decision, shown = await answered(BASH, "e", "x", "a t", "n no", session=session)
    assert "  not like that\n" in shown
    assert "  a pattern scope needs a pattern\n" in shown
    assert decision == Deny("no")


async def test_an_answer_that_comes_second_says_who_was_first():
    person, session = Person("y"), Session(ApprovalClosed("closed", by="socket:phone"))
    responder = ConsoleResponder(person, person, NoEditor())
    responder.session = session
    responder.told(ApprovalRequested(BASH))
    with trio.move_on_after(0.1):
        await responder(BASH)
    assert "Already answered by socket:phone." in person.shown


async def test_questions_are_asked_in_turn_and_empty_is_no_answer():
    question = Question(
        (
            QuestionItem("1", "Colour?", (("red", "as blood"), ("blue", ""))),
            QuestionItem("2", "Sizes?", (("S", ""), ("M", ""), ("L", "")), multi=True),
            QuestionItem("3", "Name?"),
        ),
        id="q",
    )
    answers, shown = await answered(question, "2", "1,3", "")
    assert answers == Answers({"1": "blue", "2": "S, L"})
    assert "(1 of 3) Colour?\n    1  red - as blood\n    2  blue" in shown
    assert (await answered(question, "", "", None))[0] == Answers(None)


async def test_a_plan_is_accepted_or_sent_back_with_what_should_change():
    item = QuestionItem("plan", "Go on with this plan?", (("Accept", ""), ("Keep planning", "")))
    question = Question((item,), id="q", plan="1. Think\n2. Do")
    answers, shown = await answered(question, "1")
    assert answers == Answers({"plan": "Accept"})
    assert "    1. Think\n    2. Do" in shown
    assert (await answered(question, "2", "use less"))[0] == Answers({"plan": "use less"})
    assert (await answered(question, "2", ""))[0] == Answers({"plan": "Keep planning"})
    assert (await answered(question, "use less"))[0] == Answers({"plan": "use less"})
