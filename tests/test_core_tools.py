"""Own tools: what plugins give by `nucleic_tools`, how a call of one runs, and that it is allowed unless a policy objects."""

import orjson
import pytest
import trio

from core_agents import FakeDecoder, Scripted, events_of, extension, only, open_fake
from nucleic_core import Allow
from nucleic_core._wire.mcp_protocol import McpTool, read
from nucleic_core.backend import Ask
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.events import ApprovalResolved, Notice, RunFinished
from nucleic_core.hookspecs import hookimpl
from nucleic_core.lowlevel import OwnTools, ToolCall
from nucleic_core.specs import Tool

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
TAKES_TOOLS = BackendCapabilities(interactive_approvals=True, honours=frozenset({"tools"}))


async def greet(arguments):
    return f"Hello {arguments['name']}"


GREET = Tool("greet", "Greet somebody.", SCHEMA, greet)


def gives(*tools):
    """A plugin that gives these tools, or raises the error that stands in their place."""

    class Plugin:
        NUCLEIC_API = 1

        @hookimpl
        def nucleic_tools(self):
            for tool in tools:
                if isinstance(tool, Exception):
                    raise tool
                yield tool

    return Plugin()


# -- what a tool is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a b", "a__b", "_a", "ü", "a" * 49, "a\n", "a/b"])
def test_a_name_that_could_be_another_servers_or_that_no_cli_takes_is_refused(name):
    with pytest.raises(ValueError, match="is no name for a tool"):
        Tool(name, "", SCHEMA, greet)


@pytest.mark.parametrize("schema", [None, {}, {"type": "string"}, []])
def test_a_schema_that_is_none_of_an_object_is_refused(schema):
    with pytest.raises(ValueError, match=r'the input schema of the tool greet must have "type": "object"'):
        Tool("greet", "", schema, greet)


# -- who gets which -------------------------------------------------------------------------------------------------


async def given_to(tmp_path, *plugins, capabilities=TAKES_TOOLS):
    """The names of the tools that a backend was given, and what notices say of the others."""
    runs = []

    class Backend(Scripted):
        @hookimpl
        def nucleic_driver(self, run):
            runs.append(run)
            return self._driver()

    backend = Backend("prompt(); done()", capabilities=capabilities)
    others = [extension(plugin, f"p{number}") for number, plugin in enumerate(plugins)]
    async with open_fake(backend, "go", *others, cwd=tmp_path) as session:
        events = await events_of(session)
    assert only(events, RunFinished).outcome == "completed"
    notices = [event.data.text for event in events if isinstance(event.data, Notice)]
    return [tool.name for tool in runs[0].tools], notices


async def test_a_backend_is_given_the_tools_of_all_plugins_in_its_run(tmp_path):
    other = Tool("other", "", SCHEMA, greet)
    assert await given_to(tmp_path, gives(GREET), gives(other)) == (["greet", "other"], [])


async def test_of_two_tools_of_one_name_the_second_is_left_out_with_a_notice(tmp_path):
    tools, notices = await given_to(tmp_path, gives(GREET), gives(GREET))
    assert tools == ["greet"]
    assert notices == ["The tool greet of the plugin p1 is left out: another has that name."]


async def test_a_backend_that_takes_no_tools_runs_without_them_with_a_notice(tmp_path):
    capabilities = BackendCapabilities(interactive_approvals=True)
    tools, notices = await given_to(tmp_path, gives(GREET), capabilities=capabilities)
    assert tools == []
    assert notices == ["The tools greet are left out: fake cannot be given tools."]


@pytest.mark.parametrize(
    ("given", "why"),
    [(RuntimeError("no network"), "RuntimeError: no network"), ("greet", "TypeError: nucleic_tools must give Tool")],
)
async def test_a_plugin_whose_tools_fail_is_left_out_alone(tmp_path, given, why):
    tools, notices = await given_to(tmp_path, gives(GREET), gives(given))
    assert tools == ["greet"]
    assert notices[0].startswith(f"The tools of the plugin p1 are left out: {why}")


# -- how a call runs ------------------------------------------------------------------------------------------------


class Calls:
    """Calls as a server makes them, with their results."""

    def __init__(self, own):
        self.own, self.calls = own, []

    def begin(self, name, /, **arguments):
        params = {"name": name, "arguments": arguments}
        request = read(orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
        call = ToolCall(f"call-{len(self.calls)}", McpTool(name, "", SCHEMA), request)
        self.calls.append(call)
        self.own.begin(call)
        return call

    async def result(self, name, /, **arguments):
        call = self.begin(name, **arguments)
        await call._closed.wait()
        (block,) = call._result["content"]
        return call._result.get("isError", False), block["text"]


async def test_a_tool_gets_the_arguments_and_its_result_is_text_or_json():
    async def add(arguments):
        return {"sum": arguments["a"] + arguments["b"]}

    async with OwnTools([GREET, Tool("add", "", SCHEMA, add)]) as own:
        calls = Calls(own)
        assert await calls.result("greet", name="Ada") == (False, "Hello Ada")
        assert await calls.result("add", a=1, b=2) == (False, '{"sum":3}')
        assert [tool.name for tool in own.listing] == ["greet", "add"]


async def test_what_a_tool_raises_and_what_is_no_json_is_a_failed_result_and_others_go_on():
    async def odd(arguments):
        return object()

    async with OwnTools([GREET, Tool("odd", "", SCHEMA, odd)]) as own:
        calls = Calls(own)
        assert await calls.result("greet") == (True, "KeyError: 'name'")
        failed, text = await calls.result("odd")
        assert failed
        assert text.startswith("TypeError")
        assert await calls.result("greet", name="Ada") == (False, "Hello Ada")


@pytest.mark.parametrize("begun", [True, False])
async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(begun):
    seen = []

    async def wait(arguments):
        seen.append("begun")
        try:
            await trio.sleep_forever()
        finally:
            seen.append("ended")

    async with OwnTools([GREET, Tool("wait", "", SCHEMA, wait)]) as own:
        calls = Calls(own)
        call = calls.begin("wait")
        if begun:
            await trio.testing.wait_all_tasks_blocked()
        own.cancel(call, "the client hung up")
        await trio.testing.wait_all_tasks_blocked()
        assert seen == (["begun", "ended"] if begun else [])
        own.cancel(call, "again")
        assert await calls.result("greet", name="Ada") == (False, "Hello Ada")


async def test_calls_that_still_run_when_the_session_ends_are_cancelled():
    ended = []

    async def wait(arguments):
        try:
            await trio.sleep_forever()
        finally:
            ended.append(arguments["n"])

    async with OwnTools([Tool("wait", "", SCHEMA, wait)]) as own:
        calls = Calls(own)
        for n in range(3):
            calls.begin("wait", n=n)
        await trio.testing.wait_all_tasks_blocked()
    assert sorted(ended) == [0, 1, 2]


# -- that it may ----------------------------------------------------------------------------------------------------


class OwnAsks(FakeDecoder):
    """An ask of the key `own` is about one of our tools."""

    def received(self, message, out, channel="stdout"):
        match message:
            case {"t": "ask", "key": "own"}:
                out.ask(Ask("own", message, own_tool=True), "ask")
            case _:
                super().received(message, out, channel)


ASKS = """
prompt()
tell("ask", key={key!r}, tool="mcp__nucleic__greet", input={{"name": "Ada"}})
tell("say", text=str(hear()["allow"]))
done()
"""


async def decided(tmp_path, key, **options):
    backend = Scripted(ASKS.format(key=key), decoder=OwnAsks)
    async with open_fake(backend, cwd=tmp_path, **options) as session:
        return only(await events_of(session), ApprovalResolved)


async def test_a_call_of_an_own_tool_is_allowed_unasked(tmp_path):
    resolved = await decided(tmp_path, "own", responder="deny")
    assert resolved.decision == Allow()
    assert resolved.decided_by == "policy:own tools"


async def test_a_call_that_only_bears_the_name_is_asked_like_any_other(tmp_path):
    resolved = await decided(tmp_path, "other", responder="deny")
    assert resolved.cause == "no_responder"
    assert "own tools" not in [trace.policy for trace in resolved.trace]


@pytest.mark.parametrize("policy", ["deny", "read-only", "ask"])
async def test_a_policy_may_still_object_to_a_call_of_an_own_tool(tmp_path, policy):
    resolved = await decided(tmp_path, "own", responder="deny", policies=[policy])
    assert resolved.decision != Allow()
