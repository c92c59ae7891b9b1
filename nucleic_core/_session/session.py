"""A session as its caller holds it: events out, answers and messages in."""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Self

import attrs
import trio

from nucleic_core._approvals.coordinator import Coordinator
from nucleic_core._approvals.rules import AlwaysRule
from nucleic_core._faults import failure_of
from nucleic_core._session.ledger import Item
from nucleic_core._session.machine import Machine
from nucleic_core._session.pipeline import Pipeline
from nucleic_core._session.status import Status
from nucleic_core._store.transcript import EventStream, Header, Transcript
from nucleic_core.approvals import Answers, ApprovalRequest, CancelRun, Decision, Question
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import AgentFailed, AgentGone, Unsupported
from nucleic_core.events import (
    AgentEvent,
    InputAccepted,
    Outcome,
    RunFinished,
    TurnCompleted,
    TurnStarted,
    Usage,
    UserMessage,
)
from nucleic_core.specs import AgentInput, Image, RunSpec, plain_text


@attrs.frozen
class RunResult:
    """How a run ended. An agent that fails is an outcome, not an exception."""

    session: str
    native_id: str | None
    outcome: Outcome
    final_text: str | None
    error: str | None
    usage: Usage | None
    duration_ms: int | None

    def check(self) -> Self:
        """The result itself when the run completed; else raises AgentFailed."""
        if self.outcome != "completed":
            raise AgentFailed(
                f"The run ended {self.outcome.replace('_', ' ')}: {self.error or 'no further word of it'}"
            )
        return self


class Session:
    """One agent at work. Open it with `open_session`; iterate it for its events.

    Every method may be called from any task of the caller's while the `async with` block is open.
    """

    def __init__(
        self, run: RunSpec, transcript: Transcript, capabilities: BackendCapabilities, *, keep_open: bool
    ) -> None:
        self._run = run
        self._transcript = transcript
        self._capabilities = capabilities
        self._keep_open = keep_open
        self._after = transcript.next_seq - 1
        self._finished = trio.Event()
        self._result: RunResult | None = None
        self._changed: Callable[[], None] = lambda: None
        self.pipeline: Pipeline
        self.coordinator: Coordinator
        self.machine: Machine

    # -- what it is -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Our id of the session."""
        return self._run.session

    @property
    def native_id(self) -> str | None:
        """The backend's own id, once the backend has named it."""
        return self.pipeline.ledger.native_id

    @property
    def cwd(self) -> Path:
        """Where the agent works."""
        return self._run.cwd

    @property
    def last_seq(self) -> int:
        """The `seq` of the newest event."""
        return self._transcript.next_seq - 1

    @property
    def header(self) -> Header:
        """The first line of the transcript."""
        return self._transcript.header

    @property
    def status(self) -> Status:
        """idle, running, awaiting_approval, awaiting_input, finished or error."""
        return self.pipeline.status

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the backend can do: declared, then proven when the agent's version is known."""
        return self._capabilities

    @property
    def usage(self) -> Usage:
        """The sum over this run so far, live."""
        return self.pipeline.ledger.usage

    @property
    def open_asks(self) -> tuple[ApprovalRequest | Question, ...]:
        """What waits for an answer, oldest first."""
        return self.coordinator.open_asks

    @property
    def rules(self) -> tuple[AlwaysRule, ...]:
        """What was allowed always in this session."""
        return tuple(self.coordinator.rules.rules)

    # -- events -----------------------------------------------------------------------------------------------------

    def events(self, after: int | None = None) -> EventStream:
        """A cursor over the events after `after` (a `seq`; 0 reads the whole history), ending after `run_finished`.

        Without `after` it begins where this run does. Any number of cursors; one that lags reads from the file, and
        never slows the agent.
        """
        return self._transcript.events(self._after if after is None else after)

    def __aiter__(self) -> EventStream:
        return self.events()

    async def result(self) -> RunResult:
        """Wait for the end of the run, which is an outcome however it came.

        Raises TranscriptFailed when it could not be recorded to its end, and what kept the agent from starting.
        """
        await self._finished.wait()
        if self._result is None:
            assert self.machine.failure is not None
            raise self.machine.failure
        return self._result

    # -- answers and messages ---------------------------------------------------------------------------------------

    async def respond(self, ask_id: str, decision: Decision | Answers, *, by: str = "api") -> None:
        """Answer an ask, exactly once; cancelled, it either has answered or has not.

        An allow waits until the policies have spoken, for two seconds at most.

        Raises ApprovalClosed (with `by`) when somebody was faster or the ask has gone, Unsupported for an edited input
        that the backend cannot take, and for any answer where the backend asks nothing, ValueError for an answer of the
        wrong kind (Answers to an approval, an edited input that is no JSON, a pattern scope without a pattern),
        TranscriptFailed when it could not be recorded: then it is denied.
        """
        if self._capabilities.interactive_approvals is False and not self._capabilities.questions:
            raise Unsupported(
                f"{self._run.backend} asks nothing: the rules of the run decide. There is no ask to answer."
            )
        await trio.lowlevel.checkpoint_if_cancelled()
        await self.coordinator.judged(ask_id, decision)
        self.coordinator.respond(ask_id, decision, by)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def send(self, message: str | AgentInput, *, steer: bool = False) -> str:
        """Send a message; `input_accepted` with the returned id says what became of it.

        While a turn runs it is queued, or folded into the turn with `steer` where the backend can. Raises Unsupported
        where it cannot be taken, AgentGone when the run is over or the agent not ready yet, TranscriptFailed when the
        message could not be recorded, and what the backend's driver raises: then it counts as refused.
        """
        message = attrs.evolve(AgentInput.of(message), id=str(uuid.uuid4()))
        ledger = self.pipeline.ledger
        if ledger.finished or self.machine.ending:
            raise AgentGone(f"The run of session {self.id} is over; resume it to go on.")
        if self.machine.driver is None or not self.machine.started:
            raise AgentGone(f"The agent of session {self.id} is not ready yet; try again in a moment.")
        self.check_input(message)
        if ledger.busy and not self._capabilities.follow_up:
            raise Unsupported(f"{self._run.backend} takes no message while a turn runs; wait for the turn's end.")
        if steer and "steer" not in self._capabilities.follow_up:
            raise Unsupported(f"{self._run.backend} cannot steer a running turn; send without steer to queue it.")
        images = sum(isinstance(part, Image) for part in message.parts)
        self.record([(UserMessage(message.id, plain_text(message), images), None, None)])
        try:
            await self.machine.driver.send(message, steer=steer)
        except BaseException as exc:
            if message.id in ledger.pending_inputs and self.pipeline.failure is None:
                self.record([(InputAccepted(message.id, "refused", str(exc) or type(exc).__name__), None, None)])
            raise failure_of(exc) from exc.__cause__
        if not self._capabilities.follow_up and message.id in ledger.pending_inputs:
            # Such a backend has no word for it: what it takes between turns it takes at once.
            self.record([(InputAccepted(message.id, "delivered"), None, None)])
        return message.id

    def check_input(self, message: AgentInput) -> None:
        """Refuse parts that the backend cannot honour."""
        if any(isinstance(part, Image) for part in message.parts) and not self._capabilities.images:
            raise Unsupported(f"{self._run.backend} takes no images; leave them out.")

    async def interrupt(self) -> None:
        """Stop the running turn; the session goes on. Before the turn has begun, it is stopped as soon as it does.

        Open asks are closed. Nothing happens when no turn runs or is due. Raises AgentGone when the agent is going just
        now, TranscriptFailed when the closing of an ask could not be recorded, and what the backend's driver raises.
        """
        self.coordinator.close_all("interrupted", "the turn was interrupted", reply=CancelRun("interrupted"))
        await self.machine.interrupt()

    async def finish(self) -> None:
        """No more input: the run ends at the next idle, or now when it is idle. Does not wait for the end; raises nothing."""
        self._keep_open = False
        if not self.pipeline.ledger.busy:
            self.machine.end("idle")
        await trio.lowlevel.checkpoint()

    # -- for the machinery ------------------------------------------------------------------------------------------

    def record(self, items: Sequence[Item]) -> None:
        """See `Floor.record`."""
        self.pipeline.record(items)

    def report(self, text: str) -> None:
        """See `Floor.report`."""
        self.pipeline.report(text)

    def knows_ask(self, ask_id: str) -> bool:
        """Whether an ask of this id was ever open here."""
        return self.coordinator.knows(ask_id)

    def start_soon(self, task: Callable[..., Awaitable[object]], *args: object) -> None:
        """See `Floor.start_soon`."""
        self.machine.start_soon(task, *args)

    def stop_turn(self) -> None:
        """See `Floor.stop_turn`."""
        if self.machine.driver is not None:
            self.machine.start_soon(self.machine.driver.interrupt)

    def prove(self, capabilities: BackendCapabilities) -> None:
        """Replace what was declared by what this run's agent can do."""
        self._capabilities = capabilities

    def committed(self, events: Sequence[AgentEvent]) -> None:
        """What the session does about events, once they stand in the transcript."""
        for event in events:
            match event.data:
                case TurnStarted() if event.parent is None:
                    self.machine.turn_started()
                case TurnCompleted() if event.parent is None:
                    self.machine.turn_ended()
                case RunFinished() as finished:
                    self._finish(finished)
        self._changed()
        if self.pipeline.ledger.idle and not self._keep_open:
            self.machine.end("idle")

    def transcript_failed(self, failure: Exception) -> None:
        """Nothing can be recorded any more: end."""
        self.machine.end("failed")

    def over(self) -> None:
        """The machine has stopped; whoever waits for a result gets one or the failure, and the streams end."""
        self._finished.set()
        self._transcript.end_streams()

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call this after every commit."""
        self._changed = changed

    def _finish(self, finished: RunFinished) -> None:
        self._result = RunResult(
            self.id,
            self.native_id,
            finished.outcome,
            finished.final_text,
            finished.error,
            finished.usage,
            finished.duration_ms,
        )
        self._finished.set()
