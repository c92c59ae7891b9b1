"""What `nucleic drift codex` says of an installed Codex, with a script in its place."""

import json

import pytest
from click.testing import CliRunner
from nucleic_codex import drift, program
from nucleic_codex.drift import command, differences, kept

from nucleic_core._cli.group import nucleic

SCRIPT = """#!/bin/sh
case "$1" in
--version) echo codex-cli {version};;
app-server) cp -r {schema}/. "$4";;
esac
"""


def variants(*methods):
    return {"oneOf": [{"properties": {"method": {"enum": [method]}}} for method in methods]}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts a codex of a version and a protocol into a folder; gives its path."""
    monkeypatch.setattr(program, "_known", {})

    def put(version, **files):
        schema = tmp_path / "schema"
        schema.mkdir(exist_ok=True)
        for name in ("ClientRequest", "ClientNotification", "ServerRequest", "ServerNotification"):
            (schema / f"{name}.json").write_text(json.dumps(files.get(name, variants())))
        whole = {"definitions": {"v2": files.get("types", {})}}
        (schema / "codex_app_server_protocol.schemas.json").write_text(json.dumps(whole))
        codex = tmp_path / "codex"
        codex.write_text(SCRIPT.format(version=version, schema=schema))
        codex.chmod(0o755)
        return str(codex)

    return put


def test_a_name_that_came_and_one_that_went_are_a_line_each(installed, monkeypatch):
    old = {"notification": ["turn/started", "turn/ended"], "type.Mode": ["a", "b"], "type.Gone": ["x"]}
    monkeypatch.setattr(drift, "kept", lambda: {(0, 171, 0): old})
    types = {
        "Mode": {"enum": ["a", "c"]},
        "Kind": {"oneOf": [{"properties": {"type": {"enum": ["one"]}}}, {"enum": ["two"]}]},
        "Plain": {"properties": {"x": {}}},
    }
    codex = installed("0.180.0", ServerNotification=variants("turn/started", "turn/completed"), types=types)
    result = CliRunner().invoke(command, ["codex", "--executable", codex])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "codex 0.180.0 against the tested 0.171.0: 6 differences",
        "+ notification: turn/completed",
        "- notification: turn/ended",
        "- type Gone: x",
        "+ type Kind: one, two",
        "+ type Mode: c",
        "- type Mode: b",
    ]


def test_no_difference_is_exit_code_zero(installed, monkeypatch):
    monkeypatch.setattr(drift, "kept", lambda: {(0, 146, 0): {"notification": ["turn/started"]}})
    codex = installed("0.146.0", ServerNotification=variants("turn/started"))
    result = CliRunner().invoke(command, ["codex", "--executable", codex])
    assert result.exit_code == 0
    assert result.output == "codex 0.146.0 against the tested 0.146.0: no differences\n"


def test_a_version_is_compared_with_the_tested_one_before_it(installed):
    codex = installed("0.150.0")
    result = CliRunner().invoke(command, ["codex", "--executable", codex])
    assert "against the tested 0.146.0" in result.output


def test_every_tested_version_is_kept_and_has_the_methods_that_are_driven():
    assert {(0, 141, 0), (0, 146, 0), (0, 171, 0)} <= kept().keys()
    for names in kept().values():
        assert {"initialize", "thread/start", "thread/resume", "turn/start", "turn/steer", "turn/interrupt"} <= set(
            names["request"]
        )
        assert "item/commandExecution/requestApproval" in names["request of the agent"]


def test_between_the_tested_versions_the_differences_are_those_that_were_written_down():
    lines = list(differences(kept()[0, 141, 0], kept()[0, 171, 0]))
    assert any(line.startswith("- request: ") and "thread/rollback" in line for line in lines)


def test_the_command_is_one_of_nucleics(monkeypatch):
    assert "drift" in nucleic.list_commands(None)
    assert nucleic.get_command(None, "drift") is command
