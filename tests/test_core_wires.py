"""Asks, inputs and extensions over scripted agents: what a wire may do to an approval, a message, a plugin's part."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio

import nucleic_core
from core_agents import (
    FakeDecoder,
    FakeDriver,
    Scripted,
    events_of,
    extension,
    kinds,
    only,
    open_fake,
    wait_for,
)
from nucleic_core import (
    AgentGone,
    Allow,
    BackendBroken,
    BackendCapabilities,
    BackendMissing,
    Deny,
    Unsupported,
)
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    Error,
    InputAccepted,
    Notice,
    Raw,
    RunFinished,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    UserMessage,
)
from nucleic_core.hookspecs import hookimpl


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.INTERRUPT_GRACE", 0.5)


ASK = 'tell("ask", key="1", tool="Bash", input={"command": "ls"}, call="c1")'


# -- asks ---------------------------------------------------------------------------------------------------------------


async def test_several_asks_may_be_open_and_are_answered_in_any_order(tmp_path: Path) -> None:
    script = """prompt()
for n in "123": tell("ask", key=n, tool="Bash", input={"command": n})
got = [hear() for _ in range(3)]
done(text=" ".join(f"{a['key']}{a['allow']}" for a in got))"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        await wait_for(session, ApprovalRequested, 3)
        first, second, third = session.open_asks
        await session.respond(third.id, Allow())
        await session.respond(first.id, Deny("no"))
        assert [ask.id for ask in session.open_asks] == [second.id]
        await session.respond(second.id, Allow())
        assert (await session.result()).final_text == "3True 1False 2True"


@pytest.mark.parametrize("other", ["ls", "rm -rf /"])
async def test_the_same_ask_id_twice_gets_one_answer_and_never_another_calls_allow(tmp_path: Path, other: str) -> None:
    script = f"""prompt(); {ASK}
tell("ask", key="1", tool="Bash", input={{"command": {other!r}}}, call="c1")
tell("asked"); first = hear(); tell("answer", allow=first["allow"])
second = hear(); tell("extra", got=second)"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:  # fault 7
        ask = (await wait_for(session, ApprovalRequested)).request.id
        await wait_for(session, Raw, 2)
        if other == "ls":
            await session.respond(ask, Allow())
        await wait_for(session, Raw, 3)
        await trio.sleep(0.05)
        assert session.open_asks == ()
    events = await _transcript_events(session)
    raws = [e["value"] for e in events if e["kind"] == "raw"]
    assert [r["allow"] for r in raws if r["t"] == "answer"] == [other == "ls"]
    assert not any(r["t"] == "extra" and "key" in r["got"] for r in raws)
    assert len([e for e in events if e["kind"] == "approval_resolved"]) == 1


async def _transcript_events(session: Any) -> list[Any]:
    import orjson

    path = Path(os.environ["NUCLEIC_HOME"]) / "sessions" / session.id / "transcript.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()[1:]]


async def test_an_ask_that_is_not_understood_is_refused_aloud(tmp_path: Path) -> None:
    script = 'prompt(); tell("ask", key="1", what="?"); answer = hear(); done(text=str(answer["allow"]))'
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
        assert (await session.result()).final_text == "None"
    assert only(events, Error).code == "unknown_ask"
    assert only(events, Raw).value["what"] == "?"


async def test_without_a_mapper_every_ask_is_refused(tmp_path: Path) -> None:
    script = f'prompt(); {ASK}; answer = hear(); done(text=str(answer["allow"]))'
    async with open_fake(Scripted(script, mapper=None), cwd=tmp_path) as session:
        assert (await session.result()).final_text == "None"


async def test_an_ask_that_is_taken_back_is_closed(tmp_path: Path) -> None:
    script = f'prompt(); {ASK}; tell("taken_back", key="1"); done(text="x")'
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
    assert only(events, ApprovalResolved).cause == "withdrawn"


async def test_an_ask_and_its_withdrawal_in_one_breath_start_nothing(tmp_path: Path) -> None:
    script = """prompt(); out = []
sys.stdout.write('{"t": "ask", "key": "1", "tool": "Bash", "input": {}}\\n{"t": "taken_back", "key": "1"}\\n')
sys.stdout.flush(); time.sleep(0.1); done(text="x")"""
    async with open_fake(Scripted(script), cwd=tmp_path, policies=["allow"]) as session:
        events = await events_of(session)
    assert only(events, ApprovalResolved).cause == "withdrawn"


async def test_an_ask_left_open_by_its_turn_is_closed_and_the_next_turns_ask_is_not(tmp_path: Path) -> None:
    lines = [
        '{"t": "ask", "key": "old", "tool": "Bash", "input": {}}',
        '{"t": "done", "outcome": "completed", "more": false}',
        '{"t": "turn"}',
        '{"t": "ask", "key": "new", "tool": "Bash", "input": {}}',
    ]
    script = f"""prompt(); sys.stdout.write({chr(10).join(lines) + chr(10)!r}); sys.stdout.flush()
answers = [hear() for _ in range(2)]
done(text=" ".join(f"{{a['key']}}={{a['allow']}}" for a in answers))"""
    async with open_fake(Scripted(script), cwd=tmp_path, keep_open=True) as session:
        await wait_for(session, ApprovalRequested, 2)
        (new,) = session.open_asks
        await session.respond(new.id, Allow())
        assert (await wait_for(session, TurnCompleted, 2)).final_text == "old=False new=True"


async def test_an_ask_may_come_before_the_line_that_shows_its_call(tmp_path: Path) -> None:
    script = f"""prompt(); {ASK}; hear(); tell("call", id="c1", tool="Bash", input={{"command": "ls"}})
tell("result", id="c1"); done(text="x")"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session, Allow())
    relevant = [k for k in kinds(events) if k.startswith(("tool", "approval"))]
    assert relevant == [
        "tool_call_started",
        "tool_call_completed",
        "approval_requested",
        "approval_resolved",
        "tool_result",
    ]


async def test_what_is_asked_while_the_session_ends_is_denied_and_allowed_by_nobody(tmp_path: Path) -> None:
    script = f"""prompt(); tell("say", text="busy")
while True:
    message = hear()
    if "stop" in message:
        {ASK}
        answer = hear(); tell("answer", allow=answer["allow"]); done("interrupted"); stay()"""
    async with open_fake(Scripted(script), cwd=tmp_path, policies=["allow"]) as session:
        await wait_for(session, AssistantText)
    events = await _transcript_events(session)
    assert [e["value"]["allow"] for e in events if e["kind"] == "raw"] == [False]
    (resolved,) = [e for e in events if e["kind"] == "approval_resolved"]
    assert resolved["cause"] == "session_ended"
    assert events[-1]["outcome"] == "interrupted"


# -- inputs -------------------------------------------------------------------------------------------------------------


async def test_a_backend_that_takes_no_follow_ups_says_so_and_takes_the_next_message_between_turns(
    tmp_path: Path,
) -> None:
    capabilities = BackendCapabilities(honours=frozenset())
    plugin = Scripted("while True: prompt(); time.sleep(0.1); done(text='x')", capabilities=capabilities)
    async with open_fake(plugin, cwd=tmp_path, keep_open=True) as session:
        with pytest.raises(Unsupported, match="while a turn runs"):
            await session.send("more")
        await wait_for(session, TurnCompleted)
        await session.send("more")
        await session.finish()
        await session.result()
        assert kinds(await events_of(session)).count("turn_completed") == 2


async def test_a_prompt_that_the_agent_refuses_ends_the_run(tmp_path: Path) -> None:
    script = "message = hear(); tell('refused', input=message['id']); stay()"
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        with trio.fail_after(10):
            assert (await session.result()).outcome == "errored"


async def test_the_run_waits_for_the_background_turns_that_were_announced(tmp_path: Path) -> None:
    script = """prompt(); done(text="one", more=True); time.sleep(0.2)
tell("turn", origin="agent"); done(text="two"); stay()"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        await wait_for(session, TurnCompleted)
        await session.finish()
        result = await session.result()
    assert result.final_text == "two"


async def test_the_turns_of_a_sub_agent_end_neither_the_run_nor_its_asks(tmp_path: Path) -> None:
    script = """prompt(); tell("call", id="task", tool="Task", input={})
tell("turn", parent="task"); tell("call", id="inner", tool="Bash", input={}, parent="task")
tell("ask", key="1", tool="Edit", input={})
tell("done", outcome="completed", parent="task")
answer = hear(); tell("result", id="task"); done(text=str(answer["allow"]))"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        await wait_for(session, TurnCompleted)
        assert session.status == "awaiting_approval"
        await session.respond(session.open_asks[0].id, Allow())
        assert (await session.result()).final_text == "True"
        events = await events_of(session)
    assert [e.data.synthetic for e in events if isinstance(e.data, ToolResult)] == [True, False]


async def test_a_message_whose_sending_is_cancelled_is_said_to_be_refused(tmp_path: Path) -> None:
    class Slow(FakeDriver):
        async def send(self, message: Any, *, steer: bool = False) -> None:
            if message.parts[0].text == "slow":
                await trio.sleep_forever()
            await super().send(message)

    async with open_fake(
        Scripted("prompt(); done(text='x'); stay()", driver=Slow), cwd=tmp_path, keep_open=True
    ) as session:
        await wait_for(session, TurnCompleted)
        with trio.move_on_after(0.05):
            await session.send("slow")
        accepted = await wait_for(session, InputAccepted, 2)
        assert accepted.state == "refused"
        await session.finish()
        assert (await session.result()).outcome == "completed"


async def test_a_message_to_a_process_that_has_gone_is_refused(tmp_path: Path) -> None:
    async with open_fake(Scripted("prompt(); done(text='x'); sys.exit(0)"), cwd=tmp_path, keep_open=True) as session:
        await session.result()
        with pytest.raises(AgentGone):
            await session.send("more")


async def test_an_agent_that_dies_of_our_interrupt_was_interrupted(tmp_path: Path) -> None:  # F5-09
    class BySignal(FakeDriver):
        def stop(self) -> Any:
            return None

    script = "signal.signal(signal.SIGINT, signal.SIG_DFL); prompt(); stay()"
    async with open_fake(Scripted(script, driver=BySignal), cwd=tmp_path) as session:
        await wait_for(session, TurnStarted)
        await session.interrupt()
        result = await session.result()
        events = await events_of(session)
    assert result.outcome == "interrupted"
    assert only(events, TurnCompleted).outcome == "interrupted"
    assert only(events, RunFinished).returncode == -2


async def test_cancel_run_interrupts_by_other_means_where_the_wire_has_no_word_for_it(tmp_path: Path) -> None:
    script = f"""prompt(); {ASK}; answer = hear(); stop = hear()
done("interrupted" if stop.get("stop") else "completed"); stay()"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        await events_of(session, nucleic_core.CancelRun("enough"))
        assert (await session.result()).outcome == "cancelled"


async def test_what_could_not_be_written_is_not_told_to_the_decoder_either(tmp_path: Path) -> None:
    told: list[Any] = []

    class Decoder(FakeDecoder):
        def sent(self, message: Any, out: Any, channel: str = "stdin") -> None:
            told.append(message)

    script = "prompt(); sys.stdin.close(); os.close(0); tell('say', text='deaf'); time.sleep(0.3); done(text='x')"
    plugin = Scripted(script, decoder=Decoder)
    async with open_fake(plugin, cwd=tmp_path, keep_open=True) as session:
        await wait_for(session, AssistantText)
        with pytest.raises(AgentGone, match="input is closed"):
            for _ in range(50):  # the first ones may meet a pipe whose end has not been noticed
                await session.send("more")
                await trio.sleep(0.01)
        await session.finish()
        events = await events_of(session)
    sent = [e.data.input for e in events if isinstance(e.data, UserMessage)]
    assert [message["id"] for message in told if "prompt" in message] == sent[:-1]


# -- extensions ---------------------------------------------------------------------------------------------------------


class Watching:
    """An observer that keeps what it saw."""

    NUCLEIC_API = 1

    def __init__(self, fails: bool = False) -> None:
        self.seen: list[str] = []
        self._fails = fails

    @hookimpl
    def nucleic_observer(self) -> Any:
        return self

    async def observe(self, events: Any) -> None:
        async for event in events:
            self.seen.append(event.kind)
            if self._fails:
                raise RuntimeError("no disk")


async def test_observers_see_every_event_to_the_end(tmp_path: Path) -> None:
    watching = Watching()
    async with open_fake(Scripted("prompt(); done(text='x')"), "go", extension(watching), cwd=tmp_path) as session:
        events = await events_of(session)
    assert watching.seen == kinds(events)


async def test_an_observer_that_fails_is_left_behind_with_a_notice(tmp_path: Path) -> None:
    script = "prompt(); time.sleep(0.1); done(text='x')"
    async with open_fake(Scripted(script), "go", extension(Watching(fails=True)), cwd=tmp_path) as session:
        events = await events_of(session)
        assert (await session.result()).outcome == "completed"
    assert "no disk" in only(events, Notice).text


async def test_an_observer_does_not_hold_up_a_start_that_fails(tmp_path: Path) -> None:
    with trio.fail_after(4), pytest.raises(BackendMissing):
        async with open_fake(Scripted(argv=["no-such-agent"]), "go", extension(Watching()), cwd=tmp_path):
            pass


async def test_an_observer_that_never_ends_has_a_moment_and_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nucleic_core._session.upkeep.LAST_WORDS", 0.2)

    class Endless(Watching):
        async def observe(self, events: Any) -> None:
            await trio.sleep_forever()

    async with open_fake(Scripted("prompt(); done(text='x')"), "go", extension(Endless()), cwd=tmp_path) as session:
        await session.result()


async def test_an_extension_may_deny_and_may_not_allow(tmp_path: Path) -> None:
    class Policy:
        NUCLEIC_API = 1
        name = "guard"

        def __init__(self, verdict: Any) -> None:
            self.verdict = verdict

        @hookimpl
        def nucleic_approval_policy(self) -> Any:
            return self

        async def decide(self, request: Any) -> Any:
            return self.verdict

    script = f'prompt(); {ASK}; answer = hear(); done(text=str(answer["allow"]))'
    for verdict, by in ((Deny("no"), "policy:guard"), (Allow(), "nucleic")):
        guard = extension(Policy(verdict), "guard")
        async with open_fake(Scripted(script), "go", guard, cwd=tmp_path, responder="deny") as session:
            events = await events_of(session)
        assert only(events, ApprovalResolved).decided_by == by
        assert isinstance(only(events, ApprovalResolved).decision, Deny)


async def test_an_extension_that_cannot_be_loaded_is_a_notice_in_the_session(tmp_path: Path) -> None:
    async with open_fake(
        Scripted("prompt(); done(text='x')"), "go", extension(object(), "old"), cwd=tmp_path
    ) as session:
        events = await events_of(session)
    assert "old" in only(events, Notice).text
    assert "NUCLEIC_API" in only(events, Notice).text


async def test_a_wrapper_of_the_spawn_changes_what_is_started(tmp_path: Path) -> None:
    import attrs

    class Sandbox:
        NUCLEIC_API = 1

        @hookimpl(wrapper=True)
        def nucleic_spawn(self, run: Any) -> Any:
            spec = yield
            return attrs.evolve(spec, env={**spec.env, "IN_SANDBOX": "yes"}, contained=True)

    script = "prompt(); done(text=os.environ.get('IN_SANDBOX', 'no'))"
    async with open_fake(Scripted(script), "go", extension(Sandbox()), cwd=tmp_path) as session:
        assert (await session.result()).final_text == "yes"


@pytest.mark.parametrize("hook", ["decoder", "driver", "prober", "approval_mapper", "spawn"])
async def test_a_hook_that_raises_is_a_broken_backend_that_says_which(tmp_path: Path, hook: str) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("oops")

    broken = type("Broken", (Scripted,), {f"nucleic_{hook}": hookimpl(lambda self: fail())})
    with pytest.raises(BackendBroken, match=f"nucleic_{hook}.*oops"):
        async with open_fake(broken(), cwd=tmp_path):
            pass


async def test_a_spawn_that_gives_no_process_spec_is_a_broken_backend(tmp_path: Path) -> None:
    broken = type("Broken", (Scripted,), {"nucleic_spawn": hookimpl(lambda self: ["claude", "-p"])})
    with pytest.raises(BackendBroken, match="ProcessSpec"):
        async with open_fake(broken(), cwd=tmp_path):
            pass
