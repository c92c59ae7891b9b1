"""Turns of the real `claude`: text, thinking, streaming, errors, sub-agents, interrupts, resuming."""

import pytest
import trio
from messages_api import bash, failure, thinking, tool, turn
from world import follow, of

from nucleic_core.approvals import Allow
from nucleic_core.events import (
    ApprovalRequested,
    AssistantText,
    Error,
    InputAccepted,
    RunFinished,
    SessionStarted,
    Thinking,
    ToolCallCompleted,
    ToolResult,
    TurnCompleted,
    UserMessage,
)
from nucleic_core.specs import AgentInput, Context, Image, Text

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364f8cf500f0003860180"
    "5a34 7d6b0000000049454e44ae426082".replace(" ", "")
)


async def test_a_text_turn_starts_says_its_text_and_finishes_once(world):
    async with world.open("Say hello.", turn("Hello! The demo has one README.")) as session:
        events = await follow(session)
    assert [type(event.data) for event in events].count(SessionStarted) == 1
    started = of(events, SessionStarted)[0]
    assert started.agent_version == world.version
    assert started.native_id == session.native_id
    whole = [text for text in of(events, AssistantText) if not text.partial]
    assert [text.text for text in whole] == ["Hello! The demo has one README."]
    assert of(events, TurnCompleted)[0].outcome == "completed"
    finished = of(events, RunFinished)
    assert [run.outcome for run in finished] == ["completed"]
    assert finished[0].final_text == "Hello! The demo has one README."
    assert events[-1].data is finished[0]


async def test_thinking_comes_before_the_text_and_is_no_text(world):
    async with world.open("Say hello.", turn(thinking("Keep it short."), "Hello!")) as session:
        events = await follow(session)
    assert [block.text for block in of(events, Thinking) if not block.partial] == ["Keep it short."]
    assert [block.text for block in of(events, AssistantText) if not block.partial] == ["Hello!"]


async def test_deltas_add_up_to_the_whole_block_that_follows_them(world):
    words = "One sentence that is long enough to arrive in several pieces."
    async with world.open("Talk.", turn(words, chunk=10)) as session:
        events = await follow(session)
    pieces = [text for text in of(events, AssistantText) if text.partial]
    whole = [text for text in of(events, AssistantText) if not text.partial]
    assert len(pieces) > 3
    assert "".join(piece.text for piece in pieces) == words
    assert [text.text for text in whole] == [words]
    assert {piece.block for piece in pieces} == {whole[0].block}


async def test_without_partials_the_same_final_events_come(world):
    async with world.open("Talk.", turn("Some words."), partials=False) as session:
        events = await follow(session)
    assert [(text.text, text.partial) for text in of(events, AssistantText)] == [("Some words.", False)]


async def test_all_parts_of_a_prompt_reach_the_model(world):
    prompt = AgentInput((Text("Look at this."), Context("the log", "line one"), Image(PIXEL, "image/png")))
    async with world.open(prompt, turn("I see.")) as session:
        events = await follow(session)
    assert "Look at this." in world.api.heard()
    assert "Context (the log):\nline one" in world.api.heard()
    assert "image" in {
        block["type"] for block in world.api.requests[0]["messages"][0]["content"] if isinstance(block, dict)
    }
    assert of(events, UserMessage)[0].images == 1


async def test_a_system_prompt_and_a_model_reach_the_model(world):
    options = {"system_prompt": "Answer in verse.", "model": "claude-haiku-4-5"}
    async with world.open("Talk.", turn("Roses."), **options) as session:
        await follow(session)
    request = world.api.requests[0]
    assert request["model"] == "claude-haiku-4-5"
    assert "Answer in verse." in str(request["system"])


async def test_an_output_schema_is_given_to_the_cli_as_a_tool_for_the_answer(world):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with world.open(
        "Count.", turn(tool("StructuredOutput", n=3)), turn("Three."), output_schema=schema
    ) as session:
        events = await follow(session)
    assert "StructuredOutput" in {offered["name"] for offered in world.api.requests[0]["tools"]}
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_an_ephemeral_run_leaves_no_transcript_of_the_clis(world):
    async with world.open("Hush.", turn("Done."), ephemeral=True) as session:
        await follow(session)
    assert not list(world.home.rglob("*.jsonl"))


async def test_a_retry_of_the_clis_own_is_an_error_that_recovers(world):
    async with world.open("Go.", failure(529, "overloaded_error", "Overloaded"), turn("Done.")) as session:
        events = await follow(session)
    retry = of(events, Error)[0]
    assert (retry.recoverable, retry.attempt) == (True, 1)
    assert retry.delay_ms > 0
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_a_refused_key_is_reported_at_the_first_retry_and_not_after_minutes(world):
    refused = failure(401, "authentication_error", "invalid x-api-key")
    async with world.open("Go.", *[refused] * 12) as session:
        async for event in session:
            if isinstance(event.data, Error):
                break
    assert event.data.attempt == 1
    assert event.data.code == "authentication_failed"


async def test_an_error_of_the_api_ends_the_run_as_failed_though_the_cli_says_success(world):
    async with world.open("Go.", *[failure(403, "permission_error", "this key is odd")] * 3) as session:
        events = await follow(session)
        result = await session.result()
    assert of(events, RunFinished)[0].outcome == "errored"
    assert not [text for text in of(events, AssistantText) if "odd" in text.text]
    assert result.outcome == "errored"


async def test_an_interrupt_ends_the_turn_and_the_next_message_gets_its_own(world):
    async with world.open("Wait.", turn("I wai", end="hang"), turn("Here again."), keep_open=True) as session:
        outcomes = []
        async for event in session:
            if isinstance(event.data, AssistantText) and event.data.partial and not outcomes:
                await session.interrupt()
            if isinstance(event.data, TurnCompleted):
                outcomes.append(event.data.outcome)
                if len(outcomes) == 1:
                    await session.send("Go on.")
                else:
                    await session.finish()
    assert outcomes == ["interrupted", "completed"]


async def test_a_resumed_session_knows_what_was_said_and_a_fork_leaves_it_alone(world):
    async with world.open("My name is Ada.", turn("Hello Ada.")) as session:
        first = await follow(session)
    async with world.open("What is my name?", turn("Ada."), resume=session.id) as again:
        second = await follow(again)
    assert again.id == session.id
    assert again.native_id == session.native_id
    assert "Hello Ada." in str(world.api.requests[-1]["messages"])
    assert second[0].seq == first[-1].seq + 1
    async with world.open("And now?", turn("Still Ada."), resume=session.id, fork=True) as forked:
        await follow(forked)
    assert forked.id != session.id
    assert forked.native_id != session.native_id
    assert "Hello Ada." in str(world.api.requests[-1]["messages"])


async def test_a_session_can_be_resumed_after_an_interrupt_in_the_midst_of_a_tool(world):
    async with world.open("Touch.", turn(bash("touch made.txt"))) as session:
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                break
    assert not (world.cwd / "made.txt").exists()
    async with world.open("Go on.", turn("Done."), resume=session.id) as again:
        events = await follow(again)
    assert of(events, RunFinished)[0].outcome == "completed"


@pytest.mark.parametrize(("steer", "turns"), [(True, 1), (False, 2)])
async def test_a_message_sent_while_a_tool_waits_steers_the_turn_or_gets_the_next(world, steer, turns):
    script = (turn(bash("touch made.txt")), turn("First."), turn("Second."))
    async with world.open("Touch.", *script, keep_open=True) as session:
        events = []
        async for event in session:
            events.append(event)
            if isinstance(event.data, ApprovalRequested):
                sent = await session.send("And then?", steer=steer)
                await session.respond(event.data.request.id, Allow())
            if len(of(events, TurnCompleted)) == turns:
                await session.finish()
    states = [accepted.state for accepted in of(events, InputAccepted) if accepted.input == sent]
    assert states[-1] == ("merged" if steer else "delivered")
    assert len(of(events, TurnCompleted)) == turns


async def test_a_sub_agents_calls_bear_its_parent_and_are_asked_for_as_well(world):
    script = (
        turn(
            tool(
                "Agent", description="a job", prompt="JOB-ONE", subagent_type="general-purpose", run_in_background=False
            )
        ),
        turn(bash("touch sub.txt"), match="JOB-ONE"),
        turn("The job is done.", match="JOB-ONE"),
        turn("All done."),
    )
    async with world.open("Delegate.", *script) as session:
        events = await follow(session, lambda ask: Allow())
    call = next(call for call in of(events, ToolCallCompleted) if call.name == "Agent")
    within = [event for event in events if event.parent == call.tool_call]
    assert [event.data.name for event in within if isinstance(event.data, ToolCallCompleted)] == ["Bash"]
    assert len(of(events, ApprovalRequested)) == 1
    assert (world.cwd / "sub.txt").exists()
    assert {result.tool_call for result in of(events, ToolResult)} >= {call.tool_call}
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_nothing_is_left_waiting_when_the_block_is_left_early(world):
    async with world.open("Wait.", turn("I wai", end="hang")) as session:
        async for event in session:
            if isinstance(event.data, AssistantText):
                break
    with trio.fail_after(10):
        assert (await session.result()).outcome == "interrupted"
