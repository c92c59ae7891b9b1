"""How the verdicts of several policies become one, and that being installed makes a run stricter, never looser."""

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from nucleic_core._approvals.policies import PATIENCE, Seat, Verdicts, check_names, consult, seat_policies
from nucleic_core._approvals.rules import FixedRules
from nucleic_core.approvals import Allow, AllowAlways, ApprovalRequest, Deny, Escalate, Risk, Rule
from nucleic_core.errors import BadSettings

REQUEST = ApprovalRequest("Bash", {"command": "ls"}, "Run: ls", risk="execute", command="ls")


@attrs.frozen
class Says:
    """A policy with one verdict, after a while."""

    verdict: Any
    name: str = "says"
    after: float = 0.0

    async def decide(self, request: ApprovalRequest) -> Any:
        await trio.sleep(self.after)
        return self.verdict


@attrs.frozen
class Fails:
    name: str = "fails"

    async def decide(self, request: ApprovalRequest) -> Any:
        raise RuntimeError("broken")


def named(*verdicts: Any) -> list[Seat]:
    return [Seat(v if hasattr(v, "decide") else Says(v), named=True) for v in verdicts]


async def ask(*seats: Seat, request: ApprovalRequest = REQUEST) -> Verdicts:
    return await consult(seats, request)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Allow()], Allow()),
        ([None], None),
        ([None, Allow()], Allow()),
        ([Allow(), Escalate("look")], None),
        ([Allow(), Escalate("look", votes=0)], None),
        ([Allow(), Deny("no")], Deny("no")),
        ([Escalate("look"), Deny("no")], Deny("no")),
        ([Deny("no"), Allow()], Deny("no")),
        ([Allow({"command": "ls -l"}), Allow()], Allow({"command": "ls -l"})),
        ([], None),
    ],
)
async def test_deny_beats_escalate_beats_allow(verdicts: list[Any], expected: Any) -> None:
    assert (await ask(*named(*verdicts))).verdict == expected


async def test_a_deny_without_a_reason_gets_one() -> None:
    assert (await ask(*named(Deny("")))).verdict == Deny("denied by a policy")


async def test_an_allow_that_nobody_named_does_not_count_and_the_trace_says_so() -> None:
    verdicts = await ask(Seat(Says(Allow()), named=False))
    assert verdicts.verdict is None
    assert "not named" in verdicts.trace[0].why


@pytest.mark.parametrize("verdict", [Deny("no"), Escalate("look")])
async def test_a_deny_or_an_escalate_counts_from_everybody(verdict: Any) -> None:
    verdicts = await ask(Seat(Says(Allow()), named=True), Seat(Says(verdict), named=False))
    assert verdicts.verdict == (verdict if isinstance(verdict, Deny) else None)


async def test_the_highest_number_of_votes_counts() -> None:
    assert (await ask(*named(Escalate(votes=2), Escalate(votes=3), Allow()))).votes == 3
    assert (await ask(*named(Escalate(votes=-1)))).votes == 1


async def test_the_trace_says_what_each_policy_said_and_who_decided() -> None:
    verdicts = await ask(*named(Says(None, "a"), Says(Allow(), "b"), Says(Deny("no"), "c"), Says(Escalate("hm"), "d")))
    assert [(t.policy, t.verdict, t.why) for t in verdicts.trace] == [
        ("a", "pass", ""),
        ("b", "allow", ""),
        ("c", "deny", "no"),
        ("d", "escalate", "hm"),
    ]
    assert verdicts.decided_by == "policy:c"


@pytest.mark.parametrize("broken", [Fails(), Says("yes", "odd"), Says(AllowAlways("session"), "odd"), object()])
async def test_a_policy_that_fails_withdraws_every_allow(broken: Any) -> None:
    verdicts = await ask(Seat(Says(Allow()), named=True), Seat(broken, named=False))
    assert verdicts.verdict is None
    assert verdicts.trace[1].verdict == "failed"


async def test_a_deny_stands_beside_a_policy_that_fails() -> None:
    assert (await ask(*named(Fails(), Deny("no")))).verdict == Deny("no")


async def test_a_policy_that_hangs_withdraws_every_allow_after_two_seconds(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    verdicts = await ask(*named(Allow(), Says(Allow(), "slow", after=60), Says(Allow(), "slower", after=90)))
    assert verdicts.verdict is None
    assert [t.verdict for t in verdicts.trace] == ["allow", "timeout", "timeout"]
    assert trio.current_time() - began == PATIENCE == 2.0  # all of them together, not each


async def test_policies_are_asked_at_once(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    assert (await ask(*named(*[Says(Allow(), after=1.5)] * 5))).verdict == Allow()
    assert trio.current_time() - began == 1.5


async def test_an_allow_that_held_up_the_loop_beyond_the_deadline_does_not_count(mock_clock: MockClock) -> None:
    class Blocks:
        name = "blocks"

        async def decide(self, request: ApprovalRequest) -> Any:
            mock_clock.jump(3)
            return Allow()

    verdicts = await ask(*named(Blocks()))
    assert verdicts.verdict is None
    assert verdicts.trace[0].verdict == "timeout"


@pytest.mark.parametrize(
    ("risk", "expected"),
    [
        ("read_only", Allow),
        ("write", Deny),
        ("execute", Deny),
        ("network", Deny),
        ("destructive", Deny),
        ("unknown", Deny),
    ],
)
async def test_read_only_allows_reading_and_denies_the_rest(risk: Risk, expected: type) -> None:
    verdicts = await ask(*seat_policies(["read-only"], []), request=attrs.evolve(REQUEST, risk=risk))
    assert isinstance(verdicts.verdict, expected)


async def test_the_shipped_policies() -> None:
    for name, expected in (("allow", Allow()), ("deny", Deny("this run denies every gated action")), ("ask", None)):
        assert (await ask(*seat_policies([name], []))).verdict == expected


# -- seating ------------------------------------------------------------------------------------------------------------


async def test_shipped_policies_are_asked_only_when_named() -> None:
    assert seat_policies([], []) == []


async def test_a_plugins_policy_is_always_asked_and_allows_only_when_named() -> None:
    given = [("budget", Says(Allow(), "budget"))]
    assert (await ask(*seat_policies([], given))).verdict is None
    assert (await ask(*seat_policies(["budget"], given))).verdict == Allow()


@pytest.mark.parametrize("name", ["allow", "ask", "deny", "read-only"])
async def test_a_plugin_that_calls_itself_or_its_policy_like_a_shipped_one_gains_nothing(name: str) -> None:
    for entry in (name, "sneaky"):
        seats = seat_policies([name], [(entry, Says(Allow(), name))])
        sneaky = next(seat for seat in seats if isinstance(seat.policy, Says))
        assert not sneaky.named
        assert sneaky.name != name  # nor does it stand in the record under that name
    assert (await ask(*seat_policies([], [(name, Says(Allow(), name))]))).verdict is None


async def test_a_policy_object_that_the_run_hands_in_counts_as_named() -> None:
    assert (await ask(*seat_policies([Says(Allow())], []))).verdict == Allow()


async def test_a_policy_that_its_plugin_could_not_build_withdraws_every_allow() -> None:
    seats = seat_policies(["allow"], [("broken", RuntimeError("no config"))])
    verdicts = await ask(*seats)
    assert verdicts.verdict is None
    assert "no config" in verdicts.trace[0].why


async def test_a_policy_without_a_name_is_recorded_by_its_class() -> None:
    class Nameless:
        async def decide(self, request: ApprovalRequest) -> Any:
            return Deny("no")

    assert (await ask(*named(Nameless()))).decided_by == "policy:Nameless"


def test_an_unknown_name_is_refused_and_the_shipped_ones_are_listed() -> None:
    check_names(["allow", "budget", Says(None)], ["budget"], {})
    with pytest.raises(BadSettings, match="ask, deny, allow, read-only"):
        check_names(["alow"], ["budget"], {})


def test_naming_a_plugin_that_could_not_be_loaded_tells_why() -> None:
    broken = {"budget": "ImportError: no module named money", "allow": "it hides a shipped name"}
    with pytest.raises(BadSettings, match="'budget'.*not loaded: ImportError: no module named money"):
        check_names(["budget"], ["budget", "allow"], broken)
    check_names(["allow"], ["budget", "allow"], broken)


async def test_a_fixed_run_asks_nobody_and_denies_what_no_rule_allows(tmp_path: Any) -> None:
    fixed = FixedRules((Rule("allow", tool="Read", max_risk="read_only"),), tmp_path)
    seats = [Seat(fixed, named=True)]
    read = ApprovalRequest("Read", {}, "t", risk="read_only")
    assert (await ask(*seats, request=read)).verdict == Allow()
    assert (await ask(*seats)).verdict == Deny("no rule of this run allows it")
