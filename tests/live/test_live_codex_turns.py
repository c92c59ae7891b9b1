"""The real codex app-server, driven through the public API: texts, turns, messages meanwhile, resume."""

import base64
import shutil

import pytest
from responses_api import command, failure, reasoning, turn
from world import CODEX_KEY, follow, of

import nucleic_core
from nucleic_core.errors import StartFailed
from nucleic_core.events import (
    ApprovalRequested,
    AssistantText,
    Error,
    InputAccepted,
    RunFinished,
    SessionStarted,
    Thinking,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Usage,
)
from nucleic_core.specs import AgentInput, Context, Image, Text

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def whole(events):
    """The texts that are no pieces of others."""
    return [text.text for text in of(events, AssistantText) if not text.partial]


async def test_a_text_turn_tells_its_session_its_text_and_its_end(codex_world):
    async with codex_world.open("Say hello.", turn("Hello!")) as session:
        events = await follow(session)
    assert whole(events) == ["Hello!"]
    assert len(of(events, TurnStarted)) == 1
    assert [end.outcome for end in of(events, RunFinished)] == ["completed"]
    assert [accepted.state for accepted in of(events, InputAccepted)] == ["delivered"]
    (started,) = of(events, SessionStarted)
    assert started.native_id == session.native_id
    assert codex_world.api.keys == {CODEX_KEY}
    assert codex_world.api.requests[0]["model"] == "gpt-5.5"


async def test_reasoning_is_thinking_and_no_text(codex_world):
    async with codex_world.open("Think.", turn(reasoning("**Plan** look", "then answer"), "Hello!")) as session:
        events = await follow(session)
    assert [part.text for part in of(events, Thinking) if not part.partial] == ["**Plan** look", "then answer"]
    assert whole(events) == ["Hello!"]


async def test_deltas_add_up_to_the_whole_text_that_follows_them(codex_world):
    words = "One sentence that is long enough to arrive in several pieces."
    async with codex_world.open("Talk.", turn(words, chunk=10)) as session:
        events = await follow(session)
    pieces = [text for text in of(events, AssistantText) if text.partial]
    assert len(pieces) > 3
    assert "".join(piece.text for piece in pieces) == words
    assert whole(events) == [words]


async def test_without_partials_the_same_final_events_come(codex_world):
    async with codex_world.open("Talk.", turn(reasoning("Plan."), "Some words."), partials=False) as session:
        events = await follow(session)
    assert [(text.text, text.partial) for text in of(events, AssistantText)] == [("Some words.", False)]


async def test_the_usage_of_a_turn_is_the_sum_over_its_requests(codex_world):
    counted = {"input_tokens": 50, "cached_tokens": 10, "output_tokens": 5, "reasoning_tokens": 2}
    script = (turn(command("echo hi"), usage=counted), turn("Done.", usage=counted))
    async with codex_world.open("Count.", *script) as session:
        events = await follow(session)
        result = await session.result()
    assert (result.usage.input_tokens, result.usage.cached_input_tokens) == (100, 20)
    assert (result.usage.output_tokens, result.usage.reasoning_tokens) == (10, 4)
    assert of(events, Usage)


async def test_all_parts_of_a_prompt_reach_the_model(codex_world):
    prompt = AgentInput((Text("Look at this."), Context("the log", "line one"), Image(PIXEL, "image/png")))
    async with codex_world.open(prompt, turn("I see.")) as session:
        await follow(session)
    assert "Look at this." in codex_world.api.heard()
    assert "Context (the log):\nline one" in codex_world.api.heard()
    parts = [part for item in codex_world.api.requests[0]["input"] for part in item.get("content") or ()]
    assert [part for part in parts if part["type"] == "input_image"]


async def test_a_system_prompt_and_an_output_schema_reach_the_model(codex_world):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    options = {"system_prompt": "Answer in verse.", "output_schema": schema}
    async with codex_world.open("Count.", turn('{"n": 3}'), **options) as session:
        await follow(session)
    request = codex_world.api.requests[0]
    assert "Answer in verse." in codex_world.api.heard()
    assert request["text"]["format"]["schema"] == schema


async def test_an_ephemeral_run_leaves_no_transcript_of_the_clis(codex_world):
    async with codex_world.open("Hush.", turn("Done."), ephemeral=True) as session:
        await follow(session)
    assert not list(codex_world.home.rglob("rollout-*"))


async def test_a_message_sent_meanwhile_waits_for_the_turns_end(codex_world):
    script = (turn("One thing.", chunk=2, chunk_delay=0.2), turn("Noon."))
    async with codex_world.open("Begin.", *script, keep_open=True) as session:
        events, turns = [], 0
        async for event in session:
            events.append(event)
            if isinstance(event.data, TurnStarted) and not turns:
                await session.send("What time is it?")
            if isinstance(event.data, TurnCompleted):
                turns += 1
                if turns == 2:
                    await session.finish()
    assert whole(events) == ["One thing.", "Noon."]
    accepted = of(events, InputAccepted)
    (queued,) = [one for one in accepted if one.state == "queued"]
    assert [one.state for one in accepted if one.input == queued.input] == ["queued", "delivered"]


async def test_a_message_that_steers_becomes_part_of_the_running_turn(codex_world):
    script = (turn(command("sleep 1; echo slept")), turn("Noon."))
    async with codex_world.open("Begin.", *script, keep_open=True) as session:
        events = []
        async for event in session:
            events.append(event)
            if event.kind == "tool_call_completed":
                await session.send("What time is it?", steer=True)
            if isinstance(event.data, TurnCompleted):
                await session.finish()
    assert len(of(events, TurnCompleted)) == 1
    assert "What time is it?" in codex_world.api.heard()
    assert of(events, InputAccepted)[-1].state == "merged"


async def test_an_interrupt_ends_the_turn_and_the_session_goes_on(codex_world):
    script = (turn("I wait", end="hang"), turn("Here again."))
    async with codex_world.open("Wait.", *script, keep_open=True) as session:
        events, sent = [], False
        async for event in session:
            events.append(event)
            if isinstance(event.data, AssistantText) and not sent:
                sent = True
                await session.interrupt()
            if isinstance(event.data, TurnCompleted):
                if event.data.outcome == "interrupted":
                    await session.send("And now?")
                else:
                    await session.finish()
    assert [end.outcome for end in of(events, TurnCompleted)] == ["interrupted", "completed"]
    assert "Here again." in whole(events)


async def test_a_resumed_session_remembers_and_goes_on_in_its_thread(codex_world):
    async with codex_world.open("The word is plum.", turn("I keep it.")) as first:
        await follow(first)
    async with codex_world.open("Which word?", turn("Plum."), resume=first.id) as again:
        events = await follow(again)
    assert again.native_id == first.native_id
    assert "The word is plum." in str(codex_world.api.requests[-1]["input"])
    assert whole(events) == ["Plum."]
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_a_fork_is_a_thread_of_its_own_with_the_same_past(codex_world):
    async with codex_world.open("The word is plum.", turn("I keep it.")) as first:
        await follow(first)
    async with codex_world.open("Which word?", turn("Plum."), resume=first.id, fork=True) as fork:
        await follow(fork)
    assert fork.native_id not in (None, first.native_id)
    assert "The word is plum." in str(codex_world.api.requests[-1]["input"])


async def test_a_thread_that_codex_does_not_know_any_more_fails_with_codexs_own_words(codex_world):
    async with codex_world.open("Hi.", turn("Hi.")) as session:
        await follow(session)
    for file in codex_world.home.rglob("rollout-*"):
        file.unlink()
    with pytest.raises(StartFailed, match="thread/resume"):
        async with codex_world.open("Again.", resume=session.id):
            pass


async def test_a_thread_that_another_process_holds_cannot_be_resumed(codex_world, tmp_path):
    """Not by another host of ours: our own lock would say so first. By anybody who has the same thread open."""
    async with codex_world.open("Hi.", turn("Hi."), keep_open=True) as first:
        async for event in first:
            if isinstance(event.data, TurnCompleted):
                break
        shutil.copytree(tmp_path / "state", tmp_path / "copy", ignore=shutil.ignore_patterns("locks", "*.lock"))
        async with nucleic_core.open_host(home=tmp_path / "copy") as host:
            if codex_world.version in ("0.141.0", "0.146.0"):  # they do not look
                return
            with pytest.raises(StartFailed, match="active writer"):
                async with codex_world.open("Again.", resume=first.id, host=host):
                    pass


@pytest.mark.parametrize(("status", "code"), [(401, "invalid_api_key"), (400, "bad_request")])
async def test_a_request_that_the_provider_refuses_fails_the_turn_and_says_why(codex_world, status, code):
    async with codex_world.open("Go.", *[failure(status, code, "it will not do")] * 8) as session:
        events = await follow(session)
        result = await session.result()
    assert result.outcome == "errored"
    assert "it will not do" in str(result.error) or str(status) in str(result.error)
    assert [error for error in of(events, Error) if not error.recoverable] or result.error


async def test_a_provider_that_fails_now_and_then_is_asked_again(codex_world):
    script = (failure(500, "server_error", "sorry"), failure(500, "server_error", "sorry"), turn("Done."))
    async with codex_world.open("Go.", *script) as session:
        events = await follow(session)
    assert of(events, RunFinished)[0].outcome == "completed"
    assert all(error.recoverable for error in of(events, Error))


async def test_a_stream_that_is_cut_is_begun_anew(codex_world):
    async with codex_world.open("Go.", turn("Half a", end="cut"), turn("A whole answer.")) as session:
        events = await follow(session)
    assert whole(events)[-1] == "A whole answer."
    assert [error.recoverable for error in of(events, Error)] == [True]
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_a_command_in_the_sandbox_is_not_asked_about_and_tells_its_exit_code(codex_world):
    script = (turn(command("sleep 0.3; echo out; exit 3")), turn("It failed.", delay=0.5))
    async with codex_world.open("Run.", *script, sandbox="workspace-write") as session:
        events = await follow(session)
    assert of(events, ApprovalRequested) == []
    (result,) = of(events, ToolResult)
    assert result.exit_code == 3
    assert "out" in str(result.content)
