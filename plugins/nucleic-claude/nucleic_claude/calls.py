"""Tool calls and the asks about them: each call starts, completes and ends once, whatever tells of it first.

A call can show up as a partial block, as a whole line, as an ask that overtook its line (HTTP), or twice. The first whole
input stands; what comes later and says otherwise is a notice.
"""

import attrs

from nucleic_claude.tools import native_name, tool_name
from nucleic_core.backend import Out
from nucleic_core.events import Notice, ToolCallCompleted, ToolCallStarted
from nucleic_core.lowlevel import JSON


@attrs.define
class Call:
    """A call without a result. `name` is native; `input` is its whole input once `completed`."""

    name: str
    parent: str | None
    input: JSON = None
    completed: bool = False


class Calls:
    """The calls of one process, and its open asks."""

    def __init__(self) -> None:
        self._open: dict[str, Call] = {}
        self._closed: set[str] = set()
        self._asks: dict[str, str | None] = {}
        self._asked: set[str] = set()
        self._answered: set[str] = set()

    def get(self, tool_call: JSON) -> Call | None:
        """The open call of this id."""
        return self._open.get(tool_call) if isinstance(tool_call, str) else None

    def started(self, tool_call: str, name: str, parent: str | None, out: Out, native: str) -> bool:
        """Id and name are known. False for a call that ended already."""
        if tool_call in self._closed:
            return False
        if tool_call not in self._open:
            self._open[tool_call] = Call(name, parent)
            out.event(ToolCallStarted(tool_call, tool_name(name), native_name=native_name(name)), native, parent)
        return True

    def completed(self, tool_call: str, name: str, given: JSON, parent: str | None, out: Out, native: str) -> bool:
        """The whole input is known. False where this added nothing: the call has it already, or ended."""
        if not self.started(tool_call, name, parent, out, native):
            return False
        call = self._open[tool_call]
        if not call.completed:
            call.input, call.completed = given, True
            completed = ToolCallCompleted(tool_call, tool_name(call.name), given, native_name(call.name))
            out.event(completed, native, call.parent)
            return True
        if call.input == given:
            return False
        text = f"The call {tool_call} came again with another input; the first one stands."
        out.event(Notice("input", text, {"tool_call": tool_call, "input": given}), native, call.parent)
        return True

    def ended(self, tool_call: str, out: Out) -> tuple[Call | None, bool]:
        """A result is here: the call if it was open, and whether it had ended before. Its open asks are withdrawn.

        An ask can be open still: a hook may answer faster than people do (wire fact 76).
        """
        for key in [key for key, about in self._asks.items() if about == tool_call]:
            del self._asks[key]
            out.withdraw(key, "the call got its result before the answer")
        before = tool_call in self._closed
        self._closed.add(tool_call)
        return self._open.pop(tool_call, None), before

    def asked(self, key: str, tool_call: str | None) -> None:
        """The agent asks, about a call or not."""
        self._asks[key] = tool_call
        if tool_call is not None:
            self._asked.add(tool_call)

    def withdrawn(self, key: str) -> None:
        """The agent took an ask back."""
        self._asks.pop(key, None)

    def answered(self, key: str) -> None:
        """Our reply went out."""
        self._asks.pop(key, None)
        self._answered.add(key)

    def was_answered(self, key: JSON) -> bool:
        """Whether a reply of ours with this key went out: the CLI repeats them on stdout (wire fact 90)."""
        return isinstance(key, str) and key in self._answered

    def denied_by_us(self, tool_call: JSON) -> None:
        """The CLI itself says that the host denied this call, whether or not its ask came by here."""
        if isinstance(tool_call, str):
            self._asked.add(tool_call)

    def tell_denial(self, tool_call: str) -> bool:
        """Whether a denial of this call is news: no ask about it reached us, and it was not told yet."""
        if tool_call in self._asked:
            return False
        self._asked.add(tool_call)
        return True
