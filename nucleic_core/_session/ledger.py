"""What the core adds to a decoder's events, so that every backend keeps the same promises.

One `session_started` a process; every tool call started, completed and closed; usage counted once; one `run_finished`.
The ledger is pure: events go in, events come out, and it knows what is open. It serves live sessions and
`nucleic decode` alike.
"""

from collections.abc import Iterator

import attrs

from nucleic_core._values import JSON
from nucleic_core.approvals import CancelRun
from nucleic_core.events import (
    ApprovalResolved,
    EventData,
    InputAccepted,
    Outcome,
    RunFinished,
    SessionStarted,
    ToolCallCompleted,
    ToolCallStarted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Usage,
    UserMessage,
)

Item = tuple[EventData, str | None, str | None]
"""(payload, native name, parent): an event that has no `seq` yet."""

_SUMMED = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_usd",
)


def add(one: Usage, other: Usage) -> Usage:
    """Two usages as one of scope run; what neither knows stays unknown."""
    sums = {}
    for name in _SUMMED:
        known = [figure for usage in (one, other) if (figure := getattr(usage, name)) is not None]
        sums[name] = sum(known) if known else None
    return Usage("run", context_window=other.context_window or one.context_window, model=other.model or one.model).but(
        **sums
    )


@attrs.define
class _Call:
    name: str
    parent: str | None
    completed: bool = False
    foretold: bool = False  # its ask came before its line; the line then tells nothing new


class Ledger:
    """The state of one process's stream.

    `stopping` says that we asked for the end: a turn that the process takes with it then counts as interrupted.
    `cancelled` says that a CancelRun was decided in this turn.
    """

    def __init__(self) -> None:
        self.native_id: str | None = None
        self.turn_running = False
        self.turns = 0
        self.more_follows = False
        self.pending_inputs: set[str] = set()
        self.last_turn: TurnCompleted | None = None
        self.finished = False
        self.stopping = False
        self.cancelled = False
        self._started = False
        self._calls: dict[str, _Call] = {}
        self._total = Usage(scope="run")
        self._turn = Usage(scope="run")
        self._turn_counted = False
        self._messages: dict[str, Usage] = {}
        self._duration = 0

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing is queued and nothing more will come by itself."""
        return self.turns > 0 and not (self.turn_running or self.more_follows or self.pending_inputs)

    @property
    def usage(self) -> Usage:
        """The run so far: every turn that ended, and the messages of the one that runs."""
        total = self._total
        for message in self._messages.values():
            total = add(total, message)
        return total

    def foretell(self, tool_call: str, name: str, input: JSON, parent: str | None) -> Iterator[Item]:  # noqa: A002
        """The call that an ask is about, where the ask overtook the line that shows it."""
        call = self._calls.get(tool_call)
        if call is None or not call.completed:
            yield from self.admit((ToolCallCompleted(tool_call, name, input), None, parent))
            self._calls[tool_call].foretold = True

    def admit(self, item: Item) -> Iterator[Item]:
        """One event of the decoder as it belongs into the transcript: with what must stand before it, or not at all."""
        data, native, parent = item
        match data:
            case SessionStarted():
                if self._started and data.native_id == self.native_id:
                    return
                self._started, self.native_id = True, data.native_id or self.native_id
            case UserMessage():
                self.pending_inputs.add(data.input)
            case InputAccepted():
                if data.state != "queued":
                    self.pending_inputs.discard(data.input)
            case TurnStarted():
                self.turn_running, self.more_follows, self.cancelled = True, False, False
            case ToolCallStarted():
                if data.tool_call in self._calls:
                    return
                self._calls[data.tool_call] = _Call(data.name, parent)
            case ToolCallCompleted():
                call = self._calls.get(data.tool_call)
                if call is not None and call.foretold:
                    call.foretold = False
                    return
                if call is None:
                    call = self._calls[data.tool_call] = _Call(data.name, parent)
                    yield ToolCallStarted(data.tool_call, data.name, native_name=data.native_name), native, parent
                call.completed = True
            case ToolResult():
                if self._calls.pop(data.tool_call, None) is None and data.correlated:
                    data = data.but(correlated=False)
            case Usage():
                self._count(data)
            case ApprovalResolved(decision=CancelRun(), cause="answered"):
                self.cancelled = True
            case TurnCompleted():
                yield from self._close_calls(parent, all_of_them=False)
                data = self._end_turn(data)
                if data.usage is not None and not self._turn_counted:
                    self._count(data.usage)
                    yield data.usage, native, parent
                self._turn_counted = False
                self.last_turn = data
            case RunFinished():
                if self.finished:
                    return
                yield from self._close_calls(None, all_of_them=True)
                data = self._end_run(data)
        yield data, native, parent

    def end(self, returncode: int | None, description: str) -> Iterator[Item]:
        """What is missing when the process is gone: a turn it took with it, and the end of the run."""
        if self.finished:
            return
        crashed = bool(returncode) and not self.stopping
        if self.turn_running or self.pending_inputs:
            outcome: Outcome = "interrupted" if self.stopping else "errored"
            error = None if self.stopping else f"the agent ended in the middle of its turn ({description})"
            yield from self.admit((TurnCompleted(outcome, error=error), None, None))
        elif crashed:
            self.last_turn = None
        last: Outcome = self.last_turn.outcome if self.last_turn else "errored" if crashed else "interrupted"
        yield from self.admit(
            (RunFinished(last, error=description if crashed else None, returncode=returncode), None, None)
        )

    def _count(self, usage: Usage) -> None:
        match usage.scope:
            case "message":
                self._messages[usage.message_id or f"#{len(self._messages)}"] = usage
            case "turn":
                self._messages.clear()
                self._turn, self._turn_counted = usage, True
                self._total = add(self._total, usage)

    def _end_turn(self, data: TurnCompleted) -> TurnCompleted:
        outcome = data.outcome
        if outcome in ("errored", "interrupted", "denied") and (self.cancelled or self.stopping):
            outcome = "cancelled" if self.cancelled else "interrupted"
        self.turn_running, self.more_follows = False, data.more_follows
        self.turns += 1
        self._duration += data.duration_ms or 0
        self._messages.clear()
        usage = data.usage if data.usage is not None or not self._turn_counted else self._turn
        return data.but(outcome=outcome, usage=usage)

    def _end_run(self, data: RunFinished) -> RunFinished:
        self.finished = True
        self.pending_inputs.clear()
        last = self.last_turn
        return data.but(
            final_text=data.final_text or (last.final_text if last else None),
            error=data.error or (last.error if last and last.outcome == data.outcome else None),
            usage=data.usage or self._total,
            duration_ms=data.duration_ms if data.duration_ms is not None else self._duration or None,
        )

    def _close_calls(self, parent: str | None, *, all_of_them: bool) -> Iterator[Item]:
        """Calls that got no result: those of the scope whose turn ended, or all when the run has."""
        for tool_call, call in list(self._calls.items()):
            if all_of_them or call.parent == parent:
                del self._calls[tool_call]
                note = "The turn ended before this call had a result."
                yield ToolResult(tool_call, note, is_error=True, synthetic=True), None, call.parent
