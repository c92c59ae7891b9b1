"""Tool calls in progress: told once, with what they print, and closed once.

The call of an item is told when the item starts, or when something else names it first: our hook, or a request that has no
item. A call that its turn leaves open is the core's to close, but for commands: one that outlives the wait of its tool runs
on (wire truth A6), which is no failure. What such a call says later is a notice: a call has one result.
"""

import attrs

from nucleic_codex.app_server.threads import Thread
from nucleic_core.backend import Out
from nucleic_core.events import Notice, ToolCallCompleted, ToolCallStarted, ToolOutput, ToolResult
from nucleic_core.lowlevel import JSON


@attrs.define
class Call:
    """A call as it was told. `item` is its item as it stands, `process` whether it is a process of its own."""

    id: str
    name: str
    input: JSON = None
    item: JSON = None
    told: bool = False  # its input, too
    process: bool = False
    pieces: list[str] = attrs.Factory(list)

    @property
    def output(self) -> str | None:
        """What it printed as far as pieces of it came."""
        return "".join(self.pieces) or None


class Calls:
    """The calls of one process, by thread and id."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Call] = {}
        self._left: set[tuple[str, str]] = set()  # closed by the end of their turn

    def get(self, thread: Thread, call_id: JSON) -> Call | None:
        """An open call."""
        return self._open.get((thread.id, call_id)) if isinstance(call_id, str) else None

    def open(self, thread: Thread) -> list[Call]:
        """The open calls of a thread, oldest first."""
        return [call for (thread_id, _), call in self._open.items() if thread_id == thread.id]

    def started(self, thread: Thread, call: Call, native: str, out: Out, native_name: str | None = None) -> Call:
        """A call is known by name; once."""
        known = self._open.setdefault((thread.id, call.id), call)
        if known is call:
            self._left.discard((thread.id, call.id))
            out.event(ToolCallStarted(call.id, call.name, native_name=native_name), native, thread.parent)
        return known

    def completed(self, thread: Thread, call: Call, native: str, out: Out, native_name: str | None = None) -> Call:
        """A call is known with its input; once, whatever it is named and given later."""
        known = self.started(thread, call, native, out, native_name)
        if not known.told:
            known.told, known.input = True, call.input
            name = known.name
            out.event(ToolCallCompleted(call.id, name, call.input, native_name), native, thread.parent)
        return known

    def printed(self, thread: Thread, call_id: str, text: str, native: str, out: Out) -> None:
        """A running call printed something; also one that was never shown, or is closed."""
        call = self.get(thread, call_id)
        if call is not None:
            call.pieces.append(text)
        out.event(ToolOutput(call_id, text), native, thread.parent)

    def ended(self, thread: Thread, result: ToolResult, native: str | None, out: Out) -> bool:
        """A call has its result. False if it was closed before: then a notice tells."""
        key = thread.id, result.tool_call
        if self._open.pop(key, None) is None and key in self._left:
            self._left.discard(key)
            code = "" if result.exit_code is None else f", with exit code {result.exit_code}"
            how = "failed" if result.is_error else "ended"
            detail = {"tool_call": result.tool_call, "content": result.content, "exit_code": result.exit_code}
            out.event(Notice("late_result", f"A call {how} after its turn{code}.", detail), native, thread.parent)
            return False
        out.event(result, native, thread.parent)
        return True

    def turn_ended(self, thread: Thread, out: Out, *, well: bool) -> None:
        """Close the processes that run on, and leave the rest of the thread's calls to the core."""
        for call in self.open(thread):
            del self._open[thread.id, call.id]
            self._left.add((thread.id, call.id))
            if call.process:
                text = "It was still running when the turn ended." + (f" So far:\n{call.output}" if call.output else "")
                out.event(ToolResult(call.id, text, is_error=not well, synthetic=True), None, thread.parent)
