"""Sessions of `codex-exec` over a scripted `codex`: what it is given, what is fetched when it has ended, how it ends early."""

import base64
import json
import os
import sys
from pathlib import Path

import pytest
import trio

from nucleic_core import open_session, run
from nucleic_core.approvals import Allow, Rule
from nucleic_core.errors import AgentGone, StartFailed, Unsupported
from nucleic_core.events import (
    AssistantText,
    Error,
    RunFinished,
    SessionStarted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    UserMessage,
)
from nucleic_core.specs import AgentInput, Image, Text

THREAD = "019c0000-0000-7000-8000-00000000aaaa"
ANY = (Rule("allow"),)

PRELUDE = f"""
import json, os, signal, stat, sys, time
from pathlib import Path
if "--version" in sys.argv:
    print("codex-cli 0.171.0"); sys.exit()
prompt = sys.stdin.read()
THREAD = {THREAD!r}
def tell(type, **fields):
    print(json.dumps({{"type": type, **fields}}), flush=True)
def flag(name):
    return next((arg.partition("=")[2] for arg in sys.argv if arg.startswith("--" + name + "=")), None)
def item(kind, **fields):
    tell("item.completed", item={{"id": "item_0", "type": kind, **fields}})
def begin():
    tell("thread.started", thread_id=THREAD); tell("turn.started")
def done(**usage):
    tell("turn.completed", usage=usage)
def rollout(*payloads):
    file = Path(os.environ["CODEX_HOME"], "sessions", "2026", "11", "30", f"rollout-2026-11-30T00-00-00-{{THREAD}}.jsonl")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        for type, payload in payloads:
            out.write(json.dumps({{"timestamp": "t", "type": type, "payload": payload}}) + chr(10))
def count(**total):
    return ("event_msg", {{"type": "token_count", "info": {{"total_token_usage": total}}}})
"""


@pytest.fixture
def codex(tmp_path, monkeypatch):
    """Writes a scripted `codex` and gives the options of a session with it."""
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "codex").mkdir()
    (tmp_path / "repo").mkdir()

    def scripted(script, **options):
        program = tmp_path / "codex-program"
        program.write_text(f"#!{sys.executable} -IS\n{PRELUDE}{script}\n")
        program.chmod(0o755)
        os.utime(program, ns=(0, len(script)))  # versions are remembered by the time of change
        settings = {"executable": str(program)}
        return {"cwd": tmp_path / "repo", "rules": ANY, "settings": settings, **options}

    return scripted


async def follow(prompt="Do it.", **options):
    with trio.fail_after(30):
        async with open_session("codex-exec", prompt, **options) as session:
            return [event.data async for event in session]


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


# -- a turn -----------------------------------------------------------------------------------------------------------


async def test_a_turn_is_told_in_order_from_the_users_message_to_the_end_of_the_run(codex):
    options = codex("begin(); item('agent_message', text='got ' + prompt); done(input_tokens=7)")
    events = await follow(**options)
    assert [type(event) for event in events if not event.kind.startswith("input")] == [
        UserMessage,
        SessionStarted,
        TurnStarted,
        AssistantText,
        type(of(events, TurnCompleted)[0].usage),
        TurnCompleted,
        RunFinished,
    ]
    assert of(events, AssistantText)[0].text == "got Do it."
    assert of(events, SessionStarted)[0].agent_version == "0.171.0"
    assert of(events, RunFinished)[0].outcome == "completed"
    assert of(events, RunFinished)[0].usage.input_tokens == 7


@pytest.mark.parametrize("_again", range(5))
async def test_a_child_that_waits_for_the_end_of_its_input_gets_it_at_once(codex, _again):  # case F5-06
    events = await follow("x" * 300_000, **codex("begin(); item('agent_message', text=str(len(prompt))); done()"))
    assert of(events, AssistantText)[0].text == "300000"


async def test_the_final_text_is_that_of_the_file_in_a_directory_that_is_ours_alone_and_goes_away(codex, tmp_path):
    script = """
begin(); done()
file = Path(flag("output-last-message"))
file.write_text(json.dumps([str(file.parent), stat.S_IMODE(file.parent.stat().st_mode)]))
"""
    result = await run("codex-exec", "Do it.", **codex(script))
    folder, mode = json.loads(result.final_text)
    assert mode == 0o700
    assert not Path(folder).exists()
    assert not list(tmp_path.glob("nucleic-codex-*"))


async def test_a_schema_and_pictures_are_given_by_file(codex):
    script = """
begin()
item("agent_message", text=json.dumps([json.loads(Path(flag("output-schema")).read_text()), Path(flag("image")).suffix,
     Path(flag("image")).read_bytes().decode()]))
done()
"""
    prompt = AgentInput((Text("Look."), Image(base64.b64decode("cGl4ZWxz"), "image/png")))
    events = await follow(prompt, **codex(script, output_schema={"type": "object"}))
    assert json.loads(of(events, AssistantText)[0].text) == [{"type": "object"}, ".png", "pixels"]


async def test_actions_that_policy_refused_stand_before_the_turns_end_and_the_run_completes(codex):
    script = """
begin()
rollout(("session_meta", {"id": THREAD}),
        ("response_item", {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"touch /x"}', "call_id": "c"}),
        ("response_item", {"type": "function_call_output", "call_id": "c", "output": "approval policy is Never; reject command"}))
print("2026-11-30T00:00:00Z ERROR codex_core::tools::router: error=patch rejected: by rules", file=sys.stderr)
done()
"""
    events = await follow(**codex(script))
    assert [error.detail["source"] for error in of(events, Error)] == [
        "codex:rollout:function_call_output",
        "codex:stderr",
    ]
    assert {error.code for error in of(events, Error)} == {"denied_by_policy"}
    assert [result.tool_call for result in of(events, ToolResult)] == ["c", "stderr:1"]
    assert events.index(of(events, Error)[-1]) < events.index(of(events, TurnCompleted)[0])
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_an_ephemeral_run_has_no_file_to_look_into_and_stderr_is_all(codex):
    script = """
begin()
rollout(("response_item", {"type": "custom_tool_call", "name": "apply_patch", "input": "", "call_id": "c"}),
        ("response_item", {"type": "custom_tool_call_output", "call_id": "c", "output": "patch rejected: x"}))
print("ERROR codex_core::tools::router: error=patch rejected: x", file=sys.stderr)
done()
"""
    events = await follow(**codex(script, ephemeral=True))
    assert [error.detail["source"] for error in of(events, Error)] == ["codex:stderr"]


# -- resume -----------------------------------------------------------------------------------------------------------


async def test_a_resumed_thread_counts_only_what_its_turn_took_and_shows_only_its_own_calls(codex):
    script = """
begin()
before = 300 if "resume" in sys.argv else 0
rollout(("response_item", {"type": "custom_tool_call", "name": "apply_patch", "input": "", "call_id": "c"}),
        ("response_item", {"type": "custom_tool_call_output", "call_id": "c", "output": "patch rejected: x"}),
        count(input_tokens=before + 300, output_tokens=9))
done(input_tokens=before + 300, output_tokens=10)
"""
    options = codex(script)
    with trio.fail_after(30):
        async with open_session("codex-exec", "One.", **options) as first:
            events = [event.data async for event in first]
        async with open_session("codex-exec", "Two.", resume=first.id, **options) as second:
            again = [event.data async for event in second]
    for turn, output in ((events, 10), (again, 1)):
        (usage,) = [end.usage for end in of(turn, TurnCompleted)]
        assert (usage.input_tokens, usage.output_tokens) == (300, output)
        assert len(of(turn, Error)) == 1
    assert second.native_id == THREAD


async def test_a_resumed_thread_whose_file_is_gone_has_unknown_figures(codex):
    options = codex("begin(); done(input_tokens=5)")
    with trio.fail_after(30):
        async with open_session("codex-exec", "One.", **options) as first:
            assert (await first.result()).usage.input_tokens == 5
        async with open_session("codex-exec", "Two.", resume=first.id, **options) as second:
            assert (await second.result()).usage.input_tokens is None


# -- ends that are none ------------------------------------------------------------------------------------------------


async def test_a_failed_turn_is_an_outcome(codex):
    script = "begin(); tell('error', message='bad'); tell('turn.failed', error={'message': 'bad'}); sys.exit(1)"
    events = await follow(**codex(script))
    assert [(error.message, error.recoverable) for error in of(events, Error)] == [("bad", False)]
    assert [(end.outcome, end.error) for end in of(events, TurnCompleted)] == [("errored", "bad")]
    assert [end.outcome for end in of(events, RunFinished)] == ["errored"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, "error: unexpected argument '--no-such-flag' found"),
        (1, "Error: thread/resume failed: no rollout found for thread id 01a00000"),
        (1, "Not inside a trusted directory and --skip-git-repo-check was not specified."),
        (1, "Error loading config.toml: invalid transport"),
    ],
)
async def test_a_process_that_ends_without_a_word_on_stdout_did_not_start_and_says_why(codex, code, words):
    with pytest.raises(StartFailed, match=f"exit code {code}") as caught:
        await follow(**codex(f"print({words!r}, file=sys.stderr); sys.exit({code})"))
    assert words in str(caught.value)


async def test_an_interrupted_turn_is_interrupted_though_codex_says_nothing_and_exits_with_1(codex):
    script = """
signal.signal(signal.SIGINT, lambda *_: sys.exit(1))
begin(); tell("item.started", item={"id": "item_0", "type": "command_execution", "command": "sleep 9", "status": "in_progress"})
time.sleep(30)
"""
    with trio.fail_after(30):
        async with open_session("codex-exec", "Sleep.", **codex(script)) as session:
            events = []
            async for event in session:
                events.append(event.data)
                if event.kind == "tool_call_completed":
                    await session.interrupt()
    assert [(end.outcome, end.error) for end in of(events, TurnCompleted)] == [("interrupted", None)]
    assert [result.synthetic for result in of(events, ToolResult)] == [True]
    assert of(events, RunFinished)[0].outcome == "interrupted"


async def test_leaving_the_block_ends_the_process_and_the_turn(codex, tmp_path):
    with trio.fail_after(30):
        async with open_session("codex-exec", "Sleep.", **codex("begin(); time.sleep(30)")) as session:
            async for event in session:
                if event.kind == "turn_started":
                    break
        assert (await session.result()).outcome == "interrupted"
    assert not list(tmp_path.glob("nucleic-codex-*"))


async def test_an_interrupt_after_the_turn_does_not_make_it_a_failure(codex):
    script = """
begin(); done()
tell("item.completed", item={"id": "item_9", "type": "error", "message": "late"})
time.sleep(0.5)
"""
    with trio.fail_after(30):
        async with open_session("codex-exec", "Do it.", **codex(script)) as session:
            async for event in session:
                if event.kind == "notice":
                    await session.interrupt()
        assert (await session.result()).outcome == "completed"


# -- one turn, and nobody to ask ---------------------------------------------------------------------------------------


async def test_a_message_while_the_turn_runs_is_refused_and_after_it_the_run_is_over(codex):
    with trio.fail_after(30):
        async with open_session(
            "codex-exec", "Do it.", keep_open=True, **codex("begin(); time.sleep(0.3); done()")
        ) as session:
            async for event in session:
                if event.kind == "turn_started":
                    with pytest.raises(Unsupported):
                        await session.send("More.")
            with pytest.raises(AgentGone):
                await session.send("More.")


async def test_nothing_is_asked_so_there_is_nothing_to_answer(codex):
    with trio.fail_after(30):
        async with open_session("codex-exec", "Do it.", **codex("begin(); done()")) as session:
            assert session.capabilities.interactive_approvals is False
            with pytest.raises(Unsupported, match="asks nothing"):
                await session.respond("any", Allow())


@pytest.mark.parametrize(
    ("options", "prompt", "why"),
    [
        ({"rules": None}, "Do it.", "use the backend codex"),
        ({}, None, "one turn and one process"),
        ({}, AgentInput((Image(b"x", "image/png"),)), "no picture without words"),
        ({"rules": (Rule("allow", "Bash", pattern="git *"),)}, "Do it.", "Rule 1 of this run"),
        ({"extra_args": ("--add-dir=/",)}, "Do it.", "is refused"),
        ({"sandbox": "danger-full-access"}, "Do it.", "leave sandbox out"),
    ],
)
async def test_what_cannot_be_held_is_refused_before_anything_starts(codex, tmp_path, options, prompt, why):
    given = codex("(Path(os.environ['CODEX_HOME']) / 'started').touch()") | options
    with pytest.raises(Unsupported, match=why):
        await follow(prompt, **given)
    assert not (tmp_path / "codex" / "started").exists()
    assert not list(tmp_path.glob("nucleic-codex-*"))
