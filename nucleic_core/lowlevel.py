"""The public face for authors of backends: what a driver may build on."""

from nucleic_core._values import JSON
from nucleic_core._wire.mcp_config import mcp_config
from nucleic_core._wire.mcp_protocol import McpTool
from nucleic_core._wire.mcp_server import McpServer, ToolCall

__all__ = ["JSON", "McpServer", "McpTool", "ToolCall", "mcp_config"]
