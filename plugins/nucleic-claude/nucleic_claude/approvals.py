"""Asks of Claude Code in our words, and our answers in its own: one content for both channels.

| decision                | reply                                                                                            |
|---                      |---                                                                                               |
| Allow, AllowAlways      | `{"behavior": "allow", "updatedInput": {}}`: `{}` means unchanged in every version, and echoing  |
|                         | the input fails above 100 kB (wire facts 16, 17)                                                 |
| Allow(updated_input)    | the whole new input as `updatedInput`; one that the wire cannot say is denied                    |
| Deny(reason)            | `deny` with the reason as `message`, which becomes the tool's result; never empty (fact 18)      |
| CancelRun(reason)       | the same with `interrupt: true`, which ends the turn; the reason then reaches nobody (fact 19)   |
| Answers                 | the questions and `answers` by question text; nobody answered: a plain allow, which the CLI      |
|                         | tells the model as "The user did not answer" (fact 73)                                           |
| Answers to a plan       | allow where it was accepted, else deny with what was said                                        |

`permission_suggestions` are shown with their reach and never sent back: they write into the worktree or change the mode (29).
"""

from collections.abc import Callable
from pathlib import Path

from nucleic_claude.fields import mapping, row, sequence, string
from nucleic_claude.tools import PATH_FIELDS, tool_name
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
from nucleic_core.backend import Ask, Reply
from nucleic_core.lowlevel import JSON

SHELL_TOOLS = ("Bash", "Monitor", "PowerShell")
"""Tools whose `command` a shell runs."""

_ENOUGH = 2000  # characters of an input's head and tail that a title may need
ACCEPT, KEEP_PLANNING = "Accept", "Keep planning"
_PLAN = QuestionItem(
    "plan",
    "Go on with this plan?",
    ((ACCEPT, "Leave plan mode and carry it out"), (KEEP_PLANNING, "Stay in plan mode; say what to change")),
)

_TITLES = {
    # tool             words         field of the input
    "Bash": ("Run:", "command"),
    "Write": ("Write", "file_path"),
    "Edit": ("Edit", "file_path"),
    "NotebookEdit": ("Edit", "notebook_path"),
    "Read": ("Read", "file_path"),
    "Glob": ("Find files:", "pattern"),
    "Grep": ("Search for:", "pattern"),
    "WebFetch": ("Fetch", "url"),
    "WebSearch": ("Search the web for:", "query"),
    "Agent": ("Start a sub-agent:", "description"),
}

_REACHES = {
    "session": "until this session of the agent ends",
    "localSettings": "from now on in this project (written to .claude/settings.local.json)",
    "projectSettings": "from now on for everyone in this project (written to .claude/settings.json)",
    "userSettings": "from now on in all projects (written to the user's settings)",
    "cliArg": "while this process runs",
}


class ClaudeApprovals:
    """The approval mapper of Claude Code; pure."""

    def read(self, ask: Ask) -> ApprovalRequest | Question | None:
        """A `can_use_tool` request, or the arguments of an approve call: they name the same fields."""
        native = ask.native
        if not isinstance(native, dict) or native.get("subtype", "can_use_tool") != "can_use_tool":
            return None
        name, given = native.get("tool_name"), native.get("input")
        if not isinstance(name, str) or not name or not isinstance(given, dict):
            return None
        if name == "AskUserQuestion":
            return _questions(native, given)
        if name == "ExitPlanMode":
            plan = string(given.get("plan")) or string(mapping(ask.context).get("plan")) or ""
            return Question((_PLAN,), string(native.get("tool_use_id")), plan=plan)
        tool = tool_name(name)
        return ApprovalRequest(
            tool=tool,
            input=given,
            title=_title(tool, given),
            tool_call=string(native.get("tool_use_id")),
            reason=string(native.get("decision_reason")) or string(native.get("decision_reason_type")),
            paths=_paths(tool, given, native.get("blocked_path")),
            command=string(given.get("command")) if tool in SHELL_TOOLS else None,
            suggested=tuple(map(_suggestion, sequence(native.get("permission_suggestions")))),
        )

    def reply(self, ask: Ask, decision: Decision | Answers) -> Reply:
        """See the module's table."""
        given = mapping(mapping(ask.native).get("input"))
        match decision:
            case Answers(answers):
                if mapping(ask.native).get("tool_name") == "ExitPlanMode":
                    return _plan_reply(answers.get("plan") if answers is not None else None)
                if not answers:
                    return _allow({})
                return _allow({"questions": given.get("questions"), "answers": dict(answers)})
            case Allow(updated_input=None) | AllowAlways():
                return _allow({})
            case Allow(updated_input=edited):
                # An empty object would run the original input, and anything else than an object is refused by the CLI.
                if not isinstance(edited, dict) or (not edited and given):
                    raise ValueError("Claude Code takes an object with fields, and no other")
                return _allow(edited)
            case CancelRun(reason):
                return _deny(reason or "The run was cancelled.", interrupt=True)
            case Deny(reason):
                return _deny(reason or "Denied.")


def _allow(updated_input: JSON) -> Reply:
    return Reply({"behavior": "allow", "updatedInput": updated_input})


def _deny(message: str, *, interrupt: bool = False) -> Reply:
    return Reply({"behavior": "deny", "message": message, **({"interrupt": True} if interrupt else {})})


def _plan_reply(answer: str | None) -> Reply:
    said = (answer or "").strip()
    if said.casefold() == ACCEPT.casefold():
        return _allow({})
    if not said:
        return _deny("Nobody answered, so the plan is not accepted.")
    if said.casefold() == KEEP_PLANNING.casefold():
        return _deny("The user does not accept the plan yet: keep planning.")
    return _deny(f"The user does not accept the plan yet and says: {said}")


def _questions(native: dict[str, JSON], given: dict[str, JSON]) -> Question | None:
    """None unless every question has a text: the CLI keys the answers by it."""
    items = []
    for question in sequence(given.get("questions")):
        text = string(mapping(question).get("question"))
        if not text:
            return None
        options = tuple(
            (label, string(mapping(option).get("description")) or "")
            for option in sequence(question.get("options"))
            if (label := string(mapping(option).get("label"))) is not None
        )
        items.append(QuestionItem(text, text, options, question.get("multiSelect") is True))
    return Question(tuple(items), string(native.get("tool_use_id"))) if items else None


def _title(tool: str, given: dict[str, JSON]) -> str:
    """One line that says what would happen, cut where it gets long."""
    words, field = _TITLES.get(tool, (f"{tool}:", None))
    what = string(given.get(field)) if field is not None else None
    if what is None:
        words, what = f"{tool}:", ", ".join(f"{name}={value}" for name, value in given.items())
    if len(what) > 2 * _ENOUGH:  # so that a megabyte of input costs nothing; the core makes one line of it
        what = f"{what[:_ENOUGH]} … {what[-_ENOUGH:]}"
    return " ".join(f"{words} {what}".split()).rstrip(":")


def _paths(tool: str, given: dict[str, JSON], blocked: JSON) -> tuple[Path, ...]:
    named = [] if tool.startswith("mcp__") else [given.get(field) for field in PATH_FIELDS]
    found = [value for value in (*named, blocked) if isinstance(value, str) and value]
    return tuple(map(Path, dict.fromkeys(found)))


def _suggestion(native: JSON) -> JSON:
    """A native suggestion with its reach in plain words."""
    fields = mapping(native)
    say = row(_SUGGESTIONS, fields.get("type"))
    reach = row(_REACHES, fields.get("destination"))
    what = say(fields) if say is not None else None
    text = None if what is None or reach is None else f"{what}, {reach}"
    return {"text": text or "Something that we do not understand", "native": native}


def _rules(fields: dict[str, JSON]) -> str | None:
    rules = [
        f"{tool}({content})"
        if (content := string(mapping(rule).get("ruleContent"))) is not None
        else f"any call of {tool}"
        for rule in sequence(fields.get("rules"))
        if (tool := string(mapping(rule).get("toolName"))) is not None
    ]
    behavior = fields.get("behavior")
    return f"Always {behavior} {' and '.join(rules)}" if rules and behavior in ("allow", "deny", "ask") else None


def _directories(fields: dict[str, JSON]) -> str | None:
    names = [name for name in sequence(fields.get("directories")) if isinstance(name, str)]
    return f"Let the agent work in {' and '.join(names)}" if names else None


def _mode(fields: dict[str, JSON]) -> str | None:
    mode = string(fields.get("mode"))
    edits = " (no edit is asked about any more)" if mode == "acceptEdits" else ""
    return None if mode is None else f"Switch the agent's permission mode to {mode}{edits}"


_SUGGESTIONS: dict[str, Callable[[dict[str, JSON]], str | None]] = {
    "addRules": _rules,
    "addDirectories": _directories,
    "setMode": _mode,
}
