"""The native session of one process: who it is, where it stands, in which mode.

`init` comes once a turn with the same id (wire fact 4); only the first, and one with another id (`/clear`, some resumes), is a
`session_started`. The core keeps the newest, so that a later resume goes to the session that goes on.
"""

import re
from pathlib import Path

from nucleic_claude.fields import mapping, sequence, string
from nucleic_claude.tools import tool_name
from nucleic_core.backend import Out
from nucleic_core.events import Notice, SessionStarted
from nucleic_core.lowlevel import JSON

_ODD = re.compile(r"[^A-Za-z0-9]")
_LONGEST_NAME = 200


class Session:
    """What `init` and `status` have said so far. `cwd` is where relative paths of the agent start."""

    def __init__(self, cwd: Path | None, transcript_root: Path | None) -> None:
        self.cwd = str(cwd) if cwd is not None else None
        self.model: str | None = None
        self._transcript_root = transcript_root
        self._id: str | None = None
        self._mode: str | None = None
        self._servers: dict[str, str] = {}

    def init(self, line: JSON, out: Out) -> bool:
        """One `init` line. False if it does not name the session."""
        session_id = string(line.get("session_id"))
        if session_id is None:
            return False
        self.cwd = string(line.get("cwd")) or self.cwd
        self.model = string(line.get("model")) or self.model
        if session_id != self._id:
            if self._id is not None:
                text = f"The conversation goes on under a new native id, {session_id}; it was {self._id}."
                out.event(Notice("session", text), "system/init")
            self._id = session_id
            started = SessionStarted(
                native_id=session_id,
                model=self.model,
                cwd=self.cwd,
                tools=tuple(tool_name(tool) for tool in sequence(line.get("tools")) if isinstance(tool, str)),
                agent_version=string(line.get("claude_code_version")),
                transcript_path=self._transcript_path(session_id),
            )
            out.event(started, "system/init")
        self._tell_mode(line.get("permissionMode"), "system/init", out)
        for server in sequence(line.get("mcp_servers")):
            self._tell_server(mapping(server), out)
        return True

    def status(self, line: JSON, out: Out) -> bool:
        """One `status` line: a mode, or compaction; "requesting" precedes each model call and says nothing more."""
        status, result = line.get("status"), string(line.get("compact_result"))
        if not (status is None or isinstance(status, str)):
            return False
        self._tell_mode(line.get("permissionMode"), "system/status", out)
        if status == "compacting":
            out.event(Notice("compaction", "The agent sums up the conversation so far."), "system/status")
        elif result is not None:
            why = string(line.get("compact_error")) or result
            text = "is summed up." if result == "success" else f"could not be summed up: {why}"
            out.event(Notice("compaction", f"The conversation so far {text}"), "system/status")
        return status in (None, "requesting", "compacting")

    def reset(self, line: JSON, out: Out) -> bool:
        """`conversation_reset` (`/clear`). The id it names is not the one of the `init` that follows, which counts."""
        trigger = string(line.get("trigger"))
        text = f"The agent starts a new conversation{f' ({trigger})' if trigger else ''}."
        out.event(Notice("session", text, {"id": line.get("new_conversation_id")}), "conversation_reset")
        return True

    def _tell_mode(self, mode: JSON, native: str, out: Out) -> None:
        if isinstance(mode, str) and mode != self._mode:
            if self._mode is not None or mode != "default":
                out.event(Notice("mode", f"Permission mode: {mode}", {"mode": mode}), native)
            self._mode = mode

    def _tell_server(self, server: dict[str, JSON], out: Out) -> None:
        name, status = string(server.get("name")), string(server.get("status"))
        if name is None or status is None or self._servers.get(name) == status:
            return
        self._servers[name] = status
        if status not in ("connected", "pending", "disabled"):
            out.event(Notice("mcp", f"The MCP server {name} is not connected: {status}", server), "system/init")

    def _transcript_path(self, session_id: str) -> str | None:
        """The cwd with `-` for all but ASCII letters and digits; a longer name ends in a hash whose rule nobody knows."""
        if self._transcript_root is None or self.cwd is None or len(self.cwd) > _LONGEST_NAME:
            return None
        return str(self._transcript_root / _ODD.sub("-", self.cwd) / f"{session_id}.jsonl")
