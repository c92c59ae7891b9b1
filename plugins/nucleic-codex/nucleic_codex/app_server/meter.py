"""Tokens of one thread: each model call while a turn runs, and the turn's sum when it ends.

`thread/tokenUsage/updated` comes after each model call with `last`, the call's own figures, and `total`, the thread's, which
survives resume and fork (wire truth A2). What counts is how far `total` moved: around a compaction `last` is repeated, or
is an estimate, without any call, and `total` stays; of a call that an interrupt cut off only `total` tells. `last` says
where `total` began when the thread is older than this process. Without a `total`, `last` counts.

`input_tokens` holds the cached ones, as the wire has it.
"""

from collections.abc import Mapping

from nucleic_codex.fields import integer, mapping
from nucleic_core.events import Usage
from nucleic_core.lowlevel import JSON

FIELDS = {
    "inputTokens": "input_tokens",
    "cachedInputTokens": "cached_input_tokens",
    "cacheWriteInputTokens": "cache_write_tokens",
    "outputTokens": "output_tokens",
    "reasoningOutputTokens": "reasoning_tokens",
}

Figures = dict[str, int]


class Meter:
    """What one thread used. `fresh`: the thread began in this process, so its total began at nothing."""

    def __init__(self) -> None:
        self._total: Figures | None = None
        self._turn: Figures = {}
        self._window: int | None = None

    def fresh(self) -> None:
        """The thread is new: its total is 0."""
        self._total = {}

    def read(self, usage: JSON, model: str | None, *, counts: bool) -> Usage | None:
        """One notification: the model call that it tells of, if it tells of one.

        `counts`: the turn it names runs. Of any other turn it is a repetition, good only to say where a total stands.
        """
        last, total = _figures(mapping(usage).get("last")), _figures(mapping(usage).get("total"))
        self._window = integer(mapping(usage).get("modelContextWindow")) or self._window
        if not counts:
            if self._total is None and total:
                self._total = total
            return None
        step = self._step(last, total)
        if not any(step.values()):
            return None
        for name, figure in step.items():
            self._turn[name] = self._turn.get(name, 0) + figure
        return self._told("message", step, model)

    def turn(self, model: str | None) -> Usage | None:
        """The turn's sum; the next turn begins at nothing."""
        turn, self._turn = self._turn, {}
        return self._told("turn", turn, model) if turn else None

    def _step(self, last: Figures, total: Figures) -> Figures:
        if not total:
            return last
        before, self._total = self._total, total
        if before is None:
            return last
        step = {name: figure - before.get(name, 0) for name, figure in total.items()}
        return last if min(step.values()) < 0 else step

    def _told(self, scope: str, figures: Mapping[str, int], model: str | None) -> Usage:
        tokens = {FIELDS[name]: figure for name, figure in figures.items()}
        return Usage("turn" if scope == "turn" else "message", context_window=self._window, model=model).but(**tokens)


def _figures(breakdown: JSON) -> Figures:
    """The figures of a breakdown that are there; 0.141 has no cache writes."""
    fields = mapping(breakdown)
    return {name: figure for name in FIELDS if (figure := integer(fields.get(name))) is not None}
