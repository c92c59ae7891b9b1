"""The coordinator over a fake session and a fake wire: from an ask to exactly one answer."""

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from core_agents import FakeApprovals
from nucleic_core._approvals.coordinator import Coordinator
from nucleic_core._approvals.policies import Seat
from nucleic_core.approvals import Allow, AllowAlways, Answers, CancelRun, Deny, Escalate, Question
from nucleic_core.backend import Ask, Reply
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import AgentGone, ApprovalClosed, TranscriptFailed, Unsupported
from nucleic_core.events import ApprovalRequested, ApprovalResolved, Error, Notice, QuestionAnswered, Raw

NATIVE = {"tool": "Bash", "input": {"command": "ls"}, "call": "call-1"}


class Bench:
    """A coordinator, the floor it stands on, and the wire it answers on; steps are noted in the order they happen."""

    def __init__(self, nursery: trio.Nursery, **options: Any) -> None:
        self.capabilities = options.pop("capabilities", BackendCapabilities(can_modify_tool_input=True))
        self.log: list[tuple[str, Any]] = []
        self.full = False
        self.stops = 0
        self._nursery = nursery
        options = {"mapper": FakeApprovals(), "seats": (), "responder": "wait", "cwd": Path("/repo"), **options}
        self.asks = Coordinator(self, **options)

    # the floor

    def record(self, items: Sequence[Any]) -> None:
        if self.full:
            self.asks.deny_unrecorded("the transcript cannot be written")
            raise TranscriptFailed("disk full")
        self.log.extend(("event", data) for data, _, _ in items)

    def report(self, text: str) -> None:
        self.log.append(("event", Error(text)))

    def start_soon(self, task: Callable[..., Any], *args: Any) -> None:
        self._nursery.start_soon(task, *args)

    def stop_turn(self) -> None:
        self.stops += 1

    # the wire

    def answer(self, ask: Ask, reply: Reply | None) -> None:
        self.log.append(("wire", (ask.key, reply and reply.message)))

    def ask(self, native: Any = NATIVE, key: str = "k", answer: Any = None) -> str:
        event, entry = self.asks.place(Ask(key, native), "ask", None, answer or self.answer)
        self.record([(event, None, None)])
        if entry is None:
            self.asks.refuse(Ask(key, native), answer or self.answer)
            return ""
        self.asks.begin(entry)
        return entry.id

    async def respond(self, ask: str, decision: Any, by: str = "api") -> None:
        await self.asks.judged(ask, decision)
        self.asks.respond(ask, decision, by)

    # what came of it

    @property
    def wire(self) -> list[Any]:
        return [entry for place, entry in self.log if place == "wire"]

    def events(self, kind: type) -> list[Any]:
        return [entry for place, entry in self.log if isinstance(entry, kind)]

    @property
    def resolved(self) -> Any:
        (event,) = self.events(ApprovalResolved)
        return event


@asynccontextmanager
async def bench(**options: Any) -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        yield Bench(nursery, **options)
        nursery.cancel_scope.cancel()


YES: Any = ("k", {"allow": True, "input": None})


def no(reason: str) -> Any:
    return ("k", {"allow": False, "reason": reason})


@attrs.frozen
class Says:
    verdict: Any
    name: str = "says"
    after: float = 0.0

    async def decide(self, request: Any) -> Any:
        await trio.sleep(self.after)
        return self.verdict


def seat(verdict: Any, **more: Any) -> Seat:
    return Seat(Says(verdict, **more), named=True)


# -- exactly once -------------------------------------------------------------------------------------------------------


async def test_an_answer_is_recorded_and_handed_to_the_wire_in_this_order() -> None:
    async with bench() as b:
        ask = b.ask()
        await b.respond(ask, Allow())
        assert b.log[-2:] == [("event", b.resolved), ("wire", YES)]
        assert (b.resolved.decision, b.resolved.decided_by, b.resolved.cause) == (Allow(), "api", "answered")
        assert b.asks.open_asks == ()


async def test_the_first_answer_wins_and_the_second_is_told_whose_it_was() -> None:  # F4-12
    async with bench() as b:
        first, second = b.ask(key="A"), b.ask(key="B")
        await b.respond(first, Allow(), "mac")
        with pytest.raises(ApprovalClosed, match=r"\(allow\), by mac") as closed:
            await b.respond(first, Deny("no"), "phone:1")
        assert closed.value.by == "mac"
        assert [key for key, _ in b.wire] == ["A"]
        assert [request.id for request in b.asks.open_asks] == [second]
        assert b.resolved.decided_by == "mac"


async def test_two_answers_at_the_same_moment_give_one_reply() -> None:
    async with bench() as b:
        ask = b.ask()
        outcomes: list[str] = []

        async def one(by: str, decision: Any) -> None:
            try:
                await b.respond(ask, decision, by)
                outcomes.append(by)
            except ApprovalClosed as closed:
                outcomes.append(f"closed by {closed.by}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "mac", Allow())
            nursery.start_soon(one, "phone", Deny("no"))
        assert len(b.wire) == 1
        winner = b.resolved.decided_by
        assert sorted(outcomes) == sorted([winner, f"closed by {winner}"])


async def test_an_unknown_id_is_closed_by_nobody() -> None:
    async with bench() as b:
        with pytest.raises(ApprovalClosed) as closed:
            await b.respond("nope", Allow())
        assert closed.value.by == ""
        assert not b.asks.knows("nope")


async def test_the_same_name_twice_on_one_channel_is_recognised() -> None:
    async with bench() as b:
        b.ask()
        assert b.asks.repeats(Ask("k", NATIVE), b.answer) is not None
        assert b.asks.repeats(Ask("other", NATIVE), b.answer) is None
        assert b.asks.repeats(Ask("k", NATIVE), lambda ask, reply: None) is None  # a request of its own elsewhere


# -- what an answer may be ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [Answers({"q": "x"}), None, "yes", True, Escalate()])
async def test_an_answer_of_the_wrong_kind_leaves_the_ask_open(wrong: Any) -> None:
    async with bench() as b:
        ask = b.ask()
        with pytest.raises(ValueError, match="is an approval"):
            await b.respond(ask, wrong)
        assert b.asks.open_asks
        assert b.wire == []


async def test_a_question_takes_answers_alone() -> None:
    async with bench() as b:
        ask = b.ask({"options": ["a", "b"]})
        assert isinstance(b.asks.open_asks[0], Question)
        with pytest.raises(ValueError, match="is a question"):
            await b.respond(ask, Allow())
        await b.respond(ask, Answers({"q": "a"}))
        assert b.wire == [("k", {"answers": {"q": "a"}})]
        assert b.events(QuestionAnswered)[0].decision == Answers({"q": "a"})


async def test_an_edit_goes_to_the_wire_where_the_backend_can_take_it() -> None:
    async with bench() as b:
        await b.respond(b.ask(), Allow({"command": "ls -l"}))
        assert b.wire == [("k", {"allow": True, "input": {"command": "ls -l"}})]


async def test_an_edit_that_the_backend_cannot_take_leaves_the_ask_open() -> None:
    async with bench(capabilities=BackendCapabilities()) as b:
        ask = b.ask()
        with pytest.raises(Unsupported):
            await b.respond(ask, Allow({"command": "ls -l"}))
        await b.respond(ask, Deny("no"))
        assert b.wire == [no("no")]


async def test_an_edit_that_is_no_json_leaves_the_ask_open() -> None:
    async with bench() as b:
        ask = b.ask()
        with pytest.raises(ValueError, match="JSON"):
            await b.respond(ask, Allow({"command": object()}))
        assert b.asks.open_asks


async def test_a_pattern_scope_needs_a_pattern() -> None:
    async with bench() as b:
        ask = b.ask()
        with pytest.raises(ValueError, match="pattern"):
            await b.respond(ask, AllowAlways("tool_name_with_pattern"))
        assert b.asks.open_asks


async def test_a_deny_without_a_reason_gets_one() -> None:
    async with bench() as b:
        await b.respond(b.ask(), Deny(""))
        assert b.wire == [no("denied by the user")]


async def test_cancel_run_stops_the_turn_by_other_means_where_the_reply_asks_for_it() -> None:
    async with bench() as b:
        await b.respond(b.ask(), CancelRun("enough"))
        assert b.wire == [no("enough")]
        assert b.stops == 1


# -- always -------------------------------------------------------------------------------------------------------------


async def test_allow_always_is_told_as_allow_and_answers_the_next_by_its_rule() -> None:
    async with bench() as b:
        await b.respond(b.ask(key="1"), AllowAlways("session"))
        assert b.wire == [("1", {"allow": True, "input": None})]
        (rule,) = b.asks.rules.rules
        b.ask(key="2")
        await wait_all_tasks_blocked()
        assert b.wire[1] == ("2", {"allow": True, "input": None})
        second = b.events(ApprovalResolved)[1]
        assert second.decided_by == f"rule:{rule.id}"
        assert second.trace[0].policy == "rules"


async def test_a_denying_policy_beats_an_always_rule() -> None:
    async with bench(seats=[Seat(Says(None, "later"), named=True)]) as b:
        await b.respond(b.ask(key="1"), AllowAlways("tool_name"))
        object.__setattr__(b.asks._seats[1].policy, "verdict", Deny("not any more"))
        b.ask(key="2")
        await wait_all_tasks_blocked()
        assert b.wire[1] == ("2", {"allow": False, "reason": "not any more"})


async def test_allow_always_is_told_natively_where_the_native_reach_is_the_sessions() -> None:
    class Mapper(FakeApprovals):
        def reply(self, ask: Ask, decision: Any) -> Reply:
            return Reply(type(decision).__name__)

    capabilities = BackendCapabilities(native_always=frozenset({"session"}))
    async with bench(mapper=Mapper(), capabilities=capabilities) as b:
        await b.respond(b.ask(key="1"), AllowAlways("session"))
        await b.respond(b.ask({**NATIVE, "tool": "Edit"}, key="2"), AllowAlways("tool_name"))
        assert b.wire == [("1", "AllowAlways"), ("2", "Allow")]


# -- policies before people ---------------------------------------------------------------------------------------------


async def test_no_person_is_faster_than_a_policy_that_denies(autojump_clock: MockClock) -> None:
    async with bench(seats=[seat(Deny("never"), name="guard", after=1.5)]) as b:
        with pytest.raises(ApprovalClosed) as closed:
            await b.respond(b.ask(), Allow())
        assert closed.value.by == "policy:guard"
        assert b.wire == [no("never")]


async def test_a_person_may_deny_before_the_policies_have_spoken(autojump_clock: MockClock) -> None:
    async with bench(seats=[seat(Allow(), after=1.5)]) as b:
        began = trio.current_time()
        await b.respond(b.ask(), Deny("no"))
        assert trio.current_time() == began
        await trio.sleep(3)
        assert b.wire == [no("no")]


async def test_a_two_person_rule_holds_also_for_the_fastest_person(autojump_clock: MockClock) -> None:
    async with bench(seats=[seat(Escalate("two", votes=2), after=1.0)]) as b:
        ask = b.ask()
        await b.respond(ask, Allow(), "ann")
        assert b.wire == []
        await b.respond(ask, Allow(), "ann")  # the same person again is no second vote
        assert b.wire == []
        await b.respond(ask, Allow(), "bob")
        assert b.wire == [YES]
        assert b.resolved.decided_by == "ann+bob"
        assert len(b.events(Notice)) == 2


async def test_votes_are_for_one_very_thing() -> None:
    async with bench(seats=[seat(Escalate(votes=2))]) as b:
        ask = b.ask()
        await b.respond(ask, Allow(), "ann")
        await b.respond(ask, Allow({"command": "rm"}), "bob")
        assert b.wire == []
        await b.respond(ask, Deny("no"), "cat")
        assert b.wire == [no("no")]


async def test_a_wait_for_the_policies_that_is_cancelled_changes_nothing(autojump_clock: MockClock) -> None:
    async with bench(seats=[seat(None, after=1.5)]) as b:
        ask = b.ask()
        with trio.move_on_after(0.1) as scope:
            await b.respond(ask, Allow())
        assert scope.cancelled_caught
        assert b.wire == []
        await b.respond(ask, Allow())
        assert b.wire == [YES]


async def test_a_policy_decides_and_the_record_names_it_with_the_trace() -> None:
    async with bench(seats=[seat(Allow(), name="trusty")]) as b:
        b.ask()
        await wait_all_tasks_blocked()
        assert b.wire == [YES]
        assert b.resolved.decided_by == "policy:trusty"
        assert [(t.policy, t.verdict) for t in b.resolved.trace] == [("rules", "pass"), ("trusty", "allow")]


async def test_a_policy_named_rules_is_not_taken_for_a_rule() -> None:
    async with bench(seats=[seat(Allow(), name="rules")]) as b:
        b.ask()
        await wait_all_tasks_blocked()
        assert b.resolved.decided_by == "policy:rules"


async def test_an_edit_by_policy_goes_to_people_where_the_backend_cannot_take_it() -> None:
    async with bench(seats=[seat(Allow({"command": "ls"}))], capabilities=BackendCapabilities()) as b:
        b.ask()
        await wait_all_tasks_blocked()
        assert b.wire == []
        assert b.asks.open_asks


async def test_a_question_asks_no_policy() -> None:
    async with bench(seats=[seat(Deny("no"))]) as b:
        b.ask({"options": ["a"]})
        await wait_all_tasks_blocked()
        assert b.asks.open_asks


# -- responders ---------------------------------------------------------------------------------------------------------


async def test_responder_deny_never_waits() -> None:
    async with bench(responder="deny") as b:
        b.ask()
        b.ask({"options": ["a"]}, key="q")
        await wait_all_tasks_blocked()
        assert sorted(b.wire) == [no("nobody is there to answer"), ("q", {"answers": None})]
        assert (b.resolved.decided_by, b.resolved.cause) == ("nucleic", "no_responder")


async def test_responder_deny_comes_after_the_policies() -> None:
    async with bench(responder="deny", seats=[seat(Allow())]) as b:
        b.ask()
        await wait_all_tasks_blocked()
        assert b.wire == [YES]


async def test_a_responder_function_answers() -> None:
    async def responder(what: Any) -> Any:
        return Answers({"q": "a"}) if isinstance(what, Question) else Allow()

    async with bench(responder=responder) as b:
        b.ask()
        b.ask({"options": ["a"]}, key="q")
        await wait_all_tasks_blocked()
        assert sorted(b.wire) == [YES, ("q", {"answers": {"q": "a"}})]


@pytest.mark.parametrize("wrong", ["raise", Answers(None), None, "allow", Allow({"x": object()})])
async def test_a_responder_that_fails_or_answers_nonsense_denies(wrong: Any) -> None:
    async def responder(what: Any) -> Any:
        if wrong == "raise":
            raise RuntimeError("broken")
        return wrong

    async with bench(responder=responder) as b:
        b.ask()
        await wait_all_tasks_blocked()
        assert b.wire == [no("the responder failed")]
        assert (b.resolved.decided_by, b.resolved.cause) == ("nucleic", "no_responder")
        assert "responder failed" in b.events(Error)[0].message


async def test_a_responder_that_hangs_leaves_the_ask_to_others_and_is_cancelled_by_their_answer() -> None:
    cancelled = False

    async def responder(what: Any) -> Any:
        nonlocal cancelled
        try:
            await trio.sleep_forever()
        finally:
            cancelled = True

    async with bench(responder=responder) as b:
        ask = b.ask()
        await wait_all_tasks_blocked()
        await b.respond(ask, Allow(), "console")
        await wait_all_tasks_blocked()
        assert cancelled
        assert b.wire == [YES]


async def test_a_late_answer_of_a_responder_never_succeeds() -> None:
    go = trio.Event()

    async def responder(what: Any) -> Any:
        with trio.CancelScope(shield=True):
            await go.wait()
        return Allow()

    async with bench(responder=responder) as b:
        b.ask()
        await wait_all_tasks_blocked()
        b.asks.close_all("interrupted", "stop")
        go.set()
        await wait_all_tasks_blocked()
        assert b.wire == [no("stop")]
        assert len(b.events(ApprovalResolved)) == 1


# -- other ends ---------------------------------------------------------------------------------------------------------


async def test_a_deadline_denies_and_never_cancels(autojump_clock: MockClock) -> None:
    async with bench(deadline=30.0) as b:
        ask = b.ask()
        await trio.sleep(29.9)
        assert b.asks.open_asks
        await trio.sleep(0.2)
        assert b.wire == [no("nobody answered within 30 s")]
        assert b.resolved.cause == "deadline"
        assert b.stops == 0
        with pytest.raises(ApprovalClosed, match="deadline"):
            await b.respond(ask, Allow())


async def test_an_answer_in_time_stops_the_deadline(autojump_clock: MockClock) -> None:
    async with bench(deadline=30.0) as b:
        await b.respond(b.ask(), Allow())
        await trio.sleep(60)
        assert b.wire == [YES]


async def test_a_deadline_ends_a_responder_that_hangs(autojump_clock: MockClock) -> None:
    async with bench(deadline=30.0, responder=lambda what: trio.sleep_forever()) as b:
        b.ask()
        await trio.sleep(31)
        assert b.resolved.cause == "deadline"


async def test_an_ask_that_the_agent_takes_back_is_closed_and_not_answered() -> None:
    async with bench() as b:
        ask = b.ask()
        b.record(list(b.asks.withdrawn("k", "changed its mind")))
        assert b.resolved.cause == "withdrawn"
        assert b.wire == []
        with pytest.raises(ApprovalClosed, match="withdrawn"):
            await b.respond(ask, Allow())
        assert list(b.asks.withdrawn("k", "again")) == []
        assert list(b.asks.withdrawn("unknown", "?")) == []


async def test_an_interrupt_closes_all_and_tells_the_wire_to_stop_without_stopping_the_turn_twice() -> None:
    async with bench() as b:
        b.ask()
        b.asks.close_all("interrupted", "interrupted", reply=CancelRun("interrupted"))
        assert b.resolved.decision == Deny("interrupted")
        assert b.resolved.cause == "interrupted"
        assert b.wire == [no("interrupted")]
        assert b.stops == 0  # whoever interrupts does that


async def test_what_is_asked_after_the_end_closes_at_once() -> None:
    async with bench(seats=[seat(Allow())], responder="wait") as b:
        b.asks.close_all("session_ended", "over", for_good=True)
        b.ask()
        await wait_all_tasks_blocked()
        assert b.wire == [no("over")]
        assert b.resolved.cause == "session_ended"


async def test_a_turns_end_closes_what_is_open_then_and_denies_it_on_the_wire() -> None:
    async with bench() as b:
        b.ask()
        for entry, item in list(b.asks.expire("the turn is over")):
            b.record([item])
            b.asks.tell_denied(entry, "the turn is over")
        assert b.resolved.cause == "withdrawn"
        assert b.wire == [no("the turn is over")]


# -- failures -----------------------------------------------------------------------------------------------------------


async def test_an_answer_that_cannot_be_recorded_is_a_denial_on_the_wire() -> None:
    async with bench() as b:
        ask = b.ask()
        b.full = True
        with pytest.raises(TranscriptFailed):
            await b.respond(ask, Allow())
        assert b.wire == [no("it could not be recorded")]


async def test_a_lost_transcript_denies_all_that_is_open() -> None:
    async with bench() as b:
        b.ask(key="1")
        b.ask(key="2")
        b.full = True
        b.asks.deny_unrecorded("gone")
        assert b.wire == [(key, {"allow": False, "reason": "gone"}) for key in ("1", "2")]
        assert b.asks.open_asks == ()


async def test_a_policys_allow_that_cannot_be_recorded_is_a_denial_on_the_wire() -> None:
    async with trio.open_nursery() as nursery:
        b = Bench(nursery, seats=[seat(Allow(), after=0.0)])
        b.start_soon = lambda task, *args: nursery.start_soon(_ignoring, task, *args)  # type: ignore[method-assign]
        b.ask()
        b.full = True
    assert b.wire == [no("it could not be recorded")]


async def _ignoring(task: Any, *args: Any) -> None:
    try:
        await task(*args)
    except TranscriptFailed:
        pass


class OddMapper:
    """A mapper that is at fault in one way."""

    def __init__(self, read: Any = None, reply: Any = None) -> None:
        self._read, self._reply = read, reply

    def read(self, ask: Ask) -> Any:
        return FakeApprovals().read(ask) if self._read is None else self._read()

    def reply(self, ask: Ask, decision: Any) -> Any:
        return self._reply()


def boom() -> Any:
    raise RuntimeError("boom")


def odd_title() -> Any:
    return attrs.evolve(FakeApprovals().read(Ask("k", NATIVE)), title=None)  # type: ignore[misc]


@pytest.mark.parametrize(
    "mapper", [None, OddMapper(boom), OddMapper(lambda: None), OddMapper(lambda: 5), OddMapper(odd_title)]
)
async def test_an_ask_that_is_not_understood_is_refused_aloud(mapper: Any) -> None:
    async with bench(mapper=mapper) as b:
        assert b.ask() == ""
        assert b.wire == [("k", None)]
        assert b.events(Raw) == [Raw(NATIVE)]
        assert b.events(ApprovalRequested) == []
        assert b.asks.open_asks == ()


async def test_a_mapper_that_fails_to_reply_refuses_and_never_allows() -> None:
    async with bench(mapper=OddMapper(reply=boom)) as b:
        await b.respond(b.ask(), Allow())
        assert b.wire == [("k", None)]
        assert "boom" in b.events(Error)[0].message


async def test_a_wire_that_is_gone_costs_no_error() -> None:
    def gone(ask: Ask, reply: Reply | None) -> None:
        raise AgentGone("gone")

    async with bench() as b:
        await b.respond(b.ask(answer=gone), Allow())
        assert b.events(Error) == []


async def test_a_driver_that_fails_to_answer_is_reported() -> None:
    async with bench() as b:
        await b.respond(b.ask(answer=lambda ask, reply: boom()), Allow())
        assert "could not be delivered" in b.events(Error)[0].message


async def test_policies_that_cannot_be_asked_at_all_deny(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("nucleic_core._approvals.coordinator.consult", broken)
    async with bench() as b:
        b.ask()
        await wait_all_tasks_blocked()
        assert b.wire == [no("the policies could not be asked")]


async def test_ids_are_short_and_unique() -> None:
    async with bench() as b:
        ids = {b.ask(key=str(i)) for i in range(200)}
        assert len(ids) == 200
        assert all(len(ask) == 10 for ask in ids)
        assert all(b.asks.knows(ask) for ask in ids)


@pytest.mark.parametrize("edited", [{"path": Path("/x")}, {"names": {"a"}}, object(), {"n": 10**400}, {object(): 1}])
async def test_a_policys_edit_that_is_no_json_leaves_the_ask_to_people(edited: Any) -> None:
    async with bench(seats=[seat(Allow(edited))]) as b:
        ask = b.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert b.wire == []
        await b.respond(ask, Deny("no"))
        assert b.wire == [no("no")]
        assert [trace.verdict for trace in b.resolved.trace] == ["pass", "allow", "failed"]


async def test_a_reply_that_cannot_be_delivered_becomes_a_refusal() -> None:
    delivered: list[Any] = []

    def answer(ask: Ask, reply: Reply | None) -> None:
        if reply is not None:
            raise TypeError("no such JSON")
        delivered.append((ask.key, reply))

    async with bench() as b:
        await b.respond(b.ask(answer=answer), Allow())
        assert delivered == [("k", None)]
        assert len(b.events(Error)) == 1


@pytest.mark.parametrize("failure", [TranscriptFailed("full"), OverflowError("too big"), RuntimeError("a bug")])
async def test_whatever_keeps_an_allow_from_being_recorded_the_wire_is_told_no(failure: Exception) -> None:
    async with bench() as b:
        ask = b.ask()
        await trio.testing.wait_all_tasks_blocked()

        def fail(items: Any) -> None:
            raise failure

        b.record = fail  # type: ignore[method-assign]
        with pytest.raises(type(failure)):
            await b.respond(ask, Allow())
        assert b.wire == [no("it could not be recorded")]


async def test_a_responder_that_exits_is_a_denial() -> None:
    async def responder(what: Any) -> Any:
        raise SystemExit(3)

    async with bench(responder=responder) as b:
        b.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert b.resolved.cause == "no_responder"
        assert b.wire == [no("the responder failed")]


async def test_an_edit_that_the_mapper_can_make_no_reply_of_is_refused_and_leaves_the_ask_open() -> None:
    class Strict(FakeApprovals):
        def reply(self, ask: Ask, decision: Any) -> Reply:
            if isinstance(decision, Allow) and not isinstance(decision.updated_input, dict | None):
                raise ValueError("an object, please")
            return super().reply(ask, decision)

    async with bench(mapper=Strict()) as b:
        ask = b.ask()
        with pytest.raises(ValueError, match="cannot be given this input: an object, please"):
            await b.respond(ask, Allow([1]))
        assert b.wire == []
        assert b.events(ApprovalResolved) == []
        await b.respond(ask, Allow())
        assert b.wire == [YES]


@pytest.mark.parametrize("what", ["read", "reply"])
async def test_a_mapper_that_exits_refuses_the_ask(what: str) -> None:
    class Quitting(FakeApprovals):
        def read(self, ask: Ask) -> Any:
            return sys.exit(3) if what == "read" else super().read(ask)

        def reply(self, ask: Ask, decision: Any) -> Reply:
            return sys.exit(3)

    async with bench(mapper=Quitting()) as b:
        ask = b.ask()
        if ask:
            await b.respond(ask, Allow())
        assert b.wire == [("k", None)]
