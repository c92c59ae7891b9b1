"""Sessions of the demo agent, a real child process: prompts, approvals, questions, follow-ups, interrupts."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio

import nucleic_core
from core_agents import Scripted, events_of, kinds, only, open_fake, wait_for
from nucleic_core import (
    AgentGone,
    AgentInput,
    Allow,
    AllowAlways,
    Answers,
    ApprovalClosed,
    BackendMissing,
    BadDirectory,
    BadSettings,
    CancelRun,
    Context,
    Deny,
    Escalate,
    Image,
    Rule,
    Text,
    Unsupported,
    open_host,
    open_session,
    run,
)
from nucleic_core._store.index import Index
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    InputAccepted,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    UserMessage,
)


def results(events: Any) -> list[str]:
    return [event.data.content for event in events if isinstance(event.data, ToolResult)]


# -- one prompt ---------------------------------------------------------------------------------------------------------


async def test_a_prompt_runs_to_its_end_and_the_session_ends_by_itself(tmp_path: Path) -> None:
    async with open_session("demo", "say hello there", cwd=tmp_path) as session:
        events = await events_of(session)
        result = await session.result()
    whole = [e.data.text for e in events if isinstance(e.data, AssistantText) and not e.data.partial]
    assert whole == ["hello there"]
    assert (result.outcome, result.final_text) == ("completed", "hello there")
    assert result.check() is result
    assert session.status == "finished"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert kinds(events)[0] == "user_message"
    assert kinds(events)[-2:] == ["turn_completed", "run_finished"]
    assert kinds(events).count("session_started") == 1
    assert kinds(events).count("input_accepted") == 1


async def test_run_is_one_call(tmp_path: Path) -> None:
    result = await nucleic_core.run("demo", "say hi", cwd=tmp_path)
    assert (result.outcome, result.final_text) == ("completed", "hi")
    assert result.usage is not None
    assert result.usage.input_tokens == 2


async def test_an_agent_that_fails_is_an_outcome_and_check_raises(tmp_path: Path) -> None:
    result = await nucleic_core.run("demo", "fail out of luck", cwd=tmp_path)
    assert (result.outcome, result.error) == ("errored", "out of luck")
    with pytest.raises(nucleic_core.AgentFailed, match="out of luck"):
        result.check()


async def test_context_parts_reach_the_agent_as_labelled_text(tmp_path: Path) -> None:
    prompt = AgentInput((Text("say hi"), Context("a log", "say from the log")))
    async with open_session("demo", prompt, cwd=tmp_path) as session:
        events = await events_of(session)
    assert only(events, UserMessage).text == "say hi\n\nContext (a log):\nsay from the log"
    assert [e.data.text for e in events if isinstance(e.data, AssistantText)][-1] == "from the log"


# -- approvals ----------------------------------------------------------------------------------------------------------


async def test_allow_runs_the_tool_after_the_approval_is_recorded(tmp_path: Path) -> None:
    async with open_session("demo", "run echo hi", cwd=tmp_path) as session:
        events = await events_of(session, Allow())
    order = [k for k in kinds(events) if k.startswith(("tool_", "approval_"))]
    assert order == [
        "tool_call_started",
        "tool_call_completed",
        "approval_requested",
        "approval_resolved",
        "tool_result",
    ]
    assert only(events, ToolResult).content == "hi\n"
    assert only(events, ToolResult).exit_code == 0
    request = only(events, ApprovalRequested).request
    assert (request.tool, request.risk, request.command) == ("Bash", "execute", "echo hi")


async def test_deny_keeps_the_tool_from_running_and_tells_the_agent_why(tmp_path: Path) -> None:
    async with open_session("demo", "write a.txt x\nsay went on", cwd=tmp_path) as session:
        events = await events_of(session, Deny("not here"))
        result = await session.result()
    assert results(events) == ["not here"]
    assert not (tmp_path / "a.txt").exists()
    assert result.outcome == "completed"  # a denied tool after which the agent went on


async def test_an_edit_replaces_the_tools_input(tmp_path: Path) -> None:
    async with open_session("demo", "run echo one", cwd=tmp_path) as session:
        events = await events_of(session, Allow({"command": "echo two"}))
    assert results(events) == ["two\n"]


async def test_paths_of_a_request_are_absolute(tmp_path: Path) -> None:
    async with open_session("demo", "write sub/../a.txt x", cwd=tmp_path) as session:
        events = await events_of(session, Deny("no"))
    assert only(events, ApprovalRequested).request.paths == (tmp_path.resolve() / "a.txt",)


async def test_always_answers_the_same_call_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: Any) -> AllowAlways:
        asked.append(request.command)
        return AllowAlways("session")

    async with open_session("demo", "run echo a\nrun echo a\nrun echo b", cwd=tmp_path) as session:
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                try:
                    await session.respond(event.data.request.id, answer(event.data.request))
                except ApprovalClosed as closed:
                    assert closed.by.startswith("rule:")
        assert len(session.rules) == 2
    assert asked == ["echo a", "echo a", "echo b"]


async def test_cancel_run_ends_the_turn_as_cancelled(tmp_path: Path) -> None:
    async with open_session("demo", "run echo a\nsay never", cwd=tmp_path) as session:
        events = await events_of(session, CancelRun("enough"))
        assert (await session.result()).outcome == "cancelled"
    assert "assistant_text" not in kinds(events)


async def test_a_question_is_answered(tmp_path: Path) -> None:
    async with open_session("demo", "ask Which colour? | red | blue", cwd=tmp_path) as session:
        events = await events_of(session, Answers({"answer": "blue"}))
        assert (await session.result()).final_text == "You said blue."
    question = only(events, QuestionAsked).question
    assert question.questions[0].options == (("red", ""), ("blue", ""))
    assert only(events, QuestionAnswered).decided_by == "api"


async def test_nobody_to_answer_a_question_is_no_answer(tmp_path: Path) -> None:
    result = await nucleic_core.run("demo", "ask Which? | a | b", cwd=tmp_path)
    assert result.final_text == "You gave no answer."


async def test_nobody_to_approve_is_a_denial_with_its_cause(tmp_path: Path) -> None:
    async with open_session("demo", "write a.txt x", cwd=tmp_path, responder="deny") as session:
        events = await events_of(session)
    resolved = only(events, ApprovalResolved)
    assert (resolved.decided_by, resolved.cause) == ("nucleic", "no_responder")
    assert not (tmp_path / "a.txt").exists()


async def test_a_responder_function_answers(tmp_path: Path) -> None:
    async def responder(what: Any) -> Any:
        return Allow()

    await nucleic_core.run("demo", "write a.txt x", cwd=tmp_path, responder=responder)
    assert (tmp_path / "a.txt").read_text() == "x\n"


async def test_policies_by_name_and_as_objects(tmp_path: Path) -> None:
    class Guard:
        name = "guard"

        async def decide(self, request: Any) -> Any:
            return Deny("guarded") if "secret" in str(request.paths) else None

    async with open_session(
        "demo", "write a.txt x\nwrite secret y", cwd=tmp_path, policies=["allow", Guard()]
    ) as session:
        events = await events_of(session)
    decided = [e.data.decided_by for e in events if isinstance(e.data, ApprovalResolved)]
    assert decided == ["policy:allow", "policy:guard"]
    assert not (tmp_path / "secret").exists()


async def test_a_caller_who_answers_at_once_is_no_faster_than_a_policy(tmp_path: Path) -> None:
    class Slow:
        name = "slow"

        async def decide(self, request: Any) -> Any:
            await trio.sleep(0.2)
            return Deny("never")

    async with open_session("demo", "write a.txt x", cwd=tmp_path, policies=[Slow()]) as session:
        asked = await wait_for(session, ApprovalRequested)
        with pytest.raises(ApprovalClosed) as closed:
            await session.respond(asked.request.id, Allow())
        assert closed.value.by == "policy:slow"
        await session.result()
    assert not (tmp_path / "a.txt").exists()


async def test_two_votes_are_needed_where_a_policy_wants_two(tmp_path: Path) -> None:
    class Two:
        name = "two"

        async def decide(self, request: Any) -> Any:
            return Escalate("two persons", votes=2)

    async with open_session("demo", "write a.txt x", cwd=tmp_path, policies=[Two()]) as session:
        ask = (await wait_for(session, ApprovalRequested)).request.id
        await session.respond(ask, Allow(), by="ann")
        assert session.open_asks
        await session.respond(ask, Allow(), by="bob")
        await session.result()
    assert (tmp_path / "a.txt").exists()


async def test_a_fixed_run_decides_by_its_rules_alone(tmp_path: Path) -> None:
    rules = [Rule("deny", path="secret/**"), Rule("allow", tool="Write")]
    async with open_session("demo", "write a.txt x\nwrite secret/b y\nrun ls", cwd=tmp_path, rules=rules) as session:
        events = await events_of(session)
    decisions = [type(e.data.decision).__name__ for e in events if isinstance(e.data, ApprovalResolved)]
    assert decisions == ["Allow", "Deny", "Deny"]


async def test_an_approval_deadline_denies(tmp_path: Path) -> None:
    async with open_session("demo", "write a.txt x\nsay on", cwd=tmp_path, approval_deadline=0.05) as session:
        events = await events_of(session)
    assert only(events, ApprovalResolved).cause == "deadline"
    assert kinds(events)[-1] == "run_finished"


async def test_a_second_answer_is_refused_and_names_the_first(tmp_path: Path) -> None:
    async with open_session("demo", "write a.txt x", cwd=tmp_path) as session:
        ask = (await wait_for(session, ApprovalRequested)).request.id
        await session.respond(ask, Deny("no"), by="console")
        with pytest.raises(ApprovalClosed) as closed:
            await session.respond(ask, Allow())
        assert closed.value.by == "console"


async def test_the_status_follows_the_run(tmp_path: Path) -> None:
    async with open_session("demo", "write a.txt x", cwd=tmp_path, keep_open=True) as session:
        ask = (await wait_for(session, ApprovalRequested)).request.id
        assert session.status == "awaiting_approval"
        await session.respond(ask, Allow())
        assert session.status == "running"
        await wait_for(session, TurnCompleted)
        assert session.status == "awaiting_input"
        await session.finish()
        assert (await session.result()).outcome == "completed"
        assert session.status == "finished"


# -- messages and interrupts --------------------------------------------------------------------------------------------


async def test_a_session_without_a_prompt_waits_for_messages(tmp_path: Path) -> None:
    async with open_session("demo", cwd=tmp_path) as session:
        assert session.status == "idle"
        sent = await session.send("say one")
        await wait_for(session, TurnCompleted)
        await session.send("say two")
        await session.finish()  # at once: the message that is on its way is still a turn to come
        result = await session.result()
        events = [event async for event in session]
    assert result.final_text == "two"
    assert kinds(events).count("turn_completed") == 2
    assert any(isinstance(e.data, InputAccepted) and e.data.input == sent for e in events)


async def test_a_session_that_was_asked_nothing_completes(tmp_path: Path) -> None:
    async with open_session("demo", cwd=tmp_path) as session:
        await session.finish()
        assert (await session.result()).outcome == "completed"
    assert (await nucleic_core.run("demo", cwd=tmp_path)).outcome == "completed"


async def test_a_message_while_a_turn_runs_is_queued_and_becomes_a_turn_of_its_own(tmp_path: Path) -> None:
    async with open_session("demo", "sleep 0.2\nsay one", cwd=tmp_path) as session:
        await wait_for(session, TurnStarted)
        sent = await session.send("say two")
        events = await events_of(session)
        assert (await session.result()).final_text == "two"
    words = [e.data.state for e in events if isinstance(e.data, InputAccepted) and e.data.input == sent]
    assert words == ["queued", "delivered"]
    assert kinds(events).count("turn_completed") == 2
    assert kinds(events).count("run_finished") == 1


async def test_interrupt_stops_the_turn_and_keeps_the_session(tmp_path: Path) -> None:
    async with open_session("demo", "sleep 60", cwd=tmp_path, keep_open=True) as session:
        await wait_for(session, TurnStarted)
        await session.interrupt()
        assert (await wait_for(session, TurnCompleted)).outcome == "interrupted"
        await session.send("say still here")
        assert (await wait_for(session, TurnCompleted, 2)).final_text == "still here"


async def test_an_interrupt_before_the_turn_has_begun_stops_it_when_it_does(tmp_path: Path) -> None:
    async with open_session("demo", "sleep 60\nsay never", cwd=tmp_path) as session:
        await session.interrupt()
        assert (await session.result()).outcome == "interrupted"
        assert "assistant_text" not in kinds(await events_of(session))


async def test_an_interrupt_of_nothing_does_nothing_to_the_next_turn(tmp_path: Path) -> None:
    async with open_session("demo", cwd=tmp_path) as session:
        await session.interrupt()
        await session.send("sleep 0.05\nsay one")
        assert (await wait_for(session, TurnCompleted)).outcome == "completed"
        await session.interrupt()
        await session.send("sleep 0.05\nsay two")
        assert (await wait_for(session, TurnCompleted, 2)).outcome == "completed"


async def test_an_interrupt_closes_the_open_ask_and_a_late_answer_never_succeeds(tmp_path: Path) -> None:
    async with open_session("demo", "write a.txt x\nsay never", cwd=tmp_path) as session:
        ask = (await wait_for(session, ApprovalRequested)).request.id
        await session.interrupt()
        with pytest.raises(ApprovalClosed, match="interrupted"):
            await session.respond(ask, Allow())
        assert (await session.result()).outcome == "interrupted"
        events = await events_of(session)
    assert only(events, ApprovalResolved).cause == "interrupted"
    assert not (tmp_path / "a.txt").exists()


async def test_after_the_end_nothing_can_be_sent(tmp_path: Path) -> None:
    async with open_session("demo", "say hi", cwd=tmp_path) as session:
        await session.result()
        with pytest.raises(AgentGone, match="resume"):
            await session.send("more")
        await session.interrupt()
        await session.finish()
        assert [e async for e in session.events(after=session.last_seq)] == []


async def test_steering_is_refused_where_the_backend_cannot(tmp_path: Path) -> None:
    async with open_session("demo", "sleep 60", cwd=tmp_path) as session:
        await wait_for(session, TurnStarted)
        with pytest.raises(Unsupported, match="steer"):
            await session.send("go left", steer=True)
        assert kinds(await _so_far(session)).count("user_message") == 1


async def _so_far(session: Any) -> list[Any]:
    return [event async for event in _until(session, session.last_seq)]


async def _until(session: Any, seq: int) -> Any:
    async for event in session:
        yield event
        if event.seq >= seq:
            return


# -- several readers, several sessions ----------------------------------------------------------------------------------


async def test_every_reader_gets_every_event_in_order(tmp_path: Path) -> None:
    async with open_session("demo", "say a b c\nwrite a.txt x", cwd=tmp_path, policies=["allow"]) as session:
        seen: list[list[int]] = [[], [], []]

        async def read(mine: list[int]) -> None:
            async for event in session.events():
                mine.append(event.seq)

        async with trio.open_nursery() as nursery:
            for mine in seen:
                nursery.start_soon(read, mine)
    assert seen[0] == seen[1] == seen[2] == list(range(1, session.last_seq + 1))


async def test_twenty_sessions_at_once_on_one_host(tmp_path: Path, home: Path) -> None:
    done: dict[int, str | None] = {}

    async def one(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        prompt = f"write out.txt {number}\nsay {number}"
        async with open_session("demo", prompt, cwd=folder, host=host, policies=["allow"]) as session:
            done[number] = (await session.result()).final_text

    async with open_host() as host:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(one, number)
        assert host.sessions == {}
    assert done == {number: str(number) for number in range(20)}
    assert all((tmp_path / str(n) / "out.txt").read_text() == f"{n}\n" for n in range(20))
    assert len(list((home / "sessions").iterdir())) == 20
    assert list((home / "hosts").iterdir()) == []


async def test_text_that_is_no_unicode_reaches_agent_and_record_as_replacement_characters(
    tmp_path: Path, home: Path
) -> None:
    script = 'for _ in range(2): tell("say", text=prompt()); done(text="x")'
    async with open_fake(Scripted(script), "a\udc80", cwd=tmp_path, keep_open=True) as session:
        await session.send(AgentInput((Context("l\udc81", "b\udc82"),)))
        await session.finish()
        events = await events_of(session)
    said = [event.data.text for event in events if isinstance(event.data, AssistantText)]
    assert said == ["a\ufffd", "Context (l\ufffd):\nb\ufffd"]
    assert [event.data.text for event in events if isinstance(event.data, UserMessage)] == said
    assert [row.title for row in Index(home).sessions()] == ["a\ufffd"]


async def test_a_directory_whose_name_is_no_utf8_is_refused_before_anything_is_made(tmp_path: Path, home: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    with pytest.raises(BadDirectory, match="no UTF-8"):
        await run("demo", "say hi", cwd=os.fsdecode(odd))
    assert not (home / "sessions").exists()


async def test_a_temporary_directory_whose_name_is_no_utf8_holds_no_socket_and_no_session_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as short:  # a socket's path may not be long
        odd = os.fsencode(short) + b"/\xff"
        os.mkdir(odd)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr("tempfile.tempdir", os.fsdecode(odd))
        assert (await run("demo", "say hi", cwd=tmp_path)).outcome == "completed"


@pytest.mark.parametrize("broken", ["Index.update", "SessionRow", "title_of"])
async def test_an_index_row_that_fails_hurts_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("a bug of ours")

    monkeypatch.setattr(f"nucleic_core._store.index.{broken}", fails)
    assert (await run("demo", "say hi", cwd=tmp_path)).outcome == "completed"


async def test_the_agent_gets_our_umask_and_not_one_of_the_machinerys(tmp_path: Path) -> None:
    before = os.umask(0o022)
    os.umask(before)
    for _ in range(3):
        async with open_session("demo", "run umask", cwd=tmp_path, policies=["allow"]) as session:
            assert int(results(await events_of(session))[0], 8) == before


# -- refused before the spawn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"model": "gpt-9"}, "model"),
        ({"system_prompt": "be nice"}, "system_prompt"),
        ({"sandbox": "read-only"}, "sandbox"),
        ({"ephemeral": True}, "ephemeral"),
        ({"partials": False}, "partials"),
        ({"extra_args": ["--yolo"]}, "extra_args"),
        ({"add_dirs": ["/tmp"]}, "add_dirs"),
        ({"output_schema": {}}, "output_schema"),
        ({"mcp_config": "x.json"}, "mcp_config"),
        ({"settings": {"speed": 9}}, "settings"),
        ({"fork": True}, "resumed"),
    ],
)
async def test_a_field_that_is_not_honoured_is_refused(tmp_path: Path, home: Path, options: Any, error: str) -> None:
    with pytest.raises(Unsupported, match=error):
        async with open_session("demo", "say hi", cwd=tmp_path, **options):
            pass
    transcripts = list(home.glob("sessions/*/transcript.jsonl"))
    assert all(b"session_started" not in path.read_bytes() for path in transcripts)


async def test_an_unknown_option_is_a_wrong_call(tmp_path: Path, home: Path) -> None:
    with pytest.raises(TypeError, match="modle"):
        async with open_session("demo", "say hi", cwd=tmp_path, modle="x"):  # type: ignore[call-arg]
            pass
    assert not (home / "sessions").exists()


async def test_an_image_is_refused_where_the_backend_takes_none(tmp_path: Path, home: Path) -> None:
    picture = AgentInput((Text("look"), Image(b"png", "image/png")))
    with pytest.raises(Unsupported, match="images"):
        async with open_session("demo", picture, cwd=tmp_path):
            pass
    assert not (home / "sessions").exists()
    async with open_session("demo", cwd=tmp_path) as session:
        with pytest.raises(Unsupported, match="images"):
            await session.send(picture)


@pytest.mark.parametrize("prompt", ["", "  \n", AgentInput(())])
async def test_an_empty_prompt_is_refused(tmp_path: Path, prompt: Any) -> None:
    with pytest.raises(Unsupported, match="empty"):
        async with open_session("demo", prompt, cwd=tmp_path):
            pass


async def test_a_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDirectory, match="missing"):
        async with open_session("demo", "say hi", cwd=tmp_path / "missing"):
            pass


async def test_a_backend_that_is_not_installed_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BackendMissing, match="demo"):
        async with open_session("nope", "say hi", cwd=tmp_path):
            pass


async def test_an_unknown_policy_leaves_no_session_behind(tmp_path: Path, home: Path) -> None:
    with pytest.raises(BadSettings, match="alow"):
        async with open_session("demo", "say hi", cwd=tmp_path, policies=["alow"]):
            pass
    assert not (home / "sessions").exists()


async def test_the_run_finished_event_is_the_last_that_iterators_give(tmp_path: Path) -> None:
    async with open_session("demo", "say hi", cwd=tmp_path) as session:
        events = await events_of(session)
        again = await events_of(session)
    assert isinstance(events[-1].data, RunFinished)
    assert events == again


async def test_an_ask_that_stands_before_the_line_of_its_call_comes_after_the_call_all_the_same(tmp_path: Path) -> None:
    lines = """
prompt()
ask = {"t": "ask", "key": "k", "call": "1", "tool": "Write", "input": {"paths": ["a"]}}
call = {"t": "call", "id": "1", "tool": "Write", "input": {"paths": ["a"]}}
sys.stdout.write(json.dumps(ask) + chr(10) + json.dumps(call) + chr(10)); sys.stdout.flush()
hear(); tell("result", id="1"); done(); stay()
"""
    async with open_fake(Scripted(lines), cwd=tmp_path) as session:
        events = await events_of(session, Allow())
    order = [k for k in kinds(events) if k.startswith(("tool_", "approval_"))]
    assert order == [
        "tool_call_started",
        "tool_call_completed",
        "approval_requested",
        "approval_resolved",
        "tool_result",
    ]
