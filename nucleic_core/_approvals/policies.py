"""Policies: the four that are shipped, and how the verdicts of several become one.

Being installed makes a run stricter, never looser: a Deny or an Escalate counts from every policy, an Allow only from
one that the run or the user's settings name. A policy that raises or takes too long withdraws every Allow.
"""

import logging
from collections.abc import Mapping, Sequence

import attrs
import trio

from nucleic_core._faults import failure_of, log_failure
from nucleic_core.approvals import Allow, ApprovalPolicy, ApprovalRequest, Deny, Escalate, Trace, Verdict
from nucleic_core.errors import BadSettings

log = logging.getLogger("nucleic.policy")

PATIENCE = 2.0
"""Seconds that all policies together have for one request."""


@attrs.frozen
class _Shipped:
    name: str
    verdict: Verdict

    async def decide(self, request: ApprovalRequest) -> Verdict:
        return self.verdict


@attrs.frozen
class _ReadOnly:
    name: str = "read-only"

    async def decide(self, request: ApprovalRequest) -> Verdict:
        if request.risk == "read_only":
            return Allow()
        return Deny(f"this run may only read, and {request.tool} is {(request.risk or 'unknown').replace('_', ' ')}")


OWN_TOOLS = _Shipped("own tools", Allow())
"""Sits at the table for asks about calls of our own tools, and for no other."""

SHIPPED: dict[str, ApprovalPolicy] = {
    "ask": _Shipped("ask", Escalate("the policy asks a person each time")),
    "deny": _Shipped("deny", Deny("this run denies every gated action")),
    "allow": _Shipped("allow", Allow()),
    "read-only": _ReadOnly(),
}
"""Built by name and asked only when named."""


@attrs.frozen
class Seat:
    """A policy at the table, under the name it has in the record. `named`: its Allow counts."""

    policy: ApprovalPolicy
    named: bool
    name: str = attrs.field()

    @name.default
    def _own_name(self) -> str:
        try:
            return str(self.policy.name)
        except BaseException as exc:  # it is somebody's property, or missing; `decide` may do all the same
            failure_of(exc)
            return type(self.policy).__name__


@attrs.frozen
class Broken:
    """In the place of a policy that its plugin could not build, or of a plugin that could not be loaded.

    It might have denied, so it withdraws every Allow.
    """

    name: str
    error: Exception

    async def decide(self, request: ApprovalRequest) -> Verdict:
        """Fail."""
        raise self.error


@attrs.frozen
class Verdicts:
    """What the table decided: `decided_by` names the deciding policy, `seat` its place; verdict None: people must."""

    verdict: Allow | Deny | None
    decided_by: str
    votes: int
    seat: int | None
    trace: tuple[Trace, ...]


def shipped(name: str) -> ApprovalPolicy:
    """A shipped policy by its name."""
    try:
        return SHIPPED[name]
    except KeyError:
        raise BadSettings(f"No policy is called {name!r}. Shipped: {', '.join(SHIPPED)}.") from None


def check_names(wanted: Sequence[str | ApprovalPolicy], plugins: Sequence[str], broken: Mapping[str, str]) -> None:
    """Raise BadSettings for a policy that nobody here can give, before anything is begun.

    `broken`: which of the plugins could not be loaded, and why.
    """
    for item in wanted:
        if isinstance(item, str) and item not in SHIPPED:
            if item in broken:
                raise BadSettings(
                    f"The policy {item!r} cannot be had, its plugin is not loaded: {broken[item]}. Mend or uninstall it."
                )
            if item not in plugins:
                shipped(item)


def seat_policies(
    wanted: Sequence[str | ApprovalPolicy], given: Sequence[tuple[str, ApprovalPolicy | Exception]]
) -> list[Seat]:
    """Everybody at the table: those the run names or hands in, and all that plugins give.

    A name is a shipped policy's or an installed plugin's entry point. A plugin cannot become named by calling its policy
    as a trusted one is called: its own name for it is not looked at, and the shipped names are ours. In the record, too,
    a plugin's policy stands under its entry point's name.
    """
    names = {item for item in wanted if isinstance(item, str)}
    plugins = dict(given)
    seats = [
        Seat(
            Broken(name, policy) if isinstance(policy, Exception) else policy,
            named=name in names - SHIPPED.keys(),
            name=f"plugin {name}" if name in (*SHIPPED, "rules", "fixed", OWN_TOOLS.name) else name,
        )
        for name, policy in plugins.items()
    ]
    for item in wanted:
        if not isinstance(item, str):
            seats.append(Seat(item, named=True))
        elif item in SHIPPED or item not in plugins:
            seats.append(Seat(shipped(item), named=True))
    return seats


async def consult(seats: Sequence[Seat], request: ApprovalRequest) -> Verdicts:
    """Ask every policy at once, under one deadline. Deny beats Escalate beats Allow."""
    traces: dict[int, Trace] = {}
    verdicts: dict[int, Verdict] = {}
    started = trio.current_time()

    def note(seat: int, verdict: str, why: str = "") -> None:
        ms = round((trio.current_time() - started) * 1000, 3)
        traces[seat] = Trace(seats[seat].name, verdict, why, ms)

    async def ask(seat: int) -> None:
        try:
            verdict = await seats[seat].policy.decide(request)
            if not isinstance(verdict, Allow | Deny | Escalate | None):
                raise TypeError(f"a policy must return Allow, Deny, Escalate or None, not {verdict!r}")
        except BaseException as exc:
            failure = failure_of(exc)
            log_failure(log, f"the policy {seats[seat].name}", failure)
            note(seat, "failed", f"{type(failure).__name__}: {failure}")
            return
        if isinstance(verdict, Allow) and trio.current_time() - started > PATIENCE:
            return  # it held up everything else meanwhile, the deadline included
        verdicts[seat] = verdict
        why = verdict.reason if isinstance(verdict, Deny | Escalate) else ""
        if isinstance(verdict, Allow) and not seats[seat].named:
            why = "not named by this run, so its allow does not count"
        note(seat, type(verdict).__name__.lower() if verdict is not None else "pass", why)

    with trio.move_on_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for seat in range(len(seats)):
                nursery.start_soon(ask, seat)
    for seat in range(len(seats)):
        if seat not in traces:
            note(seat, "timeout", f"no answer within {PATIENCE:g} s")

    trace = tuple(traces[seat] for seat in range(len(seats)))
    deny = next((s for s, v in verdicts.items() if isinstance(v, Deny)), None)
    if deny is not None:
        return Verdicts(_as_deny(verdicts[deny]), f"policy:{seats[deny].name}", 1, deny, trace)
    escalations = [v.votes for v in verdicts.values() if isinstance(v, Escalate)]
    if not escalations and len(verdicts) == len(seats):
        for seat in range(len(seats)):
            verdict = verdicts[seat]
            if isinstance(verdict, Allow) and seats[seat].named:
                return Verdicts(verdict, f"policy:{seats[seat].name}", 1, seat, trace)
    return Verdicts(None, "", max([1, *escalations]), None, trace)


def _as_deny(verdict: Verdict) -> Deny:
    assert isinstance(verdict, Deny)
    return verdict if verdict.reason else Deny("denied by a policy")
