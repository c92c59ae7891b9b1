"""Our MCP server `nucleic` on loopback, with the tools that plugins give the agent; nobody starts it where there are none."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from nucleic_core.lowlevel import JSON, McpServer, OwnTools
from nucleic_core.specs import Tool

A_DAY = 86400
"""Seconds that Codex waits for a tool of ours; its own limit is a minute."""


class OwnServer:
    """One server a session, while the block lasts."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = OwnTools(tools)
        self._server = McpServer(self._tools.listing, self._tools.begin, self._tools.cancel)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._tools)
            await stack.enter_async_context(self._server)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(kind, error, trace)

    def entry(self, *, contained: bool) -> JSON:
        """The server as Codex's configuration has it, token included: it goes over the pipe and into no file.

        In a container our tools are not asked about: what contains the process is what makes them safe there. Elsewhere
        Codex asks and the answer stands in the transcript.
        """
        entry: dict[str, JSON] = {
            "url": self._server.url,
            "http_headers": {"Authorization": f"Bearer {self._server.token}"},
            "tool_timeout_sec": A_DAY,
        }
        if contained:
            entry["default_tools_approval_mode"] = "approve"
        return entry
