"""The project's own scripted Messages API: the model that the real CLI talks to in the live tests.

    async with serving(turn(text("Hello."))) as api:
        ... run the CLI with ANTHROPIC_BASE_URL=api.url ...
        assert api.told() == [...]

Each request that offers tools takes the next `Turn` of the script whose `match`, if it has one, stands in the first user
message (so a sub-agent gets turns of its own). Requests without tools (titles, summaries, token counts) are answered
apart and take no turn.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import attrs
import orjson
import trio
from scripted import JSON, Connection, ScriptedModel, pieces, served


def text(words: str) -> JSON:
    """Prose of the model."""
    return {"type": "text", "text": words}


def thinking(words: str) -> JSON:
    """Reasoning of the model."""
    return {"type": "thinking", "thinking": words, "signature": "c2lnbmF0dXJl" * 8}


def tool(name: str, **tool_input: JSON) -> JSON:
    """A tool call; its id is given when it is served: toolu_01, toolu_02, ..."""
    return {"type": "tool_use", "name": name, "input": tool_input}


def bash(command: str) -> JSON:
    """A call of the shell."""
    return tool("Bash", command=command, description="a step of the test")


@attrs.frozen
class Turn:
    """What one request gets: blocks, or an error in their place, and what goes wrong on the way.

    `delay` and `chunk_delay` are seconds, before the response and before each delta; `chunk` is a delta's length in
    characters. `cut` drops the connection after the blocks, `hang` leaves it open and silent.
    """

    blocks: tuple[JSON, ...] = ()
    error: tuple[int, str, str] | None = None
    stop_reason: str | None = None
    usage: Mapping[str, int] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    delay: float = 0.0
    chunk: int = 24
    chunk_delay: float = 0.0
    end: Literal["whole", "cut", "hang", "error"] = "whole"
    match: str | None = None


def turn(*blocks: JSON, **how: Any) -> Turn:
    """A turn of these blocks; a plain string is a text block."""
    return Turn(tuple(text(block) if isinstance(block, str) else block for block in blocks), **how)


def failure(status: int, kind: str, message: str, **how: Any) -> Turn:
    """A turn that is an HTTP error, such as (529, "overloaded_error", "Overloaded")."""
    return Turn(error=(status, kind, message), **how)


@attrs.define
class MessagesApi(ScriptedModel):
    """The server. `requests` holds the body of every request that took a turn, in order."""

    script: deque[Turn] = attrs.field(factory=deque)
    url: str = ""
    requests: list[JSON] = attrs.field(factory=list)
    keys: set[str] = attrs.field(factory=set)
    """Every API key that was shown to it."""
    other: list[str] = attrs.field(factory=list)
    """Paths asked for that it does not know."""
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    _calls: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    def add(self, *turns: Turn) -> None:
        """Put more turns at the end of the script."""
        self.script.extend(turns)

    def told(self) -> list[JSON]:
        """All tool results that the model was given so far, each once, in order of their calls' ids."""
        seen: dict[str, JSON] = {}
        for request in self.requests:
            for block in _blocks(request):
                if block.get("type") == "tool_result":
                    seen.setdefault(block["tool_use_id"], block)
        return list(seen.values())

    def heard(self) -> str:
        """All text that users and the CLI put into the requests, in one string."""
        return "\n".join(
            block["text"] for request in self.requests for block in _blocks(request) if block.get("type") == "text"
        )

    async def answer(self, to: Connection, method: str, target: str, headers: dict[str, str], raw: bytes) -> None:
        """A turn of the script where the request offers tools; see `ScriptedModel.answer`."""
        path = target.partition("?")[0]
        body = orjson.loads(raw) if raw and method == "POST" else {}
        if key := headers.get("x-api-key") or headers.get("authorization"):
            self.keys.add(key)
        if method == "HEAD":  # is anybody there?
            await to.head(200, {"content-length": "0"})
            await to.end()
        elif path.endswith("/count_tokens"):
            await to.json(200, {"input_tokens": max(1, len(raw) // 4)})
        elif not path.endswith("/v1/messages"):
            self.other.append(f"{method} {path}")
            await to.json(404, _error("not_found_error", "no such path"))
        elif not body.get("tools"):
            await self._play(turn("ok"), body, to)
        else:
            self.requests.append(body)
            await self._play(self._next(body), body, to)

    def _next(self, body: JSON) -> Turn:
        first = orjson.dumps(body["messages"][0]).decode()
        wanted = next((t for t in self.script if t.match and t.match in first), None)
        wanted = wanted or next((t for t in self.script if not t.match), None)
        if wanted is None:
            return turn("(the script is at its end)")
        self.script.remove(wanted)
        return wanted

    async def _play(self, play: Turn, body: JSON, to: Connection) -> None:
        await trio.sleep(play.delay)
        if play.error:
            status, kind, message = play.error
            await to.json(status, _error(kind, message), play.headers)
            return
        blocks = [
            {**block, "id": f"toolu_{next(self._calls):02}"} if block["type"] == "tool_use" else block
            for block in play.blocks
        ]
        called = any(block["type"] == "tool_use" for block in blocks)
        usage = {
            "input_tokens": 100,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 20,
        }
        whole = {
            "id": f"msg_{next(self._numbers):02}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "unknown"),
            "content": blocks,
            "stop_reason": play.stop_reason or ("tool_use" if called else "end_turn"),
            "stop_sequence": None,
            "usage": {**usage, **play.usage},
        }
        if not body.get("stream"):
            await to.json(200, whole, play.headers)
            return
        await to.head(200, {"content-type": "text/event-stream", **play.headers})
        for event in _events(whole, play.chunk, play.end):
            if event["type"] == "content_block_delta":
                await trio.sleep(play.chunk_delay)
            await to.send(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(event)))
        if play.end == "hang":
            await trio.sleep_forever()
        await to.end(cut=play.end == "cut")


def serving(*turns: Turn) -> AbstractAsyncContextManager[MessagesApi]:
    """A server with this script, until the block is left."""
    return served(MessagesApi(deque(turns)))


def _error(kind: str, message: str) -> JSON:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _blocks(request: JSON) -> Iterator[JSON]:
    for message in request["messages"]:
        content = message["content"]
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _events(message: JSON, chunk: int, end: str) -> Iterator[JSON]:
    """The server-sent events of a message, as the documented streaming format has them."""
    start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        empty, deltas = _deltas(block, chunk)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if end == "error":
        yield _error("overloaded_error", "Overloaded")
    if end == "whole":
        ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
        yield {"type": "message_stop"}


def _deltas(block: JSON, chunk: int) -> tuple[JSON, list[JSON]]:
    """A block as it is before its first delta, and its deltas."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(block["text"], chunk)]
        case "thinking":
            said = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"], chunk)]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*said, signed]
        case _:
            written = orjson.dumps(block["input"]).decode()
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(written, chunk)]
            return {**block, "input": {}}, deltas
