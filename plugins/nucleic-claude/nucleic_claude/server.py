"""Our MCP server `nucleic` on loopback: the tools that plugins give the agent, and the `http` approval channel.

On that channel the CLI calls the tool `approve` for each gated action. It is served to no run with the channel `stdio`.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from nucleic_core.backend import Ask, Link, Reply
from nucleic_core.lowlevel import McpServer, McpTool, OwnTools, ToolCall, mcp_config
from nucleic_core.specs import Tool

APPROVE = McpTool(
    name="approve",
    description="Ask the person who runs this agent whether a tool may run.",
    input_schema={
        "type": "object",
        "properties": {
            "tool_name": {"type": "string"},
            "input": {"type": "object"},
            "tool_use_id": {"type": "string"},
        },
        "required": ["tool_name", "input"],
    },
    # An edited input comes back in the answer; without this the CLI refuses answers over about 100 kB.
    meta={"anthropic/maxResultSizeChars": 100_000_000},
)


class NucleicServer:
    """One server a session, with the file that tells the CLI of it; `own` is the user's MCP configuration to merge in.

    `config` is set while entered; `serve` says which conversation asks belong to.
    """

    def __init__(self, own: Path | None, *, approve: bool, tools: Sequence[Tool]) -> None:
        self._own = own
        self._tools = OwnTools(tools)
        listing = [*self._tools.listing, *([APPROVE] if approve else [])]
        self._server = McpServer(listing, self._called, self._withdrawn)
        self._open = AsyncExitStack()
        self.config: Path | None = None
        self._link: Link | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._tools)
            await stack.enter_async_context(self._server)
            self.config = stack.enter_context(mcp_config(self._server, merge=self._own))
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._link = None  # what the server withdraws while it closes belongs to no conversation any more
        return await self._open.__aexit__(kind, error, trace)

    def serve(self, link: Link) -> None:
        """From now on, asks belong to this conversation, and its transcript does not tell the token."""
        link.conceal(self._server.token)
        self._link = link

    def _called(self, call: ToolCall) -> None:
        """A tool runs. Of a call of `approve` the decoder makes an ask, and the answer to it goes back on the call."""
        if self._tools.serves(call):
            self._tools.begin(call)
            return
        if self._link is None:
            call.fail("there is no session that could decide")
            return
        message = {"method": "tools/call", "key": call.key, "arguments": call.arguments, "_meta": call.meta}
        self._link.received([message], "mcp", answer=partial(self._answer, call))

    def _withdrawn(self, call: ToolCall, reason: str) -> None:
        """The CLI hung up or cancelled, as it does when its turn is interrupted."""
        if self._tools.serves(call):
            self._tools.cancel(call, reason)
            return
        if self._link is not None:
            self._link.received([{"method": "notifications/cancelled", "key": call.key, "reason": reason}], "mcp")

    def _answer(self, call: ToolCall, ask: Ask, reply: Reply | None) -> None:
        if reply is None:
            call.fail("not understood")
            return
        call.answer(reply.message)
        if self._link is not None:
            self._link.sent({"key": call.key, "reply": reply.message}, "mcp")
