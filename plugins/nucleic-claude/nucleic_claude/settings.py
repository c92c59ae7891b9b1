"""The backend's own settings of a run (`RunSpec.settings`), read and checked once."""

from collections.abc import Mapping
from typing import Literal

import attrs

from nucleic_core.errors import BadSettings

Channel = Literal["stdio", "http"]


@attrs.frozen
class Settings:
    """How Claude Code is driven.

    `channel` is the road that approvals take: `stdio`, the control protocol on the CLI's own pipes, or `http`, an MCP
    server on loopback. `executable` is the program, by name on PATH or by path.
    """

    channel: Channel = "stdio"
    executable: str = "claude"

    @classmethod
    def read(cls, given: Mapping[str, object]) -> "Settings":
        """Read what the run gives; BadSettings for an unknown name or a value that is none."""
        known = [field.name for field in attrs.fields(cls)]
        for name in given:
            if name not in known:
                raise BadSettings(f"claude has no setting {name!r}: it knows {' and '.join(known)}.")
        channel = given.get("channel", "stdio")
        if channel not in ("stdio", "http"):
            raise BadSettings(f"The claude setting channel is {channel!r}: it must be stdio or http.")
        executable = given.get("executable", "claude")
        if not isinstance(executable, str) or not executable:
            raise BadSettings(f"The claude setting executable is {executable!r}: it must be a program's name or path.")
        return cls(channel, executable)
