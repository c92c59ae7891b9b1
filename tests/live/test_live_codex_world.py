"""The real codex in a bad world: a host that is killed, a process that dies, a sub-agent that runs on, a hook that is killed."""

import json
import os
import signal
import sys
import uuid

import pytest
import trio
from responses_api import command, function, script, turn
from world import CODE_MODEL, follow, marked, of, running

from nucleic_core.approvals import Allow
from nucleic_core.events import ApprovalRequested, ApprovalResolved, RunFinished, TurnCompleted, TurnStarted

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")

HOST = """
import sys, json, trio, nucleic_core
from nucleic_core.approvals import Allow
from nucleic_core.events import ApprovalRequested

async def main(cwd, options):
    async with nucleic_core.open_session("codex", "Sleep.", cwd=cwd, **json.loads(options)) as session:
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                await session.respond(event.data.request.id, Allow())

trio.run(main, *sys.argv[1:])
"""
SLEEP = turn(command("echo $$ > started; while true; do sleep 0.5; done", escalated=True, yield_time_ms=30000))


@LINUX
@pytest.mark.parametrize("approvals", ["native", "hook"])
async def test_a_host_that_is_killed_leaves_no_process_behind(codex_world, approvals):
    world, mark = codex_world, uuid.uuid4().hex
    world.api.add(SLEEP, turn("Done."))
    options = {**world.options, "settings": {**world.settings, "approvals": approvals}}
    options["env"] = {**options["env"], "NUCLEIC_TEST_MARK": mark}
    line = [sys.executable, "-c", HOST, str(world.cwd), json.dumps(options)]
    async with trio.open_nursery() as inner:
        host = await inner.start(lambda task_status: trio.run_process(line, check=False, task_status=task_status))
        with trio.fail_after(60):
            while not (world.cwd / "started").exists():
                await trio.sleep(0.1)
        assert any("codex" in command_line for command_line in marked(mark))
        os.kill(host.pid, signal.SIGKILL)
    with trio.move_on_after(20):
        while marked(mark):
            await trio.sleep(0.2)
    assert marked(mark) == []


@LINUX
async def test_leaving_the_block_in_the_midst_of_a_command_leaves_no_process_behind(codex_world):
    mark = uuid.uuid4().hex
    async with codex_world.open("Sleep.", SLEEP, env={"NUCLEIC_TEST_MARK": mark}) as session:
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                await session.respond(event.data.request.id, Allow())
                break
        while not (codex_world.cwd / "started").exists():
            await trio.sleep(0.1)
        assert marked(mark)
    assert marked(mark) == []


@LINUX
@pytest.mark.parametrize("approvals", ["native", "hook"])
async def test_a_killed_cli_ends_the_run_as_failed_and_the_session_can_be_resumed(codex_world, approvals):
    asking = turn(command("touch made.txt", escalated=True))
    options = {"settings": {"approvals": approvals}}
    async with codex_world.open("Touch.", asking, **options) as session:
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                for pid in running(codex_world.program, codex_world.cwd):
                    os.kill(pid, signal.SIGKILL)
        result = await session.result()
    assert result.outcome == "errored"
    assert "SIGKILL" in result.error
    assert session.open_asks == ()
    assert not (codex_world.cwd / "made.txt").exists()
    async with codex_world.open("Again.", turn("Here."), resume=session.id, **options) as again:
        events = await follow(again)
    assert of(events, RunFinished)[0].outcome == "completed"


@LINUX
async def test_a_hook_that_is_killed_takes_its_ask_back_and_leaves_the_sandbox_to_hold(codex_world):
    """Codex lets the call go on then, within its sandbox: docs/security.md says so."""
    step = turn(command("touch made.txt"))
    options = {"settings": {"approvals": "hook"}, "sandbox": "read-only"}
    mark = uuid.uuid4().hex
    async with codex_world.open("Go.", step, turn("Done."), env={"NUCLEIC_TEST_MARK": mark}, **options) as session:
        events = []
        async for event in session:
            events.append(event)
            if isinstance(event.data, ApprovalRequested):
                for pid in hooks_of(mark):
                    os.kill(pid, signal.SIGKILL)
    assert next(done.cause for done in of(events, ApprovalResolved)) == "withdrawn"
    assert not (codex_world.cwd / "made.txt").exists()


def hooks_of(mark):
    """The processes of our hook program in a marked environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as env, open(f"/proc/{entry}/cmdline", "rb") as line:
                    if mark.encode() in env.read() and line.read().split(b"\0")[1:3] == [b"-I", b"-S"]:
                        found.append(int(entry))
            except OSError:
                continue
    return found


async def test_an_interrupt_stops_a_sub_agent_too(codex_world, sub_agents):
    root, child = '"agent_name":"/root"', '"agent_name":"/root/one"'
    spawn = function("spawn_agent", "collaboration", task_name="one", message="CHILD", fork_turns="none")
    endless = script('const r = await tools.exec_command({cmd: "sleep 30"}); text(r)', codex_world.version)
    steps = (
        turn(spawn, match=root),
        turn(endless, match=child),
        turn(function("wait_agent", "collaboration", timeout_ms=60000), match=root),
    )
    options = {"model": CODE_MODEL[codex_world.version], "keep_open": True, "sandbox": "workspace-write"}
    async with codex_world.open("Go.", *steps, within=30, **options) as session:
        events, ended = [], 0
        async for event in session:
            events.append(event)
            if event.parent is not None and event.kind == "tool_call_completed":
                await session.interrupt()
            ended += isinstance(event.data, TurnCompleted)
            if ended == 2:
                await session.finish()
    assert len(of(events, TurnStarted)) == 2
    assert [end.outcome for end in of(events, TurnCompleted)] == ["interrupted", "interrupted"]
