"""The tokens of one turn: `turn.completed` counts the whole thread, so what stood there before is taken off.

What stood there before is known of a new thread (nothing), and of a resumed one from the last count in its rollout file.
Where that is missing, or the figures do not fit together, the turn's are unknown.
"""

from nucleic_codex.fields import integer, mapping
from nucleic_core.events import Usage
from nucleic_core.lowlevel import JSON

FIELDS = {
    "input_tokens": "input_tokens",
    "cached_input_tokens": "cached_input_tokens",
    "cache_write_tokens": "cache_write_input_tokens",  # not in 0.141.0
    "output_tokens": "output_tokens",
    "reasoning_tokens": "reasoning_output_tokens",
}
"""Our names of the figures, and Codex's."""


class Meter:
    """The count of one thread. `resumed`: it had turns before this process."""

    def __init__(self, *, resumed: bool) -> None:
        self._before: dict[str, int | None] = dict.fromkeys(FIELDS, None if resumed else 0)
        self._window: int | None = None

    def counted(self, info: JSON, *, before: bool) -> None:
        """A `token_count` of the rollout; the last one `before` the turn is where it starts."""
        self._window = integer(mapping(info).get("model_context_window")) or self._window
        total = mapping(info).get("total_token_usage")
        if before and isinstance(total, dict):
            self._before = {ours: integer(total.get(theirs)) for ours, theirs in FIELDS.items()}

    def turn(self, total: JSON) -> Usage | None:
        """What the turn took, from the thread's total at its end."""
        figures = mapping(total)
        if not figures:
            return None
        taken = {ours: _difference(integer(figures.get(theirs)), self._before[ours]) for ours, theirs in FIELDS.items()}
        return Usage("turn", context_window=self._window).but(**taken)


def _difference(total: int | None, before: int | None) -> int | None:
    return total - before if total is not None and before is not None and total >= before else None
