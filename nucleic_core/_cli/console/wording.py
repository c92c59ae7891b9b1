"""Events in words: titles, sizes, short results. Pure; whatever came from an agent leaves here made visible."""

import json
from collections.abc import Mapping

import orjson
from rich.text import Text

from nucleic_core._values import JSON
from nucleic_core._visible import one_line, visible
from nucleic_core.approvals import (
    Allow,
    AllowAlways,
    Answers,
    ApprovalRequest,
    CancelRun,
    Cause,
    Decision,
    Deny,
    Question,
)
from nucleic_core.events import FileChange, Plan, RunFinished, ToolResult, Usage, plain

RISK_STYLES = {
    "read_only": "green",
    "write": "yellow",
    "execute": "yellow",
    "network": "yellow",
    "destructive": "bold red",
    "unknown": "bold red",
}
_TELLING = ("command", "file_path", "path", "notebook_path", "pattern", "url", "query", "description", "prompt")
"""The input fields that say most about a call, the best first."""

_MARKS = {"completed": "☑", "in_progress": "▸", "pending": "☐"}


def shown(text: str) -> str:
    """Text of an agent over several lines."""
    return visible(text.replace("\r\n", "\n"))


def brief(text: str, limit: int = 160) -> str:
    """Text of an agent in one line."""
    return visible(one_line(text, limit))


def call_title(name: str, arguments: JSON) -> str:
    """A tool call in one line: its name and what its input says."""
    if isinstance(arguments, Mapping):
        for field in _TELLING:
            if isinstance(arguments.get(field), str):
                return brief(f"{name}: {arguments[field]}")
        if arguments:
            return brief(f"{name}: {as_json(arguments, indent=False)}")
    return brief(name)


def as_json(value: JSON, *, indent: bool = True) -> str:
    """A JSON value as people read it."""
    try:
        return orjson.dumps(value, default=plain, option=orjson.OPT_INDENT_2 if indent else None).decode()
    except TypeError:  # a lone surrogate, or a number over 64 bits
        return json.dumps(value, default=str, indent=2 if indent else None)


def flat_text(content: JSON) -> str:
    """The text in a tool's result: a string, a list of content blocks, or anything as JSON."""
    match content:
        case None:
            return ""
        case str():
            return content
        case {"text": str(text)}:
            return text
        case list():
            return "\n".join(flat_text(part) for part in content)
        case _:
            return as_json(content, indent=False)


def result_line(result: ToolResult) -> Text:
    """A result: its first line, how many more there are, and what went wrong."""
    lines = [line for line in flat_text(result.content).splitlines() if line.strip()]
    words = brief(lines[0], 120) if lines else "done"
    if len(lines) > 1:
        words += f" (and {len(lines) - 1} more lines)" if len(lines) > 2 else " (and 1 more line)"
    failed = result.is_error or bool(result.exit_code)
    if result.exit_code:
        words = f"exit code {result.exit_code}: {words}"
    return Text(f"  ↳ {words}", "red" if failed else "dim")


def change_line(change: FileChange) -> Text:
    """A file change: what, where, and by how many lines where a diff tells."""
    path = brief(change.path if change.old_path is None else f"{change.old_path} → {change.path}")
    line = Text(f"  ± {change.change} {path}", "cyan")
    if change.diff is not None:
        lines = change.diff.splitlines()
        more = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
        less = sum(line.startswith("-") and not line.startswith("---") for line in lines)
        line.append(f" (+{more} −{less})")
    return line


def plan_lines(plan: Plan) -> Text:
    """The plan as a list."""
    if plan.text is not None:
        return Text(shown(plan.text))
    lines = []
    for entry in plan.entries:
        content = entry.get("content") if isinstance(entry, Mapping) else entry
        status = entry.get("status") if isinstance(entry, Mapping) else None
        lines.append(f"  {_MARKS.get(str(status), '☐')} {brief(flat_text(content))}")
    return Text("\n".join(lines))


def ask_line(request: ApprovalRequest) -> Text:
    """An ask: its title, its risk, and the id by which it can be answered from elsewhere."""
    risk = request.risk or "unknown"
    return Text.assemble(
        ("? ", "bold"),
        (brief(request.title), "bold"),
        " · ",
        (risk.replace("_", " "), RISK_STYLES[risk]),
        (f" · {request.id}", "dim"),
    )


def question_line(question: Question) -> Text:
    """A question or a plan to accept."""
    first = question.questions[0].text if question.questions else "a question"
    words = "A plan waits for your word" if question.plan is not None else brief(first)
    return Text.assemble(("? ", "bold"), (words, "bold"), (f" · {question.id}", "dim"))


def decision_line(decision: Decision | Answers, by: str, cause: Cause) -> Text:
    """How an ask was closed."""
    who = f" by {brief(by)}" if cause == "answered" else f" ({cause.replace('_', ' ')})"
    match decision:
        case Allow(updated_input=None):
            return Text(f"  ✓ allowed{who}", "green")
        case Allow():
            return Text(f"  ✓ allowed with another input{who}", "green")
        case AllowAlways(scope, pattern):
            reach = scope.replace("_", " ") + (f" {brief(pattern)}" if pattern else "")
            return Text(f"  ✓ allowed always ({reach}){who}", "green")
        case Deny(reason):
            return Text(f"  ✗ denied{who}: {brief(reason)}", "red")
        case CancelRun(reason):
            return Text(f"  ✗ cancelled{who}{': ' if reason else ''}{brief(reason)}", "red")
        case Answers(None):
            return Text(f"  ✗ not answered{who}", "red")
        case Answers(answers):
            return Text(f"  ✓ answered{who}: {brief(', '.join((answers or {}).values()))}", "green")


def tokens(usage: Usage | None) -> str:
    """Tokens in and out, as far as they are known."""
    if usage is None:
        return ""
    known = [usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens]
    parts = []
    if any(figure is not None for figure in known):
        parts.append(f"{_count(sum(figure or 0 for figure in known))} tokens in")
    if usage.output_tokens is not None:
        parts.append(f"{_count(usage.output_tokens)} out")
    return ", ".join(parts)


def seconds(duration: float) -> str:
    """A duration in seconds, in words."""
    if duration < 60:
        return f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    return f"{minutes} min {rest} s"


def summary(finished: RunFinished, session: str) -> Text:
    """The last line of a run: how it ended, what it took, and how to go on."""
    good = finished.outcome == "completed"
    line = Text.assemble((finished.outcome.replace("_", " "), "bold green" if good else "bold red"))
    if finished.error:
        line.append(f": {brief(finished.error, 400)}", "red")
    spent = finished.usage
    cost = f"${spent.cost_usd:.4f}" if spent is not None and spent.cost_usd is not None else ""
    took = seconds(finished.duration_ms / 1000) if finished.duration_ms is not None else ""
    facts = [took, tokens(spent), cost, f"session {session}", f"go on with: nucleic resume {session[:8]}"]
    line.append("".join(f" · {fact}" for fact in facts if fact), "dim")
    return line


def _count(figure: int) -> str:
    return str(figure) if figure < 10_000 else f"{figure / 1000:.1f}k"
