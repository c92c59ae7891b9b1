"""The `http` approval channel: the CLI calls a tool of our own MCP server on loopback for each gated action."""

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from nucleic_core.backend import Ask, Link, Reply
from nucleic_core.lowlevel import McpServer, McpTool, ToolCall, mcp_config

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


class ApproveServer:
    """One server a session, with the file that tells the CLI of it; `own` is the user's MCP configuration to merge in.

    `config` is set while entered; `serve` says which conversation asks belong to.
    """

    def __init__(self, own: Path | None) -> None:
        self._own = own
        self._server = McpServer([APPROVE], self._asked, self._withdrawn)
        self._open = AsyncExitStack()
        self.config: Path | None = None
        self._link: Link | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
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

    def _asked(self, call: ToolCall) -> None:
        """The decoder makes an ask of the call, and the answer to it goes back on the call."""
        if self._link is None:
            call.fail("there is no session that could decide")
            return
        message = {"method": "tools/call", "key": call.key, "arguments": call.arguments, "_meta": call.meta}
        self._link.received([message], "mcp", answer=partial(self._answer, call))

    def _withdrawn(self, call: ToolCall, reason: str) -> None:
        """The CLI hung up or cancelled, as it does when its turn is interrupted."""
        if self._link is not None:
            self._link.received([{"method": "notifications/cancelled", "key": call.key, "reason": reason}], "mcp")

    def _answer(self, call: ToolCall, ask: Ask, reply: Reply | None) -> None:
        if reply is None:
            call.fail("not understood")
            return
        call.answer(reply.message)
        if self._link is not None:
            self._link.sent({"key": call.key, "reply": reply.message}, "mcp")
