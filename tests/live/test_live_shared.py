"""What every backend promises, in one body without a branch: start, approve, deny, interrupt, resume."""

import actors
import pytest
from actors import Say, Touch, Wait
from fetch import CLIS
from messages_api import MessagesApi
from responses_api import ResponsesApi
from world import World, codex_options, follow, of

from nucleic_core.approvals import Allow, Deny
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    InputAccepted,
    RunFinished,
    SessionStarted,
    ToolCallCompleted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
)

PLAYERS = [
    ("demo", "", {}),
    *(("claude", version, {"channel": way}) for version in CLIS["claude"].versions for way in ("stdio", "http")),
    *(("codex", version, {"approvals": way}) for version in CLIS["codex"].versions for way in ("native", "hook")),
]


@pytest.fixture(params=PLAYERS, ids=lambda player: "-".join((player[0], player[1], *player[2].values())))
async def actor(request, scrubbed, repository, nursery, monkeypatch, fetched_program):
    """An agent and the world it plays in."""
    backend, version, settings = request.param
    home = scrubbed / "home"
    if backend == "demo":
        return actors.Demo(World(version, home, home, repository, None, settings, "demo"))
    program = fetched_program(backend, version)
    api = MessagesApi() if backend == "claude" else ResponsesApi()
    await nursery.start(api.serve)
    settings = {"executable": str(program), **settings}
    if backend == "claude":
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        return actors.Claude(World(version, program, home, repository, api, settings))
    options = codex_options(api.base_url, scrubbed / "tmp")
    return actors.Codex(World(version, program, home, repository, api, settings, "codex", options))


def whole(events):
    return [text.text for text in of(events, AssistantText) if not text.partial]


async def test_a_prompt_gives_one_session_one_turn_one_text_and_one_end(actor):
    async with actor.world.open(actor.prompt(Say("Hello!"))) as session:
        events = await follow(session)
        result = await session.result()
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert [started.native_id for started in of(events, SessionStarted)] == [session.native_id]
    assert session.native_id
    assert whole(events) == ["Hello!"]
    assert [accepted.state for accepted in of(events, InputAccepted)] == ["delivered"]
    assert len(of(events, TurnStarted)) == len(of(events, TurnCompleted)) == 1
    assert [end.outcome for end in of(events, RunFinished)] == ["completed"]
    assert result.final_text == "Hello!"


async def test_an_allowed_command_is_shown_asked_run_and_told(actor):
    async with actor.world.open(actor.prompt(Touch("made.txt"), Say("Done."))) as session:
        events = await follow(session, lambda ask: Allow())
    (ask,), (call,), (result,) = (of(events, kind) for kind in (ApprovalRequested, ToolCallCompleted, ToolResult))
    kinds = [event.kind for event in events]
    assert kinds.index("tool_call_completed") < kinds.index("approval_requested") < kinds.index("tool_result")
    assert ask.request.tool == call.name == "Bash"
    assert ask.request.tool_call == call.tool_call == result.tool_call
    assert "touch made.txt" in ask.request.command
    assert not result.is_error
    assert [(done.decided_by, done.cause) for done in of(events, ApprovalResolved)] == [("api", "answered")]
    assert (actor.world.cwd / "made.txt").exists()
    assert whole(events)[-1] == "Done."


async def test_a_denied_command_does_not_run_and_the_agent_goes_on(actor):
    async with actor.world.open(actor.prompt(Touch("made.txt"), Say("I see."))) as session:
        events = await follow(session, lambda ask: Deny("not on a Friday"))
    (result,) = of(events, ToolResult)
    assert result.is_error
    assert not (actor.world.cwd / "made.txt").exists()
    assert whole(events)[-1] == "I see."
    assert [end.outcome for end in of(events, RunFinished)] == ["completed"]


async def test_an_interrupted_turn_ends_and_the_next_one_runs(actor):
    async with actor.world.open(actor.prompt(Wait()), keep_open=True) as session:
        events = []
        async for event in session:
            events.append(event)
            match event.data:
                case AssistantText() if not of(events, TurnCompleted) and len(of(events, AssistantText)) == 1:
                    await session.interrupt()
                case TurnCompleted() if len(of(events, TurnCompleted)) == 1:
                    await session.send(actor.prompt(Say("Here again.")))
                case TurnCompleted():
                    await session.finish()
    assert [end.outcome for end in of(events, TurnCompleted)] == ["interrupted", "completed"]
    assert whole(events)[-1] == "Here again."
    assert [end.outcome for end in of(events, RunFinished)] == ["completed"]


async def test_an_interrupted_ask_is_closed_and_nothing_runs(actor):
    async with actor.world.open(actor.prompt(Touch("made.txt"), Say("Never.")), keep_open=True) as session:
        events = []
        async for event in session:
            events.append(event)
            match event.data:
                case ApprovalRequested():
                    await session.interrupt()
                case TurnCompleted():
                    await session.finish()
    assert [done.cause for done in of(events, ApprovalResolved)] == ["interrupted"]
    assert not (actor.world.cwd / "made.txt").exists()
    assert [end.outcome for end in of(events, TurnCompleted)] == ["interrupted"]


async def test_a_resumed_session_goes_on_in_the_same_native_session(actor):
    async with actor.world.open(actor.prompt(Say("One."))) as first:
        await follow(first)
    async with actor.world.open(actor.prompt(Touch("made.txt"), Say("Two.")), resume=first.id) as again:
        events = await follow(again, lambda ask: Allow())
    assert again.id == first.id
    assert again.native_id == first.native_id
    assert whole(events)[-1] == "Two."
    assert (actor.world.cwd / "made.txt").exists()
    assert [end.outcome for end in of(events, RunFinished)] == ["completed"]


async def test_leaving_in_the_midst_of_an_ask_denies_it_and_ends_the_run(actor):
    async with actor.world.open(actor.prompt(Touch("made.txt"), Say("Never."))) as session:
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                break
    resolved = [event.data async for event in session.events() if isinstance(event.data, ApprovalResolved)]
    finished = [event.data async for event in session.events() if isinstance(event.data, RunFinished)]
    assert [done.cause for done in resolved] == ["session_ended"]
    assert [end.outcome for end in finished] == ["interrupted"]
    assert not (actor.world.cwd / "made.txt").exists()
