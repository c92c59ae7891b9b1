"""Drives an MCP server with the official client, in every mode it has, and prints what it saw as JSON.

Run as `mcp_client_script.py URL TOKEN-FILE`. A program of its own, because the client's HTTP stack leaves async
generators to the collector, which is an error under our test settings.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

url, token_file = sys.argv[1:]
token = Path(token_file).read_text()


async def converse(mode: str, seen: dict[str, Any]) -> None:
    # The read timeout is shorter than the call stays open: only a stream that shows life survives it.
    timeout = httpx2.Timeout(5, read=1.5)
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=timeout) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        tools = (await client.list_tools()).tools
        progress = []

        async def report(value: float, total: float | None, message: str | None) -> None:
            progress.append(value)

        arguments = {"tool_name": "Bash", "input": {"mode": mode}}
        result = await client.call_tool("approve", arguments, progress_callback=report)  # type: ignore[arg-type]  # it names its arguments otherwise
        try:
            await client.call_tool("rm", {})
            refused = None
        except MCPError as error:
            refused = error.code
        with anyio.move_on_after(0.5):
            await client.call_tool("abandoned", {})
        seen[mode] = {
            "version": client.protocol_version,
            "tools": [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools],
            "result": result.model_dump(by_alias=True, exclude_none=True),
            "progress": progress,
            "refused": refused,
        }


async def main() -> None:
    seen: dict[str, Any] = {}
    async with anyio.create_task_group() as group:
        for mode in ("legacy", "auto", "2026-07-28"):
            group.start_soon(converse, mode, seen)
    print(json.dumps(seen))


anyio.run(main)
