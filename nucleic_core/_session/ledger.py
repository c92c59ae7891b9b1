"""What the core adds to a decoder's events, so that every backend keeps the same promises.

One `session_started` a process; every tool call started, completed and closed; usage counted once; one `run_finished`.
The ledger is pure: events go in, events come out, and it knows what is open. It serves live sessions and
`nucleic decode` alike.
"""

import signal
from collections.abc import Iterable, Iterator

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

_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
"""How a process exits that took our interrupt for its end."""

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


TRACKED = frozenset(
    {
        SessionStarted,
        UserMessage,
        InputAccepted,
        TurnStarted,
        ToolCallStarted,
        ToolCallCompleted,
        ToolResult,
        ApprovalResolved,
        Usage,
        TurnCompleted,
        RunFinished,
    }
)
"""What the ledger keeps account of; the rest, which is most of a stream, passes by."""


@attrs.define
class _Call:
    name: str
    parent: str | None
    completed: bool = False
    foretold: bool = False  # its ask came before its line; the line then tells nothing new


class Ledger:
    """The state of one process's stream.

    `stopping` says that we asked for the end, `interrupted` that we stopped the turn: one that fails or that the process
    takes with it then counts as interrupted. `cancelled` says that a CancelRun was decided in this turn.

    Turns of a sub-agent (those with a parent) close their own calls and move nothing else: the run goes on. Only where the
    session's own turn has ended before them (`more_follows`), the last of them ends the waiting for more.
    """

    def __init__(self) -> None:
        self.native_id: str | None = None
        self.turn_running = False
        self.turns = 0
        self.more_follows = False
        self.pending_inputs: dict[str, int] = {}  # by id: how many turns had begun when it was sent
        self.last_turn: TurnCompleted | None = None
        self.finished = False
        self.stopping = False
        self.interrupted = False
        self.cancelled = False
        self._started = False
        self._asked = False  # an input was ever sent
        self._turns_begun = 0
        self._turn_due = False  # an input was delivered, and its turn has yet to begin
        self._last_word: dict[str, str] = {}
        self._calls: dict[str, _Call] = {}
        self._total = Usage(scope="run")
        self._turn = Usage(scope="run")
        self._turn_counted = False
        self._messages: dict[str, Usage] = {}
        self._duration = 0

    @property
    def idle(self) -> bool:
        """What was asked is done: nothing runs, nothing is queued and nothing more will come by itself."""
        return (self.turns > 0 or self._asked) and not self.busy

    @property
    def busy(self) -> bool:
        """A turn runs, or is still to come."""
        return self.turn_running or self.more_follows or self.input_waits

    @property
    def input_waits(self) -> bool:
        """An input was sent whose turn has not begun."""
        return bool(self.pending_inputs) or self._turn_due

    @property
    def untouched(self) -> bool:
        """Nothing was ever asked of this process, and it did nothing by itself."""
        return self.turns == 0 and not (self._asked or self.busy)

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

    def admit(self, item: Item) -> Iterable[Item]:
        """One event of the decoder as it belongs into the transcript: with what must stand before it, or not at all."""
        return self._track(item) if type(item[0]) in TRACKED else (item,)

    def _track(self, item: Item) -> Iterator[Item]:
        data, native, parent = item
        match data:
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
            case SessionStarted():
                if self._started and data.native_id in (None, self.native_id):
                    return
                self._started, self.native_id = True, data.native_id or self.native_id
            case UserMessage():
                self.pending_inputs[data.input] = self._turns_begun
                self._asked = True
            case InputAccepted():
                if self._last_word.get(data.input) == data.state:
                    return
                self._last_word[data.input] = data.state
                self._accept(data)
            case TurnStarted() if parent is None:
                self._turns_begun += 1
                self.turn_running, self.more_follows, self._turn_due = True, False, False
                self.interrupted = self.cancelled = False
            case Usage():
                self._count(data, parent)
            case ApprovalResolved(decision=CancelRun(), cause="answered"):
                self.cancelled = True
            case TurnCompleted():
                yield from self._close_calls(parent, all_of_them=False)
                if parent is not None:
                    if not (data.more_follows or self.turn_running):
                        self.more_follows = False
                    yield data, native, parent
                    return
                data = self._end_turn(data)
                if data.usage is not None and not self._turn_counted:
                    self._count(data.usage, None)
                    yield data.usage, native, parent
                self._turn_counted = False
                self.last_turn = data
            case RunFinished():
                if self.finished:
                    return
                yield from self._close_calls(None, all_of_them=True)
                data = self._end_run(data)
        yield data, native, parent

    def end(self, returncode: int | None, description: str, *, failed: bool = False) -> Iterator[Item]:
        """What is missing when the process is gone: a turn it took with it, and the end of the run.

        `failed`: something of ours ended it, as `description` says.
        """
        if self.finished:
            return
        in_turn = self.turn_running or self.input_waits
        wanted = self.stopping or (self.interrupted and (in_turn or returncode in _INTERRUPTED))
        crashed = not wanted and (failed or bool(returncode))
        if in_turn:
            error = None if wanted else f"the agent ended in the middle of its turn ({description})"
            yield from self.admit((TurnCompleted("interrupted" if wanted else "errored", error=error), None, None))
        elif crashed and self.last_turn is not None and self.last_turn.outcome != "errored":
            self.last_turn = None  # it did not fail in that turn, but it failed
        last = self.last_turn
        outcome: Outcome = last.outcome if last is not None else "interrupted" if wanted else "errored"
        explained = (
            not in_turn and last is not None and last.error is not None
        )  # by its turn, better than by its status
        told = description if (crashed and not explained) or (last is None and not wanted) else None
        yield from self.admit((RunFinished(outcome, error=told, returncode=returncode), None, None))

    def _accept(self, data: InputAccepted) -> None:
        if data.state == "queued":
            return
        begun_before = self.pending_inputs.pop(data.input, None)
        if data.state == "delivered" and not self.turn_running and begun_before == self._turns_begun:
            self._turn_due = True

    def _count(self, usage: Usage, parent: str | None) -> None:
        match usage.scope:
            case "turn" if parent is not None:  # of the run, but not of the turn that its caller is in
                self._total = add(self._total, usage)
            case _ if parent is not None:
                pass
            case "message":
                self._messages[usage.message_id or f"#{len(self._messages)}"] = usage
            case "turn":
                self._messages.clear()
                self._turn, self._turn_counted = usage, True
                self._total = add(self._total, usage)

    def _end_turn(self, data: TurnCompleted) -> TurnCompleted:
        outcome = data.outcome
        if outcome in ("errored", "interrupted", "denied") and (self.cancelled or self.stopping or self.interrupted):
            outcome = "cancelled" if self.cancelled else "interrupted"
        if not self.turn_running:
            self._turns_begun += 1  # a backend that does not tell of their beginning
        self.turn_running, self.more_follows, self._turn_due = False, data.more_follows, False
        self.turns += 1
        self._duration += data.duration_ms or 0
        usage = data.usage or (self._turn if self._turn_counted else self._usage_of_messages())
        self._messages.clear()
        return data.but(outcome=outcome, usage=usage)

    def _usage_of_messages(self) -> Usage | None:
        """The turn's figures where the wire has them only for each model call."""
        if not self._messages:
            return None
        total = Usage("run")
        for message in self._messages.values():
            total = add(total, message)
        return total.but(scope="turn")

    def _end_run(self, data: RunFinished) -> RunFinished:
        self.finished = True
        self.turn_running = self.more_follows = self._turn_due = False
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
