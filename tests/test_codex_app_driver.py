"""The driver of the app-server over a link whose agent is the test: what it writes, and when."""

import signal
from pathlib import Path

import pytest
import trio
from nucleic_codex.app_server.decode import AppServerDecoder
from nucleic_codex.app_server.driver import AppServerDriver
from nucleic_codex.program import Program

from nucleic_core.errors import AgentRefused, StartFailed, Unsupported
from nucleic_core.specs import AgentInput, RunSpec, Text
from nucleic_core.testing import FakeLink

THREAD = {"thread": {"id": "root"}, "cwd": "/repo", "model": "gpt-5.5"}


@pytest.fixture(autouse=True)
def version(monkeypatch):
    """Stands in for the program: entering a driver finds this version of it."""
    found = {"is": (0, 171, 0)}

    async def find(executable, env):
        return Program("/bin/codex", found["is"])

    monkeypatch.setattr("nucleic_codex.app_server.driver.find", find)
    return found


def a_run(**fields):
    return RunSpec(session="s", backend="codex", cwd=Path("/repo"), **fields)


class Talk:
    """A driver past its handshake, and the app-server's end of the pipe."""

    def __init__(self, nursery, **fields):
        run = a_run(**fields)
        decoder = AppServerDecoder(cwd=run.cwd)
        self.driver, self.link, self._nursery = AppServerDriver(run, decoder), FakeLink(run, decoder), nursery
        self.answers = {"initialize": {}, "config/read": {"config": {}}}
        for method in ("thread/start", "thread/resume", "thread/fork"):
            self.answers[method] = THREAD
        self.opened = {}

    async def __aenter__(self):
        await self.driver.__aenter__()
        self._nursery.start_soon(self._shake_hands)
        await self._nursery.start(self.driver.converse, self.link)
        return self

    async def __aexit__(self, *error):
        self.link.hang_up()
        await self.driver.__aexit__(None, None, None)

    async def _shake_hands(self):
        while not self.opened:
            request = await self.link.heard()
            if "id" in request:
                self.link.say({"id": request["id"], **self._answer(request["method"])})
            if request["method"].startswith("thread/"):
                self.opened = request

    def _answer(self, method):
        answer = self.answers[method]
        return {"error": answer} if "code" in answer else {"result": answer}

    async def asked(self, method):
        """The next request of the driver's, which must be of this method."""
        request = await self.link.heard()
        assert request["method"] == method
        return request

    def reply(self, request, result):
        self.link.say({"id": request["id"], "result": result})

    def refuse(self, request, message="no"):
        self.link.say({"id": request["id"], "error": {"code": -32600, "message": message}})

    def begins(self, turn, thread="root"):
        self.link.say({"method": "turn/started", "params": {"threadId": thread, "turn": {"id": turn}}})

    def ends(self, turn, thread="root", status="completed"):
        ended = {"id": turn, "status": status, "error": None, "items": []}
        self.link.say({"method": "turn/completed", "params": {"threadId": thread, "turn": ended}})

    async def runs(self, turn, text="Go."):
        """Send a message and let its turn begin."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.driver.send, AgentInput.of(text))
            request = await self.asked("turn/start")
            self.reply(request, {"turn": {"id": turn}})
        self.begins(turn)
        await trio.testing.wait_all_tasks_blocked()

    @property
    def methods(self):
        return [message["method"] for message in self.link.written if "method" in message]


async def test_the_handshake_initializes_reads_the_settings_and_opens_the_thread(nursery):
    async with Talk(nursery) as talk:
        assert talk.methods == ["initialize", "initialized", "config/read", "thread/start"]
        assert all("jsonrpc" not in message for message in talk.link.written)
        assert talk.opened["params"]["approvalsReviewer"] == "user"
        assert talk.link.proved.interactive_approvals


@pytest.mark.parametrize(("found", "short"), [((0, 171, 0), True), ((0, 146, 0), False)])
async def test_a_resumed_thread_comes_without_its_turns_where_codex_can(nursery, version, found, short):
    version["is"] = found
    async with Talk(nursery, native_resume="old") as talk:
        assert talk.opened["method"] == "thread/resume"
        assert talk.opened["params"]["threadId"] == "old"
        assert talk.opened["params"]["approvalsReviewer"] == "user"
        assert ("excludeTurns" in talk.opened["params"]) == short


async def test_a_fork_is_asked_for_as_one(nursery):
    async with Talk(nursery, native_resume="old", fork=True) as talk:
        assert (talk.opened["method"], talk.opened["params"]["threadId"]) == ("thread/fork", "old")


async def test_a_resumed_session_cannot_be_ephemeral(nursery):
    driver = AppServerDriver(a_run(native_resume="old", ephemeral=True), AppServerDecoder())
    link = FakeLink(a_run())

    async def agent():
        for result in ({}, {"config": {}}):
            while "id" not in (request := await link.heard()):
                pass
            link.say({"id": request["id"], "result": result})

    nursery.start_soon(agent)
    async with driver:
        with pytest.raises(Unsupported):
            await nursery.start(driver.converse, link)


async def test_a_thread_that_codex_refuses_fails_the_start_in_codexs_words(nursery):
    talk = Talk(nursery, native_resume="old")
    talk.answers["thread/resume"] = {"code": -32600, "message": "thread old already has an active writer"}
    with pytest.raises(StartFailed, match="already has an active writer"):
        async with talk:
            pass


async def test_a_newer_version_than_was_looked_at_is_said(nursery, version):
    version["is"] = (0, 999, 0)
    async with Talk(nursery) as talk:
        assert [topic for topic, _ in talk.link.notices] == ["version"]


async def test_a_message_is_a_turn_that_bears_its_id(nursery):
    async with Talk(nursery) as talk, trio.open_nursery() as sending:
        sending.start_soon(talk.driver.send, AgentInput((Text("Go."),), "m1"))
        request = await talk.asked("turn/start")
        assert request["params"]["threadId"] == "root"
        assert request["params"]["clientUserMessageId"] == "m1"
        talk.reply(request, {"turn": {"id": "t1"}})


async def test_a_message_while_a_turn_runs_waits_for_its_end_and_no_turn_is_started_on_it(nursery):
    async with Talk(nursery) as talk:
        await talk.runs("t1")
        await talk.driver.send(AgentInput.of("Next."))
        await talk.driver.send(AgentInput.of("And next."))
        assert talk.methods.count("turn/start") == 1
        talk.ends("t1")
        request = await talk.asked("turn/start")
        assert request["params"]["input"][0]["text"] == "Next."
        talk.reply(request, {"turn": {"id": "t2"}})
        await trio.testing.wait_all_tasks_blocked()
        assert talk.methods.count("turn/start") == 2  # t2 has not begun, and runs all the same
        talk.begins("t2")
        talk.ends("t2")
        assert (await talk.asked("turn/start"))["params"]["input"][0]["text"] == "And next."


async def test_a_message_between_the_reply_and_the_turns_beginning_waits_too(nursery):
    async with Talk(nursery) as talk:
        async with trio.open_nursery() as sending:
            sending.start_soon(talk.driver.send, AgentInput.of("Go."))
            talk.reply(await talk.asked("turn/start"), {"turn": {"id": "t1"}})
        await talk.driver.send(AgentInput.of("Next."))
        assert talk.methods.count("turn/start") == 1


async def test_the_end_of_a_sub_agents_turn_starts_nothing(nursery):
    async with Talk(nursery) as talk:
        await talk.runs("t1")
        await talk.driver.send(AgentInput.of("Next."))
        talk.begins("c1", thread="child")
        talk.ends("c1", thread="child")
        await trio.testing.wait_all_tasks_blocked()
        assert talk.methods.count("turn/start") == 1


async def test_a_turn_that_is_refused_raises_and_the_next_message_goes(nursery):
    async with Talk(nursery) as talk:

        async def sent():
            with pytest.raises(AgentRefused, match="too large"):
                await talk.driver.send(AgentInput.of("Go."))

        async with trio.open_nursery() as sending:
            sending.start_soon(sent)
            talk.refuse(await talk.asked("turn/start"), "too large")
        await talk.runs("t1", "Again.")


async def test_a_queued_turn_that_is_refused_lets_the_one_behind_it_go(nursery):
    async with Talk(nursery) as talk:
        await talk.runs("t1")
        await talk.driver.send(AgentInput.of("Next."))
        await talk.driver.send(AgentInput.of("And next."))
        talk.ends("t1")
        talk.refuse(await talk.asked("turn/start"))
        assert (await talk.asked("turn/start"))["params"]["input"][0]["text"] == "And next."


async def test_steering_names_the_turn_that_is_meant(nursery):
    async with Talk(nursery) as talk:
        await talk.runs("t1")
        async with trio.open_nursery() as sending:
            sending.start_soon(lambda: talk.driver.send(AgentInput.of("Left."), steer=True))
            request = await talk.asked("turn/steer")
            assert request["params"]["expectedTurnId"] == "t1"
            talk.reply(request, {"turnId": "t1"})


async def test_steering_with_no_turn_to_steer_begins_one(nursery):
    async with Talk(nursery) as talk, trio.open_nursery() as sending:
        sending.start_soon(lambda: talk.driver.send(AgentInput.of("Left."), steer=True))
        talk.reply(await talk.asked("turn/start"), {"turn": {"id": "t1"}})


async def test_an_interrupt_stops_the_root_and_every_child_that_runs(nursery):
    async with Talk(nursery) as talk:
        await talk.runs("t1")
        talk.begins("c1", thread="one")
        talk.begins("c2", thread="two")
        talk.ends("c2", thread="two")
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as stopping:
            stopping.start_soon(talk.driver.interrupt)
            stopped = {}
            for _ in range(2):
                request = await talk.asked("turn/interrupt")
                stopped[request["params"]["threadId"]] = request["params"]["turnId"]
                talk.reply(request, {})
        assert stopped == {"root": "t1", "one": "c1"}


async def test_an_interrupt_of_a_turn_that_has_just_ended_is_no_error(nursery):
    async with Talk(nursery) as talk:
        await talk.runs("t1")
        async with trio.open_nursery() as stopping:
            stopping.start_soon(talk.driver.interrupt)
            talk.refuse(await talk.asked("turn/interrupt"), "no active turn to interrupt")
        assert talk.link.signals == []


async def test_an_interrupt_that_is_not_answered_becomes_a_signal(nursery, autojump_clock):
    async with Talk(nursery) as talk:
        await talk.runs("t1")
        await talk.driver.interrupt()
        assert talk.link.signals == [signal.SIGINT]


async def test_the_end_of_input_is_all_that_finishes_it(nursery):
    async with Talk(nursery) as talk:
        await talk.driver.finish()
        assert not talk.link.stdin_open
