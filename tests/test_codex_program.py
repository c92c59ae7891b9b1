"""Finding the `codex` program, its version and its log-in, with scripts in its place."""

import os

import pytest
from nucleic_codex import program
from nucleic_codex.probe import look
from nucleic_codex.program import find

from nucleic_core.errors import BackendMissing


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Puts a shell script named codex on a PATH of its own; gives the environment."""
    monkeypatch.setattr(program, "_known", {})

    def put(script: str) -> dict[str, str]:
        write(tmp_path / "codex", script)
        return {"PATH": f"{tmp_path}:{os.defpath}", "HOME": str(tmp_path)}

    return put


def write(file, script):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


async def test_a_program_is_found_on_the_path_with_its_version(place, tmp_path):
    found = await find("codex", place("echo 'codex-cli 0.171.0'"))
    assert found == program.Program(str(tmp_path / "codex"), (0, 171, 0))
    assert str(found) == "codex 0.171.0"


@pytest.mark.parametrize("where", ["node_modules/@openai/codex/node_modules/@openai", "node_modules/@openai"])
async def test_behind_npms_script_the_native_program_is_found(place, tmp_path, where):
    env = place("exit 9")
    script = tmp_path / "node_modules/@openai/codex/bin/codex.js"
    write(script, "exit 9")
    (tmp_path / "codex").unlink()
    (tmp_path / "codex").symlink_to(script)
    native = tmp_path / where / "codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
    write(native, "echo codex-cli 0.146.0")
    assert await find("codex", env) == program.Program(str(native), (0, 146, 0))


async def test_npms_script_itself_is_used_where_no_native_program_lies_beside_it(place, tmp_path):
    env = place("exit 9")
    script = tmp_path / "node_modules/@openai/codex/bin/codex.js"
    write(script, "echo codex-cli 0.146.0")
    (tmp_path / "codex").unlink()
    (tmp_path / "codex").symlink_to(script)
    assert (await find("codex", env)).path == str(tmp_path / "codex")


async def test_a_program_is_asked_for_its_version_once_until_it_changes(place, tmp_path):
    env = place(f"echo asked >> {tmp_path}/log; echo codex-cli 0.146.0")
    await find("codex", env)
    await find("codex", env)
    assert (tmp_path / "log").read_text() == "asked\n"
    assert (await find("codex", place("echo 'codex-cli 0.147.0, another size'"))).version == (0, 147, 0)


async def test_the_program_sees_no_keys_when_it_is_asked_for_its_version(place, tmp_path):
    env = place(f"env > {tmp_path}/seen; echo codex-cli 0.146.0") | {"OPENAI_API_KEY": "sk-secret"}
    await find("codex", env)
    assert "sk-secret" not in (tmp_path / "seen").read_text()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'codex-cli 0.140.9'", "codex 0.140.9, which is too old: Nucleic drives 0.141.0 and newer"),
        ("echo 'usage: codex'; exit 3", "said 'usage: codex', which is no version"),
        ("exit 1", "said '', which is no version"),
    ],
)
async def test_a_program_that_cannot_be_driven_is_missing_with_what_to_do(place, script, says):
    with pytest.raises(BackendMissing, match=says):
        await find("codex", place(script))


async def test_a_program_that_is_not_there_is_missing(tmp_path):
    with pytest.raises(BackendMissing, match="npm install"):
        await find("codex", {"PATH": str(tmp_path)})


async def test_a_probe_says_whether_there_is_a_log_in_without_starting_the_program_for_it(place, tmp_path):
    env = place("echo codex-cli 0.171.0")
    assert ((report := await look("codex", env)).logged_in, report.version) == (False, "0.171.0")
    assert "codex login" in report.next_step
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text('model_provider = "ours"\n')
    assert (await look("codex", env)).logged_in is None
    (tmp_path / ".codex" / "auth.json").write_text("{}")
    report = await look("codex", env)
    assert (report.logged_in, report.next_step) == (True, "")


async def test_a_probe_looks_where_codex_home_says(place, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "auth.json").write_text("{}")
    env = place("echo codex-cli 0.171.0") | {"CODEX_HOME": str(tmp_path / "elsewhere")}
    assert (await look("codex", env)).logged_in is True
