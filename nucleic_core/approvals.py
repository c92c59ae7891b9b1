"""Approvals and questions: what an agent asks, what people and policies answer.

`ApprovalRequest` and `Question` are what the agent wants; `Decision` and `Answers` are what it gets. How an answer is
reached is in `nucleic_core._approvals`; how it is said on a wire is each backend's approval mapper.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import attrs

from nucleic_core._values import JSON

Risk = Literal["read_only", "write", "execute", "network", "destructive", "unknown"]
Scope = Literal["session", "tool_name", "tool_name_with_pattern"]
Cause = Literal[
    "answered", "withdrawn", "interrupted", "agent_gone", "host_restarted", "deadline", "no_responder", "session_ended"
]
"""Why an ask closed. Only `answered` is somebody's decision; every other cause denied it on nobody's behalf."""


@attrs.frozen
class ApprovalRequest:
    """One gated action. A backend's mapper fills what the wire says; the core fills `id`, `risk` and absolute `paths`.

    `tool` is Claude's name for it (`Bash`, `Edit`, `Write`, ...) where there is one, else the native name.
    `suggested` is what the CLI offers natively, with its reach; it is shown to people and never chosen by us.
    """

    tool: str
    input: JSON
    title: str
    tool_call: str | None = None
    reason: str | None = None
    paths: tuple[Path, ...] = ()
    command: str | None = None
    risk: Risk | None = None
    id: str = ""
    suggested: tuple[JSON, ...] = ()


@attrs.frozen
class QuestionItem:
    """One question. `options` are (label, description) pairs; an answer may always be free text."""

    id: str
    text: str
    options: tuple[tuple[str, str], ...] = ()
    multi: bool = False


@attrs.frozen
class Question:
    """Questions the agent puts to the user; a plan to accept is a question with `plan` set.

    For a plan, the one item's options are its ways on, such as accept and keep planning.
    """

    questions: tuple[QuestionItem, ...]
    tool_call: str | None = None
    id: str = ""
    plan: str | None = None


@attrs.frozen
class Allow:
    """Run it. `updated_input` replaces the tool's whole input; None leaves it as it is."""

    updated_input: JSON = None


@attrs.frozen
class AllowAlways:
    """Run it, and later ones of the same scope without asking, until the session ends.

    `session`: the same call again: the same paths for a tool that touches just those, else the same input.
    `tool_name`: any call of that tool. `tool_name_with_pattern`: calls of that tool whose paths all match the glob
    `pattern` (`src/**`, or `Edit(src/**)`); shell lines never match one. Never for a higher risk than this one's.
    """

    scope: Scope
    pattern: str | None = None


@attrs.frozen
class Deny:
    """Do not run it; the agent is told `reason` where its protocol can, and goes on where it does so."""

    reason: str


@attrs.frozen
class CancelRun:
    """Do not run it, and stop the turn."""

    reason: str = ""


@attrs.frozen
class Answers:
    """Answers to a Question: item id -> text (labels joined by ", " where several were chosen). None: nobody answered."""

    answers: Mapping[str, str] | None


@attrs.frozen
class Escalate:
    """A policy's verdict: people must decide, whatever other policies allow. `votes` different responders must allow it."""

    reason: str = ""
    votes: int = 1


Decision: TypeAlias = Allow | AllowAlways | Deny | CancelRun
Verdict: TypeAlias = Allow | Deny | Escalate | None


@attrs.frozen
class Trace:
    """What one policy said to one ask. `verdict`: allow, deny, escalate, pass, failed or timeout; `ms`: how long it took."""

    policy: str
    verdict: str
    why: str = ""
    ms: float = 0.0


class ApprovalPolicy(Protocol):
    """Decides asks without a person. Given by `nucleic_approval_policy`, or to `open_session(policies=...)`."""

    @property
    def name(self) -> str:
        """A short name for the record (`decided_by: "policy:<name>"`)."""

    async def decide(self, request: ApprovalRequest) -> Verdict:
        """Judge one request within two seconds; None means no opinion.

        Called concurrently with other policies. Raising, or taking longer, withdraws every policy's Allow for this
        request. An Allow counts only when the run or the user's settings name the policy.
        """


@attrs.frozen
class Rule:
    """One rule of a fixed run; the first that matches decides, and no match denies.

    `tool` is a tool name or a glob over names. `path` is a glob over absolute paths (a relative one is read from the run's
    cwd; `*` stays within a name, `**` crosses folders, `[` is written `[[]`). `pattern` is `Tool(glob)` or a glob, over
    paths too; it allows no shell line, and denies every shell line of its tool. `max_risk` is the highest risk that an
    allow covers. A deny that cannot be judged (no paths known, a search above the place) holds.
    """

    verdict: Literal["allow", "deny"]
    tool: str = "*"
    pattern: str | None = None
    path: str | None = None
    max_risk: Risk = "write"


RISKS: tuple[Risk, ...] = ("read_only", "write", "execute", "network", "destructive", "unknown")
"""From the least to the most that may happen; what is unknown may be anything."""


def within(risk: Risk | None, ceiling: Risk) -> bool:
    """Whether `risk` is no higher than `ceiling`. None reads as unknown."""
    return RISKS.index(risk or "unknown") <= RISKS.index(ceiling)
