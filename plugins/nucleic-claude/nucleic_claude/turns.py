"""The turns of one process: when one begins, who began it, how it ended.

`init` opens a turn, once each (wire fact 4), and `result` ends it (fact 48). The outcome is read in this order:

| what the result says                              | outcome                                                     |
|---                                                |---                                                          |
| stop_reason refusal, or a refusal was told        | refused                                                     |
| is_error false                                    | completed                                                   |
| subtype error_max_turns                           | max_turns                                                   |
| subtype error_max_budget_usd                      | max_budget                                                  |
| subtype error_during_execution                    | interrupted if we sent an interrupt in this turn, else      |
|                                                   | denied if we sent a deny that interrupts                    |
| the same with terminal_reason aborted_...         | interrupted (by a signal, or by a client we do not see)     |
| terminal_reason prompt_too_long, blocking_limit   | context_full                                                |
| is_error true, whatever the subtype               | errored                                                     |

`terminal_reason` counts only where every version tells the truth (167 says `completed` of an API error). 167 gives one result
for two turns when background work reports while the first still runs: the second `init` then ends the first turn.
"""

import signal

import attrs

from nucleic_claude.fields import sequence, string
from nucleic_core.events import Outcome
from nucleic_core.lowlevel import JSON

_LIMITS: dict[str, Outcome] = {"error_max_turns": "max_turns", "error_max_budget_usd": "max_budget"}

FIELDS: dict[str, type | tuple[type, ...]] = {
    "subtype": str,
    "is_error": bool,
    "result": str,
    "errors": list,
    "usage": dict,
    "modelUsage": dict,
    "total_cost_usd": (int, float),
    "duration_ms": (int, float),
    "permission_denials": list,
    "stop_reason": str,
    "terminal_reason": str,
}
"""The fields of a result that we read, and their types; a result with another type also stays as `raw`."""


@attrs.define
class Turn:
    """The turn that runs. `text` is the last prose of the main thread, `used` whether anything came of it yet."""

    id: str | None
    text: str | None = None
    used: bool = False
    refused: bool = False


def is_odd(result: JSON) -> bool:
    """Whether a field that we read has a type that we do not."""
    return any((value := result.get(name)) is not None and not isinstance(value, kind) for name, kind in FIELDS.items())


def failed(result: JSON) -> bool:
    """`is_error`, and where it is missing, what the subtype says."""
    is_error = result.get("is_error")
    return is_error if isinstance(is_error, bool) else result.get("subtype") != "success"


def outcome(result: JSON, stopped: Outcome | None, *, refused: bool) -> Outcome:
    """How the turn ended; `stopped` is what we sent to end it."""
    subtype, reason = string(result.get("subtype")) or "", string(result.get("terminal_reason")) or ""
    if refused or result.get("stop_reason") == "refusal":
        return "refused"
    if not failed(result):
        return "completed"
    if subtype in _LIMITS:
        return _LIMITS[subtype]
    if subtype == "error_during_execution" and (stopped is not None or reason.startswith("aborted_")):
        return stopped or "interrupted"
    return "context_full" if reason in ("prompt_too_long", "blocking_limit") else "errored"


def error_text(result: JSON) -> str | None:
    """What the result says of a failure."""
    errors = "; ".join(error for error in sequence(result.get("errors")) if isinstance(error, str))
    return string(result.get("result")) or errors or None


def may_be_cut(result: JSON) -> bool:
    """Whether a success may be half an answer: 167 and 238 end a cut stream so, with no stop reason (wire fact 65).

    The CLI's own commands have none either, but they take no model turn.
    """
    return not failed(result) and result.get("stop_reason") is None and bool(result.get("num_turns"))


def exit_text(returncode: int | None) -> str:
    """How a process ended, as the end of a sentence; negative codes are signals."""
    if returncode is None:
        return "ended"
    if returncode < 0:
        name = signal.Signals(-returncode).name if -returncode in {*signal.Signals} else f"signal {-returncode}"
        return f"was ended by {name}"
    return f"ended with exit code {returncode}"
