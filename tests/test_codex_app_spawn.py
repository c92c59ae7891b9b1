"""The command line of an app-server, and what the pipe says of a run."""

import json
from pathlib import Path

import pytest
from nucleic_codex.app_server.probe import AppServerProber
from nucleic_codex.app_server.spawn import mcp_servers, sandbox_policy, spawn, thread_params, turn_params, user_input
from nucleic_codex.program import Program

from nucleic_core.errors import BadSettings, Unsupported
from nucleic_core.specs import AgentInput, Context, Image, RunSpec, Text

CODEX = Program("/bin/codex", (0, 171, 0))


def a_run(**fields):
    return RunSpec(session="s", backend="codex", cwd=Path("/repo"), **fields)


def test_the_command_line_is_the_app_server_with_what_the_run_adds_before_the_hook():
    spec = spawn(a_run(extra_args=("-c", "a=1")), CODEX, ("-c", "hooks.PreToolUse=[]"), {"X": "1"})
    assert spec.argv == ("/bin/codex", "app-server", "-c", "a=1", "-c", "hooks.PreToolUse=[]")
    assert spec.env == {"X": "1"}
    assert {"CODEX_HOME", "OPENAI_API_KEY"} <= set(spec.inherit_env)


def test_an_unknown_sandbox_and_a_forbidden_argument_are_refused_before_anything_starts():
    with pytest.raises(Unsupported, match="read-only, workspace-write, danger-full-access"):
        spawn(a_run(sandbox="none"), CODEX)
    with pytest.raises(Unsupported, match="refused"):
        spawn(a_run(extra_args=("-c", "approval_policy=never")), CODEX)


def test_nothing_of_a_prompt_and_no_secret_is_in_the_command_line():
    run = a_run(prompt=AgentInput.of("secret"), system_prompt="secret", model="secret", output_schema={"secret": 1})
    assert "secret" not in str(spawn(run, CODEX).argv)


def test_a_thread_asks_on_request_and_asks_the_user():
    params = thread_params(a_run(model="gpt-5.5", system_prompt="In verse."), None, {})
    assert params == {
        "cwd": "/repo",
        "approvalPolicy": "on-request",
        "approvalsReviewer": "user",
        "model": "gpt-5.5",
        "developerInstructions": "In verse.",
    }


@pytest.mark.parametrize("mode", ["read-only", "workspace-write", "danger-full-access"])
def test_a_thread_with_a_sandbox_starts_read_only_and_each_turn_brings_its_policy(mode):
    run = a_run(sandbox=mode)
    policy = sandbox_policy(run, {})
    assert thread_params(run, policy, {})["sandbox"] == "read-only"
    assert turn_params(run, policy)["sandboxPolicy"]["type"] in ("readOnly", "workspaceWrite", "dangerFullAccess")


def test_without_a_sandbox_anywhere_the_choice_is_codexs():
    assert sandbox_policy(a_run(), {"sandbox_mode": None}) is None
    assert "sandbox" not in thread_params(a_run(), None, {})
    assert turn_params(a_run(), None) == {}


def test_the_users_own_sandbox_holds_with_all_its_fields_and_the_runs_comes_first():
    own = {"writable_roots": ["/srv"], "network_access": True, "exclude_slash_tmp": True}
    config = {"sandbox_mode": "workspace-write", "sandbox_workspace_write": own}
    assert sandbox_policy(a_run(add_dirs=(Path("/more"),)), config) == {
        "type": "workspaceWrite",
        "writableRoots": ["/srv", "/more"],
        "networkAccess": True,
        "excludeTmpdirEnvVar": False,
        "excludeSlashTmp": True,
    }
    assert sandbox_policy(a_run(sandbox="read-only"), config) == {"type": "readOnly"}


def test_an_output_schema_goes_with_every_turn():
    assert turn_params(a_run(output_schema={"type": "object"}), None) == {"outputSchema": {"type": "object"}}


def test_all_parts_of_an_input_have_a_form():
    message = AgentInput((Text("Look."), Context("log", "line"), Image(b"\x89PNG", "image/png")))
    assert user_input(message) == [
        {"type": "text", "text": "Look.", "text_elements": []},
        {"type": "text", "text": "Context (log):\nline", "text_elements": []},
        {"type": "image", "url": "data:image/png;base64,iVBORw=="},
    ]


def test_servers_of_claudes_format_are_given_in_codexs_words(tmp_path):
    file = tmp_path / "mcp.json"
    local = {"command": "x", "args": ["y"], "env": {"K": "v"}}
    remote = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer t"}, "timeout": 1}
    file.write_text(json.dumps({"mcpServers": {"local": {"type": "stdio", **local}, "remote": remote}}))
    servers = mcp_servers(file)
    assert servers == {
        "local": local,
        "remote": {"url": "http://127.0.0.1:1/mcp", "http_headers": {"Authorization": "Bearer t"}},
    }
    assert thread_params(a_run(), None, servers)["config"]["mcp_servers.local"] == local


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"mcpServers": []}',
        '{"mcpServers": {"x": 1}}',
        '{"mcpServers": {"x": {"type": "sse", "url": "u"}}}',
        '{"mcpServers": {"x.y": {"command": "c"}}}',
    ],
)
def test_an_mcp_configuration_that_codex_cannot_have_is_refused(tmp_path, text):
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(BadSettings, match="is no MCP configuration"):
        mcp_servers(tmp_path / "mcp.json")


def test_an_edited_input_is_declared_only_where_the_hook_asks():
    prober = AppServerProber()
    native = prober.declared(run=a_run())
    hooked = prober.declared(run=a_run(settings={"approvals": "hook"}))
    assert (native.can_modify_tool_input, native.edit_gate) == (False, "approval")
    assert (hooked.can_modify_tool_input, hooked.edit_gate) == (True, "hook")


@pytest.mark.parametrize("settings", [{"approvals": "maybe"}, {"colour": "red"}, {"executable": ""}, {"executable": 3}])
def test_a_setting_that_is_none_is_refused(settings):
    with pytest.raises(BadSettings, match="codex"):
        AppServerProber().declared(run=a_run(settings=settings))
