"""The real codex app-server asks, and gets every answer: commands, patches, MCP tools, questions, sub-agents."""

import json
import sys
import tempfile
from pathlib import Path

import pytest
import trio
from fetch import cache
from responses_api import adding, changing, command, function, patch, script, turn
from world import CODE_MODEL, follow, of

from nucleic_core.approvals import Allow, AllowAlways, Answers, CancelRun, Deny
from nucleic_core.errors import Unsupported
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    FileChange,
    QuestionAsked,
    RunFinished,
    ToolCallCompleted,
    ToolResult,
    TurnCompleted,
)

ELSEWHERE = cache()
"""A place outside the temporary directory; asked for before a test gets a home of its own."""

TOUCH = turn(command("touch made.txt", escalated=True))


def made(world):
    return (world.cwd / "made.txt").exists()


async def test_an_allowed_command_runs_and_the_model_is_told(codex_world):
    async with codex_world.open("Touch.", TOUCH, turn("Done.")) as session:
        events = await follow(session, lambda ask: Allow())
    (ask,) = of(events, ApprovalRequested)
    assert ask.request.tool == "Bash"
    assert "touch made.txt" in ask.request.command
    assert made(codex_world)
    assert "exited with code 0" in codex_world.api.told()["call_01"]
    assert [result.is_error for result in of(events, ToolResult)] == [False]
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_a_denied_command_does_not_run_and_the_agent_goes_on(codex_world):
    async with codex_world.open("Touch.", TOUCH, turn("I see.")) as session:
        events = await follow(session, lambda ask: Deny("not on a Friday"))
    assert not made(codex_world)
    assert "rejected" in codex_world.api.told()["call_01"]
    assert [result.is_error for result in of(events, ToolResult)] == [True]
    assert of(events, RunFinished)[0].outcome == "completed"


async def test_a_cancelled_run_ends_the_turn_without_another_word_of_the_model(codex_world):
    async with codex_world.open("Touch.", TOUCH, turn("Never.")) as session:
        events = await follow(session, lambda ask: CancelRun("enough"))
    assert not made(codex_world)
    assert of(events, RunFinished)[0].outcome == "cancelled"
    assert len(codex_world.api.requests) == 1


async def test_what_is_allowed_always_is_not_asked_again_and_nothing_else_is_covered(codex_world):
    other = turn(command("touch other.txt", escalated=True))
    async with codex_world.open("Touch.", TOUCH, TOUCH, other, turn("Done.")) as session:
        events = await follow(session, lambda ask: AllowAlways("session"))
    asked = [ask.request.command for ask in of(events, ApprovalRequested)]
    people = [done for done in of(events, ApprovalResolved) if done.decided_by == "api"]
    assert len(people) == 2
    assert "made.txt" in asked[0]
    assert "other.txt" in asked[-1]
    assert not (codex_world.home / ".codex" / "rules").exists()


async def test_an_edited_command_is_refused_where_the_wire_cannot_take_it(codex_world):
    async with codex_world.open("Touch.", TOUCH, turn("Done.")) as session:
        async for event in session:
            if isinstance(event.data, ApprovalRequested):
                with pytest.raises(Unsupported):
                    await session.respond(event.data.request.id, Allow({"command": "touch other.txt"}))
                await session.respond(event.data.request.id, Deny("then not"))
    assert not made(codex_world)


async def test_two_asks_at_once_are_answered_each_on_its_own(codex_world):
    both = turn(command("touch made.txt", escalated=True), command("touch other.txt", escalated=True))

    def decide(ask):
        return Allow() if "made.txt" in ask.request.command else Deny("no")

    async with codex_world.open("Touch.", both, turn("Done.")) as session:
        events = await follow(session, decide)
    assert len(of(events, ApprovalRequested)) == 2
    assert made(codex_world)
    assert not (codex_world.cwd / "other.txt").exists()


async def test_an_interrupt_closes_an_open_ask_and_the_session_goes_on(codex_world):
    async with codex_world.open("Touch.", TOUCH, turn("Here again."), keep_open=True) as session:
        events = []
        async for event in session:
            events.append(event)
            if isinstance(event.data, ApprovalRequested):
                await session.interrupt()
            if isinstance(event.data, TurnCompleted):
                if event.data.outcome == "completed":
                    await session.finish()
                else:
                    await session.send("And now?")
    assert not made(codex_world)
    assert [done.cause for done in of(events, ApprovalResolved)] == ["interrupted"]
    assert [end.outcome for end in of(events, TurnCompleted)] == ["interrupted", "completed"]


# -- patches -----------------------------------------------------------------------------------------------------------


async def test_a_patch_in_a_read_only_sandbox_is_asked_with_its_paths_and_applied_when_allowed(codex_world):
    step = turn(patch(changing("README.md", "hello", "hello there")))
    async with codex_world.open("Edit.", step, turn("Done."), sandbox="read-only") as session:
        events = await follow(session, lambda ask: Allow())
    (ask,) = of(events, ApprovalRequested)
    assert ask.request.paths == (codex_world.cwd / "README.md",)
    assert "hello there" in (codex_world.cwd / "README.md").read_text()
    (change,) = of(events, FileChange)
    assert (change.change, change.path, change.authoritative) == ("update", str(codex_world.cwd / "README.md"), True)
    assert "+hello there" in change.diff


@pytest.mark.parametrize("decision", [Deny("no"), CancelRun("enough")])
async def test_a_patch_that_is_not_allowed_changes_nothing(codex_world, decision):
    step = turn(patch(adding("new.txt", "one")))
    async with codex_world.open("Edit.", step, turn("I see."), sandbox="read-only") as session:
        events = await follow(session, lambda ask: decision)
    assert not (codex_world.cwd / "new.txt").exists()
    assert of(events, FileChange) == []
    outcome = "cancelled" if isinstance(decision, CancelRun) else "completed"
    assert of(events, RunFinished)[0].outcome == outcome


async def test_a_patch_inside_a_writable_sandbox_is_applied_without_an_ask(codex_world):
    step = turn(patch(adding("new.txt", "one")))
    async with codex_world.open("Edit.", step, turn("Done."), sandbox="workspace-write") as session:
        events = await follow(session)
    assert of(events, ApprovalRequested) == []
    assert (codex_world.cwd / "new.txt").read_text() == "one\n"
    assert [change.change for change in of(events, FileChange)] == ["add"]


# -- code mode ---------------------------------------------------------------------------------------------------------


async def test_a_command_in_code_mode_is_asked_about_as_any_other(codex_world, code_mode):
    code = (
        'const r = await tools.exec_command({cmd: "touch made.txt", sandbox_permissions: "require_escalated", '
        'justification: "May I?"}); text(r)'
    )
    steps = (turn(script(code, codex_world.version)), turn("Done."))
    async with codex_world.open("Touch.", *steps, model=CODE_MODEL[codex_world.version]) as session:
        events = await follow(session, lambda ask: Allow())
    (ask,) = of(events, ApprovalRequested)
    assert ask.request.tool_call.startswith("exec-")
    assert made(codex_world)
    assert [call.name for call in of(events, ToolCallCompleted)] == ["Bash"]


# -- MCP, questions ----------------------------------------------------------------------------------------------------


@pytest.fixture
def mcp_config(tmp_path):
    """A server of one tool, in an MCP configuration as Claude has it."""
    servers = {"notes": {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_notes.py"))]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return tmp_path / "mcp.json"


NOTE = turn(function("note", "mcp__notes", text="one"))


@pytest.mark.parametrize("decision", [Allow(), AllowAlways("session"), Deny("no"), CancelRun("enough")])
async def test_a_tool_of_an_mcp_server_is_asked_about(codex_world, mcp_config, decision):
    async with codex_world.open("Note.", NOTE, turn("Done."), mcp_config=mcp_config) as session:
        events = await follow(session, lambda ask: decision)
    (ask,) = of(events, ApprovalRequested)
    assert ask.request.tool == "mcp__notes__note"
    allowed = isinstance(decision, Allow | AllowAlways)
    assert (codex_world.cwd / "noted.txt").exists() == allowed
    outcome = "cancelled" if isinstance(decision, CancelRun) else "completed"
    assert of(events, RunFinished)[0].outcome == outcome


async def test_a_question_of_the_model_is_answered(codex_world):
    question = {
        "id": "colour",
        "header": "Colour",
        "question": "Which colour?",
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
    }
    step = turn(function("request_user_input", questions=[question]))
    flags = ("--enable", "default_mode_request_user_input")
    async with codex_world.open("Ask.", step, turn("Blue."), extra_args=flags) as session:
        events = []
        async for event in session:
            events.append(event)
            if isinstance(event.data, QuestionAsked):
                (item,) = event.data.question.questions
                await session.respond(event.data.question.id, Answers({item.id: "Blue"}))
    assert len(of(events, QuestionAsked)) == 1
    assert "Blue" in codex_world.api.told()["call_01"]


# -- sub-agents --------------------------------------------------------------------------------------------------------


async def test_the_ask_of_a_sub_agent_is_answered_and_bears_its_parent(codex_world, sub_agents):
    root, child = '"agent_name":"/root"', '"agent_name":"/root/one"'
    spawn = function("spawn_agent", "collaboration", task_name="one", message="CHILD", fork_turns="none")
    touch = (
        'const r = await tools.exec_command({cmd: "touch made.txt", sandbox_permissions: "require_escalated", '
        'justification: "May I?"}); text(r)'
    )
    steps = (
        turn(spawn, match=root),
        turn(script(touch, codex_world.version), match=child),
        turn("The job is done.", match=child),
        turn(function("wait_agent", "collaboration", timeout_ms=10000), match=root),
        turn("All done.", match=root),
        turn("All done again.", match=root),
    )
    async with codex_world.open("Go.", *steps, model=CODE_MODEL[codex_world.version]) as session:
        events = await follow(session, lambda ask: Allow())
    (asked,) = [event for event in events if isinstance(event.data, ApprovalRequested)]
    assert asked.parent is not None
    assert made(codex_world)
    assert [text.text for text in of(events, AssistantText) if not text.partial][-1].startswith("All done")
    assert of(events, RunFinished)[0].outcome == "completed"


# -- the user's files --------------------------------------------------------------------------------------------------


def settings_of(home: Path) -> dict[str, str]:
    """What of the user's own settings lies in a home."""
    folder = home / ".codex"
    found = [*folder.glob("*.toml"), *folder.rglob("*.rules"), *folder.glob("*.json")]
    return {str(file.relative_to(folder)): file.read_text() for file in found if file.name != "version.json"}


@pytest.mark.parametrize("sandbox", [None, "read-only", "workspace-write", "danger-full-access"])
@pytest.mark.parametrize("own", ["", 'sandbox_mode = "workspace-write"\n'])
async def test_a_run_changes_no_settings_of_the_users(codex_world, sandbox, own):
    folder = codex_world.home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(own + "# mine\n")
    before = settings_of(codex_world.home)
    steps = (TOUCH, turn(patch(adding("new.txt", "one"))), turn("Done."))
    async with codex_world.open("Touch.", *steps, sandbox=sandbox) as session:
        await follow(session, lambda ask: AllowAlways("session"))
    async with codex_world.open("Again.", turn("Done."), sandbox=sandbox, resume=session.id) as again:
        await follow(again)
    assert settings_of(codex_world.home) == before
    assert (codex_world.cwd / "new.txt").exists()


async def test_a_sandbox_holds_for_every_turn_and_for_a_resumed_session(codex_world):
    with tempfile.TemporaryDirectory(dir=ELSEWHERE) as elsewhere:  # the temporary directory itself may be written to
        outside = turn(command(f"echo x > {elsewhere}/outside.txt"))
        async with codex_world.open("Write.", outside, turn("Done."), sandbox="workspace-write") as session:
            await follow(session)
        async with codex_world.open("Write.", outside, turn("Done."), resume=session.id, sandbox="read-only") as again:
            await follow(again)
        assert list(Path(elsewhere).iterdir()) == []
        async with codex_world.open("Write.", outside, turn("Done."), sandbox="danger-full-access") as free:
            await follow(free)
        assert len(list(Path(elsewhere).iterdir())) == 1


async def test_a_repository_that_nobody_trusts_brings_no_servers_and_no_rules(codex_world):
    folder = codex_world.cwd / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        '[mcp_servers.theirs]\ncommand = "/bin/sh"\nargs = ["-c", "touch SERVER; cat"]\n'
    )
    async with codex_world.open("Touch.", TOUCH, turn("I see.")) as session:
        events = await follow(session, lambda ask: Deny("no"))
    assert len(of(events, ApprovalRequested)) == 1
    assert not made(codex_world)
    assert not (codex_world.cwd / "SERVER").exists()


async def test_a_cli_that_refuses_its_configuration_says_so(codex_world):
    with pytest.raises(Exception, match="sandbox|config|unknown|invalid"):
        async with codex_world.open("Hi.", extra_args=("-c", "model_provider=5")):
            pass
    await trio.lowlevel.checkpoint()
