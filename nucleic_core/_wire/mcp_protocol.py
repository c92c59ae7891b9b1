"""What the MCP server says: JSON-RPC messages in, results and errors out, in both eras of the protocol. No I/O.

The legacy era (2024-11-05 to 2025-11-25) begins with `initialize`. The modern one (2026-07-28) has no handshake: each
request names its version in `_meta`, `server/discover` lists what is served, and results carry `resultType`. Legacy
clients validate strictly, so a legacy answer never has a modern member. Claude Code 2.1.332 probes with
`server/discover` first; 2.1.167 and 2.1.238 only know the legacy era (docs/wire-truth.md, MCP rows).

Left out on purpose: batches (of all versions only 2025-03-26 has them, and no agent sends them), session ids (a client
that sends one is served all the same), and the modern routing headers, which serve proxies between client and server;
there is none on loopback.
"""

import json
from collections.abc import Mapping, Sequence

import attrs
import orjson

from nucleic_core._values import JSON
from nucleic_core._wire.framing import Unparsed, parse

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN = "2026-07-28"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"

NOT_JSON = -32700
NOT_A_REQUEST = -32600
NO_SUCH_METHOD = -32601
BAD_PARAMS = -32602
NO_SUCH_VERSION = -32022
CANCELLED = -32800

_MODERN_STATUS = {NO_SUCH_METHOD: 404, BAD_PARAMS: 400, NO_SUCH_VERSION: 400}


@attrs.frozen
class McpTool:
    """One tool as clients see it. `input_schema` is a JSON Schema of its arguments, `meta` the listing's `_meta`."""

    name: str
    description: str
    input_schema: JSON
    meta: Mapping[str, JSON] | None = None


class RpcError(Exception):
    """A request is answered with a JSON-RPC error; `status` is the HTTP status it travels with."""

    def __init__(self, code: int, message: str, *, status: int = 200, id: JSON = None, data: JSON = None) -> None:  # noqa: A002
        super().__init__(message)
        self.status = status
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        self.response = {"jsonrpc": "2.0", "id": id, "error": error}


@attrs.frozen(repr=False)
class Message:
    """A request, or a notification when `id` is None. Has no repr of its fields: they are what the agent works on."""

    id: str | int | None
    method: str
    params: Mapping[str, JSON]
    meta: Mapping[str, JSON]
    modern: bool

    def error(self, code: int, message: str, data: JSON = None) -> RpcError:
        """The error to raise for this request, with the HTTP status its era wants."""
        return RpcError(
            code, message, status=_MODERN_STATUS.get(code, 200) if self.modern else 200, id=self.id, data=data
        )

    def response(self, result: Mapping[str, JSON]) -> JSON:
        """The response to this request."""
        return {
            "jsonrpc": "2.0",
            "id": self.id,
            "result": {"resultType": "complete", **result} if self.modern else result,
        }

    def progress_token(self) -> str | int | None:
        """The token under which the client wants progress, if it gave one."""
        token = self.meta.get("progressToken")
        return token if _is_id(token) else None


def read(body: bytes) -> Message:
    """The one message in the body of a POST. Raises RpcError for anything else."""
    (message,) = parse([body])  # as leniently as a line: an approval must not get lost by a lone surrogate
    if isinstance(message, Unparsed):
        raise RpcError(NOT_JSON, "the body is not JSON", status=400)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        raise RpcError(NOT_A_REQUEST, "the body must be one JSON-RPC 2.0 request or notification", status=400)
    if "id" in message and not _is_id(message["id"]):
        raise RpcError(NOT_A_REQUEST, "the id must be a string or an integer", status=400)
    params = message.get("params", {})
    meta = params.get("_meta", {}) if isinstance(params, dict) else {}
    modern = isinstance(meta, dict) and _VERSION_KEY in meta
    found = Message(message.get("id"), message["method"], params, meta, modern)
    if not isinstance(params, dict) or not isinstance(meta, dict):
        raise found.error(BAD_PARAMS, "params and params._meta must be objects")
    if modern and meta[_VERSION_KEY] != MODERN:
        versions = {"supported": [MODERN, *LEGACY], "requested": meta[_VERSION_KEY]}
        raise found.error(NO_SUCH_VERSION, "this protocol version is not served", versions)
    return found


def respond(request: Message, tools: Sequence[McpTool]) -> JSON:
    """The response to any request but `tools/call`, which takes its time."""
    server = {"capabilities": {"tools": {}}, "serverInfo": {"name": "nucleic", "version": "1"}}
    cache = {"ttlMs": 0, "cacheScope": "private"} if request.modern else {}
    match request.method:
        case "initialize" if not request.modern:
            asked = request.params.get("protocolVersion")
            return request.response({"protocolVersion": asked if asked in LEGACY else LEGACY[0], **server})
        case "ping" if not request.modern:
            return request.response({})
        case "server/discover" if request.modern:
            return request.response({"supportedVersions": [MODERN, *LEGACY], **server, **cache})
        case "tools/list":
            return request.response({"tools": [_listing(tool) for tool in tools], **cache})
        case method:
            raise request.error(NO_SUCH_METHOD, f"no such method: {method[:100]}")


def text_result(content: JSON, *, failed: bool = False) -> JSON:
    """A tool's result: one text block and nothing else.

    Claude Code reads the first block only, and refuses a permission result that has `structuredContent`.
    """
    text = content if isinstance(content, str) else dumps(content).decode()
    return {"content": [{"type": "text", "text": text}]} | ({"isError": True} if failed else {})


def dumps(value: JSON) -> bytes:
    """JSON on one line; what orjson refuses (lone surrogates, integers beyond 64 bits) is written with escapes."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()


def _is_id(value: JSON) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _listing(tool: McpTool) -> JSON:
    listing = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
    return listing if tool.meta is None else {**listing, "_meta": dict(tool.meta)}
