"""Records the fixtures of `codex exec`: every scenario below, on every pinned version, against the scripted model.

    python tests/live/record_codex_exec.py [NAME ...]       such as 05-refused; without names all of them
    python tests/live/record_codex_exec.py --decode         only write the events anew, from what was recorded: needs no CLI

Written are, under `fixtures/codex-exec/<version>/`:

    NN-name.jsonl          the messages as the decoder got them, {"dir": "in", "channel", "msg"} a line
    NN-name.events.json    what `nucleic decode codex-exec` makes of them
    NN-name.meta.json      where it comes from: version, command line, date, prompt

A recording holds no path of the machine it was made on: the working directory is /work/demo, the home /home/dev.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import orjson
import trio
from fetch import CLIS, fetch
from nucleic_codex.exec import plugin
from nucleic_codex.exec.decode import ExecDecoder
from nucleic_codex.exec.driver import ExecDriver
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
    turn,
)
from world import CODE_MODEL, FUNCTION_MODEL, codex_options

import nucleic_core
from nucleic_core._plugins import Plugins
from nucleic_core._session.replay import read_records, replay
from nucleic_core.approvals import Rule
from nucleic_core.events import ToolCallCompleted

FIXTURES = Path(__file__).parents[2] / "fixtures" / "codex-exec"
EVERY = CLIS["codex"].versions
WRITE = (Rule("allow", path="**"),)
READ = (Rule("allow", max_risk="read_only"),)
ALL = (Rule("allow", max_risk="unknown"),)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
ESCALATED = turn(command("touch /srv/made.txt", escalated=True))
PLAN = [{"step": "one", "status": "completed"}, {"step": "two", "status": "pending"}]


@attrs.frozen
class Scenario:
    """One run: what the model says, and the options of `open_session`. `before`: the turns of an earlier run of its thread.

    `interrupt`: at the first tool call. `notes`: the user's settings have the MCP server of that name.
    """

    name: str
    steps: tuple[Turn, ...] | Callable[[str], tuple[Turn, ...]]
    before: tuple[Turn, ...] = ()
    fork: bool = False
    interrupt: bool = False
    notes: bool = False
    code_mode: bool = False
    options: dict[str, Any] = attrs.field(factory=dict)
    versions: tuple[str, ...] = EVERY


def _scripts(version: str) -> tuple[Turn, ...]:
    ran = 'text(await tools.exec_command({cmd: "echo hi; exit 3"}))'
    asked = 'text(await tools.exec_command({cmd: "ls", sandbox_permissions: "require_escalated", justification: "x"}))'
    return (turn(script(ran, version)), turn(script(asked, version)), turn("Done."))


SCENARIOS = (
    Scenario("01-text", (turn("Hello! The demo has one README."),)),
    Scenario(
        "02-commands",
        (
            turn(reasoning("**Plan** look", "then act"), "Working.", command("cat README.md")),
            turn(command("echo bad; exit 3"), command("sleep 0.4; echo slow")),
            turn("Done."),
        ),
    ),
    Scenario(
        "03-patches",
        (
            turn(patch(changing("README.md", "hello", "hello there"))),
            turn(patch(adding("new.txt", "one"))),
            turn(patch("*** Begin Patch\n*** Delete File: README.md\n*** End Patch\n")),
            turn(patch(changing("new.txt", "no such line", "x"))),
            turn("Written."),
        ),
    ),
    Scenario(
        "04-search",
        (turn(search("codex exec")), turn("Found.")),
        options={"rules": (*WRITE, Rule("allow", "WebSearch", max_risk="network"))},
    ),
    Scenario(
        "05-refused",
        (ESCALATED, turn(patch(adding("/srv/outside.txt", "x"))), turn(command("rm -rf .git")), turn("I see.")),
    ),
    Scenario("06-read-only", (turn(patch(adding("new.txt", "x"))), turn("I see.")), options={"rules": READ}),
    Scenario("07-unseen", (turn(command("touch /srv/x")), turn(command("touch made.txt")), turn("I see."))),
    Scenario("08-ephemeral", (ESCALATED, turn("I see.")), options={"ephemeral": True}),
    Scenario("09-failed", (failure(400, "bad_request", "the model is odd"),) * 3),
    Scenario("10-retried", (turn("partial", end="cut"), turn("ok"))),
    Scenario("11-overloaded", (failure(500, "server_error", "busy"),) * 20),
    Scenario("12-resume", (turn(command("ls")), turn("Second.")), before=(turn("First."),)),
    Scenario("13-fork", (turn("Forked."),), before=(turn("First."),), fork=True, versions=EVERY[-1:]),
    Scenario("14-interrupt", (turn(command("sleep 30", yield_time_ms=30000)),), interrupt=True),
    Scenario("15-schema", (turn('{"n": 1}'),), options={"output_schema": SCHEMA}),
    Scenario("16-background", (turn(command("sleep 20", yield_time_ms=300)), turn("It runs."))),
    Scenario("17-plan", (turn(function("update_plan", plan=PLAN)), turn("Planned."))),
    Scenario("18-code-mode", _scripts, code_mode=True),
    Scenario(
        "19-mcp",
        (turn(function("note", "mcp__notes", text="hi")), turn("Noted.")),
        notes=True,
        options={"rules": ALL},
    ),
)


async def record(version: str, scenario: Scenario) -> None:
    """Play one scenario and write its files."""
    program = fetch("codex", version)
    model = CODE_MODEL[version] if scenario.code_mode else FUNCTION_MODEL
    steps = scenario.steps if isinstance(scenario.steps, tuple) else scenario.steps(version)
    tape = Tape()
    with tempfile.TemporaryDirectory(prefix="nucleic-record-") as place:
        world, home, tmp = Path(place, "demo"), Path(place, "home"), Path(place, "tmp")
        repository(world)
        tmp.mkdir()
        (home / ".codex").mkdir(parents=True)
        if scenario.notes:
            notes = Path(__file__).with_name("mcp_notes.py")
            server = f'[mcp_servers.notes]\ncommand = "{sys.executable}"\nargs = ["{notes}"]\n'
            (home / ".codex" / "config.toml").write_text(server)
        async with serving(*scenario.before, *steps) as api:
            options = {**codex_options(api.base_url, tmp, model), "rules": WRITE, **scenario.options}
            options["settings"] = {"executable": str(program)}
            with (
                mock.patch.dict(os.environ, _environment(home, Path(place)), clear=True),
                mock.patch.object(plugin, "ExecDecoder", tape.recording(ExecDecoder)),
                mock.patch.object(plugin, "ExecDriver", tape.watching(ExecDriver)),
                trio.fail_after(90),
            ):
                resume = None
                if scenario.before:
                    async with nucleic_core.open_session("codex-exec", "Begin.", cwd=world, **options) as first:
                        await first.result()
                    tape.records.clear()
                    resume = first.id
                async with nucleic_core.open_session(
                    "codex-exec", "Do it.", cwd=world, resume=resume, fork=scenario.fork, **options
                ) as session:
                    async for event in session:
                        if scenario.interrupt and isinstance(event.data, ToolCallCompleted):
                            await session.interrupt()
        words = {str(world): str(CWD), str(home): str(HOME), place: "/work", str(program): "codex"}
        for arg in tape.argv:
            if arg.startswith("--output-last-message="):
                words[str(Path(arg.partition("=")[2]).parent)] = "/work/own"
        write(version, scenario, tape, words)


def write(version: str, scenario: Scenario, tape: Tape, words: dict[str, str]) -> None:
    """The files of one recording."""
    folder = FIXTURES / version
    folder.mkdir(parents=True, exist_ok=True)
    recording = folder / f"{scenario.name}.jsonl"
    records = [clean(record, words) for record in tape.records]
    recording.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    decode(recording)
    meta = {
        "version": version,
        "command": clean(list(tape.argv), words),
        "recorded": datetime.now(UTC).date().isoformat(),
        "by": "tests/live/record_codex_exec.py",
        "prompt": "Do it.",
    }
    save(recording.with_suffix(".meta.json"), meta)
    print(f"{version} {scenario.name}: {len(records)} messages", flush=True)


def decode(recording: Path) -> None:
    """Write what `nucleic decode codex-exec` makes of a recording."""
    events = replay(Plugins().backend("codex-exec"), "codex-exec", read_records([recording.read_bytes()]), cwd=CWD)
    save(recording.with_suffix(".events.json"), [event.to_json() for event in events])


def _environment(home: Path, place: Path) -> dict[str, JSON]:
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
        for recording in sorted(FIXTURES.glob("*/*.jsonl")):
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
