"""What the MCP server says to a message, in both eras of the protocol; bytes in, values out."""

import orjson
import pytest

from nucleic_core._wire.mcp_protocol import McpTool, RpcError, read, respond

MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
SERVER = {"capabilities": {"tools": {}}, "serverInfo": {"name": "nucleic", "version": "1"}}


def ask(method, params=None, ref=5):
    request = {"jsonrpc": "2.0", "method": method, "id": ref} | ({} if params is None else {"params": params})
    return respond(read(orjson.dumps(request)), [McpTool("approve", "Ask.", {"type": "object"})])


def refusal(body):
    with pytest.raises(RpcError) as raised:
        respond(read(body if isinstance(body, bytes) else orjson.dumps(body)), [])
    return raised.value.status, raised.value.response


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_the_version_that_a_legacy_client_asks_for_is_agreed(version):
    answer = ask("initialize", {"protocolVersion": version, "capabilities": {}}, 0)
    assert answer == {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": version, **SERVER}}


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", None, 7, ["2025-11-25"]])
def test_an_unknown_version_is_answered_with_the_newest_that_has_a_handshake(version):
    assert ask("initialize", {"protocolVersion": version})["result"]["protocolVersion"] == "2025-11-25"


def test_a_modern_client_discovers_and_lists_without_a_handshake():
    answer = ask("server/discover", {"_meta": MODERN}, "server-discover-probe-1")
    assert answer["id"] == "server-discover-probe-1"
    assert answer["result"] == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
        "ttlMs": 0,
        "cacheScope": "private",
        **SERVER,
    }
    assert ask("tools/list", {"_meta": MODERN})["result"].keys() == {"resultType", "tools", "ttlMs", "cacheScope"}


def test_a_legacy_answer_has_no_modern_member():
    assert ask("tools/list")["result"] == {
        "tools": [{"name": "approve", "description": "Ask.", "inputSchema": {"type": "object"}}]
    }
    assert ask("ping") == {"jsonrpc": "2.0", "id": 5, "result": {}}


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"ping", b'{"a":1}{"b":2}'])
def test_what_is_not_json_is_said_to_be_none(body):
    status, response = refusal(body)
    assert (status, response["id"], response["error"]["code"]) == (400, None, -32700)


@pytest.mark.parametrize(
    "body",
    [
        [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],  # a batch
        [],
        "ping",
        None,
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 7},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "2.0", "id": [1], "method": "ping"},
    ],
)
def test_what_is_not_one_request_or_notification_is_invalid(body):
    status, response = refusal(body)
    assert (status, response["id"], response["error"]["code"]) == (400, None, -32600)


@pytest.mark.parametrize(
    ("method", "params", "status", "code"),
    [
        ("ping", [1], 200, -32602),
        ("ping", None, 200, -32602),
        ("ping", {"_meta": 1}, 200, -32602),
        ("resources/list", {}, 200, -32601),
        ("server/discover", {}, 200, -32601),
        ("resources/list", {"_meta": MODERN}, 404, -32601),
        ("initialize", {"_meta": MODERN}, 404, -32601),
        ("ping", {"_meta": MODERN}, 404, -32601),
    ],
)
def test_an_error_has_the_requests_id_and_the_status_of_its_era(method, params, status, code):
    got, response = refusal({"jsonrpc": "2.0", "id": 5, "method": method, "params": params})
    assert (got, response["id"], response["error"]["code"]) == (status, 5, code)


@pytest.mark.parametrize("version", ["2031-01-01", "2025-11-25", None, 7])
def test_a_version_that_has_no_such_envelope_is_told_which_are_served(version):
    meta = {**MODERN, "io.modelcontextprotocol/protocolVersion": version}
    status, response = refusal({"jsonrpc": "2.0", "id": 5, "method": "server/discover", "params": {"_meta": meta}})
    assert (status, response["error"]["code"]) == (400, -32022)
    assert response["error"]["data"]["requested"] == version
    assert response["error"]["data"]["supported"][:2] == ["2026-07-28", "2025-11-25"]
