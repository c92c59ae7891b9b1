"""The command line of `codex exec`: the sandbox, what the user's own files may not add to it, and what is refused."""

import itertools
import tomllib
from pathlib import Path

import pytest
from nucleic_codex.exec.access import Access
from nucleic_codex.exec.driver import user_config
from nucleic_codex.exec.spawn import Files, UserConfig, arguments, spawn
from nucleic_codex.program import Program

from nucleic_core.errors import Unsupported
from nucleic_core.specs import AgentInput, Context, RunSpec, Text

PROGRAM = Program("/bin/codex", (0, 171, 0))
FILES = Files(Path("/tmp/own/last_message"))
READING = Access("read-only")
WRITING = Access("workspace-write")
FULL = Access("danger-full-access", scratch=True, network=True, search=True, foreign=True)


def a_run(cwd="/nowhere/repo", **fields):
    prompt = fields.pop("prompt", AgentInput.of("Do it."))
    return RunSpec(session="s", backend="codex-exec", cwd=Path(cwd), prompt=prompt, **fields)


def argv(granted=READING, run=None, program=PROGRAM, files=FILES, **more):
    return spawn(run or a_run(), program, granted, files, **more).argv


def config(granted=READING, run=None, **more):
    """The settings on the command line, as Codex reads them."""
    args = argv(granted, run, **more)
    merged: dict = {}
    for flag, value in itertools.pairwise(args):
        if flag == "-c":
            for key, inner in tomllib.loads(value).items():
                merged[key] = {**merged.get(key, {}), **inner} if isinstance(inner, dict) else inner
    return merged


def test_the_prompt_is_the_whole_of_stdin_and_in_no_argument():
    prompt = AgentInput((Text("Look."), Context("the log", "x" * 300_000)))
    spec = spawn(a_run(prompt=prompt), PROGRAM, READING, FILES)
    assert spec.stdin == b"Look.\n\nContext (the log):\n" + b"x" * 300_000
    assert spec.argv[-1] == "-"
    assert not any("Look." in arg for arg in spec.argv)


@pytest.mark.parametrize("granted", [READING, WRITING, FULL])
def test_every_run_names_its_sandbox_its_directory_and_reads_no_rules_of_the_user(granted):
    args = argv(granted)
    assert args[:3] == ("/bin/codex", "exec", "--json")
    for flag in (
        f"--sandbox={granted.mode}",
        "--cd=/nowhere/repo",
        "--ignore-rules",
        "--skip-git-repo-check",
        "--output-last-message=/tmp/own/last_message",
    ):
        assert args.count(flag) == 1
    assert config(granted)["analytics"] == {"enabled": False}
    assert not any("ask-for-approval" in arg or "bypass" in arg for arg in args)


def test_the_writable_sandbox_is_pinned_against_the_users_own_settings():
    pinned = {"writable_roots": [], "network_access": False, "exclude_slash_tmp": True, "exclude_tmpdir_env_var": True}
    assert config(WRITING)["sandbox_workspace_write"] == pinned
    opened = Access("workspace-write", roots=(Path('/data/with "quotes"'),), scratch=True, network=True)
    assert config(opened)["sandbox_workspace_write"] == {
        "writable_roots": ['/data/with "quotes"'],
        "network_access": True,
        "exclude_slash_tmp": False,
        "exclude_tmpdir_env_var": False,
    }
    assert "sandbox_workspace_write" not in config(READING)


def test_what_no_sandbox_holds_is_switched_off_unless_everything_is_allowed():
    user = UserConfig(servers=("notes", "a b.c"))
    for granted in (READING, WRITING):
        assert config(granted, user=user)["mcp_servers"] == {"notes": {"enabled": False}, "a b.c": {"enabled": False}}
        assert config(granted)["web_search"] == "disabled"
        assert {"--disable=apps", "--disable=plugins", "--disable=image_generation"} <= set(argv(granted))
    assert not {"mcp_servers", "web_search"} & config(FULL, user=user).keys()
    assert not any(arg.startswith("--disable") for arg in argv(FULL))
    assert "web_search" not in config(Access("read-only", search=True))


def test_the_repositorys_own_settings_are_trusted_nowhere_between_here_and_its_root(tmp_path):
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    inside = tmp_path / "repo" / "a" / "b"
    inside.mkdir(parents=True)
    untrusted = config(run=a_run(inside))["projects"]
    assert set(untrusted) == {str(tmp_path / "repo" / rest) for rest in ("", "a", "a/b")}
    assert all(project == {"trust_level": "untrusted"} for project in untrusted.values())


def test_a_worktrees_repository_and_the_place_behind_a_link_are_not_trusted_either(tmp_path):
    (tmp_path / "main" / ".git" / "worktrees" / "wt").mkdir(parents=True)
    (tmp_path / "wt").mkdir()
    (tmp_path / "wt" / ".git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/wt\n")
    (tmp_path / "link").symlink_to(tmp_path / "wt")
    assert set(config(run=a_run(tmp_path / "link"))["projects"]) == {
        str(tmp_path / name) for name in ("link", "wt", "main")
    }


def test_each_field_of_the_run_becomes_one_argument():
    files = Files(FILES.last_message, Path("/tmp/own/schema.json"), (Path("/tmp/own/1.png"), Path("/tmp/own/2.png")))
    args = argv(run=a_run(model="gpt-6", ephemeral=True, system_prompt='say "hi"\n'), files=files)
    assert {
        "--model=gpt-6",
        "--ephemeral",
        "--output-schema=/tmp/own/schema.json",
        "--image=/tmp/own/1.png",
        "--image=/tmp/own/2.png",
    } <= set(args)
    assert config(run=a_run(system_prompt='say "hi"\n\x7f'))["developer_instructions"] == 'say "hi"\n\x7f'
    plain = argv()
    assert not any(arg.startswith(("--model", "--ephemeral", "--output-schema", "--image")) for arg in plain)


def test_a_resumed_thread_and_a_fork_stand_last():
    assert argv(run=a_run(native_resume="an-id"))[-3:] == ("resume", "an-id", "-")
    assert argv(run=a_run(native_resume="an-id", fork=True))[-3:] == ("fork", "an-id", "-")
    with pytest.raises(Unsupported, match=r"codex 0\.146\.0 cannot fork a session with exec; 0\.171\.0 can"):
        argv(run=a_run(native_resume="an-id", fork=True), program=Program("/bin/codex", (0, 146, 0)))


def test_the_hooks_arguments_stand_before_the_thread():
    assert argv(run=a_run(native_resume="an-id"), hook=("-c", "hooks.x=1"))[-5:] == (
        "-c",
        "hooks.x=1",
        "resume",
        "an-id",
        "-",
    )


def test_extra_arguments_stand_first_so_that_ours_have_the_last_word():
    args = arguments(a_run(extra_args=("-c", "analytics.enabled=true")), PROGRAM, READING, FILES, UserConfig())
    assert args[:2] == ("-c", "analytics.enabled=true")
    assert config(run=a_run(extra_args=("-c", "analytics.enabled=true")))["analytics"] == {"enabled": False}


@pytest.mark.parametrize(
    "extra",
    [
        ("--dangerously-bypass-approvals-and-sandbox",),
        ("--sandbox=danger-full-access",),
        ("-s", "danger-full-access"),
        ("--add-dir=/",),
        ("--full-auto",),
        ("--approve-for-me",),
        ("--profile=mine",),
        ("--trust",),
        ("resume",),
        ("-",),
        ("-c", "sandbox_mode='danger-full-access'"),
        ("-c", "sandbox_workspace_write.network_access=true"),
        ("-c", "approval_policy=never"),
        ("-c", "projects={}"),
        ("-c", "mcp_servers.evil.command='sh'"),
        ("-cmcp_servers.evil.command='sh'",),
        ("--config=mcp_servers={evil={command='sh'}}",),
        ("-c", "web_search='live'"),
        ("-c", "tools.web_search=true"),
        ("-c", "features.plugins=true"),
        ("-c", "features={apps=true}"),
        ("-c", '"mcp_servers".evil.command="sh"'),
        ("--enable", "apps"),
        ("--enable", "web_search_request"),
        ("--enable=plugins",),
    ],
)
def test_extra_arguments_that_would_widen_the_sandbox_are_refused(extra):
    with pytest.raises(Unsupported, match="is refused: "):
        argv(run=a_run(extra_args=extra))


def test_the_names_of_the_users_mcp_servers_and_of_variables_that_hold_keys_are_read(tmp_path):
    (tmp_path / "config.toml").write_text(
        '[mcp_servers.notes]\ncommand = "x"\n[mcp_servers."a b"]\nurl = "y"\n'
        '[model_providers.own]\nenv_key = "OWN_KEY"\n[model_providers.own.env_http_headers]\nX-Team = "OWN_TEAM"\n'
    )
    found = user_config(tmp_path)
    assert set(found.servers) >= {"notes", "a b"}
    assert set(found.keys) >= {"OWN_KEY", "OWN_TEAM"}
    assert {"CODEX_HOME", "OPENAI_API_KEY", "OWN_KEY"} <= set(
        spawn(a_run(), PROGRAM, READING, FILES, found).inherit_env
    )


@pytest.mark.parametrize("text", ["", "mcp_servers = 7\nmodel_providers = [1]", "not toml ["])
def test_settings_that_are_none_are_left_for_codex_to_refuse(tmp_path, text):
    (tmp_path / "config.toml").write_text(text)
    assert "notes" not in user_config(tmp_path).servers
    assert user_config(tmp_path / "missing") == user_config(tmp_path)
