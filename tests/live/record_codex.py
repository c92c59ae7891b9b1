"""Records the fixtures of the codex app-server: every scenario below, on every pinned version, against the scripted model.

    python tests/live/record_codex.py [NAME ...]        such as 05-allow; without names all of them
    python tests/live/record_codex.py --decode          only write the events anew, from what was recorded: needs no CLI

Written are, under `fixtures/codex-appserver/<version>/`:

    NN-name.jsonrpc        the messages as the decoder got them, {"dir": "in" | "out", "channel", "msg"} a line
    NN-name.events.json    what `nucleic decode codex` makes of them
    NN-name.reply.json     what was decided for each ask, in order, and the reply that went out
    NN-name.meta.json      where it comes from: version, command line, date, what was scripted

and, under `fixtures/codex-hooks/<version>/`, NN-name.json with the payloads that the PreToolUse hook was given.
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
from nucleic_codex.app_server import plugin
from nucleic_codex.app_server.decode import AppServerDecoder
from nucleic_codex.app_server.driver import AppServerDriver
from recording import CWD, HOME, JSON, Tape, clean, repository, save
from responses_api import (
    Turn,
    adding,
    changing,
    command,
    failure,
    function,
    patch,
    reasoning,
    script,
    search,
    serving,
    text,
    turn,
)
from world import CODE_MODEL, FUNCTION_MODEL, codex_options

import nucleic_core
from nucleic_core._plugins import Plugins
from nucleic_core._session.replay import read_records, replay
from nucleic_core.approvals import Allow, AllowAlways, Answers, CancelRun, Deny
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    QuestionAnswered,
    QuestionAsked,
    TurnCompleted,
    TurnStarted,
    plain,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"
ALLOW = Allow()
EVERY = CLIS["codex"].versions

Body = Callable[[nucleic_core.Session], Awaitable[None]]


@attrs.frozen
class Scenario:
    """One run: what the model says, how asks are answered, and what the host does beside that.

    `body` follows the session to its end; `options` are those of `open_session`. `code_mode`: with a model in code mode,
    whose `steps` are made for a version. `versions` that can play it. `before`: a run that is resumed by this one.
    """

    name: str
    steps: tuple[Turn, ...] | Callable[[str], tuple[Turn, ...]]
    prompt: str = "Do it."
    body: Body | None = None
    decision: Any = ALLOW
    options: dict[str, Any] = attrs.field(factory=dict)
    code_mode: bool = False
    versions: tuple[str, ...] = EVERY
    before: tuple[Turn, ...] = ()


async def until_end(session: nucleic_core.Session, decision: Any) -> None:
    """Follow a session, with this decision for every ask and the last option for every question."""
    async for event in session:
        match event.data:
            case ApprovalRequested(request=request) if decision is not None:
                await session.respond(request.id, decision)
            case QuestionAsked(question=question):
                chosen = {item.id: item.options[-1][0] for item in question.questions}
                await session.respond(question.id, Answers(chosen))


def interrupting(at: type[Any]) -> Body:
    """Interrupt at the first event of a kind."""

    async def body(session: nucleic_core.Session) -> None:
        interrupted = False
        async for event in session:
            if isinstance(event.data, at) and not interrupted:
                interrupted = True
                await session.interrupt()
            if isinstance(event.data, TurnCompleted) and event.parent is None:
                await session.finish()

    return body


def sending(at: type[Any], *, steer: bool, turns: int) -> Body:
    """Send a message at the first event of a kind."""

    async def body(session: nucleic_core.Session) -> None:
        left, sent = turns, False
        async for event in session:
            if isinstance(event.data, at) and not sent:
                sent = True
                await session.send("And tell me the time.", steer=steer)
            if isinstance(event.data, ApprovalRequested):
                await session.respond(event.data.request.id, ALLOW)
            left -= isinstance(event.data, TurnCompleted)
            if left == 0:
                await session.finish()

    return body


ESCALATED = 'sandbox_permissions: "require_escalated", justification: "May I?"'
TOUCH = turn(text("I make the file.", "commentary"), command("touch made.txt", escalated=True))
EDIT = turn(patch(changing("README.md", "hello", "hello there")))
NOTE = turn(function("note", "mcp__notes", text="one"))
QUESTION = {
    "id": "colour",
    "header": "Colour",
    "question": "Which colour?",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
}
ROOT, CHILD = '"agent_name":"/root"', '"agent_name":"/root/one"'
SPAWN = function("spawn_agent", "collaboration", task_name="one", message="CHILD", fork_turns="none")
PLAN = [{"step": "Look", "status": "completed"}, {"step": "Write", "status": "in_progress"}]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
QUIET: dict[str, Any] = {"partials": False}
READ_ONLY: dict[str, Any] = {"partials": False, "sandbox": "read-only"}
WRITABLE: dict[str, Any] = {"partials": False, "sandbox": "workspace-write"}
OPEN: dict[str, Any] = {"keep_open": True}
HOOKED: dict[str, Any] = {**WRITABLE, "settings": {"approvals": "hook"}}
ASKING: dict[str, Any] = {**QUIET, "extra_args": ("--enable", "default_mode_request_user_input")}


def in_code(code: str) -> Callable[[str], tuple[Turn, ...]]:
    """A script of code mode, and the last word."""
    return lambda version: (turn(script(code, version)), turn("Done."))


SCENARIOS = (
    Scenario("01-text", (turn(text("Hello! The demo project has one README.", "final_answer")),), options=QUIET),
    Scenario("02-reasoning", (turn(reasoning("**Plan** look", "then answer", raw="hm"), "Hello!"),), options=QUIET),
    Scenario("03-partials", (turn(reasoning("Think."), "Some words that take a while."),)),
    Scenario("04-command", (turn(command("sleep 0.3; echo out; echo err >&2; exit 3")), turn("It failed."))),
    Scenario("05-allow", (TOUCH, turn("Done.")), options=QUIET),
    Scenario("06-deny", (TOUCH, turn("I see.")), decision=Deny("not on a Friday"), options=QUIET),
    Scenario("07-cancel", (TOUCH,), decision=CancelRun("enough"), options=QUIET),
    Scenario("08-always", (TOUCH, TOUCH, turn("Done.")), decision=AllowAlways("session"), options=QUIET),
    Scenario(
        "09-parallel",
        (
            turn(command("touch made.txt", escalated=True), command("touch other.txt", escalated=True)),
            turn("I see."),
        ),
        decision=Deny("private"),
        options=QUIET,
    ),
    Scenario("10-patch-allow", (EDIT, turn("Done.")), options=READ_ONLY),
    Scenario("11-patch-deny", (EDIT, turn("I see.")), decision=Deny("no"), options=READ_ONLY),
    Scenario("12-patch-cancel", (EDIT,), decision=CancelRun("enough"), options=READ_ONLY),
    Scenario("13-patch-unasked", (turn(patch(adding("new.txt", "one", "two"))), turn("Done.")), options=WRITABLE),
    Scenario(
        "14-code-command",
        in_code(f'const r = await tools.exec_command({{cmd: "touch made.txt", {ESCALATED}}}); text(r)'),
        options=QUIET,
        code_mode=True,
    ),
    Scenario(
        "15-code-patch",
        in_code(f"const r = await tools.apply_patch({json.dumps(adding('new.txt', 'one'))}); text(r)"),
        options=READ_ONLY,
        code_mode=True,
    ),
    Scenario("16-mcp-allow", (NOTE, turn("Done.")), options={**QUIET, "mcp_config": True}),
    Scenario("17-mcp-deny", (NOTE, turn("I see.")), decision=Deny("no"), options={**QUIET, "mcp_config": True}),
    Scenario(
        "18-mcp-always", (NOTE, turn("Done.")), decision=AllowAlways("session"), options={**QUIET, "mcp_config": True}
    ),
    Scenario(
        "19-mcp-cancel", (NOTE, turn("Never.")), decision=CancelRun("enough"), options={**QUIET, "mcp_config": True}
    ),
    Scenario(
        "20-question", (turn(function("request_user_input", questions=[QUESTION])), turn("Blue.")), options=ASKING
    ),
    Scenario("21-interrupt", (turn("I wait", end="hang"),), body=interrupting(AssistantText), options=OPEN),
    Scenario("22-interrupt-ask", (TOUCH,), body=interrupting(ApprovalRequested), options=OPEN),
    Scenario(
        "23-queue",
        (turn("One thing.", chunk=2, chunk_delay=0.1), turn("Noon.")),
        body=sending(TurnStarted, steer=False, turns=2),
        options=OPEN,
    ),
    Scenario("24-steer", (TOUCH, turn("Noon.")), body=sending(ApprovalRequested, steer=True, turns=1), options=OPEN),
    Scenario("25-resume", (turn("Two."),), before=(turn("One."),), options=QUIET),
    Scenario("26-fork", (turn("Two."),), before=(turn("One."),), options={**QUIET, "fork": True}),
    Scenario(
        "27-sub-agent",
        lambda version: (
            turn(SPAWN, match=ROOT),
            turn(
                script(f'const r = await tools.exec_command({{cmd: "touch made.txt", {ESCALATED}}}); text(r)', version),
                match=CHILD,
            ),
            turn("The job is done.", match=CHILD),
            turn(function("wait_agent", "collaboration", timeout_ms=10000), match=ROOT),
            turn("All done.", match=ROOT),
            turn("All done again.", match=ROOT),
        ),
        options=QUIET,
        code_mode=True,
        versions=("0.171.0",),
    ),
    Scenario("28-stream-cut", (turn("Half a", end="cut"), turn("A whole answer.")), options=QUIET),
    Scenario("29-refused-key", (failure(401, "invalid_api_key", "wrong key"),) * 9, options=QUIET),
    Scenario("30-retry", (failure(500, "server_error", "sorry"),) * 3 + (turn("Done."),), options=QUIET),
    Scenario("31-schema", (turn('{"n": 3}'),), options={**QUIET, "output_schema": SCHEMA}),
    Scenario("32-search", (turn(search("the weather"), "Sunny."),), options=QUIET),
    Scenario(
        "33-plan",
        (turn(function("update_plan", plan=PLAN)), turn("Planned.")),
        options=QUIET,
        versions=("0.141.0", "0.146.0"),
    ),
    Scenario("40-hook-allow", (TOUCH, turn("Done.")), options=HOOKED),
    Scenario("41-hook-deny", (TOUCH, turn("I see.")), decision=Deny("not on a Friday"), options=HOOKED),
    Scenario("42-hook-edit", (TOUCH, turn("Done.")), decision=Allow({"command": "touch other.txt"}), options=HOOKED),
    Scenario("43-hook-patch", (EDIT, turn("Done.")), options={**HOOKED, **READ_ONLY}),
    Scenario("44-hook-cancel", (TOUCH,), decision=CancelRun("enough"), options=HOOKED),
    Scenario(
        "45-hook-code",
        in_code(f"const r = await tools.apply_patch({json.dumps(adding('new.txt', 'one'))}); text(r)"),
        decision=Deny("not on a Friday"),
        options=HOOKED,
        code_mode=True,
    ),
)


async def record(version: str, scenario: Scenario) -> None:
    """Play one scenario and write its files."""
    program = fetch("codex", version)
    model = CODE_MODEL[version] if scenario.code_mode else FUNCTION_MODEL
    steps = scenario.steps if isinstance(scenario.steps, tuple) else scenario.steps(version)
    tape, decisions = Tape(), []
    with tempfile.TemporaryDirectory(prefix="nucleic-record-") as place:
        world, home, tmp = Path(place, "demo"), Path(place, "home"), Path(place, "tmp")
        repository(world)
        home.mkdir()
        tmp.mkdir()
        async with serving(*scenario.before, *steps) as api:
            options = _options(scenario, codex_options(api.base_url, tmp, model), Path(place))
            options["settings"] = {"executable": str(program), **options.get("settings", {})}
            with (
                mock.patch.dict(os.environ, _environment(home, Path(place)), clear=True),
                mock.patch.object(plugin, "AppServerDecoder", tape.recording(AppServerDecoder)),
                mock.patch.object(plugin, "AppServerDriver", tape.watching(AppServerDriver)),
                trio.fail_after(90),
            ):
                fork = options.pop("fork", False)
                resume = None
                if scenario.before:
                    async with nucleic_core.open_session("codex", "Begin.", cwd=world, **options) as first:
                        await until_end(first, ALLOW)
                    tape.records.clear()
                    resume = first.id
                async with nucleic_core.open_session(
                    "codex", scenario.prompt, cwd=world, resume=resume, fork=fork, **options
                ) as session:
                    await (scenario.body(session) if scenario.body else until_end(session, scenario.decision))
                decisions = [
                    event.data.decision
                    async for event in session.events()
                    if isinstance(event.data, ApprovalResolved | QuestionAnswered) and event.data.cause == "answered"
                ]
        words = {str(world): str(CWD), str(home): str(HOME), place: "/work", str(program): "codex"}
        words |= {str(Path(sys.executable)): "/usr/bin/python3"}
        write(version, scenario, tape, decisions, words)


def write(version: str, scenario: Scenario, tape: Tape, decisions: list[JSON], words: dict[str, str]) -> None:
    """The files of one recording."""
    folder = FIXTURES / "codex-appserver" / version
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / scenario.name
    records = [_anonymous(clean(record, words)) for record in tape.records]
    recording = base.with_suffix(".jsonrpc")
    recording.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    decode(recording)
    replies = replies_of(records)
    if replies and decisions:
        answers = [
            {"decision": clean(plain(decision), words), "reply": reply}
            for decision, reply in zip(decisions, replies, strict=False)
        ]
        save(base.with_suffix(".reply.json"), answers)
    if hooked := [record["msg"]["call"] for record in records if "call" in record["msg"]]:
        hooks = FIXTURES / "codex-hooks" / version
        hooks.mkdir(parents=True, exist_ok=True)
        save(hooks / f"{scenario.name}.json", hooked)
    meta = {
        "version": version,
        "command": clean([_shortened(arg) for arg in tape.argv], words),
        "recorded": datetime.now(UTC).date().isoformat(),
        "by": "tests/live/record_codex.py",
        "prompt": scenario.prompt,
    }
    save(base.with_suffix(".meta.json"), meta)
    print(f"{version} {scenario.name}: {len(records)} messages, {len(replies)} replies", flush=True)


def decode(recording: Path) -> None:
    """Write what `nucleic decode codex` makes of a recording."""
    events = replay(Plugins().backend("codex"), "codex", read_records([recording.read_bytes()]), cwd=CWD)
    save(recording.with_suffix(".events.json"), [event.to_json() for event in events])


def replies_of(records: list[JSON]) -> list[JSON]:
    """What went out for asks, in order: results of requests of the app-server's, verdicts for the hook."""
    found = []
    for record in records:
        match record:
            case {"dir": "out", "channel": "stdin", "msg": {"id": _, "result": result}}:
                found.append(result)
            case {"dir": "out", "channel": "hook", "msg": {"verdict": verdict}}:
                found.append(verdict)
    return found


def _anonymous(record: JSON) -> JSON:
    """A record without what tells the machine: its system, the id that the CLI gave its installation."""
    said = json.dumps(record)
    said = re.sub(r'("userAgent": "nucleic/[\d.]+) \([^"]*"', r'\1 (Linux; x86_64)"', said)
    said = re.sub(r'("installationId": )"[^"]*"', r'\1"00000000-0000-0000-0000-000000000000"', said)
    return json.loads(said)


def _shortened(arg: str) -> str:
    """An argument without the text of the hook program."""
    return "hooks.PreToolUse=[...]" if arg.startswith("hooks.PreToolUse=") else arg


def _options(scenario: Scenario, base: dict[str, Any], place: Path) -> dict[str, Any]:
    """The options of the session: those of every run of Codex, and the scenario's own."""
    options = {**base, **scenario.options}
    options["extra_args"] = (*base["extra_args"], *scenario.options.get("extra_args", ()))
    if options.pop("mcp_config", None):
        server = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_notes.py"))]}
        (place / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": server}}))
        options["mcp_config"] = place / "mcp.json"
    return options


def _environment(home: Path, place: Path) -> dict[str, str]:
    closed = "http://127.0.0.1:9"
    return {
        "HOME": str(home),
        "NUCLEIC_HOME": str(place / "state"),
        "PATH": os.environ["PATH"],
        "USER": "dev",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "HTTP_PROXY": closed,
        "HTTPS_PROXY": closed,
        "NO_PROXY": "127.0.0.1,localhost",
    }


def main(names: list[str]) -> int:
    """Record the named scenarios, or all, on every version that can play them."""
    if names == ["--decode"]:
        for recording in sorted((FIXTURES / "codex-appserver").glob("*/*.jsonrpc")):
            decode(recording)
        return 0
    chosen = [scenario for scenario in SCENARIOS if not names or scenario.name in names]
    if not chosen:
        print(f"No scenario has one of these names: {', '.join(names)}.", file=sys.stderr)
        return 2
    for version in EVERY:
        for scenario in chosen:
            if version in scenario.versions and (not scenario.code_mode or version in CODE_MODEL):
                trio.run(record, version, scenario)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
