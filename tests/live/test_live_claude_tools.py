"""Own tools, served to the real `claude`: over both roads of approvals, beside the user's own servers."""

import pytest
import trio
from messages_api import bash, tool, turn
from world import follow, of

import nucleic_core
from nucleic_core.approvals import Allow
from nucleic_core.events import ApprovalResolved, RunFinished, ToolCallCompleted, ToolResult
from nucleic_core.hookspecs import hookimpl
from nucleic_core.specs import Tool

SCHEMA = {"type": "object", "properties": {"whom": {"type": "string"}}, "required": ["whom"]}


class Greeter:
    """A plugin with one tool, that keeps what it was called with."""

    NUCLEIC_API = 1
    name, group = "greeter", "nucleic.plugins"

    def __init__(self, call):
        self.call = call

    def load(self):
        return self

    @hookimpl
    def nucleic_tools(self):
        return [Tool("greet", "Greet somebody by name.", SCHEMA, self.call)]


class Claude:
    """The backend's entry point, for a host with plugins of the test's."""

    name, group = "claude", "nucleic.backends"

    def load(self):
        from nucleic_claude import plugin

        return plugin


def host_with(call):
    return nucleic_core.open_host(plugins=[Claude(), Greeter(call)])


GREET = turn("I greet.", tool("mcp__nucleic__greet", whom="Ada"))


async def test_an_own_tool_is_called_unasked_and_its_result_reaches_the_model(world, channel):
    called = []

    async def greet(arguments):
        called.append(arguments)
        return f"Hello {arguments['whom']}"

    async with (
        host_with(greet) as host,
        world.open(
            "Greet.", GREET, turn("Done."), settings={"channel": channel}, responder="deny", host=host
        ) as session,
    ):
        events = await follow(session)
    assert called == [{"whom": "Ada"}]
    assert of(events, ToolCallCompleted)[0].name == "mcp__nucleic__greet"
    assert not of(events, ToolResult)[0].is_error
    assert [resolved.decided_by for resolved in of(events, ApprovalResolved)] == ["policy:own tools"]
    (told,) = world.api.told()
    assert "Hello Ada" in str(told["content"])
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_other_calls_are_asked_as_ever_and_a_tool_that_fails_tells_the_model_why(world, channel):
    async def greet(arguments):
        raise LookupError("nobody of that name")

    script = (GREET, turn("I make a file.", bash("touch made.txt")), turn("Done."))
    async with (
        host_with(greet) as host,
        world.open("Greet.", *script, settings={"channel": channel}, host=host) as session,
    ):
        events = await follow(session, lambda ask: Allow() if ask.request.tool == "Bash" else None)
    failed, made = of(events, ToolResult)
    assert failed.is_error
    assert not made.is_error
    assert [resolved.decided_by for resolved in of(events, ApprovalResolved)] == ["policy:own tools", "api"]
    assert "nobody of that name" in str(world.api.told()[0]["content"])


@pytest.mark.parametrize("policy", ["read-only"])
async def test_a_run_that_may_only_read_runs_no_own_tool(world, channel, policy):
    called = []

    async def greet(arguments):
        called.append(arguments)

    options = {"settings": {"channel": channel}, "policies": [policy], "responder": "deny"}
    async with host_with(greet) as host, world.open("Greet.", GREET, turn("Done."), host=host, **options) as session:
        events = await follow(session)
    assert called == []
    assert of(events, ToolResult)[0].is_error


async def test_an_interrupt_cancels_a_tool_that_runs(world):
    begun, ended = trio.Event(), trio.Event()

    async def greet(arguments):
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with host_with(greet) as host, world.open("Greet.", GREET, host=host, keep_open=True) as session:
        await begun.wait()
        await session.interrupt()
        with trio.fail_after(20):
            await ended.wait()
