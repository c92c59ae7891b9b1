"""What the scripted models share: a server on loopback and one HTTP/1.1 connection, request after request.

A model (`messages_api.py`, `responses_api.py`) says in `answer` what a request gets. Only loopback, one server a test;
leaving the block ends every connection.
"""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import h11
import orjson
import trio

JSON = Any


class ScriptedModel:
    """A server of one test. `url` is known once `serve` has started."""

    url: str = ""

    async def answer(self, to: "Connection", method: str, target: str, headers: dict[str, str], raw: bytes) -> None:
        """Answer one request over `to`; header names are lower-case."""
        raise NotImplementedError

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen on a free loopback port until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._client, listeners)
            task_status.started()

    async def _client(self, stream: trio.SocketStream) -> None:
        """One connection, request after request; whoever goes away is let go."""
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(stream)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            while (asked := await connection.request()) is not None:
                await self.answer(connection, *asked)
                if not connection.again():
                    return


Model = TypeVar("Model", bound=ScriptedModel)


@asynccontextmanager
async def served(model: Model) -> AsyncIterator[Model]:
    """A model that is served until the block is left."""
    async with trio.open_nursery() as nursery:
        await nursery.start(model.serve)
        yield model
        nursery.cancel_scope.cancel()


def pieces(whole: str, size: int) -> list[str]:
    """A text in pieces of `size` characters, as deltas carry it."""
    return [whole[at : at + size] for at in range(0, len(whole), size)]


class Connection:
    """One HTTP/1.1 connection over h11."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._wire = h11.Connection(h11.SERVER)

    async def request(self) -> tuple[str, str, dict[str, str], bytes] | None:
        """Method, target, headers and body of the next request; None at the end of the connection."""
        method, target, body = "", "", b""
        headers: dict[str, str] = {}
        while True:
            match self._wire.next_event():
                case h11.NEED_DATA:
                    if self._wire.they_are_waiting_for_100_continue:
                        await self.send_raw(h11.InformationalResponse(status_code=100, headers=[]))
                    self._wire.receive_data(await self._stream.receive_some())
                case h11.Request() as head:
                    method, target = head.method.decode(), head.target.decode()
                    headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
                case h11.Data() as data:
                    body += bytes(data.data)
                case h11.EndOfMessage():
                    return method, target, headers, body
                case _:
                    return None

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of a response; its body is chunked unless a length is given."""
        await self.send_raw(h11.Response(status_code=status, headers=list(headers.items())))

    async def send(self, data: bytes) -> None:
        """A piece of the body."""
        await self.send_raw(h11.Data(data=data))

    async def end(self, *, cut: bool = False) -> None:
        """The end of the response, or of the connection in its midst."""
        if cut:
            await self._stream.aclose()
        else:
            await self.send_raw(h11.EndOfMessage())

    async def json(self, status: int, body: JSON, headers: Mapping[str, str] | None = None) -> None:
        """A whole response."""
        data = orjson.dumps(body)
        length = {"content-length": str(len(data))}
        await self.head(status, {"content-type": "application/json", **length, **(headers or {})})
        await self.send(data)
        await self.end()

    async def send_raw(self, event: h11.Event) -> None:
        """One h11 event onto the wire."""
        data = self._wire.send(event)
        assert data is not None
        await self._stream.send_all(data)

    def again(self) -> bool:
        """Whether the connection may bear another request."""
        if self._wire.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            return False
        self._wire.start_next_cycle()
        return True
