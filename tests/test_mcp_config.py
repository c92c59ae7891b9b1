"""The configuration file of the MCP server: who can read it, what is merged, and that it does not stay behind."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

from nucleic_core._wire.descendants import pid_namespace
from nucleic_core._wire.mcp_config import mcp_config
from nucleic_core._wire.mcp_server import McpServer
from nucleic_core.errors import BadSettings


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A temporary directory of the test's own."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture
def server():
    server = McpServer([], lambda call: None, lambda call, reason: None)
    server.port = 4242
    return server


@pytest.fixture
def user_config(tmp_path):
    return tmp_path / "mcp.json"


def test_the_file_names_the_server_with_its_token_and_a_day_of_patience(server):
    with mcp_config(server) as path:
        assert json.loads(path.read_bytes()) == {
            "mcpServers": {
                "nucleic": {
                    "type": "http",
                    "url": "http://127.0.0.1:4242/mcp",
                    "headers": {"Authorization": f"Bearer {server.token}"},
                    "timeout": 86400000,
                }
            }
        }


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_we_can_read_the_file_whatever_the_umask(server, umask):
    before = os.umask(umask)
    try:
        with mcp_config(server) as path:
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


def test_nothing_is_left_at_the_end_nor_after_an_error(server, temporary):
    with mcp_config(server):
        assert len(list(temporary.iterdir())) == 1
    with pytest.raises(RuntimeError), mcp_config(server):
        raise RuntimeError
    assert list(temporary.iterdir()) == []


def test_each_server_has_a_file_of_its_own(server):
    with mcp_config(server) as one, mcp_config(server) as two:
        assert one.parent != two.parent


def test_the_users_own_servers_and_settings_are_taken_over(server, user_config):
    mine = {"mcpServers": {"b": {"command": "b"}, "a": {"url": "${URL}"}}, "other": [1]}
    user_config.write_text(json.dumps(mine))
    with mcp_config(server, merge=user_config) as path:
        config = json.loads(path.read_bytes())
    assert list(config["mcpServers"]) == ["b", "a", "nucleic"]
    assert config["mcpServers"]["a"] == {"url": "${URL}"}
    assert config["other"] == [1]
    assert json.loads(user_config.read_text()) == mine


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is not JSON"),
        (b"{'a': 1}", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", 'must be an object that has an object "mcpServers"'),
        (b"{}", 'must be an object that has an object "mcpServers"'),
        (b'{"mcpServers": []}', 'must be an object that has an object "mcpServers"'),
        (b'{"mcpServers": {"a": "b"}}', "is wrong at server 'a'"),
        (b'{"mcpServers": {"nucleic": {}}}', "has a server named 'nucleic'"),
    ],
)
def test_a_configuration_that_cannot_be_merged_is_said_with_its_path_and_nothing_is_written(
    server, temporary, user_config, content, problem
):
    if content is not None:
        user_config.write_bytes(content)
    with pytest.raises(BadSettings) as raised, mcp_config(server, merge=user_config):
        pass
    assert str(user_config) in str(raised.value)
    assert problem in str(raised.value)
    assert list(temporary.iterdir()) == []


def test_a_directory_cannot_be_merged(server, tmp_path):
    with pytest.raises(BadSettings, match="cannot be read: Is a directory"), mcp_config(server, merge=tmp_path):
        pass


def test_what_a_killed_host_left_is_removed_by_the_next_and_a_living_hosts_file_is_not(server, temporary, tmp_path):
    script = (
        "import sys, tempfile, time; tempfile.tempdir = sys.argv[1]\n"
        "from nucleic_core._wire.mcp_config import mcp_config\n"
        "from nucleic_core._wire.mcp_server import McpServer\n"
        "with mcp_config(McpServer([], print, print)) as path: print(path, flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(temporary)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        left = host.stdout.readline().strip()
        with mcp_config(server):
            spared = os.path.exists(left)
        host.kill()
    assert spared
    assert os.path.exists(left)
    with mcp_config(server):
        assert not os.path.exists(os.path.dirname(left))


def test_only_directories_of_our_own_making_are_swept(server, temporary, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "precious").touch()
    ours = pid_namespace()
    dead = f"{ours}-{2**22 + 1}"  # beyond any pid
    (temporary / f"nucleic-mcp-{dead}-link").symlink_to(kept)
    (temporary / f"nucleic-mcp-{dead}-file").touch()
    for name in (
        f"nucleic-mcp-{ours}-abc-x",
        f"nucleic-mcp-{ours}-0-x",
        f"nucleic-mcp-{ours}--1-x",
        f"nucleic-mcp-{ours}-{10**12}-x",
        f"nucleic-mcp-{ours + 1}-{2**22 + 1}-x",  # of another container, where such a process may live
        f"nucleic-mcp-{dead}",
    ):
        (temporary / name).mkdir()
    names = set(temporary.iterdir())
    (temporary / f"nucleic-mcp-{dead}-x").mkdir()
    with mcp_config(server):
        pass
    assert set(temporary.iterdir()) == names
    assert (kept / "precious").exists()
