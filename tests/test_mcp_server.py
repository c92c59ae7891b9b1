"""The MCP server as a client on the wire meets it: who is let in, what is answered, how a call stays open and how it ends."""

import contextlib
import json
import logging

import h11
import orjson
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nucleic_core._wire import mcp_server
from nucleic_core._wire.mcp_http import MAX_BODY
from nucleic_core._wire.mcp_server import McpServer, McpTool, ToolCall

BOTH = "application/json, text/event-stream"
MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
SCHEMA = {"type": "object", "properties": {"tool_name": {"type": "string"}}}
TOOLS = [
    McpTool("approve", "Ask.", SCHEMA, meta={"anthropic/maxResultSizeChars": 500_000}),
    McpTool("status", "Say how it goes.", {"type": "object"}),
]


def rpc(method, params=None, ref=None):
    message = {"jsonrpc": "2.0", "method": method}
    return message | ({} if ref is None else {"id": ref}) | ({} if params is None else {"params": params})


def tool_call(ref=1, *, name="approve", arguments=None, **meta):
    params = {"name": name, "arguments": {"tool_name": "Bash"} if arguments is None else arguments, "_meta": meta}
    return rpc("tools/call", params, ref)


class Client:
    """A client that sends raw bytes and reads answers one after the other."""

    def __init__(self, server: McpServer, stream: trio.abc.HalfCloseableStream) -> None:
        self.server = server
        self.stream = stream
        self._rest = b""
        self._parser = h11.Connection(h11.CLIENT)

    def request(self, body=b"", *, method="POST", target="/mcp", accept=BOTH, **headers) -> bytes:
        """The bytes of one request; a header given as None is left out."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        fields = {
            "host": f"127.0.0.1:{self.server.port}",
            "authorization": f"Bearer {self.server.token}",
            "accept": accept,
            "content-length": str(len(data)) if data else None,
        } | headers
        lines = [f"{name}: {value}\r\n".encode("latin-1") for name, value in fields.items() if value is not None]
        return b"%s %s HTTP/1.1\r\n%s\r\n%s" % (method.encode(), target.encode(), b"".join(lines), data)

    async def send(self, body=b"", **how) -> None:
        await self.stream.send_all(self.request(body, **how))

    async def status(self) -> int:
        """Read the head of the next answer."""
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**20)
        self._parser.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        self._parser.send(h11.EndOfMessage())
        if self._rest:  # nothing would mean the end
            self._parser.receive_data(self._rest)
        self._rest = b""
        head = await self._event()
        while isinstance(head, h11.InformationalResponse):
            head = await self._event()
        assert isinstance(head, h11.Response)
        self.headers = {name.decode(): value.decode() for name, value in head.headers}
        return head.status_code

    async def chunk(self) -> bytes:
        """The next piece of the answer's body, empty at its end."""
        event = await self._event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        self._rest = self._parser.trailing_data[0]
        return b""

    async def body(self) -> bytes:
        data = b""
        while piece := await self.chunk():
            data += piece
        return data

    async def answer(self):
        """The status of the next answer and its JSON, None without any."""
        status = await self.status()
        body = await self.body()
        return status, orjson.loads(body) if body else None

    async def message(self):
        """The JSON of the next server-sent event; each comes in a chunk of its own."""
        block = await self.chunk()
        assert block.startswith(b"event: message\ndata: "), block
        assert block.endswith(b"\n\n")
        assert block.count(b"\n") == 3
        return orjson.loads(block.removeprefix(b"event: message\ndata: "))

    async def ask(self, body=b"", **how):
        await self.send(body, **how)
        return await self.answer()

    async def is_closed(self) -> bool:
        """Whether the server has closed the connection with nothing more to say."""
        try:
            return await self.stream.receive_some() == b""
        except trio.BrokenResourceError:
            return True

    async def _event(self):
        while (event := self._parser.next_event()) is h11.NEED_DATA:
            try:
                data = await self.stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            self._parser.receive_data(bytes(data))
        return event


class Bench:
    """A server with a record of what it called, and clients for it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.calls: list[ToolCall] = []
        self.cancelled: list[tuple[str, str]] = []
        self._nursery = nursery
        self.server = McpServer(TOOLS, self.called, lambda call, reason: self.cancelled.append((call.key, reason)))
        self.on_call = lambda call: None

    def called(self, call: ToolCall) -> None:
        self.calls.append(call)
        self.on_call(call)

    def client(self) -> Client:
        """A client over memory, which mock clocks can be used with."""
        mine, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.server.serve_stream, theirs)
        return Client(self.server, mine)

    async def tcp_client(self) -> Client:
        stream = await trio.open_tcp_stream("127.0.0.1", self.server.port)

        async def hold():
            async with stream:
                await trio.sleep_forever()

        self._nursery.start_soon(hold)
        return Client(self.server, stream)

    async def pending(self, client: Client, message=None, **how) -> ToolCall:
        """Call a tool and read the head of the answer."""
        await client.send(tool_call() if message is None else message, **how)
        assert await client.status() == 200
        return self.calls[-1]


@pytest.fixture
async def bench():
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery)
        async with bench.server:
            yield bench
        nursery.cancel_scope.cancel()


def text(result):
    """The text of a tool result that is one text block and nothing else."""
    (block,) = result["content"]
    assert block.keys() == {"type", "text"}
    assert block["type"] == "text"
    return block["text"]


# ------------------------------------------------------------------------------------------------ who is let in


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1:1"}, 421),
        ({"host": "evil.example", "authorization": None}, 421),
        ({"origin": "http://localhost"}, 403),
        ({"origin": "null", "authorization": None}, 403),
        ({"target": "/"}, 404),
        ({"target": "/mcp/more"}, 404),
        ({"target": "/.well-known/oauth-protected-resource"}, 404),
        ({"target": "/.well-known/oauth-authorization-server/mcp", "authorization": None}, 404),
        ({"authorization": None}, 401),
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer tökén"}, 401),
        ({"authorization": "Basic bnVjbGVpYw=="}, 401),
        ({"method": "GET", "accept": "text/event-stream"}, 405),
        ({"method": "DELETE"}, 405),
        ({"method": "HEAD"}, 405),
        ({"content-length": str(MAX_BODY + 1)}, 413),
    ],
)
async def test_a_request_that_may_not_come_in_gets_its_status_and_no_more(bench, how, status):
    client = bench.client()
    body = b"" if "method" in how or "content-length" in how else tool_call()
    assert await client.ask(body, **how) == (status, None)
    assert bench.calls == []


async def test_the_right_token_is_refused_when_sent_twice_or_cut_short(bench):
    token = bench.server.token
    for value in (
        f"Bearer {token}\r\nauthorization: Bearer {token}",
        f"Bearer {token[:-1]}",
        f"Bearer {token}x",
        token,
    ):
        assert await bench.client().ask(rpc("ping", ref=1), authorization=value) == (401, None)


async def test_localhost_is_as_good_a_host_and_a_query_does_not_matter(bench):
    client = bench.client()
    how = {"host": f"localhost:{bench.server.port}", "target": "/mcp?x=1"}
    assert await client.ask(rpc("ping", ref=1), **how) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})


async def test_a_stranger_is_refused_before_the_body_is_sent(bench):
    client = bench.client()
    await client.stream.send_all(client.request(b"x" * 100, authorization="Bearer wrong").removesuffix(b"x" * 100))
    assert await client.answer() == (401, None)
    assert client.headers["www-authenticate"] == "Bearer"
    assert client.headers["connection"] == "close"
    await client.stream.send_all(b"x" * 100)  # read by nobody, but no reset that would cost the client its answer
    assert await client.is_closed()


async def test_a_body_that_grows_beyond_the_cap_is_said_to_be_too_large_even_to_a_client_that_goes_on_sending(bench):
    client = await bench.tcp_client()
    piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"

    async def flood():
        with contextlib.suppress(trio.BrokenResourceError):
            for _ in range(18):
                await client.stream.send_all(piece)

    async with trio.open_nursery() as nursery:
        await client.send(**{"transfer-encoding": "chunked"})
        nursery.start_soon(flood)
        assert await client.answer() == (413, None)


async def test_the_methods_that_no_client_needs_are_refused_without_ending_the_connection(bench):
    client = bench.client()
    assert await client.ask(method="GET", accept="text/event-stream") == (405, None)
    assert client.headers["allow"] == "POST"
    assert (await client.ask(rpc("ping", ref=1)))[0] == 200


async def test_headers_without_end_are_refused(bench):
    client = bench.client()
    await client.send(**{f"x-{n}": "y" * 1000 for n in range(100)})
    assert await client.answer() == (431, None)
    assert await client.is_closed()


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n\r\nhello\r\n\r\n",
    ],
)
async def test_what_is_not_http_1_is_closed(bench, autojump_clock, junk):
    client = bench.client()
    await client.stream.send_all(junk)
    with trio.fail_after(60):
        while not await client.is_closed():
            pass


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(bench):
    client = bench.client()
    data = client.request(rpc("ping", ref=1), expect="100-continue")
    head, _, body = data.partition(b"\r\n\r\n")
    await client.stream.send_all(head + b"\r\n\r\n")
    assert await client.stream.receive_some() == b"HTTP/1.1 100 \r\n\r\n"
    await client.stream.send_all(body)
    assert (await client.answer())[0] == 200


async def test_a_stranger_who_is_silent_or_slow_is_dropped_after_30_seconds(bench, autojump_clock):
    silent, slow, other = bench.client(), bench.client(), bench.client()
    call = await bench.pending(other)

    async def drip():
        with contextlib.suppress(trio.BrokenResourceError):
            for byte in slow.request(b"x" * 100):
                await slow.stream.send_all(bytes([byte]))
                await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drip)
        assert await silent.is_closed()
        assert await slow.is_closed()
        assert trio.current_time() == pytest.approx(autojump_clock.current_time())
        nursery.cancel_scope.cancel()
    call.answer("still here")
    assert text([m async for m in _messages(other)][-1]["result"]) == "still here"


async def _messages(client):
    while (block := await client.chunk()) != b"":
        if block.startswith(b"event:"):
            yield orjson.loads(block.partition(b"data: ")[2])


async def test_a_client_with_the_token_may_idle_but_not_dawdle_within_a_request(bench, autojump_clock):
    client = bench.client()
    assert (await client.ask(method="GET"))[0] == 405
    await trio.sleep(3600)
    assert (await client.ask(rpc("ping", ref=1)))[0] == 200
    await trio.sleep(3600)
    assert (await client.ask(rpc("ping", ref=2)))[0] == 200
    await client.stream.send_all(client.request(rpc("ping", ref=3))[:-1])
    start = trio.current_time()
    assert await client.is_closed()
    assert trio.current_time() - start == pytest.approx(30)


async def test_a_client_that_does_not_read_its_answer_is_dropped(bench, autojump_clock):
    mine, theirs = trio.testing.lockstep_stream_pair()  # a write waits until it is read
    client = Client(bench.server, mine)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.server.serve_stream, theirs)
        await client.send(tool_call())
    assert bench.cancelled == [(bench.calls[0].key, "the client hung up")]


async def test_the_client_that_idles_longest_makes_room_and_pending_calls_stay(bench, autojump_clock, monkeypatch):
    monkeypatch.setattr(mcp_server, "MAX_CLIENTS", 3)
    caller, oldest, idle = bench.client(), bench.client(), bench.client()
    call = await bench.pending(caller)
    for client in (oldest, idle, bench.client()):
        await trio.sleep(1)
        assert (await client.ask(rpc("ping", ref=1)))[0] == 200
    assert await oldest.is_closed()
    assert (await idle.ask(rpc("ping", ref=2)))[0] == 200
    call.answer("yes")
    assert text((await caller.message())["result"]) == "yes"


async def test_a_client_is_refused_when_all_others_are_busy(bench, monkeypatch):
    monkeypatch.setattr(mcp_server, "MAX_CLIENTS", 2)
    for client in (bench.client(), bench.client()):
        await bench.pending(client)
    assert (await bench.client().ask(rpc("ping", ref=1)))[0] == 503
    assert bench.cancelled == []


async def test_strangers_displace_one_another_and_never_a_client_that_is_idle(bench, autojump_clock, monkeypatch):
    monkeypatch.setattr(mcp_server, "MAX_STRANGERS", 3)
    client = bench.client()
    assert (await client.ask(rpc("ping", ref=1)))[0] == 200
    await trio.sleep(1)
    strangers = []
    for _ in range(10):
        strangers.append(bench.client())
        await trio.sleep(0.1)
    for stranger in strangers[:7]:
        assert await stranger.is_closed()
    assert (await strangers[-1].ask(rpc("ping", ref=1)))[0] == 200
    assert (await client.ask(rpc("ping", ref=2)))[0] == 200


# ------------------------------------------------------------------------------------------------ what is answered


async def test_the_conversation_that_claude_code_begins_with_is_served_on_one_connection(bench):
    client = bench.client()
    assert (await client.ask(rpc("initialize", {"protocolVersion": "2025-11-25"}, 0)))[0] == 200
    assert await client.ask(rpc("notifications/initialized")) == (202, None)
    assert await client.ask(method="GET", accept="text/event-stream") == (405, None)
    _, answer = await client.ask(rpc("tools/list", ref=1), **{"mcp-session-id": "of-another-server"})
    assert answer["result"] == {
        "tools": [
            {
                "name": "approve",
                "description": "Ask.",
                "inputSchema": SCHEMA,
                "_meta": {"anthropic/maxResultSizeChars": 500_000},
            },
            {"name": "status", "description": "Say how it goes.", "inputSchema": {"type": "object"}},
        ]
    }


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        ([rpc("ping", ref=1)], 400, -32600),
        (rpc("resources/list", {}, 5), 200, -32601),
        (rpc("resources/list", {"_meta": MODERN}, 5), 404, -32601),
        (rpc("tools/call", {"name": "rm"}, 5), 200, -32602),
        (rpc("tools/call", {"name": ["approve"]}, 5), 200, -32602),
        (rpc("tools/call", {"name": "approve", "arguments": []}, 5), 200, -32602),
        (rpc("tools/call", {"name": "rm", "_meta": MODERN}, 5), 400, -32602),
    ],
)
async def test_what_cannot_be_served_gets_an_error_and_the_connection_lives(bench, body, status, code):
    client = bench.client()
    got, answer = await client.ask(body)
    assert (got, answer["error"]["code"]) == (status, code)
    assert (await client.ask(rpc("ping", ref=1)))[0] == 200
    assert bench.calls == []


# ------------------------------------------------------------------------------------------------ a call and its answer


async def test_a_call_reaches_the_host_whole_and_is_answered_with_one_text_block(bench):
    client = bench.client()
    call = await bench.pending(client, tool_call(7, progressToken=2, **{"claudecode/toolUseId": "toolu_1"}))
    assert (client.headers["content-type"], call.closed) == ("text/event-stream", False)
    assert (call.tool, call.arguments) == (TOOLS[0], {"tool_name": "Bash"})
    assert call.meta == {"progressToken": 2, "claudecode/toolUseId": "toolu_1"}
    call.answer({"behavior": "allow", "updatedInput": {}})
    answer = await client.message()
    assert (answer["id"], answer["result"].keys()) == (7, {"content"})
    assert text(answer["result"]) == '{"behavior":"allow","updatedInput":{}}'
    assert await client.chunk() == b""
    assert call.closed
    assert bench.cancelled == []


async def test_a_modern_call_is_answered_with_its_result_type(bench):
    client = bench.client()
    call = await bench.pending(client, tool_call(**MODERN))
    call.answer("yes")
    result = (await client.message())["result"]
    assert (result.pop("resultType"), result.keys(), text(result)) == ("complete", {"content"}, "yes")


async def test_a_failed_call_says_so_in_the_result(bench):
    client = bench.client()
    (await bench.pending(client)).fail("no such session")
    result = (await client.message())["result"]
    assert (result["isError"], text(result)) == (True, "no such session")


async def test_a_client_that_takes_no_event_stream_gets_plain_json_when_there_is_an_answer(bench):
    client = bench.client()
    await client.send(tool_call(3), accept="application/json")
    await trio.testing.wait_all_tasks_blocked()
    bench.calls[0].answer({"behavior": "deny", "message": "no"})
    status, answer = await client.answer()
    assert (status, answer["id"], text(answer["result"])) == (200, 3, '{"behavior":"deny","message":"no"}')


async def test_a_call_may_be_answered_while_it_is_announced(bench):
    bench.on_call = lambda call: call.answer("by a rule")
    client = bench.client()
    await bench.pending(client)
    assert text((await client.message())["result"]) == "by a rule"


async def test_only_the_first_answer_counts(bench):
    client = bench.client()
    call = await bench.pending(client)
    call.answer("first")
    call.answer("second")
    call.fail("third")
    assert text((await client.message())["result"]) == "first"
    assert await client.chunk() == b""


@pytest.mark.parametrize("content", ["lone \ud83d", {"n": 2**70, "s": "\udc00"}])
async def test_an_answer_that_strict_json_has_no_words_for_is_sent_all_the_same(bench, content):
    client = bench.client()
    (await bench.pending(client)).answer(content)
    block = await client.chunk()
    sent = text(json.loads(block.partition(b"data: ")[2])["result"])
    assert (sent if isinstance(content, str) else json.loads(sent)) == content


async def test_large_arguments_and_large_answers_go_through(bench):
    client = await bench.tcp_client()
    big = "é\n" * 100_000
    call = await bench.pending(client, tool_call(arguments={"content": big}))
    assert call.arguments == {"content": big}
    call.answer({"echo": "x" * 2_000_000})
    assert len((await client.body()).removeprefix(b"event: message\ndata: ")) > 2_000_000


async def test_progress_is_sent_every_keepalive_under_the_calls_own_token(bench, autojump_clock):
    client = bench.client()
    start = trio.current_time()
    call = await bench.pending(client, tool_call(progressToken="p-2"))
    for n in range(1, 81):  # twenty minutes
        progress = await client.message()
        assert progress == rpc("notifications/progress", {"progressToken": "p-2", "progress": n})
        assert trio.current_time() - start == pytest.approx(15 * n)
    call.answer("at last")
    assert text((await client.message())["result"]) == "at last"


@pytest.mark.parametrize("meta", [{}, {"progressToken": None}, {"progressToken": {"a": 1}}, {"progressToken": True}])
async def test_without_a_token_comment_lines_keep_the_stream_alive(bench, autojump_clock, meta):
    client = bench.client()
    call = await bench.pending(client, tool_call(**meta))
    start = trio.current_time()
    assert [await client.chunk() for _ in range(2)] == [b": keepalive\n\n"] * 2
    assert trio.current_time() - start == pytest.approx(30)
    call.answer("yes")
    assert text((await client.message())["result"]) == "yes"


async def test_several_calls_pend_at_once_and_are_answered_in_any_order(bench):
    clients = [bench.client() for _ in range(5)]
    for n, client in enumerate(clients):
        await bench.pending(client, tool_call(0, arguments={"n": n}))  # ids may repeat
    assert len({call.key for call in bench.calls}) == 5
    for call in reversed(bench.calls):
        call.answer(call.arguments)
    for n, client in enumerate(clients):
        assert text((await client.message())["result"]) == f'{{"n":{n}}}'


async def test_a_connection_is_kept_for_the_next_call(bench):
    client = bench.client()
    for n in range(3):
        (await bench.pending(client, tool_call(n))).answer(str(n))
        assert text((await client.message())["result"]) == str(n)
        assert await client.chunk() == b""


async def test_requests_sent_ahead_are_answered_in_turn_after_the_pending_call(bench):
    client = bench.client()
    await client.stream.send_all(client.request(rpc("ping", ref=1)) + client.request(tool_call(2)))
    assert (await client.answer())[1]["id"] == 1
    assert await client.status() == 200
    ahead = client.request(rpc("ping", ref=3)) + client.request(tool_call(4)) + client.request(rpc("ping", ref=5))
    for piece in (ahead[:10], ahead[10:300], ahead[300:]):
        await client.stream.send_all(piece)
        await trio.testing.wait_all_tasks_blocked()
    assert [call._request.id for call in bench.calls] == [2]
    bench.calls[0].answer("two")
    assert (await client.message())["id"] == 2
    assert await client.chunk() == b""
    assert (await client.answer())[1]["id"] == 3
    assert await client.status() == 200
    bench.calls[1].answer("four")
    assert (await client.message())["id"] == 4
    assert await client.chunk() == b""
    assert (await client.answer())[1]["id"] == 5


async def test_a_callback_that_raises_fails_its_call_and_not_the_server(bench, caplog):
    def refuse(call):
        raise RuntimeError(call.arguments["tool_name"])

    bench.on_call = refuse
    client = bench.client()
    await bench.pending(client, tool_call(arguments={"tool_name": "secret"}))
    result = (await client.message())["result"]
    assert (result["isError"], text(result)) == (True, "The call could not be taken: RuntimeError.")
    assert "on_call raised RuntimeError" in caplog.text
    assert "secret" not in caplog.text


# ------------------------------------------------------------------------------------------------ calls that end unanswered


async def test_a_client_that_hangs_up_withdraws_its_call_once_and_a_late_answer_is_harmless(bench):
    client = await bench.tcp_client()
    call = await bench.pending(client)
    await client.stream.aclose()
    with trio.fail_after(5):
        while not bench.cancelled:
            await trio.sleep(0.01)
    assert call.closed
    call.answer({"behavior": "allow", "updatedInput": {}})
    call.fail("too late")
    await trio.testing.wait_all_tasks_blocked()
    assert bench.cancelled == [(call.key, "the client hung up")]


async def test_a_hang_up_is_noticed_behind_requests_sent_ahead_and_without_an_event_stream(bench):
    client = bench.client()
    await client.stream.send_all(client.request(tool_call(), accept="application/json") + client.request(tool_call(2)))
    await trio.testing.wait_all_tasks_blocked()
    await client.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert bench.cancelled[0] == (bench.calls[0].key, "the client hung up")
    assert all(call.closed for call in bench.calls)


async def test_a_call_cancelled_over_another_connection_is_withdrawn_and_its_stream_ends_without_a_result(bench):
    first, second = bench.client(), bench.client()
    call, other = await bench.pending(first, tool_call(2)), await bench.pending(bench.client(), tool_call(3))
    cancel = rpc("notifications/cancelled", {"requestId": 2, "reason": "AbortError: user-cancel"})
    assert await second.ask(cancel) == (202, None)
    assert await first.chunk() == b""
    assert await second.ask(cancel) == (202, None)
    assert bench.cancelled == [(call.key, "cancelled by the client: AbortError: user-cancel")]
    assert (call.closed, other.closed) == (True, False)
    assert (await first.ask(rpc("ping", ref=3)))[0] == 200


async def test_a_cancelled_call_that_takes_no_event_stream_is_answered_with_an_error(bench):
    first = bench.client()
    await first.send(tool_call("a"), accept="application/json")
    await trio.testing.wait_all_tasks_blocked()
    await bench.client().ask(rpc("notifications/cancelled", {"requestId": "a"}))
    assert (await first.answer())[1]["error"]["code"] == -32800
    assert bench.cancelled == [(bench.calls[0].key, "cancelled by the client")]


async def test_of_two_calls_with_one_id_the_newer_is_cancelled(bench):
    old, new = await bench.pending(bench.client(), tool_call(0)), await bench.pending(bench.client(), tool_call(0))
    await bench.client().ask(rpc("notifications/cancelled", {"requestId": 0}))
    assert (old.closed, new.closed) == (False, True)


@pytest.mark.parametrize("params", [{"requestId": "1"}, {"requestId": True}, {"requestId": 9}, {"requestId": [1]}, {}])
async def test_a_cancellation_that_names_no_pending_call_changes_nothing(bench, params):
    call = await bench.pending(bench.client(), tool_call(1))
    assert await bench.client().ask(rpc("notifications/cancelled", params)) == (202, None)
    assert not call.closed


async def test_closing_the_server_withdraws_what_is_pending_in_order_and_closes_every_connection(nursery):
    bench = Bench(nursery)
    async with bench.server:
        clients = [await bench.tcp_client() for _ in range(3)]
        calls = [await bench.pending(client, tool_call(n)) for n, client in enumerate(clients)]
    assert bench.cancelled == [(call.key, "the server closed") for call in calls]
    for client in clients:
        assert await client.is_closed()
    with pytest.raises(OSError, match=str(bench.server.port)):
        await bench.tcp_client()


async def test_a_cancelled_server_withdraws_its_calls_and_leaves_an_error_of_its_body_plain(nursery):
    bench = Bench(nursery)
    with trio.CancelScope() as scope:
        async with bench.server:
            call = await bench.pending(await bench.tcp_client())
            scope.cancel()
            await trio.sleep_forever()
    assert bench.cancelled == [(call.key, "the server closed")]
    with pytest.raises(ValueError, match=r"^mine$"):
        async with bench.server:
            raise ValueError("mine")


async def test_a_call_ends_with_the_server_that_got_it(bench, nursery):
    other = Bench(nursery)
    async with other.server:
        assert bench.server.token != other.server.token
        client = await other.tcp_client()
        assert await client.ask(tool_call(), authorization=f"Bearer {bench.server.token}") == (401, None)
        call = await other.pending(await other.tcp_client())
    assert (call.closed, bench.calls, bench.cancelled) == (True, [], [])


async def test_neither_token_nor_body_is_logged_or_shown(bench, caplog):
    caplog.set_level(logging.DEBUG)
    client = bench.client()
    call = await bench.pending(client, tool_call(arguments={"content": "SECRET-BODY"}))
    await bench.client().ask(tool_call(arguments={"content": "SECRET-BODY"}), authorization="Bearer SECRET-BODY")
    shown = caplog.text + repr(call) + repr(bench.server) + repr(call._request)
    assert "refused a request with HTTP status 401" in shown
    assert "SECRET-BODY" not in shown
    assert bench.server.token not in shown


# ------------------------------------------------------------------------------------------------ junk


JUNK = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from(
            [
                b"POST /mcp HTTP/1.1\r\n",
                b"host: HOST\r\n",
                b"\r\n",
                b"content-length: 5\r\n",
                b"hello",
                b"a: b\r\n",
                b"authorization: Bearer x\r\n",
                b"transfer-encoding: chunked\r\n",
                b"0\r\n\r\n",
                b"\x00",
            ]
        ),
        max_size=12,
    ).map(b"".join),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(JUNK, max_size=4))
def test_junk_bytes_never_raise_out_of_the_server_and_never_reach_the_host(pieces):
    async def main():
        async with trio.open_nursery() as nursery:
            bench = Bench(nursery)
            mine, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(bench.server.serve_stream, theirs)
            for piece in pieces:
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await mine.send_all(piece.replace(b"HOST", b"127.0.0.1:0"))
            await mine.send_eof()
        assert bench.calls == []

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_conversation_cut_anywhere_gets_the_same_answers(data):
    async def main():
        async with trio.open_nursery() as nursery:
            bench = Bench(nursery)
            bench.on_call = lambda call: call.answer(call.arguments)
            client = bench.client()
            conversation = (
                client.request(rpc("initialize", {}, 0))
                + client.request(rpc("notifications/initialized"))
                + client.request(method="GET")
                + client.request(tool_call(1, arguments={"n": 1}))
                + client.request(tool_call(2, arguments={"n": 2}), accept="application/json")
                + client.request(rpc("ping", ref=3))
            )
            cuts = sorted(data.draw(st.lists(st.integers(0, len(conversation)), max_size=8)))
            for start, end in zip([0, *cuts], [*cuts, len(conversation)], strict=True):
                if start < end:
                    await client.stream.send_all(conversation[start:end])
                    await trio.testing.wait_all_tasks_blocked()
            assert (await client.answer())[1]["id"] == 0
            assert await client.answer() == (202, None)
            assert await client.answer() == (405, None)
            assert await client.status() == 200
            assert text((await client.message())["result"]) == '{"n":1}'
            assert await client.chunk() == b""
            assert text((await client.answer())[1]["result"]) == '{"n":2}'
            assert (await client.answer())[1]["id"] == 3
            await client.stream.aclose()

    trio.run(main)


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["tools/call", "approve", "2.0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "method", "params", "_meta", "name", "arguments", *MODERN]) | st.text(),
            inner,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    messages=st.lists(
        JSONISH.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=50), min_size=1, max_size=4
    )
)
def test_any_body_gets_one_answer_and_the_connection_stays_in_step(messages):
    async def main():
        async with trio.open_nursery() as nursery:
            bench = Bench(nursery)
            client = bench.client()
            for message in messages:
                status, _ = await client.ask(message, **{"content-length": str(len(message))})
                assert status in (200, 202, 400, 404)
            assert await client.ask(rpc("ping", ref=1)) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
            await client.stream.aclose()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
