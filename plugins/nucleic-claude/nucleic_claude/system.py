"""The lines of the CLI itself that are an event each and no state: retries, refusals, hooks, compaction, remarks.

`SYSTEM` is their table, `DROPPED_SYSTEM` says of which nothing is told and why. A reader that gives None did not understand
its line, which then is `raw`, as every subtype in neither table. The lines that move the decoder's state are in its own table.
"""

from collections.abc import Callable

from nucleic_claude.fields import integer, mapping, number, string
from nucleic_core.events import Error, EventData, Notice
from nucleic_core.lowlevel import JSON

DENIED = "{} was denied by the CLI, not by a person: no ask reached us. {}"
"""What is said of a call that a rule, a mode or a hook of the CLI denied."""

LOG_IN = "Log in with the agent's own /login, or give a key that is valid, and start again."


def api_retry(line: JSON, *, log_in: bool) -> Error | None:
    """A model call failed and the CLI tries again by itself (wire fact 62).

    Refused credentials are tried again, too; with `log_in` that is told as what it is.
    """
    attempt, error, status = integer(line.get("attempt")), string(line.get("error")), integer(line.get("error_status"))
    if attempt is None:
        return None
    limit, delay = integer(line.get("max_retries")), number(line.get("retry_delay_ms"))
    what = f"{error or 'unknown error'}{f', HTTP {status}' if status is not None else ''}"
    when = "again" if delay is None else f"again in {delay / 1000:.1f} s"
    tries = f"attempt {attempt}" if limit is None else f"attempt {attempt} of {limit}"
    refused = log_in and (error == "authentication_failed" or status == 401)
    text = f"The model's API failed ({what}); the agent tries {when} ({tries})."
    return Error(
        f"{text} It refused the credentials, so that will not help. {LOG_IN}" if refused else text,
        recoverable=not refused,
        code="authentication_failed" if refused else error,
        attempt=attempt,
        max_attempts=limit,
        delay_ms=delay,
        detail={"status": status},
    )


def synthetic(line: JSON, texts: list[str]) -> EventData | None:
    """An `assistant` line that the CLI wrote itself: an API error (wire fact 64), or what a command of its own printed."""
    text, code = "\n".join(texts), line.get("error")
    if not text or not (code is None or isinstance(code, str)):
        return None
    if code is None and line.get("is_api_error_message") is not True:
        return Notice("command", text)
    fields = ("api_error_status", "api_error_type", "request_id")
    detail = {name: line[name] for name in fields if line.get(name) is not None}
    return Error(text, recoverable=code != "authentication_failed", code=code, detail=detail or None)


def _informational(line: JSON) -> EventData | None:
    tag = string(line.get("tag"))
    topic = "hook" if tag is not None and tag.startswith("hook") else "information"
    return _notice(topic, line.get("content"), {"tag": tag, "level": line.get("level")})


def _notification(line: JSON) -> EventData | None:
    return _notice("information", line.get("text"), {"key": line.get("key"), "level": line.get("priority")})


def _hook_response(line: JSON) -> EventData | None:
    name, outcome = string(line.get("hook_name")), string(line.get("outcome"))
    detail = {field: line.get(field) for field in ("hook_event", "exit_code", "stdout", "stderr", "output")}
    return None if name is None else Notice("hook", f"Hook {name}: {outcome or 'no outcome'}", detail)


def _compact_boundary(line: JSON) -> EventData | None:
    detail = mapping(line.get("compact_metadata"))
    before, after = integer(detail.get("pre_tokens")), integer(detail.get("post_tokens"))
    sizes = "" if before is None or after is None else f": {before} tokens became {after}"
    return Notice("compaction", f"The agent summed up the conversation so far{sizes}.", detail)


def _refusal(line: JSON) -> EventData | None:
    why = string(line.get("api_refusal_explanation")) or string(line.get("content")) or "no explanation given"
    return Notice("refusal", f"The model refused: {why}", {"category": line.get("api_refusal_category")})


def _title(line: JSON) -> EventData | None:
    return _notice("title", line.get("title"), None)


def _notice(topic: str, text: JSON, detail: JSON) -> EventData | None:
    return Notice(topic, text, detail) if isinstance(text, str) else None


SYSTEM: dict[str, Callable[[JSON], EventData | None]] = {
    # subtype                    event
    "informational": _informational,  # notice: hook (`hook_no_verdict` matters), else information
    "notification": _notification,  # notice: information
    "hook_response": _hook_response,  # notice: hook, with what it printed
    "compact_boundary": _compact_boundary,  # notice: compaction
    "model_refusal_no_fallback": _refusal,  # notice: refusal; the error line and the result follow
    "session_title_changed": _title,  # notice: title
}

DROPPED_SYSTEM: dict[str, str] = {
    "thinking_tokens": "an estimate per delta; the usage has the figure",
    "hook_started": "hook_response follows and says it all",
    "ui_invalidate": "tells a terminal of the CLI to draw itself again",
}

SILENT = {
    **{f"system/{subtype}": why for subtype, why in DROPPED_SYSTEM.items()},
    "system/init": "a second one before anything came of the turn",
    "system/status": "requesting, or nothing new",
    "system/background_tasks_changed": "state: whether more follows",
    "system/task_started": "state; the tool call says it",
    "system/task_updated": "state; task_notification follows",
    "system/task_notification": "of a foreground task: the tool call has a result",
    "system/permission_denied": "told already",
    "assistant": "a call that is known already, from its ask or an earlier line",
    "user/text": "[Request interrupted by user]: the result says it; a sub-agent's prompt: the call's input has it",
    "user/replay": "of a message that is known to be taken",
    "command_lifecycle": "of a message that is known to be taken",
    "control_response": "the driver's own requests; our own replies, repeated",
    "stream_event/message_start": "state",
    "stream_event/content_block_start": "state, for text and thinking",
    "stream_event/content_block_delta": "a signature, or no text at all",
    "stream_event/content_block_stop": "the whole block came before",
    "stream_event/message_delta": "of a sub-agent, or without a stop reason",
    "stream_event/message_stop": "nothing new",
}
"""The kinds of lines that are understood and may be no event, and why; every other line gives one."""
