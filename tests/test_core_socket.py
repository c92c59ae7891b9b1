"""The control socket: answering from another process, and who may not."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from core_agents import events_of, only, wait_for
from nucleic_core import (
    Allow,
    AllowAlways,
    Answers,
    CancelRun,
    Deny,
    Host,
    Session,
    open_host,
    open_session,
)
from nucleic_core._socket import decision_from_json
from nucleic_core.events import ApprovalRequested, ApprovalResolved, ToolResult, TurnCompleted, TurnStarted, plain

CLIENT = """
import json, socket, sys
path, *requests = sys.argv[1:]
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(path)
f = s.makefile("rw")
for request in requests:
    f.write(request + chr(10)); f.flush(); print(f.readline().strip(), flush=True)
"""


@asynccontextmanager
async def serving(prompt: str | None, cwd: Path, **options: Any) -> AsyncIterator[tuple[Session, Host]]:
    async with open_host() as host, open_session("demo", prompt, cwd=cwd, host=host, **options) as session:
        yield session, host


def path_of(host: Host) -> str:
    assert host.socket is not None
    return str(host.socket.path)


async def request(host: Host, *requests: Any) -> list[Any]:
    """Answers to requests made from within this process; bytes go as they are."""
    async with await trio.open_unix_socket(path_of(host)) as stream:
        data = b"".join(r if isinstance(r, bytes) else orjson.dumps(r) + b"\n" for r in requests)
        answers = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_feed, stream, data)
            while answers.count(b"\n") < len(requests) and (chunk := await stream.receive_some()):
                answers += chunk
            nursery.cancel_scope.cancel()
    return [orjson.loads(line) for line in answers.splitlines()]


async def _feed(stream: trio.SocketStream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except trio.BrokenResourceError:
        pass


async def ask_of(session: Session) -> str:
    return str((await wait_for(session, ApprovalRequested)).request.id)


# -- answers ------------------------------------------------------------------------------------------------------------


async def test_another_process_answers_and_the_record_names_it(tmp_path: Path) -> None:
    async with serving("write a.txt x", tmp_path) as (session, host):
        ask = await ask_of(session)
        answer = orjson.dumps(
            {"verb": "answer", "ask": ask, "decision": {"type": "allow"}, "client": "phone:1"}
        ).decode()
        done = await trio.run_process(
            [sys.executable, "-c", CLIENT, path_of(host), answer, answer], capture_stdout=True
        )
        first, second = map(orjson.loads, done.stdout.splitlines())
        assert first == {"ok": True}
        assert (second["kind"], second["by"]) == ("ApprovalClosed", "socket:phone:1")
        events = await events_of(session)
    assert only(events, ApprovalResolved).decided_by == "socket:phone:1"
    assert (tmp_path / "a.txt").exists()


async def test_a_client_is_no_faster_than_a_policy_that_denies(tmp_path: Path) -> None:
    class Slow:
        name = "slow"

        async def decide(self, request: Any) -> Any:
            await trio.sleep(0.2)
            return Deny("never")

    async with serving("write a.txt x", tmp_path, policies=[Slow()]) as (session, host):
        ask = await ask_of(session)
        (answer,) = await request(host, {"verb": "answer", "ask": ask, "decision": {"type": "allow"}})
    assert answer["by"] == "policy:slow"
    assert not (tmp_path / "a.txt").exists()


async def test_open_asks_can_be_listed(tmp_path: Path) -> None:
    async with serving("write a.txt x", tmp_path) as (session, host):
        ask = await ask_of(session)
        (answer,) = await request(host, {"verb": "asks"})
        assert [(a["session"], a["ask"]["id"], a["ask"]["tool"]) for a in answer["asks"]] == [
            (session.id, ask, "Write")
        ]
        assert answer["asks"][0]["ask"]["paths"] == [str(tmp_path.resolve() / "a.txt")]


async def test_messages_and_interrupts(tmp_path: Path) -> None:
    async with serving(None, tmp_path) as (session, host):
        (sent,) = await request(host, {"verb": "send", "session": session.id, "text": "sleep 60"})
        assert sent["ok"]
        await wait_for(session, TurnStarted)
        (stopped,) = await request(host, {"verb": "interrupt", "session": session.id})
        assert stopped == {"ok": True}
        assert (await wait_for(session, TurnCompleted)).outcome == "interrupted"
        (steered,) = await request(host, {"verb": "send", "session": session.id, "text": "x", "steer": True})
        assert steered["kind"] == "Unsupported"


async def test_the_card_names_a_socket_that_answers_and_the_sessions_of_each_host(tmp_path: Path, home: Path) -> None:
    async with serving("sleep 60", tmp_path) as (one, _), serving("sleep 60", tmp_path) as (two, _):
        cards = [orjson.loads(path.read_bytes()) for path in (home / "hosts").iterdir()]
        assert sorted(card["sessions"] for card in cards) == sorted([[one.id], [two.id]])
        assert {card["pid"] for card in cards} == {os.getpid()}
        for card in cards:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(card["socket"])
    assert list((home / "hosts").iterdir()) == []


async def test_a_session_is_reachable_from_the_moment_it_is_open(tmp_path: Path, home: Path) -> None:
    async with open_session("demo", "say hi", cwd=tmp_path) as session:
        (path,) = (home / "hosts").iterdir()
        card = orjson.loads(path.read_bytes())
        assert card["sessions"] == [session.id]
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(card["socket"])


async def test_opening_a_host_leaves_the_umask_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def umask(_: int) -> int:
        raise AssertionError("the umask is the whole process's")

    monkeypatch.setattr(os, "umask", umask)
    async with serving("say hi", tmp_path) as (session, _):
        await session.result()


@pytest.mark.parametrize("runtime", ["/nowhere/at/all", "", "x" * 200])
async def test_a_useless_runtime_directory_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    async with serving("sleep 60", tmp_path) as (_, host):
        assert (await request(host, {"verb": "asks"}))[0]["ok"]
        assert len(os.fsencode(path_of(host))) < 108


# -- who may not --------------------------------------------------------------------------------------------------------


async def run_in_the_agent(session: Session, command: str) -> str:
    """The output of a shell command of the agent; its own ask is allowed, and nothing else."""
    await session.send(f"run {command}")
    asked = await wait_for(session, ApprovalRequested)
    await session.respond(asked.request.id, Allow())
    return str((await wait_for(session, ToolResult)).content)


async def test_a_process_of_the_agent_may_not_use_the_socket(tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(CLIENT)
    async with serving(None, tmp_path) as (session, host):
        request = orjson.dumps({"verb": "send", "session": session.id, "text": "run rm -rf x"}).decode()
        said = await run_in_the_agent(session, f"{sys.executable} {client} {path_of(host)} '{request}'")
    assert "own processes may not" in said
    assert '"ok"' not in said


async def test_washing_the_environment_does_not_help_a_child_of_the_agent(tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(CLIENT)
    async with serving(None, tmp_path) as (session, host):
        command = f'env -i {sys.executable} {client} {path_of(host)} \'{{"verb": "asks"}}\''
        said = await run_in_the_agent(session, command)
    assert "own processes may not" in said


async def test_a_peer_that_has_gone_is_refused_since_nobody_can_say_whose_it_was(tmp_path: Path) -> None:
    code = """import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
if os.fork(): os._exit(0)  # the one that connected is gone; its child holds the line
s.sendall(b'{"verb": "asks"}\\n'); print(s.makefile().readline())"""
    client = tmp_path / "client.py"
    client.write_text(code)
    async with serving("sleep 60", tmp_path) as (_, host):
        with subprocess.Popen([sys.executable, str(client), path_of(host)], stdout=subprocess.PIPE) as peer:
            peer.wait()  # blocks our loop too: when it gets to look, the one that connected is gone
            assert peer.stdout is not None
            said = await trio.to_thread.run_sync(peer.stdout.read)
    assert b"own processes may not" in said


async def test_a_refused_peer_does_not_keep_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nucleic_core._socket._refusal", lambda peer: "no")
    monkeypatch.setattr("nucleic_core._socket._REFUSED_PATIENCE", 0.1)
    async with serving("sleep 60", tmp_path) as (_, host):
        idle = [await trio.open_unix_socket(path_of(host)) for _ in range(70)]
        with trio.fail_after(5):
            for stream in idle:
                assert await stream.receive_some() == b""
                await stream.aclose()


# -- junk ---------------------------------------------------------------------------------------------------------------

JUNK: list[Any] = [
    b"not json\n",
    b"\xff\xfe\n",
    [],
    5,
    None,
    {},
    {"verb": None},
    {"verb": ["answer"]},
    {"verb": "rm"},
    {"verb": "answer"},
    {"verb": "answer", "ask": "nope", "decision": {"type": "allow"}},
    {"verb": "answer", "ask": ["x"], "decision": {"type": "allow"}},
    {"verb": "answer", "ask": "x", "decision": "allow"},
    {"verb": "send", "session": "nope", "text": "hi"},
    {"verb": "send", "text": 5},
    {"verb": "send", "session": {}, "text": "hi"},
    {"verb": "interrupt"},
    {"verb": "asks", "client": "a b"},
    {"verb": "asks", "client": "x" * 65},
    {"verb": "asks", "client": "\u202e"},
]


async def test_junk_gets_an_error_each_and_the_connection_lives_on(tmp_path: Path) -> None:
    async with serving("sleep 60", tmp_path) as (_, host):
        answers = await request(host, *JUNK, {"verb": "asks"})
    assert len(answers) == len(JUNK) + 1
    assert all(answer["error"] and answer["kind"] for answer in answers[:-1])
    assert answers[-1]["ok"]


async def test_a_huge_request_is_refused_without_being_kept(tmp_path: Path) -> None:
    async with serving("sleep 60", tmp_path) as (_, host):
        answers = await request(host, b"x" * 5_000_000 + b"\n", {"verb": "asks"})
    assert "4194304 bytes" in answers[0]["error"]
    assert answers[1]["ok"]


async def test_a_client_that_leaves_in_the_middle_of_a_request_does_no_harm(tmp_path: Path) -> None:
    async with serving("sleep 60", tmp_path) as (_, host):
        for data in (b'{"verb": "as', b'{"verb": "asks"}\n'):
            stream = await trio.open_unix_socket(path_of(host))
            await stream.send_all(data)
            await stream.aclose()
        assert (await request(host, {"verb": "asks"}))[0]["ok"]


async def test_a_drivers_own_error_reaches_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Any, *_: Any, **__: Any) -> str:
        raise KeyError("driver")

    async with serving("sleep 60", tmp_path) as (session, host):
        monkeypatch.setattr(Session, "send", broken)
        (answer,) = await request(host, {"verb": "send", "session": session.id, "text": "hi"})
    assert answer["kind"] == "KeyError"


# -- decisions as JSON --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decision",
    [
        Allow(),
        Allow({"command": "ls"}),
        AllowAlways("session"),
        AllowAlways("tool_name_with_pattern", "Edit(**)"),
        Deny("no"),
        CancelRun("enough"),
        Answers({"q": "a"}),
        Answers(None),
    ],
)
def test_decisions_come_back_as_they_are_written(decision: Any) -> None:
    assert decision_from_json(orjson.loads(orjson.dumps(plain(decision), default=plain))) == decision


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "allow",
        {},
        {"type": "maybe"},
        {"type": ["allow"]},
        {"type": "allow_always", "scope": "forever"},
        {"type": "allow_always", "scope": ["session"]},
        {"type": "allow_always", "pattern": 5},
        {"type": "deny", "reason": 5},
        {"type": "answers", "answers": ["a"]},
        {"type": "answers", "answers": {"q": 5}},
    ],
)
def test_what_is_no_decision_is_a_value_error(wrong: Any) -> None:
    with pytest.raises(ValueError, match="."):
        decision_from_json(wrong)


KEYS = st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | KEYS, lambda x: st.lists(x) | st.dictionaries(KEYS, x), max_leaves=5
)
DECISIONS = st.fixed_dictionaries(
    {"type": st.sampled_from(["allow", "allow_always", "deny", "cancel_run", "answers"])},
    optional=dict.fromkeys(("reason", "scope", "pattern", "answers", "updated_input"), JSON),
)


@settings(max_examples=50)
@given(DECISIONS)
def test_any_json_is_a_decision_or_a_value_error(value: Any) -> None:
    try:
        decision_from_json(value)
    except ValueError:
        pass
