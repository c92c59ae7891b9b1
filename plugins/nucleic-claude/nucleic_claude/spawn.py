"""The command line and environment of a `claude` process, and the flags that a run may not add to it.

Three guards are on every command line, because without them a repository can run shell code, switch approvals off and
send the API key elsewhere before anybody is asked (docs/wire-truth.md): `--permission-mode default`,
`--strict-mcp-config`, `--setting-sources user`.
"""

import json
import os
import re
from pathlib import Path

from nucleic_claude.program import Program
from nucleic_claude.settings import Channel
from nucleic_core.errors import Unsupported
from nucleic_core.specs import ProcessSpec, RunSpec

SERVER_PREFIX = "mcp__nucleic__"
"""How the CLI calls a tool of our server `nucleic`; the merged configuration of the user can have no other of that name."""

APPROVE_NAME = "approve"
APPROVE_TOOL = SERVER_PREFIX + APPROVE_NAME
"""What the CLI calls for each gated action on the http channel: tool `approve` of MCP server `nucleic`."""

GUARDS = ("--permission-mode=default", "--strict-mcp-config", "--setting-sources=user")
PROTOCOL = ("-p", "--output-format=stream-json", "--input-format=stream-json", "--verbose", "--replay-user-messages")

A_DAY_MS = "86400000"

_PERMISSIONS = "it decides what may run unasked, which is Nucleic's part: use policies or rules"
_SETTINGS = "it brings settings in, which may hold hooks and permissions"
_CODE = "it brings in hooks or permissions of its own"
_FIELD = "Nucleic sets it itself: give it as {}"
_SESSION = "Nucleic decides which session a process serves: use resume and fork"
_ELSEWHERE = "it moves the session, or its control, away from this process"
_SPEECH = "the conversation between Nucleic and the CLI depends on it"

REFUSED = {
    "--allowedTools": _PERMISSIONS,
    "--allowed-tools": _PERMISSIONS,
    "--permission-mode": _PERMISSIONS,
    "--permission-prompt-tool": _PERMISSIONS,
    "--permission-prompts": _PERMISSIONS,
    "--inherit-permission-mode": _PERMISSIONS,
    "--plan-mode-required": _PERMISSIONS,
    "--enable-auto-mode": _PERMISSIONS,
    "--settings": _SETTINGS,
    "--setting-sources": _SETTINGS,
    "--managed-settings": _SETTINGS,
    "--agents": _CODE,
    "--plugin-dir": _CODE,
    "--plugin-dir-no-mcp": _CODE,
    "--plugin-url": _CODE,
    "--channels": _CODE,
    "--init": _CODE,
    "--init-only": _CODE,
    "--maintenance": _CODE,
    "--safe-mode": "it drops the approval server with everything else",
    "--mcp-config": _FIELD.format("mcp_config"),
    "--strict-mcp-config": "it is always set",
    "--model": _FIELD.format("model"),
    "--append-system-prompt": _FIELD.format("system_prompt"),
    "--add-dir": _FIELD.format("add_dirs"),
    "--json-schema": _FIELD.format("output_schema"),
    "--no-session-persistence": _FIELD.format("ephemeral"),
    "--include-partial-messages": _FIELD.format("partials"),
    "--resume": _SESSION,
    "--continue": _SESSION,
    "--session-id": _SESSION,
    "--fork-session": _SESSION,
    "--from-pr": _SESSION,
    "--resume-session-at": _SESSION,
    "--rewind-files": _SESSION,
    "--worktree": "Nucleic decides the working directory: give it as cwd",
    "--cwd": "Nucleic decides the working directory: give it as cwd",
    "--background": _ELSEWHERE,
    "--bg": _ELSEWHERE,
    "--chrome": _ELSEWHERE,
    "--cloud": _ELSEWHERE,
    "--desktop": _ELSEWHERE,
    "--environment": _ELSEWHERE,
    "--ide": _ELSEWHERE,
    "--rc": _ELSEWHERE,
    "--remote": _ELSEWHERE,
    "--remote-control": _ELSEWHERE,
    "--sdk-url": _ELSEWHERE,
    "--teammate-mode": _ELSEWHERE,
    "--teleport": _ELSEWHERE,
    "--tmux": _ELSEWHERE,
    "--web": _ELSEWHERE,
    "--await-initialize": _SPEECH,
    "--await-claim": _SPEECH,
    "--help": _SPEECH,
    "--input-format": _SPEECH,
    "--output-format": _SPEECH,
    "--print": _SPEECH,
    "--replay-user-messages": _SPEECH,
    "--transport": _SPEECH,
    "--verbose": _SPEECH,
    "--version": _SPEECH,
}
"""Flags that `extra_args` may not hold, each with the reason. The CLI takes no shortened long flags (it says "unknown
option"), so the names here and `name=value` are all there is."""

_FAMILIES = (
    (re.compile("dangerously|permission|sandbox"), _PERMISSIONS),
    (re.compile("setting"), _SETTINGS),
    (re.compile("hook(?!-events)"), _CODE),
)
"""For flags that a later version may bring: a name like these is refused unseen."""

CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
)
"""How the user is logged in, or where the log-in is kept."""

ENDPOINT = (
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
)
"""Where the model is and what it is called there: gateways of companies need them."""

PRIVACY = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_TELEMETRY",
)
"""What the user switched off stays off under Nucleic."""

PROVIDERS = {
    "CLAUDE_CODE_USE_BEDROCK": (
        "ANTHROPIC_BEDROCK_BASE_URL",
        "AWS_ACCESS_KEY_ID",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_CONFIG_FILE",
        "AWS_DEFAULT_REGION",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE",
        "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    ),
    "CLAUDE_CODE_USE_VERTEX": (
        "ANTHROPIC_VERTEX_BASE_URL",
        "ANTHROPIC_VERTEX_PROJECT_ID",
        "CLAUDE_CODE_SKIP_VERTEX_AUTH",
        "CLOUD_ML_REGION",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
    ),
    "CLAUDE_CODE_USE_FOUNDRY": (
        "ANTHROPIC_FOUNDRY_API_KEY",
        "ANTHROPIC_FOUNDRY_BASE_URL",
        "ANTHROPIC_FOUNDRY_RESOURCE",
    ),
}
"""A cloud's own credentials, given only when the user's switch (the key) says that the model is there."""


def spawn(run: RunSpec, program: Program, channel: Channel, mcp_config: Path | None) -> ProcessSpec:
    """The process of a run. `mcp_config` is the file to give to the CLI: the run's own, or the approval server's.

    Raises Unsupported for `extra_args` that would undo what Nucleic answers for.
    """
    served = channel == "http" or bool(run.tools)
    return ProcessSpec(
        argv=(program.path, *arguments(run, channel, mcp_config)),
        # Progress keeps a waiting call alive; these lift the CLI's own limits, 60 s and 300 s, should progress be late.
        env={"MCP_TOOL_TIMEOUT": A_DAY_MS, "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": A_DAY_MS} if served else {},
        inherit_env=inherited(run),
        cwd=run.cwd,
    )


def arguments(run: RunSpec, channel: Channel, mcp_config: Path | None) -> tuple[str, ...]:
    """The arguments, the run's extra ones last, so that none of them can swallow one of ours as its value."""
    refuse(run.extra_args)
    asked = "stdio" if channel == "stdio" else APPROVE_TOOL
    args = [*PROTOCOL, *GUARDS, f"--permission-prompt-tool={asked}"]
    if mcp_config is not None:
        args.append(f"--mcp-config={mcp_config}")
    if run.partials:
        args.append("--include-partial-messages")
    if run.model is not None:
        args.append(f"--model={run.model}")
    if run.system_prompt is not None:
        args.append(f"--append-system-prompt={run.system_prompt}")
    args += [f"--add-dir={run.cwd / directory}" for directory in run.add_dirs]
    if run.output_schema is not None:
        args.append(f"--json-schema={json.dumps(run.output_schema)}")
    if run.ephemeral:
        args.append("--no-session-persistence")
    if run.native_resume is not None:
        args.append(f"--resume={run.native_resume}")
        if run.fork:
            args.append("--fork-session")
    return (*args, *run.extra_args)


def refuse(extra_args: tuple[str, ...]) -> None:
    """Raise Unsupported when an extra argument is one that a run may not give, with the reason."""
    for place, arg in enumerate(extra_args):
        name = arg.partition("=")[0]
        if arg == "--" or (place == 0 and not arg.startswith("--")):
            raise Unsupported(
                f"claude extra argument {arg!r} is refused: only long flags and their values may be added."
            )
        if re.match("-[A-Za-z]", arg):
            raise Unsupported(f"claude extra argument {arg!r} is refused: write the flag's long form.")
        if not name.startswith("--"):
            continue
        family = next((why for pattern, why in _FAMILIES if pattern.search(name)), None)
        if why := REFUSED.get(name, family):
            raise Unsupported(f"claude extra argument {name} is refused: {why}.")


def inherited(run: RunSpec) -> tuple[str, ...]:
    """Names of variables the CLI gets from this process, beyond the core's allow list.

    Never what a surrounding Claude Code leaves to its children (`CLAUDECODE`, `CLAUDE_CODE_ENTRYPOINT`, ...).
    """
    switched = {**os.environ, **run.env}
    names = [*CREDENTIALS, *ENDPOINT, *PRIVACY]
    for switch, wanted in PROVIDERS.items():
        if switched.get(switch):
            names += [switch, *wanted]
    return tuple(names)
