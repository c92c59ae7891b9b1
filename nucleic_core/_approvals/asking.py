"""What an ask becomes before anybody sees it: an id, a risk, absolute paths, a title of one line."""

import os
import secrets
from pathlib import Path

import attrs

from nucleic_core._visible import deceives, hidden, one_line, visible
from nucleic_core.approvals import ApprovalRequest, Question, Risk

FILE_TOOLS = frozenset({"Read", "Edit", "MultiEdit", "Write", "NotebookEdit"})
"""Tools that touch the paths they name and nothing else; what any other tool does, its paths alone do not say."""

SHELL_TOOLS = frozenset({"Bash", "BashOutput", "KillShell", "Monitor", "PowerShell"})
RISK_BY_TOOL: dict[str, Risk] = {
    "Read": "read_only",
    "Glob": "read_only",
    "Grep": "read_only",
    "LS": "read_only",
    "NotebookRead": "read_only",
    "Edit": "write",
    "MultiEdit": "write",
    "Write": "write",
    "NotebookEdit": "write",
    "WebFetch": "network",
    "WebSearch": "network",
    **dict.fromkeys(SHELL_TOOLS, "execute"),
}
"""By name alone; a tool that is not here is unknown. Commands are not read until a shell reader can be trusted to."""


def new_id() -> str:
    """An ask id: short enough to type, unique over all sessions."""
    return secrets.token_hex(5)


def completed(request: ApprovalRequest, cwd: Path) -> ApprovalRequest:
    """The request as people and policies see it. `input` stays as the agent sent it."""
    risk = request.risk or RISK_BY_TOOL.get(request.tool, "unknown")
    reason = request.reason
    paths = tuple(canonical(path, cwd) for path in request.paths)
    doubt = ""
    if deceives(request.command or "") or hidden(request.title) or any(deceives(str(path)) for path in paths):
        # What is shown and what would run differ: nobody can judge it by looking.
        doubt = "it holds characters that do not show, or that look like others"
    elif any(_is_no_place(path) for path in request.paths):
        doubt = "it names a path that is too long to be one"
    if doubt:
        risk, reason = "unknown", "; ".join(filter(None, (reason, doubt)))
    return attrs.evolve(
        request,
        id=new_id(),
        risk=risk,
        reason=reason,
        title=one_line(visible(request.title)),
        paths=paths,
    )


def numbered(question: Question) -> Question:
    """The question with an id of ours."""
    return attrs.evolve(question, id=new_id())


def canonical(path: Path, cwd: Path) -> Path:
    """The absolute path that a write would reach: `..` and symbolic links resolved, whether it exists or not."""
    if _is_no_place(path):
        return (cwd / path).absolute()
    try:
        return (cwd / path).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL: there is no such place
        return (cwd / path).absolute()


def _is_no_place(path: Path) -> bool:
    """Longer than any system takes; resolving it would cost the loop seconds (each component is looked up)."""
    return len(os.fsencode(path)) > _LONGEST_PATH or len(path.parts) > _MOST_PARTS


_LONGEST_PATH = 4096
_MOST_PARTS = 255
