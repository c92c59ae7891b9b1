"""A JSON-RPC agent as a real process in a session: a backend of some forty lines over `RpcDriver`."""

import sys

import pytest
import trio

from core_agents import Scripted, events_of, kinds, only, open_fake, wait_for
from nucleic_core import Allow, ApprovalRequest, Deny, HandshakeTimeout, StartFailed
from nucleic_core.backend import Ask, Reply
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.events import (
    ApprovalRequested,
    AssistantText,
    Error,
    Notice,
    Raw,
    RunFinished,
    SessionStarted,
    TurnCompleted,
    TurnStarted,
)
from nucleic_core.lowlevel import BaseDecoder, RpcDriver, request_key
from nucleic_core.specs import plain_text

AGENT = """
import json, os, sys, time
def say(**message): print(json.dumps(message), flush=True)
def text(it): say(method="text", params={"text": str(it)})
def done(status): say(method="turn/completed", params={"status": status})
mode = sys.argv[1]
for line in sys.stdin:
    message = json.loads(line)
    assert "jsonrpc" not in message
    match message:
        case {"method": "initialize", "id": key}:
            if mode == "refuses": say(id=key, error={"code": -32000, "message": "Log in first."})
            elif mode == "dies": print("no config", file=sys.stderr); sys.exit(2)
            elif mode == "goes_silent": os.close(1); time.sleep(60)
            elif mode != "mute": say(id=str(key), result={"thread": "t-1"}); say(method="warning")
        case {"method": "turn/start", "id": key}:
            say(id=key, result={})
            say(method="turn/started")
            if mode == "asks":
                print(json.dumps([{"id": 0, "method": "may", "params": {"command": "ls"}}, {"id": "0", "method": "odd"}]))
                sys.stdout.flush()
            elif mode == "dies_in_turn": sys.exit(3)
            elif mode == "reads_back": say(id=1, method="fs/read", params={"path": "a.txt"}); text("meanwhile")
        case {"method": "turn/interrupt", "id": key}: say(id=key, result={}); done("interrupted")
        case {"id": 0, "result": {"decision": decision}}: text(decision); done("completed")
        case {"id": 1, "result": result}: text(result); done("completed")
        case {"id": "0", "error": {"code": code}}: text(code)
"""


class Decoder(BaseDecoder):
    def received(self, message, out, channel="stdout"):
        match message:
            case {"method": "fs/read"}:
                pass  # the driver's handler serves it
            case {"method": str(method), "id": key}:
                out.ask(Ask(request_key(key), message), method)
            case {"method": "turn/started"}:
                out.event(TurnStarted(), "turn/started")
            case {"method": "text", "params": {"text": text}}:
                out.event(AssistantText(text), "text")
            case {"method": "turn/completed", "params": {"status": status}}:
                out.event(TurnCompleted(status), "turn/completed")
            case {"id": _, "result": {"thread": thread}}:
                out.event(SessionStarted(thread), "initialize")
            case {"id": _, "result": _}:
                pass
            case _:
                out.event(Raw(message))


class Approvals:
    def read(self, ask):
        if ask.native["method"] != "may":
            return None
        command = ask.native["params"]["command"]
        return ApprovalRequest("Bash", ask.native["params"], f"Run: {command}", command=command)

    def reply(self, ask, decision):
        return Reply({"decision": "accept" if isinstance(decision, Allow) else "decline"})


class Driver(RpcDriver):
    header = False

    @property
    def handlers(self):
        return {"fs/read": self.read}

    async def read(self, params):
        return f"contents of {params['path']}"

    async def start(self):
        await self.peer.call("initialize")

    async def send(self, message, *, steer=False):
        await self.peer.call("turn/start", {"text": plain_text(message)})

    async def interrupt(self):
        await self.peer.call("turn/interrupt", deadline=5)


def agent(mode, **options):
    return Scripted(
        argv=(sys.executable, "-I", "-S", "-c", AGENT, mode),
        driver=Driver,
        decoder=Decoder,
        mapper=Approvals,
        capabilities=BackendCapabilities(interactive_approvals=True, deny_means="goes_on"),
        **options,
    )


@pytest.mark.parametrize(("decision", "word"), [(Allow(), "accept"), (Deny("no"), "decline")])
async def test_an_approval_goes_round_and_a_request_nobody_understands_is_refused_at_once(tmp_path, decision, word):
    async with open_fake(agent("asks"), cwd=tmp_path) as session:
        events = await events_of(session, decision)
        assert session.native_id == "t-1"
        assert only(events, ApprovalRequested).request.command == "ls"
        assert [event.data.text for event in events if isinstance(event.data, AssistantText)] == ["-32601", word]
        assert only(events, Error).code == "unknown_ask"
        assert only(events, RunFinished).outcome == "completed"
        assert [e.data.value for e in events if isinstance(e.data, Raw)] == [
            {"method": "warning"},
            {"id": "0", "method": "odd"},
        ]
        order = kinds(events)
        assert order.index("approval_requested") < order.index("approval_resolved") < order.index("turn_completed")


async def test_a_request_that_is_no_ask_is_served_by_its_handler(tmp_path):
    async with open_fake(agent("reads_back"), cwd=tmp_path) as session:
        events = await events_of(session)
    texts = [event.data.text for event in events if isinstance(event.data, AssistantText)]
    assert texts == ["meanwhile", "contents of a.txt"]
    assert "approval_requested" not in kinds(events)


async def test_an_interrupt_is_a_call_that_is_answered_and_the_session_goes_on(tmp_path):
    async with open_fake(agent("waits"), cwd=tmp_path, keep_open=True) as session:
        await wait_for(session, TurnStarted)
        await session.interrupt()
        assert (await wait_for(session, TurnCompleted)).outcome == "interrupted"
        await session.send("again")
        await wait_for(session, TurnStarted, 2)
        await session.interrupt()
        assert (await wait_for(session, TurnCompleted, 2)).outcome == "interrupted"
        await session.finish()
        assert not [e for e in await events_of(session) if isinstance(e.data, Notice)]


async def test_an_agent_that_dies_in_a_turn_ends_the_run_and_leaves_no_caller_waiting(tmp_path):
    with trio.fail_after(10):
        async with open_fake(agent("dies_in_turn"), cwd=tmp_path) as session:
            events = await events_of(session)
            assert only(events, RunFinished).outcome == "errored"


async def test_a_refused_handshake_fails_the_start_in_the_agents_words(tmp_path):
    with pytest.raises(StartFailed, match=r"The agent refused initialize: Log in first\. \(code -32000\)"):
        async with open_fake(agent("refuses"), cwd=tmp_path):
            pass


async def test_an_agent_that_dies_in_the_handshake_fails_the_start_with_its_stderr(tmp_path):
    with pytest.raises(StartFailed, match=r"exit code 2, saying: no config"):
        async with open_fake(agent("dies"), cwd=tmp_path):
            pass


async def test_an_agent_that_closes_its_output_and_lives_on_has_not_started(tmp_path):
    with pytest.raises(StartFailed, match="ended its output before it was ready"):
        async with open_fake(agent("goes_silent"), cwd=tmp_path):
            pass


async def test_an_agent_that_never_answers_the_handshake_is_given_up_at_its_deadline(tmp_path):
    with pytest.raises(HandshakeTimeout):
        async with open_fake(agent("mute", start_timeout=1.0), cwd=tmp_path):
            pass
