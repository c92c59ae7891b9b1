"""Texts and reasoning: pieces while they stream, the whole once, under one id.

A message is one block, named by its item. Of a reasoning item each part of the summary and of the content is a block of its
own: `<item>/summary/0`. What the completed item says counts, whatever the pieces were (A20). An item that never
completes (an interrupt, a steer in 0.171; wire truth A3, A4) is told from its pieces when the agent goes on to something
else or its turn ends, and a notice says that it broke off.
"""

import attrs

from nucleic_codex.app_server.threads import Thread
from nucleic_core.backend import Out
from nucleic_core.events import AssistantText, Notice, Plan, Thinking

TEXT, THINKING, PLAN = "text", "thinking", "plan"


@attrs.define
class _Block:
    kind: str
    pieces: list[str] = attrs.Factory(list)


class Blocks:
    """The blocks of one process that stream now."""

    def __init__(self, *, partials: bool = True) -> None:
        self._partials = partials
        self._open: dict[tuple[str, str], _Block] = {}

    def piece(self, thread: Thread, kind: str, block: str, text: str, native: str, out: Out) -> None:
        """A piece of a block."""
        self._open.setdefault((thread.id, block), _Block(kind)).pieces.append(text)
        if not self._partials:
            return
        if kind == TEXT:
            out.event(AssistantText(text, block.partition("/")[0], block, partial=True), native, thread.parent)
        elif kind == THINKING:
            out.event(Thinking(text, block.partition("/")[0], block, partial=True), native, thread.parent)

    def whole(self, thread: Thread, kind: str, block: str, text: str, native: str | None, out: Out) -> None:
        """A block, complete."""
        self._open.pop((thread.id, block), None)
        if kind == PLAN:
            out.event(Plan(text=text), native, thread.parent)
        elif kind == THINKING:
            out.event(Thinking(text, block.partition("/")[0], block), native, thread.parent)
        else:
            out.event(AssistantText(text, block.partition("/")[0], block), native, thread.parent)
            if thread.turn is not None and text:
                thread.turn.text = text

    def flush(self, thread: Thread, out: Out) -> None:
        """Tell what was begun in this thread and did not complete."""
        for (thread_id, block), begun in list(self._open.items()):
            if thread_id == thread.id:
                self.whole(thread, begun.kind, block, "".join(begun.pieces), None, out)
                if begun.kind != THINKING:
                    text = f"The agent's {begun.kind} broke off before it was complete."
                    out.event(Notice("cut", text, {"block": block}), None, thread.parent)
