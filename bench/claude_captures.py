"""Recordings of Claude Code for `decode_captures.py`.

A recording is a directory with `stdout.ndjson` (`stdout.2.ndjson`, ... for later processes of it). `stdin.ndjson` and
`timeline.jsonl` beside it give the other direction and the order, `http.jsonl` the approve calls over MCP.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capture import Step, lines
from nucleic_claude.approvals import ClaudeApprovals
from nucleic_claude.decode import ClaudeDecoder
from nucleic_claude.system import SILENT

from nucleic_core.approvals import Allow
from nucleic_core.backend import Ask

MAPPER = ClaudeApprovals()
__all__ = ["MAPPER", "SILENT", "decoder", "judge", "kind_of", "recordings"]


def decoder(name: str) -> ClaudeDecoder:
    """The decoder of one recorded process."""
    return ClaudeDecoder(resumed=".2" in name)


def judge(ask: Ask) -> str | None:
    """What is wrong with the answer to an ask."""
    if MAPPER.reply(ask, Allow()).message != {"behavior": "allow", "updatedInput": {}}:
        return "an allow that echoes"
    return None


def recordings(folder: Path) -> Iterator[tuple[str, list[Step]]]:
    """Every process recorded under a folder, with its steps in order."""
    for directory in sorted({path.parent for path in folder.rglob("stdout.ndjson")}):
        timeline = [entry for entry in lines(directory / "timeline.jsonl") if entry]
        mcp = list(approve_calls(directory / "http.jsonl"))
        starts: dict[int, float] = {}
        for entry in timeline:
            starts.setdefault(entry.get("proc", 0), entry["t"])
        count = len(list(directory.glob("stdout*.ndjson")))
        for number in range(count):
            suffix = "" if number == 0 else f".{number + 1}"
            said = list(lines(directory / f"stdout{suffix}.ndjson"))
            told = list(lines(directory / f"stdin{suffix}.ndjson"))
            end = starts.get(number + 1, float("inf"))
            over_http = [(t, step) for t, step in mcp if starts.get(number, 0) <= t < end]
            own = [entry for entry in timeline if entry.get("proc", 0) == number]
            yield str(directory.relative_to(folder)) + suffix, [*merged(own, said, told, over_http)]


def merged(timeline: list[Any], said: list[Any], told: list[Any], mcp: list[tuple[float, Step]]) -> Iterator[Step]:
    """Both directions and the MCP channel in the order of the timeline; what it does not name comes at the end."""
    returncode = None
    for entry in timeline:
        while mcp and mcp[0][0] < entry["t"]:
            yield mcp.pop(0)[1]
        if entry["dir"] == "in" and told:
            yield "sent", "stdin", told.pop(0)
        elif entry["dir"] == "out" and said:
            yield "received", "stdout", said.pop(0)
        elif str(entry.get("text", "")).startswith("exit ") and str(entry["text"])[5:].lstrip("-").isdigit():
            returncode = int(entry["text"][5:])
    yield from (step for _, step in mcp)
    yield from (("sent", "stdin", message) for message in told)
    yield from (("received", "stdout", message) for message in said)
    yield "ended", "", returncode


def approve_calls(path: Path) -> Iterator[tuple[float, Step]]:
    """The approve calls of a recorded MCP conversation, as the driver's own server gives them to the decoder."""
    for entry in lines(path):
        bodies = [
            body for part in str((entry or {}).get("body") or "").split("\n") if (body := parsed(part)) is not None
        ]
        for body in bodies:
            key = f"http:{body.get('id')}"
            params = body.get("params") or {}
            if body.get("method") == "tools/call" and params.get("name") == "approve":
                call = {
                    "method": "tools/call",
                    "key": key,
                    "arguments": params.get("arguments"),
                    "_meta": params.get("_meta"),
                }
                yield entry["t"], ("received", "mcp", call)
            elif body.get("method") == "notifications/cancelled":
                cancelled = {"method": "notifications/cancelled", "key": f"http:{params.get('requestId')}"}
                yield entry["t"], ("received", "mcp", cancelled)
            elif entry["dir"] == "out" and "result" in body and (body["result"] or {}).get("content"):
                reply = parsed(str(body["result"]["content"][0].get("text")))
                yield entry["t"], ("sent", "mcp", {"key": key, "reply": reply})


def parsed(text: str) -> Any:
    """A JSON object in a body, or in a `data:` line of an event stream."""
    try:
        value = json.loads(text.removeprefix("data:"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def kind_of(message: Any) -> str:
    """The name of a line in the decoder's table of silent kinds."""
    kind = str(message.get("type") or message.get("method"))
    if kind == "stream_event":
        return f"{kind}/{message['event'].get('type')}"
    if kind == "user":
        return "user/replay" if message.get("isReplay") else "user/text"
    return f"{kind}/{message['subtype']}" if kind == "system" else kind
