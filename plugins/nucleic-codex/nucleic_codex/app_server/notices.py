"""Notifications that need no memory: what is worth a notice, and what is left out because other events say it.

What stands in neither table and in no other module of the decoder is raw: `docs/codex.md` has the whole list.
"""

import json
import re
from collections.abc import Callable

from nucleic_codex.fields import mapping, number, sequence, string
from nucleic_core.events import Error, EventData, Notice, Plan
from nucleic_core.lowlevel import JSON

Params = dict[str, JSON]

SILENT = {
    "thread/status/changed": "turns, asks and errors say it",
    "thread/started": "the reply to our request says it; of other threads, what happens in them",
    "turn/diff/updated": "the sum of the file changes",
    "item/reasoning/summaryPartAdded": "the part's text says it",
    "item/autoApprovalReview/started": "its completion says it",
    "hook/started": "its completion says it",
    "thread/compacted": "the item contextCompaction says it",
    "serverRequest/resolved": "our own answer was told",
    "remoteControl/status/changed": "of the desktop program",
    "thread/readState/changed": "of the desktop program",
    "thread/section/changed": "of the desktop program",
    "thread/project/updated": "of the desktop program",
    "project/changed": "of the desktop program",
    "thread/prediction/updated": "of the desktop program",
    "thread/attachment/updated": "of the desktop program",
    "thread/queue/changed": "a queue that we do not use",
    "thread/goal/cleared": "a goal that was never set is cleared, too",
    "thread/archived": "of the list of threads",
    "thread/unarchived": "of the list of threads",
    "thread/environment/connected": "where commands run is in their items",
    "skills/changed": "a list that we do not show",
    "app/list/updated": "a list that we do not show",
}
"""Methods that give no event, with why."""


def _joined(*parts: JSON) -> str:
    return ": ".join(part for part in parts if isinstance(part, str) and part)


def _message(topic: str) -> Callable[[Params], EventData | None]:
    def read(params: Params) -> EventData | None:
        text = string(params.get("message"))
        return None if text is None else Notice(topic, text)

    return read


def _summary(topic: str) -> Callable[[Params], EventData | None]:
    def read(params: Params) -> EventData | None:
        text = _joined(params.get("summary"), params.get("details"))
        where = params.get("path")
        return Notice(topic, text, {"path": where} if isinstance(where, str) else None) if text else None

    return read


def _rerouted(params: Params) -> EventData | None:
    old, new = string(params.get("fromModel")), string(params.get("toModel"))
    if old is None or new is None:
        return None
    return Notice("model", f"The model is now {new} instead of {old}.", {"reason": params.get("reason")})


def _title(params: Params) -> EventData | None:
    name = params.get("threadName")
    return Notice("title", name) if isinstance(name, str) else None


def _goal(params: Params) -> EventData | None:
    goal = params.get("goal")
    return Notice("goal", string(mapping(goal).get("objective")) or "The goal changed.", goal) if goal else None


def _settings(params: Params) -> EventData | None:
    settings = params.get("threadSettings")
    if not isinstance(settings, dict):
        return None
    return Notice("settings", "The thread's settings changed.", settings)


def _mcp_server(params: Params) -> EventData | None:
    name, status, error = (string(params.get(field)) for field in ("name", "status", "error"))
    if name is None or status is None:
        return None
    text = _joined(f"The MCP server {name} is {status}", error)
    return Notice("mcp", text, {"server": name, "status": status, "reason": params.get("failureReason")})


def _moderation(params: Params) -> EventData | None:
    return Notice("moderation", "The provider looked at this turn.", params.get("metadata"))


def _login(params: Params) -> EventData | None:
    name, error = string(params.get("name")), string(params.get("error"))
    if not isinstance(params.get("success"), bool):
        return None
    how = "was logged in to" if params["success"] else "was not logged in to"
    return Notice("mcp", _joined(f"The agent {how} {name or 'a server'}", error))


def _verification(params: Params) -> EventData | None:
    return Notice("model", "The provider wants a verification for this model.", params.get("verifications"))


def _buffering(params: Params) -> EventData | None:
    model = string(params.get("model"))
    return None if model is None else Notice("model", f"The answers of {model} are held back for a check.", params)


def _closed(params: Params) -> EventData | None:
    return Notice("thread", "The agent closed the thread.") if "threadId" in params else None


def _plan(params: Params) -> EventData | None:
    """The plan tool, before 0.171 (wire truth A10)."""
    entries: list[JSON] = []
    for step in sequence(params.get("plan")):
        content, status = string(mapping(step).get("step")), mapping(step).get("status")
        if content is None:
            return None
        entries.append({"content": content, "status": "in_progress" if status == "inProgress" else status})
    if not isinstance(params.get("plan"), list):
        return None
    return Plan(tuple(entries), string(params.get("explanation")))


def _review(params: Params) -> EventData | None:
    """Codex's own reviewer decided instead of us (wire truth A17)."""
    review, call = mapping(params.get("review")), params.get("targetItemId")
    status = string(review.get("status"))
    if status is None:
        return None
    why = string(review.get("rationale"))
    detail = {"tool_call": call, "review": review, "action": params.get("action")}
    if status == "approved":
        return Notice("guardian", _joined("Codex's reviewer allowed a call", why), detail)
    text = _joined(f"Codex's reviewer did not allow a call ({status})", why)
    return Error(text, code="permission_denied", detail=detail)


NOTICES: dict[str, Callable[[Params], EventData | None]] = {
    "warning": _message("warning"),
    "guardianWarning": _message("guardian"),
    "modelProvider/authRecoveryStarted": _message("auth"),
    "modelProvider/authRecoveryCompleted": _message("auth"),
    "configWarning": _summary("config"),
    "deprecationNotice": _summary("deprecation"),
    "model/rerouted": _rerouted,
    "model/verification": _verification,
    "model/safetyBuffering/updated": _buffering,
    "thread/name/updated": _title,
    "thread/goal/updated": _goal,
    "thread/settings/updated": _settings,
    "thread/closed": _closed,
    "turn/moderationMetadata": _moderation,
    "turn/plan/updated": _plan,
    "mcpServer/startupStatus/updated": _mcp_server,
    "mcpServer/oauthLogin/completed": _login,
    "item/autoApprovalReview/completed": _review,
}
"""What one notification says by itself; None: not understood."""

_PLAIN = ("starting", "ready")


def is_silent(method: str, params: Params) -> bool:
    """Whether nothing is told of a notification on purpose."""
    return method in SILENT or (
        method == "mcpServer/startupStatus/updated" and params.get("status") in _PLAIN and not params.get("error")
    )


class RateLimits:
    """`account/rateLimits/updated` comes after every model call; it is told when it says something new."""

    def __init__(self) -> None:
        self._told: JSON = None

    def read(self, params: Params) -> EventData | None:
        """The notice, or None where there is nothing new."""
        limits = mapping(params.get("rateLimits"))
        if limits == self._told:
            return None
        self._told = limits
        parts = [text for name in ("primary", "secondary") if (text := _window(limits.get(name)))]
        if reached := string(limits.get("rateLimitReachedType")):
            parts.append(f"reached: {reached}")
        return Notice("rate_limit", ", ".join(parts), limits) if parts else None


def _window(window: JSON) -> str | None:
    used, minutes = number(mapping(window).get("usedPercent")), number(mapping(window).get("windowDurationMins"))
    if used is None:
        return None
    return f"{used:g} % used" + (f" of {minutes / 60:g} h" if minutes else "")


# -- errors -------------------------------------------------------------------------------------------------------------

_ATTEMPT = re.compile(r"\b(\d+)/(\d+)$")

OUTCOMES = {
    "contextWindowExceeded": "context_full",
    "sessionBudgetExceeded": "max_budget",
    "tooManyDenials": "denied",
    "cyberPolicy": "refused",
    "bioPolicy": "refused",
    "misalignmentPolicyViolation": "refused",
}
"""Kinds of failure that are an outcome of their own; every other one is `errored`."""


def error_kind(error: JSON) -> str | None:
    """The name of a `codexErrorInfo`: a string, or the one key of an object."""
    info = mapping(error).get("codexErrorInfo")
    return info if isinstance(info, str) else next(iter(mapping(info)), None)


def error_text(error: JSON) -> str:
    """What went wrong, for people. Of a 400 the message is the provider's whole answer as a string (wire truth A9)."""
    text = string(mapping(error).get("message")) or "The agent failed and did not say why."
    if text.lstrip().startswith("{"):
        try:
            said = mapping(mapping(json.loads(text)).get("error")).get("message")
        except (ValueError, RecursionError):
            said = None
        text = said if isinstance(said, str) and said else text
    return text


def turn_error(params: Params, *, fatal: bool) -> Error:
    """An `error` notification. A retry is none of the turn's: `willRetry`, with the attempt in its text (wire truth A8)."""
    error = mapping(params.get("error"))
    text, more = error_text(error), string(error.get("additionalDetails"))
    attempt = _ATTEMPT.search(text) if params.get("willRetry") is True else None
    return Error(
        _joined(text, more) if attempt else text,
        recoverable=not fatal,
        code=error_kind(error),
        attempt=int(attempt[1]) if attempt else None,
        max_attempts=int(attempt[2]) if attempt else None,
        detail=error,
    )
