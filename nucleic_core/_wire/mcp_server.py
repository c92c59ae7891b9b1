"""A small MCP server inside our process: an agent's child calls our tools over streamable HTTP on loopback.

Used for Claude's approval tool and for our own tools. A call may stay open for as long as a person thinks, so
`tools/call` is answered at once with the head of an event stream, then `notifications/progress` every `keepalive`
seconds, then the result: the one form that outlived 20 minutes in every Claude Code tried; plain JSON ends after 60
seconds, comment lines after 300 (docs/wire-truth.md, MCP rows).

    async with McpServer(tools, on_call, on_cancel) as server:
        ...  # give server.url and server.token to the child, in a file (mcp_config.py), never in argv
        # on_call got a ToolCall; some time later:
        call.answer({"behavior": "allow", "updatedInput": {}})

Who may call: the listener is bound to 127.0.0.1, where every local user and every web page can knock. So a request needs
the server's token, the right Host (against DNS rebinding) and no Origin (no browser has business here), all judged on the
head alone. Nothing here logs a token or a body.
"""

import hmac
import itertools
import logging
import secrets
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import h11
import trio

from nucleic_core._faults import failure_of, log_failure
from nucleic_core._values import JSON
from nucleic_core._wire.mcp_http import ClientGone, HttpConnection, Refused
from nucleic_core._wire.mcp_protocol import (
    BAD_PARAMS,
    CANCELLED,
    McpTool,
    Message,
    RpcError,
    dumps,
    read,
    respond,
    text_result,
)

__all__ = ["McpServer", "McpTool", "ToolCall"]

MAX_STRANGERS = 64
"""Connections that have not shown the token; each has 30 seconds for that."""

MAX_CLIENTS = 64
"""Connections that have."""

logger = logging.getLogger("nucleic.mcp")


class ToolCall:
    """One pending call of a tool. Open until it is answered, or until the client or the server is gone.

    `key` is unique while the server lives; the wire's own ids start again at 0 when a client reconnects. `meta` is the
    request's `_meta`, such as `claudecode/toolUseId`.
    """

    def __init__(self, key: str, tool: McpTool, request: Message) -> None:
        self.key = key
        self.tool = tool
        self.arguments: JSON = request.params.get("arguments", {})
        self.meta: JSON = request.meta
        self._request = request
        self._result: JSON = None
        self._closed = trio.Event()

    @property
    def closed(self) -> bool:
        """Whether the call has its answer or nobody waits for one any more."""
        return self._closed.is_set()

    def answer(self, content: JSON) -> None:
        """Give the tool's result: one text block, with a str as it is and anything else as JSON.

        Does not wait. The first answer counts; on a closed call nothing happens.
        """
        self._close(text_result(content))

    def fail(self, message: str) -> None:
        """Answer that the tool failed; otherwise as `answer`."""
        self._close(text_result(message, failed=True))

    def _close(self, result: JSON) -> None:
        if not self.closed:
            self._result = result
            self._closed.set()


class McpServer:
    """Serves `tools` on an ephemeral port of 127.0.0.1 while entered.

    `on_call(call)` is called for each call in order of arrival, before anything else is read from that client; it must
    not wait. `on_cancel(call, reason)` is called once when a call ends unanswered: the client hung up or cancelled it,
    or the server closed. Should either raise, the call fails and the error is logged. `keepalive` is in seconds; the
    shortest limit seen in a client is 60.
    """

    def __init__(
        self,
        tools: Sequence[McpTool],
        on_call: Callable[[ToolCall], None],
        on_cancel: Callable[[ToolCall, str], None],
        *,
        keepalive: float = 15.0,
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self.port = 0
        self._tools = {tool.name: tool for tool in tools}
        self._on_call = on_call
        self._on_cancel = on_cancel
        self._keepalive = keepalive
        self._keys = itertools.count(1)
        self._pending: dict[str, ToolCall] = {}
        self._connections: set[HttpConnection] = set()

    @property
    def url(self) -> str:
        """Where clients post; has its port once the server is entered."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def __aenter__(self) -> Self:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._accept, listener)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        for call in tuple(self._pending.values()):
            self._withdraw(call, "the server closed")
        self._nursery.cancel_scope.cancel()
        if isinstance(error, Exception):
            # Kept from the nursery, which would wrap it in a group; our own tasks raise nothing.
            await self._manager.__aexit__(None, None, None)
            return False
        return await self._manager.__aexit__(kind, error, traceback)

    async def _accept(self, listener: trio.SocketListener) -> None:
        async with listener:
            await trio.serve_listeners(self.serve_stream, [listener], handler_nursery=self._nursery)

    async def serve_stream(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Serve one connection to its end, then close it. Raises nothing, whatever the client sends."""
        connection = HttpConnection(stream)
        with connection.scope:
            self._connections.add(connection)
            try:
                self._make_room(MAX_STRANGERS, trusted=False)
                await self._converse(connection)
            except ClientGone:
                pass
            finally:
                self._connections.discard(connection)
                await trio.aclose_forcefully(stream)

    def _make_room(self, most: int, *, trusted: bool) -> None:
        """Keep strangers and clients bounded, each by themselves, so that no stranger displaces a client.

        The one without a request for longest goes. Raises Refused when all are busy.
        """
        kind = [c for c in self._connections if c.trusted is trusted]
        if len(kind) > most:
            waiting = [(c.waiting_since, c) for c in kind if c.waiting_since is not None]
            if not waiting:
                raise Refused(503)
            _, idle = min(waiting, key=lambda pair: pair[0])
            self._connections.discard(idle)
            idle.scope.cancel()

    async def _converse(self, connection: HttpConnection) -> None:
        while True:
            try:
                head, body = await connection.request(self._admit)
                self._make_room(MAX_CLIENTS, trusted=True)
            except Refused as refusal:
                logger.debug("refused a request with HTTP status %d", refusal.status)
                await connection.refuse(refusal)
                continue
            if head.method != b"POST":
                # A GET asks for a stream of news, which clients do without.
                await connection.refuse(Refused(405, ("allow", "POST")))
                continue
            try:
                message = read(body)
                if message.id is None:
                    self._notified(message)
                    await connection.reply(202)
                elif message.method == "tools/call":
                    await self._call(connection, message, events=_accepts_events(head))
                else:
                    await connection.reply(200, dumps(respond(message, tuple(self._tools.values()))))
            except RpcError as error:
                await connection.reply(error.status, dumps(error.response))

    def _admit(self, head: h11.Request) -> None:
        """Judge by its head who sends a request; raises Refused."""
        if _header(head, b"host") not in (b"127.0.0.1:%d" % self.port, b"localhost:%d" % self.port):
            raise Refused(421)
        if _header(head, b"origin") is not None:
            raise Refused(403)
        if head.target.partition(b"?")[0] != b"/mcp":
            raise Refused(404)  # also the OAuth metadata under /.well-known, which tells clients there is none
        given = _header(head, b"authorization") or b""
        if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
            raise Refused(401, ("www-authenticate", "Bearer"))

    async def _call(self, connection: HttpConnection, request: Message, *, events: bool) -> None:
        call = self._begin(request)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, connection, call)
                try:
                    await self._answer(connection, call, events=events)
                except ClientGone:
                    self._withdraw(call, "the client hung up")
                nursery.cancel_scope.cancel()
        finally:
            self._withdraw(call, "the server closed")
            del self._pending[call.key]

    def _begin(self, request: Message) -> ToolCall:
        name = request.params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise request.error(BAD_PARAMS, "no such tool")
        if not isinstance(request.params.get("arguments", {}), dict):
            raise request.error(BAD_PARAMS, "arguments must be an object")
        call = ToolCall(f"call-{next(self._keys)}", tool, request)
        self._pending[call.key] = call
        try:
            self._on_call(call)
        except BaseException as raised:
            error = failure_of(raised)
            log_failure(logger, "on_call", error)
            call.fail(f"The call could not be taken: {type(error).__name__}.")
        return call

    async def _watch(self, connection: HttpConnection, call: ToolCall) -> None:
        await connection.gone()
        self._withdraw(call, "the client hung up")

    async def _answer(self, connection: HttpConnection, call: ToolCall, *, events: bool) -> None:
        if events:
            await connection.open_events()
            await self._keep_alive(connection, call)
            if call._result is not None:
                await connection.event(dumps(call._request.response(call._result)))
            await connection.close_events()
            return
        await call._closed.wait()
        if call._result is None:
            await connection.reply(200, dumps(call._request.error(CANCELLED, "cancelled").response))
        else:
            await connection.reply(200, dumps(call._request.response(call._result)))

    async def _keep_alive(self, connection: HttpConnection, call: ToolCall) -> None:
        """Until the call is closed, show life every `keepalive` seconds: progress where the client gave a token."""
        token = call._request.progress_token()
        for progress in itertools.count(1):
            with trio.move_on_after(self._keepalive):
                await call._closed.wait()
            if call.closed:
                return
            if token is None:
                await connection.comment()
            else:
                params = {"progressToken": token, "progress": progress}
                await connection.event(dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))

    def _notified(self, notification: Message) -> None:
        """Take a cancellation to heart, whatever connection it came by; other notifications need nothing done.

        Ids may repeat after a reconnect, so the newest call of that id is meant.
        """
        if notification.method != "notifications/cancelled":
            return
        target = notification.params.get("requestId")
        for call in reversed(self._pending.values()):
            if not call.closed and call._request.id == target and type(call._request.id) is type(target):
                reason = notification.params.get("reason")
                why = f": {reason[:200]}" if isinstance(reason, str) else ""
                self._withdraw(call, f"cancelled by the client{why}")
                return

    def _withdraw(self, call: ToolCall, reason: str) -> None:
        if call.closed:
            return
        call._close(None)
        try:
            self._on_cancel(call, reason)
        except BaseException as error:
            log_failure(logger, "on_cancel", failure_of(error))


def _header(head: h11.Request, name: bytes) -> bytes | None:
    """The one value of a header. Several values read as one that fits nothing."""
    values = [value for key, value in head.headers if key == name]
    return b", ".join(values) if values else None


def _accepts_events(head: h11.Request) -> bool:
    return b"text/event-stream" in (_header(head, b"accept") or b"").lower()
