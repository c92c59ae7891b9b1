"""Approvals of the real `claude`, each over both roads: what is decided is what happens, and what the model is told."""

import pytest
import trio
from messages_api import bash, tool, turn
from world import follow, of

from nucleic_core.approvals import Allow, AllowAlways, Answers, CancelRun, Deny
from nucleic_core.errors import BadSettings, Unsupported
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    FileChange,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    ToolCallCompleted,
    ToolResult,
    TurnCompleted,
)

TOUCH = turn("I make the file.", bash("touch made.txt"))


def once(decision):
    """Decides the first ask so and leaves every later one alone."""
    left = [decision]
    return lambda ask: left.pop() if left else None


BIG = "some ordinary words of text\n" * 7200


async def test_an_allowed_command_runs_and_its_ask_stands_after_its_call(world, channel):
    async with world.open("Touch.", TOUCH, turn("Done."), settings={"channel": channel}) as session:
        events = await follow(session, lambda ask: Allow())
    (ask,) = of(events, ApprovalRequested)
    assert (ask.request.tool, ask.request.command, ask.request.risk) == ("Bash", "touch made.txt", "execute")
    kinds = [event.kind for event in events]
    order = ["tool_call_completed", "approval_requested", "approval_resolved", "tool_result", "turn_completed"]
    assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
    assert kinds.count("tool_call_completed") == 1
    assert of(events, ApprovalResolved)[0].decided_by == "api"
    assert not of(events, ToolResult)[0].is_error
    assert (world.cwd / "made.txt").exists()


async def test_a_denied_command_does_not_run_and_the_model_is_told_why(world, channel):
    async with world.open("Touch.", TOUCH, turn("I see."), settings={"channel": channel}) as session:
        events = await follow(session, lambda ask: Deny("not on a Friday"))
    assert not (world.cwd / "made.txt").exists()
    assert of(events, ToolResult)[0].is_error
    (told,) = world.api.told()
    assert "not on a Friday" in str(told["content"])
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_an_edited_command_runs_in_place_of_the_models(world, channel):
    edited = Allow({"command": "touch other.txt", "description": "edited"})
    async with world.open("Touch.", TOUCH, turn("Done."), settings={"channel": channel}) as session:
        events = await follow(session, lambda ask: edited)
    assert (world.cwd / "other.txt").exists()
    assert not (world.cwd / "made.txt").exists()
    assert of(events, ToolCallCompleted)[0].input["command"] == "touch made.txt"
    assert of(events, ApprovalResolved)[0].decision == edited


@pytest.mark.parametrize("edited", [False, True])
async def test_a_write_of_200_kb_is_allowed_whole_and_edited_whole(world, channel, edited):
    write = turn(tool("Write", file_path="big.txt", content=BIG), chunk=20_000)
    decision = Allow({"file_path": str(world.cwd / "big.txt"), "content": BIG.upper()}) if edited else Allow()
    async with world.open("Write.", write, turn("Done."), settings={"channel": channel}) as session:
        events = await follow(session, lambda ask: decision)
    assert (world.cwd / "big.txt").read_text() == (BIG.upper() if edited else BIG)
    (change,) = of(events, FileChange)
    assert (change.change, change.path, change.authoritative) == ("add", str(world.cwd / "big.txt"), True)


@pytest.mark.slow
async def test_a_person_may_take_70_seconds_over_http(world):
    async with world.open("Touch.", TOUCH, turn("Done."), settings={"channel": "http"}, within=150) as session:
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                await trio.sleep(70)
                await session.respond(event.data.request.id, Allow())
            if isinstance(event.data, ToolResult):
                assert not event.data.is_error
    assert (world.cwd / "made.txt").exists()


async def test_several_asks_are_open_at_once_and_each_gets_its_own_answer(world, channel):
    reads = turn(tool("Read", file_path="/etc/hostname"), tool("Read", file_path="/etc/passwd"))
    async with world.open("Read.", reads, turn("Done."), settings={"channel": channel}) as session:
        asks = {}
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                asks[str(event.data.request.paths[0])] = event.data.request.id
                if len(asks) == 2:
                    assert len(session.open_asks) == 2
                    await session.respond(asks["/etc/passwd"], Deny("that one is private"))
                    await session.respond(asks["/etc/hostname"], Allow())
    told = {block["tool_use_id"]: block for block in world.api.told()}
    assert "private" not in str(told["toolu_01"]["content"])
    assert "private" in str(told["toolu_02"]["content"])


async def test_a_cancelled_run_does_not_run_the_tool_and_ends_the_turn(world, channel):
    async with world.open("Touch.", TOUCH, turn("Never said."), settings={"channel": channel}) as session:
        events = await follow(session, lambda ask: CancelRun("enough"))
    assert not (world.cwd / "made.txt").exists()
    assert len(world.api.requests) == 1
    assert of(events, TurnCompleted)[0].outcome in ("cancelled", "denied")


async def test_an_interrupt_withdraws_the_open_ask_and_the_tool_does_not_run(world, channel):
    async with world.open("Touch.", TOUCH, turn("Next."), settings={"channel": channel}, keep_open=True) as session:
        resolved = []
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                await session.interrupt()
            if isinstance(event.data, ApprovalResolved):
                resolved.append(event.data)
            if isinstance(event.data, TurnCompleted):
                assert event.data.outcome == "interrupted"
                await session.finish()
    assert [answer.cause for answer in resolved] in (["withdrawn"], ["interrupted"])
    assert not (world.cwd / "made.txt").exists()


async def test_always_for_a_tool_is_asked_once_and_kept_over_a_resume_by_us_alone(world, channel):
    settings = {"channel": channel}
    async with world.open("Touch.", TOUCH, turn(bash("touch two.txt")), turn("Done."), settings=settings) as session:
        first = await follow(session, once(AllowAlways("tool_name")))
    answers = of(first, ApprovalResolved)
    assert answers[0].decided_by == "api"
    assert answers[1].decided_by.startswith("rule:")
    script = (turn(bash("touch three.txt")), turn("Done."))
    async with world.open("Again.", *script, settings=settings, resume=session.id) as again:
        second = await follow(again)
    assert of(second, ApprovalResolved)[0].decided_by.startswith("rule:")
    assert {path.name for path in world.cwd.iterdir()} == {".git", "README.md", "made.txt", "two.txt", "three.txt"}


async def test_a_question_is_put_to_the_person_and_the_answer_reaches_the_model(world, channel):
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
    asked = tool(
        "AskUserQuestion",
        questions=[{"question": "Which colour?", "header": "Colour", "options": options, "multiSelect": False}],
    )
    async with world.open("Ask me.", turn(asked), turn("Thanks."), settings={"channel": channel}) as session:
        events = []
        async for event in session:
            events.append(event)
            if isinstance(event.data, QuestionAsked):
                item = event.data.question.questions[0]
                assert (item.text, item.options) == ("Which colour?", (("Red", "warm"), ("Blue", "cold")))
                await session.respond(event.data.question.id, Answers({item.id: "Blue"}))
    assert of(events, QuestionAnswered)[0].decision.answers
    assert "Blue" in str(world.api.told()[0]["content"])


async def test_a_users_own_mcp_servers_are_given_on_both_channels(world, channel, tmp_path):
    own = tmp_path / "own.json"
    own.write_text('{"mcpServers": {"mine": {"command": "/bin/cat", "args": []}}}')
    async with world.open("Hi.", turn("Hi."), settings={"channel": channel}, mcp_config=own) as session:
        await follow(session)
    assert session.native_id is not None


async def test_a_server_of_the_users_that_takes_our_name_is_refused_before_anything_starts(world, tmp_path):
    own = tmp_path / "own.json"
    own.write_text('{"mcpServers": {"nucleic": {"command": "/bin/cat"}}}')
    with pytest.raises(BadSettings, match="nucleic"):
        async with world.open("Hi.", mcp_config=own, settings={"channel": "http"}):
            pass
    assert world.api.requests == []


async def test_an_argument_that_would_switch_approvals_off_is_refused_before_anything_starts(world):
    with pytest.raises(Unsupported, match="--dangerously-skip-permissions is refused"):
        async with world.open("Hi.", extra_args=("--dangerously-skip-permissions",)):
            pass
    assert world.api.requests == []
