"""Runs a session's own tools (`RunSpec.tools`) when the agent calls them over an `McpServer`.

It is the server's two callbacks and the tasks behind them, and stands beside whatever else the server serves:

    async with OwnTools(run.tools) as own, McpServer(own.listing, own.begin, own.cancel) as server:
        ...  # tell the agent of the server, under the name SERVER_NAME

What a tool raises, and a result that is no JSON, is a failed result for the model. A call whose client hangs up or cancels
is cancelled; so is all that still runs when the block ends.
"""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import trio

from nucleic_core._background import Background, background
from nucleic_core._faults import failure_of
from nucleic_core._wire.mcp_protocol import McpTool
from nucleic_core._wire.mcp_server import ToolCall
from nucleic_core.specs import Tool

log = logging.getLogger("nucleic.tools")


class OwnTools:
    """The tools of one session."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._running: dict[str, trio.CancelScope] = {}
        self._open = AsyncExitStack()
        self._tasks: Background

    @property
    def listing(self) -> list[McpTool]:
        """The tools as a server lists them."""
        return [McpTool(tool.name, tool.description, tool.input_schema) for tool in self._tools.values()]

    async def __aenter__(self) -> Self:
        self._tasks = await self._open.enter_async_context(background())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(kind, error, trace)

    def serves(self, call: ToolCall) -> bool:
        """Whether a call is for one of these tools."""
        return call.tool.name in self._tools

    def begin(self, call: ToolCall) -> None:
        """Take a call; its answer comes when the tool is done."""
        scope = self._running[call.key] = trio.CancelScope()
        self._tasks.start_soon(self._run, call, scope)

    def cancel(self, call: ToolCall, reason: str) -> None:
        """Nobody waits for a call any more."""
        if (scope := self._running.get(call.key)) is not None:
            scope.cancel()

    async def _run(self, call: ToolCall, scope: trio.CancelScope) -> None:
        tool = self._tools[call.tool.name]
        try:
            with scope:
                await trio.lowlevel.checkpoint_if_cancelled()  # taken back in the very moment it came
                call.answer(await tool.call(call.arguments))
        except BaseException as raised:
            exc = failure_of(raised)
            log.info("the tool %s failed: %s", tool.name, type(exc).__name__)  # its words are the model's alone
            call.fail(f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__)
        finally:
            del self._running[call.key]
