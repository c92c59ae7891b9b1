"""Asks on the console: what is asked is shown whole, and what the person types becomes a decision.

It is the responder of a run on a terminal. The core calls it, in a task of its own, for each ask that policies leave
open, and cancels that task when the ask closes by other means; several asks wait for the floor in their order.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio
from rich.text import Text

from nucleic_core._cli.console import wording
from nucleic_core._cli.console.editing import EditFailed, Editor
from nucleic_core._cli.console.keyboard import Keyboard
from nucleic_core._cli.console.screen import Screen
from nucleic_core._session.session import Session
from nucleic_core.approvals import (
    Allow,
    AllowAlways,
    Answers,
    ApprovalRequest,
    CancelRun,
    Decision,
    Deny,
    Question,
    QuestionItem,
)
from nucleic_core.errors import ApprovalClosed, NucleicError
from nucleic_core.events import ApprovalRequested, EventData, QuestionAsked

BY = "console"
_LINES, _CHARACTERS = 30, 3000


class ConsoleResponder:
    """Asks the person at the terminal. `session` is set once the session is open.

    `alone`: the events are shown elsewhere, so that an ask has to bring its own headline.
    """

    session: Session

    def __init__(self, screen: Screen, keyboard: Keyboard, editor: Editor, *, alone: bool = False) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._editor = editor
        self._alone = alone
        self._told: defaultdict[str, trio.Event] = defaultdict(trio.Event)

    def told(self, data: EventData) -> None:
        """This event is on the screen; an ask is taken up only then, so that what led to it stands above it."""
        match data:
            case ApprovalRequested(request=ApprovalRequest(id=ask)) | QuestionAsked(question=Question(id=ask)):
                self._told[ask].set()

    async def __call__(self, what: ApprovalRequest | Question) -> Decision | Answers:
        """Answer in the console's name, then wait for the core to close the ask: it may want a second vote."""
        await self._told[what.id].wait()
        async with self._screen.floor:
            self._keyboard.forget_typed()
            if self._alone:
                headline = wording.ask_line(what) if isinstance(what, ApprovalRequest) else wording.question_line(what)
                await self._screen.line(headline)
            if isinstance(what, ApprovalRequest):
                await self._until_accepted(what, lambda: self._decision(what))
            else:
                await self._until_accepted(what, lambda: self._answers(what))
        return await trio.sleep_forever()

    async def _until_accepted(
        self, what: ApprovalRequest | Question, decide: Callable[[], Awaitable[Decision | Answers]]
    ) -> None:
        while True:
            answer = await decide()
            try:
                return await self.session.respond(what.id, answer, by=BY)
            except ApprovalClosed as closed:
                return await self._say(f"Already answered by {closed.by}.")
            except (NucleicError, ValueError) as refused:
                await self._say(str(refused))

    # -- approvals --------------------------------------------------------------------------------------------------

    async def _decision(self, request: ApprovalRequest) -> Decision:
        whole = _whole(request)
        cut, is_cut = bounded(whole)
        await self._details(request, cut)
        can_edit = self.session.capabilities.can_modify_tool_input is True
        keys = {"y": "yes", "n": "no", "a": "always", "e": "edit", "c": "cancel the turn", "v": "view it whole"}
        if not can_edit:
            del keys["e"]
        if not is_cut:
            del keys["v"]
        menu = "  ".join(f"[{key}] {meaning}" for key, meaning in keys.items())
        while True:
            typed = await self._ask(f"  {menu} > ")
            if typed is None:
                return Deny("the console was closed")
            word, _, rest = typed.strip().partition(" ")
            decision: Decision | None = None
            match word.lower():
                case "y" | "yes":
                    return Allow()
                case "n" | "no":
                    return Deny(rest.strip() or (await self._ask("  why? (may be empty) > ") or "").strip())
                case "a" | "always":
                    decision = await self._always(request, rest.strip())
                case "e" | "edit" if can_edit:
                    decision = await self._edited(request)
                case "c" | "cancel":
                    return CancelRun("cancelled at the console")
                case "v" | "view" if is_cut:
                    await self._screen.line(Text(wording.shown(whole)))
            if decision is not None:
                return decision

    async def _details(self, request: ApprovalRequest, what: str) -> None:
        """Everything that a person needs to judge it; the ask's own line, with title and risk, stands above."""
        lines = Text()
        lines.append(f"  {wording.brief(request.tool)}", "bold")
        lines.append(" wants to run with:\n" if request.command is None else " wants to run:\n")
        lines.append("".join(f"    {line}\n" for line in what.splitlines()), "bold" if request.command else "")
        facts = [("path", wording.brief(str(path))) for path in request.paths]
        if request.reason:
            facts.append(("reason", wording.brief(request.reason, 400)))
        facts += [("the agent suggests", wording.brief(wording.flat_text(item), 400)) for item in request.suggested]
        for name, fact in facts:
            lines.append(f"  {name}: ", "dim")
            lines.append(f"{fact}\n")
        lines.rstrip()
        await self._screen.line(lines)

    async def _always(self, request: ApprovalRequest, scope: str) -> Decision | None:
        """Ask how far it reaches, unless that was typed along."""
        if not scope:
            tool = wording.brief(request.tool, 40)
            words = f"  always: [s] this same call  [t] every {tool} call  "
            if request.paths and request.command is None:  # a pattern is for paths, and no shell line matches one
                words += "[p] a pattern, as in src/**  "
            words += "> "
            scope = (await self._ask(words) or "").strip()
        word, _, pattern = scope.partition(" ")
        match word.lower():
            case "s" | "session":
                return AllowAlways("session")
            case "t" | "tool":
                return AllowAlways("tool_name")
            case "p" | "pattern":
                pattern = pattern.strip() or (await self._ask("  pattern > ") or "").strip()
                return AllowAlways("tool_name_with_pattern", pattern) if pattern else None
        return None

    async def _edited(self, request: ApprovalRequest) -> Decision | None:
        try:
            if self._editor.command is not None:
                edited = await self._editor.edit(wording.as_json(request.input))
            else:
                edited = self._editor.read(await self._ask("  the whole new input, as JSON in one line > ") or "")
        except EditFailed as failed:
            await self._say(str(failed))
            return None
        return Allow(edited)

    # -- questions --------------------------------------------------------------------------------------------------

    async def _answers(self, question: Question) -> Answers:
        if question.plan is not None:
            plan, _ = bounded(wording.shown(question.plan), _LINES * 4, _CHARACTERS * 4)
            await self._screen.line(Text("".join(f"    {line}\n" for line in plan.splitlines())))
        answers: dict[str, str] = {}
        for number, item in enumerate(question.questions, 1):
            of = f"({number} of {len(question.questions)}) " if len(question.questions) > 1 else ""
            told = len(question.questions) == 1 and question.plan is None and len(item.text) < 160
            lines = [] if told else [f"  {of}{wording.shown(item.text)}"]  # a short one stands above already
            for key, (label, meaning) in enumerate(item.options, 1):
                lines.append(f"    {key}  {wording.brief(label)}{' - ' if meaning else ''}{wording.brief(meaning)}")
            if lines:
                await self._screen.line(Text("\n".join(lines)))
            answer = await self._plan_answer(item) if question.plan is not None else await self._answer(item)
            if answer is not None:
                answers[item.id] = answer
        return Answers(answers or None)

    async def _answer(self, item: QuestionItem) -> str | None:
        ways = "number or text" if item.options else "text"
        several = "; several: 1,2" if item.multi and item.options else ""
        while True:
            typed = await self._ask(f"  {ways}{several}; empty: no answer > ")
            if typed is None or not typed.strip():
                return None
            answer = chosen(typed, item.options, multi=item.multi)
            if answer is not None:
                return answer
            await self._say(f"There is no such option; they go from 1 to {len(item.options)}.")

    async def _plan_answer(self, item: QuestionItem) -> str | None:
        """The first way on accepts the plan; with any other, what should change may be said."""
        answer = await self._answer(item)
        labels = [label for label, _ in item.options]
        if answer in labels[1:]:
            return (await self._ask("  what should change? (may be empty) > ") or "").strip() or answer
        return answer

    async def _ask(self, words: str) -> str | None:
        return await self._screen.ask(Text(words), self._keyboard)

    async def _say(self, words: str) -> None:
        await self._screen.line(Text(f"  {wording.shown(words)}", "yellow"))


def chosen(typed: str, options: Sequence[tuple[str, str]], *, multi: bool = False) -> str | None:
    """An answer from what was typed: numbers stand for their options, other text for itself. None: no such number."""
    parts = typed.split(",") if multi else [typed]
    numbers = [part.strip() for part in parts if part.strip()]
    if not options or not numbers or not all(number.isdecimal() for number in numbers):
        return typed.strip()
    picked = [int(number) for number in numbers]
    if not all(1 <= number <= len(options) for number in picked):
        return None
    return ", ".join(options[number - 1][0] for number in picked)


def bounded(text: str, lines: int = _LINES, characters: int = _CHARACTERS) -> tuple[str, bool]:
    """The text, or its beginning and its end with a word on what is left out; and whether something is."""
    rows = text.splitlines()
    cut = False
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"… {len(rows) - 2 * half} lines left out …", *rows[-half:]]
        cut = True
    joined = "\n".join(rows)
    if len(joined) > characters:
        half = characters // 2
        joined = f"{joined[:half]} … {len(joined) - 2 * half} characters left out … {joined[-half:]}"
        cut = True
    return joined, cut


def _whole(request: ApprovalRequest) -> str:
    """The command, or the whole input a field at a time; visible."""
    if request.command is not None:
        return wording.shown(request.command)
    if isinstance(request.input, Mapping):
        return "\n".join(f"{wording.brief(str(name))}: {_field(value)}" for name, value in request.input.items())
    return wording.shown(wording.as_json(request.input))


def _field(value: object) -> str:
    return wording.shown(value if isinstance(value, str) else wording.as_json(value, indent=False))
