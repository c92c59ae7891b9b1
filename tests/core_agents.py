"""Scripted agents for the tests of the core: a backend over LineDriver whose child is a Python script in the test.

`Scripted("...")` is a plugin. Its child has four functions: `tell(t, **fields)` prints a line, `hear()` reads one,
`prompt()` waits for the next prompt and begins its turn, `done(outcome="completed")` ends it. `FakeDecoder` says what the
lines mean.
"""

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from nucleic_core import (
    Allow,
    Answers,
    ApprovalRequest,
    CancelRun,
    Deny,
    Host,
    Question,
    QuestionItem,
    Session,
    open_host,
    open_session,
)
from nucleic_core.backend import Ask, Reply
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.events import (
    AgentEvent,
    AssistantText,
    EventData,
    InputAccepted,
    Raw,
    SessionStarted,
    ToolCallCompleted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
)
from nucleic_core.hookspecs import hookimpl
from nucleic_core.lowlevel import BaseDecoder, LineDriver
from nucleic_core.specs import ProcessSpec, plain_text

PRELUDE = """
import json, os, signal, sys, time
def tell(t, **fields):
    sys.stdout.write(json.dumps({"t": t, **fields}) + chr(10)); sys.stdout.flush()
def hear():
    line = sys.stdin.readline()
    if not line: sys.exit(0)
    return json.loads(line)
def prompt():
    while "prompt" not in (message := hear()): pass
    tell("turn", input=message["id"])
    return message["prompt"]
def done(outcome="completed", **fields):
    tell("done", outcome=outcome, **fields)
def stay():
    while True: hear()
"""


class FakeDecoder(BaseDecoder):
    """Reads the lines of scripted agents; `parent` may stand in each."""

    def received(self, message: Any, out: Any, channel: str = "stdout") -> None:
        parent = message.get("parent") if isinstance(message, dict) else None
        match message:
            case {"t": "hello", "id": native}:
                out.event(SessionStarted(native), "hello")
            case {"t": "turn"}:
                if message.get("input"):
                    out.event(InputAccepted(message["input"], "delivered"), "turn")
                out.event(TurnStarted(origin=message.get("origin", "user")), "turn", parent)
            case {"t": "queued", "input": str(key)}:
                out.event(InputAccepted(key, "queued"), "queued")
            case {"t": "refused", "input": str(key)}:
                out.event(InputAccepted(key, "refused", "no"), "refused")
            case {"t": "say", "text": str(text)}:
                out.event(AssistantText(text), "say", parent)
            case {"t": "call", "id": str(call), "tool": str(tool), "input": arguments}:
                out.event(ToolCallCompleted(call, tool, arguments), "call", parent)
            case {"t": "result", "id": str(call)}:
                out.event(ToolResult(call, message.get("text", "")), "result", parent)
            case {"t": "ask", "key": str(key)}:
                out.ask(Ask(key, message), "ask", parent)
            case {"t": "taken_back", "key": str(key)}:
                out.withdraw(key, "the agent changed its mind")
            case {"t": "done", "outcome": outcome}:
                more = bool(message.get("more"))
                text, error = message.get("text"), message.get("error")
                out.event(TurnCompleted(outcome, final_text=text, error=error, more_follows=more), "done", parent)
            case {"t": "boom"}:
                raise RuntimeError("boom")
            case _:
                out.event(Raw(message), message.get("t") if isinstance(message, dict) else None)


class FakeApprovals:
    """Asks have a `tool` and an `input`, or an `options` list; anything else is not understood."""

    def read(self, ask: Ask) -> ApprovalRequest | Question | None:
        match ask.native:
            case {"options": list(options)}:
                return Question((QuestionItem("q", "Which?", tuple((str(o), "") for o in options)),))
            case {"tool": str(tool), "input": dict(arguments)}:
                paths = tuple(Path(p) for p in arguments.get("paths", ()))
                command = arguments.get("command")
                title = f"{tool}: {command or arguments}"
                return ApprovalRequest(tool, arguments, title, ask.native.get("call"), paths=paths, command=command)
        return None

    def reply(self, ask: Ask, decision: Any) -> Reply:
        match decision:
            case Answers(answers):
                return Reply({"answers": answers})
            case Deny(reason) | CancelRun(reason):
                return Reply({"allow": False, "reason": reason}, interrupt=isinstance(decision, CancelRun))
            case Allow(updated):
                return Reply({"allow": True, "input": updated})
        raise AssertionError(decision)


class FakeDriver(LineDriver):
    """Prompts, answers, and `{"stop": true}`."""

    def prompt(self, message: Any) -> Any:
        return {"prompt": plain_text(message), "id": message.id}

    def envelope(self, ask: Ask, reply: Reply | None) -> Any:
        return {"key": ask.key, **({"allow": None} if reply is None else reply.message)}

    def stop(self) -> Any:
        return {"stop": True}


CAPABILITIES = BackendCapabilities(
    interactive_approvals=True,
    questions=True,
    can_modify_tool_input=True,
    native_resume=True,
    follow_up=frozenset({"queue"}),
    honours=frozenset({"native_resume"}),
)


@attrs.frozen
class FakeProber:
    """Declares what the test wants."""

    capabilities: BackendCapabilities

    def declared(self, version: str | None = None, run: Any = None) -> BackendCapabilities:
        return self.capabilities

    async def probe(self, env: Any) -> ProbeReport:
        return ProbeReport(installed=True)


class Scripted:
    """A backend whose agent is a script."""

    NUCLEIC_API = 1

    def __init__(
        self,
        script: str = "stay()",
        *,
        argv: Sequence[str] | None = None,
        driver: Callable[[], Any] = FakeDriver,
        decoder: Callable[[], Any] = FakeDecoder,
        mapper: Callable[[], Any] | None = FakeApprovals,
        capabilities: BackendCapabilities = CAPABILITIES,
        **spec: Any,
    ) -> None:
        self._argv = tuple(argv) if argv is not None else (sys.executable, "-I", "-S", "-c", PRELUDE + script)
        self._driver, self._decoder, self._mapper = driver, decoder, mapper
        self._capabilities = capabilities
        self._spec = {"grace": (0.3, 0.3), **spec}

    @hookimpl
    def nucleic_prober(self) -> Any:
        return FakeProber(self._capabilities)

    @hookimpl
    def nucleic_decoder(self) -> Any:
        return self._decoder()

    @hookimpl
    def nucleic_approval_mapper(self) -> Any:
        return self._mapper and self._mapper()

    @hookimpl
    def nucleic_driver(self) -> Any:
        return self._driver()

    @hookimpl
    def nucleic_spawn(self) -> ProcessSpec:
        return ProcessSpec(self._argv, **self._spec)


@attrs.frozen
class Entry:
    """An entry point that needs no installed distribution."""

    plugin: Any
    name: str = "fake"
    group: str = "nucleic.backends"

    def load(self) -> Any:
        return self.plugin() if isinstance(self.plugin, type(lambda: 0)) else self.plugin


def extension(plugin: Any, name: str = "extension") -> Entry:
    """An entry point of `nucleic.plugins`."""
    return Entry(plugin, name, "nucleic.plugins")


@asynccontextmanager
async def open_fake(plugin: Any, prompt: str | None = "go", *others: Entry, **options: Any) -> AsyncIterator[Session]:
    """A session of a scripted agent on a host of its own. `cwd` must be given."""
    async with (
        open_host(plugins=[Entry(plugin), *others]) as host,
        open_session("fake", prompt, host=host, **options) as it,
    ):
        yield it


async def events_of(session: Session, answer: Any = None) -> list[AgentEvent]:
    """All events of a run, as one list; asks get `answer`: a decision, or a function of the request or question."""
    found = []
    async for event in session:
        found.append(event)
        asked = getattr(event.data, "request", None) or getattr(event.data, "question", None)
        if asked is not None and answer is not None:
            decision = answer(asked) if callable(answer) else answer
            if decision is not None:
                await session.respond(asked.id, decision)
    return found


async def wait_for(session: Session, kind: type[EventData], nth: int = 1) -> Any:
    """The nth event of a kind in this run, as soon as it is there."""
    async for event in session:
        if isinstance(event.data, kind):
            nth -= 1
            if nth == 0:
                return event.data
    raise AssertionError(f"the run ended without {kind.__name__}")


def kinds(events: Sequence[AgentEvent]) -> list[str]:
    """The kinds, in order."""
    return [event.kind for event in events]


def only(events: Sequence[AgentEvent], kind: type[EventData]) -> Any:
    """The one event of a kind."""
    (found,) = [event.data for event in events if isinstance(event.data, kind)]
    return found


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def gone(pid: int) -> bool:
    """Whether a process is gone within five seconds."""
    with trio.move_on_after(5):
        while alive(pid):
            await trio.sleep(0.01)
        return True
    return False


__all__ = [
    "CAPABILITIES",
    "Entry",
    "FakeApprovals",
    "FakeDecoder",
    "FakeDriver",
    "Host",
    "Scripted",
    "alive",
    "events_of",
    "extension",
    "gone",
    "kinds",
    "only",
    "open_fake",
    "wait_for",
]
