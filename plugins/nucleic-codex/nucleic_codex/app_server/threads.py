"""The threads that live in one app-server: the session's own, those of its sub-agents, and what runs in each.

Everything on the wire names a thread (wire truth A7). The root is the thread that our `thread/start`, `thread/resume` or
`thread/fork` opened. A sub-agent's thread is named by the item that started it, whose id is its `parent` from then on. A
thread that nobody explained is a scope of its own, with its own id as `parent`: nothing in it moves the root.
"""

from collections.abc import Iterator

import attrs

from nucleic_codex.app_server.meter import Meter


@attrs.define(eq=False)
class Turn:
    """A running turn. `text` is the agent's last message, `failed` whether its fatal error was told."""

    id: str
    text: str | None = None
    failed: bool = False
    took_input: bool = False
    blocked: str | None = None  # what a hook said that kept the input from the model


@attrs.define(eq=False)
class Thread:
    """One thread. `parent` is the tool call whose sub-agent works in it; None for the root."""

    id: str
    parent: str | None
    model: str | None = None
    turn: Turn | None = None
    over: set[str] = attrs.Factory(set)
    meter: Meter = attrs.Factory(Meter)
    explained: bool = False


class Threads:
    """All threads of one process."""

    def __init__(self) -> None:
        self._all: dict[str, Thread] = {}
        self.root: Thread | None = None
        self.adopts = True
        """Whether the first thread that shows up is the root: so where a recording lacks our own requests."""

    def open_root(self, thread_id: str) -> Thread:
        """A thread that we asked for. It is the root, unless the root is in the middle of a turn."""
        self.adopts = False
        thread = self._all.get(thread_id) or self._new(thread_id)
        if self.root is None or self.root.turn is None:
            if self.root is not None and self.root is not thread:
                self.root.parent = self.root.id
            thread.parent = None
            self.root = thread
        return thread

    def get(self, thread_id: object) -> Thread | None:
        """The thread of this id; None if it is no id."""
        if not isinstance(thread_id, str):
            return None
        known = self._all.get(thread_id)
        if known is None:
            known = self.open_root(thread_id) if self.adopts else self._new(thread_id)
        return known

    def explain(self, thread_id: object, call: str, model: str | None) -> None:
        """A tool call has started a sub-agent in this thread."""
        thread = self.get(thread_id)
        if thread is None or thread is self.root:
            return
        if not thread.explained:
            thread.explained, thread.parent = True, call
        thread.model = model or thread.model

    def of_turn(self, turn_id: object) -> Thread | None:
        """The thread in which this turn runs."""
        return next((thread for thread in self._all.values() if thread.turn and thread.turn.id == turn_id), None)

    def running(self) -> Iterator[Thread]:
        """The threads in which a turn runs, the root first."""
        yield from sorted((t for t in self._all.values() if t.turn is not None), key=lambda t: t is not self.root)

    @property
    def sub_agents_run(self) -> bool:
        """Whether a sub-agent works."""
        return any(thread.explained and thread.turn for thread in self._all.values())

    def _new(self, thread_id: str) -> Thread:
        thread = self._all[thread_id] = Thread(thread_id, parent=thread_id)
        return thread
