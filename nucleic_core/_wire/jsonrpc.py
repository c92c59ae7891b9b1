"""One end of a JSON-RPC conversation: numbers and writes our requests, wakes who waits for a reply, serves the agent's requests.

It stands beside the decoder, not before it. The decoder reads every message of both directions and finds the asks
(approvals, questions); the peer sees the same messages once they are committed, and does what must be done and not said:

    messages = peer.unpack(batch)   # JSON-RPC batches opened; the agent's requests are open from here on
    link.received(messages)         # decode, append, begin asks; an ask may be answered in here already
    peer.feed(messages)             # wake callers, start handlers

Who answers a request of the agent's, in two rules and once: a method in `handlers` is answered by its handler; any other
by whoever answers its ask, through `Driver.answer`. So a decoder gives an ask for every request it has no handler for,
known or not; what the mapper does not read comes back as `Driver.answer(ask, None)`, which is error -32601.

Two dialects: with `header` each message says `"jsonrpc": "2.0"` and a request that nobody waits for any longer is taken
back with `$/cancel_request` (ACP); without, neither exists (Codex; docs/wire-truth.md, Codex row 1). What is received is
read leniently in both. The ids of the two directions have nothing to do with each other.
"""

import itertools
import json
import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

import attrs
import trio

from nucleic_core._faults import failure_of, log_failure
from nucleic_core._values import JSON
from nucleic_core.errors import AgentGone, AgentRefused, AgentSilent, NucleicError

INVALID_REQUEST = -32600
NO_SUCH_METHOD = -32601
INTERNAL = -32603
CANCELLED = -32800
OVERLOADED = -32001

CANCEL = "$/cancel_request"

TRIES = 8
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""An overloaded agent is asked again after 0.1 s, 0.2 s and so on to 5 s, each shortened by chance: 11 s in all."""

log = logging.getLogger("nucleic.jsonrpc")

Handler: TypeAlias = Callable[[JSON], Awaitable[JSON]]
"""Serves one method: params in, result out. RpcError gives the error to answer with; any other exception is a bug, -32603."""


class StartSoon(Protocol):
    """A nursery's `start_soon`."""

    def __call__(self, task: Callable[[], Awaitable[object]], /) -> object: ...


class RpcError(AgentRefused):
    """An error reply: the agent's to us, or a handler's to the agent. `message` and `data` are the sender's own.

    `method` is what we asked for, if it was we who asked.
    """

    def __init__(self, code: int, message: str, data: JSON = None, *, method: str = "") -> None:
        super().__init__(f"The agent refused {method}: {message} (code {code})" if method else f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data
        self.method = method


def request_key(request_id: JSON) -> str:
    """The `Ask.key` of a request with this id: the id as JSON, so that 0 and "0" are two, and the id is had back from it."""
    return json.dumps(request_id)


@attrs.define(eq=False)
class _Call:
    """A request of ours on its way."""

    method: str
    done: trio.Event = attrs.field(factory=trio.Event)
    result: JSON = None
    failure: NucleicError | None = None

    def settle(self, reply: Mapping[str, JSON]) -> None:
        if reply.get("error") is not None:
            self.failure = _error(reply["error"], self.method)
        else:
            self.result = reply.get("result")
        self.done.set()


@attrs.define(eq=False)
class _Request:
    """A request of the agent's that a handler serves."""

    id: JSON
    handler: Handler
    params: JSON
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class Peer:
    """Our end. All but `call` is synchronous and never waits.

    `write` sends one message (`Link.write`). `notice` gets what a person should know, once each: a reply that
    nobody waits for, an error that belongs to no request. `handlers` serve requests that are no asks, in tasks of
    `start_soon`: begun in order of arrival, answered as they end.
    """

    def __init__(
        self,
        write: Callable[[JSON], None],
        *,
        header: bool,
        notice: Callable[[str, str], None] | None = None,
        handlers: Mapping[str, Handler] | None = None,
        start_soon: StartSoon | None = None,
    ) -> None:
        assert not handlers or start_soon is not None, "handlers need a nursery to run in"
        self._write = write
        self._header = {"jsonrpc": "2.0"} if header else {}
        self._notice = notice
        self._handlers = handlers or {}
        self._start_soon = start_soon
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._given_up: set[int] = set()
        self._open: dict[str, _Request | None] = {}  # the agent's, unanswered; with a handler or left to an ask
        self._unbegun: deque[_Request] = deque()
        self._closed: str | None = None
        self._told: set[str] = set()
        self.strays = 0
        """Replies that nobody waited for: unknown ids, second replies."""

    # -- our requests -----------------------------------------------------------------------------------------------

    async def call(self, method: str, params: JSON = None, *, deadline: float | None = None) -> JSON:
        """Send a request and wait for its result. `deadline` is in seconds; without one it waits for as long as it takes.

        An overloaded agent (-32001) is asked again, 8 times in all. Raises RpcError for an error reply, AgentGone when no
        reply can come any more, AgentSilent at the deadline. Cancelled or late, the call is taken back where the dialect
        can, and a reply that comes all the same is dropped.
        """
        with trio.move_on_after(math.inf if deadline is None else deadline):
            return await self._persist(method, params)
        raise AgentSilent(f"The agent did not answer {method} within {deadline:g} s.")

    async def _persist(self, method: str, params: JSON) -> JSON:
        delay = FIRST_DELAY
        for _ in range(TRIES - 1):
            try:
                return await self._call(method, params)
            except RpcError as refusal:
                if refusal.code != OVERLOADED:
                    raise
            await trio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311 - so that many do not come back at once
            delay = min(2 * delay, LONGEST_DELAY)
        return await self._call(method, params)

    async def _call(self, method: str, params: JSON) -> JSON:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed is not None:
            raise AgentGone(self._closed)
        number = next(self._numbers)
        call = self._calls[number] = _Call(method)
        try:
            self._say(id=number, method=method, params=params)
            await call.done.wait()
        except trio.Cancelled:
            self._give_up(number)
            raise
        finally:
            self._calls.pop(number, None)
        if call.failure is not None:
            raise call.failure
        return call.result

    def _give_up(self, number: int) -> None:
        self._given_up.add(number)
        if self._header:
            with suppress(NucleicError):  # nothing may stand in the way of a cancellation
                self.notify(CANCEL, {"requestId": number})

    def notify(self, method: str, params: JSON = None) -> None:
        """Send a notification. Raises AgentGone when nothing can be sent."""
        self._say(method=method, params=params)

    # -- the agent's messages ---------------------------------------------------------------------------------------

    def unpack(self, batch: Iterable[JSON]) -> list[JSON]:
        """The messages of a batch, JSON-RPC batches (arrays) among them opened. What is no message stays as it is."""
        messages: list[JSON] = []
        for entry in batch:
            if isinstance(entry, list) and entry:
                messages += entry
            else:
                messages.append(entry)
        for message in messages:
            if type(message) is dict and "id" in message and "method" in message and _is_id(message["id"]):
                self._open.setdefault(request_key(message["id"]), None)
        return messages

    def feed(self, messages: Sequence[JSON]) -> None:
        """Act on messages that were unpacked and committed, in order. Never raises."""
        for message in messages:
            if type(message) is not dict:
                continue
            if "method" not in message:
                if "id" in message or "error" in message:
                    self._replied(message)
            elif "id" in message:
                if _is_id(message["id"]):  # else nobody could answer it
                    self._requested(message)
            elif message["method"] == CANCEL:
                self._cancelled(message.get("params"))

    def _replied(self, reply: Mapping[str, JSON]) -> None:
        number = _number(reply.get("id"))
        call = self._calls.pop(number, None) if number is not None else None
        if call is not None:
            call.settle(reply)
        elif number in self._given_up:
            self._given_up.remove(number)
        elif reply.get("id") is None and reply.get("error") is not None:
            text = f"The agent reports an error that belongs to no request: {_brief(reply['error'])}"
            self._tell("orphan", text)
        else:
            self.strays += 1
            self._tell("stray", f"The agent answered a request that nobody waits for (id {_brief(reply.get('id'))}).")

    def _requested(self, message: Mapping[str, JSON]) -> None:
        request_id, method = message["id"], message["method"]
        key = request_key(request_id)
        if key not in self._open:
            return  # it was an ask and has its answer
        if not isinstance(method, str):
            self.refuse(request_id, INVALID_REQUEST, "the method must be a string")
        elif (handler := self._handlers.get(method)) is not None and self._start_soon is not None:
            if self._open.get(key) is not None:
                text = f"The agent began a second request with the id {_brief(request_id)}; it is not served."
                self._tell("twice", text)
                return
            request = self._open[key] = _Request(request_id, handler, message.get("params"))
            self._unbegun.append(request)
            self._start_soon(self._serve_oldest)

    def _cancelled(self, params: JSON) -> None:
        """A request is taken back. One that is an ask is withdrawn by the decoder; the wire wants an answer even so."""
        request_id = params.get("requestId") if isinstance(params, dict) else ()
        if not _is_id(request_id):
            return
        key = request_key(request_id)
        if (request := self._open.get(key)) is not None:
            request.scope.cancel()
        elif key in self._open:
            self.refuse(request_id, CANCELLED, "cancelled")

    async def _serve_oldest(self) -> None:
        """Serve the oldest request that has not begun: trio starts tasks in any order, the requests have one."""
        request = self._unbegun.popleft()
        if request.scope.cancel_called:
            self.refuse(request.id, CANCELLED, "cancelled")
            return
        try:
            try:
                with request.scope:
                    self.reply(request.id, await request.handler(request.params))
            except RpcError as refusal:
                self.refuse(request.id, refusal.code, refusal.message, refusal.data)
        except BaseException as raised:
            bug = failure_of(raised)
            log_failure(log, "the handler of a request", bug)
            self.refuse(request.id, INTERNAL, f"the request failed: {type(bug).__name__}")
        else:
            if request.scope.cancelled_caught:
                self.refuse(request.id, CANCELLED, "cancelled")

    # -- our answers ------------------------------------------------------------------------------------------------

    def reply(self, request_id: JSON, result: JSON) -> None:
        """Answer a request with its result; the id goes back as it came. Nothing happens when it has its answer already.

        Raises TypeError or ValueError for what is not JSON; the agent has got an error then.
        """
        self._answer(request_id, result=result)

    def refuse(self, request_id: JSON, code: int, message: str, data: JSON = None) -> None:
        """Answer a request with an error; otherwise as `reply`."""
        error = {"code": code, "message": message}
        self._answer(request_id, error=error if data is None else {**error, "data": data})

    def close(self, reason: str) -> None:
        """No more will be read: whoever waits for a reply gets AgentGone with this reason, handlers are cancelled."""
        if self._closed is not None:
            return
        self._closed = reason
        for call in self._calls.values():
            call.failure = AgentGone(reason)
            call.done.set()
        self._calls.clear()
        for request in self._open.values():
            if request is not None:
                request.scope.cancel()
        self._open.clear()

    def _answer(self, request_id: JSON, **content: JSON) -> None:
        key = request_key(request_id)
        if key not in self._open:
            return
        del self._open[key]
        with suppress(NucleicError):  # the agent is gone, or nothing can be recorded: nobody waits for it any more
            try:
                self._say(id=request_id, **content)
            except (TypeError, ValueError):
                self._say(id=request_id, error={"code": INTERNAL, "message": "the answer is not JSON"})
                raise

    def _say(self, **members: JSON) -> None:
        if "params" in members and members["params"] is None:
            del members["params"]
        self._write({**self._header, **members})

    def _tell(self, kind: str, text: str) -> None:
        if kind in self._told:
            return
        self._told.add(kind)
        log.info("%s", text)
        if self._notice is not None:
            self._notice("protocol", text)


def _is_id(value: JSON) -> bool:
    """Whether an answer could bear this id. The protocol says string or number, and null where there is none."""
    return value is None or isinstance(value, str | int | float)


def _number(request_id: JSON) -> int | None:
    """The request of ours that a reply's id means: 1, but also "1" and 1.0 as some agents spell it. True is no number."""
    if isinstance(request_id, bool):
        return None
    if isinstance(request_id, int):
        return request_id
    if isinstance(request_id, float):
        return int(request_id) if request_id.is_integer() else None
    if isinstance(request_id, str) and request_id.isascii() and request_id.isdecimal() and len(request_id) < 16:
        return int(request_id)
    return None


def _error(error: JSON, method: str = "") -> RpcError:
    """An error object, or what stands in its place, as an exception."""
    fields = error if isinstance(error, dict) else {"message": error}
    code, message = fields.get("code"), fields.get("message")
    return RpcError(
        code if isinstance(code, int) else INTERNAL,
        message if isinstance(message, str) else _brief(error),
        fields.get("data"),
        method=method,
    )


def _brief(value: JSON) -> str:
    """A value on part of a line."""
    try:
        text = json.dumps(value)
    except RecursionError:
        text = f"a {type(value).__name__} that is nested too deeply to show"
    return text if len(text) <= 200 else f"{text[:200]}…"
