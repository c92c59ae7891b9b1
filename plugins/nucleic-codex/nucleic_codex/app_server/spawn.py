"""The process of an app-server: its command line, its environment, and what `thread/start` and `turn/start` say of a run.

Everything that can be said over the pipe is said there and not in argv, which other users can read.
"""

import base64
import os
from collections.abc import Mapping
from pathlib import Path

import orjson

from nucleic_codex.fields import mapping, sequence
from nucleic_codex.overrides import refuse
from nucleic_codex.probe import SANDBOX_MODES
from nucleic_codex.program import Program
from nucleic_core.errors import BadSettings, Unsupported
from nucleic_core.lowlevel import JSON
from nucleic_core.specs import AgentInput, Context, Image, ProcessSpec, RunSpec, Text, render

CREDENTIALS = ("CODEX_HOME", "CODEX_SQLITE_HOME", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_API_KEY")
"""How the user is logged in, or where the log-in and the CLI's state are kept."""

ENDPOINT = ("OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT", "CODEX_CA_CERTIFICATE")
"""Where the model is: gateways of companies need them."""


def spawn(
    run: RunSpec, program: Program, hook: tuple[str, ...] = (), env: Mapping[str, str] | None = None
) -> ProcessSpec:
    """The process of a run; `hook` are the arguments that bring in our hook, `env` what it needs.

    Raises Unsupported for a sandbox that does not exist, and for `extra_args` that would undo what Nucleic answers for.
    """
    if run.sandbox is not None and run.sandbox not in SANDBOX_MODES:
        raise Unsupported(f"codex has no sandbox {run.sandbox!r}; it has {', '.join(SANDBOX_MODES)}.")
    refuse(run.extra_args)
    return ProcessSpec(
        argv=(program.path, "app-server", *run.extra_args, *hook),
        env=env or {},
        inherit_env=(*CREDENTIALS, *ENDPOINT),
        cwd=run.cwd,
    )


def thread_params(run: RunSpec, policy: JSON, servers: JSON) -> dict[str, JSON]:
    """What `thread/start`, `thread/resume` and `thread/fork` say alike.

    Where a sandbox is wanted the thread starts read-only and each turn brings its policy: a thread that starts with a
    wider one makes Codex write into the user's config.toml that it trusts the directory (docs/wire-truth.md).
    """
    params: dict[str, JSON] = {"cwd": str(run.cwd), "approvalPolicy": "on-request", "approvalsReviewer": "user"}
    if policy is not None:
        params["sandbox"] = "read-only"
    if run.model is not None:
        params["model"] = run.model
    if run.system_prompt is not None:
        params["developerInstructions"] = run.system_prompt
    if servers:
        params["config"] = {f"mcp_servers.{name}": server for name, server in servers.items()}
    return params


def turn_params(run: RunSpec, policy: JSON) -> dict[str, JSON]:
    """What every `turn/start` says beside its thread and its input."""
    params: dict[str, JSON] = {}
    if policy is not None:
        params["sandboxPolicy"] = policy
    if run.output_schema is not None:
        params["outputSchema"] = run.output_schema
    return params


def sandbox_policy(run: RunSpec, config: Mapping[str, JSON]) -> JSON:
    """The sandbox of each turn: the run's, else the user's own; None leaves it to Codex, which then trusts nothing anew.

    `config` is what `config/read` says is in force. `add_dirs` may be written to where the working directory may.
    """
    match run.sandbox or config.get("sandbox_mode"):
        case "danger-full-access":
            return {"type": "dangerFullAccess"}
        case "workspace-write":
            own = mapping(config.get("sandbox_workspace_write"))
            roots = [*sequence(own.get("writable_roots")), *(str(run.cwd / folder) for folder in run.add_dirs)]
            return {
                "type": "workspaceWrite",
                "writableRoots": roots,
                "networkAccess": own.get("network_access") is True,
                "excludeTmpdirEnvVar": own.get("exclude_tmpdir_env_var") is True,
                "excludeSlashTmp": own.get("exclude_slash_tmp") is True,
            }
        case "read-only":
            return {"type": "readOnly"}
        case _:
            return None


def mcp_servers(file: Path | None) -> dict[str, JSON]:
    """The servers of an MCP configuration in Claude's format, as Codex names their fields. BadSettings where it is none."""
    if file is None:
        return {}
    try:
        servers = orjson.loads(file.read_bytes())["mcpServers"]
        return {str(name): _server(str(name), dict(server)) for name, server in servers.items()}
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadSettings(f"{file} is no MCP configuration: {error!r}.") from error


def _server(name: str, given: dict[str, JSON]) -> JSON:
    """One server. What Codex has no word for is left out where it only says what the other fields say already."""
    if "." in name or '"' in name:
        raise ValueError(f"the server's name {name!r} holds a dot or a quote")
    kind = given.pop("type", None)
    if kind == "sse":
        raise ValueError(f"the server {name} speaks SSE, which Codex does not")
    given.pop("timeout", None)
    if "headers" in given:
        given["http_headers"] = given.pop("headers")
    return given


def user_input(message: AgentInput) -> list[JSON]:
    """The parts of a message as `turn/start` and `turn/steer` take them."""
    return [_part(part) for part in message.parts]


def _part(part: Text | Context | Image) -> JSON:
    if isinstance(part, Image):
        data = base64.b64encode(part.data).decode("ascii")
        return {"type": "image", "url": f"data:{part.media_type};base64,{data}"}
    return {"type": "text", "text": render(part), "text_elements": []}


def environment(run: RunSpec) -> dict[str, str]:
    """The environment in which the program is looked for."""
    return {**os.environ, **run.env}
