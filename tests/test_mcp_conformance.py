"""The MCP server against a client that we did not write: the official SDK's, in both eras of the protocol."""

import json
import sys
from pathlib import Path

import trio

from nucleic_core._wire.mcp_server import McpServer, McpTool

SCRIPT = Path(__file__).parent / "mcp_client_script.py"
TOOLS = [
    McpTool("approve", "Ask.", {"type": "object", "properties": {"tool_name": {"type": "string"}}}, meta={"a/b": 1}),
    McpTool("abandoned", "Never answered.", {"type": "object"}),
]


async def test_the_official_client_lists_calls_waits_and_gives_up_in_every_mode(tmp_path, nursery):
    token_file = tmp_path / "token"
    abandoned = []

    async def think(call):
        await trio.sleep(3)
        call.answer({"behavior": "allow", "updatedInput": call.arguments["input"]})

    def on_call(call):
        if call.tool.name == "approve":
            nursery.start_soon(think, call)

    def on_cancel(call, reason):
        abandoned.append((call.tool.name, reason.split(":")[0]))

    async with McpServer(TOOLS, on_call, on_cancel, keepalive=0.5) as server:
        token_file.write_text(server.token)
        command = [sys.executable, str(SCRIPT), server.url, str(token_file)]
        with trio.fail_after(120):
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    seen = json.loads(done.stdout)
    assert [seen[mode]["version"] for mode in ("legacy", "auto", "2026-07-28")] == [
        "2025-11-25",
        "2026-07-28",
        "2026-07-28",
    ]
    for mode, got in seen.items():
        assert [tool["name"] for tool in got["tools"]] == ["approve", "abandoned"]
        assert got["tools"][0]["_meta"] == {"a/b": 1}
        (block,) = got["result"]["content"]
        assert json.loads(block["text"]) == {"behavior": "allow", "updatedInput": {"mode": mode}}
        assert got["result"].get("structuredContent") is None
        assert got["progress"] == sorted(got["progress"])
        assert len(got["progress"]) >= 3
        assert got["refused"] == -32602
    assert [name for name, _ in abandoned] == ["abandoned"] * 3
    assert {reason for _, reason in abandoned} <= {"cancelled by the client", "the client hung up"}
