"""The file that tells an agent's child where our MCP server is: the one place, besides memory, that holds the token.

argv and the environment are readable by others or by every tool that the agent runs, so the token goes into a file that
only we can read, in a directory of its own, for as long as the run lasts. The directory's name has our pid and the
namespace that the pid is of: what a crashed host left behind is removed by the next host that starts in that namespace.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from nucleic_core._values import JSON
from nucleic_core._wire.descendants import pid_namespace
from nucleic_core._wire.mcp_server import McpServer
from nucleic_core.errors import BadSettings

SERVER_NAME = "nucleic"
_PREFIX = "nucleic-mcp-"
_CALL_MILLISECONDS = 24 * 60 * 60 * 1000


@contextmanager
def mcp_config(server: McpServer, *, merge: Path | None = None) -> Iterator[Path]:
    """Give the path of an MCP configuration in Claude's format that holds `server`, under the name `nucleic`.

    `merge` is the user's own configuration; all of it is taken over. Raises BadSettings when it cannot be. `timeout`, in
    milliseconds, is a day: Claude Code counts it from the call, whatever progress comes.
    """
    config: dict[str, JSON] = {"mcpServers": {}} if merge is None else _read(merge)
    config["mcpServers"][SERVER_NAME] = {
        "type": "http",
        "url": server.url,
        "headers": {"Authorization": f"Bearer {server.token}"},
        "timeout": _CALL_MILLISECONDS,
    }
    _remove_stale()
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{pid_namespace()}-{os.getpid()}-"))
    try:
        path = directory / "mcp.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(orjson.dumps(config))
        yield path
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_stale() -> None:
    """Remove what hosts that no longer live left in the temporary directory. Never touches another user's files."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        named = re.match(rf"{_PREFIX}{pid_namespace()}-([1-9]\d{{0,9}})-", directory.name)
        if named and _is_our_directory(directory) and not _is_alive(int(named[1])):
            shutil.rmtree(directory, ignore_errors=True)


def _is_our_directory(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _is_alive(pid: int) -> bool:
    """Whether a process of this id exists; when in doubt it does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _read(path: Path) -> dict[str, JSON]:
    """The user's configuration: an object with `mcpServers`, an object of objects."""
    try:
        config: JSON = orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadSettings(f"the MCP configuration {path} cannot be read: {error.strerror or error}") from error
    except orjson.JSONDecodeError as error:
        raise BadSettings(f"the MCP configuration {path} is not JSON: {error}") from error
    servers: JSON = config.get("mcpServers") if isinstance(config, dict) else None
    if not isinstance(servers, dict):
        raise BadSettings(f'the MCP configuration {path} must be an object that has an object "mcpServers"')
    for name, entry in servers.items():
        if not isinstance(entry, dict):
            raise BadSettings(f"the MCP configuration {path} is wrong at server {name!r}: it must be an object")
    if SERVER_NAME in servers:
        raise BadSettings(
            f"the MCP configuration {path} has a server named {SERVER_NAME!r}, the name that approvals go to; rename it there"
        )
    return {**config, "mcpServers": dict(servers)}
