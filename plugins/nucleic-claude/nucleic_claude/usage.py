"""Tokens and cost: once per model call while a turn runs, once per turn when it ends, never added up here.

Every `assistant` line of one message repeats its usage, mostly the snapshot of the message's start (wire fact 36), so output
tokens are final only where a `message_delta` with a stop reason says so, or where they grew from line to line. `result.usage`
is one turn's and leaves sub-agents out; `total_cost_usd` is the process's, sub-agents included (wire fact 49).
"""

from typing import TypedDict

import attrs

from nucleic_claude.fields import integer, mapping, number, string
from nucleic_core.backend import Out
from nucleic_core.events import Usage
from nucleic_core.lowlevel import JSON

TOTAL_STARTS_ANEW = (2, 1, 238)
"""Up to this version a resumed process counts its cost from 0; 2.1.332 continues the old total. Between: unknown."""


@attrs.define
class _Message:
    id: str
    model: str | None
    usage: dict[str, JSON]
    first_output: int | None
    final: bool = False


class MessageMeter:
    """The model call that runs in the main thread; sub-agents are not metered, as `result.usage` leaves them out too."""

    def __init__(self) -> None:
        self._current: _Message | None = None
        self._told: str | None = None

    def saw(self, message: JSON, out: Out) -> None:
        """A message's start, or one of its lines, with the usage as it stands."""
        message_id, usage = message.get("id"), message.get("usage")
        if not isinstance(message_id, str) or not isinstance(usage, dict) or message_id == self._told:
            return
        current = self._current
        if current is None or current.id != message_id:
            self.flush(out)
            output = integer(usage.get("output_tokens"))
            self._current = _Message(message_id, string(message.get("model")), usage, output)
        elif not current.final:
            current.usage = usage

    def ended(self, event: JSON, out: Out) -> None:
        """A `message_delta`: the figures that differ from the start's, final if there is a stop reason."""
        current = self._current
        if current is None:
            return
        current.usage = {**current.usage, **mapping(event.get("usage"))}
        if string(mapping(event.get("delta")).get("stop_reason")) is not None:
            current.final = True
            self.flush(out)

    def flush(self, out: Out) -> None:
        """Tell what is known of the current message; another one, or the end of the turn, is next."""
        current, self._current = self._current, None
        if current is None:
            return
        self._told = current.id
        output = integer(current.usage.get("output_tokens"))
        grew = output is not None and current.first_output is not None and output > current.first_output
        tokens = _tokens(current.usage)
        tokens["output_tokens"] = output if current.final or grew else None
        out.event(Usage(scope="message", message_id=current.id, model=current.model, **tokens), "assistant")


class TurnMeter:
    """What each turn took, from its `result`."""

    def __init__(self, *, resumed: bool) -> None:
        self._resumed = resumed
        self._total: float | None = None if resumed else 0.0

    def version(self, version: JSON) -> None:
        """The CLI's version, from `init`: it says where a resumed process starts to count."""
        if self._resumed and self._total is None and () < _parts(version) <= TOTAL_STARTS_ANEW:
            self._total = 0.0

    def turn(self, result: JSON, model: str | None) -> Usage | None:
        """The turn's usage; None if the result has no figures at all."""
        usage = result.get("usage")
        cost = self._cost(result)
        if not isinstance(usage, dict) and cost is None:
            return None
        tokens = _tokens(usage) if isinstance(usage, dict) else {}
        if cost and not any(tokens.values()):
            # Stopped in mid-stream or out of budget: the CLI says 0 of a turn that the API was paid for.
            tokens = _sum_of_models(result.get("model_usage_since_last_result"))
        window, model = _window(result.get("modelUsage"), model)
        return Usage(scope="turn", cost_usd=cost, context_window=window, model=model, **tokens)

    def _cost(self, result: JSON) -> float | None:
        since, total, before = (
            result.get("model_usage_since_last_result"),
            number(result.get("total_cost_usd")),
            self._total,
        )
        self._total = total if total is not None else before
        if isinstance(since, dict):  # 332: the difference itself
            return sum(number(mapping(one).get("costUSD")) or 0.0 for one in since.values())
        if total is None or before is None:
            return None
        return total - before if total >= before else total  # a total that fell began anew (/clear)


class _Tokens(TypedDict, total=False):
    input_tokens: int | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None


def _tokens(usage: dict[str, JSON]) -> _Tokens:
    return {
        "input_tokens": integer(usage.get("input_tokens")),
        "cached_input_tokens": integer(usage.get("cache_read_input_tokens")),
        "cache_write_tokens": integer(usage.get("cache_creation_input_tokens")),
        "output_tokens": integer(usage.get("output_tokens")),
        "reasoning_tokens": integer(mapping(usage.get("output_tokens_details")).get("thinking_tokens")),
    }


def _sum_of_models(since: JSON) -> _Tokens:
    models = [mapping(one) for one in mapping(since).values()]

    def total(field: str) -> int | None:
        figures = [figure for one in models if (figure := integer(one.get(field))) is not None]
        return sum(figures) if figures else None

    return {
        "input_tokens": total("inputTokens"),
        "cached_input_tokens": total("cacheReadInputTokens"),
        "cache_write_tokens": total("cacheCreationInputTokens"),
        "output_tokens": total("outputTokens"),
        "reasoning_tokens": total("thinkingTokens"),
    }


def _window(models: JSON, model: str | None) -> tuple[int | None, str | None]:
    """The context window, of the session's model or of the only one that was used."""
    used = mapping(models)
    if model not in used and len(used) == 1:
        (model,) = used
    return integer(mapping(used.get(model)).get("contextWindow")) if model is not None else None, model


def _parts(version: JSON) -> tuple[int, ...]:
    """2.1.167 as numbers; empty for anything else."""
    parts = version.split(".") if isinstance(version, str) else []
    return tuple(map(int, parts)) if all(part.isdecimal() and part.isascii() for part in parts) else ()
