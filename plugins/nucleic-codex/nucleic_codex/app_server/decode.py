"""The decoder of Codex's app-server: every message of both directions, and what our hook and our driver add.

It is the only reader of the wire; state lives here and in the parts below, I/O nowhere. A notification's handler is found by
its method and gives False for what it does not understand: that message is `raw`. Everything belongs to a thread.

    threads.py  whose turn it is        items.py   items              calls.py    tool calls, once each
    blocks.py   partial and whole text  asks.py    requests to us     inputs.py   what became of our messages
    meter.py    tokens                  changes.py diffs              hooks.py, hooked.py  hooks
    notices.py  notifications without state, errors

`docs/codex.md` has the table of every method and item: what is told of it, or why nothing is.
"""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from nucleic_codex.app_server.asks import Asks
from nucleic_codex.app_server.blocks import PLAN, TEXT, THINKING, Blocks
from nucleic_codex.app_server.calls import Calls
from nucleic_codex.app_server.hooked import HookedCalls
from nucleic_codex.app_server.hooks import Hooks
from nucleic_codex.app_server.inputs import TURN_START, TURN_STEER, Inputs
from nucleic_codex.app_server.items import Items
from nucleic_codex.app_server.notices import (
    NOTICES,
    OUTCOMES,
    RateLimits,
    error_kind,
    error_text,
    is_silent,
    turn_error,
)
from nucleic_codex.app_server.threads import Thread, Threads, Turn
from nucleic_codex.fields import integer, mapping, row, sequence, string
from nucleic_core.backend import Out
from nucleic_core.events import Notice, Raw, SessionStarted, TurnCompleted, TurnStarted
from nucleic_core.lowlevel import JSON, request_key

Params: TypeAlias = dict[str, JSON]
Handler: TypeAlias = Callable[[Thread, Params, str, Out], bool]

OPENERS = ("thread/start", "thread/resume", "thread/fork")
EXPECTED_REFUSALS = ("turn/interrupt",)
"""Requests whose error says that what they ask for is so already."""

_VERSION = re.compile(r"/(\d+\.\d+\.\d+\S*)")
_LONGEST_REFUSAL = 500  # characters: of an unknown method Codex lists all that it knows


class AppServerDecoder:
    """Reads one app-server.

    `cwd` is where the agent works, until its thread says so. Without `partials` the pieces of a text are kept to ourselves.
    """

    def __init__(self, *, cwd: Path | None = None, partials: bool = True) -> None:
        where = None if cwd is None else str(cwd)
        self._version: str | None = None
        self._requests: dict[str, tuple[str, JSON]] = {}
        self._threads, self._blocks, self._calls = Threads(), Blocks(partials=partials), Calls()
        self._inputs, self._hooked, self._limits = Inputs(), HookedCalls(), RateLimits()
        self._items = Items(self._threads, self._blocks, self._calls, self._inputs, where)
        self._asks = Asks(self._calls, self._hooked)
        self._methods: dict[str, Handler] = {
            "turn/started": self._turn_started,
            "turn/completed": self._turn_completed,
            "error": self._error,
            "item/started": lambda thread, params, method, out: self._items.read(thread, params, False, method, out),
            "item/completed": lambda thread, params, method, out: self._items.read(thread, params, True, method, out),
            "item/agentMessage/delta": self._text_delta,
            "item/plan/delta": self._text_delta,
            "item/reasoning/summaryTextDelta": self._reasoning_delta,
            "item/reasoning/textDelta": self._reasoning_delta,
            "item/commandExecution/outputDelta": self._output,
            "item/fileChange/outputDelta": self._output,
            "item/mcpToolCall/progress": self._output,
            "item/commandExecution/terminalInteraction": self._typed,
            "item/fileChange/patchUpdated": self._items.patched,
            "thread/tokenUsage/updated": self._usage,
            "hook/completed": Hooks(self._calls, self._hooked).completed,
        }

    def received(self, message: JSON, out: Out, channel: str = "stdout") -> None:
        """See `Decoder.received`; channel `hook` brings what our hook asks."""
        if not isinstance(message, dict):
            out.event(Raw(message))
            return
        method = message.get("method")
        if channel == "hook":
            thread = self._threads.of_turn(mapping(message.get("call")).get("turn_id"))
            self._hooked.received(message, out, None if thread is None else thread.parent)
        elif "method" in message and "id" in message:
            self._request(message, out)
        elif isinstance(method, str):
            if not self._notification(method, mapping(message.get("params")), out):
                out.event(Raw(message), method, self._parent(mapping(message.get("params"))))
        elif not self._reply(message, out):
            out.event(Raw(message))

    def sent(self, message: JSON, out: Out, channel: str = "stdin") -> None:
        """See `Decoder.sent`. On `queue`: messages that our driver keeps back; on `hook`: our verdicts."""
        if not isinstance(message, dict):
            return
        if channel == "hook":
            self._hooked.sent(message, out)
            return
        if channel == "queue":
            self._inputs.queue(message, out)
            return
        self._inputs.seen = True
        method, params = string(message.get("method")), message.get("params")
        if method is None:
            self._asks.replied(message, out)
        elif "id" in message:
            self._requests[request_key(message["id"])] = method, params
            thread_id = mapping(params).get("threadId")
            if method in OPENERS:
                self._threads.adopts = False
            elif self._threads.root is None and isinstance(thread_id, str):
                self._threads.open_root(thread_id)
            if method in (TURN_START, TURN_STEER):
                self._inputs.sent(method, params)

    def ended(self, returncode: int | None, out: Out) -> None:
        """See `Decoder.ended`. A message that was never taken counts as a turn that failed."""
        error = f"Codex {_exit(returncode)} before the turn ended."
        in_turn = False
        for thread in reversed(list(self._threads.running())):
            in_turn = in_turn or thread is self._threads.root
            self._finish(thread, TurnCompleted("errored", error=error), None, out)
        if self._inputs.process_ended(out) and not in_turn:
            out.event(TurnCompleted("errored", error=f"Codex {_exit(returncode)} before it took the message."))

    def answered_by_hook(self, message: JSON) -> bool:
        """Whether a request asks what was answered in our hook: the driver then accepts it, and nobody is asked again."""
        return self._hooked.settled(message) is not None

    # Messages

    def _notification(self, method: str, params: Params, out: Out) -> bool:
        if (handler := row(self._methods, method)) is not None:
            thread = self._threads.get(params.get("threadId"))
            return thread is not None and handler(thread, params, method, out)
        if method == "serverRequest/resolved":
            return self._asks.resolved(params, out)
        if method == "account/rateLimits/updated":
            if (limits := self._limits.read(params)) is not None:
                out.event(limits, method)
            return isinstance(params.get("rateLimits"), dict)
        if is_silent(method, params):
            self._threads.get(params.get("threadId"))
            return True
        read = row(NOTICES, method)
        event = read(params) if read is not None else None
        if event is not None:
            out.event(event, method, self._parent(params))
        return event is not None

    def _parent(self, params: Params) -> str | None:
        thread = self._threads.get(params.get("threadId"))
        return None if thread is None else thread.parent

    def _request(self, message: JSON, out: Out) -> None:
        if message["id"] is not None and not isinstance(message["id"], str | int | float):
            out.event(Raw(message), string(message.get("method")))  # no answer could name it
            return
        self._asks.request(message, self._threads.get(mapping(message.get("params")).get("threadId")), out)

    def _reply(self, message: JSON, out: Out) -> bool:
        """A reply to a request of ours, or, in a recording without our side, what looks like one that opened a thread."""
        if "id" not in message or not ("result" in message or "error" in message):
            return False
        method, params = self._requests.pop(request_key(message["id"]), (None, None))
        result = mapping(message.get("result"))
        if method is None:
            return not self._inputs.seen and "model" in result and self._opened("", result, out)
        if method in (TURN_START, TURN_STEER):
            if self._inputs.replied(method, params, message, self._threads.root, out):
                return True
        elif method == "initialize" and (found := _VERSION.search(string(result.get("userAgent")) or "")):
            self._version = found[1]
        elif method in OPENERS and message.get("error") is None:
            return self._opened(method, result, out)
        error = mapping(message.get("error"))
        if error and method not in EXPECTED_REFUSALS:
            text = f"The agent refused {method}: {string(error.get('message')) or 'it did not say why'}"
            out.event(Notice("control", text[:_LONGEST_REFUSAL], {"code": error.get("code")}), method)
        return True

    def _opened(self, method: str, result: Params, out: Out) -> bool:
        """A thread of ours. With `thread/start` it is new; any other has used tokens before."""
        described = mapping(result.get("thread"))
        thread_id, cwd = string(described.get("id")), string(result.get("cwd"))
        if thread_id is None:
            return False
        thread = self._threads.open_root(thread_id)
        thread.model = string(result.get("model"))
        if method == "thread/start":
            thread.meter.fresh()
        if thread is self._threads.root:
            self._items.cwd = cwd or self._items.cwd
            path = string(described.get("path"))
            started = SessionStarted(
                thread_id, thread.model, self._items.cwd, agent_version=self._version, transcript_path=path
            )
            out.event(started, method or None)
        return True

    # Turns

    def _turn_started(self, thread: Thread, params: Params, method: str, out: Out) -> bool:
        turn_id = string(mapping(params.get("turn")).get("id"))
        if turn_id is None or turn_id in thread.over or (thread.turn is not None and thread.turn.id == turn_id):
            return False
        if thread.turn is not None:
            self._finish(thread, TurnCompleted("errored", error="Another turn began before this one ended."), None, out)
        thread.turn = Turn(turn_id)
        by_user = thread is self._threads.root and self._inputs.turn_began()
        out.event(TurnStarted(turn_id, "user" if by_user else "agent"), method, thread.parent)
        return True

    def _turn_completed(self, thread: Thread, params: Params, method: str, out: Out) -> bool:
        """The one place where an outcome comes from. The end of another turn than the one that runs moves nothing (A7)."""
        ended = mapping(params.get("turn"))
        turn_id, status, error = string(ended.get("id")), ended.get("status"), ended.get("error")
        if turn_id is None or turn_id in thread.over or status not in ("completed", "interrupted", "failed"):
            return False
        if thread.turn is not None and thread.turn.id != turn_id:
            return False
        turn = thread.turn = thread.turn or Turn(turn_id)
        text = None
        if status == "failed":
            text = error_text(error)
            if not turn.failed:
                fatal = thread is self._threads.root
                out.event(turn_error({"error": error}, fatal=fatal), method, thread.parent)
        kind = error_kind(error)
        completed = TurnCompleted(
            outcome="errored" if status == "failed" else status,
            stop_reason=kind,
            error=text,
            final_text=_last_text(ended),
            duration_ms=integer(ended.get("durationMs")),
        )
        if status == "failed" and (outcome := row(OUTCOMES, kind)) is not None:
            completed = completed.but(outcome=outcome)
        self._finish(thread, completed, method, out)
        return True

    def _finish(self, thread: Thread, completed: TurnCompleted, method: str | None, out: Out) -> None:
        """End the running turn of a thread: what it left open, its tokens, its outcome."""
        turn = thread.turn
        assert turn is not None
        self._blocks.flush(thread, out)
        self._calls.turn_ended(thread, out, well=completed.outcome == "completed")
        self._asks.turn_ended(thread, turn, out)
        thread.over.add(turn.id)
        thread.turn = None
        is_root = thread is self._threads.root
        if is_root:
            self._inputs.turn_ended(turn, out)
        usage = thread.meter.turn(thread.model)
        if usage is not None:
            out.event(usage, method, thread.parent)
        root_runs = self._threads.root is not None and self._threads.root.turn is not None
        completed = completed.but(
            turn=turn.id,
            final_text=turn.text or completed.final_text,
            usage=usage,
            more_follows=root_runs or self._threads.sub_agents_run,
        )
        out.event(completed, method, thread.parent)

    def _error(self, thread: Thread, params: Params, method: str, out: Out) -> bool:
        """One fatal error a turn of the session; a sub-agent's failure does not end the run."""
        if not isinstance(params.get("error"), dict):
            return False
        turn, told = thread.turn, turn_error(params, fatal=False)
        if params.get("willRetry") is not True and turn is not None and params.get("turnId") in (turn.id, None):
            if turn.failed:
                return True
            turn.failed = True
            told = turn_error(params, fatal=thread is self._threads.root)
        out.event(told, method, thread.parent)
        return True

    # What streams

    def _text_delta(self, thread: Thread, params: Params, method: str, out: Out) -> bool:
        item, text = params.get("itemId"), params.get("delta")
        if not isinstance(item, str) or not isinstance(text, str):
            return False
        self._blocks.piece(thread, PLAN if method == "item/plan/delta" else TEXT, item, text, method, out)
        return True

    def _reasoning_delta(self, thread: Thread, params: Params, method: str, out: Out) -> bool:
        item, text = params.get("itemId"), params.get("delta")
        part, number = ("content", "contentIndex") if method.endswith("/textDelta") else ("summary", "summaryIndex")
        index = integer(params.get(number))
        if not isinstance(item, str) or not isinstance(text, str) or index is None:
            return False
        self._blocks.piece(thread, THINKING, f"{item}/{part}/{index}", text, method, out)
        return True

    def _output(self, thread: Thread, params: Params, method: str, out: Out) -> bool:
        item, text = params.get("itemId"), params.get("message" if method.endswith("progress") else "delta")
        if not isinstance(item, str) or not isinstance(text, str):
            return False
        self._calls.printed(thread, item, text, method, out)
        return True

    def _typed(self, thread: Thread, params: Params, method: str, out: Out) -> bool:
        item, text = params.get("itemId"), params.get("stdin")
        if not isinstance(item, str) or not isinstance(text, str):
            return False
        said = f"The agent typed into a running command: {text!r}" if text else "The agent looked at a running command."
        out.event(Notice("terminal", said, {"tool_call": item, "stdin": text}), method, thread.parent)
        return True

    def _usage(self, thread: Thread, params: Params, method: str, out: Out) -> bool:
        if not isinstance(params.get("tokenUsage"), dict):
            return False
        runs = thread.turn is not None and thread.turn.id == params.get("turnId")
        usage = thread.meter.read(params["tokenUsage"], thread.model, counts=runs)
        if usage is not None:
            out.event(usage, method, thread.parent)
        return True


def _last_text(turn: Params) -> str | None:
    """The last message among the items that a turn's end repeats; none in 0.141 (wire truth A1)."""
    texts = [
        text
        for item in sequence(turn.get("items"))
        if mapping(item).get("type") == "agentMessage" and (text := string(item.get("text")))
    ]
    return texts[-1] if texts else None


def _exit(returncode: int | None) -> str:
    """How a process ended, for the middle of a sentence."""
    if returncode is None:
        return "ended"
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"
