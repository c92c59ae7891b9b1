"""Codex's tools in Claude's vocabulary: the one name each has with us, whichever of Codex's surfaces shows it.

| Codex                              | with us                | why                                                              |
|---                                 |---                     |---                                                               |
| commandExecution                   | `Bash`                 | `command` without the `bash -lc` around it, and `cwd`            |
| fileChange                         | `Edit`                 | one name for every patch: one may add, change and delete files   |
| mcpToolCall                        | `mcp__server__tool`    | as Codex itself names it to its hooks                            |
| webSearch                          | `WebSearch`            |                                                                  |
| subAgentActivity (started), collab | `Agent`                | `action` says which of the collaboration tools it is             |
| imageView                          | `Read`                 |                                                                  |
| requestUserInput                   | `AskUserQuestion`      |                                                                  |
| all others                         | their native name      |                                                                  |
"""

import os
import shlex

BASH, EDIT, SEARCH, AGENT, READ, QUESTION = "Bash", "Edit", "WebSearch", "Agent", "Read", "AskUserQuestion"
PERMISSIONS = "request_permissions"
UNKNOWN = "unknown"
"""The name of a call of which nothing but its id is on the wire."""

_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})


def mcp_name(server: str, tool: str) -> str:
    """The name of a tool of an MCP server."""
    return f"mcp__{server}__{tool}"


def bare_command(command: str) -> str:
    """The script in `/bin/bash -lc 'script'`, which is how Codex spells every command; any other command unchanged.

    Rules and people judge the script. What would run is the same: the shell gets exactly this text.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    match words:
        case [shell, "-lc" | "-c", script] if os.path.basename(shell) in _SHELLS:  # noqa: PTH119  # text, no file asked
            return script
        case _:
            return command
