"""Own tools, served to the real codex: called unasked, beside the user's own servers, and not against a policy."""

from responses_api import command, function, turn
from world import follow, of

import nucleic_core
from nucleic_core.approvals import Allow
from nucleic_core.events import ApprovalResolved, RunFinished, ToolCallCompleted, ToolResult
from nucleic_core.hookspecs import hookimpl
from nucleic_core.specs import Tool

SCHEMA = {"type": "object", "properties": {"whom": {"type": "string"}}, "required": ["whom"]}


class Greeter:
    """A plugin with one tool."""

    NUCLEIC_API = 1
    name, group = "greeter", "nucleic.plugins"

    def __init__(self, call):
        self.call = call

    def load(self):
        return self

    @hookimpl
    def nucleic_tools(self):
        return [Tool("greet", "Greet somebody by name.", SCHEMA, self.call)]


class Codex:
    """The backend's entry point, for a host with plugins of the test's."""

    name, group = "codex", "nucleic.backends"

    def load(self):
        from nucleic_codex.app_server import plugin

        return plugin


def host_with(call):
    return nucleic_core.open_host(plugins=[Codex(), Greeter(call)])


GREET = turn("I greet.", function("greet", "mcp__nucleic", whom="Ada"))


async def test_an_own_tool_is_called_without_a_person_and_its_result_reaches_the_model(codex_world):
    called = []

    async def greet(arguments):
        called.append(arguments)
        return f"Hello {arguments['whom']}"

    async with (
        host_with(greet) as host,
        codex_world.open("Greet.", GREET, turn("Done."), responder="deny", host=host) as session,
    ):
        events = await follow(session)
    assert called == [{"whom": "Ada"}]
    assert of(events, ToolCallCompleted)[0].name == "mcp__nucleic__greet"
    assert not of(events, ToolResult)[0].is_error
    assert [resolved.decided_by for resolved in of(events, ApprovalResolved)] == ["policy:own tools"]
    assert "Hello Ada" in codex_world.api.told()["call_01"]
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_other_calls_are_asked_as_ever_and_a_tool_that_fails_tells_the_model_why(codex_world):
    async def greet(arguments):
        raise LookupError("nobody of that name")

    steps = (GREET, turn(command("touch made.txt", escalated=True)), turn("Done."))
    async with host_with(greet) as host, codex_world.open("Greet.", *steps, host=host) as session:
        events = await follow(session, lambda ask: Allow() if ask.request.tool == "Bash" else None)
    assert [result.is_error for result in of(events, ToolResult)] == [True, False]
    assert [resolved.decided_by for resolved in of(events, ApprovalResolved)] == ["policy:own tools", "api"]
    assert "nobody of that name" in codex_world.api.told()["call_01"]


async def test_a_run_that_may_only_read_runs_no_own_tool(codex_world):
    called = []

    async def greet(arguments):
        called.append(arguments)

    options = {"policies": ["read-only"], "responder": "deny"}
    async with (
        host_with(greet) as host,
        codex_world.open("Greet.", GREET, turn("Done."), host=host, **options) as session,
    ):
        events = await follow(session)
    assert called == []
    assert of(events, ToolResult)[0].is_error
