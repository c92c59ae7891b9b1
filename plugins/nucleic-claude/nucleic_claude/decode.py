"""The decoder of Claude Code's `stream-json`: every line of both directions, and the approve calls of our MCP server.

It is the only reader of the wire; state lives here and in the parts below, I/O nowhere. A line's handler is found by its `type`
and gives False for what it does not understand: that line, or that block of a line, is `raw`.

    blocks.py   partial and whole content blocks     calls.py    tool calls, once each      asks.py     asks, control lines
    results.py  file changes and exit codes          inputs.py   what became of messages    turns.py    outcomes
    usage.py    tokens and cost                      tasks.py    background work            session.py  init, mode
    system.py   `system` lines without state

`docs/claude.md` has the table of every kind of line: what is told of it, or why nothing is.
"""

from pathlib import Path

from nucleic_claude.asks import Asks
from nucleic_claude.blocks import Blocks
from nucleic_claude.calls import Calls
from nucleic_claude.fields import integer, mapping, row, sequence, string
from nucleic_claude.inputs import Inputs, texts_of
from nucleic_claude.results import changes, exit_code
from nucleic_claude.session import Session
from nucleic_claude.system import DENIED, DROPPED_SYSTEM, SYSTEM, api_retry, synthetic
from nucleic_claude.tasks import Tasks, tool_progress
from nucleic_claude.tools import tool_name
from nucleic_claude.turns import Turn, error_text, exit_text, failed, is_odd, may_be_cut, outcome
from nucleic_claude.usage import MessageMeter, TurnMeter
from nucleic_core.backend import Out
from nucleic_core.events import (
    AssistantText,
    Error,
    Notice,
    Outcome,
    Raw,
    RunFinished,
    Thinking,
    ToolResult,
    TurnCompleted,
    TurnStarted,
)
from nucleic_core.lowlevel import JSON

_COMMAND = "<local-command-"
"""How the output of a command of the CLI, such as `/compact`, begins in a user line."""


class ClaudeDecoder:
    """Reads one process of Claude Code.

    `cwd` is where it runs, until `init` says so. `transcript_root` is the directory `projects` of its configuration; without
    it no transcript path is told. `resumed` (started with `--resume`) decides where its cost total starts. `own_tools`
    are the CLI's names of the tools that we serve it.
    """

    def __init__(
        self,
        *,
        cwd: Path | None = None,
        transcript_root: Path | None = None,
        resumed: bool = False,
        own_tools: frozenset[str] = frozenset(),
    ) -> None:
        self._turn: Turn | None = None
        self._last_result: str | None = None
        self._failed_turn: Outcome | None = None
        self._log_in_told = False
        self._prompts: dict[str, str] = {}
        self._calls, self._inputs, self._tasks = Calls(), Inputs(), Tasks()
        self._session = Session(cwd, transcript_root)
        self._asks = Asks(
            self._calls, self._tasks, lambda: self._turn.text if self._turn is not None else None, own_tools
        )
        self._turn_meter, self._message_meter = TurnMeter(resumed=resumed), MessageMeter()
        self._blocks = Blocks(self._calls, self._message_meter)
        self._lines = {
            "assistant": self._assistant,
            "user": self._user,
            "stream_event": self._stream_event,
            "system": self._system,
            "result": self._result,
            "control_request": self._asks.control_request,
            "control_cancel_request": self._asks.control_cancel,
            "control_response": self._asks.control_response,
            "command_lifecycle": self._inputs.lifecycle,
            "conversation_reset": self._session.reset,
            "tool_progress": tool_progress,
        }
        self._system_lines = {
            "init": self._init,
            "status": self._session.status,
            "api_retry": self._api_retry,
            "permission_denied": self._permission_denied,
            "background_tasks_changed": self._tasks.changed,
            "task_started": self._tasks.started,
            "task_updated": self._tasks.updated,
            "task_progress": self._tasks.progress,
            "task_notification": self._tasks.notified,
        }
        self._block_types = {"text": self._text, "thinking": self._thinking, "tool_use": self._tool_use}

    def received(self, message: JSON, out: Out, channel: str = "stdout") -> None:
        """See `Decoder.received`; channel `mcp` brings calls of the approve tool and their cancellations."""
        if not isinstance(message, dict):
            out.event(Raw(message))
            return
        read = self._asks.mcp if channel == "mcp" else row(self._lines, message.get("type"))
        if read is None or not read(message, out):
            out.event(Raw(message), _native(message), string(message.get("parent_tool_use_id")))

    def sent(self, message: JSON, out: Out, channel: str = "stdin") -> None:
        """See `Decoder.sent`. On `mcp`: `{"key": ..., "reply": {...}}`."""
        if not isinstance(message, dict):
            return
        kind = "reply" if channel == "mcp" else message.get("type")
        if kind == "user":
            self._inputs.sent(message)
        elif kind == "control_request":
            self._asks.requested(message)
        elif kind == "control_response":
            response = mapping(message.get("response"))
            self._asks.replied(response.get("request_id"), response)
        elif kind == "reply":
            self._asks.replied(message.get("key"), message)

    def ended(self, returncode: int | None, out: Out) -> None:
        """See `Decoder.ended`. A message that was never taken counts as a turn that failed.

        Exit code 1 after a result with `is_error` says that result again (wire fact 9); it is no crash.
        Whether a signal was ours, the decoder cannot see; where it was, the core makes `interrupted` of `errored`.
        """
        turn, self._turn = self._turn, None
        cut = self._blocks.flush_all(out)
        self._message_meter.flush(out)
        never_taken = self._inputs.process_ended(out)
        stopped = self._asks.stopped
        if turn is not None:
            error = None if stopped else f"Claude Code {exit_text(returncode)} before the turn had a result."
            out.event(TurnCompleted(stopped or "errored", turn.id, error=error, final_text=cut or turn.text))
        elif never_taken:
            error = f"Claude Code {exit_text(returncode)} before it took the message."
            out.event(TurnCompleted(stopped or "errored", error=error))
        elif returncode == 1 and self._failed_turn is not None:
            out.event(RunFinished(self._failed_turn, returncode=returncode))

    # Turns

    def _init(self, line: JSON, out: Out) -> bool:
        if not self._session.init(line, out):
            return False
        self._turn_meter.version(line.get("claude_code_version"))
        turn = self._turn
        if turn is not None and turn.used:
            turn.text = self._blocks.flush(None, out) or turn.text
            self._message_meter.flush(out)
            completed = TurnCompleted("completed", turn.id, final_text=turn.text, more_follows=True)
            self._inputs.turn_ended({}, out)
            out.event(completed, "system/init")
            self._end_turn()
        if self._turn is None:
            self._begin_turn(line, out)
        return True

    def _begin_turn(self, line: JSON, out: Out) -> Turn:
        by_agent = not self._inputs.opens_turn and (self._inputs.seen or self._tasks.reported)
        self._inputs.turn_began(by_agent=by_agent)
        self._tasks.reported = False
        turn = self._turn = Turn(string(line.get("uuid")))
        out.event(TurnStarted(turn.id, "agent" if by_agent else "user"), _native(line))
        return turn

    def _end_turn(self) -> None:
        self._turn = self._asks.stopped = None
        self._log_in_told = False

    def _result(self, line: JSON, out: Out) -> bool:
        uuid = string(line.get("uuid"))
        if uuid is not None and uuid == self._last_result:
            return False
        self._last_result = uuid
        native, fail = _native(line), failed(line)
        if is_odd(line) or "subtype" not in line:
            out.event(Raw(line), native)
        turn = self._turn or self._begin_turn(line, out)
        turn.text = self._blocks.flush(None, out) or turn.text
        self._message_meter.flush(out)
        ending = outcome(line, self._asks.stopped, refused=turn.refused and fail)
        stopped = ending in ("interrupted", "denied")
        if not stopped:
            self._tell_denials(line, out)
        if may_be_cut(line):
            out.event(Notice("cut", "The answer ended without a stop reason; it may be cut off."), native)
        usage = self._turn_meter.turn(line, self._session.model)
        if usage is not None:
            out.event(usage, native)
        self._inputs.turn_ended(line, out)
        self._failed_turn = ending if fail else None
        completed = TurnCompleted(
            outcome=ending,
            turn=turn.id,
            stop_reason=string(line.get("stop_reason")),
            error=error_text(line) if fail and not stopped else None,
            final_text=turn.text if fail else string(line.get("result")) or turn.text,
            duration_ms=integer(line.get("duration_ms")),
            usage=usage,
            more_follows=self._tasks.more_follows or bool(integer(line.get("queued_turn_count"))),
        )
        out.event(completed, native)
        self._end_turn()
        return True

    def _tell_denials(self, line: JSON, out: Out) -> None:
        for denial in sequence(line.get("permission_denials")):
            tool_call, name = (string(mapping(denial).get(field)) for field in ("tool_use_id", "tool_name"))
            if tool_call is None or name is None:
                out.event(Raw(denial), "result/permission_denials")
            else:
                self._denied(tool_call, name, "", denial, "result/permission_denials", out)

    def _denied(self, tool_call: str, name: str, why: str, detail: JSON, native: str, out: Out) -> None:
        if self._calls.tell_denial(tool_call):
            text = DENIED.format(tool_name(name), why).strip()
            out.event(Error(text, code="permission_denied", detail=detail), native)

    # The model

    def _assistant(self, line: JSON, out: Out) -> bool:
        parent, message = line.get("parent_tool_use_id"), line.get("message")
        if not isinstance(message, dict) or not (parent is None or isinstance(parent, str)):
            return False
        content = message.get("content")
        if not isinstance(content, list) or not content:
            return False
        if parent is None:
            turn = self._turn or self._begin_turn(line, out)
            turn.used = True
        if message.get("model") == "<synthetic>" or line.get("error"):
            if (event := synthetic(line, texts_of(content))) is None:
                return False
            out.event(event, "assistant", parent)
            return len(texts_of(content)) == len(content)
        if parent is None:
            self._message_meter.saw(message, out)
        message_id = string(message.get("id"))
        for block in content:
            read = row(self._block_types, block.get("type")) if isinstance(block, dict) else None
            if read is None or not read(block, message_id, parent, out):
                out.event(Raw(block), "assistant", parent)
        return True

    def _text(self, block: JSON, message_id: str | None, parent: str | None, out: Out) -> bool:
        text = block.get("text")
        if not isinstance(text, str):
            return False
        out.event(
            AssistantText(text, message_id, self._blocks.whole("text", message_id, parent, None, out)),
            "assistant",
            parent,
        )
        if parent is None and self._turn is not None and text:
            self._turn.text = text
        return True

    def _thinking(self, block: JSON, message_id: str | None, parent: str | None, out: Out) -> bool:
        text = block.get("thinking")
        if not isinstance(text, str):
            return False
        out.event(
            Thinking(text, message_id, self._blocks.whole("thinking", message_id, parent, None, out)),
            "assistant",
            parent,
        )
        return True

    def _tool_use(self, block: JSON, message_id: str | None, parent: str | None, out: Out) -> bool:
        tool_call, name, given = block.get("id"), block.get("name"), block.get("input")
        if not isinstance(tool_call, str) or not isinstance(name, str):
            return False
        self._blocks.whole("tool_use", message_id, parent, tool_call, out)
        news = self._calls.completed(tool_call, name, given, parent, out, "assistant")
        if news and tool_name(name) == "Agent" and isinstance(prompt := mapping(given).get("prompt"), str):
            self._prompts[tool_call] = prompt
        return True

    def _stream_event(self, line: JSON, out: Out) -> bool:
        parent = line.get("parent_tool_use_id")
        if not (parent is None or isinstance(parent, str)):
            return False
        if parent is None:
            turn = self._turn
            if turn is None and mapping(line.get("event")).get("type") == "message_start":
                turn = self._begin_turn(line, out)
            if turn is not None:
                turn.used = True
        return self._blocks.stream(line, parent, out)

    # What the model is told

    def _user(self, line: JSON, out: Out) -> bool:
        parent, message = line.get("parent_tool_use_id"), line.get("message")
        if not isinstance(message, dict) or not (parent is None or isinstance(parent, str)):
            return False
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else sequence(content)
        if line.get("isReplay") is True and parent is None and all(map(_is_ours, blocks)):
            self._inputs.replayed(line, content, out)
            return bool(blocks)
        for meta in sequence(line.get("tool_result_meta")):  # 332: who decided
            if mapping(mapping(meta).get("permission_decision")).get("source") == "user_reject":
                self._calls.denied_by_us(mapping(meta).get("id"))
        native = line.get("tool_use_result") if len(blocks) == 1 else None  # of several results, whose would it be?
        for block in blocks:
            fields = mapping(block)
            kind, text = fields.get("type"), fields.get("text")
            if kind == "tool_result" and self._tool_result(fields, native, parent, out):
                continue
            if not (kind == "text" and isinstance(text, str) and self._told(line, text, parent, out)):
                out.event(Raw(line if len(blocks) == 1 else block), "user", parent)
        return bool(blocks)

    def _told(self, line: JSON, text: str, parent: str | None, out: Out) -> bool:
        """Words to the model that are not ours: what the CLI put in, or the prompt of a sub-agent."""
        if text.startswith("[Request interrupted by user"):
            return True
        if text.startswith(_COMMAND):
            topic, text = "command", text.split(">", 1)[-1].rsplit("</", 1)[0].strip()
        elif line.get("isSynthetic") is True:
            topic = "injected"
        elif parent is None:
            return False
        elif self._prompts.pop(parent, None) == text:
            return True
        else:
            topic = "prompt"
        out.event(Notice(topic, text), "user", parent)
        return True

    def _tool_result(self, block: dict[str, JSON], native: JSON, parent: str | None, out: Out) -> bool:
        tool_call, is_error, content = block.get("tool_use_id"), block.get("is_error", False), block.get("content")
        if not isinstance(tool_call, str) or not isinstance(is_error, bool):
            return False
        open_call = self._calls.get(tool_call)
        if open_call is not None and not open_call.completed:
            self._blocks.flush_call(tool_call, open_call.parent, out)
        call, ended_before = self._calls.ended(tool_call, out)
        if ended_before:
            return False
        self._prompts.pop(tool_call, None)
        code = exit_code(call, is_error, content)
        result = ToolResult(
            tool_call,
            content,
            is_error,
            exit_code=code,
            exit_code_source="heuristic" if code is not None else None,
            correlated=call is not None,
        )
        out.event(result, "user", parent)
        self._tasks.launched(native)
        if call is not None and not is_error:
            for change in changes(call, tool_call, native, content, self._session.cwd):
                out.event(change, "user", parent)
        return True

    # The CLI itself

    def _system(self, line: JSON, out: Out) -> bool:
        subtype = line.get("subtype")
        if not isinstance(subtype, str):
            return False
        if subtype in DROPPED_SYSTEM:
            return True
        if (handle := self._system_lines.get(subtype)) is not None:
            return handle(line, out)
        read = SYSTEM.get(subtype)
        event = read(line) if read is not None else None
        if event is None:
            return False
        if subtype == "model_refusal_no_fallback" and self._turn is not None:
            self._turn.refused = True
        out.event(event, f"system/{subtype}")
        return True

    def _api_retry(self, line: JSON, out: Out) -> bool:
        """A refused key is retried for minutes (wire fact 63): the first retry says that it will not help."""
        error = api_retry(line, log_in=not self._log_in_told)
        if error is None:
            return False
        self._log_in_told = self._log_in_told or not error.recoverable
        out.event(error, "system/api_retry")
        return True

    def _permission_denied(self, line: JSON, out: Out) -> bool:
        tool_call, name = string(line.get("tool_use_id")), string(line.get("tool_name"))
        if tool_call is None or name is None:
            return False
        why = string(line.get("message")) or string(line.get("decision_reason")) or ""
        detail = {"tool_call": tool_call, "reason": line.get("decision_reason_type")}
        self._denied(tool_call, name, why, detail, "system/permission_denied", out)
        return True


def _is_ours(block: JSON) -> bool:
    """Whether a block of a replayed line is of a message of ours, and not what a command of the CLI printed."""
    fields = mapping(block)
    return fields.get("type") in ("text", "image") and not (string(fields.get("text")) or "").startswith(_COMMAND)


def _native(line: JSON) -> str | None:
    """The wire's name of a line."""
    kind, subtype = line.get("type"), line.get("subtype")
    if not isinstance(kind, str):
        return None
    return f"{kind}/{subtype}" if isinstance(subtype, str) else kind
