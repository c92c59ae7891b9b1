"""Finding the `claude` program, its version and its log-in, with scripts in its place."""

import os
from pathlib import Path

import pytest
from nucleic_claude import program
from nucleic_claude.probe import ClaudeProber
from nucleic_claude.program import find

from nucleic_core.errors import BackendMissing


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Puts a shell script named claude on a PATH of its own; gives the environment."""
    monkeypatch.setattr(program, "_known", {})

    def put(script: str) -> dict[str, str]:
        file = tmp_path / "claude"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return {"PATH": f"{tmp_path}:{os.defpath}", "HOME": str(tmp_path)}

    return put


async def test_a_program_is_found_on_the_path_with_its_version(place, tmp_path):
    found = await find("claude", place("echo '2.1.332 (Claude Code)'"))
    assert found == program.Program(str(tmp_path / "claude"), (2, 1, 332))
    assert str(found) == "claude 2.1.332"


async def test_a_program_is_asked_for_its_version_once_until_it_changes(place, tmp_path):
    env = place(f"echo asked >> {tmp_path}/log; echo 2.1.200")
    await find("claude", env)
    await find("claude", env)
    assert (tmp_path / "log").read_text() == "asked\n"
    env = place("echo '2.1.201 (Claude Code), another size'")
    assert (await find("claude", env)).version == (2, 1, 201)


async def test_the_program_sees_no_keys_when_it_is_asked_for_its_version(place, tmp_path):
    env = place(f"env > {tmp_path}/seen; echo 2.1.200") | {"ANTHROPIC_API_KEY": "sk-secret"}
    await find("claude", env)
    assert "sk-secret" not in (tmp_path / "seen").read_text()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo '2.1.166 (Claude Code)'",
            "claude 2.1.166, which is too old: Nucleic drives 2.1.167 and newer. Run `claude update`",
        ),
        ("echo '0.2.9'", "too old"),
        ("echo 'usage: claude'; exit 3", "said 'usage: claude', which is no version"),
        ("printf '\\377\\n'", "no version"),
        ("exit 1", "said '', which is no version"),
    ],
)
async def test_a_program_that_cannot_be_driven_is_missing_with_what_to_do(place, script, says):
    with pytest.raises(BackendMissing, match=says.replace("?", r"\?")):
        await find("claude", place(script))


async def test_a_file_that_does_not_start_is_missing(place, tmp_path):
    env = place("")
    (tmp_path / "claude").write_bytes(b"\x7fELF rubbish")
    with pytest.raises(BackendMissing, match="cannot be started"):
        await find("claude", env)


async def test_no_program_at_all_is_missing_with_how_to_install_it(tmp_path):
    with pytest.raises(BackendMissing, match="npm install -g @anthropic-ai/claude-code"):
        await find("claude", {"PATH": str(tmp_path)})


async def test_a_program_that_hangs_is_given_up(place, monkeypatch):
    monkeypatch.setattr(program, "VERSION_DEADLINE", 0.2)
    with pytest.raises(BackendMissing, match="said nothing within"):
        await find("claude", place("exec sleep 30"))


@pytest.mark.parametrize(
    ("env", "logged_in"),
    [
        ({}, False),
        ({"ANTHROPIC_API_KEY": "sk"}, True),
        ({"ANTHROPIC_API_KEY": ""}, False),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "t"}, True),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, True),
    ],
)
async def test_a_probe_says_whether_there_is_a_log_in(place, monkeypatch, env, logged_in):
    monkeypatch.setattr("nucleic_claude.probe._keychain", lambda: False)
    report = await ClaudeProber().probe(place("echo 2.1.300") | env)
    assert (report.installed, report.version, report.logged_in) == (True, "2.1.300", logged_in)
    assert ("Log in" in report.next_step) is not logged_in


async def test_a_probe_finds_the_file_that_a_log_in_leaves(place, tmp_path):
    env = place("echo 2.1.300")
    Path(tmp_path, ".claude").mkdir()
    Path(tmp_path, ".claude", ".credentials.json").write_text("{}")
    assert (await ClaudeProber().probe(env)).logged_in is True


async def test_a_probe_where_the_key_chain_hides_the_log_in_says_unknown(place, monkeypatch):
    monkeypatch.setattr("nucleic_claude.probe._keychain", lambda: True)
    assert (await ClaudeProber().probe(place("echo 2.1.300"))).logged_in is None


async def test_a_probe_of_a_newer_program_says_that_it_is_untested(place):
    report = await ClaudeProber().probe(place("echo 3.0.0") | {"ANTHROPIC_API_KEY": "sk"})
    assert report.installed
    assert "2.1.332" in report.next_step


async def test_a_probe_without_the_program_says_how_to_install_it(tmp_path):
    report = await ClaudeProber().probe({"PATH": str(tmp_path)})
    assert not report.installed
    assert report.logged_in is None
    assert "npm install" in report.next_step
