"""One HTTP connection of the MCP server: requests in, answers out, over any trio stream.

h11 keeps the protocol's state; this adds what a server needs that answers after twenty minutes. Every wait on the client
has a deadline or an end: a request has 30 seconds to arrive, a client that does not read is dropped, and while an answer
is pending `gone` notices a hang-up and keeps what else was sent for the next request.

A client that has shown its token may stay silent between requests for as long as it likes: closing an idle connection
races with the client's next request on it, and a lost approval call is not repeated (Claude Code fails the tool).
"""

import math
from collections.abc import Callable

import h11
import trio

MAX_BODY = 16 * 1024 * 1024  # a Write of 1.2 MB is normal, and so is its JSON escaping
CLIENT_SECONDS = 30.0
_LINGER_SECONDS = 2.0
_READ = 64 * 1024


class ClientGone(Exception):
    """The conversation on this connection is over: hung up, broken, too slow, or said its last."""


class Refused(Exception):
    """The request gets this HTTP status and no more attention."""

    def __init__(self, status: int, *headers: tuple[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers


class HttpConnection:
    """The server's side of one connection. One task converses; a second one may wait in `gone` meanwhile.

    `scope` surrounds whoever serves the connection and ends it from outside. `trusted` says that the client has shown its
    token; `waiting_since` is the trio time since which no request has come, None while one is being served.
    """

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)
        self.trusted = False
        self.scope = trio.CancelScope()
        self.waiting_since: float | None = trio.current_time()

    async def request(self, admit: Callable[[h11.Request], None]) -> tuple[h11.Request, bytes]:
        """Wait for the next request and its body.

        `admit` sees the head before any of the body is read, and raises `Refused` to keep it out.
        """
        if not self._is_reusable():
            raise ClientGone
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self.waiting_since = trio.current_time()
        with trio.CancelScope() as scope:
            if not self.trusted or self._http.trailing_data[0]:
                scope.deadline = trio.current_time() + CLIENT_SECONDS
            head = await self._next_event(scope)
            if not isinstance(head, h11.Request):
                raise ClientGone
            admit(head)
            self.trusted, self.waiting_since = True, None
            return head, await self._body(head, scope)
        raise ClientGone

    async def refuse(self, refusal: Refused) -> None:
        """Answer with a status alone. Ends the connection when more of the refused request may be on its way."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise ClientGone
        whole = self._is_whole()
        headers = [("content-length", "0"), *refusal.headers, *(() if whole else (("connection", "close"),))]
        await self._send(h11.Response(status_code=refusal.status, headers=headers), h11.EndOfMessage())
        if not whole:
            await self._linger()

    async def reply(self, status: int, body: bytes = b"") -> None:
        """Answer at once, with JSON or with nothing."""
        headers = [("content-length", str(len(body)))]
        if body:
            headers.append(("content-type", "application/json"))
        await self._send(h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())

    async def open_events(self) -> None:
        """Send the head of an answer that consists of server-sent events."""
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-store")]
        await self._send(h11.Response(status_code=200, headers=headers))

    async def event(self, message: bytes) -> None:
        """Send one event; `message` is JSON without raw line breaks."""
        await self._send(h11.Data(data=b"event: message\ndata: " + message + b"\n\n"))

    async def comment(self) -> None:
        """Send a line that event-stream parsers skip, so that the connection is not silent."""
        await self._send(h11.Data(data=b": keepalive\n\n"))

    async def close_events(self) -> None:
        """End the answer; the connection can carry the next request."""
        await self._send(h11.EndOfMessage())

    async def gone(self) -> None:
        """Return when the client has hung up. What it sends before that is kept for `request`; safe to cancel.

        A client that sends more than a whole request ahead counts as gone, because nothing here buffers without bound.
        """
        ahead = 0
        while ahead <= MAX_BODY + _READ:
            try:
                data = await self._stream.receive_some(_READ)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not data:
                return
            self._http.receive_data(bytes(data))
            ahead += len(data)

    def _is_reusable(self) -> bool:
        states = self._http.our_state, self._http.their_state
        return states in ((h11.IDLE, h11.IDLE), (h11.DONE, h11.DONE))

    def _is_whole(self) -> bool:
        """Whether the request being refused has been received to its end, as one without a body has."""
        if self._http.their_state is not h11.SEND_BODY:
            return self._http.their_state is h11.DONE
        try:
            return isinstance(self._http.next_event(), h11.EndOfMessage)
        except h11.RemoteProtocolError:
            return False

    async def _body(self, head: h11.Request, scope: trio.CancelScope) -> bytes:
        for name, value in head.headers:
            if name == b"content-length" and int(value) > MAX_BODY:
                raise Refused(413)
        chunks: list[bytes] = []
        size = 0
        while True:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            event = await self._next_event(scope)
            if isinstance(event, h11.EndOfMessage):
                return b"".join(chunks)
            if not isinstance(event, h11.Data):
                raise ClientGone
            chunks.append(bytes(event.data))
            size += len(event.data)
            if size > MAX_BODY:
                raise Refused(413)

    async def _next_event(self, scope: trio.CancelScope) -> object:
        """The next event of the request. The first byte of a request starts its clock."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise Refused(error.error_status_hint) from error
            if event is not h11.NEED_DATA:
                return event
            try:
                data = await self._stream.receive_some(_READ)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ClientGone from error
            if not data and self._http.their_state is not h11.IDLE:
                raise ClientGone
            self._http.receive_data(bytes(data))
            if scope.deadline == math.inf:
                scope.deadline = trio.current_time() + CLIENT_SECONDS

    async def _send(self, *events: h11.Event) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        try:
            with trio.fail_after(CLIENT_SECONDS):
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            raise ClientGone from error

    async def _linger(self) -> None:
        """Let a client that is still sending read its refusal: closing on unread bytes would reset the connection."""
        with trio.move_on_after(_LINGER_SECONDS):
            try:
                await self._stream.send_eof()
                while await self._stream.receive_some(_READ):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
        raise ClientGone
