"""Run every recording of Claude Code under a folder through the decoder, and say what became of each line.

    python bench/decode_captures.py FOLDER

A recording is a directory with `stdout.ndjson` (`stdout.2.ndjson`, ... for later processes of it). `stdin.ndjson` and
`timeline.jsonl` beside it give the other direction and the order, `http.jsonl` the approve calls over MCP. Exit code 1 if a line
was lost, a decoder raised, or a call and its result do not pair.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nucleic_claude.approvals import ClaudeApprovals
from nucleic_claude.decode import ClaudeDecoder
from nucleic_claude.system import SILENT

from nucleic_core.approvals import Allow
from nucleic_core.backend import Ask
from nucleic_core.events import (
    EventData,
    Raw,
    ToolCallCompleted,
    ToolCallStarted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
)

Step = tuple[str, str, Any]
"""(direction, channel, message): received, sent or ended."""


class Collected:
    """An `Out` that keeps everything."""

    def __init__(self) -> None:
        self.events: list[tuple[EventData, str | None, str | None]] = []
        self.asks: list[Ask] = []
        self.withdrawn: list[str] = []

    def event(self, data: EventData, native: str | None = None, parent: str | None = None) -> None:
        self.events.append((data, native, parent))

    def ask(self, ask: Ask, native: str | None = None, parent: str | None = None) -> None:
        self.asks.append(ask)

    def withdraw(self, key: str, reason: str) -> None:
        self.withdrawn.append(key)

    def __len__(self) -> int:
        return len(self.events) + len(self.asks) + len(self.withdrawn)


def lines(path: Path) -> Iterator[Any]:
    """The lines of a file that are JSON; the others never reach a decoder."""
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            if line.strip():
                yield None


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


def main(folder: Path) -> int:
    """Decode, count, print."""
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    raw: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    problems: list[str] = []
    mapper = ClaudeApprovals()
    for name, steps in recordings(folder):
        decoder, out = ClaudeDecoder(resumed=".2" in name), Collected()
        counts["processes"] += 1
        for direction, channel, message in steps:
            if message is None and direction != "ended":
                counts["lines that are no JSON"] += 1
                continue
            before = len(out)
            try:
                if direction == "ended":
                    decoder.ended(message, out)
                elif direction == "sent":
                    decoder.sent(message, out, channel)
                else:
                    decoder.received(message, out, channel)
            except Exception as exc:  # the bench reports it, with the recording
                problems.append(f"{name}: raised {exc!r} on {json.dumps(message)[:200]}")
            if direction == "received":
                counts[f"messages received ({channel})"] += 1
                if len(out) == before:
                    kind = kind_of(message)
                    silent[kind] += 1
                    if kind not in SILENT and channel == "stdout":
                        problems.append(f"{name}: lost {json.dumps(message)[:300]}")
        for ask in out.asks:
            request = mapper.read(ask)
            counts["asks"] += 1
            counts["asks read"] += request is not None
            if request is not None and mapper.reply(ask, Allow()).message != {"behavior": "allow", "updatedInput": {}}:
                problems.append(f"{name}: an allow that echoes")
        problems += [f"{name}: {text}" for text in unpaired(out.events, counts)]
        for data, native, _ in out.events:
            kinds[data.kind] += 1
            if isinstance(data, Raw):
                raw[native or "-"] += 1
    for title, table in (("counts", counts), ("events", kinds), ("no event", silent), ("raw", raw)):
        print(f"\n{title}")
        for key, count in sorted(table.items()):
            print(f"  {count:8}  {key}{'  - ' + SILENT[key] if table is silent and key in SILENT else ''}")
    print(f"\nproblems: {len(problems)}")
    for problem in problems:
        print(" ", problem)
    return 1 if problems else 0


def unpaired(events: list[tuple[EventData, str | None, str | None]], counts: Counter[str]) -> Iterator[str]:
    """Calls without a start, results without a call; a call without a result is one only if its turn ended well."""
    started: set[str] = set()
    completed: set[str] = set()
    ended: set[str] = set()
    of_main: set[str] = set()
    turns = 0
    for data, _, parent in events:
        match data:
            case ToolCallStarted(tool_call=call):
                if call in started:
                    yield f"{call} started twice"
                started.add(call)
            case ToolCallCompleted(tool_call=call):
                if call not in started or call in completed:
                    yield f"{call} completed out of order"
                completed.add(call)
                of_main |= {call} if parent is None else set()
            case ToolResult(tool_call=call, correlated=correlated):
                if call not in completed or call in ended:
                    yield f"{call} has a result out of order"
                counts["results paired"] += correlated
                ended.add(call)
            case TurnStarted():
                turns += 1
            case TurnCompleted(outcome=outcome, turn=turn):
                turns -= turn is not None  # without one, the process ended before it took the message
                counts[f"turns {outcome}"] += 1
                if outcome == "completed" and (left := of_main - ended):
                    yield f"{left} without a result in a turn that completed"
    counts["calls without a result"] += len(started - ended)
    if turns:
        yield f"{turns} turns without an end"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
