"""One coordinator a session: from an ask to exactly one answer.

    commit step: place() -> the event stands in the transcript -> begin()
    then:        policies (always-rules among them) -> responder -> people
    close():     append `approval_resolved` and hand the reply to the writer, in one step without a wait between

First responder wins; a second gets `ApprovalClosed` naming the first. Whatever else ends an ask (withdrawn, interrupted,
process gone, deadline) closes it with its own cause, and the wire gets the denial its protocol wants.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Never, Protocol, TypeAlias

import attrs
import orjson
import trio

from nucleic_core._approvals.asking import completed, numbered
from nucleic_core._approvals.policies import OWN_TOOLS, Seat, consult
from nucleic_core._approvals.rules import AlwaysRules
from nucleic_core._faults import failure_of, log_failure
from nucleic_core._store.transcript import Item
from nucleic_core.approvals import (
    Allow,
    AllowAlways,
    Answers,
    ApprovalRequest,
    CancelRun,
    Cause,
    Decision,
    Deny,
    Question,
    Trace,
)
from nucleic_core.backend import Answer, ApprovalMapper, Ask, Reply
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import AgentGone, ApprovalClosed, Unsupported
from nucleic_core.events import (
    DECISION_TYPES,
    ApprovalRequested,
    ApprovalResolved,
    EventData,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Raw,
)

log = logging.getLogger("nucleic.approvals")

Responder: TypeAlias = Literal["wait", "deny"] | Callable[[ApprovalRequest | Question], Awaitable[Decision | Answers]]
"""Who answers what policies leave open: anybody who calls `respond` (wait), nobody (deny), or a function."""

NOBODY = "nucleic"
"""`decided_by` where no person, rule or policy decided; the cause then says why the ask closed."""


class Floor(Protocol):
    """What a coordinator needs of its session."""

    def record(self, items: Sequence[Item]) -> None:
        """Append to the transcript, at once. Raises TranscriptFailed."""

    def report(self, text: str) -> None:
        """Append a recoverable error, if the transcript still takes it. Never raises."""

    def start_soon(self, task: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run a task for as long as the session's process lives."""

    def stop_turn(self) -> None:
        """Interrupt the running turn, soon."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the backend can do, as far as it is known now."""


@attrs.define(eq=False)
class OpenAsk:
    """An ask that waits. `scope` ends the tasks that look for an answer; `judged` is set once the policies have spoken."""

    id: str
    ask: Ask
    what: ApprovalRequest | Question
    answer: Answer
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    judged: trio.Event = attrs.field(factory=trio.Event)
    trace: tuple[Trace, ...] = ()
    votes_needed: int = 1
    votes: dict[str, Decision] = attrs.field(factory=dict)

    @property
    def tool_call(self) -> str | None:
        """The tool call that waits."""
        return self.what.tool_call


class Coordinator:
    """The asks of one session."""

    def __init__(
        self,
        floor: Floor,
        *,
        mapper: ApprovalMapper | None,
        seats: Sequence[Seat],
        responder: Responder,
        cwd: Path,
        deadline: float | None = None,
    ) -> None:
        self._floor = floor
        self._mapper = mapper
        self.rules = AlwaysRules(cwd)
        self._seats = [Seat(self.rules, named=True), *seats]
        self._responder = responder
        self._cwd = cwd
        self._deadline = deadline
        self._open: dict[str, OpenAsk] = {}
        self._closed: dict[str, tuple[str, str]] = {}  # who closed it, and how
        self._closing: tuple[Cause, str] | None = None

    @property
    def open_asks(self) -> tuple[ApprovalRequest | Question, ...]:
        """What waits for an answer now, oldest first."""
        return tuple(entry.what for entry in self._open.values())

    def knows(self, ask_id: str) -> bool:
        """Whether an ask of this id is or was open here."""
        return ask_id in self._open or ask_id in self._closed

    # -- the commit step: synchronous, in line order ----------------------------------------------------------------

    def place(
        self, ask: Ask, native: str | None, parent: str | None, answer: Answer
    ) -> tuple[EventData, OpenAsk | None]:
        """The event of an ask at its place, and the ask to begin once it stands there; None: refuse it."""
        try:
            what = self._read(ask)
        except BaseException as raised:
            log_failure(log, "the approval mapper", failure_of(raised))
            what = None
        match what:
            case ApprovalRequest():
                event: EventData = ApprovalRequested(what)
            case Question():
                event = QuestionAsked(what)
            case _:
                return Raw(ask.native), None
        entry = self._open[what.id] = OpenAsk(what.id, ask, what, answer)
        return event, entry

    def _read(self, ask: Ask) -> ApprovalRequest | Question | None:
        what = self._mapper.read(ask) if self._mapper is not None else None
        match what:
            case ApprovalRequest():
                return completed(what, self._cwd)
            case Question():
                return numbered(what)
            case _:
                return None

    def repeats(self, ask: Ask, answer: Answer) -> OpenAsk | None:
        """The open ask that this one names again on the same channel: the wire would take one answer for both."""
        return next((e for e in self._open.values() if e.ask.key == ask.key and e.answer == answer), None)

    def withdrawn(self, key: str, reason: str) -> Iterator[Item]:
        """The events that close what the agent took back."""
        for entry in [entry for entry in self._open.values() if entry.ask.key == key]:
            yield self._closed_by_nobody(entry, reason)

    def expire(self, reason: str, only: OpenAsk | None = None) -> Iterator[tuple[OpenAsk, Item]]:
        """Close what must not wait any longer, one ask or all: the event of each. `tell_denied` follows the append."""
        for entry in list(self._open.values()) if only is None else [only]:
            yield entry, self._closed_by_nobody(entry, reason)

    def tell_denied(self, entry: OpenAsk, reason: str) -> None:
        """Deny an ask on the wire that is closed already."""
        self._tell(entry, Deny(reason))

    def _closed_by_nobody(self, entry: OpenAsk, reason: str) -> Item:
        self._forget(entry, f"{NOBODY} (withdrawn)", Deny(reason))
        return self._resolution(entry, Deny(reason), NOBODY, "withdrawn")

    def begin(self, entry: OpenAsk) -> None:
        """Start to look for an answer; called after the event was appended."""
        if entry.id not in self._open:
            return
        if self._closing is not None:
            cause, reason = self._closing
            self._close(entry, Deny(reason), NOBODY, cause)
        else:
            self._floor.start_soon(self._settle, entry)

    def refuse(self, ask: Ask, answer: Answer) -> None:
        """Answer an ask that was not understood as the protocol refuses."""
        self._reply(ask, None, answer)

    # -- answers ----------------------------------------------------------------------------------------------------

    async def judged(self, ask_id: str, decision: Decision | Answers) -> None:
        """Wait until the policies have spoken, for at most two seconds: no person allows what one of them denies.

        Only an allow waits. It may find the ask closed, or in need of more votes.
        """
        entry = self._open.get(ask_id)
        if entry is not None and isinstance(entry.what, ApprovalRequest) and isinstance(decision, Allow | AllowAlways):
            await entry.judged.wait()

    def respond(self, ask_id: str, decision: Decision | Answers, by: str) -> None:
        """Answer an ask, at once; an allow after `judged`.

        Raises ApprovalClosed when it is not open, Unsupported for an edited input that the backend cannot take, ValueError
        for an answer of the wrong kind. Then the ask stays as it was.
        """
        entry = self._open.get(ask_id)
        if entry is None:
            self._raise_closed(ask_id)
        decision = self._checked(entry, decision)
        if entry.votes_needed > 1 and isinstance(decision, Allow | AllowAlways):
            if any(earlier != decision for earlier in entry.votes.values()):
                entry.votes.clear()  # a vote is for one very thing: another edit starts the count anew
            entry.votes[by] = decision
            if len(entry.votes) < entry.votes_needed:
                text = f"{by} allows {ask_id}: {len(entry.votes)} of {entry.votes_needed} votes."
                self._floor.record([(Notice("votes", text), None, None)])
                return
            by = "+".join(entry.votes)
        self._close(entry, decision, by, "answered")

    def close_all(self, cause: Cause, reason: str, *, reply: Decision | None = None, for_good: bool = False) -> None:
        """Close every open ask on nobody's behalf; `reply` is what the wire is told, a denial unless given.

        `for_good`: whatever is asked from now on closes at once as well.
        """
        if for_good:
            self._closing = cause, reason
        for entry in list(self._open.values()):
            self._close(entry, Deny(reason), NOBODY, cause, told=reply)

    def deny_unrecorded(self, reason: str) -> None:
        """The transcript is lost: deny what is open on the wire alone. What cannot be recorded must not run."""
        for entry in list(self._open.values()):
            self._forget(entry, f"{NOBODY} (transcript failed)", Deny(reason))
            self._tell(entry, Deny(reason))

    def _raise_closed(self, ask_id: str) -> Never:
        by, how = self._closed.get(ask_id, ("", ""))
        if by:
            raise ApprovalClosed(f"{ask_id} was closed already ({how}), by {by}; nothing was changed.", by=by)
        raise ApprovalClosed(f"No ask {ask_id} is open in this session.")

    def _checked(self, entry: OpenAsk, decision: Decision | Answers) -> Decision | Answers:
        if isinstance(entry.what, Question):
            if isinstance(decision, Answers):
                return decision
            raise ValueError(f"{entry.id} is a question; answer it with Answers")
        if not isinstance(decision, Allow | AllowAlways | Deny | CancelRun):
            raise ValueError(f"{entry.id} is an approval; answer it with Allow, AllowAlways, Deny or CancelRun")
        match decision:
            case Allow(updated_input=edited) if edited is not None:
                if not self._floor.capabilities.can_modify_tool_input:
                    raise Unsupported("This backend cannot change a tool's input; allow it as it is, or deny it.")
                self._check_edit(entry, decision)
            case AllowAlways(scope="tool_name_with_pattern", pattern=None | ""):
                raise ValueError("a pattern scope needs a pattern")
            case Deny(reason=""):
                return Deny("denied by the user")
        return decision

    def _check_edit(self, entry: OpenAsk, decision: Allow) -> None:
        """An edit that the wire cannot carry must not be recorded as an allow. The mapper is pure, so it can be asked first."""
        try:
            orjson.dumps(decision.updated_input)
        except TypeError as exc:
            raise ValueError(f"the edited input cannot be written as JSON: {exc}") from exc
        try:
            assert self._mapper is not None
            self._mapper.reply(entry.ask, decision)
        except Exception as exc:
            raise ValueError(f"the agent cannot be given this input: {exc}") from exc

    # -- looking for an answer --------------------------------------------------------------------------------------

    async def _settle(self, entry: OpenAsk) -> None:
        with entry.scope:
            if self._deadline is None:
                await self._decide(entry)
                return
            with trio.move_on_after(self._deadline):
                await self._decide(entry)
                await trio.sleep_forever()
            if entry.id in self._open:
                self._close(entry, Deny(f"nobody answered within {self._deadline:g} s"), NOBODY, "deadline")

    async def _decide(self, entry: OpenAsk) -> None:
        if isinstance(entry.what, ApprovalRequest) and await self._policies_decide(entry, entry.what):
            return
        if self._responder == "deny":
            self._close(entry, Deny("nobody is there to answer"), NOBODY, "no_responder")
        elif callable(self._responder):
            await self._call_responder(entry, self._responder)

    async def _policies_decide(self, entry: OpenAsk, request: ApprovalRequest) -> bool:
        own = [Seat(OWN_TOOLS, named=True)] if entry.ask.own_tool else []
        try:
            verdicts = await consult([*self._seats, *own], request)
        except Exception as exc:
            log_failure(log, "asking the policies", exc)
            self._floor.report(f"The policies could not be asked, so the action is denied: {exc!r}")
            self._close(entry, Deny("the policies could not be asked"), NOBODY, "no_responder")
            return True
        if entry.id not in self._open:
            return True  # answered in the very moment the policies were done: too late for the cancellation to stop us
        entry.trace, entry.votes_needed = verdicts.trace, verdicts.votes
        entry.judged.set()
        verdict, by = verdicts.verdict, verdicts.decided_by
        if verdict is None:
            return False
        try:
            self._checked(entry, verdict)
        except (Unsupported, ValueError) as exc:
            # An edit was the policy's condition; where it cannot be had, people decide.
            entry.trace += (Trace(by.removeprefix("policy:"), "failed", str(exc)),)
            return False
        if isinstance(verdict, Allow) and verdicts.seat == 0:
            rule = self.rules.covering(request)
            by = f"rule:{rule.id}" if rule is not None else by
        self._close(entry, verdict, by, "answered")
        return True

    async def _call_responder(
        self, entry: OpenAsk, responder: Callable[[ApprovalRequest | Question], Awaitable[Decision | Answers]]
    ) -> None:
        try:
            decision = await responder(entry.what)
            self.respond(entry.id, decision, "api")
        except ApprovalClosed:
            pass  # somebody was faster
        except BaseException as raised:
            exc = failure_of(raised)
            log_failure(log, "the responder", exc)
            text = f"The responder failed, so the action is denied: {type(exc).__name__}: {exc}"
            if entry.id in self._open:
                self._floor.report(text)
                self._close(entry, Deny("the responder failed"), NOBODY, "no_responder")

    # -- closing ----------------------------------------------------------------------------------------------------

    def _close(
        self,
        entry: OpenAsk,
        decision: Decision | Answers,
        by: str,
        cause: Cause,
        *,
        told: Decision | None = None,
    ) -> None:
        """Record and answer in one step; nothing waits in between, so neither can be without the other."""
        self._forget(entry, by if cause == "answered" else f"{by} ({cause.replace('_', ' ')})", decision)
        if isinstance(decision, AllowAlways) and isinstance(entry.what, ApprovalRequest):
            self.rules.grant(decision, entry.what)
        try:
            self._floor.record([self._resolution(entry, decision, by, cause)])
        except Exception:
            self._tell(entry, Deny("it could not be recorded"))
            raise
        reply = self._tell(entry, told or decision)
        if told is None and isinstance(decision, CancelRun) and (reply is None or reply.interrupt):
            self._floor.stop_turn()

    def _forget(self, entry: OpenAsk, by: str, decision: Decision | Answers) -> None:
        del self._open[entry.id]
        self._closed[entry.id] = by, DECISION_TYPES[type(decision)].replace("_", " ")
        entry.judged.set()
        entry.scope.cancel()

    @staticmethod
    def _resolution(entry: OpenAsk, decision: Decision | Answers, by: str, cause: Cause) -> Item:
        if isinstance(entry.what, Question):
            answers = decision if isinstance(decision, Answers) else Answers(None)
            return QuestionAnswered(entry.id, answers, by, cause, entry.tool_call), None, None
        assert not isinstance(decision, Answers)
        return ApprovalResolved(entry.id, decision, by, cause, entry.tool_call, entry.trace), None, None

    def _tell(self, entry: OpenAsk, decision: Decision | Answers) -> Reply | None:
        """Put the decision on the wire. A mapper that fails means a refusal, never an allow."""
        if isinstance(decision, AllowAlways) and decision.scope not in self._floor.capabilities.native_always:
            decision = Allow()  # native reach is wider than the session's, or unknown: the rule is ours
        if isinstance(entry.what, Question) and not isinstance(decision, Answers | CancelRun):
            decision = Answers(None)
        reply: Reply | None = None
        try:
            assert self._mapper is not None
            reply = self._mapper.reply(entry.ask, decision)
        except BaseException as raised:
            exc = failure_of(raised)
            log_failure(log, "the approval mapper", exc)
            self._floor.report(f"The reply could not be made, so the ask is refused: {exc!r}")
        self._reply(entry.ask, reply, entry.answer)
        return reply

    def _reply(self, ask: Ask, reply: Reply | None, answer: Answer) -> None:
        try:
            answer(ask, reply)
        except AgentGone:
            pass  # there is nobody to tell, as the end of the run says
        except Exception as exc:
            log.warning("an answer could not be delivered: %s", type(exc).__name__)
            self._floor.report(f"An answer could not be delivered: {exc}")
            if reply is not None:
                self._reply(ask, None, answer)  # a refusal says no word of ours that could be at fault
