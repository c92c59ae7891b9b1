"""The driver of `claude` against a link that is a pair of lists: what it writes, and what it waits for."""

import signal
from pathlib import Path

import pytest
import trio
from nucleic_claude.driver import ClaudeDriver
from nucleic_claude.program import Program

from nucleic_core.backend import Ask, Reply
from nucleic_core.errors import AgentGone, BackendMissing, BadSettings, StartFailed, Unsupported
from nucleic_core.specs import AgentInput, Context, Image, RunSpec, Text, Tool
from nucleic_core.testing import FakeLink


class Cli(FakeLink):
    """The CLI's end of the control protocol."""

    def requests(self, subtype):
        return [m["request_id"] for m in self.written if m.get("request", {}).get("subtype") == subtype]

    async def replied(self, subtype, response=None):
        """Wait for our next control request of a kind and answer it as the CLI does."""
        while not (found := self.requests(subtype)):
            await trio.sleep(0.01)
        body = {"subtype": "success", "request_id": found[-1], "response": response}
        self.say({"type": "control_response", "response": body})


@pytest.fixture
def version(monkeypatch):
    """Stands in for the program: entering a driver finds this version of it."""
    found = {"is": (2, 1, 332)}

    async def find(executable, env):
        return Program("/bin/claude", found["is"])

    monkeypatch.setattr("nucleic_claude.driver.find", find)
    return found


def a_run(**fields):
    return RunSpec(session="s", backend="claude", cwd=Path("/repo"), **fields)


class Talk:
    """A driver in conversation over a fake link, past the handshake."""

    def __init__(self, nursery, run):
        self.driver, self.link, self._nursery = ClaudeDriver(run), Cli(run), nursery

    async def __aenter__(self):
        await self.driver.__aenter__()
        async with trio.open_nursery() as starting:
            starting.start_soon(self.link.replied, "initialize")
            await self._nursery.start(self.driver.converse, self.link)
        return self

    async def __aexit__(self, *error):
        self.link.hang_up()
        await self.driver.__aexit__(None, None, None)


async def test_the_driver_is_ready_when_the_cli_has_answered_and_every_batch_is_passed_on_whole(
    version, nursery, autojump_clock
):
    async with Talk(nursery, a_run()) as talk:
        assert talk.link.proved.interactive_approvals
        assert talk.link.notices == []
        talk.link.say({"type": "system"}, 7, "odd", {"type": "control_response", "response": None})
        await trio.testing.wait_all_tasks_blocked()
        channel, batch, answer = talk.link.given[-1]
        assert (channel, len(batch), answer) == ("stdout", 4, None)


async def test_a_version_newer_than_the_newest_tested_is_used_with_a_notice(version, nursery, autojump_clock):
    version["is"] = (2, 2, 0)
    async with Talk(nursery, a_run()) as talk:
        assert [topic for topic, _ in talk.link.notices] == ["version"]
        assert "2.2.0" in talk.link.notices[0][1]


async def test_a_message_goes_out_with_its_id_and_steers_only_when_told_to(version, nursery, autojump_clock):
    async with Talk(nursery, a_run()) as talk:
        parts = (Text("Look."), Context("log", "line 1"), Image(b"\x89PNG", "image/png"))
        await talk.driver.send(AgentInput(parts, "an-id"))
        await talk.driver.send(AgentInput((Text("Stop."),), "two"), steer=True)
        first, second = talk.link.written[-2:]
        assert first["uuid"] == "an-id"
        assert first["priority"] == "later"
        assert second["priority"] == "next"
        assert first["message"]["content"] == [
            {"type": "text", "text": "Look."},
            {"type": "text", "text": "Context (log):\nline 1"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        ]


async def test_an_answer_is_wrapped_and_a_request_that_is_not_understood_gets_an_error(
    version, nursery, autojump_clock
):
    async with Talk(nursery, a_run()) as talk:
        talk.driver.answer(Ask("r1", {}), Reply({"behavior": "allow", "updatedInput": {}}))
        talk.driver.answer(Ask("r2", {}), None)
        good, bad = (message["response"] for message in talk.link.written[-2:])
        assert good == {"subtype": "success", "request_id": "r1", "response": {"behavior": "allow", "updatedInput": {}}}
        assert bad == {"subtype": "error", "request_id": "r2", "error": "not understood"}


async def test_an_answer_to_a_cli_that_is_gone_raises_nothing(version, nursery, autojump_clock):
    async with Talk(nursery, a_run()) as talk:
        await talk.driver.finish()
        assert not talk.link.stdin_open
        talk.driver.answer(Ask("r1", {}), Reply({}))


async def test_an_interrupt_that_is_answered_sends_no_signal(version, nursery, autojump_clock):
    async with Talk(nursery, a_run()) as talk:
        nursery.start_soon(talk.link.replied, "interrupt")
        await talk.driver.interrupt()
        assert talk.link.signals == []


async def test_an_interrupt_that_is_not_answered_within_its_deadline_becomes_a_sigint(version, nursery, autojump_clock):
    async with Talk(nursery, a_run()) as talk:
        await talk.driver.interrupt()
        assert talk.link.signals == [signal.SIGINT]


async def test_our_own_answers_that_the_cli_repeats_wake_nobody(version, nursery, autojump_clock):
    async with Talk(nursery, a_run()) as talk:
        body = {"subtype": "success", "request_id": "r1", "response": {"behavior": "allow"}}
        talk.link.say({"type": "control_response", "response": body})
        await talk.driver.interrupt()
        assert talk.link.signals == [signal.SIGINT]


async def test_the_end_of_the_cli_before_it_is_ready_is_no_exception_of_the_drivers(version, nursery, autojump_clock):
    driver, link = ClaudeDriver(a_run()), Cli(a_run())
    async with driver:
        link.hang_up()
        await driver.converse(link)
    assert link.proved is None


async def test_over_http_the_driver_is_ready_only_when_the_cli_is_connected_to_the_approval_server(version, nursery):
    driver, link = ClaudeDriver(a_run(settings={"channel": "http"})), Cli(a_run())
    async with driver:
        nursery.start_soon(driver.converse, link)
        await link.replied("initialize")
        for status in ("pending", "connected"):
            asked = len(link.requests("mcp_status"))
            while len(link.requests("mcp_status")) == asked:
                await trio.sleep(0.01)
            assert link.proved is None
            await link.replied("mcp_status", {"mcpServers": [{"name": "nucleic", "status": status}]})
        with trio.fail_after(5):
            while link.proved is None:
                await trio.sleep(0.01)
        config = Path(driver.process().argv[-2].removeprefix("--mcp-config="))
        (token,) = link.concealed
        assert f"Bearer {token}" in config.read_text()
        assert config.stat().st_mode & 0o777 == 0o600
        link.hang_up()
    assert not config.exists()


async def test_over_http_a_cli_that_cannot_connect_fails_the_start_before_a_prompt(version, nursery):
    driver, link = ClaudeDriver(a_run(settings={"channel": "http"})), Cli(a_run())
    async with driver:
        nursery.start_soon(link.replied, "initialize")
        nursery.start_soon(link.replied, "mcp_status", {"mcpServers": [{"name": "nucleic", "status": "failed"}]})
        with pytest.raises(StartFailed, match="did not connect to Nucleic's server"):
            await driver.converse(link)


@pytest.mark.parametrize("step", ["send", "interrupt", "finish"])
async def test_before_the_conversation_there_is_nobody_to_carry_to(step):
    driver = ClaudeDriver(a_run())
    with pytest.raises(AgentGone, match="not ready yet"):
        await getattr(driver, step)(*([AgentInput.of("hi")] if step == "send" else []))


def test_a_wrong_setting_is_refused_when_the_driver_is_made():
    with pytest.raises(BadSettings):
        ClaudeDriver(a_run(settings={"colour": "red"}))


async def test_a_missing_program_is_found_out_before_there_is_a_command_line(tmp_path):
    with pytest.raises(BackendMissing):
        await ClaudeDriver(a_run(settings={"executable": str(tmp_path / "none")})).__aenter__()


async def _greet(arguments):
    return "hello"


def a_tool(name="greet"):
    return Tool(name, "Greet.", {"type": "object"}, _greet)


async def test_over_stdio_a_run_with_own_tools_has_a_server_for_them_and_waits_for_it(version, nursery):
    run = a_run(tools=(a_tool(),))
    driver, link = ClaudeDriver(run), Cli(run)
    async with driver:
        spec = driver.process()
        assert "--permission-prompt-tool=stdio" in spec.argv
        (config,) = [arg.partition("=")[2] for arg in spec.argv if arg.startswith("--mcp-config=")]
        assert "MCP_TOOL_TIMEOUT" in spec.env
        assert driver.process().argv == spec.argv
        nursery.start_soon(driver.converse, link)
        await link.replied("initialize")
        await link.replied("mcp_status", {"mcpServers": [{"name": "nucleic", "status": "connected"}]})
        with trio.fail_after(5):
            while link.proved is None:
                await trio.sleep(0.01)
        link.hang_up()
    assert not Path(config).exists()


def test_a_tool_cannot_take_the_name_of_the_approval_tool():
    with pytest.raises(Unsupported, match="called approve"):
        ClaudeDriver(a_run(tools=(a_tool("approve"),)))
