"""Records the fixtures of Claude Code: every scenario below, on every pinned version, against the scripted model.

    python tests/live/record.py [NAME ...]        such as 04-allow-stdio; without names all of them
    python tests/live/record.py --decode          only write the events anew, from what was recorded: needs no CLI

Written are, under `fixtures/claude/<version>/`:

    NN-name.ndjson              the messages as the decoder got them, {"dir": "in" | "out", "channel", "msg"} a line
    NN-name.events.json         what `nucleic decode claude` makes of them
    NN-name.approval-call.json  the asks in it, as they came
    NN-name.reply.json          what was decided for each, and the reply that went out
    NN-name.meta.json           where it comes from: version, command line, date, what was scripted

A recording holds no path of the machine it was made on: the working directory is /work/demo, the home /home/dev.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import orjson
import trio
from fetch import CLIS, fetch
from messages_api import Turn, bash, failure, serving, thinking, tool, turn
from nucleic_claude import plugin
from nucleic_claude.decode import ClaudeDecoder
from nucleic_claude.driver import ClaudeDriver
from recording import CWD, HOME, JSON, Tape, clean, repository, save

import nucleic_core
from nucleic_core._plugins import Plugins
from nucleic_core._session.replay import read_records, replay
from nucleic_core.approvals import Allow, Answers, CancelRun, Deny
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    QuestionAnswered,
    QuestionAsked,
    TurnCompleted,
    plain,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"
KEY = "sk-ant-test-key"
ALLOW = Allow()


@attrs.frozen
class Scenario:
    """One run: what the model says, how asks are answered, and what the host does beside that.

    `body` follows the session to its end; `options` are those of `open_session`.
    """

    name: str
    script: tuple[Turn, ...]
    prompt: str = "Do it."
    body: Callable[[nucleic_core.Session], Awaitable[None]] | None = None
    decision: Any = ALLOW
    options: dict[str, Any] = attrs.field(factory=dict)


async def _until_end(session: nucleic_core.Session, decision: Any) -> None:
    async for event in session:
        match event.data:
            case ApprovalRequested(request=request) if decision is not None:
                await session.respond(request.id, decision)
            case QuestionAsked(question=question):
                which = -1 if question.plan is None else 0
                chosen = {item.id: item.options[which][0] for item in question.questions}
                await session.respond(question.id, Answers(chosen))


async def _interrupt_at_text(session: nucleic_core.Session) -> None:
    async for event in session:
        if isinstance(event.data, AssistantText):
            await session.interrupt()
        if isinstance(event.data, TurnCompleted):
            await session.finish()


async def _interrupt_at_ask(session: nucleic_core.Session) -> None:
    async for event in session:
        if isinstance(event.data, ApprovalRequested):
            await session.interrupt()
        if isinstance(event.data, TurnCompleted):
            await session.finish()


def _send_at_ask(*, steer: bool, turns: int) -> Callable[[nucleic_core.Session], Awaitable[None]]:
    async def body(session: nucleic_core.Session) -> None:
        left = turns
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                await session.send("And tell me the time.", steer=steer)
                await session.respond(event.data.request.id, Allow())
            left -= isinstance(event.data, TurnCompleted)
            if left == 0:
                await session.finish()

    return body


async def _wait_for_background(session: nucleic_core.Session) -> None:
    async for event in session:
        if isinstance(event.data, TurnCompleted) and not event.data.more_follows:
            await session.finish()


TOUCH = turn("I make the file.", bash("touch made.txt"))
EDITED = Allow({"command": "touch other.txt", "description": "edited by the person"})
QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
    "multiSelect": False,
}
AGENT = {"description": "a job", "subagent_type": "general-purpose"}
QUIET: dict[str, Any] = {"partials": False}
OVER_HTTP: dict[str, Any] = {"partials": False, "settings": {"channel": "http"}}
OPEN: dict[str, Any] = {"partials": False, "keep_open": True}

SCENARIOS = (
    Scenario("01-text", (turn("Hello! The demo project has one README."),), options=QUIET),
    Scenario("02-thinking", (turn(thinking("Keep it short."), "Hello!"),), options=QUIET),
    Scenario("03-partials", (turn(thinking("Think."), "Some words.", bash("ls")), turn("One README."))),
    Scenario("04-allow-stdio", (TOUCH, turn("Done.")), options=QUIET),
    Scenario("05-allow-http", (TOUCH, turn("Done.")), options=OVER_HTTP),
    Scenario("06-deny-stdio", (TOUCH, turn("I see.")), decision=Deny("not on a Friday"), options=QUIET),
    Scenario("07-deny-http", (TOUCH, turn("I see.")), decision=Deny("not on a Friday"), options=OVER_HTTP),
    Scenario("08-edited-stdio", (TOUCH, turn("Done.")), decision=EDITED, options=QUIET),
    Scenario("09-edited-http", (TOUCH, turn("Done.")), decision=EDITED, options=OVER_HTTP),
    Scenario("10-cancel-stdio", (TOUCH,), decision=CancelRun("enough"), options=QUIET),
    Scenario("11-cancel-http", (TOUCH,), decision=CancelRun("enough"), options=OVER_HTTP),
    Scenario(
        "12-parallel",
        (turn(tool("Read", file_path="/etc/hostname"), tool("Read", file_path="/etc/shells")), turn("Read.")),
        decision=Deny("private"),
        options=QUIET,
    ),
    Scenario(
        "13-files",
        (
            turn(tool("Write", file_path=str(CWD / "new.txt"), content="one\ntwo\n")),
            turn(tool("Read", file_path=str(CWD / "README.md"))),
            turn(tool("Edit", file_path=str(CWD / "README.md"), old_string="hello", new_string="hello there")),
            turn("Written."),
        ),
        options=QUIET,
    ),
    Scenario("14-failing-command", (turn(bash("echo out; echo err >&2; exit 3")), turn("It failed.")), options=QUIET),
    Scenario("15-question-stdio", (turn(tool("AskUserQuestion", questions=[QUESTION])), turn("Blue.")), options=QUIET),
    Scenario(
        "16-question-http", (turn(tool("AskUserQuestion", questions=[QUESTION])), turn("Blue.")), options=OVER_HTTP
    ),
    Scenario(
        "17-plan",
        (
            turn(tool("EnterPlanMode")),
            turn("The plan: write a test.", tool("ExitPlanMode", plan="Write a test.")),
            turn("Go."),
        ),
        options=QUIET,
    ),
    Scenario("18-interrupt", (turn("I wait", end="hang"),), body=_interrupt_at_text, options={"keep_open": True}),
    Scenario("19-interrupt-ask-stdio", (TOUCH,), body=_interrupt_at_ask, options=OPEN),
    Scenario("20-interrupt-ask-http", (TOUCH,), body=_interrupt_at_ask, options={**OVER_HTTP, "keep_open": True}),
    Scenario(
        "21-sub-agent",
        (
            turn(tool("Agent", prompt="JOB-ONE", run_in_background=False, **AGENT)),
            turn(bash("touch sub.txt"), match="JOB-ONE"),
            turn("The job is done.", match="JOB-ONE"),
            turn("All done."),
        ),
        options=QUIET,
    ),
    Scenario(
        "22-background-agent",
        (
            turn(tool("Agent", prompt="JOB-TWO", run_in_background=True, **AGENT)),
            turn("The job is done.", match="JOB-TWO", delay=1.0),
            turn("It runs."),
            turn("It is done."),
        ),
        body=_wait_for_background,
        options=OPEN,
    ),
    Scenario("23-steer", (TOUCH, turn("Noon.")), body=_send_at_ask(steer=True, turns=1), options=OPEN),
    Scenario("24-queue", (TOUCH, turn("Made."), turn("Noon.")), body=_send_at_ask(steer=False, turns=2), options=OPEN),
    Scenario("25-retry", (failure(529, "overloaded_error", "Overloaded"), turn("Done.")), options=QUIET),
    Scenario("26-no-access", (failure(403, "permission_error", "this key is odd"),) * 3, options=QUIET),
    Scenario("27-max-turns", (TOUCH, turn("Never.")), options={**QUIET, "extra_args": ("--max-turns=1",)}),
    Scenario(
        "28-schema",
        (turn(tool("StructuredOutput", n=3)), turn("Three.")),
        options={
            **QUIET,
            "output_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        },
    ),
)


async def record(version: str, scenario: Scenario) -> None:
    """Play one scenario and write its files."""
    program = fetch("claude", version)
    tape, resolved = Tape(), []
    with tempfile.TemporaryDirectory(prefix="nucleic-record-") as place:
        world, home = Path(place, "demo"), Path(place, "home")
        repository(world)
        home.mkdir()
        script = [_at(world, step) for step in scenario.script]
        async with serving(*script) as api:
            with (
                mock.patch.dict(os.environ, _environment(home, Path(place), api.url), clear=True),
                mock.patch.object(plugin, "ClaudeDecoder", tape.recording(ClaudeDecoder)),
                mock.patch.object(plugin, "ClaudeDriver", tape.watching(ClaudeDriver)),
                trio.fail_after(90),
            ):
                options = dict(scenario.options)
                settings = {"executable": str(program), **options.pop("settings", {})}
                async with nucleic_core.open_session(
                    "claude", scenario.prompt, cwd=world, settings=settings, **options
                ) as session:
                    await (scenario.body(session) if scenario.body else _until_end(session, scenario.decision))
                resolved = [
                    event.data.decision
                    async for event in session.events()
                    if isinstance(event.data, ApprovalResolved | QuestionAnswered) and event.data.cause == "answered"
                ]
        words = {str(world): str(CWD), str(home): str(HOME), _slug(world): _slug(CWD), _slug(home): _slug(HOME)}
        write(
            version,
            scenario,
            tape,
            resolved,
            words | {place: "/work", _slug(Path(place)): "-work", str(program): "claude"},
        )


def write(version: str, scenario: Scenario, tape: Tape, decisions: list[JSON], words: dict[str, str]) -> None:
    """The five files of one recording."""
    folder = FIXTURES / version
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / scenario.name
    records = [clean(record, words) for record in tape.records]
    lines = b"".join(orjson.dumps(record) + b"\n" for record in records)
    base.with_suffix(".ndjson").write_bytes(lines)
    _decode(base.with_suffix(".ndjson"))
    calls, replies = asks_of(records), replies_of(records)
    if calls:
        told = [plain(decision) for decision in decisions]
        answers = [{"decision": decision, "reply": reply} for decision, reply in zip(told, replies, strict=False)]
        save(base.with_suffix(".approval-call.json"), calls)
        save(base.with_suffix(".reply.json"), clean(answers, words))
    meta = {
        "version": version,
        "command": clean(list(tape.argv), words),
        "recorded": datetime.now(UTC).date().isoformat(),
        "by": "tests/live/record.py",
        "prompt": scenario.prompt,
        "script": [
            attrs.asdict(step, filter=lambda field, value: bool(value) and value != field.default)
            for step in scenario.script
        ],
    }
    save(base.with_suffix(".meta.json"), meta)
    print(f"{version} {scenario.name}: {len(records)} messages, {len(calls)} asks")


def _decode(recording: Path) -> None:
    """Write what `nucleic decode claude` makes of a recording."""
    events = replay(Plugins().backend("claude"), "claude", read_records([recording.read_bytes()]), cwd=CWD)
    save(recording.with_suffix(".events.json"), [event.to_json() for event in events])


def asks_of(records: list[JSON]) -> list[JSON]:
    """The asks of a recording as they came, over either road."""
    found = []
    for record in records:
        match record:
            case {"dir": "in", "channel": "stdout", "msg": {"type": "control_request", "request": request}}:
                found.append(request)
            case {"dir": "in", "channel": "mcp", "msg": {"method": "tools/call", "arguments": arguments}}:
                found.append(arguments)
    return found


def replies_of(records: list[JSON]) -> list[JSON]:
    """What went out for them, without the envelope."""
    found = []
    for record in records:
        match record:
            case {"dir": "out", "msg": {"type": "control_response", "response": {"response": reply}}}:
                found.append(reply)
            case {"dir": "out", "channel": "mcp", "msg": {"reply": reply}}:
                found.append(reply)
    return found


def _at(world: Path, step: Turn) -> Turn:
    """A scripted turn with the real working directory in the place of the one that is written down."""
    said = json.dumps(step.blocks).replace(str(CWD), str(world))
    return attrs.evolve(step, blocks=tuple(json.loads(said)))


def _slug(path: Path) -> str:
    """A path as the CLI names the directory of its transcripts."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(path))


def _environment(home: Path, place: Path, url: str) -> dict[str, str]:
    closed = "http://127.0.0.1:9"
    return {
        "HOME": str(home),
        "NUCLEIC_HOME": str(place / "state"),
        "PATH": os.environ["PATH"],
        "USER": "dev",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "HTTP_PROXY": closed,
        "HTTPS_PROXY": closed,
        "NO_PROXY": "127.0.0.1,localhost",
    }


def main(names: list[str]) -> int:
    """Record the named scenarios, or all, on every version."""
    if names == ["--decode"]:
        for recording in sorted(FIXTURES.glob("*/*.ndjson")):
            _decode(recording)
        return 0
    chosen = [scenario for scenario in SCENARIOS if not names or scenario.name in names]
    if not chosen:
        print(f"No scenario has one of these names: {', '.join(names)}.", file=sys.stderr)
        return 2
    for version in CLIS["claude"].versions:
        for scenario in chosen:
            trio.run(record, version, scenario)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
