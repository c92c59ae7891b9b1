"""A world of its own for each live test: a real CLI, a fresh home and repository, a scripted model, no way out.

Everything that the environment could bring in is taken away, and every proxy variable points at a closed port, so that
the CLI reaches loopback and nothing else.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fetch import CLIS, FetchFailed, cache, fetch
from messages_api import MessagesApi
from responses_api import ResponsesApi
from world import CODE_MODEL, KEY, World, codex_options

SCRUBBED = ("ANTHROPIC", "AWS_", "CLAUDE", "CODEX", "DISABLE_", "GOOGLE_", "MCP_", "NUCLEIC_", "OPENAI", "XDG_")
CLOSED = "http://127.0.0.1:9"


@pytest.fixture(scope="session")
def fetched_program():
    """Where a version of a CLI is; skips, with the reason, where it is neither cached nor to be had."""
    place = cache()  # now: a test has a home of its own

    def fetched(cli, version):
        try:
            return fetch(cli, version, place)
        except FetchFailed as reason:
            pytest.skip(str(reason))

    return fetched


@pytest.fixture(scope="session", params=CLIS["claude"].versions)
def program(request, fetched_program):
    """A version of Claude Code and where it is."""
    return request.param, fetched_program("claude", request.param)


@pytest.fixture(scope="session", params=CLIS["codex"].versions)
def codex(request, fetched_program):
    """A version of Codex and where it is."""
    return request.param, fetched_program("codex", request.param)


@pytest.fixture
def code_mode(codex):
    """Skips, with the reason (which an async test would lose), where no model works in code mode."""
    if codex[0] not in CODE_MODEL:
        pytest.skip(f"codex {codex[0]} has no model in code mode")


@pytest.fixture
def sub_agents(codex):
    """Skips, with the reason, where sub-agents are not driven by our script."""
    if codex[0] != "0.171.0":
        pytest.skip(f"sub-agents are scripted for codex 0.171.0, and this is {codex[0]}")


@pytest.fixture(params=["stdio", "http"])
def channel(request):
    """The road that approvals take."""
    return request.param


@pytest.fixture
def scrubbed(tmp_path, monkeypatch):
    """An environment that holds a fake key, a fresh home and the way to loopback."""
    for name in os.environ:
        if name.startswith(SCRUBBED) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in ("home", "state", "demo", "tmp"):
        (tmp_path / name).mkdir()
    for name, value in {
        "HOME": str(tmp_path / "home"),
        "NUCLEIC_HOME": str(tmp_path / "state"),
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "HTTP_PROXY": CLOSED,
        "HTTPS_PROXY": CLOSED,
        "NO_PROXY": "127.0.0.1,localhost",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def repository(scrubbed):
    """A fresh git repository of one commit."""
    where = scrubbed / "demo"
    (where / "README.md").write_text("# demo\n\nhello\n")
    who = ("-c", "user.name=dev", "-c", "user.email=dev@example.com")
    for step in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-qm", "init"]):
        subprocess.run(["git", *step], cwd=where, check=True)
    return where


@pytest.fixture
async def world(program, scrubbed, repository, nursery, monkeypatch):
    """The world of one test; its model's script is empty until a session is opened."""
    version, path = program
    api = MessagesApi()
    await nursery.start(api.serve)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
    return World(version, path, scrubbed / "home", repository, api, {"executable": str(path)})


@pytest.fixture
async def codex_world(codex, scrubbed, repository, nursery):
    """The world of one test of Codex, with a model that calls functions."""
    version, path = codex
    api = ResponsesApi()
    await nursery.start(api.serve)
    options = codex_options(api.base_url, scrubbed / "tmp")
    return World(version, path, scrubbed / "home", repository, api, {"executable": str(path)}, "codex", options)
