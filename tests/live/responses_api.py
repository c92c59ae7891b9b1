"""The project's own scripted Responses API: the model that the real codex talks to in the live tests.

    async with serving(turn(command("ls"))) as api:
        ... run the CLI with a provider whose base_url is api.base_url ...
        assert api.told() == {"call_01": "..."}

Each request to `/responses` takes the next `Turn` of the script whose `match`, if it has one, stands in its headers or
its body (so a sub-agent, or a second thread, gets turns of its own). Two kinds of model are scripted: those that call
functions (`function`, `custom`), and those in code mode, whose one tool takes JavaScript (`script`; docs/wire-truth.md).
"""

import itertools
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import attrs
import orjson
import trio
from scripted import JSON, Connection, ScriptedModel, pieces, served


def text(words: str, phase: str | None = None) -> JSON:
    """Prose of the model; `phase` is commentary or final_answer where the model says which."""
    return {"type": "message", "text": words, "phase": phase}


def reasoning(*summary: str, raw: str | None = None) -> JSON:
    """Reasoning of the model: the parts of its summary, and its raw text where the provider shows that."""
    return {"type": "reasoning", "summary": summary, "raw": raw}


def function(name: str, namespace: str | None = None, **arguments: JSON) -> JSON:
    """A function call; its id is given when it is served: call_01, call_02, ..."""
    return {"type": "function_call", "name": name, "namespace": namespace, "text": json.dumps(arguments)}


def custom(name: str, words: str, namespace: str | None = None) -> JSON:
    """A call of a tool that takes free text."""
    return {"type": "custom_tool_call", "name": name, "namespace": namespace, "text": words}


def command(line: str, *, escalated: bool = False, why: str | None = "May I?", **more: JSON) -> JSON:
    """A shell command; `escalated` asks to leave the sandbox, which asks the user."""
    asked = {"sandbox_permissions": "require_escalated", **({"justification": why} if why else {})}
    return function("exec_command", cmd=line, **(asked if escalated else {}), **more)


def patch(envelope: str) -> JSON:
    """An apply_patch call of a model that calls functions."""
    return custom("apply_patch", envelope)


def script(code: str, version: str) -> JSON:
    """A call in code mode. Up to 0.146.0 the tool is a bare `exec`, later it lies in a namespace."""
    return custom("exec", code, None if version == "0.146.0" else "functions")


def search(query: str) -> JSON:
    """A web search that the provider did itself."""
    return {"type": "web_search_call", "query": query}


def adding(path: str, *lines: str) -> str:
    """The patch that adds a file."""
    body = "".join(f"+{line}\n" for line in lines)
    return f"*** Begin Patch\n*** Add File: {path}\n{body}*** End Patch\n"


def changing(path: str, before: str, after: str) -> str:
    """The patch that replaces one line of a file."""
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-{before}\n+{after}\n*** End Patch\n"


@attrs.frozen
class Turn:
    """What one request gets: items, or an error in their place, and what goes wrong on the way.

    `delay` and `chunk_delay` are seconds, before the response and before each delta; `chunk` is a delta's length in
    characters. `error` is (HTTP status, code, message); `failed` (code, message) of a stream that ends in
    `response.failed`; `incomplete` the reason of one that ends short. `end`: `cut` drops the connection after the items,
    `hang` leaves it open and silent.
    """

    items: tuple[JSON, ...] = ()
    error: tuple[int, str, str] | None = None
    failed: tuple[str, str] | None = None
    incomplete: str | None = None
    usage: Mapping[str, int] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    delay: float = 0.0
    chunk: int = 24
    chunk_delay: float = 0.0
    end: Literal["whole", "cut", "hang"] = "whole"
    match: str | None = None


def turn(*items: JSON, **how: Any) -> Turn:
    """A turn of these items; a plain string is a message."""
    return Turn(tuple(text(item) if isinstance(item, str) else item for item in items), **how)


def failure(status: int, code: str, message: str, **how: Any) -> Turn:
    """A turn that is an HTTP error, such as (401, "invalid_api_key", "wrong key")."""
    return Turn(error=(status, code, message), **how)


@attrs.define
class ResponsesApi(ScriptedModel):
    """The server. `requests` holds the body of every request that took a turn, in order."""

    script: deque[Turn] = attrs.field(factory=deque)
    url: str = ""
    requests: list[JSON] = attrs.field(factory=list)
    keys: set[str] = attrs.field(factory=set)
    """Every bearer token that was shown to it."""
    other: list[str] = attrs.field(factory=list)
    """Paths asked for that it does not know."""
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    _calls: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    @property
    def base_url(self) -> str:
        """The provider's `base_url`."""
        return f"{self.url}/v1"

    def add(self, *turns: Turn) -> None:
        """Put more turns at the end of the script."""
        self.script.extend(turns)

    def told(self) -> dict[str, str]:
        """All tool outputs that the model was given so far, by call id, each as text."""
        seen: dict[str, str] = {}
        for item in self._inputs():
            if item.get("type") in ("function_call_output", "custom_tool_call_output"):
                said = item["output"]
                seen.setdefault(item["call_id"], said if isinstance(said, str) else _joined(said))
        return seen

    def heard(self) -> str:
        """All text that users and the CLI put into the requests, in one string."""
        return "\n".join(
            [request.get("instructions") or "" for request in self.requests]
            + [_joined(item["content"]) for item in self._inputs() if item.get("type") == "message"]
        )

    def _inputs(self) -> Iterator[JSON]:
        for request in self.requests:
            yield from request["input"]

    async def answer(self, to: Connection, method: str, target: str, headers: dict[str, str], raw: bytes) -> None:
        """A turn of the script for each request to `/responses`; see `ScriptedModel.answer`."""
        path = target.partition("?")[0]
        if method != "POST" or not path.endswith("/responses"):
            self.other.append(f"{method} {path}")
            await to.json(404, {"error": {"message": "no such path", "type": "invalid_request_error"}})
            return
        self.keys.add(headers.get("authorization", "").removeprefix("Bearer "))
        self.requests.append(orjson.loads(raw))
        heads = "".join(f"{name}: {value}\n" for name, value in headers.items())
        await self._play(self._next(heads + raw.decode("utf-8", "replace")), to)

    def _next(self, request: str) -> Turn:
        wanted = next((t for t in self.script if t.match and t.match in request), None)
        wanted = wanted or next((t for t in self.script if not t.match), None)
        if wanted is None:
            return turn("(the script is at its end)")
        self.script.remove(wanted)
        return wanted

    async def _play(self, play: Turn, to: Connection) -> None:
        await trio.sleep(play.delay)
        if play.error:
            status, code, message = play.error
            await to.json(status, {"error": {"message": message, "type": code, "code": code}}, play.headers)
            return
        number = next(self._numbers)
        items = [
            {**item, "id": f"item_{number:02}_{place}"}
            | ({"call_id": f"call_{next(self._calls):02}"} if item["type"].endswith("_tool_call") else {})
            | ({"call_id": f"call_{next(self._calls):02}"} if item["type"] == "function_call" else {})
            for place, item in enumerate(play.items)
        ]
        await to.head(200, {"content-type": "text/event-stream", **play.headers})
        for place, event in enumerate(_events(f"resp_{number:02}", items, play)):
            if event["type"].endswith(".delta"):
                await trio.sleep(play.chunk_delay)
            numbered = {**event, "sequence_number": place}
            await to.send(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), orjson.dumps(numbered)))
        if play.end == "hang":
            await trio.sleep_forever()
        await to.end(cut=play.end == "cut")


def serving(*turns: Turn) -> AbstractAsyncContextManager[ResponsesApi]:
    """A server with this script, until the block is left."""
    return served(ResponsesApi(deque(turns)))


def _joined(content: JSON) -> str:
    """The text of a message's, or an output's, content."""
    return "\n".join(part.get("text", "") for part in content)


def _events(response: str, items: list[JSON], play: Turn) -> Iterator[JSON]:
    """The server-sent events of a response, as the documented streaming format has them."""
    head = {"id": response, "object": "response"}
    yield {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}
    done = []
    for index, item in enumerate(items):
        begun, whole, deltas = _item(item, play.chunk)
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        for delta in deltas:
            yield {"item_id": item["id"], "output_index": index, **delta}
        yield {"type": "response.output_item.done", "output_index": index, "item": whole}
        done.append(whole)
    if play.end != "whole":
        return
    ended: JSON = {"output": done}
    if play.failed:
        code, message = play.failed
        kind, ended = "failed", {**ended, "error": {"code": code, "message": message}}
    elif play.incomplete:
        kind, ended = "incomplete", {**ended, "incomplete_details": {"reason": play.incomplete}}
    else:
        kind, ended = "completed", {**ended, "usage": _usage(play.usage)}
    yield {"type": f"response.{kind}", "response": {**head, "status": kind, **ended}}


def _usage(given: Mapping[str, int]) -> JSON:
    """What a response cost; 100 tokens in and 20 out unless given."""
    figures = {"input_tokens": 100, "cached_tokens": 0, "output_tokens": 20, "reasoning_tokens": 0, **given}
    return {
        "input_tokens": figures["input_tokens"],
        "input_tokens_details": {"cached_tokens": figures["cached_tokens"]},
        "output_tokens": figures["output_tokens"],
        "output_tokens_details": {"reasoning_tokens": figures["reasoning_tokens"]},
        "total_tokens": figures["input_tokens"] + figures["output_tokens"],
    }


def _item(item: JSON, chunk: int) -> tuple[JSON, JSON, list[JSON]]:
    """An item as it begins, as it is in the end, and its deltas."""
    base = {"type": item["type"], "id": item["id"], "status": "completed"}
    match item["type"]:
        case "message":
            phase = {"phase": item["phase"]} if item["phase"] else {}
            part = {"type": "output_text", "text": item["text"], "annotations": []}
            whole = {**base, "role": "assistant", "content": [part], **phase}
            deltas = [
                {"type": "response.output_text.delta", "content_index": 0, "delta": piece}
                for piece in pieces(item["text"], chunk)
            ]
            return {**whole, "status": "in_progress", "content": []}, whole, deltas
        case "reasoning":
            return _reasoning(item, chunk)
        case "web_search_call":
            whole = {**base, "action": {"type": "search", "query": item["query"]}}
            return {**base, "status": "in_progress"}, whole, []
        case kind:
            field, delta = (
                ("arguments", "response.function_call_arguments.delta")
                if kind == "function_call"
                else ("input", "response.custom_tool_call_input.delta")
            )
            space = {"namespace": item["namespace"]} if item["namespace"] else {}
            named = {**base, "call_id": item["call_id"], "name": item["name"], **space}
            deltas = [
                {"type": delta, "call_id": item["call_id"], "delta": piece} for piece in pieces(item["text"], chunk)
            ]
            return {**named, "status": "in_progress", field: ""}, {**named, field: item["text"]}, deltas


def _reasoning(item: JSON, chunk: int) -> tuple[JSON, JSON, list[JSON]]:
    summary = [{"type": "summary_text", "text": words} for words in item["summary"]]
    whole = {"type": "reasoning", "id": item["id"], "summary": summary, "encrypted_content": "c2VjcmV0"}
    deltas: list[JSON] = []
    for index, part in enumerate(summary):
        deltas.append({"type": "response.reasoning_summary_part.added", "summary_index": index, "part": part})
        deltas += [
            {"type": "response.reasoning_summary_text.delta", "summary_index": index, "delta": piece}
            for piece in pieces(part["text"], chunk)
        ]
    if item["raw"]:
        whole["content"] = [{"type": "reasoning_text", "text": item["raw"]}]
        deltas += [
            {"type": "response.reasoning_text.delta", "content_index": 0, "delta": piece}
            for piece in pieces(item["raw"], chunk)
        ]
    return {**whole, "summary": []}, whole, deltas
