"""Taking a session up again: resume, fork, what a killed host left behind, one writer a session."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from core_agents import events_of, kinds, only, wait_for
from nucleic_core import (
    Allow,
    AllowAlways,
    Answers,
    BadDirectory,
    Deny,
    SessionBusy,
    SessionNotFound,
    Unsupported,
    open_host,
    open_session,
    run,
)
from nucleic_core._session.history import read_history
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    Notice,
    QuestionAnswered,
    RunFinished,
    SessionStarted,
    ToolResult,
    UserMessage,
)


def transcript(home: Path, session: str) -> Path:
    return home / "sessions" / session / "transcript.jsonl"


async def test_a_resume_goes_on_under_the_same_ids_and_numbers(tmp_path: Path) -> None:
    first = await run("demo", "say one", cwd=tmp_path)
    async with open_session(resume=first.session, prompt="say two") as session:
        new = await events_of(session)
        history = [event async for event in session.events(after=0)]
    assert session.id == first.session
    assert session.native_id == first.native_id
    assert [e.data.text for e in new if isinstance(e.data, UserMessage)] == ["say two"]
    assert [e.seq for e in history] == list(range(1, len(history) + 1))
    assert kinds(history).count("run_finished") == 2
    assert history[-len(new) :] == new


async def test_a_resume_without_a_prompt_waits_for_a_message(tmp_path: Path) -> None:
    first = await run("demo", "say one", cwd=tmp_path)
    async with open_session(resume=first.session) as session:
        await session.send("say two")
        await session.finish()
        assert (await session.result()).final_text == "two"


async def test_a_fork_is_a_new_session_with_the_same_past(tmp_path: Path, home: Path) -> None:
    first = await run("demo", "say one", cwd=tmp_path)
    before = transcript(home, first.session).read_bytes()
    async with open_session(resume=first.session, fork=True, prompt="say two") as session:
        result = await session.result()
    assert result.session != first.session
    assert result.native_id != first.native_id
    assert session.header.forked_from == first.session
    assert transcript(home, first.session).read_bytes() == before


async def test_what_was_always_allowed_is_still_allowed_after_a_resume(tmp_path: Path) -> None:
    async with open_session("demo", "run echo a", cwd=tmp_path) as session:
        await events_of(session, AllowAlways("session"))
    async with open_session(resume=session.id, prompt="run echo a\nrun echo b", responder="deny") as session:
        events = await events_of(session)
    decided = [e.data.decided_by for e in events if isinstance(e.data, ApprovalResolved)]
    assert decided[0].startswith("rule:")
    assert decided[1] == "nucleic"


async def test_a_fork_takes_no_permissions_along(tmp_path: Path) -> None:
    async with open_session("demo", "run echo a", cwd=tmp_path) as session:
        await events_of(session, AllowAlways("tool_name"))
    async with open_session(resume=session.id, fork=True, prompt="run echo a", responder="deny") as session:
        assert isinstance(only(await events_of(session), ApprovalResolved).decision, Deny)


# -- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["00000000-0000-4000-8000-000000000000", "../../etc", "", "a/b"])
async def test_an_unknown_session_is_not_found(session: str) -> None:
    with pytest.raises(SessionNotFound):
        async with open_session(resume=session):
            pass


async def test_a_session_is_bound_to_its_backend_and_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = await run("demo", "say one", cwd=tmp_path / "a")
    with pytest.raises(Unsupported, match="belongs to demo"):
        async with open_session("claude", "say two", resume=first.session):
            pass
    with pytest.raises(BadDirectory, match="belongs to"):
        async with open_session(resume=first.session, prompt="say two", cwd=tmp_path / "b"):
            pass
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(BadDirectory):
        async with open_session(resume=first.session, prompt="say two"):
            pass


async def test_a_session_whose_agent_never_told_its_id_cannot_be_resumed(tmp_path: Path, home: Path) -> None:
    first = await run("demo", "say one", cwd=tmp_path)
    path = transcript(home, first.session)
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True) if b'"session_started"' not in line))
    with pytest.raises(Unsupported, match="never got an id"):
        async with open_session(resume=first.session, prompt="say two"):
            pass


async def test_one_writer_a_session(tmp_path: Path) -> None:
    async with open_host() as host, open_session("demo", "say one", cwd=tmp_path, host=host, keep_open=True) as session:
        await wait_for(session, SessionStarted)
        with pytest.raises(SessionBusy, match=str(os.getpid())):
            async with open_session(resume=session.id, prompt="say two", host=host):
                pass
        assert list(host.sessions) == [session.id]
        await session.send("say three")
        await session.finish()
        assert (await session.result()).final_text == "three"


# -- after a kill -------------------------------------------------------------------------------------------------------

HOST = """
import sys, trio
from nucleic_core import open_session
async def main():
    async with open_session("demo", {prompt!r}, cwd={cwd!r}) as session:
        async for event in session:
            if event.kind in ("approval_requested", "question_asked"):
                print(session.id, flush=True)
trio.run(main)
"""


def killed_in(tmp_path: Path, prompt: str) -> str:
    """A session whose host was killed while the first ask of the prompt was open."""
    code = HOST.format(prompt=prompt, cwd=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        session = host.stdout.readline().strip()
        host.kill()
    return session


async def test_what_a_killed_host_left_open_is_closed_and_the_new_run_is_whole(tmp_path: Path, home: Path) -> None:
    session_id = killed_in(tmp_path, "run echo never")
    async with open_session(resume=session_id, prompt="say two") as session:
        assert session.open_asks == ()
        new = await events_of(session)
        result = await session.result()
        history = [event async for event in session.events(after=0)]
    assert result.final_text == "two"
    assert kinds(new)[0] == "user_message"  # the repairs belong to the old run
    assert kinds(new).count("run_finished") == 1
    old = history[: -len(new)]
    assert only(old, ApprovalResolved).cause == "host_restarted"
    assert isinstance(only(old, ApprovalResolved).decision, Deny)
    assert only(old, ToolResult).synthetic
    assert only(old, RunFinished).outcome == "errored"
    assert [e.seq for e in history] == list(range(1, len(history) + 1))
    assert read_history(home, session_id).finished


async def test_a_question_that_a_killed_host_left_open_gets_no_invented_answer(tmp_path: Path) -> None:
    session_id = killed_in(tmp_path, "ask Which? | a | b")
    async with open_session(resume=session_id, prompt="say two") as session:
        history = [event async for event in session.events(after=0)]
    answered = only(history, QuestionAnswered)
    assert (answered.decision, answered.cause) == (Answers(None), "host_restarted")


async def test_a_line_that_a_crash_tore_is_cut_and_said(tmp_path: Path, home: Path) -> None:
    first = await run("demo", "say one", cwd=tmp_path)
    with transcript(home, first.session).open("ab") as file:
        file.write(b'{"seq": 99, "kind": "assist')
    async with open_session(resume=first.session, prompt="say two") as session:
        history = [event async for event in session.events(after=0)]
    assert only(history, Notice).topic == "torn_line"
    assert [e.seq for e in history] == list(range(1, len(history) + 1))


async def test_a_resume_after_a_resume_repairs_nothing_twice(tmp_path: Path, home: Path) -> None:
    session_id = killed_in(tmp_path, "run echo never")
    for text in ("two", "three"):
        async with open_session(resume=session_id, prompt=f"say {text}") as session:
            await session.result()
    lines = [orjson.loads(line) for line in transcript(home, session_id).read_bytes().splitlines()[1:]]
    assert [e["outcome"] for e in lines if e["kind"] == "run_finished"] == ["errored", "completed", "completed"]


async def test_a_transcript_that_changes_between_look_and_lock_is_busy(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await run("demo", "say one", cwd=tmp_path)
    real = read_history

    def racing(where: Path, session: str) -> Any:
        past = real(where, session)
        path = transcript(where, session)
        last = orjson.loads(path.read_bytes().splitlines()[-1])
        with path.open("ab") as file:
            file.write(orjson.dumps({**last, "seq": last["seq"] + 1}) + b"\n")
        return past

    monkeypatch.setattr("nucleic_core._opening.read_history", racing)
    with pytest.raises(SessionBusy, match="just now"):
        async with open_session(resume=first.session, prompt="say two"):
            pass
    monkeypatch.undo()


async def test_an_ask_answered_in_an_earlier_run_is_not_open_in_the_next(tmp_path: Path) -> None:
    async with open_session("demo", "write a.txt x", cwd=tmp_path) as session:
        ask = only([e for e in await events_of(session, Allow()) if e.kind == "approval_requested"], ApprovalRequested)
    async with open_session(resume=session.id, prompt="say two") as session:
        assert not session.knows_ask(ask.request.id)
        await session.result()
