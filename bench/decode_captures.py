"""Run every recording of an agent under a folder through its decoder, and say what became of each message.

    python bench/decode_captures.py claude|codex FOLDER

`claude_captures.py` and `codex_captures.py` say what a recording is. Exit code 1 if a message was lost, a decoder raised, a call
and its result do not pair, or the tokens are not those of the wire's own totals.
"""

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from capture import Collected

from nucleic_core.events import (
    EventData,
    Raw,
    ToolCallCompleted,
    ToolCallStarted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
)


def main(backend: str, folder: Path) -> int:
    """Decode, count, print."""
    wire = importlib.import_module(f"{backend}_captures")
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    raw: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    problems: list[str] = []
    for name, steps in wire.recordings(folder):
        decoder, out = wire.decoder(name), Collected()
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
                    kind = wire.kind_of(message)
                    silent[kind] += 1
                    if kind not in wire.SILENT and channel == "stdout":
                        problems.append(f"{name}: lost {json.dumps(message)[:300]}")
        for ask in out.asks:
            request = wire.MAPPER.read(ask)
            counts["asks"] += 1
            counts["asks read"] += request is not None
            if request is not None and (wrong := wire.judge(ask)):
                problems.append(f"{name}: {wrong}")
        problems += [f"{name}: {text}" for text in unpaired(out.events, counts)]
        if hasattr(wire, "miscounted"):
            problems += [f"{name}: {text}" for text in wire.miscounted(steps, out.events, counts)]
        for data, native, _ in out.events:
            kinds[data.kind] += 1
            if isinstance(data, Raw):
                raw[native or "-"] += 1
    for title, table in (("counts", counts), ("events", kinds), ("no event", silent), ("raw", raw)):
        print(f"\n{title}")
        for key, count in sorted(table.items()):
            print(f"  {count:8}  {key}{'  - ' + wire.SILENT[key] if table is silent and key in wire.SILENT else ''}")
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
                if parent is None:
                    if outcome == "completed" and (left := of_main - ended):
                        yield f"{left} without a result in a turn that completed"
                    of_main.clear()
    counts["calls without a result"] += len(started - ended)
    if turns:
        yield f"{turns} turns without an end"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
