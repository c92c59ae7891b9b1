"""Run every recording of `codex exec` under a folder through the decoder, and say what became of each line.

    python bench/decode_exec_captures.py FOLDER

A recording is a directory with `exec.jsonl` (stdout), `exec.meta.json` (stderr and the exit code) and, where there was one,
the thread's file under `rollouts`. Exit code 1 if a line was lost, a decoder raised, a call is left without a result in a
turn that completed, or the tokens of a turn are not those that the thread's file has for it.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nucleic_codex.exec import rollout
from nucleic_codex.exec.decode import ExecDecoder

from nucleic_core.backend import Ask
from nucleic_core.events import Error, EventData, Raw, ToolCallCompleted, ToolResult, TurnCompleted

SILENT = {
    "turn.completed": "told when the process has ended",
    "error": "told with the message after it",
    "item.completed/todo_list": "repeats the list",
}
"""Lines of stdout that give no event by themselves."""


class Collected:
    """An `Out` that keeps everything."""

    def __init__(self) -> None:
        self.events: list[tuple[EventData, str | None]] = []

    def event(self, data: EventData, native: str | None = None, parent: str | None = None) -> None:
        self.events.append((data, native))

    def ask(self, ask: Ask, native: str | None = None, parent: str | None = None) -> None:
        raise AssertionError("exec asks nothing")

    def withdraw(self, key: str, reason: str) -> None:
        raise AssertionError("exec asks nothing")


def lines(path: Path) -> Iterator[Any]:
    """The lines of a file that are JSON."""
    for line in path.read_bytes().split(b"\n"):
        if line.startswith(b"{"):
            yield json.loads(line)


def counts_of(directory: Path, thread: str) -> list[Any]:
    """Every count of tokens in a thread's file."""
    return [record for record in file_of(directory, thread) if record["payload"].get("type") == "token_count"]


def file_of(directory: Path, thread: str) -> list[Any]:
    """The records of a thread's file, if it was kept."""
    found = list(directory.glob(f"rollouts/sessions/*/*/*/rollout-*-{thread}.jsonl"))
    return list(lines(found[0])) if found else []


def turn_of(directory: Path, thread: str) -> tuple[Any, list[Any], Any]:
    """The last count before the last turn in a thread's file, that turn's records, and its tokens if they are there."""
    records = file_of(directory, thread)
    starts = [place for place, record in enumerate(records) if record["payload"].get("type") == "task_started"]
    start = starts[-1] if starts else 0
    counts = [record for record in records[:start] if record["payload"].get("type") == "token_count"]
    taken = [
        record["payload"]["turn_token_usage"] for record in records[start:] if record["type"] == "token_usage_record"
    ]
    wanted = [r for r in records[start:] if r["payload"].get("type") in rollout._WANTED]
    return counts[-1] if counts else None, wanted, taken[-1] if taken else None


def main(folder: Path) -> int:
    """Decode everything, print the tables, and list what is wrong."""
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    raw: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    problems: list[str] = []
    for stdout in sorted(folder.rglob("exec.jsonl")):
        name = str(stdout.parent.relative_to(folder))
        meta = json.loads(stdout.with_name("exec.meta.json").read_text())
        said = list(lines(stdout))
        thread = next((line["thread_id"] for line in said if line["type"] == "thread.started"), "none")
        before, records, taken = turn_of(stdout.parent, thread)
        resumed = "resume" in meta["argv"] or "fork" in meta["argv"]
        if "fork" in meta["argv"]:  # the new thread goes on counting where the old one stood, in a file of its own
            before = counts_of(stdout.parent, meta["argv"][-2])[-1]
        decoder, out = ExecDecoder(cwd=Path("/work/demo"), resumed=resumed), Collected()
        steps = [("rollout", before)] if before else []
        steps += [("stdout", line) for line in said] + [("rollout", record) for record in records]
        steps += [("stderr", {"line": line}) for line in meta["stderr"].splitlines()]
        counts["recordings"] += 1
        try:
            for channel, message in steps:
                length = len(out.events)
                decoder.received(message, out, channel)
                if channel == "stdout":
                    counts["lines"] += 1
                    if len(out.events) == length:
                        kind = f"{message['type']}/{message['item']['type']}" if "item" in message else message["type"]
                        silent[kind] += 1
                        if kind not in SILENT:
                            problems.append(f"{name}: lost {json.dumps(message)[:200]}")
            decoder.ended(meta["rc"], out)
        except Exception as exc:  # the bench reports it, with the recording
            problems.append(f"{name}: raised {exc!r}")
        problems += [f"{name}: {text}" for text in wrong(out.events, taken, counts)]
        for data, native in out.events:
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


def wrong(events: list[tuple[EventData, str | None]], taken: Any, counts: Counter[str]) -> Iterator[str]:
    """Calls and results that do not pair in a turn that completed, and tokens that the thread's file has otherwise."""
    called: set[str] = set()
    answered: set[str] = set()
    for data, _ in events:
        match data:
            case ToolCallCompleted(tool_call=call):
                if call in called:
                    yield f"{call} called twice"
                called.add(call)
            case ToolResult(tool_call=call, correlated=correlated):
                if call in answered or (correlated and call not in called):
                    yield f"{call} has a result out of order"
                answered.add(call)
                counts["results paired"] += correlated
            case Error(code="denied_by_policy", detail=detail):
                counts[f"refused, seen in {detail['source']}"] += 1
            case TurnCompleted(outcome=outcome, usage=usage):
                counts[f"turns {outcome}"] += 1
                counts["calls left open, as background commands are"] += len(called - answered)
                if taken is not None:
                    counts["turns with the tokens that the thread's file has"] += 1
                    if usage is None or usage.input_tokens != taken["input_tokens"]:
                        yield f"the turn took {taken}, and we say {usage}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
