"""The command line of `claude`: guards that are always there, fields that become flags, extras that are refused."""

from pathlib import Path

import pytest
from nucleic_claude.program import Program
from nucleic_claude.settings import Settings
from nucleic_claude.spawn import GUARDS, REFUSED, arguments, spawn

from nucleic_core.errors import BadSettings, Unsupported
from nucleic_core.specs import RunSpec

CWD = Path("/repo")
PROGRAM = Program("/bin/claude", (2, 1, 332))


def a_run(**fields) -> RunSpec:
    return RunSpec(session="s", backend="claude", cwd=CWD, **fields)


@pytest.mark.parametrize("channel", ["stdio", "http"])
@pytest.mark.parametrize("guard", GUARDS)
def test_the_launch_guards_are_on_every_command_line(channel, guard):
    assert guard in arguments(a_run(), channel, None)


def test_each_channel_names_its_own_permission_prompt_tool():
    assert "--permission-prompt-tool=stdio" in arguments(a_run(), "stdio", None)
    assert "--permission-prompt-tool=mcp__nucleic__approve" in arguments(a_run(), "http", Path("/tmp/mcp.json"))


def test_a_plain_run_sets_partials_and_nothing_else_of_its_own():
    args = arguments(a_run(), "stdio", None)
    assert args[-1] == "--include-partial-messages"
    assert "--include-partial-messages" not in arguments(a_run(partials=False), "stdio", None)
    assert not [arg for arg in args if arg.startswith(("--model", "--mcp-config", "--resume", "--add-dir"))]


def test_each_field_of_the_run_becomes_one_argument_that_no_other_can_swallow():
    args = arguments(
        a_run(
            model="opus",
            system_prompt="--be brief",
            add_dirs=(Path("/data"), Path("lib")),
            output_schema={"type": "object"},
            ephemeral=True,
            native_resume="an-id",
            fork=True,
        ),
        "stdio",
        Path("/home/me/mcp.json"),
    )
    assert "--mcp-config=/home/me/mcp.json" in args
    assert "--model=opus" in args
    assert "--append-system-prompt=--be brief" in args
    assert "--add-dir=/data" in args
    assert "--add-dir=/repo/lib" in args
    assert '--json-schema={"type": "object"}' in args
    assert "--no-session-persistence" in args
    assert args[-2:] == ("--resume=an-id", "--fork-session")
    assert all(arg.startswith("-") for arg in args)


def test_extra_arguments_stand_last_so_that_they_cannot_swallow_a_guard():
    assert arguments(a_run(extra_args=("--effort", "high", "--betas=x")), "stdio", None)[-3:] == (
        "--effort",
        "high",
        "--betas=x",
    )


@pytest.mark.parametrize("flag", REFUSED)
@pytest.mark.parametrize("form", ["{}", "{}=value"])
def test_a_refused_flag_is_refused_in_both_its_forms_with_the_reason(flag, form):
    with pytest.raises(Unsupported, match="is refused: ") as caught:
        arguments(a_run(extra_args=("--effort", "low", form.format(flag))), "stdio", None)
    assert flag in str(caught.value)
    assert REFUSED[flag] in str(caught.value)


@pytest.mark.parametrize(
    "args",
    [
        ("--dangerously-skip-permissions",),
        ("--allow-dangerously-skip-permissions",),
        ("--dangerously-load-development-channels", "x"),
        ("--some-later-permission-flag",),
        ("--sandbox-off",),
        ("--more-settings=x",),
        ("--hooks", "{}"),
        ("-c",),
        ("-r", "id"),
        ("-rid",),
        ("--effort", "low", "-w"),
        ("--",),
        ("--effort", "low", "--", "update"),
        ("update",),
        ("-",),
    ],
)
def test_what_would_undo_a_guard_or_is_no_long_flag_is_refused(args):
    with pytest.raises(Unsupported):
        arguments(a_run(extra_args=args), "stdio", None)


def test_flags_that_only_show_more_or_narrow_more_are_let_through():
    harmless = ("--include-hook-events", "--disallowedTools", "WebFetch", "--max-turns=3", "--debug-file=/tmp/x")
    assert arguments(a_run(extra_args=harmless), "stdio", None)[-5:] == harmless


def test_the_log_in_is_inherited_and_a_surrounding_claude_is_not(monkeypatch):
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("CLAUDE_CODE_ENTRYPOINT", "cli")
    names = spawn(a_run(), PROGRAM, "stdio", None).inherit_env
    assert {"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR", "ANTHROPIC_BASE_URL"} <= set(names)
    assert not {"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"} & set(names)


def test_a_clouds_credentials_are_given_only_when_the_user_says_that_the_model_is_there(monkeypatch):
    monkeypatch.delenv("CLAUDE_CODE_USE_BEDROCK", raising=False)
    assert "AWS_SECRET_ACCESS_KEY" not in spawn(a_run(), PROGRAM, "stdio", None).inherit_env
    switched = a_run(env={"CLAUDE_CODE_USE_BEDROCK": "1"})
    assert "AWS_SECRET_ACCESS_KEY" in spawn(switched, PROGRAM, "stdio", None).inherit_env


def test_only_a_server_of_ours_lifts_the_limits_on_a_tool_call():
    assert spawn(a_run(), PROGRAM, "stdio", None).env == {}
    assert spawn(a_run(), PROGRAM, "http", Path("/tmp/mcp.json")).env["MCP_TOOL_TIMEOUT"] == "86400000"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"chanel": "http"}, "no setting 'chanel': it knows channel and executable"),
        ({"channel": "tcp"}, "channel is 'tcp'"),
        ({"channel": ["stdio"]}, "channel is"),
        ({"executable": ""}, "executable is ''"),
        ({"executable": 3}, "executable is 3"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(given, says):
    with pytest.raises(BadSettings, match=says):
        Settings.read(given)
