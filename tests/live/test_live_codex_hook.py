"""The real codex with our hook: given and trusted by `-c` alone, asked before every command and patch."""

import pytest
from responses_api import adding, changing, command, patch, script, turn
from world import CODE_MODEL, follow, of

from nucleic_core.approvals import Allow, AllowAlways, CancelRun, Deny
from nucleic_core.errors import StartFailed, Unsupported
from nucleic_core.events import ApprovalRequested, RunFinished, ToolResult

HOOK = {"approvals": "hook"}
ECHO = turn(command("echo one > made.txt"))


def open_hooked(world, *steps, **options):
    return world.open("Go.", *steps, settings=HOOK, **{"sandbox": "workspace-write", **options})


async def test_a_command_that_the_sandbox_would_let_through_is_asked_and_runs_when_allowed(codex_world):
    async with open_hooked(codex_world, ECHO, turn("Done.")) as session:
        events = await follow(session, lambda ask: Allow())
    (ask,) = of(events, ApprovalRequested)
    assert (ask.request.tool, ask.request.command) == ("Bash", "echo one > made.txt")
    assert (codex_world.cwd / "made.txt").read_text() == "one\n"
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_a_denied_command_does_not_run_and_the_model_is_told_why(codex_world):
    async with open_hooked(codex_world, ECHO, turn("I see.")) as session:
        events = await follow(session, lambda ask: Deny("not on a Friday"))
    assert not (codex_world.cwd / "made.txt").exists()
    assert "not on a Friday" in codex_world.api.told()["call_01"]
    assert [result.is_error for result in of(events, ToolResult)] == [True]
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_an_edited_command_runs_in_place_of_the_models(codex_world):
    async with open_hooked(codex_world, ECHO, turn("Done.")) as session:
        await follow(session, lambda ask: Allow({"command": "echo two > made.txt"}))
    assert (codex_world.cwd / "made.txt").read_text() == "two\n"


async def test_an_edited_patch_is_applied_in_place_of_the_models(codex_world):
    step = turn(patch(adding("new.txt", "one")))
    async with open_hooked(codex_world, step, turn("Done.")) as session:
        events = await follow(session, lambda ask: Allow({"command": adding("new.txt", "two")}))
    (ask,) = of(events, ApprovalRequested)
    assert ask.request.tool == "Edit"
    assert (codex_world.cwd / "new.txt").read_text() == "two\n"


async def test_a_cancelled_run_ends_the_turn(codex_world):
    async with open_hooked(codex_world, ECHO, turn("Never.")) as session:
        events = await follow(session, lambda ask: CancelRun("enough"))
    assert not (codex_world.cwd / "made.txt").exists()
    assert of(events, RunFinished)[0].outcome == "cancelled"


@pytest.mark.parametrize("decision", [Allow(), AllowAlways("session"), Allow({"command": "touch made.txt other.txt"})])
async def test_what_codex_asks_for_the_same_command_is_answered_from_the_hooks_decision(codex_world, decision):
    step = turn(command("touch made.txt", escalated=True))
    async with open_hooked(codex_world, step, turn("Done.")) as session:
        events = await follow(session, lambda ask: decision)
    assert len(of(events, ApprovalRequested)) == 1
    assert (codex_world.cwd / "made.txt").exists()
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_what_codex_asks_for_the_same_patch_is_answered_from_the_hooks_decision(codex_world):
    step = turn(patch(changing("README.md", "hello", "hello there")))
    async with open_hooked(codex_world, step, turn("Done."), sandbox="read-only") as session:
        events = await follow(session, lambda ask: Allow())
    assert len(of(events, ApprovalRequested)) == 1
    assert "hello there" in (codex_world.cwd / "README.md").read_text()


async def test_the_hook_is_asked_inside_a_script_of_code_mode(codex_world, code_mode):
    code = 'const r = await tools.exec_command({cmd: "echo one > made.txt"}); text(r)'
    step, model = turn(script(code, codex_world.version)), CODE_MODEL[codex_world.version]
    async with open_hooked(codex_world, step, turn("Done."), model=model) as session:
        events = await follow(session, lambda ask: Deny("not on a Friday"))
    assert len(of(events, ApprovalRequested)) == 1
    assert not (codex_world.cwd / "made.txt").exists()
    assert "not on a Friday" in str(codex_world.api.told())


async def test_without_the_hook_an_edit_is_refused_and_with_it_declared(codex_world):
    async with open_hooked(codex_world, turn("Hi.")) as session:
        assert session.capabilities.can_modify_tool_input
        assert session.capabilities.edit_gate == "hook"
        await follow(session)


async def test_a_session_does_not_start_when_codex_would_not_run_the_hook(codex_world, monkeypatch):
    monkeypatch.setattr("nucleic_codex.hook.trusted_hash", lambda group: "sha256:00")
    with pytest.raises(StartFailed, match="would not run Nucleic's hook"):
        async with open_hooked(codex_world):
            pass


@pytest.mark.parametrize("arg", ["features.hooks=false", "features={hooks=false}", "hooks={}"])
async def test_a_run_cannot_switch_the_hook_off(codex_world, arg):
    with pytest.raises(Unsupported):
        async with open_hooked(codex_world, extra_args=("-c", arg)):
            pass


async def test_a_hook_that_cannot_reach_its_host_denies(codex_world, monkeypatch):
    monkeypatch.setattr("nucleic_codex.hook.HookServer.env", property(lambda server: {"NUCLEIC_HOOK_SOCKET": "/gone"}))
    async with open_hooked(codex_world, ECHO, turn("I see.")) as session:
        events = await follow(session)
    assert of(events, ApprovalRequested) == []
    assert not (codex_world.cwd / "made.txt").exists()
    assert "could not be asked" in codex_world.api.told()["call_01"]


async def test_an_interrupt_closes_what_the_hook_asked(codex_world):
    async with open_hooked(codex_world, ECHO, keep_open=True) as session:
        events = []
        async for event in session:
            events.append(event)
            if isinstance(event.data, ApprovalRequested):
                await session.interrupt()
            if event.kind == "turn_completed":
                await session.finish()
    assert not (codex_world.cwd / "made.txt").exists()
    assert session.open_asks == ()
