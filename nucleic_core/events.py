"""The events of a session: what every backend's wire is turned into, and the one shape in which it is kept.

An event is an envelope (`AgentEvent`) around a payload (`EventData`). As JSON it is one flat object a line: `seq, at,
session, backend, native, parent, kind`, then the payload's fields; value objects nest one level. No payload field bears
an envelope name. `events.schema.json` is generated from these classes.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar, cast, dataclass_transform

import attrs
import orjson

from nucleic_core._values import JSON, value
from nucleic_core.approvals import (
    Allow,
    AllowAlways,
    Answers,
    ApprovalRequest,
    CancelRun,
    Cause,
    Decision,
    Deny,
    Question,
    Trace,
)

Outcome = Literal[
    "completed", "interrupted", "errored", "max_turns", "max_budget", "context_full", "refused", "denied", "cancelled"
]
"""How a turn or a run ended. `denied`: a deny ended it; `cancelled`: somebody decided CancelRun."""

ENVELOPE = ("seq", "at", "session", "backend", "native", "parent", "kind")
DECISION_TYPES: dict[type, str] = {
    Allow: "allow",
    AllowAlways: "allow_always",
    Deny: "deny",
    CancelRun: "cancel_run",
    Answers: "answers",
}


class EventData:
    """Base of every payload. `kind` discriminates it in JSON."""

    __slots__ = ()
    kind: ClassVar[str] = ""
    field_names: ClassVar[tuple[str, ...]] = ()
    _flat: ClassVar["_Flattener"]

    def but(self, **changes: JSON) -> Self:
        """The same payload with other values in some fields."""
        me: Any = self
        return cast(Self, attrs.evolve(me, **changes))


_Flattener: TypeAlias = Callable[[str | None, str | None, Any], dict[str, JSON]]

KINDS: dict[str, type[EventData]] = {}
"""Every payload class by its `kind`."""

_E = TypeVar("_E", bound=type[EventData])


@dataclass_transform(frozen_default=True)
def _kind(name: str) -> Callable[[_E], _E]:
    """Register a payload class under its `kind` and write its encoder."""

    def register(cls: _E) -> _E:
        made: Any = value(cls)
        made.kind = name
        made.field_names = tuple(a.name for a in attrs.fields(made))
        made._flat = staticmethod(_flattener(name, made.field_names))
        KINDS[name] = made
        return cast(_E, made)

    return register


def _flattener(kind: str, names: tuple[str, ...]) -> "_Flattener":
    """A function that lays a payload out flat, as one would write it by hand.

    It runs for every event: a loop over the fields costs half as much again, cattrs two to four times as much.
    """
    fields = "".join(f", {name!r}: data.{name}" for name in names)
    source = f"lambda native, parent, data: {{'native': native, 'parent': parent, 'kind': {kind!r}{fields}}}"
    return cast(_Flattener, eval(source))  # noqa: S307 - nothing in it is from outside: names of our own classes


@_kind("session_started")
class SessionStarted(EventData):
    """A process of the backend is up. Once a process; `native_id` only when the backend itself has named it."""

    native_id: str | None = None
    model: str | None = None
    cwd: str | None = None
    tools: tuple[str, ...] = ()
    agent_version: str | None = None
    transcript_path: str | None = None


@_kind("user_message")
class UserMessage(EventData):
    """What was sent to the agent: `input` is the id that `input_accepted` carries, `images` the number of pictures."""

    input: str
    text: str
    images: int = 0


@_kind("input_accepted")
class InputAccepted(EventData):
    """What became of an input. `queued` may be followed by `delivered` or `merged` (into a running or a joint turn)."""

    input: str
    state: Literal["queued", "delivered", "merged", "refused"]
    reason: str | None = None


@_kind("turn_started")
class TurnStarted(EventData):
    """A turn began; `origin` is agent where no user message caused it, such as background work that reports back."""

    turn: str | None = None
    origin: Literal["user", "agent"] = "user"


@_kind("assistant_text")
class AssistantText(EventData):
    """Prose of the model. Partial ones are deltas; the whole one that follows with the same `block` repeats them."""

    text: str
    message_id: str | None = None
    block: str | None = None
    partial: bool = False


@_kind("thinking")
class Thinking(EventData):
    """Reasoning of the model, as `assistant_text`."""

    text: str
    message_id: str | None = None
    block: str | None = None
    partial: bool = False


@_kind("tool_call_started")
class ToolCallStarted(EventData):
    """A tool call is known by id and name; its input may still be empty. `name` follows Claude's vocabulary."""

    tool_call: str
    name: str
    input: JSON = None
    native_name: str | None = None


@_kind("tool_call_input_delta")
class ToolCallInputDelta(EventData):
    """A piece of the JSON text of a tool call's input."""

    tool_call: str
    partial_json: str


@_kind("tool_call_completed")
class ToolCallCompleted(EventData):
    """A tool call's whole input, as the model wrote it. What ran may differ: see the ask's `decision.updated_input`."""

    tool_call: str
    name: str
    input: JSON = None
    native_name: str | None = None


@_kind("tool_output")
class ToolOutput(EventData):
    """Progress of a running tool; `elapsed` in seconds."""

    tool_call: str
    text: str = ""
    elapsed: float | None = None


@_kind("tool_result")
class ToolResult(EventData):
    """The result of a tool call. Failed is `is_error`, which is not the same as `exit_code` other than 0.

    `exit_code_source` says whether the code was on the wire or read out of a text. `synthetic`: the core closed a call
    that got no result. `correlated` is false where the stream never showed the call.
    """

    tool_call: str
    content: JSON = None
    is_error: bool = False
    exit_code: int | None = None
    exit_code_source: Literal["literal", "heuristic"] | None = None
    synthetic: bool = False
    correlated: bool = True


@_kind("file_change")
class FileChange(EventData):
    """A file was changed. `authoritative` where a native diff or our own git diff says so, false where it is inferred."""

    change: Literal["add", "update", "delete", "rename"]
    path: str
    diff: str | None = None
    authoritative: bool = False
    tool_call: str | None = None
    old_path: str | None = None


@_kind("plan")
class Plan(EventData):
    """The agent's plan or to-do list as it stands: entries with `content` and `status`, or a text."""

    entries: tuple[JSON, ...] = ()
    text: str | None = None


@_kind("approval_requested")
class ApprovalRequested(EventData):
    """The agent waits for a decision. The call's `tool_call_completed` always stands before it."""

    request: ApprovalRequest


@_kind("approval_resolved")
class ApprovalResolved(EventData):
    """An ask is closed: the decision is recorded and was handed to the writer in the same step.

    `decided_by`: `rule:`, `policy:`, `gate:`, `console`, `api`, `socket:<client>`, or `nucleic` where nobody decided;
    `cause` then says why. `trace` is what every policy said. Where the cause is interrupted or session_ended, the wire was
    also told to stop the turn, if its protocol can say so in the answer.
    """

    id: str
    decision: Decision
    decided_by: str
    cause: Cause = "answered"
    tool_call: str | None = None
    trace: tuple[Trace, ...] = ()


@_kind("question_asked")
class QuestionAsked(EventData):
    """The agent waits for answers of a person."""

    question: Question


@_kind("question_answered")
class QuestionAnswered(EventData):
    """A question is closed. `decision.answers` is null where nobody answered."""

    id: str
    decision: Answers
    decided_by: str
    cause: Cause = "answered"
    tool_call: str | None = None


@_kind("usage")
class Usage(EventData):
    """Tokens and cost (USD) of one scope. Figures are never counted twice; unknown is null.

    `message`: one model call. `turn`: one turn; the turns of a run add up to its total. `run`: the run as a whole.
    """

    scope: Literal["message", "turn", "run"]
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    context_window: int | None = None
    cost_usd: float | None = None
    message_id: str | None = None
    model: str | None = None


@_kind("turn_completed")
class TurnCompleted(EventData):
    """A turn ended. `more_follows`: background work may start further turns without a user message."""

    outcome: Outcome
    turn: str | None = None
    stop_reason: str | None = None
    error: str | None = None
    final_text: str | None = None
    duration_ms: int | None = None
    usage: Usage | None = None
    more_follows: bool = False


@_kind("run_finished")
class RunFinished(EventData):
    """The run is over, once: the backend is idle for good, or gone. `usage` is the sum over the turns."""

    outcome: Outcome
    final_text: str | None = None
    error: str | None = None
    usage: Usage | None = None
    duration_ms: int | None = None
    returncode: int | None = None


@_kind("error")
class Error(EventData):
    """Something failed. `recoverable`: the run goes on (a retry of the CLI's own, a refused tool)."""

    message: str
    recoverable: bool = True
    code: str | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    delay_ms: float | None = None
    detail: JSON = None


@_kind("notice")
class Notice(EventData):
    """Something worth knowing that is no failure. `topic` is one word (mode, title, compaction, hook, oversize, ...)."""

    topic: str
    text: str
    detail: JSON = None


@_kind("raw")
class Raw(EventData):
    """A native message that was not understood, whole."""

    value: JSON


@value
class AgentEvent:
    """One event of one session.

    `seq` counts from 1 in the order of the transcript; `at` is RFC 3339 UTC with microseconds, None in a decoded
    recording; `native` is the wire's own name of the message; `parent` the tool call of the sub-agent it belongs to.
    """

    seq: int
    at: str | None
    session: str
    backend: str
    native: str | None
    parent: str | None
    data: EventData

    @property
    def kind(self) -> str:
        """The payload's `kind`."""
        return self.data.kind

    def to_line(self) -> bytes:
        """The event as one line of JSON, without the line feed."""
        shared = envelope(self.at, self.session, self.backend)
        return encode_line(self.seq, shared, self.native, self.parent, self.data)

    def to_json(self) -> dict[str, JSON]:
        """The event as plain JSON values."""
        return dict(orjson.loads(self.to_line()))


def envelope(at: str | None, session: str, backend: str) -> bytes:
    """The part of a line that all events of a batch share, for `encode_line`."""
    return orjson.dumps({"at": at, "session": session, "backend": backend})[1:-1]


def encode_line(seq: int, shared: bytes, native: str | None, parent: str | None, data: EventData) -> bytes:
    """One flat JSON object; `shared` comes from `envelope`."""
    flat = type(data)._flat(native, parent, data)
    try:
        rest = orjson.dumps(flat, default=plain)
    except TypeError:
        # A lone surrogate or a number over 64 bits came from our own side: the file stays strict UTF-8 all the same.
        rest = orjson.dumps(_encodable(flat), default=plain)
    return b'{"seq":%d,%b,%b' % (seq, shared, rest[1:])


def plain(item: object) -> JSON:
    """A value object as JSON: paths as text, decisions with their `type`."""
    if isinstance(item, Path):
        return str(item)
    cls: Any = type(item)
    if attrs.has(cls):
        fields = {a.name: getattr(item, a.name) for a in attrs.fields(cls)}
        tag = DECISION_TYPES.get(cls)
        return fields if tag is None else {"type": tag, **fields}
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, (set, frozenset)):
        return sorted(item)
    raise TypeError(f"{cls.__name__} has no JSON form")


_SURROGATES = re.compile("[\ud800-\udfff]")
_DEEPEST = 100
"""Levels of nesting that a payload keeps; orjson reads 1024 and writes 254."""


def _encodable(item: JSON, depth: int = 0) -> JSON:
    """The same value as strict JSON can hold it.

    Lone surrogates become U+FFFD, integers over 64 bits floats, and what nests deeper than `_DEEPEST` its own JSON text.
    """
    match item:
        case str():
            return _SURROGATES.sub("\ufffd", item)
        case bool() | None | float():
            return item
        case int():
            return item if -(1 << 63) <= item < 1 << 64 else _as_float(item)
        case list() | tuple() | dict() if depth >= _DEEPEST:
            return _SURROGATES.sub("\ufffd", _spelled(item))
        case list() | tuple():
            return [_encodable(x, depth + 1) for x in item]
        case dict():
            return {_encodable(str(k)): _encodable(v, depth + 1) for k, v in item.items()}
        case _:
            return _encodable(plain(item), depth)


def _as_float(number: int) -> float | str:
    try:
        return float(number)
    except OverflowError:
        return hex(number)


def _spelled(item: JSON) -> str:
    """JSON text without recursion, for values that nest deeper than any encoder goes."""
    pieces: list[str] = []
    waiting: list[tuple[bool, JSON]] = [(False, item)]  # (is it text already, the piece)
    while waiting:
        is_text, piece = waiting.pop()
        if is_text:
            pieces.append(piece)
        elif isinstance(piece, dict):
            members = [
                part for k, v in piece.items() for part in ((True, f"{json.dumps(str(k))}:"), (False, v), (True, ","))
            ]
            waiting += [(True, "}"), *reversed(members[:-1]), (True, "{")]
        elif isinstance(piece, list | tuple):
            elements = [part for x in piece for part in ((False, x), (True, ","))]
            waiting += [(True, "]"), *reversed(elements[:-1]), (True, "[")]
        else:
            pieces.append(json.dumps(piece, default=repr))
    return "".join(pieces)
