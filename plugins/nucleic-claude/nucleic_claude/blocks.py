"""Content blocks: deltas while they stream, the whole block once, under one id.

The API numbers the blocks of a message and streams deltas by that number; the CLI prints each block that is complete as an
`assistant` line of its own, in order, before its `content_block_stop` (wire facts 36, 38). So a whole block is the oldest open
one of its kind in its message, or, without partials, the next number: `block` is `<message id>:<number>` either way, and both
kinds of stream give the same whole blocks. Every sub-agent has its own counting, by parent.

| event               | gives                                                                          |
|---                  |---                                                                             |
| message_start       | nothing; the message that the next blocks belong to                            |
| content_block_start | tool_use: tool_call_started; text, thinking: nothing; others: raw              |
| content_block_delta | partial text or thinking, tool_call_input_delta; a signature: nothing          |
| content_block_stop  | nothing; the whole line came before                                            |
| message_delta       | usage of the message                                                           |
| message_stop        | nothing                                                                        |

A block whose whole line never came is told from its deltas when the next message starts, its result comes, the turn or the
process ends; if it was cut off, a notice says so.
"""

import json

import attrs

from nucleic_claude.calls import Calls
from nucleic_claude.fields import integer, mapping, row, string
from nucleic_claude.usage import MessageMeter
from nucleic_core.backend import Out
from nucleic_core.events import AssistantText, Notice, Thinking, ToolCallInputDelta
from nucleic_core.lowlevel import JSON

DELTA = "stream_event/content_block_delta"


@attrs.define
class _Block:
    id: str | None
    kind: str
    tool_call: str | None = None
    name: str = ""
    pieces: list[str] = attrs.Factory(list)
    stopped: bool = False


@attrs.define
class _Message:
    """The message that streams for one parent. `next` is the number of its next whole block."""

    id: str | None
    next: int = 0
    open: dict[int, _Block] = attrs.Factory(dict)


class Blocks:
    """The messages of one process that stream now: one a parent."""

    def __init__(self, calls: Calls, meter: MessageMeter) -> None:
        self._calls = calls
        self._meter = meter
        self._messages: dict[str | None, _Message] = {}
        self._events = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
        }

    def stream(self, line: JSON, parent: str | None, out: Out) -> bool:
        """One `stream_event` line. False if it is not understood."""
        event = line.get("event")
        read = row(self._events, event.get("type")) if isinstance(event, dict) else None
        return read is not None and read(event, line, parent, out)

    def whole(
        self, kind: str, message_id: str | None, parent: str | None, tool_call: str | None, out: Out
    ) -> str | None:
        """The id of a block that is complete now; it is no longer open."""
        message = self._messages.get(parent)
        if message is None or message.id != message_id:
            self.flush(parent, out)
            message = self._messages[parent] = _Message(message_id)
        for number, block in message.open.items():
            if block.kind == kind and block.tool_call == tool_call:
                del message.open[number]
                message.next = max(message.next, number + 1)
                return block.id
        number, message.next = message.next, message.next + 1
        return _block_id(message.id, number)

    def flush(self, parent: str | None, out: Out) -> str | None:
        """Tell the blocks of a parent whose whole lines did not come; the last text among them."""
        message, last = self._messages.pop(parent, None), None
        if message is not None:
            for block in message.open.values():
                self._tell(block, message.id, parent, out)
                last = "".join(block.pieces) if block.kind == "text" and block.pieces else last
        return last

    def flush_all(self, out: Out) -> str | None:
        """Tell all that is open, as the process is gone; the last text of the main thread."""
        texts = {parent: self.flush(parent, out) for parent in list(self._messages)}
        return texts.get(None)

    def flush_call(self, tool_call: str, parent: str | None, out: Out) -> None:
        """Tell an open tool call whose result is here."""
        message = self._messages.get(parent)
        if message is not None:
            for number, block in list(message.open.items()):
                if block.tool_call == tool_call:
                    del message.open[number]
                    self._tell(block, message.id, parent, out)

    def _message_start(self, event: JSON, line: JSON, parent: str | None, out: Out) -> bool:
        message = event.get("message")
        message_id = string(mapping(message).get("id"))
        if message_id is None:
            return False
        self.flush(parent, out)
        self._messages[parent] = _Message(message_id)
        if parent is None:
            self._meter.saw(message, out)
        return True

    def _block_start(self, event: JSON, line: JSON, parent: str | None, out: Out) -> bool:
        number, block = integer(event.get("index")), mapping(event.get("content_block"))
        kind = block.get("type")
        if number is None or kind not in ("text", "thinking", "tool_use"):
            return False
        message = self._messages.get(parent)
        if message is None:
            message = self._messages[parent] = _Message(string(line.get("api_message_id")))
        opened = _Block(_block_id(message.id, number), kind)
        if kind == "tool_use":
            tool_call, name = string(block.get("id")), string(block.get("name"))
            if tool_call is None or name is None:
                return False
            if not self._calls.started(tool_call, name, parent, out, "stream_event/content_block_start"):
                return False
            opened.tool_call, opened.name = tool_call, name
        else:
            if text := string(block.get(kind)):
                opened.pieces.append(text)
                out.event(_WHOLE[kind](text, message.id, opened.id, partial=True), DELTA, parent)
        message.open[number] = opened
        return True

    def _delta(self, event: JSON, line: JSON, parent: str | None, out: Out) -> bool:
        message = self._messages.get(parent)
        number, delta = event.get("index"), event.get("delta")
        if message is None or not isinstance(number, int) or not isinstance(delta, dict):
            return False
        block = message.open.get(number)
        kind = delta.get("type")
        if kind == "signature_delta":
            return True
        if block is None or kind != _DELTAS[block.kind]:
            return False
        if block.kind == "tool_use":
            text = delta.get("partial_json")
            if not isinstance(text, str):
                return False
            if text and block.tool_call is not None:
                out.event(ToolCallInputDelta(block.tool_call, text), DELTA, parent)
        else:
            text = delta.get(block.kind)
            if not isinstance(text, str):
                return False
            if text:
                out.event(_WHOLE[block.kind](text, message.id, block.id, partial=True), DELTA, parent)
        block.pieces.append(text)
        return True

    def _block_stop(self, event: JSON, line: JSON, parent: str | None, out: Out) -> bool:
        number = integer(event.get("index"))
        if number is None:
            return False
        message = self._messages.get(parent)
        block = message.open.get(number) if message is not None else None
        if block is not None:
            block.stopped = True
        return True

    def _message_delta(self, event: JSON, line: JSON, parent: str | None, out: Out) -> bool:
        if parent is None:
            self._meter.ended(event, out)
        return True

    def _message_stop(self, event: JSON, line: JSON, parent: str | None, out: Out) -> bool:
        return True

    def _tell(self, block: _Block, message_id: str | None, parent: str | None, out: Out) -> None:
        """A block from its deltas: all of its text; a tool call only if its input is whole."""
        text = "".join(block.pieces)
        if block.kind != "tool_use":
            if text:
                out.event(_WHOLE[block.kind](text, message_id, block.id), DELTA, parent)
        elif block.tool_call is not None and block.stopped:
            try:
                given = json.loads(text or "{}")
            except ValueError:
                block.stopped = False
            else:
                self._calls.completed(block.tool_call, block.name, given, parent, out, DELTA)
        if not block.stopped:
            detail = {"block": block.id, "tool_call": block.tool_call}
            out.event(
                Notice("cut", "The stream ended inside this block; what came of it is all there is.", detail),
                DELTA,
                parent,
            )


_WHOLE: dict[str, type[AssistantText] | type[Thinking]] = {"text": AssistantText, "thinking": Thinking}
_DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}


def _block_id(message_id: str | None, number: int) -> str | None:
    return None if message_id is None else f"{message_id}:{number}"
