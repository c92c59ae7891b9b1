"""Recordings of Codex's app-server for `decode_captures.py`.

A recording is a file `appserver.jsonrpc` of `{"dir": "in" | "out" | "note", "msg": ...}`, in from Codex; a note says where a new
process begins. `clients.jsonl` has two clients of one process; the one that opened the thread is read, for the other joins in the
middle of a turn, as no session of ours does.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capture import Step, lines
from nucleic_codex.app_server.approvals import CodexApprovals
from nucleic_codex.app_server.decode import AppServerDecoder
from nucleic_codex.app_server.notices import SILENT as SILENT_METHODS

from nucleic_core._session.ledger import Ledger
from nucleic_core.approvals import Allow, AllowAlways, Answers, ApprovalRequest, Deny
from nucleic_core.backend import Ask
from nucleic_core.events import EventData, ToolCallStarted, ToolResult

MAPPER = CodexApprovals()
SILENT = {
    **SILENT_METHODS,
    "reply": "to a request of ours: what it means is told when it happens",
    "item/started userMessage": "an echo of our own message, which bore no id",
    "item/completed userMessage": "an echo of our own message, which bore no id",
    "item/started agentMessage": "its text comes",
    "item/started reasoning": "its text comes",
    "item/completed reasoning": "reasoning that is kept secret",
    "item/started plan": "its text comes",
    "item/started contextCompaction": "its completion says it",
    "item/started hookPrompt": "its completion says it",
    "item/started subAgentActivity": "its completion says it",
    "item/plan/delta": "the whole plan comes",
    "hook/completed": "a hook that had nothing to say",
    "account/rateLimits/updated": "nothing new, or nothing at all",
    "thread/tokenUsage/updated": "repeated, or of an older turn",
    "mcpServer/startupStatus/updated": "it starts, it is ready",
}
FIELDS = {"inputTokens": "input_tokens", "cachedInputTokens": "cached_input_tokens", "outputTokens": "output_tokens"}


def recordings(folder: Path) -> Iterator[tuple[str, list[Step]]]:
    """Every process recorded under a folder, with its steps in order."""
    for path in sorted([*folder.rglob("appserver.jsonrpc"), *folder.rglob("clients.jsonl")]):
        entries = [entry for entry in lines(path) if entry]
        name = str(path.parent.relative_to(folder))
        processes: list[list[Any]] = [[]]
        for entry in entries:
            if entry.get("msg") == "NEW PROCESS":
                processes.append([])
            if entry.get("client", "A") == "A":
                processes[-1].append(entry)
        for number, process in enumerate(processes):
            yield f"{name}#{number + 1}", [*steps(process)]


def steps(entries: list[Any]) -> Iterator[Step]:
    """The steps of one process."""
    returncode = None
    for entry in entries:
        message = entry.get("msg")
        if entry.get("dir") == "in":
            yield "received", "stdout", message
        elif entry.get("dir") == "out" and "msg" in entry:
            yield "sent", "stdin", message
        elif isinstance(message, dict):
            returncode = message.get("rc", returncode)
    yield "ended", "", returncode


def decoder(name: str) -> AppServerDecoder:
    """The decoder of one recorded process."""
    return AppServerDecoder()


def judge(ask: Ask) -> str | None:
    """What is wrong with the answers to an ask."""
    request = MAPPER.read(ask)
    decisions: list[Any] = (
        [Allow(), AllowAlways("session"), Deny("no")] if isinstance(request, ApprovalRequest) else [Answers(None)]
    )
    replies = str([MAPPER.reply(ask, decision).message for decision in decisions])
    return f"a lasting answer: {replies}" if "mendment" in replies or "always" in replies else None


def kind_of(message: Any) -> str:
    """The name of a message in the table of silent kinds."""
    if "method" not in message:
        return "reply"
    item = message.get("params", {}).get("item")
    return f"{message['method']} {item['type']}" if item else str(message["method"])


def miscounted(
    steps: list[Step], events: list[tuple[EventData, str | None, str | None]], counts: Counter[str]
) -> Iterator[str]:
    """Calls that even the core left open, and tokens that differ from how far the threads' own totals moved."""
    ledger = Ledger()
    admitted = [item for event in events for item in ledger.admit(event)] + [*ledger.end(0, "the recording ends")]
    open_calls: Counter[str] = Counter()
    for data, _, _ in admitted:
        if isinstance(data, ToolCallStarted):
            open_calls[data.tool_call] += 1
        elif isinstance(data, ToolResult):
            open_calls[data.tool_call] -= data.correlated
            counts["results by the core" if data.synthetic else "results by the wire"] += 1
    for call, number in open_calls.items():
        if number:
            yield f"{call} is open {number} times"
    for field, expected in moved(steps).items():
        told = getattr(ledger.usage, FIELDS[field]) or 0
        counts[f"{field}, as the totals moved"] += expected
        counts[f"{field}, as told"] += told
        if told != expected:
            yield f"{told} {field}, but the totals moved by {expected}"


def moved(steps: list[Step]) -> dict[str, int]:
    """How far the totals of all threads of a process moved in it."""
    began: dict[str, dict[str, int]] = {}
    now: dict[str, dict[str, int]] = {}
    opened: dict[Any, str] = {}
    running: set[tuple[str, str]] = set()
    for direction, _, message in steps:
        if not isinstance(message, dict):
            continue
        params = message.get("params") or {}
        match direction, message.get("method"):
            case "sent", "thread/start" as method:
                opened[message.get("id")] = method
            case "received", None if opened.pop(message.get("id"), None) and "thread" in message.get("result", {}):
                began[message["result"]["thread"]["id"]] = {}
            case "received", "turn/started":
                running.add((params["threadId"], params["turn"]["id"]))
            case "received", "thread/tokenUsage/updated":
                thread, usage = params["threadId"], params["tokenUsage"]
                before = usage["last"] if (thread, params["turnId"]) in running else {}
                began.setdefault(thread, {f: usage["total"][f] - before.get(f, 0) for f in FIELDS})
                now[thread] = usage["total"]
    return {f: sum(total[f] - began[thread].get(f, 0) for thread, total in now.items()) for f in FIELDS}
