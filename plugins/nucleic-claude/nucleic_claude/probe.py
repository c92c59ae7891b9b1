"""What Claude Code can do, per version, and what of it is on this machine: program, version, log-in."""

import os
from collections.abc import Mapping

import trio

from nucleic_claude.program import NEWEST, config_dir, find, spoken
from nucleic_claude.spawn import PROVIDERS
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.errors import BackendMissing
from nucleic_core.specs import RunSpec

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", *PROVIDERS)
"""Any of these in the environment means that the CLI needs no log-in of its own."""


class ClaudeProber:
    """Answers for the `claude` program named `executable`."""

    def __init__(self, executable: str = "claude") -> None:
        self._executable = executable

    def declared(self, version: str | None = None, run: RunSpec | None = None) -> BackendCapabilities:
        """The same for every version that is driven, 2.1.167 to 2.1.332, and on both approval channels."""
        return BackendCapabilities(
            interactive_approvals=True,
            questions=True,
            can_modify_tool_input=True,
            partial_message_streaming=True,
            emits_thinking=True,
            # Edits show in the results of Edit and Write; what a shell command writes does not.
            emits_file_change_events=True,
            native_resume=True,
            fork=True,
            images=True,
            deny_means="goes_on",
            deny_reason_reaches_model=True,
            follow_up=frozenset({"queue", "steer"}),
            honours=frozenset(
                {
                    "model",
                    "system_prompt",
                    "mcp_config",
                    "add_dirs",
                    "partials",
                    "output_schema",
                    "ephemeral",
                    "extra_args",
                    "native_resume",
                    "fork",
                    "settings",
                    "tools",
                }
            ),
            models=("claude-*", "opus*", "sonnet*", "haiku*"),
        )

    async def probe(self, env: Mapping[str, str]) -> ProbeReport:
        """Look for the program and its log-in; `claude --version` is all that is started."""
        try:
            program = await find(self._executable, env)
        except BackendMissing as missing:
            return ProbeReport(installed=False, next_step=str(missing))
        version = spoken(program.version)
        if await _logged_in(env):
            next_step = "" if program.version <= NEWEST else f"Newer than the newest tested version, {spoken(NEWEST)}."
            return ProbeReport(installed=True, version=version, logged_in=True, next_step=next_step)
        if _keychain():
            return ProbeReport(
                installed=True, version=version, next_step="If a run fails to log in, run `claude` once."
            )
        return ProbeReport(
            installed=True,
            version=version,
            logged_in=False,
            next_step="Log in: run `claude` once, or set ANTHROPIC_API_KEY.",
        )


async def _logged_in(env: Mapping[str, str]) -> bool:
    """Whether there is a key, or the file that a log-in leaves; nobody asks the service whether it is valid."""
    if any(env.get(name) for name in KEYS):
        return True
    return await trio.Path(config_dir(env), ".credentials.json").exists()


def _keychain() -> bool:
    """Whether the CLI keeps its log-in where only it can look: the macOS keychain."""
    return os.uname().sysname == "Darwin"
