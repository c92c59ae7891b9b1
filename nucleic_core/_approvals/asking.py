"""What an ask becomes before anybody sees it: an id, a risk, absolute paths, a title of one line."""

import secrets
from pathlib import Path

import attrs

from nucleic_core._visible import deceives, hidden, one_line, visible
from nucleic_core.approvals import ApprovalRequest, Question, Risk

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
    if deceives(request.command or "") or hidden(request.title) or any(deceives(str(path)) for path in paths):
        # What is shown and what would run differ: nobody can judge it by looking.
        risk, reason = (
            "unknown",
            "; ".join(filter(None, (reason, "it holds characters that do not show, or that look like others"))),
        )
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
    try:
        return (cwd / path).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL: there is no such place
        return (cwd / path).absolute()
